/* matvec_shape.h: block shape of kernels/matvec.cuh, for the C side.
 * MatvecShape in that file computes the same; tests/emulate/matmul_test.cu compares them. */
#ifndef TGC_MATVEC_SHAPE_H
#define TGC_MATVEC_SHAPE_H

typedef struct MatvecShape {
        int unit;       /* elements per load                                 */
        int flight;     /* loads under way per lane and column               */
        int kc;         /* K per pass over shared memory, padded             */
        int cols;       /* columns of y per tile: a call has ceil(N / cols)  */
        int smem;       /* bytes                                             */
} MatvecShape;

/* esize: bytes per element of W; the rest as the template arguments. */
static inline MatvecShape matvec_shape(int esize, int M, int K, int threads, int rows, int split, int align)
{
        MatvecShape s;
        int batch, fit;

        s.unit = align / esize;
        s.flight = rows >= 8 ? 1 : 8 / rows;
        while (s.flight > 1 && (s.flight / 2 * split * 32 * s.unit >= K || s.flight * split * 32 * s.unit * M > 16384))
                s.flight /= 2;
        batch = s.flight * split * 32 * s.unit;
        fit = 16384 / M / batch;
        s.kc = (fit < 1 ? 1 : fit) * batch;
        if (s.kc > (K + batch - 1) / batch * batch)
                s.kc = (K + batch - 1) / batch * batch;
        s.cols = threads / 32 / split * rows;
        s.smem = (M * s.kc + 32 + threads / 32 * rows * M) * 4;
        return s;
}

/* matvec_kn: W stored (K,N), `cols` columns per tile. */
static inline int matvec_kn_smem(int M, int K, int threads, int cols)
{
        int fit = 16384 / M / 64 * 64, kc = fit < K ? fit : K;

        return (M * kc + 32 + threads / 32 * cols * M) * 4;
}

/* kernels/matvec_short.cuh: all of W under way at once. */
typedef struct MatvecShort {
        int rows, split;        /* template arguments; rows 0: not for this product */
        int threads, cols, smem;
} MatvecShort;

/* minv: least width of the tail; sms: multiprocessors.  One block on each, so that the blocks of the next
 * launch find room beside them: W takes at most 48 KB of a multiprocessor's registers. */
static inline MatvecShort matvec_short(int esize, long N, int K, int align, int minv, int sms)
{
        MatvecShort s = { 0, 1, 0, 0, 0 };
        int unit = align / esize, rows = 4, per;
        long groups;

        if (N * K * esize > 48L * 1024 * sms || K < 64)
                return s;
        while (s.split < 8 && (K + 32 * unit * s.split - 1) / (32 * unit * s.split) * unit > 32)
                s.split *= 2;
        per = (K + 32 * unit * s.split - 1) / (32 * unit * s.split);
        if (per * unit > 32)
                return s;
        while (rows > minv && (N + rows - 1) / rows * s.split < 4L * sms)       /* a warp for each of its schedulers */
                rows /= 2;
        groups = (N + rows - 1) / rows;
        if (groups * s.split > 16)                      /* else one block has it all */
                groups = (groups + sms - 1) / sms;
        if (groups * s.split > 16)
                return s;
        s.rows = rows;
        s.threads = (int)groups * s.split * 32;
        s.cols = (int)groups * rows;
        s.smem = s.threads / 32 * (rows + 3) * 4;
        return s;
}

#endif
