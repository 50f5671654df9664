/* muon.c: emits Muon's step of the hidden matrices (kernels/optimizer/muon.cuh has the formula):
 * momentum, scale, five rounds of three products in bf16, the parameters' update.  On a GPU
 * matrices of one size share launches, as many as scratch has room for.
 *
 * A matrix with more rows than columns uses the Gram matrix of its columns, so nothing is
 * transposed: G = x^T x, x = A x + x (B G + C G G).  G and its polynomial are symmetric. */
#include "ops.h"
#include <math.h>

/* TILES: of a pass over a batch's elements.  MOST: elements of a batch of several. */
enum { TILES = 1056, STEPS = 5, MOST = 1 << 25 };
static const double A = 3.4445, B = -4.7750, C = 2.0315;

typedef struct Muon {
        Emit *e;
        const Shared *sh;
        const MuonMatrix **w; /* n of one size and group */
        int n;
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

/* Elements that a thread has at a time. */
static int vector_of(const Muon *u)
{
        int64_t all = u->w[0]->cols | u->w[0]->ld | 8;
        for (int i = 0; i < u->n; i++)
                all |= u->w[i]->first;
        return all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
}

/* Blocks for each matrix: of a pass that goes on where it is not done. */
static int tiles_of(const Muon *u)
{
        const int64_t all = u->w[0]->rows * u->w[0]->cols, step = 256 * vector_of(u),
                      most = (all + step - 1) / step, each = TILES / u->n;
        return (int)(most < each ? most : each > 1 ? each : 1);
}

/* What describes the matrices. */
static void matrices(const Muon *u, Build *b)
{
        const MuonMatrix *w = u->w[0];
        if (!is_cuda(u->e)) {
                build_line(b, "const MuonMatrix w = { %lld, %lld, %lld, %lld };",
                           (long long)w->first, (long long)w->ld, (long long)w->rows,
                           (long long)w->cols);
                return;
        }
        text_add(build_decl(b), "static __device__ const long long \1_first[] = {");
        for (int i = 0; i < u->n; i++)
                text_add(build_decl(b), "%s%lldll,", i % 6 ? " " : "\n        ",
                         (long long)u->w[i]->first);
        text_add(build_decl(b), "\n};\n");
        build_line(b, "const MuonMatrices w = { \1_first, %lldll, %lldll, %lld };",
                   (long long)w->ld, (long long)(w->rows * w->cols), (long long)w->cols);
}

static const char *c_tiles(const Muon *u)
{
        return arena_fmt(u->e->tmp, "muon_tiles(%lld)", (long long)u->w[0]->rows);
}

static void momentum(const Muon *u)
{
        Emit *e = u->e;
        const bool cuda = is_cuda(e);
        Build b = start(u, "muon_momentum");
        const char *g = cuda ? update_grads(&b, u->sh->n_train, u->sh->n_low)
                             : arg_arena(e, &b.args, "g", C_F32, "g"),
                   *m = arg_arena(e, &b.args, "m", C_F32, "m"),
                   *x = arg_work(e, &b.args, u->x[0], C_BF16, "x"),
                   *parts = arg_work(e, &b.args, u->partial, cuda ? C_F32 : C_F64, "parts"),
                   *nm = arg_work(e, &b.args, u->norm, C_F32, "norm");
        matrices(u, &b);
        if (cuda) {
                build_line(&b, "const Grads grads = %s;", g);
                build_line(&b,
                           "muon_momentum_task<256, %d, %s>(rt, w, grads, a.%s, a.%s, a.%s, a.%s, "
                           "tile, %d, smem);",
                           vector_of(u), u->dt == DT_F16 ? "true" : "false", m, x, parts, nm,
                           tiles_of(u));
                build_end(&b, grid_blocks(u->n * tiles_of(u)));
        } else {
                build_cpu_loop(&b, c_tiles(u), 1e9,
                               arena_fmt(e->tmp,
                                         "muon_momentum_task(rt, w, a.%s, a.%s, a.%s, a.%s, a.%s, "
                                         "tile);",
                                         g, m, x, parts, nm));
                build_end(&b, grid_blocks(1));
        }
}

static void scale(const Muon *u)
{
        Emit *e = u->e;
        const bool cuda = is_cuda(e);
        Build b = start(u, "muon_scale");
        const char *x = arg_work(e, &b.args, u->x[0], C_BF16, "x"),
                   *parts = arg_done(e, &b.args, u->partial, cuda ? C_F32 : C_F64, "parts");
        matrices(u, &b);
        if (cuda) {
                build_line(&b, "muon_scale_task<256, %d>(w, a.%s, a.%s, tile, %d, smem);",
                           vector_of(u), x, parts, tiles_of(u));
                build_end(&b, grid_blocks(u->n * tiles_of(u)));
        } else {
                build_cpu_loop(&b, c_tiles(u), 1e9,
                               arena_fmt(e->tmp, "muon_scale_task(w, a.%s, a.%s, tile);", x,
                                         parts));
                build_end(&b, grid_blocks(1));
        }
}

/* An operand or a result: a work of matrices one below another, without gaps. */
typedef struct Dense {
        int work;
        int64_t rows, cols;
} Dense;

static Mat dense_mat(const Muon *u, Build *b, Dense d, const char *name)
{
        return (Mat) { .arg = arena_fmt(u->e->tmp, "a.%s",
                                        arg_done(u->e, &b->args, d.work, C_BF16, name)),
                       .ld = arena_fmt(u->e->tmp, "%lld", (long long)d.cols),
                       .step = arena_fmt(u->e->tmp, "%lld", (long long)(d.rows * d.cols)),
                       .stride = d.cols };
}

/* to = alpha op(a) op(b) + beta * plus, in bf16; plus.work below 0: nothing is added.  symmetric:
 * it is known to be. */
static void multiply(const Muon *u, const char *title, Dense to, Dense x, bool ta, Dense y, bool tb,
                     int64_t M, int64_t N, int64_t K, double alpha, Dense plus, double beta,
                     bool symmetric)
{
        Emit *e = u->e;
        char al[32], be[32];
        Build b = build_start(e, NULL, "gemm", title);
        const Mat xm = dense_mat(u, &b, x, "x"), ym = dense_mat(u, &b, y, "y");
        const char *out = arg_work(e, &b.args, to.work, C_BF16, "out"), *add = NULL;
        const int64_t lds = x.cols | y.cols;
        num_text(alpha, al);
        num_text(beta, be);
        if (plus.work >= 0)
                add = arg_done(e, &b.args, plus.work, C_BF16, "plus");
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
                const char *plus =
                        add ? arena_fmt(e->tmp,
                                        "        float plus[TGC_SEG];\n"
                                        "        load_bf16(plus, a->%s + row * %lld + col, n);\n"
                                        "        for (int j = 0; j < n; j++)\n"
                                        "                v[j] = (float)%s * v[j] + (float)%s * "
                                        "plus[j];\n",
                                        add, (long long)N, al, be)
                            : "";
                build_cpu_functor(
                        &b, "epilogue",
                        arena_fmt(e->tmp, "%s        store_bf16(a->%s + row * %lld + col, v, n);\n",
                                  plus, out, (long long)N));
        }
        /* Hopper's form of a batch cannot do all of one that is odd */
        const bool batch = is_cuda(e) && (u->n > 1 || (u->w[0]->rows | u->w[0]->cols) % 64 == 0);
        dense_gemm(&b, DT_BF16,
                   &(DenseGemm) { .a = &xm,
                                  .w = &ym,
                                  .ta = ta,
                                  .tb = tb,
                                  .at = { .kind = SLOT_WORK, .id = x.work },
                                  .wt = { .kind = SLOT_WORK, .id = y.work },
                                  .M = M,
                                  .N = N,
                                  .K = K,
                                  .align = align_bytes(DT_BF16, lds),
                                  .epilogue_bytes = add ? 4 : 2,
                                  .batch = batch ? u->n : 0,
                                  .out = symmetric ? arena_fmt(e->tmp, "a.%s", out) : NULL });
}

