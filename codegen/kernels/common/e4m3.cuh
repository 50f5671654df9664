/* e4m3.cuh: E4M3 codes to bf16 or f16, exact.
 *
 *      e4m3_pair<E>(w, j)      bytes j and j + 1 of w (j: 0 or 2), times 1 / E4m3<E>::UP, packed
 *      E4m3<E>::UP             2^120 for bf16, 2^8 for f16: a power of two that E holds
 *      e4m3_nan(w)             nonzero if w has a NaN code, 0x7f or 0xff; e4m3_pair makes it 480
 *
 * The 4 exponent bits become the low exponent bits of E without a change of bias, hence UP;
 * subnormals stay subnormal. */
#ifndef TGC_E4M3_CUH
#define TGC_E4M3_CUH

#include "ptx.cuh"

template <class E>
struct E4m3;
template <>
struct E4m3<bf16> {
        static constexpr float UP = 0x1p120f;
        static constexpr int SHIFT = 4;
        static constexpr unsigned KEPT = 0x87f087f0u;
};
template <>
struct E4m3<f16> {
        static constexpr float UP = 256.f;
        static constexpr int SHIFT = 7;
        static constexpr unsigned KEPT = 0xbf80bf80u;
};

template <class E>
TGC_DEV unsigned e4m3_pair(unsigned w, int j)
{
        /* sign extension left copies of the sign above the code */
        return extend_bytes(w, j) << E4m3<E>::SHIFT & E4m3<E>::KEPT;
}

TGC_DEV unsigned e4m3_nan(unsigned w) { return ((w & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u; }

#endif
