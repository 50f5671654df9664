/* manifest.c: places parameters in the arena of weights, and writes the plan's manifest.
 *
 * runtime/plan/ reads the manifest.  Parameters of one kind (with weight decay, without, frozen)
 * are adjacent, so the optimiser's launches take ranges. */
#include "pipeline.h"

/* Elements of the arena that it takes. */
static int64_t param_slots(const Node *n, DType dt)
{
        const int64_t elems = type_elems(&n->type).n;
        const int size = dt_size[dt];
        return node_storage(n) ? (storage_bytes(node_storage(n), elems) + size - 1) / size : elems;
}

/* low: the step stores its gradient in 16 bits (precision.c). */
static int rank_of(const Node *n, bool low)
{
        return !n->a.param.trainable ? 3 : !n->a.param.decay ? 2 : low ? 0 : 1;
}

static bool same_group(const Node *a, const Node *b)
{
        return a->a.param.rate == b->a.param.rate && a->a.param.own_decay == b->a.param.own_decay;
}

/* Those from `first` on, in order, that are trained alike; *at: of the arena. */
static void place_group(const Graph *g, Ref first, int k, const bool *low, const bool *muon,
                        bool *placed, DType dt, int64_t align, Shared *sh, ParamPlace *p,
                        int64_t *at)
{
        for (Ref r = first; r < g->n_nodes; r++) {
                const Node *x = &g->node[r];
                if (x->op != OP_PARAM || placed[r] || rank_of(x, low[r]) != k ||
                    (k < 3 && (!same_group(x, &g->node[first]) || muon[r] != muon[first])))
                        continue;
                const int64_t n = param_slots(x, dt);
                placed[r] = true;
                p[sh->n_params++] = (ParamPlace) { x->name, *at, n };
                *at += (n + align - 1) / align * align;
        }
}

/* Trainable ones with weight decay first, of them those whose gradients are 16 bits; then
 * trainable, then frozen; in order of the graph within each.  step may be NULL.  dt: of the
 * arena's elements; blocks take as many of them as hold their bytes. */
void lay_out(const Graph *g, const Graph *step, DType dt, Shared *sh)
{
        int n = 0;
        for (Ref r = 1; r < g->n_nodes; r++)
                n += g->node[r].op == OP_PARAM;
        ParamPlace *p = arena_alloc(sh->arena, (size_t)(n + 1) * sizeof *p);
        int64_t at = 0;
        const int64_t align = sh->optimizer == OPTIMIZER_ADAMW8BIT ? OPTIMIZER_BLOCK : 128;
        bool *low = arena_alloc(sh->arena, (size_t)g->n_nodes);
        for (Ref r = 1; step && r < step->n_nodes; r++)
                if (NODE(step, r)->op == OP_ACCUM && NODE(step, r)->type.dt != DT_F32)
                        low[graph_find(g, NODE(step, NODE(step, r)->in[0])->name)] = true;
        sh->param = p;
        bool *placed = arena_alloc(sh->arena, (size_t)g->n_nodes),
             *muon = arena_alloc(sh->arena, (size_t)g->n_nodes), groups = false;
        if (sh->optimizer == OPTIMIZER_MUON && step) {
                muon_mark(g, muon);
                groups = true;
        }
        for (Ref r = 1; r < g->n_nodes; r++)
                groups |= g->node[r].op == OP_PARAM && g->node[r].a.param.trainable &&
                          !same_group(&g->node[r], &g->node[0]);
        if (groups && sh->optimizer == OPTIMIZER_ADAMW8BIT)
                error_code(
                        2, (Loc) { 0 },
                        "%s has one learning rate and weight decay for all: lr= and wd= of --group "
                        "go with another --optimizer",
                        optimizer_info[sh->optimizer].name);
        sh->range = groups ? arena_alloc(sh->arena, (size_t)(n + 1) * sizeof *sh->range) : NULL;
        for (int k = 0; k < 4; k++) {
                for (Ref r = 1; r < g->n_nodes; r++) {
                        const Node *x = &g->node[r];
                        if (x->op != OP_PARAM || placed[r] || rank_of(x, low[r]) != k)
                                continue;
                        if (groups && k < 3)
                                at = (at + UPDATE_ALIGN - 1) / UPDATE_ALIGN * UPDATE_ALIGN;
                        const int64_t begin = at;
                        place_group(g, r, k, low, muon, placed, dt, align, sh, p, &at);
                        if (groups && k < 3)
                                sh->range[sh->n_ranges++] = (UpdateRange) {
                                        begin, at, x->a.param.rate, x->a.param.own_decay, muon[r]
                                };
                }
                if (k == 0)
                        sh->n_low = at;
                if (k <= 1)
                        sh->n_decay = at;
                if (k <= 2)
                        sh->n_train = at;
        }
        sh->n_all = at;
}