/* The result is in x[1]. */
static void orthogonalize(const Muon *u)
{
        const int64_t R = u->w[0]->rows, N = u->w[0]->cols, r = R < N ? R : N;
        const Dense none = { .work = -1 }, gram = { u->gram, r, r }, poly = { u->poly, r, r };
        for (int i = 0; i < STEPS; i++) {
                const Dense x = { u->x[i % 2], R, N }, next = { u->x[(i + 1) % 2], R, N };
                const bool wide = R <= N;
                multiply(u, "muon_gram", gram, x, !wide, x, wide, r, r, wide ? N : R, 1, none, 0,
                         true);
                multiply(u, "muon_poly", poly, gram, false, gram, false, r, r, r, C, gram, B, true);
                if (wide)
                        multiply(u, "muon_step", next, poly, false, x, false, R, N, R, 1, x, A,
                                 false);
                else
                        multiply(u, "muon_step", next, x, false, poly, false, R, N, N, 1, x, A,
                                 false);
        }
}

static void apply(const Muon *u)
{
        Emit *e = u->e;
        const MuonMatrix *w = u->w[0];
        const UpdateRange own = { .rate = w->rate, .decay = w->decay };
        const bool rates = own.rate != 0 || own.decay != 0;
        const double most = (double)(w->rows > w->cols ? w->rows : w->cols);
        char factor[32];
        Build b = start(u, "muon_apply");
        const char *x = arg_done(e, &b.args, u->x[1], C_BF16, "x"),
                   *params = update_params(&b, u->sh, u->dt),
                   *nm = arg_work(e, &b.args, u->norm, C_F32, "norm"),
                   *rt = rates ? update_rates(e, &own) : "";
        num_text(0.2 * sqrt(most), factor);
        matrices(u, &b);
        if (is_cuda(e)) {
                const int v = vector_of(u);
                const long long each = (w->rows * w->cols + 256 * v - 1) / (256 * v);
                build_line(&b, "const %s;", params);
                if (rates)
                        build_line(&b, "%s", rt);
                build_line(&b,
                           "muon_apply_task<256, %d>(%s, w, params, a.%s, (float)%s, %s, a.%s, "
                           "tile, %lld);",
                           v, rates ? "&own" : "rt", x, factor, w->decays ? "true" : "false", nm,
                           each);
                build_end(&b, grid_blocks(u->n * each));
        } else {
                build_cpu_loop(&b, c_tiles(u), 1e9,
                               arena_fmt(e->tmp,
                                         "%smuon_apply_task(%s, w, %s, a.%s, (float)%s, %d, a.%s, "
                                         "tile);%s",
                                         rt, rates ? "&own" : "rt", params, x, factor, w->decays,
                                         nm, rates ? " }" : ""));
                build_end(&b, grid_blocks(1));
        }
}

