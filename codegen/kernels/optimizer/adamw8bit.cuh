/* adamw8bit.cuh: AdamW with states of 8 bits (Dettmers et al., ICLR 2022; bitsandbytes' AdamW8bit).
 *
 *      adamw8bit_task<THREADS, SCALED>(rt, param, states, small, n_small, g, n_decay, norm, tile,
 *      smem)
 *              adamw.cuh's step.  Of 256 neighbouring elements m and v are bytes, entries of
 *              dynamic_map.h, times the largest of them (absmax).  Small parameters (fewer than
 *              4096 elements) keep float32: small lists their blocks of 256, in order.  A stored m
 *              keeps the sign of what it stands for.
 *              tiles: ceil(n / (THREADS * 8)): a warp has a block.  n, n_low and the beginning of
 *              every parameter are multiples of 256.  shared memory: ADAMW8BIT_SMEM. */
#ifndef TGC_ADAMW8BIT_CUH
#define TGC_ADAMW8BIT_CUH

#include "adamw.cuh"
#include "dynamic_map.h"

#define ADAMW8BIT_SMEM 2048

__device__ const float dynamic_map[512] = { DYNAMIC_SIGNED, DYNAMIC_UNSIGNED };

/* Blocks begin .. end - 1 of the parameters have float32 states, from block `at` of those. */
struct SmallState {
        int begin, end, at;
};

struct States8 {
        unsigned char *m8, *v8; /* n */
        float *m_max, *v_max;   /* n / 256 */
        float *m, *v;           /* of the small */
};

/* The entry of the sorted map that is nearest to x, the lower one on a tie; |x| <= 1.
 * Decade k = 0 .. 6 of the map, from 10^(k-7) to 10^(k-6), has n = 2^k entries (unsigned: twice as
 * many) in the middles of equal parts, so arithmetic finds the part of x.  Where it is off by
 * rounding it is off by one, and x lies between that entry and the next one on its side: the two
 * are compared as they stand in the map.  *value: of the map. */
template <bool SIGNED>
TGC_DEV int nearest_entry(const float *map, float x, float *value)
{
        const float whole = 12582912.f; /* 1.5 * 2^23: a sum with it has the integer in low bits */
        const float y = fabsf(x);
        const float l = fminf(fmaxf(fast_log2(y) * 0.30103f + 7.f, 0.f), 6.75f) - 0.5f + whole;
        const float k = l - whole;
        const unsigned bits = (unsigned)__float_as_int(l) + (SIGNED ? 127u : 128u);
        const float n = __int_as_float((int)(bits << 23));
        const float part = (y * fast_exp2(19.931569f - k * 3.3219281f) - 0.1f) * (n * 1.1111111f);
        const float entry = fminf(fmaxf(part, 0.f), n - 0.25f) - 0.5f +
                            (n + (SIGNED ? 127.f : -1.f));
        int c = __float_as_int(entry + whole) & 255;
        if (SIGNED && x < 0.f)
                c = 254 - c;
        const float at = map[c];
        const int other = x >= at ? c + 1 : max(c - 1, 0);
        const float next = map[other];
        const bool above = x >= at; /* the entries on x's lower and upper side */
        const bool lower = above ? x - at <= next - x : x - next <= at - x;
        const bool stays = lower == above;
        *value = stays ? at : next;
        return stays ? c : other;
}

/* Eight states of a lane to bytes; the warp has the block. */
template <bool SIGNED>
TGC_DEV void store_states8(const float *map, unsigned char *to, float *absmax, const float (&x)[8],
                           int lane)
{
        float most = 0.f;
#pragma unroll
        for (int j = 0; j < 8; j++)
                most = fmaxf(most, fabsf(x[j]));
        most = warp_max(most);
        const float inverse = most > 0.f ? 1.f / most : 0.f;
        unsigned word[2] = { 0u, 0u };
#pragma unroll
        for (int j = 0; j < 8; j++) {
                float value;
                int c = nearest_entry<SIGNED>(map, x[j] * inverse, &value);
                if (SIGNED && x[j] != 0.f && (value < 0.f) != (x[j] < 0.f))
                        c += x[j] < 0.f ? -1 : 1;
                word[j / 4] |= (unsigned)c << (8 * (j % 4));
        }
        *(uint2 *)to = make_uint2(word[0], word[1]);
        if (lane == 0)
                *absmax = most;
}

TGC_DEV void load_states8(const float *map, const unsigned char *from, float absmax, float (&x)[8])
{
        const uint2 word = *(const uint2 *)from;
#pragma unroll
        for (int j = 0; j < 8; j++)
                x[j] = map[(j < 4 ? word.x : word.y) >> (8 * (j % 4)) & 255] * absmax;
}

/* The block's place among the float32 states, or -1. */
TGC_DEV int small_block(const SmallState *small, int n_small, int block)
{
        int lo = 0, hi = n_small;
        while (lo < hi) { /* the first that ends behind it */
                const int mid = (lo + hi) / 2;
                if (small[mid].end <= block)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo < n_small && small[lo].begin <= block ? small[lo].at + block - small[lo].begin
                                                        : -1;
}

template <int THREADS, bool SCALED, class Param>
TGC_DEV void adamw8bit_task(const Rt *rt, const Param &param, const States8 &s,
                            const SmallState *small, int n_small, const Grads &g, long long n_decay,
                            const float *norm, int tile, char *smem)
{
        float *map = (float *)smem;
        for (int i = (int)threadIdx.x; i < 512; i += THREADS)
                map[i] = dynamic_map[i];
        __syncthreads();
        const int lane = (int)threadIdx.x % 32,
                  block = tile * (THREADS / 32) + (int)threadIdx.x / 32;
        const long long i = (long long)block * 256 + lane * 8;
        pdl_wait();
        AdamW rule(rt);
        if (i >= g.n || !clip_factor<SCALED>(rt, norm, rule.grad))
                return;
        const int at = small_block(small, n_small, block);
        float p[2][4], m[8], v[8], vg[8];
        param.get(p[0], i);
        param.get(p[1], i + 4);
        if (at < 0) {
                load_states8(map, s.m8 + i, s.m_max[block], m);
                load_states8(map + 256, s.v8 + i, s.v_max[block], v);
        } else {
                load<8>(m, s.m + (long long)at * 256 + lane * 8);
                load<8>(v, s.v + (long long)at * 256 + lane * 8);
        }
        if (i >= g.n_low)
                load<8>(vg, g.rest + (i - g.n_low));
        else if (rt->n_micro > 1)
                load<8>(vg, g.sum + i);
        else
                load<8>(vg, g.low + i);
#pragma unroll
        for (int j = 0; j < 8; j++) {
                float x[2] = { m[j], v[j] };
                rule.element(p[j / 4][j % 4], x, vg[j], i + j < n_decay);
                m[j] = x[0];
                v[j] = x[1];
        }
        param.put(i, p[0]);
        param.put(i + 4, p[1]);
        if (at < 0) {
                store_states8<true>(map, s.m8 + i, s.m_max + block, m, lane);
                store_states8<false>(map + 256, s.v8 + i, s.v_max + block, v, lane);
        } else {
                store<8>(s.m + (long long)at * 256 + lane * 8, m);
                store<8>(s.v + (long long)at * 256 + lane * 8, v);
        }
}

#endif
