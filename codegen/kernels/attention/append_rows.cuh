/* append_rows.cuh: quantises the keys or values of new tokens and appends them to an 8-bit KV
 * cache (format: ir/fp8.c).
 *
 *      append_rows_task<K, D, THREADS>(cache, row_bytes, rows, tile, smem, prologue, place)
 *              rows (tokens, K) of D elements from the prologue; place(token) is the token's row of
 *              the cache.  ceil(rows / ROW_ROWS(D, THREADS)) tiles. */
#ifndef TGC_APPEND_ROWS_CUH
#define TGC_APPEND_ROWS_CUH

#include "row_part.cuh"

/* x (|x| <= 448) as E4M3, to nearest, ties to even. */
TGC_DEV unsigned fp8_code(float x)
{
        const unsigned bits = __float_as_uint(x), sign = bits >> 24 & 0x80,
                       mag = bits & 0x7fffffffu;
        if (mag < 0x3c800000u) /* below 2^-6: subnormal, a multiple of 2^-9 */
                return sign | (__float_as_uint(__uint_as_float(mag) + 0x1p14f) & 15);
        return sign | (((mag + 0x7ffffu + (mag >> 20 & 1)) >> 20) - (120u << 3));
}

/* The biased exponent of a row's scale; most: its largest magnitude. */
TGC_DEV unsigned fp8_exponent(float most)
{
        const unsigned bits = __float_as_uint(most);
        if (bits >= 0x7f800000u)
                return 255;
        /* most <= 1.75 * 2^e, which is 448 * 2^(e - 8) */
        const int e = (int)(bits >> 23) - 8 + ((bits & 0x7fffffu) > 0x600000u);
        return e < 127 - 14 ? 127 - 14 : e;
}

template <int K, int D, int THREADS, class Prologue, class Place>
TGC_DEV void append_rows_task(unsigned char *cache, long row_bytes, int rows, int tile, char *smem,
                              const Prologue &prologue, const Place &place)
{
        constexpr int V = vec_of(D, vec_min(Prologue::MAXV, 4));
        typedef RowPart<D, THREADS, V, true, Prologue> Part;
        static_assert(V >= Prologue::MINV, "append_rows: needs wider vectors than the row has");
        Part x(prologue, rows, D, tile);
        float most = 0.f;
        bool finite = true;
#pragma unroll
        for (int i = 0; i < Part::PER; i++)
                if (x.has(i))
#pragma unroll
                        for (int j = 0; j < V; j++) {
                                most = fmaxf(most, fabsf(x.at(i)[j]));
                                finite &= fabsf(x.at(i)[j]) <= 3.402823466e38f;
                        }
        most = lanes_max<Part::LANES, THREADS>(finite ? most : INFINITY, (float *)smem);
        if (x.row >= rows)
                return;
        const unsigned exponent = fp8_exponent(most);
        /* 2^-shift; the largest float has 247 */
        const float factor = __uint_as_float((254 - (exponent < 254 ? exponent : 127)) << 23);
        unsigned char *const to = cache + (long)place(x.row / K) * row_bytes;
        const int head = x.row % K;
#pragma unroll
        for (int i = 0; i < Part::PER; i++) {
                if (!x.has(i))
                        continue;
                unsigned w = 0;
#pragma unroll
                for (int j = 0; j < V; j++)
                        w |= (exponent == 255 ? 0u : fp8_code(x.at(i)[j] * factor)) << j * 8;
                unsigned char *p = to + head * D + x.col(i);
                TGC_ACCESS(p, V);
                if constexpr (V == 4)
                        *(unsigned *)p = w;
                else if constexpr (V == 2)
                        *(unsigned short *)p = (unsigned short)w;
                else
                        *p = (unsigned char)w;
        }
        if (x.lane == 0)
                to[K * D + head] = (unsigned char)exponent;
}

#endif
