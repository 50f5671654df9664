/* codes_pairs.cuh: a lane's eight codes (stored_codes.cuh) as packed pairs of bf16 or f16, for an
 * mma whose sums are scaled afterwards.
 *
 *      codes_as<T, C>(w, y)    codes + code_base<T>(), for codes below 128; exact
 *      codes_pairs<T, C>(w, y) values without the chunk's scale, if codes_have_pairs<C>().  Exact,
 *                              except for NF4 and FP4 (rounded to T) and, in bf16, zero points
 *                              above 128.
 *      w[i][j]                 values 4i + 2j and 4i + 2j + 1 */
#ifndef TGC_CODES_PAIRS_CUH
#define TGC_CODES_PAIRS_CUH

#include "stored_codes.cuh"

template <class T, class U>
struct SameType {
        static constexpr bool value = false;
};
template <class T>
struct SameType<T, T> {
        static constexpr bool value = true;
};

/* code_base has zeros where a code's bits go; code_high is its upper byte. */
template <class T>
TGC_DEV constexpr float code_base()
{
        return SameType<T, bf16>::value ? 128.f : 1024.f;
}
template <class T>
TGC_DEV constexpr unsigned code_high()
{
        return SameType<T, bf16>::value ? 0x43 : 0x64;
}

template <class T>
TGC_DEV unsigned code_pair(unsigned word, int j)
{
        return __byte_perm(word, code_high<T>(), j ? 0x4342 : 0x4140);
}

template <class T>
TGC_DEV void codes_as(unsigned (&w)[2][2], const Codes &y)
{
#pragma unroll
        for (int i = 0; i < 4; i++)
                w[i / 2][i % 2] = code_pair<T>(y.code[i / 2], i % 2);
}

template <class C>
TGC_DEV constexpr bool codes_have_pairs()
{
        return !C::HALVES && !C::MINIMA;
}

template <class T, class C>
TGC_DEV void codes_pairs(unsigned (&w)[2][2], const Codes &y)
{
        if constexpr (C::VALUE) {
                C::template pairs<T>(w, y);
        } else if constexpr (C::WIDE && SameType<T, bf16>::value) {
                /* 0x4300 | u is the bf16 128 + u if u < 128, else 2 u.  x = that - 256 is u - 128
                 * if negative, else 2 (u - 128). */
                const unsigned one = pack2<T>(1.f, 1.f), less = pack2<T>(-256.f, -256.f),
                               half = pack2<T>(.5f, .5f);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const unsigned x = fma2<T>(code_pair<T>(y.code[i / 2], i % 2), one, less);
                        w[i / 2][i % 2] = min2_bf16(x, fma2<T>(x, half, 0x80008000u));
                }
        } else {
                const float less = -(code_base<T>() + C::ZERO) - (C::ZEROS ? y.zero : 0.f);
                const unsigned one = pack2<T>(1.f, 1.f), base = pack2<T>(less, less);
                codes_as<T>(w, y);
#pragma unroll
                for (int i = 0; i < 4; i++)
                        w[i / 2][i % 2] = fma2<T>(w[i / 2][i % 2], one, base);
        }
}

#endif
