/* test_grad.c: every gradient rule against central differences in double, whole
 * blocks, cached decoding, and that no pass changes a value.
 *
 * Tolerance of gradients: the differences have a relative error of about h^2 + 1e-16/h,
 * 1e-10 with h = 1e-5; 1e-6 leaves room for third derivatives and cancellation.
 * Passes only reorder sums of doubles: 1e-12. */
#include "graph_test.h"
#include "../compiler/compiler.h"

static const Sizes SIZES = { { 2, 5, 8 } }; /* B, T, S: none divides another */

static void differentiated(Graph *g)
{
        Arena *tmp = arena_new();
        differentiate(g, tmp);
        verify(g, "differentiate");
        arena_free(tmp);
}

/* Compare the gradients of all trainable parameters with differences of the loss. */
static void compare_gradients(Graph *g, Eval *e, const char *what)
{
        const double h = 1e-5;
        for (Ref r = 1; r < g->n_nodes; r++) {
                if (NODE(g, r)->op != OP_PARAM || !NODE(g, r)->a.param.trainable)
                        continue;
                int64_t n, m;
                eval_run(e);
                const char *name = NODE(g, r)->name;
                const double *leaf = eval_leaf(e, name, &n), *grad = eval_grad(e, name, &m);
                CHECK_MSG(grad && n == m, "%s: no gradient of %%%s", what, name);
                double *v = malloc((size_t)n * sizeof *v), *d = malloc((size_t)n * sizeof *d),
                       worst = 0, size = 1e-3;
                memcpy(v, leaf, (size_t)n * sizeof *v);
                memcpy(d, grad, (size_t)n * sizeof *d);
                for (int64_t i = 0; i < n; i++) {
                        double y[2], keep = v[i];
                        for (int k = 0; k < 2; k++) {
                                v[i] = keep + (k ? h : -h);
                                eval_set(e, name, v, n);
                                eval_run(e);
                                y[k] = *eval_output(e, "loss", NULL);
                        }
                        v[i] = keep;
                        worst = worse(worst, fabs((y[1] - y[0]) / (2 * h) - d[i]));
                        size = fmax(size, fabs(d[i]));
                }
                eval_set(e, name, v, n);
                free(v);
                free(d);
                CHECK_MSG(worst <= 1e-6 * fmax(size, 1),
                          "%s: gradient of %%%s is off by %g, largest %g", what, name, worst, size);
        }
}

/* ---- one op at a time ---- */

/* loss = sum over all outputs of random weights times values */
static Ref weighted_sum(Graph *g, uint64_t *seed)
{
        Ref loss = 0;
        for (int i = 0; i < g->n_out; i++) {
                Ref y = g->out[i].ref;
                Type t = NODE(g, y)->type;
                int64_t n = type_count(&t, &SIZES);
                double *w = arena_alloc(g->arena, (size_t)n * sizeof *w);
                Attr a = { 0 };
                for (int64_t k = 0; k < n; k++)
                        w[k] = rng_real(seed, -1, 1);
                a.data.data = w;
                a.data.n = n;
                t.dt = DT_F32;
                Ref c = graph_leaf(g, OP_CONST, t, &a, (Loc) { 0 }, NULL);
                Ref s = op1(g, OP_SUM,
                            graph_reshape(g, op2(g, OP_MUL, y, c),
                                          type_of(DT_F32, 1, type_elems(&t))));
                s = graph_reshape(g, s, type_of(DT_F32, 0));
                loss = loss ? op2(g, OP_ADD, loss, s) : s;
        }
        return loss;
}

typedef struct Case {
        const char *body;
        double lo, hi;
} Case;

static void check_case(const void *arg)
{
        const Case *k = arg;
        char text[4096];
        static const int pos[2] = { 0, 0 };
        EvalCtx c = {
                .sizes = SIZES, .pos = pos, .step = 3, .micro = 0, .n_micro = 2, .seed = { 7, 9 }
        };
        uint64_t seed = 1;
        snprintf(text, sizeof text, "graph @t() {\n%s\n}\n", k->body);
        Graph *g = graph_parse(text, "case");
        graph_output(g, "loss", weighted_sum(g, &seed));
        differentiated(g);
        Eval *e = eval_new(g, &c);
        set_params(e, g, &SIZES, 5, k->lo, k->hi);
        compare_gradients(g, e, k->body);
        eval_free(e);
        graph_free(g);
}

static void check_all(const Case *c, size_t n)
{
        for (size_t i = 0; i < n; i++)
                guarded(check_case, &c[i]);
}

#define CHECK_ALL(...)                                          \
        do {                                                    \
                static const Case cases[] = { __VA_ARGS__ };    \
                check_all(cases, sizeof cases / sizeof *cases); \
        } while (0)

/* A map of one input, with its range. */
#define MAP1(op, lo, hi)                                                              \
        {                                                                             \
                "%a = param : f32[3,5]\n%y = " op " %a : f32[3,5]\nreturn %y", lo, hi \
        }
#define MAP1X(op, x, lo, hi)                                                                    \
        {                                                                                       \
                "%a = param : f32[3,5]\n%y = " op " %a {x=" x "} : f32[3,5]\nreturn %y", lo, hi \
        }

TEST (maps_of_one_input) {
        CHECK_ALL(
                MAP1X("scale", "-2.5", -1, 1), MAP1X("offset", "3", -1, 1), MAP1("neg", -1, 1),
                MAP1("abs", -1, 1), MAP1("square", -1, 1), MAP1("sqrt", 0.5, 2),
                MAP1("rsqrt", 0.5, 2), MAP1("recip", 0.5, 2), MAP1("exp", -2, 2),
                MAP1("log", 0.5, 2), MAP1("sin", -3, 3), MAP1("cos", -3, 3), MAP1("tanh", -2, 2),
                MAP1("erf", -2, 2), MAP1("sigmoid", -4, 4), MAP1("relu", -1, 1),
                MAP1("silu", -4, 4), MAP1("gelu", -4, 4), MAP1("gelu_tanh", -4, 4),
                MAP1("cast", -1, 1),
                { "%a = param : f32[B,T,3]\n%y = dropout %a {p=0.4, id=6} : f32[B,T,3]\nreturn %y",
                  -1, 1 });
}

