/* attention_backward.c: emits attention's gradients.
 *
 * Three launches: delta = sum(o * do), then dq by tiles of queries, then dk and dv by tiles of
 * keys.  On Hopper the dq kernel also makes delta.  With few blocks it makes dk and dv too, and the
 * other launches are skipped.  Short float32 sequences have one launch. */
#include "attention.h"

static void short_backward(Att *t)
{
        static const char *const name[] = { "epilogue", "epilogue_k", "epilogue_v" };
        Emit *e = t->e;
        Build b = build_start(e, t->gr, "attention_short", "attention_grad");
        att_describe(t, &b, NULL);
        Operand d = att_operand(e, &b, t->n->in[5]);
        const char *lse = plain_arg(e, &b, t->n->in[4]);
        b.any.threads = 256;
        b.any.smem = att_short_bytes(t->D, true);
        b.flops = att_flops(t, 5), b.bytes = att_bytes(t, 3, 4);
        for (int i = 0; i < 3; i++) {
                build_functor(&b, &t->gr->epilogue[i], name[i]);
                build_line(&b, "\1_%s %s = { a };", name[i], name[i]);
        }
        build_line(&b, "const Strides sg = { %s, %s, %s };", d.b, d.t, d.h);
        build_line(&b,
                   "attention_short_grad_task<\1_att>(in, %s, sg, %s, B, T, rt, tile, smem, "
                   "epilogue, epilogue_k, epilogue_v);",
                   d.arg, lse);
        build_end(&b, att_short_grid(t));
}

/* Rows of the delta kernel per block of 128: the mirror of att_delta_rows. */
static int delta_rows(Att *t)
{
        int most = 16 / dt_size[t->dt] < t->vec ? 16 / dt_size[t->dt] : t->vec, D = (int)t->D;
        int v = D % 8 == 0                ? most
                : D % 4 == 0 && most >= 4 ? 4
                : D % 2 == 0 && most >= 2 ? 2
                                          : 1,
            n = D / v;
        return 128 / (n > 16 ? 32 : n > 8 ? 16 : n > 4 ? 8 : n > 2 ? 4 : n > 1 ? 2 : 1);
}

/* Both loops of C. */
static void backward_cpu(Emit *e, const Group *gr, Att *t)
{
        for (int kv = 0; kv < 2; kv++) {
                Build b = build_start(e, gr, "attention",
                                      kv ? "attention_grad_kv" : "attention_grad_q");
                att_describe(t, &b,
                             arena_fmt(e->tmp, "(float *)%s", plain_arg(e, &b, t->n->in[4])));
                Operand o = att_operand(e, &b, t->n->in[3]), d = att_operand(e, &b, t->n->in[5]);
                b.flops = att_flops(t, kv ? 4 : 3), b.bytes = att_bytes(t, 3, 3);
                const char *heads = arena_fmt(
                        e->tmp,
                        "const Heads out = { %s, %s, %s, %s, %s }, dout = { %s, %s, %s, %s, %s }; ",
                        o.arg, ty(o.dt), o.b, o.t, o.h, d.arg, ty(d.dt), d.b, d.t, d.h);
                if (kv) {
                        build_functor(&b, &gr->epilogue[1], "epilogue_k");
                        build_functor(&b, &gr->epilogue[2], "epilogue_v");
                        att_cpu_loop(&b, "attention_grad_kv_tiles", heads,
                                     "attention_grad_kv_task(&att, out, dout, rt, tile, &a, "
                                     "\1_epilogue_k, \1_epilogue_v);");
                } else {
                        build_functor(&b, &gr->epilogue[0], "epilogue");
                        att_cpu_loop(&b, "attention_grad_q_tiles", heads,
                                     "attention_grad_q_task(&att, out, dout, rt, tile, &a, "
                                     "\1_epilogue);");
                }
                build_end(&b, grid_blocks(1));
        }
}

/* Of CUDA's gradients.  deltas: a float for each query, sums of out * dout.  sm90: Hopper has
 * kernels of its own, of `kind`: in all but GRAD_Q that of dq makes dk and dv as well, and there is
 * nothing for the other two to do. */
typedef struct Back {
        Att t;
        Dim queries;
        int deltas;
        bool sm90;
        GradKind kind;
} Back;

static const char *strides_of(Emit *e, const Operand *o)
{
        return arena_fmt(e->tmp, "{ %s, %s, %s }", o->b, o->t, o->h);
}

static void grad_delta(Emit *e, const Group *gr, Back *k)
{
        Build b = build_start(e, gr, "attention_backward", "attention_delta");
        att_describe(&k->t, &b, NULL);
        text_free(build_body(&b));
        b.args.n = 0;
        Operand o = att_operand(e, &b, k->t.n->in[3]), d = att_operand(e, &b, k->t.n->in[5]);
        const char *w = arg_work(e, &b.args, k->deltas, C_F32, "delta");
        b.bytes = att_bytes(&k->t, 2, 0);
        if (k->sm90)
                form_leave_out(&b, ARCH_SM90A);
        build_line(&b, "const Strides so = %s, sg = %s;", strides_of(e, &o), strides_of(e, &d));
        build_line(&b, "attention_delta_task<%s, \1_att, 128>(%s, so, %s, sg, a.%s, B, T, tile);",
                   c_type(k->t.dt), o.arg, d.arg, w);
        build_end(&b, grid_ceil(e, k->queries, delta_rows(&k->t)));
}

