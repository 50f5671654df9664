/* attention_panel_sm90.cuh: panels on Hopper: tokens of one head in shared memory, loaded by TMA,
 * as wgmma operands.
 *
 * Tensor maps have 64 x 64 boxes with 128-byte swizzle, as in gemm_sm90.cuh.  A map's rows are the
 * tokens of all sequences (b*T + t) or of a cache; its columns hold all heads.  A box that reaches
 * past a sequence's end brings the next sequence's rows: scores there must be masked, and their
 * rows of v get probability 0 (they must be finite; under COUNTED the kernel clears them). */
#ifndef TGC_ATTENTION_PANEL_SM90_CUH
#define TGC_ATTENTION_PANEL_SM90_CUH

#include "attention.cuh"
#ifdef TGC_SM90A
#include "gemm.cuh"
#include "pipeline_sm90.cuh"

/* ROWS tokens of one head, 1024-byte aligned.  Boxes of 64 rows x 128 bytes; those of the same
 * columns follow each other. */
template <int ROWS, int D>
struct AttPanel {
        static constexpr int BYTES = ROWS * D * 2;

        /* Called by one thread; BYTES arrive at bar. */
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
        /* The same from pages, *page being the first.  From page n on there are none; page 0,
         * which no sequence owns, is loaded instead. */
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

        /* Descriptor as an operand whose k axis is D (TA or TB 0), and the offset of k step ks (16
         * of D); 64 rows. */
        static __device__ __forceinline__ unsigned long long wide(const char *panel)
        {
                return wgmma_desc_k128(panel);
        }
        static constexpr int WIDE_64 = 512;
        static __device__ __forceinline__ constexpr int wide_k(int ks)
        {
                return ks % 4 * 2 + ks / 4 * (ROWS * 8);
        }

        /* Descriptor as an operand whose k axis is the rows and whose m or n is D (TA or TB 1); k
         * step ks is 16 rows. */
        static __device__ __forceinline__ unsigned long long tall(const char *panel)
        {
                return wgmma_desc(panel, ROWS * 128, 1024, SWIZZLE_128);
        }
        static __device__ __forceinline__ constexpr int tall_k(int ks) { return ks * 128; }
};

#endif
#endif
