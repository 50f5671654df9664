/* model.h: what is done with a model that a target has read. */
#ifndef TGC_FUZZ_MODEL_H
#define TGC_FUZZ_MODEL_H

#include "../../runtime/util/line_reader.h"
#include "file.h"
#include "../../compiler/compiler.h"
#include "lua_modules.h"

/* What a model in Lua may take of the processor; a graph that grows until then takes ten times as
 * long to be freed. */
#define FUZZ_SECONDS 0.005

/* Errors in what the user wrote come by longjmp, and say something. */
#define READS(m, read)                          \
        do {                                    \
                Diag d = { 0 };                 \
                if (DIAG_CATCH(&d)) {           \
                        (m) = (read);           \
                        HOLDS(m);               \
                        diag_end(&d);           \
                } else {                        \
                        HOLDS(d.code &&*d.msg); \
                        (m) = NULL;             \
                }                               \
        } while (0)

/* As JSON it is read again, to the same text; its graph as text too. */
static inline void use_model(Model *m)
{
        Text json = { 0 }, again = { 0 }, ir = { 0 }, ir_again = { 0 };
        Model *volatile n;
        Graph *volatile g;

        write_json(m, &json);
        READS(n, read_json_text(json.s, json.n, "again.json"));
        HOLDS(n);
        write_json(n, &again);
        HOLDS(json.n == again.n && !memcmp(json.s, again.s, json.n));
        graph_print(m->graph, &ir, 0);
        READS(g, graph_parse(ir.s, "again"));
        HOLDS(g);
        graph_print(g, &ir_again, 0);
        HOLDS(ir.n == ir_again.n && !memcmp(ir.s, ir_again.s, ir.n));
        graph_free(g);
        model_free(n);
        text_free(&json);
        text_free(&again);
        text_free(&ir);
        text_free(&ir_again);
}

#endif
