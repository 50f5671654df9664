/* graph_text.c: graphs as text, which a plan's section `ir` holds.  Printer and parser are
 * inverses. */
#include "model.h"

FUZZ(graph_text)
{
        char *text = text_of_bytes(data, n);
        Graph *volatile g, *volatile h;
        Text a = { 0 }, b = { 0 };

        READS(g, graph_parse(text, "fuzz"));
        free(text);
        if (!g)
                return;
        graph_print(g, &a, PRINT_LOC | PRINT_GROUP);
        READS(h, graph_parse(a.s, "fuzz"));
        HOLDS(h);
        graph_print(h, &b, PRINT_LOC | PRINT_GROUP);
        HOLDS(a.n == b.n && !memcmp(a.s, b.s, a.n));
        graph_free(g);
        graph_free(h);
        text_free(&a);
        text_free(&b);
}
