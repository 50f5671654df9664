/* pipeline.c: the road from a model to programs.
 *
 * The model's one forward graph is cleaned and its linears are merged; then every
 * program gets a copy of it and goes down the table of passes below.  After each
 * entry the scratch arena is emptied and the graph verified. */
#include "compiler.h"
#include "../codegen/forms/forms.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
        STEP = 1,
        EVAL = 2,
        PREFILL = 4,
        DECODE = 8,
        SCORE = 16,
        EMBED = 64
};                 /* kinds of programs; */
enum { GPU = 32 }; /* with it: for GPUs alone */
enum { TRAINS = STEP | EVAL, CACHED = PREFILL | DECODE | SCORE };

typedef struct Ctx {
        const CompileOptions *o;
        bool same_bits; /* a row's do not depend on how many rows there are: a paged cache */
        Text *why;
} Ctx;

/* Passes that need nothing but the graph and scratch. */
#define RUN(pass)                                          \
        static void run_##pass(Graph *g, Arena *t, Ctx *c) \
        {                                                  \
                (void)c;                                   \
                pass(g, t);                                \
        }
RUN(simplify)
RUN(fuse_loss)
RUN(pad_heads)
RUN(differentiate)
RUN(fuse_loss_grad)
RUN(fuse_norm_grad)

static void run_keep_slope(Graph *g, Arena *t, Ctx *c)
{
        if (!c->o->recompute) /* which has the activation computed again, from its input */
                keep_slope(g, t);
}

RUN(cache_kv)
static void run_precision(Graph *g, Arena *t, Ctx *c)
{
        (void)t;
        precision(g, c->o->dtype);
}
static void run_cache_type(Graph *g, Arena *t, Ctx *c)
{
        (void)t;
        if (c->o->cache && *c->o->cache != c->o->dtype)
                cache_type(g, *c->o->cache);
}
RUN(few_experts)
RUN(keep_parts)
RUN(materialize)
static void run_fuse(Graph *g, Arena *t, Ctx *c) { fuse(g, t, c->o->opt, c->same_bits, c->why); }
RUN(order)

static void run_recompute(Graph *g, Arena *t, Ctx *c)
{
        if (c->o->recompute || c->o->opt > 0)
                recompute(g, t, c->o->recompute);
}

static void run_sweep(Graph *g, Arena *t, Ctx *c)
{
        (void)t, (void)c;
        graph_sweep(g);
}

typedef struct Pass {
        const char *name;
        unsigned programs; /* in which programs it runs */
        int opt;           /* least -O level */
        void (*run)(Graph *g, Arena *tmp, Ctx *c);
} Pass;

static const Pass passes[] = {
        { "sweep", ~0u, 0, run_sweep },
        { "fuse_loss", TRAINS, 1, run_fuse_loss }, /* its gradient rule is the chunked one */
        /* before keys and values are cached, and differentiated */
        { "pad_heads", ~0u, 0, run_pad_heads },
        { "differentiate", STEP, 0, run_differentiate },
        { "cache_kv", CACHED, 0, run_cache_kv },
        { "simplify", ~0u, 0, run_simplify },
        { "fuse_loss_grad", STEP, 1, run_fuse_loss_grad },
        /* after simplify: it compares nodes */
        { "fuse_norm_grad", STEP, 1, run_fuse_norm_grad },
        { "keep_slope", STEP, 1, run_keep_slope }, /* before recompute: it counts readers */
        { "recompute", STEP, 0, run_recompute },   /* precision types the clones */
        { "precision", ~0u, 0, run_precision },
        { "cache_type", CACHED, 0, run_cache_type },
        { "few_experts", CACHED, 1, run_few_experts }, /* after precision: types are final */
        { "keep_parts", ~0u, 1, run_keep_parts },
        /* after precision: casts decide where parts lie */
        { "materialize", ~0u, 0, run_materialize },
        { "fuse", ~0u, 0, run_fuse },
        { "order", ~0u, 1, run_order },
};

