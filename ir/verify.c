/* verify.c: checks the invariants that every pass keeps.  A broken graph is a bug of tgc, so this
 * names the pass and the node and aborts. */
#include "ir.h"
#include <stdlib.h>
#include <string.h>

static _Noreturn void broken(Graph *g, const char *after, Ref r, const char *why)
{
        Text t = { 0 };
        graph_print(g, &t, PRINT_GROUP);
        const char *name = r < g->n_nodes ? NODE(g, r)->name : "?";
        fprintf(stderr, "%s\ntgc: internal error after %s: %%%s in @%s: %s\n", t.s, after, name,
                g->name, why);
        abort();
}

/* Names tell nodes apart in the text. */
static void check_names(Graph *g, const char *after)
{
        unsigned cap = 64;
        while (cap < 2 * (unsigned)g->n_nodes)
                cap *= 2;
        struct {
                Ref r;
                unsigned hash;
        } *seen = mem_new(cap * sizeof *seen);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const char *name = NODE(g, r)->name;
                const unsigned h = hash_name(name);
                unsigned at = h & (cap - 1);
                for (; seen[at].r; at = (at + 1) & (cap - 1))
                        if (seen[at].hash == h && !strcmp(NODE(g, seen[at].r)->name, name))
                                broken(g, after, r, "two nodes have this name");
                seen[at].r = r;
                seen[at].hash = h;
        }
        free(seen);
}

void verify(Graph *g, const char *after)
{
        Diag d;
        volatile Ref at = 0;
        if (!DIAG_CATCH(&d)) {
                if (d.code == 5)
                        diag_pass_on(&d);
                broken(g, after, at, d.msg);
        }
        for (Ref r = 1; r < g->n_nodes; r++) {
                Node *n = NODE(g, r);
                Type out[MAX_OUT];
                at = r;
                if (n->op <= OP_NONE || n->op >= N_OPS)
                        broken(g, after, r, "no such op");
                if (n->n_in < op_least_inputs(n->op) || n->n_in > op_most_inputs(n->op))
                        broken(g, after, r, "wrong number of inputs");
                for (int i = 0; i < n->n_in; i++)
                        if (n->in[i] <= 0 || n->in[i] >= r)
                                broken(g, after, r, "reads a value that comes later");
                if (n->type.dt >= N_DT)
                        broken(g, after, r, "no such element type");
                Node copy = *n;
                op_info[n->op].shape(g, &copy, out);
                if (!shape_eq(&out[0], &n->type))
                        broken(g, after, r, "shape is not what its rule says");
        }
        for (int i = 0; i < g->n_out; i++)
                if (g->out[i].ref <= 0 || g->out[i].ref >= g->n_nodes)
                        broken(g, after, 0, "an output is not a node");
        check_names(g, after);
        diag_end(&d);
}
