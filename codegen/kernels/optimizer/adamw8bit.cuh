/* adamw8bit.cuh: AdamW with 8-bit states (Dettmers et al., ICLR 2022; bitsandbytes' AdamW8bit).
 *
 *      adamw8bit_task<THREADS, SCALED>(rt, param, states, small, n_small, g, n_decay, norm, tile,
 *              tiles, smem)
 *              adamw.cuh's step.  States m and v of a block of 256 neighbouring elements are bytes,
 *              entries of dynamic_map.h, times the block's largest magnitude (absmax).  Small
 *              parameters (fewer than 4096 elements) keep float32: `small` lists their blocks, in
 *              order.  A stored m keeps its sign even if it rounds to 0.
 *
 * A warp has a block at a time; tiles: any number.  n, n_low, n_decay and the start of every
 * parameter are multiples of 256.  shared memory: ADAMW8BIT_SMEM. */
#ifndef TGC_ADAMW8BIT_CUH
#define TGC_ADAMW8BIT_CUH

#include "adamw.cuh"
#include "dynamic_map.h"

/* Ranges of [0, 1] by a float's bits, 128 per power of two from 2^-23 on: no range contains two
 * midpoints of neighbouring entries. */
enum { MAP_RANGES = 23 * 128 + 1, MAP_FIRST = (127 - 23) * 128 };
#define ADAMW8BIT_SMEM (2 * 512 * 4 + (2 * MAP_RANGES + 14) / 16 * 16)

__device__ const float dynamic_map[512] = { DYNAMIC_SIGNED, DYNAMIC_UNSIGNED };

/* Blocks begin .. end - 1 of the parameters have float32 states, from block `at` of those on. */
struct SmallState {
        int begin, end, at;
};

struct States8 {
        unsigned char *m8, *v8; /* n */
        float *m_max, *v_max;   /* n / 256 */
        float *m, *v;           /* of the small parameters */
};

/* The map in shared memory, and the search for the nearest entry: the value's range names an
 * entry, and the midpoint between that and the next one decides. */
struct Map8 {
        float *map, *middle;
        unsigned char *first;
        __device__ Map8(char *smem)
            : map((float *)smem), middle((float *)smem + 512), first((unsigned char *)smem + 4096)
        {
        }
        /* Called by all threads; ends with a barrier. */
        template <int THREADS>
        __device__ void fill() const
        {
                for (int i = (int)threadIdx.x; i < 512; i += THREADS) {
                        const float x = dynamic_map[i];
                        map[i] = x;
                        middle[i] = i % 256 == 255 ? INFINITY : 0.5f * (x + dynamic_map[i + 1]);
                }
                __syncthreads();
                for (int i = (int)threadIdx.x; i < 2 * MAP_RANGES; i += THREADS) {
                        const int half = i >= MAP_RANGES, range = i - half * MAP_RANGES;
                        const float begin = range ? __int_as_float((range + MAP_FIRST) << 16) : 0.f;
                        int lo = half ? 0 : 127, hi = 255; /* the first entry whose midpoint the
                                                            * range reaches */
                        while (lo < hi) {
                                const int mid = (lo + hi) / 2;
                                if (middle[half * 256 + mid] < begin)
                                        lo = mid + 1;
                                else
                                        hi = mid;
                        }
                        first[i] = (unsigned char)lo;
                }
                __syncthreads();
        }
        /* |x| <= 1.  SIGNED (moments): the map is symmetric about entry 127, which is 0; but entry
         * 1 has no mirror image, and a value below 0 keeps its sign. */
        template <bool SIGNED>
        __device__ __forceinline__ int nearest(float x) const
        {
                const bool minus = SIGNED && x < 0.f;
                const int bits = __float_as_int(x) & 0x7fffffff,
                          range = min(max(bits >> 16, (int)MAP_FIRST), MAP_FIRST + MAP_RANGES - 1) -
                                  MAP_FIRST;
                int c = first[range + (SIGNED ? 0 : MAP_RANGES)];
                /* a tie takes the lower entry */
                c += bits + minus > __float_as_int(middle[c + (SIGNED ? 0 : 256)]);
                return minus ? 254 - min(max(c, 128), 254) : c;
        }
        template <bool SIGNED>
        __device__ __forceinline__ void load8(uint2 word, float absmax, float (&x)[8]) const
        {
#pragma unroll
                for (int j = 0; j < 8; j++)
                        x[j] = map[((j < 4 ? word.x : word.y) >> (8 * (j % 4)) & 255) +
                                   (SIGNED ? 0 : 256)] *
                               absmax;
        }
        /* Encodes eight states of each lane; the warp has the block. */
        template <bool SIGNED>
        __device__ __forceinline__ void store8(unsigned char *to, float *absmax,
                                               const float (&x)[8], int lane) const
        {
                float most = 0.f;
#pragma unroll
                for (int j = 0; j < 8; j++)
                        most = fmaxf(most, fabsf(x[j]));
                most = warp_max(most);
                const float inverse = most > 0.f ? __fdividef(1.f, most) : 0.f;
                unsigned word[2] = { 0u, 0u };
#pragma unroll
                for (int j = 0; j < 8; j++)
                        word[j / 4] |= (unsigned)nearest<SIGNED>(x[j] * inverse) << (8 * (j % 4));
                *(uint2 *)to = make_uint2(word[0], word[1]);
                if (lane == 0)
                        *absmax = most;
        }
};

