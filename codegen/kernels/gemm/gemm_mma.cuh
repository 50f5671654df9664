/* gemm_mma.cuh: mainloops of gemm.cuh for 16-bit operands: mma.sync, and on sm_90a wgmma. */
#ifndef TGC_GEMM_MMA_CUH
#define TGC_GEMM_MMA_CUH

#include "gemm_operand.cuh"
#include "gemm_epilogue.cuh"

/* A fragments (16x16) at k = 16*ks of the stage, for a warp whose rows start at m0. */
template <bool KMAJOR, class Tile>
TGC_DEV void frag_a(unsigned (&f)[Tile::WM / 16][4], const char *panel, int m0, int ks)
{
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int i = 0; i < Tile::WM / 16; i++)
                if constexpr (KMAJOR)
                        ldmatrix_x4(f[i], panel + swizzle<Tile::BK>(m0 + i * 16 + (lane & 15),
                                                                    ks * 2 + (lane >> 4)));
                else
                        ldmatrix_x4_trans(f[i], panel + swizzle<Tile::BM>(ks * 16 + (lane & 7) +
                                                                                  (lane >> 4) * 8,
                                                                          m0 / 8 + i * 2 +
                                                                                  (lane >> 3 & 1)));
}

/* B fragments: f[j] holds two of 16x8, columns 16j.. and 16j+8.. */
template <bool KMAJOR, class Tile>
TGC_DEV void frag_b(unsigned (&f)[Tile::WN / 16][4], const char *panel, int n0, int ks)
{
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int j = 0; j < Tile::WN / 16; j++)
                if constexpr (KMAJOR)
                        ldmatrix_x4(f[j], panel + swizzle<Tile::BK>(n0 + j * 16 + (lane & 7) +
                                                                            (lane >> 4) * 8,
                                                                    ks * 2 + (lane >> 3 & 1)));
                else
                        ldmatrix_x4_trans(f[j],
                                          panel + swizzle<Tile::BN>(ks * 16 + (lane & 15),
                                                                    n0 / 8 + j * 2 + (lane >> 4)));
}

/* One tile of C over K-tiles [kt0, kt1).  Copies run STAGES-1 K-tiles ahead, fragments one k-step;
 * one barrier per K-tile. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, class PA, class PB, class Epilogue>
TGC_DEV void mma_tile(const PA &pa, const PB &pb, int kt0, int kt1, int M, int N, char *smem,
                      const Epilogue &epilogue)
{
        constexpr int MI = Tile::WM / 16, NJ = Tile::WN / 16, KS = Tile::BK / 16,
                      STAGES = Tile::STAGES;
        constexpr int STAGE = Tile::A_BYTES + Tile::B_BYTES;
        const int warp = threadIdx.x >> 5;
        const int m0 = warp / Tile::WARPS_N * Tile::WM, n0 = warp % Tile::WARPS_N * Tile::WN;
        float acc[MI][NJ * 2][4];
        unsigned fa[2][MI][4], fb[2][NJ][4];

#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < NJ * 2; j++)
                        acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0.f;

#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
                if (kt0 + s < kt1) {
                        panel_copy<1, false>(pa, smem + s * STAGE, (kt0 + s) * Tile::BK, 0);
                        panel_copy<1, false>(pb, smem + s * STAGE + Tile::A_BYTES,
                                             (kt0 + s) * Tile::BK, 0);
                }
                cp_async_commit();
        }
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        frag_a<!TRANS_A, Tile>(fa[0], smem, m0, 0);
        frag_b<TRANS_B, Tile>(fb[0], smem + Tile::A_BYTES, n0, 0);

        int now = 0, into = (STAGES - 1) * STAGE; /* byte offsets of the stages that are read and
                                                   * filled */
        for (int kt = kt0; kt < kt1; kt++) {
#pragma unroll
                for (int ks = 0; ks < KS; ks++) {
                        if (kt + STAGES - 1 < kt1) {
                                panel_copy<KS, false>(pa, smem + into, (kt + STAGES - 1) * Tile::BK,
                                                      ks);
                                panel_copy<KS, false>(pb, smem + into + Tile::A_BYTES,
                                                      (kt + STAGES - 1) * Tile::BK, ks);
                        }
                        if (ks == KS - 1) {
                                /* This warp has loaded its last fragments of the stage; once all
                                 * warps have, it may be refilled.  After the last K-tile the next
                                 * stage is stale and unused. */
                                cp_async_commit();
                                cp_async_wait<STAGES - 2>();
                                __syncthreads();
                                into = now;
                                now = now == (STAGES - 1) * STAGE ? 0 : now + STAGE;
                        }
                        frag_a<!TRANS_A, Tile>(fa[(ks + 1) & 1], smem + now, m0, (ks + 1) % KS);
                        frag_b<TRANS_B, Tile>(fb[(ks + 1) & 1], smem + now + Tile::A_BYTES, n0,
                                              (ks + 1) % KS);
#pragma unroll
                        for (int j = 0; j < NJ; j++)
#pragma unroll
                                for (int i = 0; i < MI; i++) {
                                        mma_16816<T>(acc[i][2 * j], fa[ks & 1][i], fb[ks & 1][j][0],
                                                     fb[ks & 1][j][1]);
                                        mma_16816<T>(acc[i][2 * j + 1], fa[ks & 1][i],
                                                     fb[ks & 1][j][2], fb[ks & 1][j][3]);
                                }
                }
        }
        mma_epilogue<Tile>(acc, pa.first + m0, pb.first + n0, M, N, epilogue);
        __syncthreads();
}