/* Shapes of the two inputs and of the result. */
#define MAP2(op, a, b, y)                                                                       \
        {                                                                                       \
                "%a = param : f32[" a "]\n%b = param : f32[" b "]\n%y = " op " %a, %b : f32[" y \
                "]\n"                                                                           \
                "return %y",                                                                    \
                        0.5, 2                                                                  \
        }
#define SHAPES2(op)                                                                              \
        MAP2(op, "3,5", "3,5", "3,5"), MAP2(op, "3,5", "5", "3,5"), MAP2(op, "5", "3,5", "3,5"), \
                MAP2(op, "2,3,5", "2,3,1", "2,3,5"), MAP2(op, "2,3,1", "2,3,5", "2,3,5"),        \
                MAP2(op, "B,T,3", "", "B,T,3"), MAP2(op, "B,T,3", "1", "B,T,3"),                 \
                MAP2(op, "", "B,T,3", "B,T,3"), MAP2(op, "2,1,5", "2,3,5", "2,3,5"),             \
                MAP2(op, "B,1,3", "B,T,3", "B,T,3"), MAP2(op, "1,5", "3,5", "3,5"),              \
                MAP2(op, "3,1", "1,5", "3,5"), MAP2(op, "1,1", "3,1", "3,1"),                    \
                MAP2(op, "1,1,4", "B,T,4", "B,T,4"), MAP2(op, "B,T,1", "B,T,1", "B,T,1"),        \
                MAP2(op, "T,3", "B,T,3", "B,T,3"), MAP2(op, "T,1", "B,T,3", "B,T,3"),            \
                MAP2(op, "2,1,1", "2,3,5", "2,3,5"), MAP2(op, "1,3,1", "2,3,5", "2,3,5")

TEST (maps_of_two_inputs_with_broadcasting) {
        CHECK_ALL(SHAPES2("add"), SHAPES2("sub"), SHAPES2("mul"), SHAPES2("div"), SHAPES2("max"),
                  SHAPES2("min"));
}

TEST (where_and_the_values_it_takes) {
        CHECK_ALL({ "%c = const {data=1:0:1} : f32[3]\n%a = param : f32[2,3]\n%b = param : f32[3]\n"
                    "%y = where %c, %a, %b : f32[2,3]\nreturn %y",
                    -1, 1 },
                  { "%a = param : f32[2,3]\n%b = param : f32[2,3]\n%c = gt %a, %b : f32[2,3]\n"
                    "%y = where %c, %a, %b : f32[2,3]\nreturn %y",
                    -1, 1 },
                  { "%a = param : f32[4]\n"
                    "%y = mul %a, %a : f32[4]\n"
                    "%z = mul %y, %a : f32[4]\n"
                    "return %z",
                    -1, 1 });
}

TEST (rotary) {
        CHECK_ALL({ "%f = const {data=1:0.3} : f32[2]\n"
                    "%a = param : f32[B,T,3,4]\n"
                    "%y = rope %a, %f : f32[B,T,3,4]\n"
                    "return %y",
                    -1, 1 },
                  { "%f = const {data=0.7} : f32[1]\n%a = param : f32[B,T,1,6]\n"
                    "%y = rope %a, %f {dims=2} : f32[B,T,1,6]\nreturn %y",
                    -1, 1 },
                  { "%f = const {data=1:0.3} : f32[2]\n%a = param : f32[B,T,3,4]\n"
                    "%y = rope %a, %f {back=1} : f32[B,T,3,4]\nreturn %y",
                    -1, 1 });
}

#define ROW1(op, y)                                                                  \
        { "%a = param : f32[3,7]\n%y = " op " %a : f32[" y "]\nreturn %y", -2, 2 },  \
        {                                                                            \
                "%a = param : f32[1,1]\n%y = " op " %a : f32[1,1]\nreturn %y", -2, 2 \
        }

TEST (rows) {
        CHECK_ALL(ROW1("sum", "3,1"), ROW1("logsumexp", "3,1"), ROW1("softmax", "3,7"),
                  { "%a = param : f32[B,T,5]\n%y = softmax %a : f32[B,T,5]\nreturn %y", -2, 2 },
                  { "%a = param : f32[2,3,5]\n%y = rmsnorm %a {x=1e-5} : f32[2,3,5]\nreturn %y", -2,
                    2 },
                  { "%a = param : f32[2,3,5]\n%y = layernorm %a {x=1e-5} : f32[2,3,5]\nreturn %y",
                    -2, 2 },
                  { "%a = param : f32[1,1]\n%y = rmsnorm %a {x=0.1} : f32[1,1]\nreturn %y", -2, 2 },
                  { "%a = param : f32[2,3,4]\n%y = colsum %a {k=1} : f32[3,4]\nreturn %y", -2, 2 },
                  { "%a = param : f32[B,T,4]\n%y = colsum %a {k=2} : f32[4]\nreturn %y", -2, 2 });
}

TEST (norms_with_gain_and_bias) {
        CHECK_ALL({ "%a = param : f32[B,T,6]\n"
                    "%g = param : f32[6]\n"
                    "%n = rmsnorm %a {x=1e-6} : f32[B,T,6]\n"
                    "%y = mul %n, %g : f32[B,T,6]\n"
                    "return %y",
                    -2, 2 },
                  { "%a = param : f32[B,T,6]\n%g = param : f32[6]\n%b = param : f32[6]\n"
                    "%n = layernorm %a {x=1e-6} : f32[B,T,6]\n"
                    "%s = mul %n, %g : f32[B,T,6]\n%y = add %s, %b : f32[B,T,6]\nreturn %y",
                    -2, 2 });
}

