/* muon.c: Muon's step of the hidden matrices (kernels/optimizer/muon.cuh has the formula), one
 * after the other: momentum, scale, five times three products in bf16, the parameters.
 *
 * Of a matrix with more rows than columns the Gram matrix is that of its columns, so nothing is
 * transposed: G = x^T x, x = A x + x (B G + C G G).  G and the polynomial of it are symmetric.  All
 * matrices share scratch, of the largest. */
#include "loss.h"
#include <math.h>

enum { TILES = 264, STEPS = 5 };
static const double A = 3.4445, B = -4.7750, C = 2.0315;

typedef struct Muon {
        Emit *e;
        const Shared *sh;
        const MuonMatrix *w;
        DType dt;
        int norm, partial, x[2], gram, poly; /* works */
} Muon;

static Build start(const Muon *u, const char *title)
{
        Build b = build_start(u->e, NULL, "muon", title);
        b.any.threads = 256;
        b.any.smem = 256;
        return b;
}

static const char *matrix_text(const Muon *u)
{
        const MuonMatrix *w = u->w;
        return is_cuda(u->e)
                       ? arena_fmt(u->e->tmp,
                                   "const MuonMatrix w = { %lldll, %lldll, %lldll, %lld };",
                                   (long long)w->first, (long long)w->ld,
                                   (long long)(w->rows * w->cols), (long long)w->cols)
                       : arena_fmt(u->e->tmp, "const MuonMatrix w = { %lld, %lld, %lld, %lld };",
                                   (long long)w->first, (long long)w->ld, (long long)w->rows,
                                   (long long)w->cols);
}

static const char *c_tiles(const Muon *u)
{
        return arena_fmt(u->e->tmp, "muon_tiles(%lld)", (long long)u->w->rows);
}

static void momentum(const Muon *u)
{
        Emit *e = u->e;
        const bool cuda = is_cuda(e);
        Build b = start(u, "muon_momentum");
        const char *g = cuda ? update_grads(&b, u->sh->n_train, u->sh->n_low)
                             : arg_arena(e, &b.args, "g", "float", "g"),
                   *m = arg_arena(e, &b.args, "m", "float", "m"),
                   *x = arg_work(e, &b.args, u->x[0], "bf16", "x"),
                   *parts = arg_work(e, &b.args, u->partial, cuda ? "float" : "double", "parts"),
                   *nm = arg_work(e, &b.args, u->norm, "float", "norm");
        build_line(&b, "%s", matrix_text(u));
        if (cuda) {
                build_line(&b, "const Grads grads = %s;", g);
                build_line(
                        &b,
                        "muon_momentum_task<256, %s>(rt, w, grads, a.%s, a.%s, a.%s, a.%s, tile, "
                        "%d, smem);",
                        u->dt == DT_F16 ? "true" : "false", m, x, parts, nm, TILES);
                build_end(&b, arena_fmt(e->tmp, "%d", TILES));
        } else {
                build_cpu_loop(&b, c_tiles(u), 1e9,
                               arena_fmt(e->tmp,
                                         "muon_momentum_task(rt, w, a.%s, a.%s, a.%s, a.%s, a.%s, "
                                         "tile);",
                                         g, m, x, parts, nm));
                build_end(&b, "1");
        }
}

static void scale(const Muon *u)
{
        Emit *e = u->e;
        const bool cuda = is_cuda(e);
        Build b = start(u, "muon_scale");
        const char *x = arg_work(e, &b.args, u->x[0], "bf16", "x"),
                   *parts = arg_done(e, &b.args, u->partial, cuda ? "float" : "double", "parts");
        build_line(&b, "%s", matrix_text(u));
        if (cuda) {
                build_line(&b, "muon_scale_task<256>(w, a.%s, a.%s, %d, tile, %d, smem);", x, parts,
                           TILES, TILES);
                build_end(&b, arena_fmt(e->tmp, "%d", TILES));
        } else {
                build_cpu_loop(&b, c_tiles(u), 1e9,
                               arena_fmt(e->tmp, "muon_scale_task(w, a.%s, a.%s, tile);", x,
                                         parts));
                build_end(&b, "1");
        }
}

/* An operand or a result: a work of rows that have no gaps. */
typedef struct Dense {
        int work;
        int64_t cols;
} Dense;

static Mat dense_mat(const Muon *u, Build *b, Dense d, const char *name)
{
        return (Mat) { .arg = arena_fmt(u->e->tmp, "a.%s",
                                        arg_done(u->e, &b->args, d.work, "bf16", name)),
                       .ld = arena_fmt(u->e->tmp, "%lld", (long long)d.cols),
                       .stride = d.cols };
}

