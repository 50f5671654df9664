/* test_passes.c: each pass on text: what went in and what must come out, in tests/passes/PASS.tg.
 *
 *      # why
 *      graph @before ...
 *      # ---- PASS [PASS ...]          run in this order; precision=bf16, fuse=3 carry an argument
 *      graph @after ...
 *      # ====                          the next case
 *
 * Beside each rewrite stands the nearest graph that must stay as it is.  With BLESS=1 in
 * the environment the second halves are written anew: read that diff before committing
 * it.  Where a pass promises to keep values, both halves are evaluated too. */
#include "graph_test.h"
#include "../compiler/compiler.h"
#include "../compiler/passes/fuse_bytes.h"
#include <unistd.h>

typedef struct Pass {
        const char *name;
        bool keeps; /* outputs have the same values afterwards */
        int print;
        void (*run)(Model *m, Arena *tmp, const char *arg);
} Pass;

static void run_simplify(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        simplify(m->graph, tmp);
}
static void run_merge_linears(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        merge_linears(m, tmp);
}
static void run_round_acts(Model *m, Arena *tmp, const char *arg)
{
        round_acts(m->graph, tmp, atoi(arg));
}
static void run_fuse_loss(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        fuse_loss(m->graph, tmp);
}
static void run_differentiate(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        differentiate(m->graph, tmp);
}
static void run_fuse_loss_grad(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        fuse_loss_grad(m->graph, tmp);
}
static void run_keep_slope(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        keep_slope(m->graph, tmp);
}
static void run_fuse_norm_grad(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        fuse_norm_grad(m->graph, tmp);
}
static void run_few_experts(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        few_experts(m->graph, tmp);
}

static void run_copy_norms(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        copy_norms(m->graph, tmp);
}
static void run_split_documents(Model *m, Arena *tmp, const char *arg)
{
        (void)tmp;
        split_documents(m, atoi(arg));
}
static void run_forget_documents(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        forget_documents(m->graph, tmp);
}
static void run_pad_heads(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        pad_heads(m->graph, tmp);
}
static void run_cache_kv(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        cache_kv(m->graph, tmp);
}
static void run_fuse(Model *m, Arena *tmp, const char *arg)
{
        fuse(m->graph, tmp, atoi(arg), false, NULL);
}

static void run_recompute(Model *m, Arena *tmp, const char *arg)
{
        recompute(m->graph, tmp,
                  !arg || !*arg          ? RECOMPUTE_CHEAP
                  : !strcmp(arg, "free") ? RECOMPUTE_FREE
                                         : RECOMPUTE_BLOCK);
}
static void run_keep_parts(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        keep_parts(m->graph, tmp);
}
static void run_materialize(Model *m, Arena *tmp, const char *arg)
{
        (void)arg;
        materialize(m->graph, tmp);
}

static void run_order(Model *m, Arena *tmp, const char *arg)
{
        fuse(m->graph, tmp, atoi(arg), false, NULL);
        order(m->graph, tmp);
}

static DType type_named(const char *arg)
{
        int dt = 0;
        while (dt < N_DT && strcmp(dt_name[dt], arg))
                dt++;
        CHECK_MSG(dt < N_DT, "no element type %s", arg);
        return (DType)dt;
}
static void run_precision(Model *m, Arena *tmp, const char *arg)
{
        (void)tmp;
        precision(m->graph, type_named(arg));
}
static void run_cache_type(Model *m, Arena *tmp, const char *arg)
{
        (void)tmp;
        cache_type(m->graph, type_named(arg));
}

static const Pass passes[] = {
        { "simplify", true, 0, run_simplify },
        { "merge_linears", false, 0, run_merge_linears },
        { "round_acts", false, 0, run_round_acts },
        { "fuse_loss", true, 0, run_fuse_loss },
        { "differentiate", true, 0, run_differentiate },
        { "fuse_loss_grad", true, 0, run_fuse_loss_grad },
        { "fuse_norm_grad", true, 0, run_fuse_norm_grad },
        { "keep_slope", true, 0, run_keep_slope },
        { "few_experts", true, 0, run_few_experts },
        { "copy_norms", true, 0, run_copy_norms },
        { "split_documents", false, 0, run_split_documents },
        { "forget_documents", false, 0, run_forget_documents },
        { "pad_heads", false, 0, run_pad_heads },
        { "cache_kv", false, 0, run_cache_kv },
        { "precision", true, 0, run_precision },
        { "cache_type", false, 0, run_cache_type },
        { "recompute", true, 0, run_recompute },
        { "keep_parts", true, 0, run_keep_parts },
        { "materialize", true, 0, run_materialize },
        { "fuse", true, PRINT_GROUP, run_fuse },
        { "order", true, PRINT_GROUP, run_order },
};

