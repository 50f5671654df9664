/* attention.c: attention forward, backward, and over the cache.
 *
 * q, k and v have one head width here: passes/pad_heads.c sees to that.
 *
 * Forward is one launch.  Decode (few queries, a long cache) splits the cache, and a second launch
 * merges the parts.  Backward is three launches: delta = sum(o * do), then dq by tiles of queries,
 * then dk and dv by tiles of keys.  On Hopper the dq kernel also makes delta.  With few blocks it
 * makes dk and dv too, and the other launches are skipped.  Short float32 sequences have kernels of
 * their own, where backward is one launch. */
#include "ops.h"
#include <string.h>

typedef struct AttRow {
        const char *name, *kind, *cls;
        int maxd, bm, bn, sub, cols, threads, minb;
} AttRow;

static const AttRow rows[] = {
#define ATT_TILE(name, kind, cls, maxd, bm, bn, sub, cols, threads, minb, smem) \
        { #name, #kind, #cls, maxd, bm, bn, sub, cols, threads, minb },
#include "../forms/attention_tiles.def"
#undef ATT_TILE
};

static int smem_of(int i, int D)
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

static int row_for(const char *kind, const char *cls, int D)
{
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
                if (!strcmp(rows[i].kind, kind) && !strcmp(rows[i].cls, cls) && D <= rows[i].maxd)
                        return (int)i;
        return -1;
}

typedef struct Operand {
        const char *arg, *b, *t, *h;
        int64_t align;
        DType dt;
} Operand;

static Operand operand(Emit *e, Build *bd, Ref r)
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

typedef struct Att {
        Emit *e;
        const Group *gr;
        const Node *n;
        int64_t H, K, D;
        bool cached, grad, mma;
        bool paged, ragged; /* as Emit says, of cached keys and values */
        int pool;           /* of their pages */
        bool fp8;           /* they are of 8 bits; dt: what attention computes with */
        int vec;
        DType dt;
        const char *cls; /* of attention_tiles.def, as AttPath says */
} Att;

static Att att_of(Emit *e, const Group *gr)
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
        t.pool = t.paged ? pool_of(e, n->a.att.window) : 0;
        t.grad = n->op == OP_ATTENTION_GRAD;
        Build scratch = build_start(e, gr, "attention", "");
        t.vec = 8;
        for (int i = 0; i < 3; i++) {
                Operand o = operand(e, &scratch, n->in[i]);
                if (o.align < t.vec)
                        t.vec = (int)o.align;
                t.dt = o.dt == DT_FP8 ? t.dt : o.dt;
                t.fp8 = o.dt == DT_FP8;
        }
        if (t.grad) {
                int64_t a = operand(e, &scratch, n->in[5]).align,
                        b = operand(e, &scratch, n->in[3]).align;
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
static void describe(Att *t, Build *b, const char *lse)
{
        Emit *e = t->e;
        const Attr *a = &t->n->a;
        bool cuda = is_cuda(e);
        Operand q = operand(e, b, t->n->in[0]), k = operand(e, b, t->n->in[1]),
                v = operand(e, b, t->n->in[2]);
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

/* Parts of a cache of S keys: so many that they give `most` blocks. */
static int splits_for(int64_t S, int64_t blocks, int64_t most)
{
        int splits = 1;
        while (splits < 32 && blocks * splits < most && S / (splits * 2) >= 64)
                splits *= 2;
        return splits;
}

/* Of a paged cache how keys are parted must not depend on B: the same bits alone and in company.
 * Under --fast it may. */
static int paged_splits(Emit *e, int64_t S, int64_t blocks, int64_t most)
{
        enum { LEAST = 4, MOST = 16, KEYS = 512 };
        int splits = 1;
        while (splits < MOST && S / (splits * 2) >= 64 && (splits < LEAST || S / splits > KEYS))
                splits *= 2;
        if (!e->m->fast)
                return splits;
        const int fast = splits_for(S, blocks, most);
        e->m->fast_differs |= fast != splits;
        return fast;
}

void att_operands(Build *b, const Group *attention)
{
        Att t = att_of(b->e, attention);
        describe(&t, b, NULL);
}

static double att_flops(Att *t, double products)
{
        Emit *e = t->e;
        const Type *q = &NODE(e->g, t->n->in[0])->type;
        double T = (double)dim_most(e, q->dim[1]), S = t->cached ? (double)e->g->sizes.v[SYM_S] : T;
        return products * 2.0 * (double)dim_most(e, q->dim[0]) * (double)t->H * T * S *
               (double)t->D * (t->n->a.att.causal && !t->cached ? 0.5 : 1.0);
}

static double att_bytes(Att *t, int64_t q_like, int64_t kv_like)
{
        Emit *e = t->e;
        const Type *q = &NODE(e->g, t->n->in[0])->type;
        double B = (double)dim_most(e, q->dim[0]), T = (double)dim_most(e, q->dim[1]),
               S = t->cached ? (double)e->g->sizes.v[SYM_S] : T;
        return B * (double)t->D *
               (dt_size[t->dt] * (double)q_like * (double)t->H * T +
                (t->fp8 ? 1 : dt_size[t->dt]) * (double)kv_like * (double)t->K * S);
}

static const char *tile_text(Emit *e, int r)
{
        const AttRow *a = &rows[r];
        return arena_fmt(e->tmp, "AttTile<%d, %d, %d, %d, %d>", a->bm, a->bn, a->sub, a->cols,
                         a->threads);
}

/* The descriptions are made inside the loop, see describe. */
static void cpu_loop(Build *b, const char *tiles, const char *heads, const char *task)
{
        Arena *a = b->e->tmp;
        build_line(b, "const Attention whole = \1_att(a, B, T);");
        build_cpu_loop(b, arena_fmt(a, "%s(&whole, rt)", tiles), b->flops,
                       arena_fmt(a, "{ const Attention att = \1_att(a, B, T); %s%s }", heads,
                                 task));
}

/* Of attention_short.cuh: SHORT_MOST tokens, bytes of its AttShort. */
enum { SHORT_MOST = 64 };

static bool is_short(Att *t)
{
        const Type *q = &NODE(t->e->g, t->n->in[0])->type;
        return is_cuda(t->e) && t->dt == DT_F32 && !t->cached && t->vec == 4 &&
               (t->D == 32 || t->D == 64) && dim_most(t->e, q->dim[1]) <= SHORT_MOST &&
               (!t->grad || t->H == t->K);
}

static int short_bytes(int64_t D, bool grad)
{
        int x = SHORT_MOST * ((int)D + 8), p = SHORT_MOST * (SHORT_MOST + 8);
        return (grad ? 3 * x + 2 * p + 2 * SHORT_MOST : 3 * x + p + 4 * SHORT_MOST) * 4;
}

static const char *short_grid(Att *t)
{
        Dim B = NODE(t->e->g, t->n->in[0])->type.dim[0];
        return arena_fmt(t->e->tmp, "%s*%lld", dim_grid(t->e, B), (long long)t->H);
}

static void short_forward(Att *t, Ref lse)
{
        Emit *e = t->e;
        Build b = build_start(e, t->gr, "attention_short", "attention");
        describe(t, &b, NULL);
        build_functor(&b, &t->gr->epilogue[0], "epilogue");
        b.any.threads = 256;
        b.any.smem = short_bytes(t->D, false);
        b.flops = att_flops(t, 2), b.bytes = att_bytes(t, 2, 2);
        const char *l = lse ? arena_fmt(e->tmp, "a.%s", arg_of(e, &b.args, lse, true))
                            : "(float *)0";
        build_line(&b, "\1_epilogue epilogue = { a };");
        build_line(&b, "attention_short_task<\1_att>(in, %s, B, T, rt, tile, smem, epilogue);", l);
        build_end(&b, short_grid(t));
}

static void short_backward(Att *t)
{
        static const char *const name[] = { "epilogue", "epilogue_k", "epilogue_v" };
        Emit *e = t->e;
        Build b = build_start(e, t->gr, "attention_short", "attention_grad");
        describe(t, &b, NULL);
        Operand d = operand(e, &b, t->n->in[5]);
        const char *lse = plain_arg(e, &b, t->n->in[4]);
        b.any.threads = 256;
        b.any.smem = short_bytes(t->D, true);
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
        build_end(&b, short_grid(t));
}

static void forward(Emit *e, const Group *gr)
{
        Att t = att_of(e, gr);
        const Type *q = &NODE(e->g, t.n->in[0])->type;
        Ref lse = item_of(e, gr->anchor, 1);
        const char *type = c_type(t.dt), *Bg = dim_grid(e, q->dim[0]), *Tg = dim_grid(e, q->dim[1]);
        bool few = t.cached && e->g->sizes.v[SYM_T] && dim_most(e, q->dim[1]) <= 8 && !lse;
        if (is_short(&t)) {
                short_forward(&t, lse);
                return;
        }
        Build b = build_start(e, gr, few && is_cuda(e) ? "attention_decode" : "attention",
                              few ? "attention_decode" : "attention");
        describe(&t, &b,
                 is_cuda(e) || !lse ? "NULL"
                                    : arena_fmt(e->tmp, "a.%s", arg_of(e, &b.args, lse, true)));
        if (!is_cuda(e)) {
                build_functor(&b, &gr->epilogue[0], "epilogue");
                b.flops = att_flops(&t, 2), b.bytes = att_bytes(&t, 2, 2);
                cpu_loop(&b, "attention_tiles", "",
                         "attention_task(&att, rt, tile, &a, \1_epilogue);");
                build_end(&b, "1");
                return;
        }
        if (few) {
                int64_t T = dim_most(e, q->dim[1]), B = dim_most(e, q->dim[0]),
                        per = T * (t.H / t.K), S = e->g->sizes.v[SYM_S];
                int r = 1;
                while (r < per && r < 8)
                        r *= 2;
                bool mma = r > 1 && dt_size[t.dt] == 2 && (t.D == 64 || t.D == 128) && t.vec >= 8;
                /* Blocks of mma are large: of heads of 128 one fills a multiprocessor, and a second
                 * wave pays for long caches alone (docs/notebook/decode.md). */
                enum { ONCE_S = 8192 };
                bool once = mma && t.D == 128 && S <= ONCE_S;
                int64_t groups = t.K * ((per + r - 1) / r), most = once  ? ANY_SMS * 3 / 4
                                                                   : mma ? ANY_SMS
                                                                         : 2 * ANY_SMS;
                enum { MANY_BLOCKS = 96 };
                const int splits = t.paged ? paged_splits(e, S, B * groups, most)
                                           : splits_for(S, B * groups, most);
                int record = (int)(t.D + 1) / 2 * 2 + 2;
                b.any.waits = true;
                /* more threads reach further into the cache in one step, and parts to merge come
                 * later; several rows keep a warp without tensor cores busy with arithmetic, and
                 * more blocks serve better (docs/notebook/decode.md). */
                b.any.threads = r == 1 || mma ? 256 : 128;
                b.any.smem = b.any.threads / 32 * r * record * 4;
                b.flops = att_flops(&t, 2), b.bytes = att_bytes(&t, 2, 2);
                text_add(build_decl(&b),
                         "typedef AttDecode<%d, %d, %d> \1_tile;\n"
                         "static_assert(att_decode_mma<%s, \1_att, \1_tile>() == %s, \"as "
                         "attention.c has it\");\n"
                         "\n",
                         r, splits, b.any.threads, type, mma ? "true" : "false");
                build_functor(&b, &gr->epilogue[0], "epilogue");
                build_line(&b, "\1_epilogue epilogue = { a };");
                const char *parts = "(float *)0", *done = "(int *)0";
                if (splits > 1) {
                        int work = work_new(e, DIM(B * T * t.H * splits * record), 4);
                        int count = work_keep(e, DIM(B * groups), 4, "attention_done");
                        parts = arena_fmt(e->tmp, "a.%s",
                                          arg_work(e, &b.args, work, "float", "parts"));
                        done = arena_fmt(e->tmp, "a.%s",
                                         arg_work(e, &b.args, count, "int", "done"));
                }
                const char *grid = arena_fmt(e->tmp, "%s*%lld", Bg, (long long)(groups * splits));
                if (e->done_sm90[gr->anchor])
                        form_leave_out(&b, ARCH_SM90A);
                if (r == 1 || mma)
                        forms_add(&b, FAMILY_attention_decode,
                                  &(DecodeWork) {
                                          gr->anchor, r, splits, grid, parts, done,
                                          t.paged && mma && B * groups >= MANY_BLOCKS,
                                          arena_fmt(e->tmp, "%s*%lld", Bg, (long long)groups) });
                build_line(&b,
                           "attention_decode_task<%s, \1_att, \1_tile>(in, %s, %s, B, T, rt, tile, "
                           "smem, epilogue);",
                           type, parts, done);
                build_end(&b, grid);
                return;
        }
        int r = row_for("FWD", t.cls, (int)t.D);
        if (r < 0)
                error_at(t.n->loc, "attention: heads of width %lld are not supported (at most 256)",
                         (long long)t.D);
        build_functor(&b, &gr->epilogue[0], "epilogue");
        b.any.threads = rows[r].threads;
        b.any.min_blocks = rows[r].minb;
        b.any.smem = smem_of(r, (int)t.D);
        b.flops = att_flops(&t, 2), b.bytes = att_bytes(&t, 2, 2);
        const char *l = lse ? arena_fmt(e->tmp, "a.%s", arg_of(e, &b.args, lse, true))
                            : "(float *)0";
        build_line(&b, "\1_epilogue epilogue = { a };");
        if (t.mma)
                forms_add(&b, FAMILY_attention, &(AttentionWork) { gr->anchor, l });
        build_line(&b, "attention_task<%s, \1_att, %s>(in, %s, B, T, rt, tile, smem, epilogue);",
                   type, tile_text(e, r), l);
        build_end(&b, t.ragged ? arena_fmt(e->tmp, "%lld*(ceil(%s/%d)+B)", (long long)t.H, Tg,
                                           rows[r].bm)
                               : arena_fmt(e->tmp, "%s*%lld*ceil(%s/%d)", Bg, (long long)t.H, Tg,
                                           rows[r].bm));
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
                describe(t, &b, arena_fmt(e->tmp, "(float *)%s", plain_arg(e, &b, t->n->in[4])));
                Operand o = operand(e, &b, t->n->in[3]), d = operand(e, &b, t->n->in[5]);
                b.flops = att_flops(t, kv ? 4 : 3), b.bytes = att_bytes(t, 3, 3);
                const char *heads = arena_fmt(
                        e->tmp,
                        "const Heads out = { %s, %s, %s, %s, %s }, dout = { %s, %s, %s, %s, %s }; ",
                        o.arg, ty(o.dt), o.b, o.t, o.h, d.arg, ty(d.dt), d.b, d.t, d.h);
                if (kv) {
                        build_functor(&b, &gr->epilogue[1], "epilogue_k");
                        build_functor(&b, &gr->epilogue[2], "epilogue_v");
                        cpu_loop(&b, "attention_grad_kv_tiles", heads,
                                 "attention_grad_kv_task(&att, out, dout, rt, tile, &a, "
                                 "\1_epilogue_k, \1_epilogue_v);");
                } else {
                        build_functor(&b, &gr->epilogue[0], "epilogue");
                        cpu_loop(&b, "attention_grad_q_tiles", heads,
                                 "attention_grad_q_task(&att, out, dout, rt, tile, &a, "
                                 "\1_epilogue);");
                }
                build_end(&b, "1");
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
        describe(&k->t, &b, NULL);
        text_free(build_body(&b));
        b.args.n = 0;
        Operand o = operand(e, &b, k->t.n->in[3]), d = operand(e, &b, k->t.n->in[5]);
        const char *w = arg_work(e, &b.args, k->deltas, "float", "delta");
        b.bytes = att_bytes(&k->t, 2, 0);
        if (k->sm90)
                form_leave_out(&b, ARCH_SM90A);
        build_line(&b, "const Strides so = %s, sg = %s;", strides_of(e, &o), strides_of(e, &d));
        build_line(&b, "attention_delta_task<%s, \1_att, 128>(%s, so, %s, sg, a.%s, B, T, tile);",
                   c_type(k->t.dt), o.arg, d.arg, w);
        build_end(&b, arena_fmt(e->tmp, "ceil(%s/%d)", dim_grid(e, k->queries), delta_rows(&k->t)));
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
        *r = row_for(kv ? "DKV" : "DQ", t->cls, (int)t->D);
        if (*r < 0)
                error_at(t->n->loc,
                         "attention: heads of width %lld are not supported (at most 256)",
                         (long long)t->D);
        Build b = build_start(e, gr, "attention_backward",
                              kv ? "attention_grad_kv" : "attention_grad_q");
        describe(t, &b, NULL);
        *d = operand(e, &b, t->n->in[5]);
        const char *lse = plain_arg(e, &b, t->n->in[4]);
        const char *w = k->sm90 && !kv ? arg_work(e, &b.args, k->deltas, "float", "delta")
                                       : arg_done(e, &b.args, k->deltas, "float", "delta");
        b.any.threads = rows[*r].threads;
        b.any.min_blocks = rows[*r].minb;
        b.any.smem = smem_of(*r, (int)t->D);
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
                   c_type(k->t.dt), tile_text(e, r), grads);
        build_end(&b, arena_fmt(e->tmp, "%s*%lld*ceil(%s/%d)", dim_grid(e, q->dim[0]),
                                (long long)k->t.K, dim_grid(e, q->dim[1]), rows[r].bm));
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
                Operand o = operand(e, &b, k->t.n->in[3]);
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
                   c_type(k->t.dt), tile_text(e, r), grads);
        build_end(&b, arena_fmt(e->tmp, "%s*%lld*ceil(%s/%d)", dim_grid(e, q->dim[0]),
                                (long long)k->t.H, dim_grid(e, q->dim[1]), rows[r].bm));
}

static void backward(Emit *e, const Group *gr)
{
        Back k = { .t = att_of(e, gr), .kind = GRAD_Q };
        const Type *q = &NODE(e->g, k.t.n->in[0])->type;
        if (!is_cuda(e)) {
                backward_cpu(e, gr, &k.t);
                return;
        }
        if (is_short(&k.t)) {
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

void gen_attention(Emit *e, const Group *gr)
{
        if (NODE(e->g, gr->anchor)->op == OP_ATTENTION)
                forward(e, gr);
        else
                backward(e, gr);
}
