/* gemm_rows_shape.h: the shape of kernels/gemm/gemm_rows_sm90.cuh, for the C side and its bench. */
#ifndef TGC_GEMM_ROWS_SHAPE_H
#define TGC_GEMM_ROWS_SHAPE_H

/* COLS: of y, a block; THREADS: two warpgroups that multiply, two warps that load. */
enum {
        GEMM_ROWS_COLS = 128,
        GEMM_ROWS_K = 64,
        GEMM_ROWS_THREADS = 320,
        GEMM_ROWS_MOST = 256,
        GEMM_ROWS_LEAST_STEPS = 4 /* of a part of K */
};

/* Rows of the kernel's tile: kernels are equal from one of these to the next. */
static inline int gemm_rows_tile(int M)
{
        return M <= 8 ? 8 : M <= 32 ? 32 : M <= 64 ? 64 : M <= 128 ? 128 : 256;
}

/* Blocks of a cluster that share a K: so many that half of all `sms` multiprocessors have a block,
 * or more.  A block has a multiprocessor to itself, and all clusters must run at once.  Clusters of
 * two fill every multiprocessor; larger ones leave some of a GPC's out, so they may take three
 * quarters.  A function of N and K alone: it is part of the order in which y's sums are added. */
static inline int gemm_rows_parts(long N, long K, int sms)
{
        const long tiles = (N + GEMM_ROWS_COLS - 1) / GEMM_ROWS_COLS,
                   steps = (K + GEMM_ROWS_K - 1) / GEMM_ROWS_K;
        static const int wider[] = { 2, 3, 4, 8 };
        int parts = 1;
        for (int i = 0; i < 4; i++)
                if (tiles * wider[i] <= (wider[i] == 2 ? sms : sms * 3 / 4) &&
                    steps >= wider[i] * (long)GEMM_ROWS_LEAST_STEPS)
                        parts = wider[i];
        return parts;
}

/* Stages of a tile of so many rows in `bytes` of shared memory, and the bytes of all. */
static inline int gemm_rows_stages(int rows, int bytes)
{
        return bytes / ((GEMM_ROWS_COLS + rows) * GEMM_ROWS_K * 2 + 16);
}
static inline int gemm_rows_smem(int rows, int stages)
{
        return stages * ((GEMM_ROWS_COLS + rows) * GEMM_ROWS_K * 2 + 16);
}

#endif
