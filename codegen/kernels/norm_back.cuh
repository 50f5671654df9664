/* norm_back.cuh: the norms' backward pass over many rows of 16-bit values.
 *
 *      norm_back_task<KIND, N, THREADS, ACC>(rows, tile, tiles, eps, smem, x, ldx, g, ldg, gain, tail, dgain, dbias)
 *              norm_grad_task (rows.cuh) with ACC for rows that lie as they are wanted: x and g, the gradient of the
 *              output, ldx and ldg elements apart, at multiples of 16 bytes; N is a multiple of 8.
 *
 * A row is read once from device memory: each thread copies its part of the next rows to a place of its own in
 * shared memory, NORM_BACK_STAGES ahead, and what the tail reads is on its way while the sums are made.
 *
 * THREADS and tiles: as norm_grad_task.  shared memory: NORM_BACK_SMEM(N, THREADS). */
#ifndef TGC_NORM_BACK_CUH
#define TGC_NORM_BACK_CUH

#include "ptx.cuh"
#include "rows.cuh"

#define NORM_BACK_STAGES 2

/* Pieces of 8 elements that a thread has of a row. */
__host__ __device__ constexpr int norm_back_per(int n, int threads)
{
        return (n / 8 + row_lanes(n, threads) - 1) / row_lanes(n, threads);
}
#define NORM_BACK_SMEM(N, THREADS) (ROW_SMEM + NORM_BACK_STAGES * 2 * 16 * (THREADS) * norm_back_per(N, THREADS))

/* A thread's places in shared memory. */
template <int N, int THREADS, class T>
struct NormBackRows {
        static constexpr int LANES = row_lanes(N, THREADS), ROWS = THREADS / LANES, PER = norm_back_per(N, THREADS);
        const T *x, *g;
        int ldx, ldg, rows;
        uint4 *slot;                            /* its first */

        static __device__ int row(int group) { return group * ROWS + (int)threadIdx.x / LANES; }
        static __device__ int col(int i) { return (i * LANES + (int)threadIdx.x % LANES) * 8; }
        __device__ uint4 *at(int stage, int i) const { return slot + (stage * PER + i) * 2 * THREADS; }
        __device__ void fetch(int group, int stage) const
        {
                const int r = row(group);
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (r < rows && col(i) < N) {
                                cp_async16(at(stage, i), x + (long long)r * ldx + col(i));
                                cp_async16(at(stage, i) + THREADS, g + (long long)r * ldg + col(i));
                        }
                cp_async_commit();
        }
        __device__ void get_x(float (&v)[8], int stage, int i) const { load<8>(v, (const T *)at(stage, i)); }
        __device__ void get_g(float (&v)[8], int stage, int i) const { load<8>(v, (const T *)(at(stage, i) + THREADS)); }
};

template <int KIND, int N, int THREADS, int ACC, class T, class Gain, class Tail>
TGC_DEV void norm_back_task(int rows, int tile, int tiles, float eps, char *smem, const T *x, int ldx, const T *g,
                            int ldg, const Gain *gain, const Tail &tail, float *dgain, float *dbias)
{
        typedef NormBackRows<N, THREADS, T> Rows;
        constexpr int PER = Rows::PER, LANES = Rows::LANES;
        static_assert(N % 8 == 0 && Tail::MAXV >= 8 && sizeof(T) == 2, "norm_back: vectors of 8");
        const Rows in = { x, g, ldx, ldg, rows, (uint4 *)(smem + ROW_SMEM) + threadIdx.x };
        float *red = (float *)smem, acc_g[PER][8] = {}, acc_b[PER][8] = {};
        int stage = 0;
#pragma unroll
        for (int s = 0; s < NORM_BACK_STAGES; s++)
                in.fetch(tile + s * tiles, s);
        for (int group = tile; group * Rows::ROWS < rows; group += tiles) {
                const int row = in.row(group), end = row < rows ? N : 0;
                TailReads<Tail, 8> reads[PER];
                float v[PER][8], mean = 0.f, var = 0.f, s1 = 0.f, s2 = 0.f;
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (in.col(i) < end)
                                reads[i].get_rows(tail, row, in.col(i));
                cp_async_wait<NORM_BACK_STAGES - 1>();
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (in.col(i) < end) {
                                in.get_x(v[i], stage, i);
                                if (KIND == NORM_LAYER)
                                        mean += vec_sum(v[i]);
                        }
                if (KIND == NORM_LAYER)
                        mean = lanes_sum<LANES, THREADS>(mean, red) * (1.f / N);
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (in.col(i) < end)
                                var += vec_square(v[i], mean);
                const float rstd = rsqrtf(lanes_sum<LANES, THREADS>(var, red) * (1.f / N) + eps);
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (in.col(i) < end) {
                                float w[8], dy[8];
                                in.get_g(dy, stage, i);
                                load<8>(w, gain + in.col(i));
#pragma unroll
                                for (int j = 0; j < 8; j++) {
                                        v[i][j] = (v[i][j] - mean) * rstd;
                                        s1 += dy[j] * w[j];
                                        s2 += dy[j] * w[j] * v[i][j];
                                        if (ACC & ACC_GAIN)
                                                acc_g[i][j] += dy[j] * v[i][j];
                                        if (ACC & ACC_BIAS)
                                                acc_b[i][j] += dy[j];
                                }
                        }
                lanes_sum2<LANES, THREADS>(s1, s2, red);
                s1 = KIND == NORM_LAYER ? s1 * (1.f / N) : 0.f;
                s2 *= 1.f / N;
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (in.col(i) < end) {
                                float w[8], dy[8];
                                in.get_g(dy, stage, i);
                                load<8>(w, gain + in.col(i));
#pragma unroll
                                for (int j = 0; j < 8; j++)
                                        v[i][j] = rstd * (dy[j] * w[j] - s1 - v[i][j] * s2);
                                reads[i].get_cols(tail, in.col(i));
                                reads[i].call(tail, row, in.col(i), v[i]);
                        }
                in.fetch(group + NORM_BACK_STAGES * tiles, stage);
                stage = stage + 1 < NORM_BACK_STAGES ? stage + 1 : 0;
        }
        cp_async_wait<0>();
        __syncthreads();
        if (ACC & ACC_GAIN)
                norm_grad_flush<N, THREADS>(acc_g, dgain + (long long)tile * N, (float *)(smem + ROW_SMEM));
        if (ACC & ACC_BIAS)
                norm_grad_flush<N, THREADS>(acc_b, dbias + (long long)tile * N, (float *)(smem + ROW_SMEM));
}

#endif