/* -1 and 99 are no classes: ignored */
TEST (cross_entropy) {
        CHECK_ALL({ "%t = const {data=4:0:-1:2} : i32[4]\n"
                    "%a = param : f32[4,5]\n"
                    "%y = ce %a, %t : f32[4]\n"
                    "return %y",
                    -2, 2 },
                  { "%t = const {data=4:0:99:2:1:3} : i32[2,3]\n"
                    "%x = param : f32[2,3,4]\n"
                    "%w = param : f32[5,4]\n"
                    "%y = linear_ce %x, %w, %t : f32[2,3]\n"
                    "return %y",
                    -2, 2 },
                  { "%t = const {data=4:0:-1:2} : i32[4]\n"
                    "%x = param : f32[4,3]\n"
                    "%w = param : f32[5,3]\n"
                    "%b = param : f32[5]\n"
                    "%y = linear_ce %x, %w, %t, %b : f32[4]\n"
                    "return %y",
                    -2, 2 });
}

#define MM(attr, a, b, y)                                              \
        {                                                              \
                "%a = param : f32[" a "]\n%b = param : f32[" b "]\n"   \
                "%y = matmul %a, %b " attr " : f32[" y "]\nreturn %y", \
                        -1, 1                                          \
        }

TEST (matmuls) {
        CHECK_ALL(MM("", "3,4", "4,5", "3,5"), MM("{tb=1}", "3,4", "5,4", "3,5"),
                  MM("{ta=1}", "4,3", "4,5", "3,5"), MM("{ta=1, tb=1}", "4,3", "5,4", "3,5"),
                  MM("", "B,T,4", "4,5", "B,T,5"), MM("{tb=1}", "B,T,4", "5,4", "B,T,5"),
                  MM("", "2,3,4", "2,4,5", "2,3,5"), MM("{tb=1}", "2,3,4", "2,5,4", "2,3,5"),
                  MM("{ta=1}", "2,4,3", "2,4,5", "2,3,5"),
                  MM("{ta=1, tb=1}", "2,4,3", "2,5,4", "2,3,5"), MM("", "4", "4,5", "5"),
                  MM("{tb=1}", "4", "5,4", "5"), MM("", "1,1", "1,1", "1,1"),
                  MM("", "2,2,3,4", "2,2,4,5", "2,2,3,5"));
}

/* Five slots of three experts; expert 1 has none.  The last case reads tokens two slots each. */
#define PERM "%p = const {data=3:0:1:4:2} : i32[5]\n%o = const {data=0:2:2:5} : i32[4]\n"

TEST (grouped_gemm) {
        CHECK_ALL({ PERM "%a = param : f32[5,4]\n%w = param : f32[3,4,2]\n"
                         "%y = expert_matmul %a, %w, %p, %o : f32[5,2]\nreturn %y",
                    -1, 1 },
                  { PERM "%a = param : f32[5,4]\n%w = param : f32[3,2,4]\n"
                         "%y = expert_matmul %a, %w, %p, %o {tb=1, adiv=1} : f32[5,2]\nreturn %y",
                    -1, 1 },
                  { PERM
                    "%a = param : f32[5,4]\n%w = param : f32[3,2,4]\n"
                    "%y = expert_matmul %a, %w, %p, %o {tb=1, scatter=1} : f32[5,2]\nreturn %y",
                    -1, 1 },
                  { PERM
                    "%a = param : f32[5,4]\n%w = param : f32[3,4,2]\n"
                    "%y = expert_matmul %a, %w, %p, %o {adiv=1, scatter=1} : f32[5,2]\nreturn %y",
                    -1, 1 },
                  { "%p = const {data=5:0:2:1:4:3} : i32[6]\n%o = const {data=0:2:2:6} : i32[4]\n"
                    "%a = param : f32[3,4]\n%w = param : f32[3,2,4]\n"
                    "%y = expert_matmul %a, %w, %p, %o {tb=1, adiv=2} : f32[6,2]\nreturn %y",
                    -1, 1 },
                  { "%p = const {data=5:0:2:1:4:3} : i32[6]\n%o = const {data=0:2:2:6} : i32[4]\n"
                    "%a = param : f32[3,4]\n%w = param : f32[3,4,2]\n"
                    "%y = expert_matmul %a, %w, %p, %o {adiv=2, scatter=1} : f32[6,2]\nreturn %y",
                    -1, 1 });
}

#define ATT(H, K, D, extra_in, more, attr)                                                    \
        {                                                                                     \
                more "%q = param : f32[B,T," H "," D "]\n"                                    \
                     "%k = param : f32[B,T," K "," D "]\n%v = param : f32[B,T," K "," D "]\n" \
                     "%y = attention %q, %k, %v" extra_in " {" attr "} : f32[B,T," H "," D    \
                     "]\nreturn %y",                                                          \
                        -1, 1                                                                 \
        }

/* The same, with a sink a head, so that the log-sum-exp has a gradient too. */
#define SINK(H, K, D, attr)                                                                       \
        {                                                                                         \
                "%q = param : f32[B,T," H "," D "]\n%k = param : f32[B,T," K "," D "]\n"          \
                "%v = param : f32[B,T," K "," D "]\n%sink = param : f32[" H "]\n"                 \
                "%o = attention %q, %k, %v {" attr "} : f32[B,T," H "," D "]\n"                   \
                "%lse = item %o {index=1} : f32[B," H ",T]\n"                                     \
                "%turned = transpose %lse {perm=0:2:1} : f32[B,T," H "]\n"                        \
                "%over = sub %turned, %sink : f32[B,T," H "]\n%open = sigmoid %over : f32[B,T," H \
                "]\n%gate = reshape %open : f32[B,T," H ",1]\n"                                   \
                "%y = mul %o, %gate : f32[B,T," H "," D "]\nreturn %y",                           \
                        -1, 1                                                                     \
        }

