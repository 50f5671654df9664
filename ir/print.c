/* print.c: prints a graph as text.  Reading the text (parse.c) and printing it again gives the same
 * bytes.
 *
 *      graph @mlp(%x: bf16[B,T,64]) B=1 {
 *        %w = param {init=2, a=0.02} : f32[128,64]
 *        %h = matmul %x, %w {tb=1} : bf16[B,T,128] !3 @mlp.lua:12
 *        return %h, loss=%l
 *      }
 *
 * One node a line; attributes in table order, those at their default left out;
 * !3 is the kernel a node was fused into; @ is where the user wrote it. */
#include "ir.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static locale_t plain(void)
{
        return newlocale(LC_ALL_MASK, "C", (locale_t)0); /* an object that is always there */
}

double num_read(const char *s, char **end) { return strtod_l(s, end, plain()); }

void num_text(double x, char *buf)
{
        if (isnan(x)) {
                strcpy(buf, "nan");
                return;
        }
        if (isinf(x)) {
                strcpy(buf, x < 0 ? "-inf" : "inf");
                return;
        }
        locale_t was = uselocale(plain());
        for (int p = 1; p <= 17; p++) {
                snprintf(buf, 32, "%.*g", p, x);
                if (num_read(buf, NULL) == x)
                        break;
        }
        char whole[32]; /* 30, not 3e+01 */
        if (fabs(x) < 1e9 && x == floor(x) &&
            snprintf(whole, sizeof whole, "%.0f", x) <= (int)strlen(buf))
                strcpy(buf, whole);
        uselocale(was);
}

static void print_attr(const Node *n, Text *out)
{
        const AttrField *f = attr_fields[op_info[n->op].attr];
        const char *sep = " {";
        char num[32];
        for (; f->name; f++) {
                const char *p = (const char *)&n->a + f->offset;
                if (f->count == 0) { /* the table of a constant */
                        if (!n->a.data.n)
                                continue;
                        text_add(out, "%s%s=", sep, f->name);
                        for (int64_t i = 0; i < n->a.data.n; i++) {
                                num_text(n->a.data.data[i], num);
                                text_add(out, "%s%s", i ? ":" : "", num);
                        }
                        sep = ", ";
                } else if (f->count > 1) {
                        if (!n->type.rank)
                                continue;
                        text_add(out, "%s%s=", sep, f->name);
                        for (int i = 0; i < n->type.rank; i++)
                                text_add(out, "%s%lld", i ? ":" : "",
                                         (long long)((const int64_t *)p)[i]);
                        sep = ", ";
                } else if (f->real ? *(const double *)p != f->dflt
                                   : *(const int64_t *)p != (int64_t)f->dflt) {
                        if (f->real)
                                num_text(*(const double *)p, num);
                        else if (f->word)
                                snprintf(num, sizeof num, "%s", f->word[*(const int64_t *)p]);
                        else
                                snprintf(num, sizeof num, "%lld", (long long)*(const int64_t *)p);
                        text_add(out, "%s%s=%s", sep, f->name, num);
                        sep = ", ";
                }
        }
        if (sep[0] == ',')
                text_add(out, "}");
}

static void print_node(const Graph *g, Ref r, Text *out, int flags)
{
        const Node *n = &g->node[r];
        char t[256], file[LOC_NAME];
        text_add(out, "  %%%s = %s", n->name, op_info[n->op].text);
        for (int i = 0; i < n->n_in; i++)
                text_add(out, "%s%%%s", i ? ", " : " ", g->node[n->in[i]].name);
        print_attr(n, out);
        text_add(out, " : %s", type_text(&n->type, t));
        if (flags & PRINT_GROUP && n->group)
                text_add(out, " !%d", n->group);
        if (flags & PRINT_LOC && n->loc.file && n->loc.line)
                text_add(out, " @%s:%d", loc_name(n->loc, file), n->loc.line);
        text_add(out, "\n");
}

void graph_print(const Graph *g, Text *out, int flags)
{
        char t[256];
        const char *sep = "";
        text_add(out, "graph @%s(", g->name);
        for (Ref r = 1; r < g->n_nodes; r++)
                if (g->node[r].op == OP_INPUT) {
                        text_add(out, "%s%%%s: %s", sep, g->node[r].name,
                                 type_text(&g->node[r].type, t));
                        sep = ", ";
                }
        text_add(out, ")");
        for (int i = 0; i < N_SYM; i++)
                if (g->sizes.v[i])
                        text_add(out, " %c=%lld", "BTS"[i], (long long)g -> sizes.v[i]);
        text_add(out, " {\n");
        for (Ref r = 1; r < g->n_nodes; r++)
                if (g->node[r].op != OP_INPUT)
                        print_node(g, r, out, flags);
        if (g->n_out) {
                text_add(out, "  return ");
                for (int i = 0; i < g->n_out; i++)
                        text_add(out, "%s%s=%%%s", i ? ", " : "", g->out[i].name,
                                 g->node[g->out[i].ref].name);
                text_add(out, "\n");
        }
        text_add(out, "}\n");
}
