/* cpu_attention.h: softmax(scale q k^T + ...) v, forward and backward; scores are never stored.
 *
 * Query t of sequence b is at p = pos[b] + t; there are S = pos[b] + T keys; pos is rt->pos where
 * `cached`, else 0.  Key s is allowed iff (causal: s <= p) and (window > 0: s > p - window) and
 * (mask: mask != 0) and (documents: begin <= s < end of the query's).  Score, in this order: scale
 * * q.k; softcap c > 0: c * tanh(score / c); slopes: + slope[h] * (s - p).  A row with no allowed
 * key gives 0 and lse = -inf.  Dropout zeroes probabilities after the softmax; element index ((b*H
 * + h)*T + t)*S + s.  Query head h reads key head h / (H/K).
 *
 * A tile is (b, key head, up to ATTENTION_ROWS rows).  Its rows are the G = H/K query heads of the
 * key head times some queries, row r = query r / G, head r % G, so that they share the loads of k
 * and v.  In decoding with few key heads a tile has a part of the G heads (att_parts), for more
 * threads.  Online softmax over blocks of ATTENTION_KB keys, in order: the same bits for any
 * number of threads.  Few rows (decoding) use cpu_gemv.h's dot products, which read k and v in
 * place; else blocks are packed for cpu_gemm.h's register kernel. */
#ifndef TGC_CPU_ATTENTION_H
#define TGC_CPU_ATTENTION_H

#include "cpu_fp8.h"
#include "cpu_limits.h"
#include "cpu_rows.h"

/* A (b, t, h, d) tensor: strides in elements, d contiguous.  For k and v, t is the key (S) and h
 * the key head (K). */
typedef struct Heads {
        const void *p;
        int ty;
        long b, t, h;
} Heads;

typedef struct Attention {
        int H, K, D, DV; /* query heads, key heads, width of q and k, width of v (0: D) */
        Heads q, k, v;
        float scale, softcap; /* softcap 0: none */
        int causal, cached;
        int page, pool, ragged;      /* as in attention_common.cuh; 0: no */
        int window;                  /* 0: none */
        const float *slopes;         /* ALiBi, (H), or NULL */
        const float *mask;           /* 0: not allowed; or NULL */
        long mask_b, mask_h, mask_t; /* its strides; along s: 1 */
        /* (B,T,2): begin and end of a token's document (not if cached), or NULL */
        const int *documents;
        float drop; /* probability, 0: none */
        unsigned drop_id;
        float *lse; /* (B,H,T), out (backward: in), or NULL */
} Attention;

enum {
        ATTENTION_ROWS = 64,              /* per tile, unless G is larger */
        ATTENTION_ROWS_MAX = LIMIT_GROUP, /* largest G = H/K */
        ATTENTION_FEW = 8,                /* up to so many rows nothing is packed */
        ATTENTION_D_SMALL = 16,           /* up to this D, sums along d cost more than packing k */
        ATTENTION_KB = 128,
        ATTENTION_D_MAX = LIMIT_HEAD /* of D and DV */
};
_Static_assert((int)ATTENTION_ROWS <= (int)ATTENTION_ROWS_MAX, "rows");
_Static_assert((int)ATTENTION_D_MAX <= (int)MATMUL_KC && ATTENTION_KB % GEMM_NR == 0, "panels");
_Static_assert(4 * ATTENTION_KB * ATTENTION_D_MAX +
                               ATTENTION_ROWS_MAX * (3 * ATTENTION_D_MAX + 3 * ATTENTION_KB + 16) <=
                       TGC_SCRATCH,
               "scratch");

/* One tile: its rows, and the keys that any of them may attend.  Ragged: the queries of sequence b
 * are rows start .. start + T - 1. */
typedef struct AttTile {
        int b, kh, G, g0, rows, t0, pos, S, T; /* heads g0 .. g0 + G - 1 of the key head */
        long start, lo, hi;
} AttTile;

TGC_INLINE int att_dv(const Attention *a) { return a->DV ? a->DV : a->D; }
TGC_INLINE long att_pad(long n) { return tgc_ceil_div(n, GEMM_NR) * GEMM_NR; }
TGC_INLINE int att_queries(const Attention *a)
{
        return (int)tgc_max(1, ATTENTION_ROWS / (a->H / a->K));
}

