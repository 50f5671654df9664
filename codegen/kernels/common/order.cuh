/* order.cuh: floats as unsigned keys of the same order, so that "the largest,
 * lowest index on a tie" is one integer maximum.
 *
 * -0 equals 0, and NaN equals -inf.  A key with an index is never 0. */
#ifndef TGC_ORDER_CUH
#define TGC_ORDER_CUH

#include "tgc.cuh"

typedef unsigned long long u64;

TGC_DEV unsigned order_key(float x)
{
        x = x == x ? x + 0.f : -INFINITY;
        unsigned u = __float_as_uint(x);
        return u & 0x80000000u ? ~u : u | 0x80000000u;
}

TGC_DEV float order_value(unsigned k)
{
        return __uint_as_float(k & 0x80000000u ? k & 0x7fffffffu : ~k);
}

TGC_DEV u64 order_key_at(float x, int i) { return (u64)order_key(x) << 32 | (unsigned)~i; }
TGC_DEV int order_index(u64 k) { return (int)~(unsigned)k; }

TGC_DEV u64 shfl_xor_u64(u64 x, int d)
{
        unsigned hi = __shfl_xor_sync(0xffffffffu, (unsigned)(x >> 32), d);
        unsigned lo = __shfl_xor_sync(0xffffffffu, (unsigned)x, d);
        return (u64)hi << 32 | lo;
}

template <int LANES>
TGC_DEV u64 lanes_max_u64(u64 x)
{
#pragma unroll
        for (int d = LANES / 2; d; d >>= 1) {
                u64 y = shfl_xor_u64(x, d);
                x = x > y ? x : y;
        }
        return x;
}

TGC_DEV u64 warp_sum_u64(u64 x)
{
#pragma unroll
        for (int d = 16; d; d >>= 1)
                x += shfl_xor_u64(x, d);
        return x;
}

/* Maximum and sum over the block; red as in block_all (tgc.cuh). */
template <int THREADS>
TGC_DEV u64 block_max_u64(u64 x, u64 *red)
{
        return block_all<THREADS>(x, (u64)0, red, [](u64 y) { return lanes_max_u64<32>(y); });
}

template <int THREADS>
TGC_DEV u64 block_sum_u64(u64 x, u64 *red)
{
        return block_all<THREADS>(x, (u64)0, red, [](u64 y) { return warp_sum_u64(y); });
}

#endif
