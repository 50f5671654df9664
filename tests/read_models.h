/* read_models.h: models from Lua files, from config.json and from JSON, or the message that refuses
 * them. */
#ifndef TGC_READ_MODELS_H
#define TGC_READ_MODELS_H

#include <stdlib.h>
#include <unistd.h>
#include "../compiler/compiler.h"
#include "../runtime/util/file.h"
#include "test.h"

static Err err;

typedef struct Defines {
        const char *d[20];
} Defines;

static inline ReadOptions options(const Defines *d)
{
        ReadOptions o = { .models_dir = "models" };
        while (d && d->d[o.n_define])
                o.n_define++;
        o.define = d ? d->d : NULL;
        return o;
}

/* NULL on error, whose message goes to msg. */
static inline Model *try_lua(const char *path, const Defines *defines, char msg[2048], int *code)
{
        ReadOptions o = options(defines);
        Diag d;
        Model *volatile m = NULL;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                m = read_lua(path, &o);
                diag_end(&d);
        } else {
                snprintf(msg, 2048, "%s", d.msg);
                if (code)
                        *code = d.code;
        }
        return m;
}

static inline Model *lua(const char *path, const Defines *defines)
{
        char msg[2048];
        Model *m = try_lua(path, defines, msg, NULL);
        CHECK_MSG(m, "%s", msg);
        return m;
}

static inline Model *family(const char *name, const char *config, const Defines *defines)
{
        ReadOptions o = options(defines);
        Diag d;
        Model *volatile m = NULL;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                m = read_lua_family(name, config, &o);
                diag_end(&d);
        }
        CHECK_MSG(m, "%s", d.msg);
        return m;
}

static inline char *slurp(const char *path)
{
        static char *text; /* gcc 12 takes an automatic one for what it points to */
        size_t n;
        CHECK_MSG(!file_read_text(path, 64 << 20, &text, &n, &err), "%s", err.msg);
        return text;
}

static inline Model *from_json(const char *text, char msg[2048])
{
        char path[300];
        const char *base = getenv("TMPDIR");
        snprintf(path, sizeof path, "%s/tgc-read-%ld.json", base ? base : P_tmpdir, (long)getpid());
        FILE *f = fopen(path, "w");
        CHECK(f && fputs(text, f) >= 0 && !fclose(f));
        Diag d;
        Model *volatile m = NULL;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                m = read_json(path);
                diag_end(&d);
        } else {
                char *colon = strstr(d.msg, ".json");
                snprintf(msg, 2048, "%s", colon ? colon + 5 : d.msg);
        }
        unlink(path);
        return m;
}

static inline int64_t n_params(const Model *m)
{
        int64_t n = 0;
        for (Ref r = 1; r < m->graph->n_nodes; r++)
                if (m->graph->node[r].op == OP_PARAM)
                        n += type_elems(&m->graph->node[r].type).n;
        return n;
}

/* What the pipeline does first to a model that is to be trained: its logits are not wanted. */
static inline void run_passes(Model *m, const char *path)
{
        Graph *g = m->graph;
        int n = 0;
        for (int i = 0; i < g->n_out; i++)
                if (strcmp(g->out[i].name, "logits"))
                        g->out[n++] = g->out[i];
        g->n_out = n;
        Arena *tmp = arena_new();
        Diag d;
        volatile bool done = false;
        d.source = NULL;
        if (DIAG_CATCH(&d)) {
                simplify(m->graph, tmp);
                verify(m->graph, "simplify");
                merge_linears(m, tmp);
                verify(m->graph, "merge_linears");
                fuse_loss(m->graph, tmp);
                verify(m->graph, "fuse_loss");
                differentiate(m->graph, tmp);
                verify(m->graph, "differentiate");
                done = true;
                diag_end(&d);
        }
        arena_free(tmp);
        CHECK_MSG(done, "%s: %s", path, d.msg);
}

#endif