TGC_INLINE int att_head(const Attention *a, AttTile t, int r)
{
        return t.kh * (a->H / a->K) + t.g0 + r % t.G;
}
TGC_INLINE int att_query(AttTile t, int r) { return t.t0 + r / t.G; }
TGC_INLINE long heads_at(Heads x, int b, long t, int h) { return b * x.b + t * x.t + h * x.h; }

/* Begin and end of a query's document, or NULL. */
TGC_INLINE const int *att_document(const Attention *a, const Rt *rt, int b, long query)
{
        return a->documents ? a->documents + ((long)b * rt->T + query) * 2 : 0;
}

/* Tiles that share a key head's query heads.  1 except in a decoding step, and in small models,
 * which would only read keys again.  Bits may depend on it, so it depends on the model alone. */
TGC_INLINE int att_parts(const Attention *a, const Rt *rt)
{
        enum { TILES = 16, SMALL = 256 };
        const int G = a->H / a->K;
        int p = 1;
        if (a->cached && !a->ragged && rt->T == 1 && a->H * a->D >= SMALL &&
            !a->lse) /* not for gradients */
                while (p < G && (a->K * p < TILES || G % p))
                        p++;
        return p;
}

TGC_INLINE AttTile att_tile(const Attention *a, const Rt *rt, long tile)
{
        const int step = att_queries(a), parts = att_parts(a, rt);
        AttTile t = { .G = a->H / a->K / parts, .T = rt->T };
        t.g0 = (int)(tile % parts) * t.G;
        tile /= parts;
        long blocks = tgc_ceil_div(t.T, step);
        for (; a->ragged; t.b++) {
                t.start = rt->start[t.b];
                t.T = rt->start[t.b + 1] - rt->start[t.b];
                blocks = tgc_ceil_div(t.T, step);
                if (tile < blocks * a->K)
                        break;
                tile -= blocks * a->K;
        }
        if (!a->ragged)
                t.b = (int)(tile / blocks / a->K);
        t.kh = (int)(tile / blocks % a->K);
        t.t0 = (int)(blocks - 1 - tile % blocks) * step; /* long causal rows first */
        t.rows = t.G * (int)tgc_min(step, t.T - t.t0);
        t.pos = a->cached ? rt->pos[t.b] : 0;
        t.S = t.pos + t.T;
        long first = t.pos + t.t0, last = first + t.rows / t.G - 1;
        t.lo = a->window > 0 ? tgc_max(0, first - a->window + 1) : 0;
        t.hi = a->causal ? last + 1 : t.S;
        if (a->documents) {
                t.lo = tgc_max(t.lo, att_document(a, rt, t.b, first)[0]);
                t.hi = tgc_min(t.hi, att_document(a, rt, t.b, last)[1]);
        }
        return t;
}

/* s[0..n): q.k of row (b, h, query) with keys s0.. becomes scores, -inf where not allowed.
 * slope_of (or NULL) gets d score / d (q.k) without the scale (softcap). */
TGC_INLINE void att_scores(const Attention *a, const Rt *rt, int b, int h, int query, int pos,
                           long s0, int n, float *s, float *slope_of)
{
        const int *document = att_document(a, rt, b, query);
        long p = pos + query;
        long lo = a->window > 0 ? p - a->window + 1 - s0 : 0, hi = a->causal ? p + 1 - s0 : n;
        if (document) {
                lo = tgc_max(lo, document[0] - s0);
                hi = tgc_min(hi, document[1] - s0);
        }
        for (int i = 0; i < n; i++)
                s[i] *= a->scale;
        if (a->softcap > 0.f) {
                float c = a->softcap, inv = 1.f / c;
                for (int i = 0; i < n; i++) {
                        float th = fast_tanhf(s[i] * inv);
                        s[i] = c * th;
                        if (slope_of)
                                slope_of[i] = 1.f - th * th;
                }
        } else if (slope_of) {
                for (int i = 0; i < n; i++)
                        slope_of[i] = 1.f;
        }
        if (a->slopes) {
                float m = a->slopes[h];
                for (int i = 0; i < n; i++)
                        s[i] += m * (float)(int)(s0 + i - p);
        }
        if (a->mask) {
                const float *m = a->mask + b * a->mask_b + h * a->mask_h + query * a->mask_t + s0;
                for (int i = 0; i < n; i++)
                        s[i] = m[i] != 0.f ? s[i] : -INFINITY;
        }
        for (long i = 0; i < lo && i < n; i++)
                s[i] = -INFINITY;
        for (long i = hi < 0 ? 0 : hi; i < n; i++)
                s[i] = -INFINITY;
}

