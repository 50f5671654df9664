/* norm_backward.cuh: backward pass of norms, for many rows of 16-bit values.
 *
 *      norm_back_task<KIND, N, THREADS, ACC>(rows, tile, tiles, eps, smem, x, ldx, g, ldg, gain,
 *              epilogue, dgain, dbias)
 *              norm_grad_task (norm_grad.cuh) with ACC.  x and g, the gradient of the output, have
 *              rows ldx and ldg elements apart, 16-byte aligned; N is a multiple of 8.
 *
 * A row is read once from device memory.  Each thread copies its part of the next rows to shared
 * memory, NORM_BACK_STAGES ahead, and issues the epilogue's reads before the reductions.
 *
 * Best are 32 to 48 KB in flight per multiprocessor, of rows adjacent in memory: twice as much is
 * slower, and so are contiguous ranges of rows per block.  So launch NORM_BACK_BLOCKS(N) blocks of
 * NORM_BACK_THREADS(N) threads per multiprocessor, which also keeps partial sums few.  shared
 * memory: NORM_BACK_SMEM(N, THREADS). */
#ifndef TGC_NORM_BACKWARD_CUH
#define TGC_NORM_BACKWARD_CUH

#include "norm_grad.cuh"
#include "ptx.cuh"

#define NORM_BACK_STAGES 2

/* Vectors of 8 elements of a row that a thread has. */
__host__ __device__ constexpr int norm_back_per(int n, int threads)
{
        return (n / 8 + row_lanes(n, threads) - 1) / row_lanes(n, threads);
}
#define NORM_BACK_THREADS(N) ((N) <= 4096 ? 256 : 512)
#define NORM_BACK_BLOCKS(N) (norm_back_per(N, NORM_BACK_THREADS(N)) <= 2 && (N) <= 4096 ? 2 : 1)
#define NORM_BACK_SMEM(N, THREADS) \
        (ROW_SMEM + NORM_BACK_STAGES * 2 * 16 * (THREADS)*norm_back_per(N, THREADS))

/* A thread's slots in shared memory. */
template <int N, int THREADS, class T>
struct NormBackRows {
        static constexpr int LANES = row_lanes(N, THREADS), ROWS = THREADS / LANES,
                             PER = norm_back_per(N, THREADS);
        const T *x, *g;
        int ldx, ldg, rows;
        uint4 *slot; /* its first */

        static __device__ int row(int group) { return group * ROWS + (int)threadIdx.x / LANES; }
        static __device__ int col(int i) { return (i * LANES + (int)threadIdx.x % LANES) * 8; }
        static __device__ bool has(int i) { return N % (8 * LANES) == 0 || col(i) < N; }
        __device__ uint4 *at(int stage, int i) const
        {
                return slot + (stage * PER + i) * 2 * THREADS;
        }
        __device__ void fetch(int group, int stage) const
        {
                const int r = row(group);
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (r < rows && has(i)) {
                                cp_async16(at(stage, i), x + (long long)r * ldx + col(i));
                                cp_async16(at(stage, i) + THREADS, g + (long long)r * ldg + col(i));
                        }
                cp_async_commit();
        }
        static __device__ void floats(float (&v)[8], const uint4 &u)
        {
                unpack2<T>(u.x, v[0], v[1]);
                unpack2<T>(u.y, v[2], v[3]);
                unpack2<T>(u.z, v[4], v[5]);
                unpack2<T>(u.w, v[6], v[7]);
        }
        __device__ void get_x(float (&v)[8], int stage, int i) const { floats(v, *at(stage, i)); }
        __device__ void get_g(float (&v)[8], int stage, int i) const
        {
                floats(v, at(stage, i)[THREADS]);
        }
};

/* K sums over the LANES threads of a row; each thread gets them.  red: K floats per warp, no
 * longer read by any thread, so that one barrier suffices. */
template <int LANES, int THREADS, int K>
TGC_DEV void norm_back_sums(float (&v)[K], float *red)
{
        constexpr int WARPS = THREADS / 32;
#pragma unroll
        for (int d = vec_min(LANES, 32) / 2; d; d >>= 1)
#pragma unroll
                for (int k = 0; k < K; k++)
                        v[k] += __shfl_xor_sync(0xffffffffu, v[k], d);
        if constexpr (LANES > 32) {
                static_assert(LANES == THREADS && WARPS % 4 == 0 && WARPS <= 16,
                              "norm_back: warps of a row");
                if (threadIdx.x % 32 == 0)
#pragma unroll
                        for (int k = 0; k < K; k++)
                                red[k * WARPS + (int)threadIdx.x / 32] = v[k];
                __syncthreads();
#pragma unroll
                for (int k = 0; k < K; k++) {
                        v[k] = 0.f;
#pragma unroll
                        for (int w = 0; w < WARPS; w += 4) {
                                float four[4];
                                load<4>(four, red + k * WARPS + w);
                                v[k] += (four[0] + four[1]) + (four[2] + four[3]);
                        }
                }
        }
}

