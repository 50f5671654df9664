/* gemm_rows_shape.h: launch shape of kernels/gemm/gemm_rows_sm90.cuh, for the C side and its
 * bench. */
#ifndef TGC_GEMM_ROWS_SHAPE_H
#define TGC_GEMM_ROWS_SHAPE_H

/* COLS: columns of y per block; THREADS: two consumer warpgroups and two producer warps. */
enum {
        GEMM_ROWS_COLS = 128,
        GEMM_ROWS_K = 64,
        GEMM_ROWS_THREADS = 320,
        GEMM_ROWS_MOST = 256,
        GEMM_ROWS_LEAST_STEPS = 4 /* per part of K */
};

/* The kernel's rows: M rounded up, so that numbers of rows share kernels. */
static inline int gemm_rows_tile(int M)
{
        return M <= 8 ? 8 : M <= 32 ? 32 : M <= 64 ? 64 : M <= 128 ? 128 : 256;
}

/* Blocks of a cluster, which split K: so many that at least half of the `sms` multiprocessors have
 * a block.  A block has a multiprocessor to itself, and all clusters must run at once.  Clusters
 * of two fill every multiprocessor; larger ones leave some of a GPC unused, so they may take three
 * quarters.  A function of N and K alone, since it decides the order of summation. */
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

/* Stages for `rows` rows in `bytes` of shared memory, and their bytes. */
static inline int gemm_rows_stages(int rows, int bytes)
{
        return bytes / ((GEMM_ROWS_COLS + rows) * GEMM_ROWS_K * 2 + 16);
}
static inline int gemm_rows_smem(int rows, int stages)
{
        return stages * ((GEMM_ROWS_COLS + rows) * GEMM_ROWS_K * 2 + 16);
}

#endif