TGC_INLINE uint64_t att_drop_index(const Attention *a, const Rt *rt, AttTile t, int h, int query,
                                   long s)
{
        return (((uint64_t)t.b * (unsigned)a->H + (unsigned)h) * (unsigned)rt->T +
                (unsigned)query) *
                       (unsigned)t.S +
               (uint64_t)s;
}

/* Rows (query, head) of x as floats, ld apart, zero from n to ld. */
TGC_INLINE void att_fetch(const Attention *a, Heads x, AttTile t, int n, float *to, long ld)
{
        for (int r = 0; r < t.rows; r++, to += ld) {
                ty_load(x.ty, to, x.p,
                        heads_at(x, a->ragged ? 0 : t.b, t.start + att_query(t, r),
                                 att_head(a, t, r)),
                        n);
                for (long i = n; i < ld; i++)
                        to[i] = 0.f;
        }
}

/* ---- forward ----------------------------------------------------------- */

/* Online softmax: takes a block of n scores into row r: s becomes probabilities (not yet divided
 * by the sum), max and sum are updated; returns the factor for what came before. */
TGC_INLINE float att_online(float *s, int n, float *max, float *sum)
{
        float m = max_n(s, n);
        m = m > *max ? m : *max;
        float alpha = m == -INFINITY ? 1.f : fast_exp_negf(*max - m);
        *sum = *sum * alpha + exp_row(s, n, m);
        *max = m;
        return alpha;
}

/* s (m, ATTENTION_KB): q.k of a few rows with n keys, read in place. */
TGC_UNROLLED TGC_NOINLINE void att_dots(int m, int ty, const void *k, long at, long ld, int n,
                                        const float *q, long ldq, float *s)
{
        if (ty == TY_F32)
                gemv_rows(m, TY_F32, 1, k, at, ld, n, TGC_VEC, q, ldq, s, ATTENTION_KB, 0);
        else
                gemv_rows(m, ty, 1, k, at, ld, n, TGC_VEC, q, ldq, s, ATTENTION_KB, 0);
}

/* epilogue(row = b*T + t, col = h*DV + d, ...); ragged: the query's row. */
TGC_INLINE long attention_tiles(const Attention *a, const Rt *rt)
{
        long n = 0;
        for (int b = 0; b < rt->B && a->ragged; b++)
                n += tgc_ceil_div(rt->start[b + 1] - rt->start[b], att_queries(a));
        return a->ragged ? n * a->K
                         : (long)rt->B * a->K * tgc_ceil_div(rt->T, att_queries(a)) *
                                   att_parts(a, rt);
}

/* Key s of sequence b: its row, and how many of [s, hi) are contiguous there. */
TGC_INLINE long att_key_row(const Attention *a, const Rt *rt, int b, long s)
{
        return !a->page ? s
                        : (long)rt->pages[a->pool]
                                         [(long)rt->slot[b] * rt->slot_pages + s / a->page] *
                                          a->page +
                                  s % a->page;
}
TGC_INLINE int att_key_run(const Attention *a, long s, long hi)
{
        long n = tgc_min(ATTENTION_KB, hi - s);
        return (int)(a->page ? tgc_min(n, a->page - s % a->page) : n);
}

