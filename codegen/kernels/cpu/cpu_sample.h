/* cpu_sample.h: the next token from a row of logits; a tile is one sequence.
 *
 * The definition, step by step, is at the head of sample.cuh; here sums of integer
 * weights are histograms over the order keys of floats, eight bits at a time. */
#ifndef TGC_CPU_SAMPLE_H
#define TGC_CPU_SAMPLE_H

#include "cpu_math.h"

#define SAMPLE_ID 0x73616d70u

/* A logit; NaN counts as -inf. */
TGC_INLINE float sample_at(int ty, const void *x, long i)
{
        float v = ty_get(ty, x, i);
        return v == v ? v : -INFINITY;
}

/* The largest logit, and the first of that size; not finite where one is NaN or +inf, or all are
 * -inf. */
TGC_INLINE float sample_max(int ty, const void *x, long at, int V, int *token)
{
        Vec most = vec_all(-INFINITY), none = vec_all(INFINITY);
        __typeof__(most < none) less = most < none; /* all bits set, of each lane */
        float max = -INFINITY;
        int i = 0, odd = 0;
        for (; i + TGC_VEC <= V; i += TGC_VEC) {
                Vec v = vec_load_ty(ty, x, at + i);
                most = vec_max(v, most);
                less &= v < none;
        }
        for (int k = 0; k < TGC_VEC; k++)
                odd |= !less[k];
        for (; i < V; i++) {
                float v = ty_get(ty, x, at + i);
                max = v > max ? v : max;
                odd |= !(v < INFINITY);
        }
        *token = 0;
        if (odd)
                return INFINITY;
        max = vec_top(vec_max(vec_all(max), most));
        for (i = 0; max > -INFINITY && ty_get(ty, x, at + i) != max;)
                i++;
        *token = i;
        return max;
}

/* Keys in the order of the floats. */
TGC_INLINE uint32_t sample_key(float x)
{
        uint32_t u = float_bits(x);
        return u & 0x80000000u ? ~u : u | 0x80000000u;
}

TGC_INLINE uint64_t sample_weight(float d) { return (uint64_t)(fast_exp_negf(d) * 4294967296.f); }

/* Sum over logits with key >= from of 1, or of their weights. */
TGC_INLINE uint64_t sample_mass(int ty, const void *x, long at, int V, uint32_t from, int weights,
                                float max)
{
        uint64_t s = 0;
        for (int i = 0; i < V; i++) {
                float v = sample_at(ty, x, at + i);
                if (sample_key(v) >= from)
                        s += weights ? sample_weight(v - max) : 1;
        }
        return s;
}

/* The largest key t >= from such that the mass of keys >= t is at least need; 0: none. */
TGC_INLINE uint32_t sample_threshold(int ty, const void *x, long at, int V, uint32_t from,
                                     int weights, float max, uint64_t need)
{
        uint32_t t = 0;
        uint64_t above = 0;
        for (int shift = 24; shift >= 0; shift -= 8) {
                uint64_t bin[256] = { 0 };
                for (int i = 0; i < V; i++) {
                        float v = sample_at(ty, x, at + i);
                        uint32_t k = sample_key(v);
                        if (k >= from && (shift == 24 || k >> (shift + 8) == t >> (shift + 8)))
                                bin[k >> shift & 255] += weights ? sample_weight(v - max) : 1;
                }
                int b = 255;
                while (b >= 0 && above + bin[b] < need)
                        above += bin[b--];
                if (b < 0)
                        return 0;
                t |= (uint32_t)b << shift;
        }
        return t;
}

/* Divide or multiply the logits of recent tokens, each once. */
TGC_INLINE void sample_penalty(const Rt *rt, int ty, void *x, long at, int V, const int *hist,
                               int cap, int rows, int S)
{
        int n = S < cap ? S : cap;
        n = rt->repeat_last_n < 0 || rt->repeat_last_n > n ? n : rt->repeat_last_n;
        if (rt->repeat_penalty == 1.f)
                return;
        for (int i = 0; i < n; i++) {
                int token = hist[(S - 1 - i) % cap * rows], first = token >= 0 && token < V;
                for (int j = 0; j < i && first; j++)
                        first = hist[(S - 1 - j) % cap * rows] != token;
                if (first) {
                        float v = ty_get(ty, x, at + token);
                        v = v > 0.f ? v / rt->repeat_penalty : v * rt->repeat_penalty;
                        ty_store(ty, x, at + token, &v, 1);
                }
        }
}

/* Steps 4 to 7; max is finite, u a random word. */
TGC_INLINE int sample_pick(const Rt *rt, int ty, const void *x, long at, int V, float max,
                           uint32_t u)
{
        uint32_t t = 0;
        if (rt->top_k > 0 && rt->top_k < V)
                t = sample_threshold(ty, x, at, V, 0, 0, max, (uint64_t)rt->top_k);
        if (rt->top_p < 1.f) {
                uint64_t z = sample_mass(ty, x, at, V, t, 1, max);
                uint64_t need = rt->top_p > 0.f ? (uint64_t)(rt->top_p * (double)z) : 0;
                uint32_t p = sample_threshold(ty, x, at, V, t, 1, max, need ? need : 1);
                t = p > t ? p : t;
        }
        float least = rt->min_p > 0.f ? logf(rt->min_p) : -INFINITY;
        uint64_t r = 0, run = 0;
        for (int pass = 0; pass < 2; pass++, run = 0) {
                for (int i = 0; i < V; i++) {
                        float v = sample_at(ty, x, at + i);
                        if (sample_key(v) < t || !(v - max >= least))
                                continue;
                        run += sample_weight((v - max) / rt->temp);
                        if (pass && run > r)
                                return i;
                }
                r = (run >> 32) * u + (((run & 0xffffffffu) * u) >> 32);
        }
        return 0; /* not reached: max itself has weight 2^32 */
}

/* logits: type ty (B, ld), of the last token of each sequence; overwritten.  hist: int (cap, rows),
 * the tokens so far, position p at hist[p % cap][b].  With S = rt->pos[b] + rt->T, the token
 * for position S goes to next[b] and hist[S % cap][b] (0 and -1 of logits that are not finite);
 * then rt->pos[b] = S, and tile 0 adds 1 to rt->n_out.  A tile from rt->B on does nothing. */
TGC_INLINE void sample_task(Rt *rt, int ty, void *logits, int V, long ld, int *hist, int cap,
                            int rows, int *next, long tile)
{
        if (tile >= rt->B)
                return;
        int S = rt->pos[tile] + rt->T, token;
        long at = tile * ld;
        hist += tile;
        sample_penalty(rt, ty, logits, at, V, hist, cap, rows, S);
        float max = sample_max(ty, logits, at, V, &token);
        int finite = max > -INFINITY && max < INFINITY;
        if (rt->temp > 0.f && finite) {
                uint32_t c[4] = { (uint32_t)S, (uint32_t)tile, SAMPLE_ID, 0 };
                philox(c, rt->seed[0], rt->seed[1]);
                token = sample_pick(rt, ty, logits, at, V, max, c[0]);
        }
        next[tile] = finite ? token : 0;
        hist[S % cap * rows] = finite ? token : -1;
        rt->pos[tile] = S;
        if (rt->pages && S / TGC_PAGE < rt->slot_pages)
                rt->place[tile] = rt->pages[(long)rt->slot[tile] * rt->slot_pages + S / TGC_PAGE] *
                                          TGC_PAGE +
                                  S % TGC_PAGE;
        if (tile == 0)
                rt->n_out++;
}

#endif
