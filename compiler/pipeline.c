/* pipeline.c: the passes from a model to programs.
 *
 * The model's one forward graph is simplified and its linears are merged.  Then every program gets
 * a copy and runs it through the table of passes below.  After each entry the scratch arena is
 * emptied and the graph verified.  pipeline.h lists the files. */
#include "pipeline.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
RUN(copy_norms)
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
        { "copy_norms", CACHED, 2, run_copy_norms },   /* after simplify, which would join them */
        { "keep_parts", ~0u, 1, run_keep_parts },
        /* after precision: casts decide where parts lie */
        { "materialize", ~0u, 0, run_materialize },
        { "fuse", ~0u, 0, run_fuse },
        { "order", ~0u, 1, run_order },
};

/* What is given back where a model is refused, too. */
typedef struct Held {
        Graph *g[MOST_SPECS];
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

/* ctx, block: most tokens of a sequence, of a window. */
static Graph *run_passes(const Model *m, const Spec *s, const CompileOptions *o, int ctx, int block,
                         Compiled *out, Clock *clock, Held *h)
{
        Arena *tmp = h->tmp = arena_new();
        Graph *g = h->g[h->n_g++] = graph_copy(m->graph, s->name);
        specialise(g, s, tmp);
        Ctx c = { o, s->kind & CACHED && cache_rows(o, ctx) > 0, &out->why };
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
                const Pass *p = &passes[i];
                double t0 = now();
                if (!(p->programs & s->kind) || o->opt < p->opt)
                        continue;
                if (!strcmp(p->name, "precision"))
                        finish_outputs(g, s, tmp);
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
        if (o->ema && o->dtype != DT_F32 && o->masters != MASTERS_F32)
                error_code(
                        2, (Loc) { 0 },
                        "--ema averages float32 weights, and --masters %s keeps none of %s: take "
                        "--masters f32",
                        o->masters == MASTERS_NONE ? "none" : "stochastic", dt_name[o->dtype]);
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

static void compile_held(Model *m, const CompileOptions *o, Compiled *out, Held *h)
{
        Spec spec[MOST_SPECS];
        Graph **g = h->g, *step = NULL;
        Arena *tmp;
        Clock clock = { { 0 }, 0 };
        int ctx = context_of(m, o), chunk = prefill_tokens(m, o, ctx), block = window_tokens(m, o),
            n;
        if (o->print_after)
                check_pass(o->print_after);
        check_sizes(m, o, block);
        check_limits(m->graph);
        check_storage(m->graph);
        check_tables(m, o, ctx, block);
        if (o->infer && !m->width && !o->sums)
                check_token_axis(m);
        tmp = h->tmp = arena_new();
        simplify(m->graph, tmp);
        verify(m->graph, "simplify");
        arena_clear(tmp);
        if (o->opt >= 1) {
                merge_linears(m, tmp);
                verify(m->graph, "merge_linears");
        }
        arena_clear(tmp);
        if (o->act_fp8 && !o->train) {
                round_acts(m->graph, tmp, o->act_fp8 == ACT_TOKEN ? 0 : o->act_fp8);
                verify(m->graph, "round_acts");
        }
        arena_free(tmp);
        h->tmp = NULL;
        graph_print(m->graph, &out->ir, PRINT_LOC);
        n = specs_of(m, o, ctx, chunk, block, spec);
        for (int i = 0, last = 0; i < n; i++) {
                const int at = (int)out->ir.n;
                run_passes(m, &spec[i], o, ctx, block, out, &clock, h);
                if (spec[i].kind == STEP)
                        step = g[i];
                graph_print(g[i], &out->ir, PRINT_LOC | PRINT_GROUP);
                /* both targets may have the same graph, in calls of different sizes */
                const int size = (int)out->ir.n - at;
                if (size == at - last && !memcmp(out->ir.s + last, out->ir.s + at, (size_t)size))
                        out->ir.s[out->ir.n = (size_t)at] = 0;
                else
                        last = at;
        }
        Choices *choices = h->choices = o->choices ? choices_read(arena_new(), o->choices,
                                                                  o->choices_name)
                                                   : NULL;
        for (int target = 0; target < N_TARGETS; target++) {
                Shared *const sh = &h->sh;
                *sh = (Shared) { .arena = arena_new(),
                                 .batch = o->train && o->sequences > 1 ? o->sequences : o->batch,
                                 .cache_rows = cache_rows(o, ctx),
                                 .optimizer = o->optimizer,
                                 .masters = o->masters,
                                 .ema = o->ema,
                                 .consts = out->consts }; /* one table for both targets */
                Module *mod = module_new(sh->arena, target);
                mod->launches = &out->launches;
                mod->act_int8 = o->act_int8;
                if (target == TARGET_CUDA) {
                        mod->choices = choices;
                        mod->tf32 = o->tf32;
                        mod->fast = o->fast;
                }
                sh->narrow_rows = narrow_rows(m, o, ctx, &sh->window, &sh->narrow);
                double t0 = now();
                bool first_target = !out->memory.s;
                if (target == TARGET_CUDA ? !o->cuda : !o->cpu) {
                        arena_free(sh->arena);
                        sh->arena = NULL;
                        continue;
                }
                lay_out(m->graph, step, o->dtype, sh);
                if (o->train && o->optimizer == OPTIMIZER_MUON)
                        muon_matrices(m, sh);
                if (target == TARGET_CPU) /* its gradients are float32 */
                        sh->n_low = 0;
                sh->merge = o->opt >= 1 && target == TARGET_CUDA;
                sh->offload = o->offload && target == TARGET_CUDA;
                if (!out->manifest.s)
                        manifest_text(m, o, sh, ctx > block || o->infer ? ctx : block, chunk,
                                      &out->manifest);
                const int64_t rows = sh->cache_rows;
                for (int i = 0; i < n; i++) {
                        /* windows of training have no cache, nor calls of several sequences */
                        sh->cache_rows = spec[i].kind & CACHED ? rows : 0;
                        if (!(spec[i].kind & (target == TARGET_CUDA ? CPU : GPU)))
                                program_emit(mod, g[i], sh, spec[i].name, spec[i].B, spec[i].T,
                                             &h->programs,
                                             target == TARGET_CUDA ? &h->launched : NULL,
                                             first_target ? &out->memory : NULL);
                }
                sh->cache_rows = rows;
                if (o->train)
                        program_update(mod, sh, o->dtype, &h->programs);
                if (first_target && sh->kv_bytes)
                        cache_text(sh, &out->memory);
                if (first_target)
                        blocks_text(m->graph, sh, o->dtype, &out->memory);
                Text *t = &out->program[target];
                text_add(t, "tgc-program 2\n");
                arenas_text(sh, o->dtype, o->train, target, t);
                module_text(mod, &h->kernels, &out->source[target]);
                text_put(t, h->kernels.s ? h->kernels.s : "", h->kernels.n);
                text_put(t, h->programs.s ? h->programs.s : "", h->programs.n);
                if (!out->fused.s)
                        module_fused(mod, &out->fused);
                if (target == TARGET_CUDA)
                        tune_text(o, mod, ctx, block, &h->launched, out);
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