TGC_INLINE void attention_task(const Attention *a, const Rt *rt, long tile, const void *args,
                               EpilogueFn *epilogue)
{
        AttTile t = att_tile(a, rt, tile);
        int D = a->D, DV = att_dv(a), few = t.rows <= ATTENTION_FEW, one = few && D == TGC_VEC;
        int pack_k = !few || (D <= ATTENTION_D_SMALL && !one);
        long ldq = D + TGC_VEC, ldo = att_pad(DV);
        float *q = tgc_scratch;
        TGC_HIDE(q); /* as in gemv_gain_task */
        float *o = q + ATTENTION_ROWS_MAX * (ATTENTION_D_MAX + TGC_VEC);
        float *s = o + ATTENTION_ROWS_MAX * ATTENTION_D_MAX,
              *kp = s + ATTENTION_ROWS_MAX * ATTENTION_KB;
        float *vp = kp + ATTENTION_KB * ATTENTION_D_MAX, *kx = vp + ATTENTION_KB * ATTENTION_D_MAX,
              *vx = kx + ATTENTION_KB * ATTENTION_D_MAX;
        Heads key = a->k, value = a->v;
        float max[ATTENTION_ROWS_MAX], sum[ATTENTION_ROWS_MAX];
        att_fetch(a, a->q, t, D, q, ldq);
        for (int r = 0; r < t.rows; r++) {
                gemv_pad(q + r * ldq, D);
                max[r] = -INFINITY;
                sum[r] = 0.f;
        }
        memset(o, 0, sizeof(float) * (size_t)(t.rows * ldo));
        for (long s0 = t.lo, n = 0; s0 < t.hi; s0 += n) {
                const long row = att_key_row(a, rt, t.b, s0);
                n = att_key_run(a, s0, t.hi);
                long ka = heads_at(a->k, a->page ? 0 : t.b, row, t.kh),
                     va = heads_at(a->v, a->page ? 0 : t.b, row, t.kh);
                if (a->k.ty == TY_FP8) { /* converted to floats first */
                        const long aside = (long)a->K * D - (long)t.kh * (D - 1);
                        fp8_rows(kx, D, (const unsigned char *)a->k.p + ka, a->k.t, aside, (int)n,
                                 D);
                        fp8_rows(vx, D, (const unsigned char *)a->v.p + va, a->v.t, aside, (int)n,
                                 D);
                        key = (Heads) { kx, TY_F32, 0, D, 0 };
                        value = (Heads) { vx, TY_F32, 0, D, 0 };
                        ka = va = 0;
                }
                if (one) {
                        att_dots(t.rows, key.ty, key.p, ka, key.t, n, q, ldq, s);
                } else if (!pack_k) {
                        gemv_rows(t.rows, key.ty, 1, key.p, ka, key.t, n, D, q, ldq, s,
                                  ATTENTION_KB, 0);
                } else {
                        pack_rows(kp, key.p, key.ty, ka, key.t, n, D);
                        gemm_block(t.rows, n, D, q, ldq, 1, kp, s, ATTENTION_KB, 0);
                }
                for (int r = 0; r < t.rows; r++) {
                        float *sr = s + r * ATTENTION_KB, * or = o + r * ldo;
                        int h = att_head(a, t, r), query = att_query(t, r);
                        att_scores(a, rt, t.b, h, query, t.pos, s0, n, sr, 0);
                        float alpha = att_online(sr, n, &max[r], &sum[r]);
                        if (alpha != 1.f)
                                for (int d = 0; d < DV; d++)
                                        or [d] *= alpha;
                        if (a->drop > 0.f)
                                dropout_n(sr, n, a->drop, a->drop_id,
                                          att_drop_index(a, rt, t, h, query, s0), rt);
                }
                if (few) {
                        gemv_rows(t.rows, value.ty, 0, value.p, va, value.t, DV, n, s, ATTENTION_KB,
                                  o, ldo, 1);
                } else {
                        pack_b(vp, value.p, value.ty, va, value.t, DV, n, 0);
                        gemm_block(t.rows, DV, n, s, ATTENTION_KB, 1, vp, o, ldo, 1);
                }
        }
        const long row0 = a->ragged ? t.start : (long)t.b * rt->T;
        for (int r = 0; r < t.rows; r++) {
                int h = att_head(a, t, r), query = att_query(t, r);
                float inv = sum[r] == 0.f ? 0.f : 1.f / sum[r];
                if (a->lse)
                        a->lse[(a->ragged ? (long)h * rt->T + t.start
                                          : ((long)t.b * a->H + h) * rt->T) +
                               query] = sum[r] == 0.f ? -INFINITY : max[r] + fast_logf(sum[r]);
                for (int d = 0; d < DV; d++)
                        o[r * ldo + d] *= inv;
                for (int d = 0; d < DV; d += TGC_SEG)
                        epilogue(args, row0 + query, h * DV + d,
                                 DV - d < TGC_SEG ? DV - d : TGC_SEG, o + r * ldo + d);
        }
}

/* ---- backward ---------------------------------------------------------- */

/* Both tasks recompute the probabilities P = exp(score - lse) of a block of rows x keys
 * and from dP = dout v' the gradient of q.k:
 *
 *      dS = P * (mask/(1-p) dP - delta) * d score / d (q.k),   delta = sum_d out dout
 *
 * On entry s holds q.k and dp holds dP (rows x n, ATTENTION_KB apart); on return dp holds dS
 * and s the probabilities that multiplied v. */