/* ---- 16-bit operands on sm_90a: wgmma ---------------------------------------- */

#ifdef TGC_SM90A

/* Descriptor of 16 of K at ks*16 of a panel whose C side starts at smem.  KMAJOR: rows of BK,
 * swizzled over 8 rows; else rows of 64 of C's side, in blocks of BK rows. */
template <bool KMAJOR, int BK>
TGC_DEV unsigned long long panel_desc(const char *smem, int ks)
{
        if constexpr (KMAJOR)
                return wgmma_desc(smem + ks * 32, 16, 8 * BK * 2,
                                  BK == 64 ? SWIZZLE_128 : SWIZZLE_64);
        else
                return wgmma_desc(smem + ks * 16 * 128, BK * 128, 1024, SWIZZLE_128);
}

/* mma_tile by wgmma.  Copies run AHEAD K-tiles in front: a stage is refilled once all warpgroups
 * have waited for the wgmmas that read it. */
template <class T, class Tile, bool TRANS_A, bool TRANS_B, class PA, class PB, class Epilogue>
TGC_DEV void wgmma_tile(const PA &pa, const PB &pb, int kt0, int kt1, int M, int N, char *smem,
                        const Epilogue &epilogue)
{
        constexpr int STAGES = Tile::STAGES, STAGE = Tile::A_BYTES + Tile::B_BYTES,
                      AHEAD = STAGES - 1 - Tile::PENDING;
        /* bytes of 64 rows of A */
        constexpr int BLOCK = 64 * Tile::BK * 2, LAST = (STAGES - 1) * STAGE;
        const int warp = threadIdx.x >> 5;
        float d[Tile::BN / 2], acc[1][Tile::BN / 8][4];

#pragma unroll
        for (int i = 0; i < Tile::BN / 2; i++)
                d[i] = 0.f;
#pragma unroll
        for (int s = 0; s < AHEAD; s++) {
                if (kt0 + s < kt1) {
                        panel_copy<1, true>(pa, smem + s * STAGE, (kt0 + s) * Tile::BK, 0);
                        panel_copy<1, true>(pb, smem + s * STAGE + Tile::A_BYTES,
                                            (kt0 + s) * Tile::BK, 0);
                }
                cp_async_commit();
        }
        int now = 0, into = AHEAD * STAGE; /* byte offsets of the stages that are read and filled */
        for (int kt = kt0; kt < kt1; kt++) {
                cp_async_wait<AHEAD - 1>();
                fence_proxy_async();
                __syncthreads();
                const char *a = smem + now + warp / 4 * BLOCK, *b = smem + now + Tile::A_BYTES;
                wgmma_fence();
#pragma unroll
                for (int ks = 0; ks < Tile::BK / 16; ks++)
                        wgmma<TRANS_A, !TRANS_B>(d, panel_desc<!TRANS_A, Tile::BK>(a, ks),
                                                 panel_desc<TRANS_B, Tile::BK>(b, ks), 1, T());
                wgmma_commit();
                if (kt + AHEAD < kt1) {
                        panel_copy<1, true>(pa, smem + into, (kt + AHEAD) * Tile::BK, 0);
                        panel_copy<1, true>(pb, smem + into + Tile::A_BYTES,
                                            (kt + AHEAD) * Tile::BK, 0);
                }
                cp_async_commit();
                wgmma_wait<Tile::PENDING>();
                now = now == LAST ? 0 : now + STAGE;
                into = into == LAST ? 0 : into + STAGE;
        }
        wgmma_wait<0>();
        wgmma_hold(d);
#pragma unroll
        for (int i = 0; i < Tile::BN / 2; i++)
                acc[0][i / 4][i % 4] = d[i];
        mma_epilogue<Tile>(acc, pa.first + warp * 16, pb.first, M, N, epilogue);
        __syncthreads();
}

#endif

#endif