static void init_text(const Node *n, Text *t)
{
        char a[32], b[32];
        num_text(n->a.param.a, a);
        num_text(n->a.param.b, b);
        switch (n->a.param.init) {
        case INIT_ONES: text_add(t, "ones"); break;
        case INIT_NORMAL: text_add(t, "normal %s", a); break;
        case INIT_UNIFORM: text_add(t, "uniform %s %s", a, b); break;
        case INIT_VALUE: text_add(t, "value %s", a); break;
        default: text_add(t, "zeros");
        }
}

void manifest_text(const Model *m, const CompileOptions *o, Shared *sh, int ctx, int chunk, Text *t)
{
        const Graph *g = m->graph;
        text_add(t, "tgc 1\nmodel %s\ndtype %s\nmode %s\nvocab %lld\nctx %d\nbatch %d\nchunk %d\n",
                 m->name, dt_name[o->dtype],
                 o->infer && o->train       ? "both"
                 : o->train || o->reference ? "train"
                                            : "infer",
                 (long long)m->vocab, ctx, (int)sh->batch, chunk);
        if (o->act_int8)
                text_add(t, "act8 1\n");
        if (o->act_fp8)
                text_add(t, "act_fp8 %d\n", o->act_fp8);
        if (o->tf32)
                text_add(t, "tf32 1\n");
        if (o->fast)
                text_add(t, "fast 1\n");
        if (m->width)
                text_add(t, "hidden %lld\n", (long long)m->width);
        if (o->infer && o->cache && *o->cache != o->dtype)
                text_add(t, "cache %s\n", dt_name[*o->cache]);
        if (sh->cache_rows)
                text_add(t, "pages %lld\n", (long long)(sh->cache_rows / CACHE_PAGE));
        if (sh->cache_rows && sh->window)
                text_add(t, "window %lld\n", (long long)sh->window);
        if (sh->narrow_rows)
                text_add(t, "narrow_pages %lld\nnarrow_window %lld\n",
                         (long long)(sh->narrow_rows / CACHE_PAGE), (long long)sh->narrow);
        if (o->train && o->optimizer != OPTIMIZER_ADAMW)
                text_add(t, "optimizer %s\n", optimizer_info[o->optimizer].name);
        if (o->train && o->masters)
                text_add(t, "meta masters %s\n",
                         o->masters == MASTERS_NONE ? "none" : "stochastic");
        if (m->documents >= 0)
                text_add(t, "documents %lld\n", (long long)m->documents);
        if (m->positions)
                text_add(t, "meta positions %lld\n", (long long)m->positions);
        text_add(t, "params %lld %lld %lld\n", (long long)sh->n_train, (long long)sh->n_decay,
                 (long long)sh->n_all);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                if (n->op != OP_PARAM)
                        continue;
                const ParamPlace *p = param_place(sh, n->name);
                const int64_t at = p ? p->offset : 0;
                text_add(t, "param %s ", n->name);
                for (int i = 0; i < n->type.rank; i++)
                        text_add(t, "%s%lld", i ? "x" : "", (long long)n->type.dim[i].n);
                if (!n->type.rank)
                        text_add(t, "1");
                text_add(t, " %lld %s ", (long long)at,
                         n->a.param.trainable ? "trainable" : "frozen");
                if (node_storage(n))
                        text_add(t, "%s ", storage_name[node_storage(n)]);
                init_text(n, t);
                text_add(t, "\n");
        }
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = &g->node[r];
                char rate[32], decay[32];
                if (n->op != OP_PARAM || same_group(n, &g->node[0]))
                        continue;
                num_text(n->a.param.rate, rate);
                num_text(n->a.param.own_decay, decay);
                text_add(t, "rates %s %s %s\n", n->name, rate, decay);
        }
        for (int i = 0; i < sh->n_matrices; i++) {
                const MuonMatrix *w = &sh->matrix[i];
                text_add(t, "matrix %lld %lld %lld %lld\n", (long long)w->first, (long long)w->rows,
                         (long long)w->cols, (long long)w->ld);
        }
        model_map_text(m, t);
        text_add(t, "%s", m->meta);
}