/* ---- a program's own copy of the forward graph --------------------------- */

typedef struct Spec {
        const char *name;
        unsigned kind;
        int B, T;               /* most; */
        Sizes fixed;            /* sizes that are known; 0: run time */
        const char *outputs[4]; /* kept outputs */
} Spec;

/* Tokens of a prefill call: CHUNK fill a GPU badly and LONG well, but their tiles are too large for
 * a short prompt. */
enum { CHUNK = 512, LONG = 2048, CONTEXT_STEP = 256 };

static Dim bind_dim(Dim d, const Sizes *s)
{
        for (int i = 0; i < N_SYM; i++)
                while (d.e[i] && s->v[i]) {
                        d.n *= s->v[i];
                        d.e[i]--;
                }
        return d;
}

static void bind_clamp(Attr *a, const Sizes *s)
{
        const Dim d = bind_dim(clamp_rows(a), s);
        a->below.rows = d.n;
        a->below.B = d.e[SYM_B];
        a->below.T = d.e[SYM_T];
        a->below.S = d.e[SYM_S];
}

typedef struct Bind {
        const Sizes *s;
        bool drop;
} Bind;

/* Known sizes become constants; outside of training steps dropout is the identity. */
static Ref visit_bind(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        const Bind *b = ctx;
        if (NODE(old, r)->op == OP_DROPOUT && !b->drop)
                return map[NODE(old, r)->in[0]];
        Ref n = graph_copy_node(old, r, g, map);
        Node *x = NODE(g, n);
        for (int i = 0; i < x->type.rank; i++)
                x->type.dim[i] = bind_dim(x->type.dim[i], b->s);
        if (x->op == OP_CLAMP)
                bind_clamp(&x->a, b->s);
        if (!b->drop && x->op == OP_ATTENTION)
                x->a.att.p = 0;
        return n;
}

static bool wanted(const Spec *s, const char *output)
{
        for (int i = 0; i < 4 && s->outputs[i]; i++)
                if (!strcmp(s->outputs[i], output))
                        return true;
        return false;
}

static bool has_input(const Graph *g, const char *name)
{
        Ref r = graph_find(g, name);
        return r && NODE(g, r)->op == OP_INPUT;
}

/* Inputs that nothing reads any more (targets, where only logits are wanted). */
static Ref visit_used(Graph *old, Ref r, Graph *g, Ref *map, void *ctx)
{
        (void)ctx;
        if (NODE(old, r)->op == OP_INPUT && !NODE(old, r)->uses)
                return 0;
        return graph_copy_node(old, r, g, map);
}

/* What is given back where a model is refused, too. */
typedef struct Held {
        Graph *g[24];
        int n_g;
        Arena *tmp;
        Shared sh;
        Text programs, kernels, launched;
        Choices *choices;
} Held;

static Held *held_new(void)
{
        Held *h = calloc(1, sizeof *h);
        if (!h)
                error_code(5, (Loc) { 0 }, "no memory to compile");
        return h;
}

static void held_free(Held *h)
{
        for (int i = 0; i < h->n_g; i++)
                graph_free(h->g[i]);
        Arena *a[] = { h->tmp, h->sh.arena, h->choices ? h->choices->arena : NULL };
        for (int i = 0; i < 3; i++)
                if (a[i])
                        arena_free(a[i]);
        text_free(&h->programs);
        text_free(&h->kernels);
        text_free(&h->launched);
        free(h);
}