template <int KIND, int N, int THREADS, int ACC, class T, class Gain, class Epilogue>
TGC_DEV void norm_back_task(int rows, int tile, int tiles, float eps, char *smem, const T *x,
                            int ldx, const T *g, int ldg, const Gain *gain,
                            const Epilogue &epilogue, float *dgain, float *dbias)
{
        typedef NormBackRows<N, THREADS, T> Rows;
        constexpr int PER = Rows::PER, LANES = Rows::LANES;
        constexpr bool LAYER = KIND == NORM_LAYER;
        /* hold the row in registers: with several warps per row, a block waits for its slowest
         * thread */
        constexpr bool HOLD = LANES > 32;
        static_assert(N % 8 == 0 && Epilogue::MAXV >= 8 && sizeof(T) == 2,
                      "norm_back: vectors of 8");
        const Rows in = { x, g, ldx, ldg, rows, (uint4 *)(smem + ROW_SMEM) + threadIdx.x };
        float acc_g[PER][8] = {}, acc_b[PER][8] = {}, w[HOLD ? PER : 1][8];
        /* 48 for the sums (RMS: two alternating sets of 32), 16 for the mean's */
        float *red = (float *)smem;
        int stage = 0, odd = 0;
        if (HOLD)
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (in.has(i))
                                load<8>(w[HOLD ? i : 0], gain + in.col(i));
#pragma unroll
        for (int s = 0; s < NORM_BACK_STAGES; s++)
                in.fetch(tile + s * tiles, s);
        for (int group = tile; group * Rows::ROWS < rows; group += tiles) {
                const int row = in.row(group);
                const bool live = HOLD || row < rows;
                EpilogueReads<Epilogue, 8> reads[PER];
                float v[HOLD ? PER : 1][8], dy[HOLD ? PER : 1][8];
                /* sums of squares, of dy (x - mean), of dy */
                float mean[1] = {}, sum[LAYER ? 3 : 2] = {};
                if (live)
#pragma unroll
                        for (int i = 0; i < PER; i++)
                                if (in.has(i))
                                        reads[i].get_rows(epilogue, row, in.col(i));
                cp_async_wait<NORM_BACK_STAGES - 1>();
                if (live && (HOLD || LAYER))
#pragma unroll
                        for (int i = 0; i < PER; i++)
                                if (in.has(i)) {
                                        in.get_x(v[HOLD ? i : 0], stage, i);
                                        if (HOLD)
                                                in.get_g(dy[HOLD ? i : 0], stage, i);
                                        mean[0] += LAYER ? vec_sum(v[HOLD ? i : 0]) : 0.f;
                                }
                const auto again = [&](int i, int h) { /* reads again what registers do not hold */
                                                       if (HOLD)
                                                               return;
                                                       in.get_x(v[h], stage, i);
                                                       in.get_g(dy[h], stage, i);
                                                       load<8>(w[h], gain + in.col(i));
                };
                if (HOLD)
                        in.fetch(group + NORM_BACK_STAGES * tiles, stage);
                if (LAYER)
                        norm_back_sums<LANES, THREADS>(mean, red + 48);
                mean[0] *= 1.f / N;
                if (live)
#pragma unroll
                        for (int i = 0; i < PER; i++)
                                if (in.has(i)) {
                                        const int h = HOLD ? i : 0;
                                        again(i, h);
#pragma unroll
                                        for (int j = 0; j < 8; j++) {
                                                v[h][j] -= mean[0];
                                                sum[0] += v[h][j] * v[h][j];
                                                sum[1] += dy[h][j] * w[h][j] * v[h][j];
                                                if (LAYER)
                                                        sum[LAYER ? 2 : 0] += dy[h][j] * w[h][j];
                                        }
                                }
                norm_back_sums<LANES, THREADS>(sum, red + (LAYER ? 0 : odd));
                odd ^= 32; /* alternate: others may still read these (with a mean, its barrier
                            * prevents that) */
                const float rstd = rsqrtf(sum[0] * (1.f / N) + eps), s2 = sum[1] * rstd * (1.f / N);
                const float s1 = LAYER ? sum[LAYER ? 2 : 0] * (1.f / N) : 0.f;
                if (live)
#pragma unroll
                        for (int i = 0; i < PER; i++)
                                if (in.has(i)) {
                                        const int h = HOLD ? i : 0;
                                        again(i, h);
#pragma unroll
                                        for (int j = 0; j < 8; j++) {
                                                v[h][j] = (HOLD ? v[h][j] : v[h][j] - mean[0]) *
                                                          rstd;
                                                if (ACC & ACC_GAIN)
                                                        acc_g[i][j] += dy[h][j] * v[h][j];
                                                if (ACC & ACC_BIAS)
                                                        acc_b[i][j] += dy[h][j];
                                                v[h][j] = rstd *
                                                          (dy[h][j] * w[h][j] - s1 - v[h][j] * s2);
                                        }
                                        reads[i].get_cols(epilogue, in.col(i));
                                        reads[i].call(epilogue, row, in.col(i), v[h]);
                                }
                if (!HOLD)
                        in.fetch(group + NORM_BACK_STAGES * tiles, stage);
                stage = stage + 1 < NORM_BACK_STAGES ? stage + 1 : 0;
        }
        cp_async_wait<0>();
        __syncthreads();
        if (ACC & ACC_GAIN)
                norm_grad_flush<N, THREADS>(acc_g, dgain + (long long)tile * N,
                                            (float *)(smem + ROW_SMEM));
        if (ACC & ACC_BIAS)
                norm_grad_flush<N, THREADS>(acc_b, dbias + (long long)tile * N,
                                            (float *)(smem + ROW_SMEM));
}

#endif