/* ---- values before and after ---- */

static const Sizes SIZES = { { 2, 3, 8 } };

/* Inputs and parameters get numbers by name; ids and targets small integers. */
static void set_leaves(Eval *e, Graph *g)
{
        set_params(e, g, &SIZES, 1, -1, 1);
        for (Ref r = 1; r < g->n_nodes; r++) {
                const Node *n = NODE(g, r);
                if (n->op != OP_INPUT)
                        continue;
                int64_t k = type_count(&n->type, &SIZES);
                double *v = malloc((size_t)k * sizeof *v);
                uint64_t s = 77;
                for (const char *p = n->name; *p; p++)
                        s = s * 31 + (unsigned char)*p;
                for (int64_t i = 0; i < k; i++)
                        v[i] = n->type.dt == DT_I32 ? (double)(rng_next(&s) % 9)
                                                    : rng_real(&s, -1, 1);
                eval_set(e, n->name, v, k);
                free(v);
        }
}

static Eval *evaluated(Graph *g)
{
        Eval *e = eval_new(g, &(EvalCtx) { .sizes = SIZES });
        set_leaves(e, g);
        eval_run(e);
        return e;
}

static void same_values(Graph *before, Graph *after, const char *what)
{
        Eval *a = evaluated(before), *b = evaluated(after);
        for (int i = 0; i < before->n_out; i++) {
                int64_t n, m;
                const double *x = eval_output(a, before->out[i].name, &n),
                             *y = eval_output(b, before->out[i].name, &m);
                CHECK_MSG(n == m && worst_difference(y, x, n) < 1e-12,
                          "%s: output %s of @%s changed", what, before->out[i].name, before->name);
        }
        eval_free(a);
        eval_free(b);
}

/* ---- cases ---- */

/* The checkpoint map moves with merged parameters: it is part of the result. */
static void print_map(const Model *m, Text *out)
{
        for (int i = 0; i < m->n_map; i++) {
                const MapLine *l = &m->map[i];
                if (l->end)
                        text_add(out, "# map %s[%lld:%lld:%lld]%s %s\n", l->param,
                                 (long long)l->begin, (long long)l->end, (long long)l->step,
                                 l->deeper, l->rest);
                else if (*l->deeper)
                        text_add(out, "# map %s[:]%s %s\n", l->param, l->deeper, l->rest);
        }
}

static const Pass *find_pass(const char *name)
{
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
                if (!strcmp(passes[i].name, name))
                        return &passes[i];
        return NULL;
}

typedef struct CaseRun {
        const char *before, *list;
        Text after;
} CaseRun;

/* Run the passes named in list over the text; the result's text goes to after. */
static void run_case(const void *arg)
{
        CaseRun *c = (CaseRun *)arg;
        Graph *g = graph_parse(c->before, "before.tg"),
              *first = graph_parse(c->before, "before.tg");
        Model m = { .arena = g->arena, .graph = g, .name = "m", .meta = "" };
        Arena *tmp = arena_new();
        bool keeps = true;
        int print = 0;
        char list[256], *next = list;
        snprintf(list, sizeof list, "%s", c->list);
        if (strstr(list, "merge_linears"))
                for (Ref r = 1; r < g->n_nodes; r++)
                        if (NODE(g, r)->op == OP_PARAM)
                                model_map(&m, (MapLine) { .param = NODE(g, r)->name,
                                                          .rest = arena_fmt(g->arena, "= %s",
                                                                            NODE(g, r)->name) });
        for (char *name; (name = strsep(&next, " "));) {
                char *eq = strchr(name, '=');
                if (eq)
                        *eq++ = 0;
                const Pass *p = find_pass(name);
                CHECK_MSG(p, "no pass %s", name);
                p->run(&m, tmp, eq ? eq : "");
                arena_clear(tmp);
                verify(g, name);
                keeps &= p->keeps;
                print |= p->print;
        }
        graph_print(g, &c->after, print);
        print_map(&m, &c->after);
        if (keeps)
                same_values(first, g, c->list);
        arena_free(tmp);
        graph_free(first);
        graph_free(g);
}

