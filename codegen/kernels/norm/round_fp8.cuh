/* round_fp8.cuh: quantises activations to e4m3 with scales (ir/fp8.c), for linears with fp8
 * weights.
 *
 *      round_fp8_task<N, G, THREADS>(rows, tile, smem, prologue, epilogue)
 *              rounds each group of G values of a row of N (the last may be shorter) to e4m3 times
 *              (largest magnitude / 448), and passes the rounded values on.  N is a multiple of 8,
 *              or G is N.  Tiles: rows * ceil(N/G) / ROW_ROWS(G, THREADS), rounded up.
 *      round_fp8_codes_task<N, G, THREADS>(to, ld, rows, tile, smem, prologue)
 *              writes rows of ld bytes: N codes, then a float32 scale per group; G divides N.  As
 *              many tiles.  A group with a value that is not finite has codes 0 and scale NaN.
 *
 * An e4m3 value is exact in bf16 and f16; times its scale it is rounded as all activations are. */
#ifndef TGC_ROUND_FP8_CUH
#define TGC_ROUND_FP8_CUH

#include "row_part.cuh"

/* x (|x| <= 448) to the nearest e4m3, ties to even. */
TGC_DEV float to_e4m3(float x)
{
        const unsigned bits = __float_as_uint(x), mag = bits & 0x7fffffffu;
        /* below 2^-6: adding 2^14 rounds to a multiple of 2^-9 */
        const float small = __uint_as_float(mag) + 0x1p14f - 0x1p14f;
        const unsigned large = (mag + 0x7ffffu + (mag >> 20 & 1)) & ~0xfffffu;
        return __uint_as_float((mag < 0x3c800000u ? __float_as_uint(small) : large) |
                               (bits & 0x80000000u));
}

/* The scale of a group; most: its largest magnitude.  NaN if a value is not finite. */
TGC_DEV float e4m3_scale(float most)
{
        return most == INFINITY ? __uint_as_float(0x7fc00000u) : fmaxf(most / 448.f, 0x1p-126f);
}

/* A prologue that makes rows of groups, PER per row of x.  Columns beyond x's end are 0. */
template <int N, int G, class Prologue>
struct GroupPrologue {
        static constexpr int MAXV = Prologue::MAXV, MINV = Prologue::MINV, PER = (N + G - 1) / G;
        const Prologue &prologue;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                const int c = row % PER * G + col;
                if (N % G == 0 || c < N) {
                        prologue(row / PER, c, v);
                } else {
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] = 0.f;
                }
        }
};

/* The scale of the group that the threads of `x` hold. */
template <int THREADS, int V, bool HOLD, class Part>
TGC_DEV float group_scale(Part &x, float *red)
{
        float most = 0.f;
        bool finite = true;
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < Part::PER; i++) {
                if (!x.has(i))
                        continue;
                float(&v)[V] = x.at(i);
#pragma unroll
                for (int j = 0; j < V; j++) {
                        most = fmaxf(most, fabsf(v[j]));
                        finite &= fabsf(v[j]) <= 3.402823466e38f;
                }
        }
        return e4m3_scale(lanes_max<Part::LANES, THREADS>(finite ? most : INFINITY, red));
}

template <int N, int G, int THREADS, class Prologue, class Epilogue>
TGC_DEV void round_fp8_task(int rows, int tile, char *smem, const Prologue &prologue,
                            const Epilogue &epilogue)
{
        typedef GroupPrologue<N, G, Prologue> Groups;
        constexpr int V = vec_of(G, vec_of(N, vec_min(Prologue::MAXV, Epilogue::MAXV))),
                      PER = Groups::PER;
        constexpr bool HOLD = RowPart<G, THREADS, V, true, Groups>::PER * V <= row_budget(THREADS);
        typedef RowPart<G, THREADS, V, HOLD, Groups> Part;
        static_assert(V >= Prologue::MINV && V >= Epilogue::MINV,
                      "round_fp8: needs wider vectors than the row has");
        const Groups groups = { prologue };
        Part x(groups, rows * PER, G, tile);
        const float scale = group_scale<THREADS, V, HOLD>(x, (float *)smem);
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < Part::PER; i++) {
                const int col = x.row % PER * G + x.col(i);
                if (!x.has(i) || (N % G != 0 && col >= N))
                        continue;
                float(&v)[V] = x.at(i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = to_e4m3(v[j] / scale) * scale;
                epilogue(x.row / PER, col, v);
        }
        if (Part::LANES > 32)
                __syncthreads();
}

/* The code of a value that to_e4m3 returned. */
TGC_DEV unsigned e4m3_code(float x)
{
        const unsigned bits = __float_as_uint(x), mag = bits & 0x7fffffffu,
                       small = __float_as_uint(__uint_as_float(mag) + 0x1p14f) & 15;
        return bits >> 24 & 0x80 | (mag < 0x3c800000u ? small : (mag >> 20) - (120u << 3));
}

template <int N, int G, int THREADS, class Prologue>
TGC_DEV void round_fp8_codes_task(unsigned char *to, long ld, int rows, int tile, char *smem,
                                  const Prologue &prologue)
{
        typedef GroupPrologue<N, G, Prologue> Groups;
        constexpr int V = vec_of(G, vec_min(Prologue::MAXV, 8)), PER = Groups::PER;
        constexpr bool HOLD = RowPart<G, THREADS, V, true, Groups>::PER * V <= row_budget(THREADS);
        typedef RowPart<G, THREADS, V, HOLD, Groups> Part;
        static_assert(V >= Prologue::MINV && N % G == 0 && N % 4 == 0,
                      "round_fp8: needs wider vectors than the row has");
        const Groups groups = { prologue };
        Part x(groups, rows * PER, G, tile);
        const float scale = group_scale<THREADS, V, HOLD>(x, (float *)smem);
        unsigned char *const row = to + (long)(x.row / PER) * ld;
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < Part::PER; i++) {
                if (!x.has(i))
                        continue;
                float(&v)[V] = x.at(i);
                unsigned w[(V + 3) / 4] = {};
#pragma unroll
                for (int j = 0; j < V; j++)
                        w[j / 4] |= (scale == scale ? e4m3_code(to_e4m3(v[j] / scale)) : 0u)
                                    << j % 4 * 8;
                unsigned char *p = row + x.row % PER * G + x.col(i);
                TGC_ACCESS(p, V);
                if constexpr (V == 8)
                        *(uint2 *)p = make_uint2(w[0], w[1]);
                else if constexpr (V == 4)
                        *(unsigned *)p = w[0];
                else
#pragma unroll
                        for (int j = 0; j < V; j++)
                                p[j] = (unsigned char)(w[0] >> 8 * j);
        }
        if (x.lane == 0 && x.end)
                *(float *)(row + N + x.row % PER * 4) = scale;
        if (Part::LANES > 32)
                __syncthreads();
}

#endif
