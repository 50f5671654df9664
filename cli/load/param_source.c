/* param_source.c: finds the line of the model that makes a parameter, from the plan's own text, for
 * messages.  Includes the compiler's headers. */
#include <stdlib.h>
#include "../../compiler/compiler.h"
#include "../../runtime/weights/weight_map.h"
#include "load.h"
#include "../check/oracle.h"

static void find_places(const Graph *g, WeightParam *p, int n, Place *place)
{
        for (int i = 0; i < n; i++) {
                Ref r = graph_find(g, p[i].name);
                if (!r || !NODE(g, r)->loc.file || !NODE(g, r)->loc.line)
                        continue;
                snprintf(place[i], sizeof place[i], "%.60s:%d", NODE(g, r)->loc.file,
                         NODE(g, r)->loc.line);
                p[i].place = place[i];
        }
}

Place *param_places(const Plan *plan, WeightParam *p, int n)
{
        const Section *s = plan_find(plan, "ir");
        Diag d = { 0 };
        Graph *volatile g = NULL;
        char *volatile text = s ? oracle_text(s->data, s->size) : NULL;
        Place *volatile place = calloc((size_t)n + 1, sizeof *place);
        if (text && place && DIAG_CATCH(&d)) {
                g = graph_parse(text, "ir");
                find_places(g, p, n, place);
                diag_end(&d);
        }
        if (g)
                graph_free(g);
        free(text);
        return place;
}