static const char *folder(void) { return access("tests/passes", R_OK) ? "passes" : "tests/passes"; }

/* Returns how many cases differ; with bless, rewrites the file. */
static int check_file(const char *pass, bool bless)
{
        char path[256];
        int bad = 0;
        Text out = { 0 };
        snprintf(path, sizeof path, "%s/%s.tg", folder(), pass);
        FILE *f = fopen(path, "r");
        CHECK_MSG(f, "cannot open %s", path);
        char *all = calloc(1, 1 << 20), *next = all;
        CHECK(fread(all, 1, (1 << 20) - 1, f) > 0);
        fclose(f);
        while (next) {
                char *before = next, *mark, *after = (char *)"", list[256];
                next = strstr(before, "# ====\n");
                if (next) {
                        *next = 0;
                        next += 7;
                }
                mark = strstr(before, "# ---- ");
                CHECK_MSG(mark, "%s: a case without `# ---- PASS`", path);
                *mark = 0;
                mark += 7;
                if (strchr(mark, '\n')) {
                        after = strchr(mark, '\n') + 1;
                        after[-1] = 0;
                }
                snprintf(list, sizeof list, "%s", mark);
                CaseRun c = { before, list, { 0 } };
                guarded(run_case, &c);
                text_add(&out, "%s# ---- %s\n%s%s", before, list, c.after.s,
                         next ? "# ====\n" : "");
                if (strcmp(after, c.after.s)) {
                        bad++;
                        if (!bless)
                                printf("  %s: @%.20s: wanted\n%s  got\n%s", path,
                                       strstr(before, "graph @") + 7, after, c.after.s);
                }
                text_free(&c.after);
        }
        if (bless && bad) {
                f = fopen(path, "w");
                CHECK_MSG(f && fwrite(out.s, 1, out.n, f) == out.n && !fclose(f), "cannot write %s",
                          path);
                printf("  blessed %d of %s\n", bad, path);
                bad = 0;
        }
        text_free(&out);
        free(all);
        return bad;
}

static void check_pass(const char *pass)
{
        const char *bless = getenv("BLESS");
        int bad = check_file(pass, bless && *bless == '1');
        CHECK_MSG(!bad, "%d cases of %s differ; BLESS=1 rewrites them", bad, pass);
}

/* ---- words of one graph in another's places: no pass breaks a graph or changes a value ---- */

static const char *const words[] = { "%x",     "%w",        "%gain",      "1",      "2",
                                     "{tb=1}", "{k=1}",     "{x=0}",      "{x=1}",  "matmul",
                                     "add",    "mul",       "sum",        "expand", "reshape",
                                     "slice",  "transpose", "gather",     "ce",     "rmsnorm",
                                     "scale",  "neg",       "f32[T,4]",   "f32[4]", "f32[B,T,4]",
                                     "f32[]",  "f32[1]",    "f32[T,1]",   "param",  "relu",
                                     "colsum", "softmax",   "interleave", "max" };
static const char WORD[] = "abcdefghijklmnopqrstuvwxyz%0123456789._";

static void mutate(char *text, size_t cap, uint64_t *s)
{
        for (int k = 0, times = 1 + (int)(rng_next(s) % 3); k < times; k++) {
                size_t len = strlen(text), at = rng_next(s) % len;
                const char *w = words[rng_next(s) % (sizeof words / sizeof *words)];
                at += strcspn(text + at, " %{");
                at += text[at] == ' ';
                size_t cut = strspn(text + at, WORD), put = strlen(w);
                if (!text[at] || len + put >= cap)
                        continue;
                memmove(text + at + put, text + at + cut, len - at - cut + 1);
                memcpy(text + at, w, put);
        }
}

/* The values of a graph that can be evaluated, small enough to be worth it; else NULL. */
static Eval *try_evaluated(Graph *g)
{
        Diag d = { 0 };
        Eval *volatile e = NULL;
        for (Ref r = 1; r < g->n_nodes; r++)
                if (type_count(&NODE(g, r)->type, &SIZES) > 4096)
                        return NULL;
        if (DIAG_CATCH(&d)) {
                e = eval_new(g, &(EvalCtx) { .sizes = SIZES });
                set_leaves(e, g);
                eval_run(e);
                diag_end(&d);
        } else {
                eval_free(e);
                e = NULL;
        }
        return e;
}

