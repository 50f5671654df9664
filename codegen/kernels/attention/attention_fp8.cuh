/* attention_fp8.cuh: converts an 8-bit KV cache (format: ir/fp8.c) to attention's type.
 *
 *      Fp8Row                  codes of one head of one token, and where its exponent lies
 *      fp8_read<V, PAST_L1>    V elements from a column on, as floats
 *      fp8_pieces<E>           four codes as E, two per word
 *
 * A code's bits, shifted into an f16, are 2^-8 times its value; shifted into a bf16, 2^-120 times.
 * Multiplying by a power of two restores the value exactly.  So sm_80 and up compute the same,
 * without sm_89's conversions. */
#ifndef TGC_ATTENTION_FP8_CUH
#define TGC_ATTENTION_FP8_CUH

#include "e4m3.cuh"

struct Fp8Row {
        const unsigned char *p;
        int aside; /* p[aside] is the exponent's byte */
        __device__ __forceinline__ Fp8Row operator+(long n) const { return { p + n, aside }; }
        /* The word with the exponent, and its position in that word. */
        __device__ __forceinline__ const unsigned *word() const
        {
                return (const unsigned *)((unsigned long long)(p + aside) & ~3ull);
        }
        __device__ __forceinline__ int shift() const
        {
                return (int)((unsigned long long)(p + aside) & 3) * 8;
        }
};

/* 2^(exponent - 127); NaN if the row held something that was not finite. */
TGC_DEV float fp8_scale(unsigned exponent)
{
        return __uint_as_float(exponent == 255 ? 0x7fc00000u : exponent << 23);
}

/* PAST_L1: bypass L1, as neighbouring rows may still be written. */
template <bool PAST_L1>
TGC_DEV float fp8_scale(Fp8Row row)
{
        TGC_ACCESS(row.word(), 4);
        const unsigned w = PAST_L1 ? load_l2(row.word()) : *row.word();
        return fp8_scale(w >> row.shift() & 255);
}

template <class E>
struct Fp8Factors {
        unsigned up, scale;
        __device__ __forceinline__ Fp8Factors(float s)
            : up(pack2<E>(E4m3<E>::UP, E4m3<E>::UP)), scale(pack2<E>(s, s))
        {
        }
};

/* Four codes as four 16-bit E. */
template <class E>
TGC_DEV void fp8_pieces(unsigned w, const Fp8Factors<E> &f, unsigned &lo, unsigned &hi)
{
        constexpr unsigned zero = 0x80008000u; /* -0: adding it keeps the sign of zeros */
        lo = fma2<E>(fma2<E>(e4m3_pair<E>(w, 0), f.up, zero), f.scale, zero);
        hi = fma2<E>(fma2<E>(e4m3_pair<E>(w, 2), f.up, zero), f.scale, zero);
}

/* The first V of four codes as floats. */
template <int V>
TGC_DEV void fp8_floats(unsigned w, float scale, float *u)
{
        float v[4];
        unpack2<f16>(e4m3_pair<f16>(w, 0), v[0], v[1]);
        unpack2<f16>(e4m3_pair<f16>(w, 2), v[2], v[3]);
#pragma unroll
        for (int j = 0; j < V; j++)
                u[j] = v[j] * E4m3<f16>::UP * scale;
}

/* Loads V codes (1, 2, 4 or 8) as words. */
template <int V, bool PAST_L1>
TGC_DEV void fp8_codes(const unsigned char *p, unsigned (&w)[(V + 3) / 4])
{
        TGC_ACCESS(p, V);
        if constexpr (V == 8) {
                const uint2 x = PAST_L1 ? load_l2((const uint2 *)p) : *(const uint2 *)p;
                w[0] = x.x;
                w[1] = x.y;
        } else if constexpr (V == 4) {
                w[0] = PAST_L1 ? load_l2((const unsigned *)p) : *(const unsigned *)p;
        } else if constexpr (V == 2) {
                w[0] = PAST_L1 ? load_l2((const unsigned short *)p) : *(const unsigned short *)p;
        } else {
                w[0] = PAST_L1 ? load_l2(p) : *p;
        }
}

template <bool PAST_L1, int V>
TGC_DEV void fp8_read(float (&u)[V], Fp8Row row, int col)
{
        unsigned w[(V + 3) / 4];
        const float scale = fp8_scale<PAST_L1>(row);
        fp8_codes<V, PAST_L1>(row.p + col, w);
#pragma unroll
        for (int i = 0; i < (V + 3) / 4; i++)
                fp8_floats<(V < 4 ? V : 4)>(w[i], scale, u + i * 4);
}

/* Eight codes as eight 16-bit E. */
template <class E>
TGC_DEV uint4 fp8_chunk(uint2 codes, float scale)
{
        const Fp8Factors<E> f(scale);
        uint4 x;
        fp8_pieces<E>(codes.x, f, x.x, x.y);
        fp8_pieces<E>(codes.y, f, x.z, x.w);
        return x;
}

/* 16 bytes of E from a column on. */
template <class E, bool PAST_L1>
TGC_DEV uint4 fp8_get16(Fp8Row row, int col)
{
        if constexpr (sizeof(E) == 4) {
                float u[4];
                fp8_read<PAST_L1>(u, row, col);
                return { __float_as_uint(u[0]), __float_as_uint(u[1]), __float_as_uint(u[2]),
                         __float_as_uint(u[3]) };
        } else {
                unsigned w[2];
                fp8_codes<8, PAST_L1>(row.p + col, w);
                return fp8_chunk<E>({ w[0], w[1] }, fp8_scale<PAST_L1>(row));
        }
}

#endif
