/* cpu_adamw8bit.h: AdamW with 8-bit states (Dettmers et al., ICLR 2022; bitsandbytes' AdamW8bit).
 *
 * States m and v of a block of 256 neighbouring elements are bytes, entries of dynamic_map.h,
 * times the block's largest magnitude (absmax).  Small parameters (fewer than 4096 elements) keep
 * float32: `small` lists their blocks, in order.  A stored m keeps the sign of the exact m. */
#ifndef TGC_CPU_ADAMW8BIT_H
#define TGC_CPU_ADAMW8BIT_H

#include "cpu_adamw.h"
#include "dynamic_map.h"

static const float dynamic_map[2][256] = { { DYNAMIC_SIGNED }, { DYNAMIC_UNSIGNED } };

/* Blocks begin .. end - 1 of the parameters have float32 states, from block `at` of those on. */
typedef struct SmallState {
        int begin, end, at;
} SmallState;

typedef struct States8 {
        uint8_t *m8, *v8;     /* n, a multiple of 256 */
        float *m_max, *v_max; /* n / 256 */
        float *m, *v;         /* of the small parameters */
} States8;

/* The entry of the sorted map nearest to x; a tie takes the lower one. */
TGC_INLINE int nearest_entry(const float *map, float x)
{
        int lo = 0, hi = 255;
        while (hi - lo > 1) {
                const int mid = (lo + hi) / 2;
                if (map[mid] <= x)
                        lo = mid;
                else
                        hi = mid;
        }
        return x - map[lo] <= map[hi] - x ? lo : hi;
}

TGC_INLINE void store_states8(int is_signed, uint8_t *to, float *absmax, const float *x)
{
        const float *map = dynamic_map[!is_signed];
        float most = 0.f;
        for (int j = 0; j < 256; j++)
                most = fmaxf(most, fabsf(x[j]));
        const float inverse = most > 0.f ? 1.f / most : 0.f;
        for (int j = 0; j < 256; j++) {
                int c = nearest_entry(map, x[j] * inverse);
                if (is_signed && x[j] != 0.f && (map[c] < 0.f) != (x[j] < 0.f))
                        c += x[j] < 0.f ? -1 : 1;
                to[j] = (uint8_t)c;
        }
        *absmax = most;
}

TGC_INLINE int small_block(const SmallState *small, int n_small, int block)
{
        for (int k = 0; k < n_small && small[k].begin <= block; k++)
                if (block < small[k].end)
                        return small[k].at + block - small[k].begin;
        return -1;
}

/* cpu_update.h's update_task with these states. */
TGC_INLINE void adamw8bit_task(const Rt *rt, UpdateParams to, States8 s, const SmallState *small,
                               int n_small, const float *grad, long n, long n_decay,
                               const float *norm, long tile)
{
        const float scale = clip_factor(rt, norm);
        const long end = tgc_min(n, (tile + 1) * UPDATE_TILE);
        if (scale < 0.f)
                return;
        for (long i = tile * UPDATE_TILE; i < end; i += 256) {
                float m[256], v[256];
                const int block = (int)(i / 256), at = small_block(small, n_small, block);
                if (at >= 0) {
                        update_span(rt, to, (float *const[2]) { s.m + at * 256L, s.v + at * 256L },
                                    grad + i, i, tgc_min(256, n - i), n_decay, scale, adamw_rule);
                        continue;
                }
                for (int j = 0; j < 256; j++) {
                        m[j] = dynamic_map[0][s.m8[i + j]] * s.m_max[block];
                        v[j] = dynamic_map[1][s.v8[i + j]] * s.v_max[block];
                }
                update_span(rt, to, (float *const[2]) { m, v }, grad + i, i, 256, n_decay, scale,
                            adamw_rule);
                store_states8(1, s.m8 + i, s.m_max + block, m);
                store_states8(0, s.v8 + i, s.v_max + block, v);
        }
}

#endif