TGC_INLINE void att_grad_block(const Attention *a, const Rt *rt, AttTile t, long s0, int n,
                               const float *delta, float *s, float *dp)
{
        float slope[ATTENTION_KB], keep[ATTENTION_KB];
        for (int r = 0; r < t.rows; r++, s += ATTENTION_KB, dp += ATTENTION_KB) {
                int h = att_head(a, t, r), query = att_query(t, r);
                float lse = a->lse[((long)t.b * a->H + h) * rt->T + query];
                lse = lse == -INFINITY ? 0.f : lse; /* all scores are -inf */
                att_scores(a, rt, t.b, h, query, t.pos, s0, n, s, slope);
                for (int i = 0; i < n; i++)
                        keep[i] = 1.f;
                if (a->drop > 0.f)
                        dropout_n(keep, n, a->drop, a->drop_id,
                                  att_drop_index(a, rt, t, h, query, s0), rt);
                for (int i = 0; i < n; i++) {
                        float p = fast_exp_negf(s[i] - lse);
                        dp[i] = p * (keep[i] * dp[i] - delta[r]) * (slope[i] * a->scale);
                        s[i] = p * keep[i];
                }
        }
}

/* delta of each row; out and dout as rows of floats. */
TGC_INLINE void att_delta(const Attention *a, Heads out, AttTile t, const float *dout, long ld,
                          float *delta)
{
        float row[ATTENTION_D_MAX];
        int DV = att_dv(a);
        for (int r = 0; r < t.rows; r++) {
                ty_load(out.ty, row, out.p, heads_at(out, t.b, att_query(t, r), att_head(a, t, r)),
                        DV);
                delta[r] = dot_n(row, dout + r * ld, DV);
        }
}

/* out, dout: forward's result and its gradient.  dq goes to epilogue(row = b*T + t, col = h*D +
 * d). */
TGC_INLINE long attention_grad_q_tiles(const Attention *a, const Rt *rt)
{
        return attention_tiles(a, rt);
}

TGC_INLINE void attention_grad_q_task(const Attention *a, Heads out, Heads dout, const Rt *rt,
                                      long tile, const void *args, EpilogueFn *epilogue)
{
        AttTile t = att_tile(a, rt, tile);
        int D = a->D, DV = att_dv(a);
        long ldq = att_pad(D), ldo = att_pad(DV);
        float *q = tgc_scratch, *g = q + ATTENTION_ROWS_MAX * ATTENTION_D_MAX;
        float *dq = g + ATTENTION_ROWS_MAX * ATTENTION_D_MAX;
        float *s = dq + ATTENTION_ROWS_MAX * ATTENTION_D_MAX,
              *dp = s + ATTENTION_ROWS_MAX * ATTENTION_KB;
        float *panel = dp + ATTENTION_ROWS_MAX * ATTENTION_KB, delta[ATTENTION_ROWS_MAX];
        att_fetch(a, a->q, t, D, q, ldq);
        att_fetch(a, dout, t, DV, g, ldo);
        att_delta(a, out, t, g, ldo, delta);
        memset(dq, 0, sizeof(float) * (size_t)(t.rows * ldq));
        for (long s0 = t.lo; s0 < t.hi; s0 += ATTENTION_KB) {
                int n = (int)tgc_min(ATTENTION_KB, t.hi - s0);
                long ka = heads_at(a->k, t.b, s0, t.kh), va = heads_at(a->v, t.b, s0, t.kh);
                pack_rows(panel, a->k.p, a->k.ty, ka, a->k.t, n, D);
                gemm_block(t.rows, n, D, q, ldq, 1, panel, s, ATTENTION_KB, 0);
                pack_rows(panel, a->v.p, a->v.ty, va, a->v.t, n, DV);
                gemm_block(t.rows, n, DV, g, ldo, 1, panel, dp, ATTENTION_KB, 0);
                att_grad_block(a, rt, t, s0, n, delta, s, dp);
                pack_b(panel, a->k.p, a->k.ty, ka, a->k.t, D, n, 0);
                gemm_block(t.rows, D, n, dp, ATTENTION_KB, 1, panel, dq, ldq, 1);
        }
        for (int r = 0; r < t.rows; r++)
                for (int d = 0; d < D; d += TGC_SEG)
                        epilogue(args, (long)t.b * rt->T + att_query(t, r),
                                 att_head(a, t, r) * D + d, D - d < TGC_SEG ? D - d : TGC_SEG,
                                 dq + r * ldq + d);
}

