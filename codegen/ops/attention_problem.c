/* attention_problem.c: describes an attention problem, forward or backward: its operands as text,
 * its tiles, its cost. */
#include "attention.h"
#include <string.h>

const AttRow att_row[] = {
#define ATT_TILE(name, kind, cls, maxd, bm, bn, sub, cols, threads, minb, smem) \
        { #name, #kind, #cls, maxd, bm, bn, sub, cols, threads, minb },
#include "../forms/attention_tiles.def"
#undef ATT_TILE
};

int att_smem(int i, int D)
{
        int k = 0;
        (void)D;
#define ATT_TILE(name, kind, cls, maxd, bm, bn, sub, cols, threads, minb, smem) \
        if (k++ == i)                                                           \
                return smem;
#include "../forms/attention_tiles.def"
#undef ATT_TILE
        return 0;
}

int att_row_for(const char *kind, const char *cls, int D)
{
        for (size_t i = 0; i < sizeof att_row / sizeof *att_row; i++)
                if (!strcmp(att_row[i].kind, kind) && !strcmp(att_row[i].cls, cls) &&
                    D <= att_row[i].maxd)
                        return (int)i;
        return -1;
}

Operand att_operand(Emit *e, Build *bd, Ref r)
{
        Access a;
        Operand o;
        access_need(e->g, e->place, r, &a);
        const char *name = arg_of(e, &bd->args, a.base, false);
        o.arg = a.off ? arena_fmt(e->tmp, "a.%s + %lld", name, (long long)a.off)
                      : arena_fmt(e->tmp, "a.%s", name);
        o.b = dim_c(e, a.stride[0]);
        o.t = dim_c(e, a.stride[1]);
        o.h = dim_c(e, a.stride[2]);
        o.dt = NODE(e->g, a.base)->type.dt;
        if (o.dt == DT_FP8) { /* rows have exponents behind their codes; strides are bytes */
                const int64_t row = fp8_row_bytes(a.t.dim[2].n, a.t.dim[3].n);
                o.t = dim_c(e, DIM(row));
                o.b = dim_c(e, dim_mul(a.t.dim[1], DIM(row)));
                a.stride[0] = a.stride[1] = DIM(row);
        }
        int64_t m = a.off | 8;
        for (int i = 0; i < 3; i++)
                if (!dim_eq(a.t.dim[i], DIM(1)))
                        m |= a.stride[i].n;
        o.align = m & -m;
        return o;
}

static const char *real(Emit *e, double x)
{
        char s[32];
        num_text(x, s);
        return arena_fmt(e->tmp, strpbrk(s, ".en") ? "%sf" : "%s.f", s);
}

Att att_of(Emit *e, const Group *gr)
{
        const Node *n = NODE(e->g, gr->anchor);
        const Type *q = &NODE(e->g, n->in[0])->type, *k = &NODE(e->g, n->in[1])->type;
        Att t = { .e = e, .gr = gr, .n = n, .H = q->dim[2].n, .K = k->dim[2].n, .D = q->dim[3].n };
        if (NODE(e->g, n->in[2])->type.dim[3].n != t.D)
                error_at(n->loc,
                         "internal error: %%%s has values of %lld beside keys of %lld after "
                         "pad_heads",
                         n->name, (long long)NODE(e->g, n->in[2])->type.dim[3].n, (long long)t.D);
        t.cached = op_appends(NODE(e->g, n->in[1])->op);
        t.paged = t.cached && e->paged;
        t.ragged = t.cached && e->ragged;
        t.mixed = t.ragged && e->mixed && is_cuda(e);
        t.pool = t.paged ? pool_of(e, n->a.att.window) : 0;
        t.grad = n->op == OP_ATTENTION_GRAD;
        Build scratch = build_start(e, gr, "attention", "");
        t.vec = 8;
        for (int i = 0; i < 3; i++) {
                Operand o = att_operand(e, &scratch, n->in[i]);
                if (o.align < t.vec)
                        t.vec = (int)o.align;
                t.dt = o.dt == DT_FP8 ? t.dt : o.dt;
                t.fp8 = o.dt == DT_FP8;
        }
        if (t.grad) {
                int64_t a = att_operand(e, &scratch, n->in[5]).align,
                        b = att_operand(e, &scratch, n->in[3]).align;
                a = a < b ? a : b;
                if (a < t.vec)
                        t.vec = (int)a;
        }
        if (t.dt == DT_F32 && t.vec > 4)
                t.vec = 4;
        t.mma = dt_size[t.dt] == 2 && t.vec == 8 && t.D % 8 == 0;
        t.cls = t.mma                                                        ? "MMA"
                : t.dt == DT_F32 && t.vec == 4 && t.D % 4 == 0 && t.D <= 128 ? "TF32"
                                                                             : "SIMT";
        return t;
}

/* The description of the problem, and the operands.  C gets a function that returns
 * it, called inside the loop: a struct from outside a parallel region would reach
 * the task as run-time values, and every case of it would be compiled.  lse: its
 * C text, for C alone. */
void att_describe(Att *t, Build *b, const char *lse)
{
        Emit *e = t->e;
        const Attr *a = &t->n->a;
        bool cuda = is_cuda(e);
        Operand q = att_operand(e, b, t->n->in[0]), k = att_operand(e, b, t->n->in[1]),
                v = att_operand(e, b, t->n->in[2]);
        if (t->mixed && !t->ragged) /* a token is a sequence */
                q.b = q.t;
        Ref extra = att_extra(t->n) ? t->n->in[att_extra(t->n)] : 0;
        const char *documents = a->att.documents ? plain_arg(e, b, t->n->in[att_documents(t->n)])
                                                 : NULL;
        const char *mask = cuda ? "0" : "NULL", *mb = "0", *mt = "0", *slopes = cuda ? "0" : "NULL";
        Access ma;
        if (a->att.mask && extra) {
                access_need(e->g, e->place, extra, &ma);
                mask = plain_arg(e, b, extra);
                const int r = ma.t.rank; /* an axis of 1 is every sequence's, every token's */
                mb = r == 3 && !dim_eq(ma.t.dim[0], DIM(1)) ? dim_c(e, ma.stride[0]) : "0";
                mt = r > 1 && !dim_eq(ma.t.dim[r - 2], DIM(1)) ? dim_c(e, ma.stride[r - 2]) : "0";
        }
        if (a->att.alibi && extra)
                slopes = plain_arg(e, b, extra);
        const char *id = "0";
        if (a->att.p)
                id = arena_fmt(e->tmp, "(unsigned)*a.%s",
                               arg_int(e, &b->args, (int)a->att.id, "drop_id"));
        if (cuda) {
                text_add(build_decl(b),
                         "struct \1_att : AttBase {\n"
                         "        static constexpr int D = %lld, H = %lld, K = %lld, VEC = %d, "
                         "WINDOW = %lld;\n"
                         "        static constexpr float SCALE = %s;\n"
                         "        static constexpr bool CAUSAL = %s, CACHED = %s;\n",
                         (long long)t->D, (long long)t->H, (long long)t->K, t->vec,
                         (long long)a->att.window, real(e, a->att.scale),
                         a->att.causal ? "true" : "false", t->cached ? "true" : "false");
                if (a->att.softcap)
                        text_add(build_decl(b), "        static constexpr float SOFTCAP = %s;\n",
                                 real(e, a->att.softcap));
                if (t->paged)
                        text_add(build_decl(b), "        static constexpr int PAGE = %d;\n",
                                 CACHE_PAGE);
                if (t->pool)
                        text_add(build_decl(b), "        static constexpr int POOL = %d;\n",
                                 t->pool);
                if (t->fp8)
                        text_add(build_decl(b), "        static constexpr bool FP8 = true;\n");
                if (t->ragged)
                        text_add(build_decl(b), "        static constexpr bool RAGGED = true;\n");
                if (t->mixed)
                        text_add(build_decl(b), "        static constexpr bool MIXED = true;\n");
                if (!t->grad && !(e->g->sizes.v[SYM_B] && e->g->sizes.v[SYM_T]))
                        text_add(build_decl(b), "        static constexpr bool COUNTED = true;\n");
                if (a->att.mask)
                        text_add(build_decl(b), "        static constexpr bool MASK = true;\n");
                if (a->att.alibi)
                        text_add(build_decl(b), "        static constexpr bool ALIBI = true;\n");
                if (documents)
                        text_add(build_decl(b),
                                 "        static constexpr bool DOCUMENTS = true;\n");
                if (a->att.p)
                        text_add(build_decl(b), "        static constexpr float DROPOUT = %s;\n",
                                 real(e, a->att.p));
                text_add(build_decl(b), "};\n\n");
                build_line(b,
                           "AttIn<%s, \1_att> in = { %s, %s, %s, { %s, %s, %s }, { %s, %s, %s }, { "
                           "%s, %s, %s }, %s, %s, %s, 1, %s, %s%s%s };",
                           c_type(t->dt), q.arg, k.arg, v.arg, q.b, q.t, q.h, k.b, k.t, k.h, v.b,
                           v.t, v.h, mask, mb, mt, slopes, id, documents ? ", " : "",
                           documents ? documents : "");
        } else {
                const char *y = ty(t->dt), *stored = t->fp8 ? "TY_FP8" : y;
                text_add(build_decl(b),
                         "TGC_INLINE Attention \1_att(\1_args a, long B, long T)\n{\n"
                         "        (void)B, (void)T;\n");
                text_add(build_decl(b),
                         "        return (Attention){ .H = %lld, .K = %lld, .D = %lld, .q = { %s, "
                         "%s, %s, %s, %s }, .k = { %s, %s, %s, %s, %s },\n",
                         (long long)t->H, (long long)t->K, (long long)t->D, q.arg, y, q.b, q.t, q.h,
                         k.arg, stored, k.b, k.t, k.h);
                text_add(build_decl(b),
                         "                .v = { %s, %s, %s, %s, %s }, .scale = %s, .softcap = %s, "
                         ".causal = %lld, .cached = %d, .page = %d, .pool = %d, .ragged = %d, "
                         ".window = %lld,\n",
                         v.arg, stored, v.b, v.t, v.h, real(e, a->att.scale),
                         real(e, a->att.softcap), (long long)a->att.causal, t->cached,
                         t->paged ? CACHE_PAGE : 0, t->pool, t->ragged, (long long)a->att.window);
                text_add(build_decl(b),
                         "                .slopes = %s, .mask = %s, .mask_b = %s, .mask_t = %s, "
                         ".drop = %s, .drop_id = %s, .lse = %s%s%s };\n"
                         "}\n\n",
                         slopes, mask, mb, mt, real(e, a->att.p), id, lse,
                         documents ? ", .documents = " : "", documents ? documents : "");
        }
}

void att_operands(Build *b, const Group *attention)
{
        Att t = att_of(b->e, attention);
        att_describe(&t, b, NULL);
}

double att_flops(Att *t, double products)
{
        Emit *e = t->e;
        const Type *q = &NODE(e->g, t->n->in[0])->type;
        double T = (double)dim_most(e, q->dim[1]), S = t->cached ? (double)e->g->sizes.v[SYM_S] : T;
        return products * 2.0 * (double)dim_most(e, q->dim[0]) * (double)t->H * T * S *
               (double)t->D * (t->n->a.att.causal && !t->cached ? 0.5 : 1.0);
}

double att_bytes(Att *t, int64_t q_like, int64_t kv_like)
{
        Emit *e = t->e;
        const Type *q = &NODE(e->g, t->n->in[0])->type;
        double B = (double)dim_most(e, q->dim[0]), T = (double)dim_most(e, q->dim[1]),
               S = t->cached ? (double)e->g->sizes.v[SYM_S] : T;
        return B * (double)t->D *
               (dt_size[t->dt] * (double)q_like * (double)t->H * T +
                (t->fp8 ? 1 : dt_size[t->dt]) * (double)kv_like * (double)t->K * S);
}

const char *att_tile_text(Emit *e, int r)
{
        const AttRow *a = &att_row[r];
        return arena_fmt(e->tmp, "AttTile<%d, %d, %d, %d, %d>", a->bm, a->bn, a->sub, a->cols,
                         a->threads);
}

/* The descriptions are made inside the loop, see att_describe. */
void att_cpu_loop(Build *b, const char *tiles, const char *heads, const char *task)
{
        Arena *a = b->e->tmp;
        build_line(b, "const Attention whole = \1_att(a, B, T);");
        build_cpu_loop(b, arena_fmt(a, "%s(&whole, rt)", tiles), b->flops,
                       arena_fmt(a, "{ const Attention att = \1_att(a, B, T); %s%s }", heads,
                                 task));
}

/* Of attention_short.cuh: SHORT_MOST tokens, bytes of its AttShort. */
enum { SHORT_MOST = 64 };

bool att_is_short(Att *t)
{
        const Type *q = &NODE(t->e->g, t->n->in[0])->type;
        return is_cuda(t->e) && t->dt == DT_F32 && !t->cached && t->vec == 4 &&
               (t->D == 32 || t->D == 64) && dim_most(t->e, q->dim[1]) <= SHORT_MOST &&
               (!t->grad || t->H == t->K);
}

int att_short_bytes(int64_t D, bool grad)
{
        int x = SHORT_MOST * ((int)D + 8), p = SHORT_MOST * (SHORT_MOST + 8);
        return (grad ? 3 * x + 2 * p + 2 * SHORT_MOST : 3 * x + p + 4 * SHORT_MOST) * 4;
}

Grid att_short_grid(Att *t)
{
        Dim B = NODE(t->e->g, t->n->in[0])->type.dim[0];
        return grid_times(grid_dim(t->e, B), grid_blocks(t->H));
}