/* Of 3 and 2 tokens; of 1, 3 and 1. */
#define DOCUMENTS "%d = const {data=0:3:0:3:0:3:3:5:3:5:0:1:1:4:1:4:1:4:4:5} : i32[B,T,2]\n"

TEST (attentions) {
        CHECK_ALL(ATT("2", "2", "3", "", "", "scale=0.5, causal=1"),
                  ATT("4", "2", "2", "", "", "scale=0.7, causal=1"),
                  ATT("3", "1", "2", "", "", "scale=0.7"),
                  ATT("2", "1", "4", "", "", "scale=0.5, causal=1, window=2"),
                  ATT("2", "2", "2", "", "", "scale=2, causal=1, softcap=1.5"),
                  ATT("2", "2", "2", "", "", "scale=1, causal=1, p=0.3, id=5"),
                  ATT("2", "1", "2", ", %s", "%s = const {data=0.5:0.25} : f32[2]\n",
                      "scale=1, causal=1, alibi=1"),
                  ATT("2", "1", "2", ", %m",
                      "%m = const {data=1:0:1:0:1:0:0:0:0:0:1:1:1:1:1:0:1:0:0:1:1:0:0:0:0} : "
                      "f32[T,T]\n",
                      "scale=1, mask=1"),
                  ATT("2", "1", "2", ", %d", DOCUMENTS, "scale=1, causal=1, documents=1"),
                  ATT("2", "1", "2", ", %s, %d", "%s = const {data=0.5:0.25} : f32[2]\n" DOCUMENTS,
                      "scale=1, alibi=1, documents=1"),
                  SINK("2", "2", "3", "scale=0.5, causal=1"),
                  SINK("4", "2", "2", "scale=0.7, causal=1, window=2"),
                  SINK("2", "1", "2", "scale=2, causal=1, softcap=1.5"),
                  { "%q = param : f32[B,T,2,2]\n"
                    "%k = param : f32[B,T,2,2]\n"
                    "%v = param : f32[B,T,2,2]\n"
                    "%o = attention %q, %k, %v {scale=0.5, causal=1} : f32[B,T,2,2]\n"
                    "%lse = item %o {index=1} : f32[B,2,T]\n"
                    "%y = square %lse : f32[B,2,T]\n"
                    "return %y",
                    -1, 1 });
}

TEST (moves) {
        CHECK_ALL(
                { "%i = const {data=2:0:2:-1:9:1} : i32[2,3]\n%a = param : f32[3,4]\n"
                  "%y = gather %a, %i : f32[2,3,4]\nreturn %y",
                  -1, 1 },
                { "%i = const {data=2:0:2} : i32[3]\n"
                  "%a = param : f32[3]\n"
                  "%y = gather %a, %i : f32[3]\n"
                  "return %y",
                  -1, 1 },
                { "%i = const {data=1:0:1} : i32[3]\n"
                  "%a = param : f32[2,3,2]\n"
                  "%y = gather %a, %i : f32[3,3,2]\n"
                  "return %y",
                  -1, 1 },
                { "%a = param : f32[B,T,6]\n%y = reshape %a : f32[B,T,2,3]\nreturn %y", -1, 1 },
                { "%a = param : f32[3,1]\n%y = expand %a : f32[3,4]\nreturn %y", -1, 1 },
                { "%a = param : f32[4]\n%y = expand %a : f32[B,T,4]\nreturn %y", -1, 1 },
                { "%a = param : f32[2,3,4]\n%y = transpose %a {perm=2:0:1} : f32[4,2,3]\nreturn %y",
                  -1, 1 },
                { "%a = param : f32[2,3]\n%b = param : f32[2,1]\n%c = param : f32[2,4]\n"
                  "%y = concat %a, %b, %c : f32[2,8]\nreturn %y",
                  -1, 1 },
                { "%a = param : f32[2,3]\n"
                  "%b = param : f32[2,3]\n"
                  "%y = interleave %a, %b : f32[2,6]\n"
                  "return %y",
                  -1, 1 });
}

/* Slices of one value: side by side, with a gap, overlapping, twice the same, every second or
 * fourth, along each axis. */
#define SLICED(rest)                                                             \
        {                                                                        \
                "%p = param : f32[4,6]\n%a = square %p : f32[4,6]\n" rest, -1, 1 \
        }