/* dk and dv: epilogues(row = b*S + s, col = k*D + d resp. k*DV + d).  S = pos[b] + T must be the
 * same for all b.  A tile is (b, key head, ATTENTION_KB keys) and walks the queries in order. */
TGC_INLINE long attention_grad_kv_tiles(const Attention *a, const Rt *rt)
{
        int S = (a->cached ? rt->pos[0] : 0) + rt->T;
        return (long)rt->B * a->K * tgc_ceil_div(S, ATTENTION_KB);
}

TGC_INLINE void attention_grad_kv_task(const Attention *a, Heads out, Heads dout, const Rt *rt,
                                       long tile, const void *args, EpilogueFn *epilogue_k,
                                       EpilogueFn *epilogue_v)
{
        int S = (a->cached ? rt->pos[0] : 0) + rt->T, D = a->D, DV = att_dv(a);
        long blocks = tgc_ceil_div(S, ATTENTION_KB), b = tile / blocks / a->K,
             kh = tile / blocks % a->K;
        long s0 = tile % blocks * ATTENTION_KB, steps = tgc_ceil_div(rt->T, att_queries(a));
        int n = (int)tgc_min(ATTENTION_KB, S - s0);
        long ldq = att_pad(D), ldo = att_pad(DV);
        float *dk = tgc_scratch, *dv = dk + ATTENTION_KB * ATTENTION_D_MAX;
        float *kp = dv + ATTENTION_KB * ATTENTION_D_MAX, *vp = kp + ATTENTION_KB * ATTENTION_D_MAX;
        float *q = vp + ATTENTION_KB * ATTENTION_D_MAX,
              *g = q + ATTENTION_ROWS_MAX * ATTENTION_D_MAX;
        float *s = g + ATTENTION_ROWS_MAX * ATTENTION_D_MAX,
              *dp = s + ATTENTION_ROWS_MAX * ATTENTION_KB;
        float *pa = dp + ATTENTION_ROWS_MAX * ATTENTION_KB,
              *pb = pa + (ATTENTION_ROWS_MAX * (ATTENTION_KB + GEMM_MR));
        float delta[ATTENTION_ROWS_MAX];
        pack_rows(kp, a->k.p, a->k.ty, heads_at(a->k, (int)b, s0, (int)kh), a->k.t, n, D);
        pack_rows(vp, a->v.p, a->v.ty, heads_at(a->v, (int)b, s0, (int)kh), a->v.t, n, DV);
        memset(dk, 0, sizeof(float) * (size_t)(n * ldq));
        memset(dv, 0, sizeof(float) * (size_t)(n * ldo));
        /* att_tile counts from the last queries */
        for (long step = steps - 1; step >= 0; step--) {
                AttTile t = att_tile(a, rt, (b * a->K + kh) * steps + step);
                if (s0 >= t.hi || s0 + n <= t.lo)
                        continue;
                att_fetch(a, a->q, t, D, q, ldq);
                att_fetch(a, dout, t, DV, g, ldo);
                att_delta(a, out, t, g, ldo, delta);
                gemm_block(t.rows, n, D, q, ldq, 1, kp, s, ATTENTION_KB, 0);
                gemm_block(t.rows, n, DV, g, ldo, 1, vp, dp, ATTENTION_KB, 0);
                att_grad_block(a, rt, t, s0, n, delta, s, dp);
                pack_a(pa, s, TY_F32, 0, ATTENTION_KB, n, t.rows, 0);
                pack_b(pb, g, TY_F32, 0, ldo, DV, t.rows, 0);
                gemm_block(n, DV, t.rows, pa, 1, GEMM_MR, pb, dv, ldo, 1);
                pack_a(pa, dp, TY_F32, 0, ATTENTION_KB, n, t.rows, 0);
                pack_b(pb, q, TY_F32, 0, ldq, D, t.rows, 0);
                gemm_block(n, D, t.rows, pa, 1, GEMM_MR, pb, dk, ldq, 1);
        }
        for (int i = 0; i < n; i++) {
                for (int d = 0; d < D; d += TGC_SEG)
                        epilogue_k(args, b * S + s0 + i, (int)kh * D + d,
                                   D - d < TGC_SEG ? D - d : TGC_SEG, dk + i * ldq + d);
                for (int d = 0; d < DV; d += TGC_SEG)
                        epilogue_v(args, b * S + s0 + i, (int)kh * DV + d,
                                   DV - d < TGC_SEG ? DV - d : TGC_SEG, dv + i * ldo + d);
        }
}

#endif