static void epilogues_kv(Build *b, const Group *gr)
{
        build_functor(b, &gr->epilogue[1], "epilogue_k");
        build_functor(b, &gr->epilogue[2], "epilogue_v");
        build_line(b, "\1_epilogue_k epilogue_k = { a };");
        build_line(b, "\1_epilogue_v epilogue_v = { a };");
}

/* A kernel of row `*r` with the operands that both have.  *grads: dout, the rows' log of sums and
 * deltas, as the portable tasks take them; *sums: the last two. */
static Build grad_start(Emit *e, const Group *gr, Back *k, bool kv, int *r, Operand *d,
                        const char **grads, const char **sums)
{
        Att *t = &k->t;
        *r = att_row_for(kv ? "DKV" : "DQ", t->cls, (int)t->D);
        if (*r < 0)
                error_at(t->n->loc,
                         "attention: heads of width %lld are not supported (at most 256)",
                         (long long)t->D);
        Build b = build_start(e, gr, "attention_backward",
                              kv ? "attention_grad_kv" : "attention_grad_q");
        att_describe(t, &b, NULL);
        *d = att_operand(e, &b, t->n->in[5]);
        const char *lse = plain_arg(e, &b, t->n->in[4]);
        const char *w = k->sm90 && !kv ? arg_work(e, &b.args, k->deltas, C_F32, "delta")
                                       : arg_done(e, &b.args, k->deltas, C_F32, "delta");
        b.any.threads = att_row[*r].threads;
        b.any.min_blocks = att_row[*r].minb;
        b.any.smem = att_smem(*r, (int)t->D);
        b.flops = att_flops(t, kv ? 4 : 3), b.bytes = kv ? att_bytes(t, 2, 4) : att_bytes(t, 3, 2);
        *sums = !kv && k->kind == GRAD_SHORT ? lse : arena_fmt(e->tmp, "%s, a.%s", lse, w);
        *grads = arena_fmt(e->tmp, "%s, %s, %s, a.%s", d->arg, strides_of(e, d), lse, w);
        return b;
}

static void grad_kv(Emit *e, const Group *gr, Back *k)
{
        const Type *q = &NODE(e->g, k->t.n->in[0])->type;
        const char *grads, *sums;
        Operand d;
        int r;
        Build b = grad_start(e, gr, k, true, &r, &d, &grads, &sums);
        epilogues_kv(&b, gr);
        if (k->kind != GRAD_Q)
                form_leave_out(&b, ARCH_SM90A);
        else if (k->sm90)
                forms_add(&b, FAMILY_attention_backward,
                          &(BackwardWork) { gr->anchor, GRAD_KV, sums });
        build_line(&b,
                   "attention_dkv_task<%s, \1_att, %s>(in, %s, B, T, rt, tile, smem, epilogue_k, "
                   "epilogue_v);",
                   c_type(k->t.dt), att_tile_text(e, r), grads);
        build_end(&b, grid_times(grid_dim(e, q->dim[0]),
                                 grid_times(grid_blocks(k->t.K),
                                            grid_ceil(e, q->dim[1], att_row[r].bm))));
}

static void grad_q(Emit *e, const Group *gr, Back *k)
{
        const Type *q = &NODE(e->g, k->t.n->in[0])->type;
        const char *grads, *sums;
        Operand d;
        int r;
        Build b = grad_start(e, gr, k, false, &r, &d, &grads, &sums);
        build_functor(&b, &gr->epilogue[0], "epilogue");
        build_line(&b, "\1_epilogue epilogue = { a };");
        if (k->sm90) {
                Operand o = att_operand(e, &b, k->t.n->in[3]);
                if (k->kind != GRAD_Q)
                        epilogues_kv(&b, gr);
                if (k->kind == GRAD_BOTH || k->kind == GRAD_SHORT)
                        sums = arena_fmt(e->tmp, "{ %s, %s, %s, %s }, %s", o.arg, strides_of(e, &o),
                                         d.arg, strides_of(e, &d), sums);
                else
                        sums = arena_fmt(e->tmp, "%s, %s, %s", o.arg, strides_of(e, &o), sums);
                forms_add(&b, FAMILY_attention_backward,
                          &(BackwardWork) { gr->anchor, k->kind, sums });
        }
        build_line(&b, "attention_dq_task<%s, \1_att, %s>(in, %s, B, T, rt, tile, smem, epilogue);",
                   c_type(k->t.dt), att_tile_text(e, r), grads);
        build_end(&b, grid_times(grid_dim(e, q->dim[0]),
                                 grid_times(grid_blocks(k->t.H),
                                            grid_ceil(e, q->dim[1], att_row[r].bm))));
}

void att_backward(Emit *e, const Group *gr)
{
        Back k = { .t = att_of(e, gr), .kind = GRAD_Q };
        const Type *q = &NODE(e->g, k.t.n->in[0])->type;
        if (!is_cuda(e)) {
                backward_cpu(e, gr, &k.t);
                return;
        }
        if (att_is_short(&k.t)) {
                short_backward(&k.t);
                return;
        }
        k.queries = dim_mul(dim_mul(q->dim[0], q->dim[1]), DIM(k.t.H));
        k.deltas = work_new(e, k.queries, 4);
        k.sm90 = k.t.mma && sm90_attention_backward_fits(e, gr->anchor);
        if (k.sm90)
                k.kind = sm90_attention_backward_kind(e, gr->anchor);
        grad_delta(e, gr, &k);
        grad_q(e, gr, &k);
        grad_kv(e, gr, &k);
}
