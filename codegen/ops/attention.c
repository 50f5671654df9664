/* attention.c: emits attention forward, and over the cache; attention_backward.c emits the
 * gradients.
 *
 * q, k and v have one head width here; passes/pad_heads.c ensures it.
 *
 * Forward is one launch.  Decode (few queries, a long cache) is one, too: it splits the cache, and
 * the last block of a row merges its parts.  Short float32 sequences have a kernel of their own. */
#include "attention.h"

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
        enum { LEAST = 8, MOST = 16, KEYS = 512 };
        int splits = 1;
        if (e->m->fast)
                return splits_for(S, blocks, most);
        while (splits < MOST && S / (splits * 2) >= 64 && (splits < LEAST || S / splits > KEYS))
                splits *= 2;
        return splits;
}

static void short_forward(Att *t, Ref lse)
{
        Emit *e = t->e;
        Build b = build_start(e, t->gr, "attention_short", "attention");
        att_describe(t, &b, NULL);
        build_functor(&b, &t->gr->epilogue[0], "epilogue");
        b.any.threads = 256;
        b.any.smem = att_short_bytes(t->D, false);
        b.flops = att_flops(t, 2), b.bytes = att_bytes(t, 2, 2);
        const char *l = lse ? arena_fmt(e->tmp, "a.%s", arg_of(e, &b.args, lse, true))
                            : "(float *)0";
        build_line(&b, "\1_epilogue epilogue = { a };");
        build_line(&b, "attention_short_task<\1_att>(in, %s, B, T, rt, tile, smem, epilogue);", l);
        build_end(&b, att_short_grid(t));
}

/* A few queries, T, of each of B sequences over a cache. */
static void over_cache(Att *t, int64_t B, int64_t T)
{
        Emit *e = t->e;
        const Group *gr = t->gr;
        const char *type = c_type(t->dt);
        Build b = build_start(e, gr, "attention_decode", "attention_decode");
        att_describe(t, &b, "NULL");
        const int64_t per = T * (t->H / t->K), S = e->g->sizes.v[SYM_S];
        const Grid of_batch = t->mixed ? grid_blocks(B)
                                       : grid_dim(e, NODE(e->g, t->n->in[0])->type.dim[0]);
        int r = 1;
        while (r < per && r < 8)
                r *= 2;
        bool mma = r > 1 && dt_size[t->dt] == 2 && (t->D == 64 || t->D == 128) && t->vec >= 8;
        /* Blocks of mma are large: of heads of 128 one of 256 threads fills a multiprocessor, and a
         * second wave pays for long caches alone (docs/notebook/decode.md). */
        /* A ring (attention_decode_ring_sm90.cuh) has parts of PART keys at least, two steps of its
         * four warps. */
        enum { ONCE_S = 8192, ONCE_SPLITS = 8, PART = 128 };
        bool once = mma && t->D == 128 && S <= ONCE_S, ring = mma && (t->paged || once);
        int64_t groups = t->K * ((per + r - 1) / r), most = once  ? ANY_SMS * 3 / 4
                                                            : mma ? ANY_SMS
                                                                  : 2 * ANY_SMS;
        int splits = t->paged ? paged_splits(e, S, B * groups, most)
                              : splits_for(S, B * groups, most);
        if (ring && !t->paged && splits > ONCE_SPLITS)
                splits = ONCE_SPLITS;
        int record = (int)(t->D + 1) / 2 * 2 + 2, least = ring && t->paged ? PART : 0;
        b.any.waits = true;
        /* more threads reach further into the cache in one step, and parts to merge come
         * later; several rows keep a warp without tensor cores busy with arithmetic, and
         * more blocks serve better (docs/notebook/decode.md). */
        b.any.threads = r == 1 || (mma && !ring) ? 256 : 128;
        b.any.smem = b.any.threads / 32 * r * record * 4;
        b.flops = att_flops(t, 2), b.bytes = att_bytes(t, 2, 2);
        text_add(build_decl(&b),
                 "typedef AttDecode<%d, %d, %d, %d> \1_tile;\n"
                 "static_assert(att_decode_mma<%s, \1_att, \1_tile>() == %s, \"as "
                 "attention.c has it\");\n"
                 "\n",
                 r, splits, b.any.threads, least, type, mma ? "true" : "false");
        build_functor(&b, &gr->epilogue[0], "epilogue");
        build_line(&b, "\1_epilogue epilogue = { a };");
        const char *parts = "(float *)0", *done = "(int *)0";
        if (splits > 1) {
                int work = work_new(e, DIM(B * T * t->H * splits * record), 4);
                int count = work_keep(e, DIM(B * groups), 4, "attention_done");
                parts = arena_fmt(e->tmp, "a.%s", arg_work(e, &b.args, work, C_F32, "parts"));
                done = arena_fmt(e->tmp, "a.%s", arg_work(e, &b.args, count, C_I32, "done"));
        }
        const Grid grid = grid_times(of_batch, grid_blocks(groups * splits));
        if (e->done_sm90[gr->anchor])
                form_leave_out(&b, ARCH_SM90A);
        if (r == 1 || mma)
                forms_add(&b, FAMILY_attention_decode,
                          &(DecodeWork) { .r = gr->anchor,
                                          .rows = r,
                                          .splits = splits,
                                          .least = least,
                                          .grid = grid,
                                          .parts = parts,
                                          .done = done,
                                          .counts = t->mixed ? "rt->sampled, 1" : "B, T",
                                          .ring = ring,
                                          .heads = B * groups,
                                          .of_heads = grid_times(of_batch, grid_blocks(groups)) });
        build_line(&b,
                   "attention_decode_task<%s, \1_att, \1_tile>(in, %s, %s, %s, rt, tile, "
                   "smem, epilogue);",
                   type, parts, done, t->mixed ? "rt->sampled, 1" : "B, T");
        build_end(&b, grid);
}