/* Large values make large differences: only what stays moderate is compared. */
static bool agree(const double *x, const double *y, int64_t n)
{
        for (int64_t i = 0; i < n; i++)
                if (fabs(x[i]) < 1e3 && fabs(x[i] - y[i]) > 1e-9 * (1 + fabs(x[i])))
                        return false;
        return true;
}

static Graph *try_parse(const char *text)
{
        Diag d = { 0 };
        Graph *volatile g = NULL;
        if (DIAG_CATCH(&d)) {
                g = graph_parse(text, "mutant");
                diag_end(&d);
        }
        return g;
}

/* A pass may refuse: what follows is left out then. */
static void run_all(Graph *g)
{
        static const char *const order[] = { "simplify",   "fuse_loss",      "differentiate",
                                             "simplify",   "fuse_loss_grad", "fuse_norm_grad",
                                             "keep_slope", "precision",      "fuse" };
        Arena *tmp = arena_new();
        Model m = { .arena = g->arena, .graph = g, .name = "m", .meta = "" };
        Diag d = { 0 };
        if (DIAG_CATCH(&d)) {
                for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
                        if (!strcmp(order[i], "differentiate") && !graph_out(g, "loss"))
                                break;
                        find_pass(order[i])->run(&m, tmp,
                                                 !strcmp(order[i], "precision") ? "bf16" : "3");
                        verify(g, order[i]);
                }
                diag_end(&d);
        }
        arena_free(tmp);
}

/* Returns how many outputs were compared. */
static int check_mutant(Graph *g, const char *text)
{
        Graph *first = graph_parse(text, "mutant");
        Eval *before = try_evaluated(first);
        int compared = 0;
        run_all(g);
        Eval *after = before ? try_evaluated(g) : NULL;
        for (int i = 0; after && i < first->n_out; i++, compared++) {
                int64_t n, k;
                const char *name = first->out[i].name;
                const double *x = eval_output(before, name, &n), *y = eval_output(after, name, &k);
                CHECK_MSG(n == k && agree(x, y, n), "output %s changed:\n%s", name, text);
        }
        eval_free(before);
        eval_free(after);
        graph_free(first);
        return compared;
}

TEST (mutants_keep_their_values) {
        static const char *const files[] = { "simplify",       "fuse_loss",      "differentiate",
                                             "fuse_loss_grad", "fuse_norm_grad", "keep_slope" };
        static char text[1 << 14], mutant[1 << 14];
        uint64_t s = 31;
        int compared = 0;
        for (int i = 0; i < 4000; i++) {
                char path[256];
                snprintf(path, sizeof path, "%s/%s.tg", folder(), files[i % 6]);
                FILE *f = fopen(path, "r");
                CHECK_MSG(f, "cannot open %s", path);
                text[fread(text, 1, sizeof text - 1, f)] = 0;
                fclose(f);
                char *start = text; /* one of its cases */
                for (uint64_t skip = rng_next(&s) % 5; skip && strstr(start, "# ====\n"); skip--)
                        start = strstr(start, "# ====\n") + 7;
                snprintf(mutant, sizeof mutant, "%.*s", (int)(strstr(start, "# ----") - start),
                         start);
                mutate(mutant, sizeof mutant, &s);
                Graph *g = try_parse(mutant);
                compared += g ? check_mutant(g, mutant) : 0;
                graph_free(g);
        }
        CHECK_MSG(compared > 200, "only %d outputs were compared", compared);
}

/* Bytes that two nodes save in one kernel. */
static int64_t saved(Graph *g, FuseBytes *b, const char *one, const char *other)
{
        return saved_bytes(b, &(Together) { .node = { graph_find(g, one) } },
                           &(Together) { .node = { graph_find(g, other) } });
}

