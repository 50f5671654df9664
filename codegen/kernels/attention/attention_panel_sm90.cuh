/* attention_panel_sm90.cuh: tokens of one head in shared memory on Hopper (sm_90a), for attention's
 * forward and backward kernels.
 *
 * Operands come through tensor maps of 64 x 64 boxes, 128-byte swizzle, as gemm_sm90.cuh says.  A
 * map's rows are the tokens of all sequences, b*T + t, or of a cache; its columns hold all heads.
 * A box that reaches past a sequence's end brings the next one's rows: scores there must be masked,
 * and a row of v counts with probability 0 (it must be finite, or COUNTED: then it is cleared). */
#ifndef TGC_ATTENTION_PANEL_SM90_CUH
#define TGC_ATTENTION_PANEL_SM90_CUH

#include "attention.cuh"
#ifdef TGC_SM90A
#include "gemm.cuh"
#include "pipeline_sm90.cuh"

/* ROWS tokens of one head in shared memory, 1024-byte aligned: boxes of 64 rows of 128 bytes, those
 * of the same columns after one another. */
template <int ROWS, int D>
struct AttPanel {
        static constexpr int BYTES = ROWS * D * 2;

        /* By one thread; BYTES arrive at bar. */
        static __device__ __forceinline__ void load(char *panel, const AttMap &m, int head, int row,
                                                    Mbar *bar)
        {
                const int col = m.col + head * m.head;
#pragma unroll
                for (int c = 0; c < D / 64; c++)
#pragma unroll
                        for (int r = 0; r < ROWS / 64; r++)
                                tma_load_2d(panel + (c * (ROWS / 64) + r) * 8192, m.map, bar,
                                            col + c * 64, row + r * 64);
        }
        /* Of pages, the first of which is *page; from the n-th on there are none, and page 0, which
         * is nobody's, comes instead. */
        static __device__ __forceinline__ void load_pages(char *panel, const AttMap &m, int head,
                                                          const int *page, int n, Mbar *bar)
        {
                const int col = m.col + head * m.head;
#pragma unroll
                for (int r = 0; r < ROWS / 64; r++) {
                        const int row = (r < n ? page[r] : 0) * 64;
#pragma unroll
                        for (int c = 0; c < D / 64; c++)
                                tma_load_2d(panel + (c * (ROWS / 64) + r) * 8192, m.map, bar,
                                            col + c * 64, row);
                }
        }

        /* As an operand whose k is D (TA or TB 0); added to it: 16 of D, number ks; 64 rows. */
        static __device__ __forceinline__ unsigned long long wide(const char *panel)
        {
                return wgmma_desc_k128(panel);
        }
        static constexpr int WIDE_64 = 512;
        static __device__ __forceinline__ constexpr int wide_k(int ks)
        {
                return ks % 4 * 2 + ks / 4 * (ROWS * 8);
        }

        /* As an operand whose k are the rows and whose m or n is D (TA or TB 1); 16 rows, number
         * ks. */
        static __device__ __forceinline__ unsigned long long tall(const char *panel)
        {
                return wgmma_desc(panel, ROWS * 128, 1024, SWIZZLE_128);
        }
        static __device__ __forceinline__ constexpr int tall_k(int ks) { return ks * 128; }
};

#endif
#endif