TEST (slices) {
        CHECK_ALL(SLICED("%x = slice %a {axis=1, len=2} : f32[4,2]\n"
                         "%y = slice %a {axis=1, start=2, len=4} : f32[4,4]\nreturn x=%x, y=%y"),
                  SLICED("%x = slice %a {axis=1, start=1, len=2} : f32[4,2]\n"
                         "%y = slice %a {axis=1, start=4, len=1} : f32[4,1]\nreturn x=%x, y=%y"),
                  SLICED("%x = slice %a {axis=1, len=4} : f32[4,4]\n"
                         "%y = slice %a {axis=1, start=2, len=4} : f32[4,4]\nreturn x=%x, y=%y"),
                  SLICED("%x = slice %a {axis=1, len=3} : f32[4,3]\n"
                         "%y = slice %a {axis=1, len=3} : f32[4,3]\n"
                         "%z = tanh %y : f32[4,3]\n"
                         "return x=%x, z=%z"),
                  SLICED("%x = slice %a {axis=1, len=3, step=2} : f32[4,3]\n"
                         "%y = slice %a {axis=1, start=1, len=3, step=2} : f32[4,3]\n"
                         "return x=%x, y=%y"),
                  SLICED("%y = slice %a {axis=1, start=1, len=3, step=2} : f32[4,3]\nreturn y=%y"),
                  SLICED("%x = slice %a {axis=0, len=1} : f32[1,6]\n"
                         "%y = slice %a {axis=0, start=2, len=2} : f32[2,6]\nreturn x=%x, y=%y"),
                  SLICED("%x = slice %a {axis=1, len=2} : f32[4,2]\n"
                         "%y = exp %a : f32[4,6]\n"
                         "return x=%x, y=%y"),
                  SLICED("%a1 = slice %a {axis=1, len=1} : f32[4,1]\n"
                         "%a2 = slice %a {axis=1, start=1, len=1} : f32[4,1]\n"
                         "%a3 = slice %a {axis=1, start=2, len=1} : f32[4,1]\n"
                         "%a4 = slice %a {axis=1, start=3, len=1} : f32[4,1]\n"
                         "%a5 = slice %a {axis=1, start=4, len=1} : f32[4,1]\n"
                         "%a6 = slice %a {axis=1, start=5, len=1} : f32[4,1]\n"
                         "return a=%a1, b=%a2, c=%a3, d=%a4, e=%a5, f=%a6"),
                  SLICED("%x = slice %a {axis=0, start=1, len=2, step=2} : f32[2,6]\nreturn x=%x"),
                  SLICED("%x = slice %a {axis=1, start=1, len=2, step=4} : f32[4,2]\n"
                         "%y = slice %a {axis=1, len=3, step=2} : f32[4,3]\n"
                         "%z = slice %a {axis=1, start=1, len=5} : f32[4,5]\n"
                         "return x=%x, y=%y, z=%z"),
                  { "%p = param : f32[B,T,5,2]\n%a = square %p : f32[B,T,5,2]\n"
                    "%x = slice %a {axis=2, start=1, len=2, step=3} : f32[B,T,2,2]\nreturn x=%x",
                    -1, 1 },
                  { "%p = param : f32[2,2,2,7]\n%a = square %p : f32[2,2,2,7]\n"
                    "%x = slice %a {axis=3, len=3, step=3} : f32[2,2,2,3]\nreturn x=%x",
                    -1, 1 });
}

TEST (routing) {
        CHECK_ALL({ "%a = param : f32[4,5]\n%y = topk %a {k=2} : f32[4,2]\nreturn %y", -2, 2 },
                  { "%a = param : f32[1,1]\n%y = topk %a {k=1} : f32[1,1]\nreturn %y", -2, 2 },
                  { "%a = param : f32[B,T,2,3]\n%y = combine %a : f32[B,T,3]\nreturn %y", -1, 1 },
                  { "%a = param : f32[4,2,3]\n"
                    "%g = param : f32[4,2]\n"
                    "%y = combine %a, %g : f32[4,3]\n"
                    "return %y",
                    -1, 1 });
}

/* ---- whole models ---- */

enum { V = 11, C = 8, H = 4, K = 2, D = 6, F = 7, E = 3, TOP = 2 };
enum { GPT, LLAMA, MOE, N_FAMILY };
static const char *const family_name[N_FAMILY] = { "gpt", "llama", "moe" };

static const Loc NOWHERE = { 0 };

static Ref param(Graph *g, const char *name, int rank, int a, int b, int c)
{
        Attr p = { .param = { INIT_NORMAL, 0.02, 0, 1, rank > 1 } };
        return graph_leaf(g, OP_PARAM, type_of(DT_F32, rank, DIM(a), DIM(b), DIM(c)), &p, NOWHERE,
                          name);
}

static Ref linear(Graph *g, Ref x, const char *name, int out, bool bias)
{
        char b[64];
        Ref w = param(g, name, 2, out, (int)NODE(g, x)->type.dim[NODE(g, x)->type.rank - 1].n, 0);
        x = op_matmul(g, x, w, false, true);
        snprintf(b, sizeof b, "%s.bias", name);
        return bias ? op2(g, OP_ADD, x, param(g, b, 1, out, 0, 0)) : x;
}

static Ref normed(Graph *g, Ref x, const char *name, bool layer)
{
        char b[64];
        Attr a = { .num = { 1e-5 } };
        Ref n = graph_add(g, layer ? OP_LAYERNORM : OP_RMSNORM, &x, 1, &a, NOWHERE,
                          graph_name(g, "norm"));
        n = op2(g, OP_MUL, n, param(g, name, 1, C, 0, 0));
        snprintf(b, sizeof b, "%s.bias", name);
        return layer ? op2(g, OP_ADD, n, param(g, b, 1, C, 0, 0)) : n;
}

static Ref heads(Graph *g, Ref x, int n)
{
        return graph_reshape(g, x,
                             type_of(DT_F32, 4, DIM_SYM(SYM_B), DIM_SYM(SYM_T), DIM(n), DIM(D)));
}

static Ref attend(Graph *g, Ref x, int family, const char *wq, const char *wk, const char *wv,
                  const char *wo)
{
        bool gpt = family == GPT;
        static const double freq[D / 2] = { 1, 0.4, 0.1 };
        Attr fa = { 0 }, att = { .att = { .scale = 0.4, .causal = 1 } };
        fa.data.data = freq;
        fa.data.n = D / 2;
        Ref q, k, v;
        if (gpt) { /* one linear, sliced */
                Ref qkv = linear(g, x, wq, 3 * H * D, true);
                q = op_slice(g, qkv, 2, 0, H * D, 1);
                k = op_slice(g, qkv, 2, H * D, H * D, 1);
                v = op_slice(g, qkv, 2, 2 * H * D, H * D, 1);
        } else {
                q = linear(g, x, wq, H * D, false);
                k = linear(g, x, wk, K * D, false);
                v = linear(g, x, wv, K * D, false);
        }
        q = heads(g, q, H);
        k = heads(g, k, gpt ? H : K);
        v = heads(g, v, gpt ? H : K);
        if (!gpt) {
                Ref f = graph_leaf(g, OP_CONST, type_of(DT_F32, 1, DIM(D / 2)), &fa, NOWHERE, NULL);
                q = op2(g, OP_ROPE, q, f);
                k = op2(g, OP_ROPE, k, f);
        }
        Ref o = graph_add(g, OP_ATTENTION, (Ref[]) { q, k, v }, 3, &att, NOWHERE, NULL);
        o = graph_reshape(g, o, type_of(DT_F32, 3, DIM_SYM(SYM_B), DIM_SYM(SYM_T), DIM(H * D)));
        return linear(g, o, wo, C, gpt);
}

