/* loss_exp.c: last linear + cross-entropy without a pass over the logits
 * (kernels/loss/cross_entropy_exp.cuh).
 *
 *      before all chunks:  shift = log2(e) * x w[target]
 *      for each chunk:     s = 2^(log2(e) x w^T - shift), sums of its rows
 *                          finish: loss; factor; s at the targets; xs = x * factor
 *                          dx = factor * s w;  dw += s^T xs
 *
 * Used on a GPU, in bf16 (which has float32's exponent), for vocabularies whose pass costs more
 * than a launch, and for linears without a bias (its gradient would need s itself).  Row sums come
 * from the GEMM's epilogue on Hopper, from `finish` elsewhere. */
#include "loss.h"
#include <stdlib.h>

/* All but LEAST_V as the kernels have them. */
enum { LEAST_V = 8192, SHIFT_ROWS = 8, FINISH_ROWS = 32, FINISH_SMEM = 9 * 32 * 4, THREADS = 256 };

typedef struct Exps {
        /* work: of all rows two numbers; of a chunk its sums by tiles, and x scaled */
        int shift, factor, sums, xs;
        int across; /* tiles that sum a row, 0: none do */
} Exps;

bool exp_fits(const Loss *l)
{
        return is_cuda(l->e) && l->dt == DT_BF16 && !l->bias && l->V >= LEAST_V;
}

/* An argument that has a number of each row: the chunk's. */
static const char *of_rows(Loss *l, Build *b, int work, const char *name, bool write)
{
        const char *s = (write ? arg_work : arg_done)(l->e, &b->args, work, C_F32, name);
        build_shift(b, s, l->r0 * 4);
        return s;
}

static const char *targets_of(Loss *l, Build *b)
{
        const char *s = plain_arg(l->e, b, l->targets);
        shift(b, l->targets, l->r0 * 4);
        return s;
}

/* Columns of x and w that may be read at once. */
static int wide(const Loss *l, int64_t align)
{
        return align_bytes(l->dt, l->C | align) / dt_size[l->dt];
}

void exp_start(Loss *l, int64_t chunk)
{
        Emit *e = l->e;
        Mat x, w;
        l->exps = arena_alloc(e->tmp, sizeof *l->exps);
        *l->exps = (Exps) { .shift = work_new(e, DIM(l->rows), 4),
                            .factor = work_new(e, DIM(l->rows), 4),
                            .sums = work_new(e, DIM((l->V + 127) / 128 * chunk), 4),
                            .xs = work_new(e, DIM(chunk * l->C), dt_size[l->dt]) };
        Build b = build_start(e, l->gr, "cross_entropy_exp", "linear_ce_shift");
        mat_need(e, &b, l->x, 0, &x);
        mat_need(e, &b, l->w, 0, &w);
        const char *targets = targets_of(l, &b);
        b.any.threads = THREADS;
        b.flops = 2.0 * (double)l->rows * (double)l->C;
        b.bytes = b.flops * dt_size[l->dt];
        build_line(&b, "ce_shift_task<%s, %lld, %d>(%s, %s, %s, %s, %lld, %lld, %s, a.%s, tile);",
                   c_type(l->dt), (long long)l->C, wide(l, x.align | w.align), x.arg, x.ld, w.arg,
                   w.ld, (long long)l->V, (long long)l->rows, targets,
                   arg_work(e, &b.args, l->exps->shift, C_F32, "shift"));
        build_end(&b, grid_blocks((l->rows + SHIFT_ROWS - 1) / SHIFT_ROWS));
}

/* An epilogue that asks for a number of its row, and may want sums (EpilogueSums); dt: of what it
 * stores, maxv neighbours at a time at most. */
static void row_epilogue(Build *b, DType dt, int maxv, const char *of_row, const char *put_sum,
                         const char *what)
{
        text_add(build_decl(b),
                 "struct \1_epilogue {\n"
                 "        static constexpr int MAXV = %d, MINV = 1;\n"
                 "        const \1_args &a;\n"
                 "        static constexpr int STORES = %d, WIDTH0 = 2, WIDTH1 = 0, READ = 0, SUMS "
                 "= %d;\n"
                 "        __device__ __forceinline__ float get_row(int row) const { return "
                 "a.%s[row]; }\n"
                 "        __device__ __forceinline__ void put_sum(int row, int at, float sum) "
                 "const { %s }\n"
                 "        template <int V, class Out = Straight> __device__ __forceinline__ void "
                 "operator()(int row, int col, float (&v)[V], const Out &out = Out()) const\n"
                 "        {\n"
                 "                const float own = out.of_row(*this, row);\n"
                 "#pragma unroll\n"
                 "                for (int j = 0; j < V; j++)\n"
                 "%s        }\n};\n\n",
                 maxv, dt_size[dt] == 2, put_sum[0] != 0, of_row, put_sum, what);
}