/* to = alpha op(a) op(b) + beta * plus, in bf16; plus.work below 0: nothing is added. */
static void multiply(const Muon *u, const char *title, Dense to, Dense x, bool ta, Dense y, bool tb,
                     int64_t M, int64_t N, int64_t K, double alpha, Dense plus, double beta)
{
        Emit *e = u->e;
        char al[32], be[32];
        Build b = build_start(e, NULL, "gemm", title);
        const Mat xm = dense_mat(u, &b, x, "x"), ym = dense_mat(u, &b, y, "y");
        const char *out = arg_work(e, &b.args, to.work, "bf16", "out"), *add = NULL;
        const int64_t lds = x.cols | y.cols;
        num_text(alpha, al);
        num_text(beta, be);
        if (plus.work >= 0)
                add = arg_done(e, &b.args, plus.work, "bf16", "plus");
        if (is_cuda(e)) {
                text_add(build_decl(&b),
                         "struct \1_epilogue {\n        static constexpr int MAXV = %d, MINV = 1;\n"
                         "        const \1_args &a;\n        template <int V> __device__ "
                         "__forceinline__ void operator()(int row, int col, float (&v)[V]) const\n"
                         "        {\n",
                         column_v(N, 8));
                if (add)
                        text_add(build_decl(&b),
                                 "                float plus[V];\n"
                                 "                load<V>(plus, a.%s + (long)row * %lld + col);\n"
                                 "#pragma unroll\n                for (int j = 0; j < V; j++)\n"
                                 "                        v[j] = (float)%s * v[j] + (float)%s * "
                                 "plus[j];\n",
                                 add, (long long)N, al, be);
                text_add(build_decl(&b),
                         "                store<V>(a.%s + (long)row * %lld + col, v);\n        }\n"
                         "};\n\n",
                         out, (long long)N);
        } else {
                text_add(build_decl(&b),
                         "TGC_INLINE void \1_epilogue(const void *args, long row, int col, int n, "
                         "float *v)\n{\n        const \1_args *a = args;\n");
                if (add)
                        text_add(build_decl(&b),
                                 "        float plus[TGC_SEG];\n"
                                 "        load_bf16(plus, a->%s + row * %lld + col, n);\n"
                                 "        for (int j = 0; j < n; j++)\n"
                                 "                v[j] = (float)%s * v[j] + (float)%s * plus[j];\n",
                                 add, (long long)N, al, be);
                text_add(build_decl(&b),
                         "        store_bf16(a->%s + row * %lld + col, v, n);\n}\n\n", out,
                         (long long)N);
        }
        product(e, DT_BF16, &b, &xm, ta, &ym, tb, M, N, K, bytes16(DT_BF16, lds & -lds),
                (Slot) { .kind = SLOT_WORK, .id = x.work },
                (Slot) { .kind = SLOT_WORK, .id = y.work }, add ? 4 : 2, NULL);
}

/* The result is in x[1]. */
static void orthogonalize(const Muon *u)
{
        const int64_t R = u->w->rows, N = u->w->cols, r = R < N ? R : N;
        const Dense none = { -1, 0 }, gram = { u->gram, r }, poly = { u->poly, r };
        for (int i = 0; i < STEPS; i++) {
                const Dense x = { u->x[i % 2], N }, next = { u->x[(i + 1) % 2], N };
                const bool wide = R <= N;
                multiply(u, "muon_gram", gram, x, !wide, x, wide, r, r, wide ? N : R, 1, none, 0);
                multiply(u, "muon_poly", poly, gram, false, gram, false, r, r, r, C, gram, B);
                if (wide)
                        multiply(u, "muon_step", next, poly, false, x, false, R, N, R, 1, x, A);
                else
                        multiply(u, "muon_step", next, x, false, poly, false, R, N, N, 1, x, A);
        }
}

static void apply(const Muon *u)
{
        Emit *e = u->e;
        const MuonMatrix *w = u->w;
        const UpdateRange own = { .rate = w->rate, .decay = w->decay };
        const bool rates = own.rate != 0 || own.decay != 0;
        const double most = (double)(w->rows > w->cols ? w->rows : w->cols);
        char factor[32];
        Build b = start(u, "muon_apply");
        const char *x = arg_done(e, &b.args, u->x[1], "bf16", "x"),
                   *params = update_params(&b, u->sh, u->dt),
                   *nm = arg_work(e, &b.args, u->norm, "float", "norm"),
                   *rt = rates ? update_rates(e, &own) : "";
        num_text(0.2 * sqrt(most), factor);
        if (is_cuda(e)) {
                build_line(&b, "%s", matrix_text(u));
                build_line(&b, "const %s;", params);
                if (rates)
                        build_line(&b, "%s", rt);
                build_line(&b,
                           "muon_apply_task<256>(%s, w, params, a.%s, (float)%s, %s, a.%s, tile);",
                           rates ? "&own" : "rt", x, factor, w->decays ? "true" : "false", nm);
                build_end(&b, arena_fmt(e->tmp, "ceil(%lld/256)", (long long)(w->rows * w->cols)));
        } else {
                build_line(&b, "%s", matrix_text(u));
                build_cpu_loop(&b, c_tiles(u), 1e9,
                               arena_fmt(e->tmp,
                                         "%smuon_apply_task(%s, w, %s, a.%s, (float)%s, %d, a.%s, "
                                         "tile);%s",
                                         rt, rates ? "&own" : "rt", params, x, factor, w->decays,
                                         nm, rates ? " }" : ""));
                build_end(&b, "1");
        }
}

void gen_muon(Emit *e, const Shared *sh, DType dt, int norm)
{
        int64_t most = 1, side = 1, rows = 1;
        for (int i = 0; i < sh->n_matrices; i++) {
                const MuonMatrix *w = &sh->matrix[i];
                const int64_t less = w->rows < w->cols ? w->rows : w->cols;
                most = w->rows * w->cols > most ? w->rows * w->cols : most;
                side = less > side ? less : side;
                rows = w->rows > rows ? w->rows : rows;
        }
        Muon u = { .e = e, .sh = sh, .dt = dt, .norm = norm };
        u.partial = work_keep(e, DIM(is_cuda(e) ? TILES : rows), is_cuda(e) ? 4 : 8, "muon_parts");
        u.x[0] = work_keep(e, DIM(most), 2, "muon_x");
        u.x[1] = work_keep(e, DIM(most), 2, "muon_next");
        u.gram = work_keep(e, DIM(side * side), 2, "muon_gram");
        u.poly = work_keep(e, DIM(side * side), 2, "muon_poly");
        for (int i = 0; i < sh->n_matrices; i++) {
                u.w = &sh->matrix[i];
                momentum(&u);
                scale(&u);
                orthogonalize(&u);
                apply(&u);
        }
}
