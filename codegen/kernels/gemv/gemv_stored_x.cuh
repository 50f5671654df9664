/* gemv_stored_x.cuh: rows of x in fixed point, as gemv_stored.cuh multiplies them.
 *
 *      DotX           where digits and scales lie in shared memory
 *      dot_x_put      eight values
 *      dot_x_fill     rows through the prologue, and their sums of squares
 *
 * 32 neighbouring values share a power-of-two scale, chosen by the largest of them.  An integer has
 * DIGITS bytes (base-256 digits, the first signed).  Two digits are finer than bf16 and f16; three
 * match float32 relative to the largest of 32. */
#ifndef TGC_GEMV_STORED_X_CUH
#define TGC_GEMV_STORED_X_CUH

#include "gemv_prologue.cuh"
#include "gemv_stored_ring.cuh"
#include "stored_dot.cuh"

/* x in shared memory, KC of K at a time.  A row: DIGITS planes of bytes, then for each lane's run
 * two floats, the scale and scale * sum of its integers.  The units e of all lanes are neighbours,
 * so lanes read without bank conflicts; so are runs, in pairs. */
template <class S, int M, int K, int DIGITS>
struct DotX {
        typedef DotOf<S> D;
        typedef DotStep<S, K> Step;
        static constexpr int ALL = Step::STEPS * Step::VALUES, MOST = 49152 / M;
        static constexpr int PAIRED = D::RUNS > 1 ? 2 : 1; /* runs stored side by side */
        static constexpr int BYTES_OF_STEP = Step::VALUES * DIGITS + 32 * D::RUNS * 8;
        static constexpr int FIT = MOST / BYTES_OF_STEP < 1 ? 1 : MOST / BYTES_OF_STEP;
        static constexpr int KC = FIT < Step::STEPS ? FIT * Step::VALUES : ALL;
        static constexpr int LANES = KC / 16 / D::UNITS, PLANE = KC;
        static constexpr int ROW = KC * DIGITS + LANES * D::RUNS * 8;
        static_assert(DIGITS == 2 || DIGITS == 3, "digits of x");

        static __device__ __forceinline__ char *digits(char *x, int m, int digit, int e, int lane)
        {
                return x + m * ROW + digit * PLANE + (e * LANES + lane) * 16;
        }
        static __device__ __forceinline__ float *scales(char *x, int m, int run, int lane)
        {
                return (float *)(x + m * ROW + DIGITS * PLANE +
                                 (run / PAIRED * LANES + lane) * (8 * PAIRED)) +
                       run % PAIRED * 2;
        }
};

/* Converts v = x[m][k0 + k .. +7] to fixed point and stores it.  Four neighbouring threads hold
 * the 32 values that share a scale.  there: false behind K; the thread still takes part in the
 * shuffles. */
template <class X, int DIGITS>
TGC_DEV void dot_x_put(char *x, int m, int k, const float (&v)[8], bool there)
{
        typedef typename X::D D;
        /* magnitudes as bits: NaN and infinity compare largest */
        unsigned most = 0, sum = 0;
        int n[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
                const unsigned size = __float_as_uint(v[j]) & 0x7fffffffu;
                most = size > most ? size : most;
        }
#pragma unroll
        for (int d = 1; d <= 2; d *= 2) {
                const unsigned other = __shfl_xor_sync(0xffffffffu, most, d);
                most = other > most ? other : most;
        }
        /* 2^power: the least power of two with largest < 2^power * 2^(8 DIGITS - 1) */
        constexpr int FINE = 8 * DIGITS - 2;
        int power = (int)(most >> 23) - FINE;
        power = power < 1 ? 1 : power;
        const float inverse = __uint_as_float((unsigned)(254 - power) << 23);
#pragma unroll
        for (int j = 0; j < 8; j++) {
                /* adding 1.5 * 2^23 leaves the integer in the low bits */
                if constexpr (DIGITS == 2)
                        n[j] = (int)(__float_as_uint(fmaf(v[j], inverse, 12582912.f)) -
                                     0x4b400000u);
                else
                        n[j] = __float2int_rn(v[j] * inverse);
                n[j] = n[j] > (2 << FINE) - 1 ? (2 << FINE) - 1 : n[j];
                sum += (unsigned)n[j];
        }
        constexpr int PER = D::UNITS / D::RUNS; /* units per run */
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        if (PER == 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (!there)
                return;
        const int unit = k / 16, e = D::part_of(unit), lane = D::lane_of(unit);
        const float scale = __uint_as_float(most < 0x7f800000u ? (unsigned)power << 23
                                                               : 0x7fc00000u);
#pragma unroll
        for (int digit = 0; digit < DIGITS; digit++) {
                unsigned w[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const unsigned at = (unsigned)(DIGITS - 1 - digit),
                                       take = at | (at + 4) << 4;
                        const unsigned a = __byte_perm((unsigned)n[4 * i], (unsigned)n[4 * i + 1],
                                                       take),
                                       b = __byte_perm((unsigned)n[4 * i + 2],
                                                       (unsigned)n[4 * i + 3], take);
                        w[i] = __byte_perm(a, b, 0x5410);
                }
                *(uint2 *)(X::digits(x, m, digit, e, lane) + k % 16) = { w[0], w[1] };
        }
        if (k % (16 * PER) == 0) {
                float *to = X::scales(x, m, e / PER, lane);
                to[0] = scale;
                to[1] = scale * (float)(int)sum;
        }
}

/* Fills x[m][k0 .. k0+KC) through the prologue.  square[m] += squares of this thread's elements.
 * With NORM_RMS gain only multiplies.  Units behind K are not written: no lane reads them. */
template <class X, int M, int K, int DIGITS, int THREADS, int NORM, class Prologue, class Gain>
TGC_DEV void dot_x_fill(char *x, int row0, int k0, float (&square)[M], const Prologue &prologue,
                        const Gain &gain)
{
#pragma unroll 1
        for (int m = 0; m < M; m++) {
                const float q = x_row<(X::KC < K ? X::KC : K), 4, THREADS, NORM>(
                        row0 + m, k0, prologue, gain,
                        [&](int k) { return k < X::KC && k0 + k < K; },
                        [&](int k, const float(&v)[8], bool there) {
                                dot_x_put<X, DIGITS>(x, m, k, v, there);
                        });
#pragma unroll
                for (int i = 0; i < M; i++)
                        if (i == m)
                                square[i] += q;
        }
}

#endif
