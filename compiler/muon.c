/* muon.c: selects the parameters that Muon trains, and the matrices in them.
 *
 * Muon trains hidden matrices: trainable parameters of two axes that are only the right operand of
 * products, none of which makes the logits.  AdamW trains embeddings, the output, gains and biases.
 * Linears that merge_linears.c joined are still separate matrices, as the map's rows say.  A tensor
 * that is one in the checkpoint (c_attn) is one matrix. */
#include "pipeline.h"
#include <string.h>

void muon_mark(const Graph *g, bool *muon)
{
        const Ref output = output_linear(g);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                muon[r] = n->op == OP_PARAM && n->a.param.trainable && n->type.rank == 2;
                if (n->op == OP_PARAM && n->a.param.trainable && n->type.rank > 2)
                        error_code(
                                2, n->loc,
                                "--optimizer muon: %s holds several matrices, and Muon is for one: "
                                "freeze it (--group '%s: freeze'), or take another optimiser",
                                n->name, n->name);
        }
        for (Ref r = 1; r < g->n_nodes; r++)
                for (int i = 0; i < g->node[r].n_in; i++)
                        muon[g->node[r].in[i]] &= g->node[r].op == OP_MATMUL && i == 1 &&
                                                  r != output;
}

/* The rows of a line of the map. */
static void rows_of(const MapLine *l, int64_t all, int64_t *begin, int64_t *step, int64_t *n)
{
        *begin = l->end ? l->begin : 0;
        *step = l->end ? l->step : 1;
        *n = l->end ? (l->end - l->begin + l->step - 1) / l->step : all;
}

/* The parameter's parts by its lines, which may name one several times; how many, 0: they are no
 * parts of it. */
static int parts_of(const Model *m, const Node *p, const MuonMatrix *whole, MuonMatrix *out)
{
        int64_t covered = 0;
        int n = 0;
        for (int i = 0; i < m->n_map; i++) {
                const MapLine *l = &m->map[i];
                int64_t begin, step, rows;
                bool seen = false;
                if (strcmp(l->param, p->name))
                        continue;
                rows_of(l, whole->rows, &begin, &step, &rows);
                MuonMatrix w = *whole;
                w.first += begin * whole->cols;
                w.ld = step * whole->cols;
                w.rows = rows;
                for (int k = 0; k < n; k++)
                        seen |= out[k].first == w.first && out[k].ld == w.ld && out[k].rows == rows;
                if (seen)
                        continue;
                covered += rows;
                out[n++] = w;
        }
        return covered == whole->rows ? n : 0;
}

void muon_matrices(const Model *m, Shared *sh)
{
        const Graph *g = m->graph;
        bool *muon = arena_alloc(sh->arena, (size_t)g->n_nodes);
        int n = 0;
        muon_mark(g, muon);
        MuonMatrix *w = arena_alloc(sh->arena, (size_t)(g->n_nodes + m->n_map) * sizeof *w);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *p = &g->node[r];
                const ParamPlace *at = muon[r] ? param_place(sh, p->name) : NULL;
                if (!at)
                        continue;
                const int64_t cols = p->type.dim[1].n;
                const MuonMatrix whole = { at->offset,
                                           cols,
                                           p->type.dim[0].n,
                                           cols,
                                           p->a.param.rate,
                                           p->a.param.own_decay,
                                           at->offset < sh->n_decay };
                const int parts = parts_of(m, p, &whole, w + n);
                if (!parts)
                        w[n] = whole;
                n += parts ? parts : 1;
        }
        if (!n)
                error_code(
                        2, (Loc) { 0 },
                        "--optimizer muon: no hidden matrix is trained, and the rest is AdamW's: "
                        "take --optimizer adamw");
        sh->matrix = w;
        sh->n_matrices = n;
}