static Graph *specialise(const Model *m, const Spec *s, Held *h)
{
        Graph *g = h->g[h->n_g++] = graph_copy(m->graph, s->name);
        Arena *tmp = h->tmp;
        Bind b = { &s->fixed, s->kind == STEP };
        int k = 0;
        for (int i = 0; i < g->n_out; i++)
                if (wanted(s, g->out[i].name))
                        g->out[k++] = g->out[i];
        g->n_out = k;
        graph_rebuild(g, visit_bind, &b);
        g->sizes = s->fixed;
        if (s->kind & CACHED)
                forget_documents(g, tmp);
        if (s->kind & EMBED)
                bound_texts(g);
        graph_sweep(g);
        graph_count_uses(g);
        graph_rebuild(g, visit_used, NULL);
        if (s->kind & CACHED && has_input(g, "documents"))
                error_at(NODE(g, graph_find(g, "documents"))->loc,
                         "only attention and `position() - begin` may read the "
                         "input `documents` of a model that generates text");
        if (s->kind & CACHED && has_input(g, "targets"))
                error_at(NODE(g, graph_find(g, "targets"))->loc,
                         "the logits depend on the input `targets`, which nobody knows "
                         "where text is generated; compile with --mode train");
        return g;
}

/* prefill: the caches are its results.  decode: a sampler after the logits. */
static void finish_outputs(Graph *g, const Spec *s)
{
        if (s->kind & PREFILL) {
                g->n_out = 0;
                for (Ref r = 1; r < g->n_nodes; r++)
                        if (NODE(g, r)->op == OP_APPEND)
                                graph_output(g, NODE(g, r)->name, r);
                graph_sweep(g);
        } else if (s->kind == DECODE) {
                Ref l = graph_out(g, "logits");
                Type t = type_of(NODE(g, l)->type.dt, 2, NODE(g, l)->type.dim[0],
                                 NODE(g, l)->type.dim[NODE(g, l)->type.rank - 1]);
                l = graph_reshape(g, l, t);
                g->n_out = 0;
                graph_output(g, "logits", l);
                graph_output(g, "next",
                             graph_add(g, OP_SAMPLE, &l, 1, NULL, NODE(g, l)->loc, "next"));
        }
}

static double now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct Clock {
        double t[sizeof passes / sizeof *passes];
        double codegen;
} Clock;

/* Tokens that a cache of pages has room for.  Page 0 is nobody's: rows of a call that stand for no
 * sequence write there.  0: one sequence's cache has no pages. */
static int64_t cache_rows(const CompileOptions *o, int ctx)
{
        const int64_t each = (ctx + CACHE_PAGE - 1) / CACHE_PAGE,
                      wanted = (o->cache_tokens + CACHE_PAGE - 1) / CACHE_PAGE;
        const int64_t some = each + 32768 / CACHE_PAGE, all = o->batch * each;
        if (!o->infer || o->train || o->batch < 2)
                return 0;
        return (1 + (o->cache_tokens > 0                 ? wanted
                     : o->cache_tokens < 0 && some < all ? some
                                                         : all)) *
               CACHE_PAGE;
}

/* ctx, block: most tokens of a sequence, of a window. */
static Graph *run_passes(const Model *m, const Spec *s, const CompileOptions *o, int ctx, int block,
                         Compiled *out, Clock *clock, Held *h)
{
        Arena *tmp = h->tmp = arena_new();
        Graph *g = specialise(m, s, h);
        Ctx c = { o, cache_rows(o, ctx) > 0, &out->why };
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
                const Pass *p = &passes[i];
                double t0 = now();
                if (!(p->programs & s->kind) || o->opt < p->opt)
                        continue;
                if (!strcmp(p->name, "precision"))
                        finish_outputs(g, s);
                p->run(g, tmp, &c);
                arena_clear(tmp);
                verify(g, p->name);
                if (o->print_after &&
                    (!strcmp(o->print_after, p->name) || !strcmp(o->print_after, "all"))) {
                        text_add(&out->passes, "# %s, after %s\n", s->name, p->name);
                        graph_print(g, &out->passes, PRINT_LOC | PRINT_GROUP);
                }
                clock->t[i] += now() - t0;
        }
        check_program_tables(g, m, o, ctx, block);
        arena_free(tmp);
        h->tmp = NULL;
        return g;
}

