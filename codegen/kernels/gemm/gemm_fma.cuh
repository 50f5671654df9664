/* gemm_fma.cuh: mainloop of gemm.cuh by float32 FMA, without tensor cores. */
#ifndef TGC_GEMM_FMA_CUH
#define TGC_GEMM_FMA_CUH

#include "gemm_operand.cuh"

/* A float32 K-tile from global memory to registers, and from there to shared memory with K
 * outermost: s[k][index on C's side], rows of LD floats. */
template <class P>
TGC_DEV void panel_fetch(const P &p, float (&r)[P::COPIES][P::UNIT], int k0)
{
#pragma unroll
        for (int i = 0; i < P::COPIES; i++) {
                const float *from;
                if (p.source(i, k0, from)) {
                        load<P::UNIT>(r[i], from);
                } else {
#pragma unroll
                        for (int j = 0; j < P::UNIT; j++)
                                r[i][j] = 0.f;
                }
        }
}

template <bool KMAJOR, int LD, class P>
TGC_DEV void panel_put(const P &, const float (&r)[P::COPIES][P::UNIT], float *s)
{
#pragma unroll
        for (int i = 0; i < P::COPIES; i++)
                if constexpr (KMAJOR) {
#pragma unroll
                        for (int j = 0; j < P::UNIT; j++)
                                s[(P::col(i) + j) * LD + P::row(i)] = r[i][j];
                } else {
                        store<P::UNIT>(s + P::row(i) * LD + P::col(i), r[i]);
                }
}

/* A lane's rows are blocks of 4, 16 apart; its columns blocks of VN, 8*VN apart. */
template <class Tile, bool TRANS_A, bool TRANS_B, class PA, class PB, class Epilogue>
TGC_DEV void fma_tile(const PA &pa, const PB &pb, int kt0, int kt1, int M, int N, char *smem,
                      const Epilogue &epilogue)
{
        constexpr int TM = Tile::WM / 4, TN = Tile::WN / 8, VN = TN < 4 ? TN : 4;
        constexpr int STAGE = Tile::BK * (Tile::LDA + Tile::LDB);
        constexpr int V = Epilogue::MAXV < VN ? Epilogue::MAXV : VN;
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
        const int m0 = warp / Tile::WARPS_N * Tile::WM + lane / 8 * 4;
        const int n0 = warp % Tile::WARPS_N * Tile::WN + lane % 8 * VN;
        float acc[TM][TN], ra[PA::COPIES][PA::UNIT], rb[PB::COPIES][PB::UNIT];
        float *s = (float *)smem;

#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                        acc[i][j] = 0.f;

        if (kt0 < kt1) {
                panel_fetch(pa, ra, kt0 * Tile::BK);
                panel_fetch(pb, rb, kt0 * Tile::BK);
                panel_put<!TRANS_A, Tile::LDA>(pa, ra, s);
                panel_put<TRANS_B, Tile::LDB>(pb, rb, s + Tile::BK * Tile::LDA);
        }
        __syncthreads();
        for (int kt = kt0; kt < kt1; kt++) {
                const float *sa = s + ((kt - kt0) & 1) * STAGE, *sb = sa + Tile::BK * Tile::LDA;
                float *next = s + ((kt - kt0 + 1) & 1) * STAGE;
                if (kt + 1 < kt1) {
                        panel_fetch(pa, ra, (kt + 1) * Tile::BK);
                        panel_fetch(pb, rb, (kt + 1) * Tile::BK);
                }
#pragma unroll
                for (int k = 0; k < Tile::BK; k++) {
                        float a[TM / 4][4], b[TN / VN][VN];
#pragma unroll
                        for (int i = 0; i < TM / 4; i++)
                                load<4>(a[i], sa + k * Tile::LDA + m0 + i * 16);
#pragma unroll
                        for (int j = 0; j < TN / VN; j++)
                                load<VN>(b[j], sb + k * Tile::LDB + n0 + j * 8 * VN);
#pragma unroll
                        for (int i = 0; i < TM; i++)
#pragma unroll
                                for (int j = 0; j < TN; j++)
                                        acc[i][j] = fmaf(a[i / 4][i % 4], b[j / VN][j % VN],
                                                         acc[i][j]);
                }
                if (kt + 1 < kt1) {
                        panel_put<!TRANS_A, Tile::LDA>(pa, ra, next);
                        panel_put<TRANS_B, Tile::LDB>(pb, rb, next + Tile::BK * Tile::LDA);
                }
                __syncthreads();
        }

#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j += V) {
                        const int row = pa.first + m0 + i / 4 * 16 + i % 4;
                        const int col = pb.first + n0 + j / VN * 8 * VN + j % VN;
                        if (row < M && col < N) {
                                float v[V];
#pragma unroll
                                for (int x = 0; x < V; x++)
                                        v[x] = acc[i][j + x];
                                epilogue(row, col, v);
                        }
                }
}

#endif