static Ref moe(Graph *g, Ref x, Ref *aux)
{
        Attr top = { .k = { TOP } }, sort = { .k = { E } };
        Attr in = { .expert = { .tb = 1, .adiv = TOP } },
             out = { .expert = { .tb = 1, .scatter = 1 } }, one = { .k = { 1 } };
        Dim rows = dim_mul(DIM_SYM(SYM_B), DIM_SYM(SYM_T));
        x = graph_reshape(g, x, type_of(DT_F32, 2, rows, DIM(C)));
        Ref probs = op1(g, OP_SOFTMAX, linear(g, x, "router", E, false));
        Ref gates = graph_add(g, OP_TOPK, &probs, 1, &top, NOWHERE, NULL),
            chosen = graph_item(g, gates, 1, NULL);
        gates = op2(g, OP_DIV, gates, op1(g, OP_SUM, gates));
        Ref slots = graph_reshape(g, chosen, type_of(DT_I32, 1, dim_mul(rows, DIM(TOP))));
        Ref perm = graph_add(g, OP_BUCKET, &slots, 1, &sort, NOWHERE, NULL),
            offs = graph_item(g, perm, 1, NULL);
        Ref gate = graph_add(g, OP_EXPERT_MATMUL,
                             (Ref[]) { x, param(g, "e.gate", 3, E, F, C), perm, offs }, 4, &in,
                             NOWHERE, NULL);
        Ref up = graph_add(g, OP_EXPERT_MATMUL,
                           (Ref[]) { x, param(g, "e.up", 3, E, F, C), perm, offs }, 4, &in, NOWHERE,
                           NULL);
        Ref h = op2(g, OP_MUL, op1(g, OP_SILU, gate), up);
        Ref y = graph_add(g, OP_EXPERT_MATMUL,
                          (Ref[]) { h, param(g, "e.down", 3, E, C, F), perm, offs }, 4, &out,
                          NOWHERE, NULL);
        y = graph_reshape(g, y, type_of(DT_F32, 3, rows, DIM(TOP), DIM(C)));
        y = op2(g, OP_COMBINE, y, gates);
        Ref mass = graph_add(g, OP_COLSUM, &probs, 1, &one, NOWHERE,
                             NULL); /* the balance loss's way: columns,
                then a row */
        *aux = graph_reshape(g, op1x(g, OP_SCALE, op1(g, OP_SUM, op1(g, OP_SQUARE, mass)), 0.01),
                             type_of(DT_F32, 0));
        return graph_reshape(g, y, type_of(DT_F32, 3, DIM_SYM(SYM_B), DIM_SYM(SYM_T), DIM(C)));
}

static Graph *model(int family, bool train)
{
        Graph *g = graph_new(family_name[family]);
        Type it = type_of(DT_I32, 2, DIM_SYM(SYM_B), DIM_SYM(SYM_T));
        Ref ids = graph_leaf(g, OP_INPUT, it, NULL, NOWHERE, "ids"), targets = 0, aux = 0;
        if (train)
                targets = graph_leaf(g, OP_INPUT, it, NULL, NOWHERE, "targets");
        Ref emb = param(g, "emb", 2, V, C, 0), x = op2(g, OP_GATHER, emb, ids);
        if (family == GPT) {
                Ref at = graph_leaf(g, OP_POSITION, it, NULL, NOWHERE, "at");
                x = op2(g, OP_ADD, x, op2(g, OP_GATHER, param(g, "wpe", 2, 16, C, 0), at));
        }
        x = op2(g, OP_ADD, x,
                attend(g, normed(g, x, "n1", family == GPT), family, "wq", "wk", "wv", "wo"));
        Ref h = normed(g, x, "n2", family == GPT);
        if (family == MOE) {
                h = moe(g, h, &aux);
        } else if (family == LLAMA) {
                Ref gate = linear(g, h, "gate", F, false), up = linear(g, h, "up", F, false);
                h = linear(g, op2(g, OP_MUL, op1(g, OP_SILU, gate), up), "down", C, false);
        } else {
                h = linear(g, op1(g, OP_GELU, linear(g, h, "up", F, true)), "down", C, true);
        }
        x = op2(g, OP_ADD, x, h);
        if (family != MOE)
                x = op2(g, OP_ADD, x,
                        attend(g, normed(g, x, "n3", family == GPT), family, "wq2", "wk2", "wv2",
                               "wo2"));
        x = normed(g, x, "n4", family == GPT);
        Ref logits = op_matmul(g, x, family == MOE ? param(g, "head", 2, V, C, 0) : emb, false,
                               true);
        graph_output(g, "logits", logits);
        if (!train)
                return g;
        Ref loss = op2(g, OP_CE, logits, targets);
        loss = op1(g, OP_SUM,
                   graph_reshape(g, loss,
                                 type_of(DT_F32, 1, dim_mul(DIM_SYM(SYM_B), DIM_SYM(SYM_T)))));
        Ref inv = graph_leaf(g, OP_INV_TOKENS, type_of(DT_F32, 0), NULL, NOWHERE, NULL);
        loss = op2(g, OP_MUL, graph_reshape(g, loss, type_of(DT_F32, 0)), inv);
        graph_output(g, "loss", aux ? op2(g, OP_ADD, loss, aux) : loss);
        return g;
}