/* ---- parameters ---------------------------------------------------------- */

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
static void place_group(const Graph *g, Ref first, int k, const bool *low, bool *placed, DType dt,
                        int64_t align, Shared *sh, ParamPlace *p, int64_t *at)
{
        for (Ref r = first; r < g->n_nodes; r++) {
                const Node *x = &g->node[r];
                if (x->op != OP_PARAM || placed[r] || rank_of(x, low[r]) != k ||
                    (k < 3 && !same_group(x, &g->node[first])))
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
static void lay_out(const Graph *g, const Graph *step, DType dt, Shared *sh)
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
        bool *placed = arena_alloc(sh->arena, (size_t)g->n_nodes), groups = false;
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
                        place_group(g, r, k, low, placed, dt, align, sh, p, &at);
                        if (groups && k < 3)
                                sh->range[sh->n_ranges++] = (UpdateRange) { begin, at,
                                                                            x->a.param.rate,
                                                                            x->a.param.own_decay };
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

/* The widest window, if every layer has one; else 0. */
static int64_t window_of(const Graph *g)
{
        int64_t most = 0;
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                if (n->op == OP_ATTENTION && !n->a.att.window)
                        return 0;
                if (n->op == OP_ATTENTION && n->a.att.window > most)
                        most = n->a.att.window;
        }
        return most;
}

static void manifest(const Model *m, const CompileOptions *o, Shared *sh, int ctx, int chunk,
                     Text *t)
{
        const Graph *g = m->graph;
        text_add(t, "tgc 1\nmodel %s\ndtype %s\nmode %s\nvocab %lld\nctx %d\nbatch %d\nchunk %d\n",
                 m->name, dt_name[o->dtype],
                 o->infer && o->train ? "both"
                 : o->train           ? "train"
                                      : "infer",
                 (long long)m->vocab, ctx, o->batch, chunk);
        if (o->act_int8)
                text_add(t, "act8 1\n");
        if (o->tf32)
                text_add(t, "tf32 1\n");
        if (m->width)
                text_add(t, "hidden %lld\n", (long long)m->width);
        if (o->infer && o->cache && *o->cache != o->dtype)
                text_add(t, "cache %s\n", dt_name[*o->cache]);
        if (sh->cache_rows)
                text_add(t, "pages %lld\n", (long long)(sh->cache_rows / CACHE_PAGE));
        if (sh->cache_rows && window_of(g))
                text_add(t, "window %lld\n", (long long)window_of(g));
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
        model_map_text(m, t);
        text_add(t, "%s", m->meta);
}

/* ---- programs ------------------------------------------------------------ */

/* Float32 states: of all parameters, or of the small. */
static int64_t n_states(const Shared *sh)
{
        int64_t n = 0;
        if (sh->optimizer != OPTIMIZER_ADAMW8BIT)
                return sh->n_train;
        for (int i = 0; i < sh->n_params; i++)
                if (sh->param[i].offset < sh->n_train && sh->param[i].count < OPTIMIZER_SMALL)
                        n += (sh->param[i].count + OPTIMIZER_BLOCK - 1) / OPTIMIZER_BLOCK *
                             OPTIMIZER_BLOCK;
        return n;
}

static void arenas(const Shared *sh, DType dt, bool train, int target, Text *t)
{
        text_add(t, "arena w %lld\n", (long long)(sh->n_all * dt_size[dt]));
        if (train) {
                if (sh->masters == MASTERS_F32 && dt == DT_BF16 && target == TARGET_CUDA)
                        text_add(t, "arena lo %lld\n", (long long)sh->n_train * 2);
                else if (sh->masters == MASTERS_F32 && dt != DT_F32)
                        text_add(t, "arena p %lld\n", (long long)sh->n_train * 4);
                text_add(t, "arena g %lld\n", (long long)(sh->n_train * 4 - sh->n_low * 2));
                if (sh->n_low)
                        text_add(t, "arena gsum %lld\n", (long long)sh->n_low * 4);
                if (sh->optimizer == OPTIMIZER_ADAMW8BIT)
                        text_add(t,
                                 "arena m8 %lld\narena v8 %lld\narena mmax %lld\narena vmax %lld\n",
                                 (long long)sh->n_train, (long long)sh->n_train,
                                 (long long)sh->n_train / OPTIMIZER_BLOCK * 4,
                                 (long long)sh->n_train / OPTIMIZER_BLOCK * 4);
                for (int i = 0; i < optimizer_info[sh->optimizer].states; i++)
                        text_add(t, "arena %c %lld\n", "mv"[i], (long long)n_states(sh) * 4);
        }
        text_add(t, "arena const %lld\narena kv %lld\narena keep %lld\narena act %lld\n",
                 (long long)sh->consts.n, (long long)sh->kv_bytes, (long long)sh->keep_bytes,
                 (long long)sh->act_bytes);
        for (int i = 0; i < sh->n_state && sh->cache_rows; i++)
                text_add(t, "cache kv+%lld %lld %lld\n", (long long)sh->state[i].offset,
                         (long long)(sh->state[i].bytes / (sh->cache_rows / CACHE_PAGE)),
                         (long long)(sh->cache_rows / CACHE_PAGE));
        for (int i = 0; i < sh->n_map; i++)
                text_add(t, "map %d %s\n", i, sh->map[i]);
}

/* For people: of what `tgc run` says it used so much. */
static void cache_text(const Shared *sh, Text *t)
{
        const long long pages = sh->cache_rows / CACHE_PAGE, all = sh->kv_bytes;
        text_add(t, "cache of keys and values: %lld bytes", all);
        if (pages)
                text_add(t,
                         ", %lld pages of %d tokens, %lld bytes each; sequences share pages "
                         "of equal beginnings",
                         pages, CACHE_PAGE, all / pages);
        text_add(t, "\n");
}

/* Numbers of sequences that have a decode program of their own, and one CUDA graph; a call of fewer
 * takes the next. */
static const struct {
        int b;
        const char *name;
} buckets[] = {
        { 1, "decode1" },   { 2, "decode2" },   { 4, "decode4" },     { 8, "decode8" },
        { 16, "decode16" }, { 24, "decode24" }, { 32, "decode32" },   { 48, "decode48" },
        { 64, "decode64" }, { 96, "decode96" }, { 128, "decode128" }, { 192, "decode192" }
};

static int specs_of(const Model *m, const CompileOptions *o, int ctx, int chunk, int block, Spec *s)
{
        Graph *g = m->graph;
        int n = 0;
        bool logits = graph_out(g, "logits") != 0, loss = graph_out(g, "loss") != 0;
        if (m->width && o->train)
                error_at((Loc) { m->name, 0, 0 },
                         "an encoder (it returns hidden, no loss) cannot be trained; compile with "
                         "--mode infer");
        if (m->width) { /* texts one after the other: T is all their tokens */
                s[0] = (Spec) { "embed", EMBED, 1, chunk, { { 1, 0, 0 } }, { "hidden" } };
                return 1;
        }
        if (o->train) {
                if (!loss || !has_input(g, "targets"))
                        error_at((Loc) { m->name, 0, 0 },
                                 "the model returns no loss (or has no input `targets`), so "
                                 "it cannot be trained; compile with --mode infer");
                Sizes z = { { o->batch, block, 0 } };
                s[n++] = (Spec) { "step", STEP, o->batch, block, z, { "loss", "aux_loss", "ce" } };
                s[n++] = (Spec) { "eval", EVAL, o->batch, block, z, { "loss", "aux_loss", "ce" } };
        }
        if (o->infer) {
                /* a plan that trains as well samples one sequence at a time: fewer kernels to
                 * build */
                int batch = o->train ? 1 : o->batch;
                if (!logits)
                        error_at(
                                (Loc) { m->name, 0, 0 },
                                "the model returns no logits, so it cannot be run; compile with --mode train");
                /* of several sequences T is all their tokens (a ragged call, rt.h) */
                int more = batch > 1 || ctx > LONG ? LONG : ctx;
                s[n++] = (Spec) {
                        "prefill", PREFILL, batch, chunk, { { 1, 0, ctx } }, { "logits" }
                };
                if (more > chunk && !o->chunk && !o->train)
                        s[n++] = (Spec) { "prefill_long", PREFILL | GPU,     batch,
                                          more,           { { 1, 0, ctx } }, { "logits" } };
                s[n++] = (Spec) { "score", SCORE, batch, chunk, { { 1, 0, ctx } }, { "logits" } };
                for (size_t k = 0; k < sizeof buckets / sizeof *buckets; k++)
                        if (buckets[k].b < batch)
                                s[n++] = (Spec) { buckets[k].name,
                                                  DECODE,
                                                  buckets[k].b,
                                                  1,
                                                  { { buckets[k].b, 1, ctx } },
                                                  { "logits" } };
                s[n++] = (Spec) { "decode", DECODE, batch, 1, { { batch, 1, ctx } }, { "logits" } };
        }
        return n;
}

/* What `tgc tune` needs: how this was compiled, products with their tiles, and their launches. */
static void products(const CompileOptions *o, Module *m, int ctx, int block, const Text *launched,
                     Compiled *out)
{
        Text *t = &out->products;
        text_add(
                t,
                "tgc-products 1\ncompiled dtype %s opt %d infer %d train %d batch %d ctx %d chunk %d block %d "
                "recompute %d%s%s%s%s%s%s%s\n",
                dt_name[o->dtype], o->opt, o->infer, o->train, o->batch, ctx, o->chunk, block,
                o->recompute, o->tf32 ? " tf32 1" : "", o->optimizer ? " optimizer " : "",
                o->optimizer ? optimizer_info[o->optimizer].name : "",
                o->masters == MASTERS_NONE ? " masters none"
                : o->masters               ? " masters stochastic"
                                           : "",
                o->cache ? " cache " : "", o->cache ? dt_name[*o->cache] : "",
                o->act_int8 ? " act8 1" : "");
        products_text(m, t);
        text_put(t, launched->s ? launched->s : "", launched->n);
        if (m->choices) {
                out->n_choices = m->choices->n;
                out->n_chosen = choices_used(m->choices, &out->choices);
        }
}

/* A pass of that name, or `all`. */
static void check_pass(const char *name)
{
        char names[512];
        size_t n = 0;
        bool known = !strcmp(name, "all");
        for (size_t i = 0, k; i < sizeof passes / sizeof *passes; i++) {
                known |= !strcmp(name, passes[i].name);
                for (k = 0; strcmp(passes[k].name, passes[i].name); k++)
                        ;
                if (k == i && n < sizeof names) /* simplify runs twice */
                        n += (size_t)snprintf(names + n, sizeof names - n, "%s, ", passes[i].name);
        }
        if (!known)
                error_code(2, (Loc) { 0 }, "no pass is called '%.60s'; there are %sall", name,
                           names);
}

/* Positions are 32-bit in kernels, and launches of the loss grow with the tokens. */
static void check_sizes(const Model *m, const CompileOptions *o, int block)
{
        if (o->masters == MASTERS_STOCHASTIC && o->dtype != DT_BF16)
                error_code(2, (Loc) { 0 },
                           "stochastic rounding is for bf16, and this is %s: take --dtype bf16, or "
                           "--masters none",
                           dt_name[o->dtype]);
        if (o->train && (int64_t)o->batch * block > 1 << 26)
                error_code(2, (Loc) { m->name, 0, 0 },
                           "a batch of %d x %d tokens; the most is %d tokens", o->batch, block,
                           1 << 26);
}

/* Frees them; what is wrong with them is said now, when nothing else is held. */
static void choices_done(Choices *c)
{
        char what[1024];
        Loc at = c->at;
        bool wrong = c->wrong;
        snprintf(what, sizeof what, "%s", wrong ? c->wrong : "");
        arena_free(c->arena);
        if (wrong)
                error_at(at, "%s", what);
}

/* Kernels know the context's size.  Rounded up, many sizes share one compilation: to a power of two,
 * at most to the model's own. */
static int context_of(const Model *m, const CompileOptions *o)
{
        int ctx = CONTEXT_STEP;
        if (!o->ctx || !o->ctx_at_least || o->ctx > m->ctx)
                return o->ctx ? o->ctx : (int)m->ctx;
        while (ctx < o->ctx)
                ctx *= 2;
        return ctx < m->ctx ? ctx : (int)m->ctx;
}

/* Tokens of a call that embeds: texts that lie in it whole. */
static int embed_tokens(const Model *m, const CompileOptions *o, int ctx)
{
        if (o->chunk && o->chunk < ctx)
                error_code(2, (Loc) { m->name, 0, 0 },
                           "--chunk-size %d: an encoder reads a text whole, and one may have %d "
                           "tokens; give that, or a smaller --ctx-size",
                           o->chunk, ctx);
        return o->chunk ? o->chunk : ctx > LONG ? ctx : LONG;
}

static void compile_held(Model *m, const CompileOptions *o, Compiled *out, Held *h)
{
        Spec spec[24];
        Graph **g = h->g, *step = NULL;
        Arena *tmp;
        Clock clock = { { 0 }, 0 };
        int ctx = context_of(m, o),
            chunk = m->width                             ? embed_tokens(m, o, ctx)
                    : o->chunk                           ? o->chunk
                    : ctx < CHUNK && !cache_rows(o, ctx) ? ctx
                                                         : CHUNK,
            block = o->block        ? o->block
                    : o->ctx        ? o->ctx
                    : m->ctx < 1024 ? (int)m->ctx
                                    : 1024,
            n;
        if (o->print_after)
                check_pass(o->print_after);
        check_sizes(m, o, block);
        check_limits(m->graph);
        check_storage(m->graph, o->train);
        check_tables(m, o, ctx, block);
        if (o->infer && !m->width)
                check_token_axis(m);
        tmp = h->tmp = arena_new();
        simplify(m->graph, tmp);
        verify(m->graph, "simplify");
        arena_clear(tmp);
        if (o->opt >= 1) {
                merge_linears(m, tmp);
                verify(m->graph, "merge_linears");
        }
        arena_free(tmp);
        h->tmp = NULL;
        graph_print(m->graph, &out->ir, PRINT_LOC);
        n = specs_of(m, o, ctx, chunk, block, spec);
        for (int i = 0; i < n; i++) {
                run_passes(m, &spec[i], o, ctx, block, out, &clock, h);
                if (spec[i].kind == STEP)
                        step = g[i];
                graph_print(g[i], &out->ir, PRINT_LOC | PRINT_GROUP);
        }
        Choices *choices = h->choices = o->choices ? choices_read(arena_new(), o->choices,
                                                                  o->choices_name)
                                                   : NULL;
        for (int target = 0; target < N_TARGETS; target++) {
                Shared *const sh = &h->sh;
                *sh = (Shared) { .arena = arena_new(),
                                 .batch = o->batch,
                                 .cache_rows = cache_rows(o, ctx),
                                 .optimizer = o->optimizer,
                                 .masters = o->masters,
                                 .consts = out->consts }; /* one table for both targets */
                Module *mod = module_new(sh->arena, target);
                mod->launches = &out->launches;
                mod->act_int8 = o->act_int8;
                if (target == TARGET_CUDA) {
                        mod->choices = choices;
                        mod->tf32 = o->tf32;
                }
                double t0 = now();
                bool first_target = !out->memory.s;
                if (target == TARGET_CUDA ? !o->cuda : !o->cpu) {
                        arena_free(sh->arena);
                        sh->arena = NULL;
                        continue;
                }
                lay_out(m->graph, step, o->dtype, sh);
                if (target == TARGET_CPU) /* its gradients are float32 */
                        sh->n_low = 0;
                sh->merge = o->opt >= 1 && target == TARGET_CUDA;
                if (!out->manifest.s)
                        manifest(m, o, sh, ctx > block || o->infer ? ctx : block, chunk,
                                 &out->manifest);
                for (int i = 0; i < n; i++)
                        if (target == TARGET_CUDA || !(spec[i].kind & GPU))
                                program_emit(mod, g[i], sh, spec[i].name, spec[i].B, spec[i].T,
                                             &h->programs,
                                             target == TARGET_CUDA ? &h->launched : NULL,
                                             first_target ? &out->memory : NULL);
                if (o->train)
                        program_update(mod, sh, o->dtype, &h->programs);
                if (first_target && sh->kv_bytes)
                        cache_text(sh, &out->memory);
                Text *t = &out->program[target];
                text_add(t, "tgc-program 2\n");
                arenas(sh, o->dtype, o->train, target, t);
                module_text(mod, &h->kernels, &out->source[target]);
                text_put(t, h->kernels.s ? h->kernels.s : "", h->kernels.n);
                text_put(t, h->programs.s ? h->programs.s : "", h->programs.n);
                if (!out->fused.s)
                        module_fused(mod, &out->fused);
                if (target == TARGET_CUDA)
                        products(o, mod, ctx, block, &h->launched, out);
                out->consts = sh->consts;
                out->n_kernels[target] = mod->n_kernels;
                text_free(&h->programs);
                text_free(&h->kernels);
                text_free(&h->launched);
                arena_free(sh->arena);
                sh->arena = NULL;
                clock.codegen += now() - t0;
        }
        if (o->time_passes) {
                for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
                        text_add(&out->times, "%-16s %8.3f ms\n", passes[i].name, clock.t[i] * 1e3);
                text_add(&out->times, "%-16s %8.3f ms\n", "code generation", clock.codegen * 1e3);
        }
        for (int i = 0; i < n; i++)
                graph_free(g[i]);
        h->n_g = 0;
        h->choices = NULL;
        if (choices)
                choices_done(choices);
}

void compile(Model *m, const CompileOptions *given, Compiled *out)
{
        Held *volatile h;
        Diag d = { 0 };
        CompileOptions own = *given;
        const CompileOptions *const o = &own;
        if (m->width) /* its texts have no slots */
                own.batch = 1;
        memset(out, 0, sizeof *out);
        h = held_new();
        if (!DIAG_CATCH(&d)) {
                if (h->sh.arena)
                        out->consts = h->sh.consts; /* it may have grown */
                held_free(h);
                diag_pass_on(&d);
        }
        compile_held(m, o, out, h);
        diag_end(&d);
        held_free(h);
}

Graph *compile_program(const Model *m, const CompileOptions *o, const char *program, int B, int T,
                       int S)
{
        const bool step = !strcmp(program, "step");
        const Spec s =
                step ? (Spec) { "step", STEP, B, T, { { B, T, 0 } }, { "loss", "aux_loss", "ce" } }
                     : (Spec) { "decode", DECODE, B, T, { { B, T, S } }, { "logits" } };
        CompileOptions quiet = *o;
        Compiled unused = { 0 };
        Clock clock = { { 0 }, 0 };
        Held *volatile h = held_new();
        Diag d = { 0 };
        quiet.print_after = NULL;
        if (!DIAG_CATCH(&d)) {
                text_free(&unused.why);
                held_free(h);
                diag_pass_on(&d);
        }
        Graph *g = run_passes(m, &s, &quiet, step ? T : S, T, &unused, &clock, h);
        diag_end(&d);
        h->n_g = 0;
        text_free(&unused.why);
        held_free(h);
        return g;
}

void compiled_free(Compiled *c)
{
        text_free(&c->manifest);
        text_free(&c->ir);
        text_free(&c->fused);
        text_free(&c->why);
        text_free(&c->memory);
        text_free(&c->passes);
        text_free(&c->times);
        text_free(&c->consts);
        text_free(&c->products);
        text_free(&c->launches);
        text_free(&c->choices);
        for (int i = 0; i < 2; i++) {
                text_free(&c->program[i]);
                text_free(&c->source[i]);
        }
}