static void forward(Emit *e, const Group *gr)
{
        Att t = att_of(e, gr);
        const Type *q = &NODE(e->g, t.n->in[0])->type;
        Ref lse = item_of(e, gr->anchor, 1);
        const char *type = c_type(t.dt);
        const Grid of_batch = grid_dim(e, q->dim[0]);
        bool few = t.cached && e->g->sizes.v[SYM_T] && dim_most(e, q->dim[1]) <= 8 && !lse;
        if (att_is_short(&t)) {
                short_forward(&t, lse);
                return;
        }
        if (few && is_cuda(e)) {
                over_cache(&t, dim_most(e, q->dim[0]), dim_most(e, q->dim[1]));
                return;
        }
        if (t.mixed) {
                Att rows = t;
                rows.ragged = false;
                over_cache(&rows, e->slots, 1);
        }
        Build b = build_start(e, gr, "attention", few ? "attention_decode" : "attention");
        att_describe(&t, &b,
                     is_cuda(e) || !lse ? "NULL"
                                        : arena_fmt(e->tmp, "a.%s", arg_of(e, &b.args, lse, true)));
        if (!is_cuda(e)) {
                build_functor(&b, &gr->epilogue[0], "epilogue");
                b.flops = att_flops(&t, 2), b.bytes = att_bytes(&t, 2, 2);
                att_cpu_loop(&b, "attention_tiles", "",
                             "attention_task(&att, rt, tile, &a, \1_epilogue);");
                build_end(&b, grid_blocks(1));
                return;
        }
        int r = att_row_for("FWD", t.cls, (int)t.D);
        if (r < 0)
                error_at(t.n->loc, "attention: heads of width %lld are not supported (at most 256)",
                         (long long)t.D);
        build_functor(&b, &gr->epilogue[0], "epilogue");
        b.any.threads = att_row[r].threads;
        b.any.min_blocks = att_row[r].minb;
        b.any.smem = att_smem(r, (int)t.D);
        b.flops = att_flops(&t, 2), b.bytes = att_bytes(&t, 2, 2);
        const char *l = lse ? arena_fmt(e->tmp, "a.%s", arg_of(e, &b.args, lse, true))
                            : "(float *)0";
        build_line(&b, "\1_epilogue epilogue = { a };");
        if (t.mma)
                forms_add(&b, FAMILY_attention, &(AttentionWork) { gr->anchor, l });
        build_line(&b, "attention_task<%s, \1_att, %s>(in, %s, B, T, rt, tile, smem, epilogue);",
                   type, att_tile_text(e, r), l);
        const Grid of_heads = grid_blocks(t.H);
        build_end(&b,
                  t.ragged ? grid_times(of_heads, grid_ragged(e, q->dim[1], att_row[r].bm))
                           : grid_times(of_batch, grid_times(of_heads, grid_ceil(e, q->dim[1],
                                                                                 att_row[r].bm))));
}

void gen_attention(Emit *e, const Group *gr)
{
        if (NODE(e->g, gr->anchor)->op == OP_ATTENTION)
                forward(e, gr);
        else
                att_backward(e, gr);
}