static Eval *prepared(Graph *g)
{
        EvalCtx c = { .sizes = SIZES, .inv_tokens = 0.1 };
        Eval *e = eval_new(g, &c);
        set_params(e, g, &SIZES, 3, -0.7, 0.7);
        set_ids(e, g, &SIZES, "ids", V, 4);
        set_ids(e, g, &SIZES, "targets", V + 1, 5); /* V is no class: ignored */
        return e;
}

/* A test of each family. */
#define TEST_FAMILIES(id)                                                         \
        static void family_##id(int f);                                           \
        static void guarded_##id(const void *f) { family_##id(*(const int *)f); } \
        TEST (id) {                                                               \
                for (int f = 0; f < N_FAMILY; f++)                                \
                        guarded(guarded_##id, &f);                                \
        }                                                                         \
        static void family_##id(int f)

TEST_FAMILIES(whole_models)
{
        Graph *g = model(f, true);
        differentiated(g);
        Eval *e = prepared(g);
        compare_gradients(g, e, family_name[f]);
        eval_free(e);
        graph_free(g);
}

/* Two micro-steps of half the batch add up to the whole, given shares that do. */
static void two_micro_steps(const void *unused)
{
        (void)unused;
        Graph *g = model(LLAMA, true);
        differentiated(g);
        Eval *a = prepared(g);
        eval_run(a);
        EvalCtx c = { .sizes = SIZES, .inv_tokens = 0.1, .share = 0.3, .n_micro = 2 };
        Eval *b = prepared(g);
        eval_again(b, &c);
        eval_run(b);
        c.share = 0.7;
        c.micro = 1;
        eval_again(b, &c);
        eval_run(b);
        int64_t n;
        const double *x = eval_grad(a, "wq", &n);
        const double *y = eval_grad(b, "wq", &n);
        CHECK(n == H * D * C && worst_difference(x, y, n) < 1e-14);
        eval_free(a);
        eval_free(b);
        graph_free(g);
}

TEST (micro_steps_add_up) {
        guarded(two_micro_steps, NULL);
}

/* One call of a cached graph: token ids[b][pos[b]] .. of T tokens; checks their logits. */
static void decode(Eval **e, Graph *g, const double *ids, const int *pos, int T, const double *want,
                   const char *what)
{
        EvalCtx c = { .sizes = { { 2, T, 8 } }, .pos = pos };
        double now[16];
        int64_t n;
        if (*e) {
                eval_again(*e, &c);
        } else {
                *e = eval_new(g, &c);
                set_params(*e, g, &SIZES, 3, -0.7, 0.7);
        }
        for (int b = 0; b < 2; b++)
                for (int t = 0; t < T; t++)
                        now[b * T + t] = ids[b * 5 + pos[b] + t];
        eval_set(*e, "ids", now, 2 * T);
        eval_run(*e);
        const double *got = eval_output(*e, "logits", &n);
        CHECK_MSG(n == 2 * T * V, "%s: %d logits", what, (int)n);
        for (int b = 0; b < 2; b++)
                CHECK_MSG(worst_difference(got + b * T * V, want + (b * 5 + pos[b]) * V, T * V) <
                                  1e-12,
                          "%s: cached logits of sequence %d differ at positions %d..%d", what, b,
                          pos[b], pos[b] + T - 1);
}

/* In chunks with a cache equals the whole at once; and so where sequences stand at
 * different positions. */
TEST_FAMILIES(cached_decoding)
{
        static const int chunk[] = { 1, 2, 1, 1 };
        Graph *g = model(f, false), *cached = model(f, false);
        Arena *tmp = arena_new();
        Eval *all = prepared(g), *even = NULL, *ragged = NULL;
        eval_run(all);
        const double *want = eval_output(all, "logits", NULL), *ids = eval_leaf(all, "ids", NULL);
        cache_kv(cached, tmp);
        verify(cached, "cache_kv");
        for (int i = 0, at = 0; i < 4; at += chunk[i++])
                decode(&even, cached, ids, (int[]) { at, at }, chunk[i], want, family_name[f]);
        for (int i = 0; i < 5; i++) /* the second sequence writes its first row three times */
                decode(&ragged, cached, ids, (int[]) { i, i < 2 ? 0 : i - 2 }, 1, want,
                       family_name[f]);
        eval_free(even);
        eval_free(ragged);
        eval_free(all);
        arena_free(tmp);
        graph_free(g);
        graph_free(cached);
}

/* ---- passes keep values ---- */

typedef struct Kept {
        double loss;
        double *grad[64];
        int64_t n[64];
        const char *name[64];
        int count;
} Kept;

/* The loss and all gradients before, compared after. */
static void keep(Graph *g, Kept *k)
{
        Eval *e = prepared(g);
        eval_run(e);
        k->loss = *eval_output(e, "loss", NULL);
        for (Ref r = 1; r < g->n_nodes && k->count < 64; r++)
                if (NODE(g, r)->op == OP_PARAM) {
                        int i = k->count++;
                        const double *d = eval_grad(e, NODE(g, r)->name, &k->n[i]);
                        k->name[i] = strdup(NODE(g, r)->name);
                        k->grad[i] = d ? memcpy(malloc((size_t)k->n[i] * sizeof *d), d,
                                                (size_t)k->n[i] * sizeof *d)
                                       : NULL;
                }
        eval_free(e);
}

static void same_as(Graph *g, Kept *k, const char *pass)
{
        Eval *e = prepared(g);
        eval_run(e);
        CHECK_MSG(fabs(*eval_output(e, "loss", NULL) - k->loss) < 1e-12,
                  "%s: the loss changed by %g", pass, *eval_output(e, "loss", NULL) - k->loss);
        for (int i = 0; i < k->count; i++) {
                int64_t n;
                const double *d = eval_grad(e, k->name[i], &n);
                CHECK_MSG(!d == !k->grad[i] && n == k->n[i], "%s: gradient of %%%s is lost", pass,
                          k->name[i]);
                CHECK_MSG(!d || worst_difference(d, k->grad[i], n) < 1e-12,
                          "%s: the gradient of %%%s changed", pass, k->name[i]);
        }
        eval_free(e);
}

static void kept_free(Kept *k)
{
        for (int i = 0; i < k->count; i++) {
                free(k->grad[i]);
                free((char *)k->name[i]);
        }
}

static int count_op(const Graph *g, Op op)
{
        int n = 0;
        for (Ref r = 1; r < g->n_nodes; r++)
                n += g->node[r].op == op;
        return n;
}

TEST_FAMILIES(passes_keep_values)
{
        Graph *g = model(f, true);
        Arena *tmp = arena_new();
        Kept fwd = { 0 };
        Kept k = { 0 };
        keep(g, &fwd);
        simplify(g, tmp);
        verify(g, "simplify");
        same_as(g, &fwd, "simplify");
        fuse_loss(g, tmp);
        verify(g, "fuse_loss");
        CHECK(count_op(g, OP_LINEAR_CE) == 0); /* the logits are an output */
        g->out[0] = g->out[1];
        g->n_out = 1;
        graph_sweep(g);
        fuse_loss(g, tmp);
        verify(g, "fuse_loss");
        CHECK(count_op(g, OP_LINEAR_CE) == 1);
        same_as(g, &fwd, "fuse_loss");
        differentiated(g);
        keep(g, &k);
        simplify(g, tmp);
        verify(g, "simplify");
        same_as(g, &k, "simplify, after differentiate");
        fuse_loss_grad(g, tmp);
        verify(g, "fuse_loss_grad");
        CHECK(count_op(g, OP_LINEAR_CE) == 0 && count_op(g, OP_LINEAR_CE_GRAD) == 1);
        same_as(g, &k, "fuse_loss_grad");
        fuse_norm_grad(g, tmp);
        verify(g, "fuse_norm_grad");
        CHECK_MSG(count_op(g, OP_RMSNORM_BACK) + count_op(g, OP_LAYERNORM_BACK) ==
                          (f == MOE ? 3 : 4),
                  "%s: %d norms were fused", family_name[f],
                  count_op(g, OP_RMSNORM_BACK) + count_op(g, OP_LAYERNORM_BACK));
        same_as(g, &k, "fuse_norm_grad");
        simplify(g, tmp);
        same_as(g, &k, "the last simplify");
        kept_free(&fwd);
        kept_free(&k);
        arena_free(tmp);
        graph_free(g);
}

/* Rows [begin, end) by step of the merged parameter, or of each of its matrices, as the model's map
 * says. */
static void fill_by_map(Eval *e, Model *m, Eval *from)
{
        for (Ref r = 1; r < m->graph->n_nodes; r++) {
                Node *n = NODE(m->graph, r);
                if (n->op != OP_PARAM)
                        continue;
                const int64_t count = type_count(&n->type, &SIZES),
                              experts = n->type.rank == 3 ? n->type.dim[0].n : 1;
                const int64_t rows = n->type.rank ? n->type.dim[experts > 1].n : 1,
                              cols = count / experts / rows;
                double *v = calloc((size_t)count, sizeof *v);
                int64_t filled = 0;
                for (int i = 0; i < m->n_map; i++) {
                        const MapLine *l = &m->map[i];
                        char source[64];
                        if (strcmp(l->param, n->name))
                                continue;
                        snprintf(source, sizeof source, "%s", l->rest + 2); /* "= NAME: shape" */
                        *strchr(source, ':') = 0;
                        const double *s = eval_leaf(from, source, NULL);
                        long long begin = l->begin, end = l->end ? l->end : rows, step = l->step;
                        sscanf(l->deeper, "[%lld:%lld:%lld]", &begin, &end, &step);
                        for (int64_t e0 = 0; e0 < experts; e0++)
                                for (int64_t row = begin; row < end;
                                     row += step, s += cols, filled += cols)
                                        memcpy(v + (e0 * rows + row) * cols, s,
                                               (size_t)cols * sizeof *v);
                }
                CHECK_MSG(filled == count, "the map fills %lld of %lld numbers of %%%s",
                          (long long)filled, (long long)count, n->name);
                eval_set(e, n->name, v, count);
                free(v);
        }
}

/* q, k, v and gate, up become one each; the map says where the old rows went; the
 * gradients of the merged ones are right too. */
TEST_FAMILIES(merged_linears_keep_values)
{
        Graph *g = model(f, true);
        Model *m = model_new(family_name[f]);
        Arena *tmp = arena_new();
        Eval *a = prepared(g);
        Graph *h = model(f, true);
        arena_free(m->arena); /* the model stands in its graph's arena */
        m = arena_alloc(h->arena, sizeof *m);
        *m = (Model) { .arena = h->arena, .graph = h, .name = "m", .meta = "" };
        model_finish(m, NULL);
        int before = count_op(h, OP_MATMUL);
        merge_linears(m, tmp);
        verify(h, "merge_linears");
        CHECK(before - count_op(h, OP_MATMUL) == (f == GPT ? 0 : f == LLAMA ? 5 : 2));
        Eval *b = prepared(h);
        fill_by_map(b, m, a);
        eval_run(a);
        eval_run(b);
        CHECK_MSG(fabs(*eval_output(a, "loss", NULL) - *eval_output(b, "loss", NULL)) < 1e-12,
                  "%s: the loss changed", family_name[f]);
        eval_free(b);
        differentiated(h);
        b = prepared(h);
        compare_gradients(h, b, "merged");
        eval_free(a);
        eval_free(b);
        arena_free(tmp);
        graph_free(g);
        graph_free(h);
}

TEST_MAIN