TEST (bytes_that_fusion_saves) {
        static const char text[] = "graph @bytes(%x: f32[T,8], %ids: i32[T]) {\n"
                                   "  %w = param : f32[8,16]\n"
                                   "  %a = matmul %x, %w : f32[T,16]\n"
                                   "  %once = relu %a : f32[T,16]\n"
                                   "  %r = relu %x : f32[T,8]\n"
                                   "  %s = square %r : f32[T,8]\n"
                                   "  %half = slice %a {axis=1, len=8} : f32[T,8]\n"
                                   "  %low = neg %half : f32[T,8]\n"
                                   "  %zero = fill {x=0} : f32[T,8]\n"
                                   "  %z = add %r, %zero : f32[T,8]\n"
                                   "  %rows = gather %w, %ids : f32[T,16]\n"
                                   "  return %once, %s, %low, %z, %rows\n"
                                   "}\n";
        Graph *g = graph_parse(text, "bytes.tg");
        Arena *tmp = arena_new();
        g->sizes.v[SYM_T] = 4;
        KernelOrder *o = order_new(g, tmp);
        FuseBytes *b = fuse_bytes_new(o, tmp);
        const int64_t x = 4 * 8 * 4, w = 8 * 16 * 4, a = 4 * 16 * 4;
        /* every value once; of a slice its own elements, of a table the rows that are picked */
        CHECK(kernel_bytes(b, &(Together) { .node = { graph_find(g, "a") } }) == x + w + a);
        CHECK(kernel_bytes(b, &(Together) { .node = { graph_find(g, "low") } }) == 2 * x);
        CHECK(kernel_bytes(b, &(Together) { .node = { graph_find(g, "z") } }) == 2 * x);
        CHECK(kernel_bytes(b, &(Together) { .node = { graph_find(g, "rows") } }) == 2 * a + 4 * 4);
        /* a is stored for the slice's reader all the same: its load alone vanishes */
        CHECK(saved(g, b, "a", "once") == a);
        CHECK(saved(g, b, "a", "low") == x);
        /* r has two readers, and one of them is in a kernel with it */
        CHECK(saved(g, b, "r", "s") == x);
        /* both read x; both read r */
        CHECK(saved(g, b, "a", "r") == x);
        CHECK(saved(g, b, "s", "z") == x);
        CHECK(saved(g, b, "once", "s") == 0);
        /* the last reader joins: its load vanishes, and the store */
        order_enter(o, graph_find(g, "r"), 1);
        order_enter(o, graph_find(g, "s"), 1);
        CHECK(saved_bytes(b, &(Together) { .kernel = { 1 } },
                          &(Together) { .node = { graph_find(g, "z") } }) == 2 * x);
        /* a size that is known at run time alone counts as 1 */
        g->sizes.v[SYM_T] = 0;
        b = fuse_bytes_new(o, tmp);
        CHECK(kernel_bytes(b, &(Together) { .node = { graph_find(g, "a") } }) == x / 4 + w + a / 4);
        arena_free(tmp);
        graph_free(g);
}

/* What --why prints: the reason, the bytes that stay, and what kernels save. */
TEST (fusion_says_why) {
        static const char text[] = "graph @why(%x: f32[4,8]) {\n"
                                   "  %a = relu %x : f32[4,8]\n"
                                   "  %n = rmsnorm %a {x=1e-05} : f32[4,8]\n"
                                   "  %y = add %a, %n : f32[4,8]\n"
                                   "  return %y\n"
                                   "}\n";
        Graph *g = graph_parse(text, "why.tg");
        Arena *tmp = arena_new();
        Text why = { 0 };
        fuse(g, tmp, 3, false, &why);
        const size_t once = why.n;
        CHECK_MSG(strstr(why.s, "%y = add (why.tg:4) stays out of the kernel of %n = rmsnorm: the "
                                "value is made before that kernel's own work (512 bytes)\n") &&
                          strstr(why.s,
                                 "the kernel of %n = rmsnorm (why.tg:3): 2 ops, moves 384 bytes, "
                                 "saves 128\n"),
                  "%s", why.s);
        fuse(g, tmp, 3, false, &why);
        CHECK_MSG(why.n == once, "said twice: %s", why.s);
        text_free(&why);
        arena_free(tmp);
        graph_free(g);
}

#define PASS(name)                 \
        TEST (name) {              \
                check_pass(#name); \
        }

PASS(simplify)
PASS(merge_linears)
PASS(fuse_loss)
PASS(differentiate)
PASS(fuse_loss_grad)
PASS(fuse_norm_grad)
PASS(keep_slope)
PASS(few_experts)
PASS(copy_norms)
PASS(round_acts)
PASS(split_documents)
PASS(forget_documents)
PASS(pad_heads)
PASS(cache_kv)
PASS(precision)
PASS(cache_type)
PASS(recompute)
PASS(keep_parts)
PASS(materialize)
PASS(fuse)
PASS(order)

TEST_MAIN
