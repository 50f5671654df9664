/* schema.c: a JSON schema, and its text as one. */
#include "../../runtime/grammar/grammar.h"
#include "fuzz.h"

FUZZ(schema)
{
        Grammar *g = NULL;
        Matcher *m = NULL;
        Err e;
        if (n > 4096 || grammar_schema(&g, (const char *)data, n, "fuzz", &e))
                return;
        if (!matcher_new(&m, g, NULL, &e))
                for (size_t i = 0; i < n && i < 64 && matcher_bytes(m, (const char *)data + i, 1);
                     i++)
                        ;
        matcher_free(m);
        grammar_free(g);
}