static bool alike(const MuonMatrix *a, const MuonMatrix *b)
{
        return a->rows == b->rows && a->cols == b->cols && a->ld == b->ld && a->rate == b->rate &&
               a->decay == b->decay && a->decays == b->decays;
}

/* The next batch: the first matrix that is not done, and others like it; false: there is none. */
static bool next_batch(Muon *u, bool *done)
{
        u->n = 0;
        for (int i = 0; i < u->sh->n_matrices; i++) {
                const MuonMatrix *w = &u->sh->matrix[i];
                if (done[i] || (u->n && !alike(w, u->w[0])))
                        continue;
                if (u->n && (!is_cuda(u->e) || (u->n + 1) * w->rows * w->cols > MOST))
                        break;
                done[i] = true;
                u->w[u->n++] = w;
        }
        return u->n > 0;
}

void gen_muon(Emit *e, const Shared *sh, DType dt, int norm)
{
        const size_t all = (size_t)sh->n_matrices;
        int64_t most = 1, side = 1, rows = 1;
        Muon u = { .e = e, .sh = sh, .dt = dt, .norm = norm };
        u.w = arena_alloc(e->tmp, all * sizeof *u.w);
        for (bool *done = arena_alloc(e->tmp, all); next_batch(&u, done);) {
                const MuonMatrix *w = u.w[0];
                const int64_t less = w->rows < w->cols ? w->rows : w->cols,
                              own = u.n * w->rows * w->cols, square = u.n * less * less,
                              parts = is_cuda(e) ? (int64_t)u.n * tiles_of(&u) : w->rows;
                most = own > most ? own : most;
                side = square > side ? square : side;
                rows = parts > rows ? parts : rows;
        }
        u.partial = work_keep(e, DIM(rows), is_cuda(e) ? 4 : 8, "muon_parts");
        u.x[0] = work_keep(e, DIM(most), 2, "muon_x");
        u.x[1] = work_keep(e, DIM(most), 2, "muon_next");
        u.gram = work_keep(e, DIM(side), 2, "muon_gram");
        u.poly = work_keep(e, DIM(side), 2, "muon_poly");
        for (bool *done = arena_alloc(e->tmp, all); next_batch(&u, done);) {
                momentum(&u);
                scale(&u);
                orthogonalize(&u);
                apply(&u);
        }
}