/* The block's index among the float32 states, or -1. */
TGC_DEV int small_block(const SmallState *small, int n_small, int block)
{
        int lo = 0, hi = n_small;
        while (lo < hi) { /* the first that ends behind the block */
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
                            const float *norm, int tile, int tiles, char *smem)
{
        const Map8 map(smem);
        map.fill<THREADS>();
        const int lane = (int)threadIdx.x % 32, warps = THREADS / 32, blocks = (int)(g.n / 256);
        pdl_wait();
        AdamW rule(rt);
        if (!clip_factor<SCALED>(rt, norm, rule.grad))
                return;
        const bool sums = rt->n_micro > 1;
        const int first_small = n_small > 0 ? small[0].begin
                                            : blocks; /* most blocks lie behind the small ones */
#pragma unroll 1
        for (int block = tile * warps + (int)threadIdx.x / 32; block < blocks;
             block += tiles * warps) {
                const long long i = (long long)block * 256 + lane * 8;
                float p[8], m[8], v[8], vg[8];
                const uint2 m8 = *(const uint2 *)(s.m8 + i), v8 = *(const uint2 *)(s.v8 + i);
                const float m_max = s.m_max[block], v_max = s.v_max[block];
                param.get(p, i);
                if (i >= g.n_low)
                        load<8>(vg, g.rest + (i - g.n_low));
                else if (sums)
                        load<8>(vg, g.sum + i);
                else
                        load<8>(vg, g.low + i);
                const int at = block < first_small ? -1 : small_block(small, n_small, block);
                if (at < 0) {
                        map.load8<true>(m8, m_max, m);
                        map.load8<false>(v8, v_max, v);
                } else {
                        load<8>(m, s.m + (long long)at * 256 + lane * 8);
                        load<8>(v, s.v + (long long)at * 256 + lane * 8);
                }
                const bool decay = i < n_decay;
#pragma unroll
                for (int j = 0; j < 8; j++) {
                        float x[2] = { m[j], v[j] };
                        rule.element(p[j], x, vg[j], decay);
                        m[j] = x[0];
                        v[j] = x[1];
                }
                param.put(i, p);
                if (at < 0) {
                        map.store8<true>(s.m8 + i, s.m_max + block, m, lane);
                        map.store8<false>(s.v8 + i, s.v_max + block, v, lane);
                } else {
                        store<8>(s.m + (long long)at * 256 + lane * 8, m);
                        store<8>(s.v + (long long)at * 256 + lane * 8, v);
                }
        }
}

#endif