void exp_logits(Loss *l)
{
        Emit *e = l->e;
        Mat x, w;
        const Stored to = logits_rows(l);
        Build b = build_start(e, l->gr, "gemm", "linear_ce_exp");
        mat_need(e, &b, l->x, 0, &x);
        mat_need(e, &b, l->w, 0, &w);
        const char *s = scratch_arg(l, &b, true),
                   *own = of_rows(l, &b, l->exps->shift, "shift", false),
                   *sums = arg_work(e, &b.args, l->exps->sums, C_F32, "sums");
        const char *to_exp = l->ld == l->V
                                     ? "ce_exp(v[j], own)" /* a row's padding stays zero */
                                     : arena_fmt(e->tmp, "col + j < %lld ? ce_exp(v[j], own) : 0.f",
                                                 (long long)l->V);
        row_epilogue(
                &b, l->dt, 8, own,
                arena_fmt(e->tmp, "a.%s[(long)at * %lld + row] = sum;", sums, (long long)l->rc),
                arena_fmt(
                        e->tmp,
                        "                        v[j] = %s;\n                out.sum(v);\n"
                        "                out.template put<0>(a.%s + (long)row * %lld + col, v);\n",
                        to_exp, s, (long long)l->ld));
        l->exps->across = logits_gemm(l, &b, &x, &w, &to);
}

void exp_finish(Loss *l, bool grad)
{
        Emit *e = l->e;
        Mat x;
        Build b = build_start(e, l->gr, "cross_entropy_exp",
                              grad ? "linear_ce_finish" : "linear_ce_loss");
        mat_need(e, &b, l->x, 0, &x);
        const char *s = scratch_arg(l, &b, grad), *targets = targets_of(l, &b),
                   *sums = arg_done(e, &b.args, l->exps->sums, C_F32, "sums"), *parts = "0", *loss,
                   *more;
        if (l->loss) {
                loss = arg_of(e, &b.args, l->loss, true);
                build_shift(&b, loss, l->r0 * 4);
        } else {
                loss = of_rows(l, &b, l->lse, "loss", true);
        }
        if (grad) {
                dloss_text(l, &b);
                build_line(&b, "\1_dloss dloss = { a };");
                shift(&b, l->x, l->r0 * x.stride * dt_size[l->dt]);
                const char *factor = of_rows(l, &b, l->exps->factor, "factor", true),
                           *scaled = arg_work(e, &b.args, l->exps->xs, ctype_of(l->dt), "scaled");
                more = arena_fmt(e->tmp, "%s, %s, a.%s, a.%s, tile, smem, dloss", x.arg, x.ld,
                                 scaled, factor);
        } else {
                more = arena_fmt(e->tmp, "(const %s *)0, 0, (%s *)0, (float *)0, tile, smem, 0",
                                 c_type(l->dt), c_type(l->dt));
        }
        if (l->exps->across)
                parts = form_constant(&b, "PARTS", "0", ARCH_SM90A, l->exps->across);
        b.any.threads = THREADS;
        b.any.smem = FINISH_SMEM;
        b.flops = (double)l->rc * (double)(l->C + l->V / 128);
        b.bytes = (double)l->rc * (2.0 * (double)l->C * dt_size[l->dt] + 4.0 * l->exps->across);
        build_line(&b,
                   "ce_finish_task<%s, %lld, %lld, %d, %s, %s>((%s *)a.%s, %lld, %lld, a.%s, %s, "
                   "a.%s, %s);",
                   c_type(l->dt), (long long)l->V, (long long)l->C, wide(l, x.align), parts,
                   grad ? "true" : "false", c_type(l->dt), s, (long long)l->ld, (long long)l->rc,
                   sums, targets, loss, more);
        build_end(&b, grid_blocks((l->rc + FINISH_ROWS - 1) / FINISH_ROWS));
}

void exp_dx_epilogue(Loss *l, Build *b, DType out, const char *dx)
{
        row_epilogue(
                b, out, column_v(l->C, 8), of_rows(l, b, l->exps->factor, "factor", false), "",
                arena_fmt(
                        l->e->tmp,
                        "                        v[j] *= own;\n"
                        "                out.template put<0>(a.%s + (long)row * %lld + col, v);\n",
                        dx, (long long)l->C));
}

Slot exp_x(Loss *l, Build *b, Mat *x)
{
        const char *s = arg_done(l->e, &b->args, l->exps->xs, ctype_of(l->dt), "scaled");
        *x = (Mat) { .arg = arena_fmt(l->e->tmp, "a.%s", s),
                     .ld = arena_fmt(l->e->tmp, "%lld", (long long)l->C),
                     .align = l->C,
                     .stride = l->C,
                     .dt = l->dt };
        return (Slot) { .kind = SLOT_WORK, .id = l->exps->xs };
}
