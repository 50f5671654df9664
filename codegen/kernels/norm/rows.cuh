/* rows.cuh: work along the last dimension: norms, softmax, reductions.
 *
 *      norm_task<KIND, N, THREADS, FEW>(rows, tile, eps, smem, prologue, epilogue)
 *              epilogue gets (x - mean) * rstd (NORM_LAYER) or x * rstd (NORM_RMS);
 *              gain and bias are the epilogue's.  FEW rows, so that what counts is how often a
 *              block waits for memory: what the epilogue reads is read with x, where registers have
 *              room for it.
 *      norm_grad_task<KIND, N, THREADS, ACC, ONCE, PREFETCH>(rows, tile, tiles, eps, smem,
 *              prologue_x, prologue_dy, epilogue,
 *                                                  dgain, dbias)
 *              dx of the above from x (statistics are computed again) and dy, the gradient of
 *              the value before gain and bias.  ACC: 0, ACC_GAIN, ACC_BIAS or both.  With ACC 0
 *              prologue_dy is a plain prologue.  Else prologue_dy(row, col, dy, g) fills two
 *              vectors: g, the gradient of the whole output, and dy = g * gain; and dgain, dbias:
 *              float (tiles, N) get the sums of g * xhat and of g over the rows of each tile, for
 *              columns_reduce_task. Tile t works on the row groups t, t + tiles, ...: with ACC,
 *              launch a fixed number (528, or fewer when there are fewer groups); without ACC as
 *              many tiles as groups. ONCE: tiles is the number of groups, so each block has one,
 *              and they are few.  PREFETCH, with it: calls pdl_wait when all but prologue_dy's has
 *              been asked for.
 *      softmax_task<N, THREADS>(rows, n, tile, smem, prologue, epilogue)
 *              a row that is -inf throughout gives zeros.
 *      softmax_grad_task<N, THREADS>(rows, n, tile, smem, prologue_y, prologue_dy, epilogue)
 *              y * (dy - sum(y * dy)); both prologues are plain ones.
 *      reduce_task<KIND, N, THREADS>(rows, n, tile, smem, prologue, epilogue)
 *              RED_SUM, RED_MAX, RED_LOGSUMEXP: epilogue(row, 0, v[1]).  Empty rows cannot be.
 *              A NaN is ignored by RED_MAX as by fmaxf.
 *      argmax_task<N, THREADS>(rows, n, tile, smem, prologue, int *out)     out: int (rows)
 *              the lowest index wins a tie; a NaN counts as -inf.
 *
 * N is the row length; 0 where it is known only at run time (n; N > 0 ignores n).
 * ROW_LANES(N, THREADS) threads share a row, so that one tile is a group of
 * ROW_ROWS(N, THREADS) = THREADS / ROW_LANES rows; tiles: ceil(rows / ROW_ROWS).
 * THREADS that suit: 128 up to N = 1024, 256 up to 4096, 512 up to 16384 and for
 * run-time n, 1024 above.
 *
 * Where a row fits, it is held in registers and prologues are called once.  Else
 * they are called up to three times per element: a prologue that also stores (the
 * new residual) must therefore not read what it stores.
 *
 * shared memory: ROW_SMEM bytes; norm_grad_task with ACC: NORM_GRAD_SMEM(N). */
#ifndef TGC_ROWS_CUH
#define TGC_ROWS_CUH

#include "columns.cuh"
#include "order.cuh"
#include "ptx.cuh"

enum { RED_SUM, RED_MAX, RED_LOGSUMEXP };
enum { ACC_GAIN = 1, ACC_BIAS = 2 };

#define ROW_SMEM 256
#define NORM_GRAD_SMEM(N) (ROW_SMEM + ((N) <= 1024 ? 12 * (N) : 0))

/* Threads along a row: eight elements each up to a warp, a warp up to 1024, then the block. */
__host__ __device__ constexpr int row_lanes(int n, int threads)
{
        return n == 0 || n > 1024 ? threads : n > 128 ? 32 : pow2_ceil((n + 7) / 8);
}
#define ROW_LANES(N, THREADS) row_lanes(N, THREADS)
#define ROW_ROWS(N, THREADS) ((THREADS) / ROW_LANES(N, THREADS))

/* Floats a thread may hold of its rows. */
__host__ __device__ constexpr int row_budget(int threads)
{
        return vec_min(128, vec_min(65536 / threads, 255) - 48);
}

/* Reductions over the LANES threads of a row; each of them gets the result.
 * All threads of the block take part.  red: 64 floats. */
template <int LANES, int THREADS>
TGC_DEV float lanes_sum(float x, float *red)
{
        if constexpr (LANES > 32) {
                return block_sum<THREADS>(x, red);
        } else {
#pragma unroll
                for (int d = LANES / 2; d; d >>= 1)
                        x += __shfl_xor_sync(0xffffffffu, x, d);
                return x;
        }
}

template <int LANES, int THREADS>
TGC_DEV float lanes_max(float x, float *red)
{
        if constexpr (LANES > 32) {
                return block_max<THREADS>(x, red);
        } else {
#pragma unroll
                for (int d = LANES / 2; d; d >>= 1)
                        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
                return x;
        }
}

/* Two sums for one pair of barriers. */
template <int LANES, int THREADS>
TGC_DEV void lanes_sum2(float &x, float &y, float *red)
{
#pragma unroll
        for (int d = vec_min(LANES, 32) / 2; d; d >>= 1) {
                x += __shfl_xor_sync(0xffffffffu, x, d);
                y += __shfl_xor_sync(0xffffffffu, y, d);
        }
        if (LANES <= 32)
                return;
        int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
        __syncthreads();
        if (lane == 0) {
                red[warp] = x;
                red[32 + warp] = y;
        }
        __syncthreads();
        x = warp_sum(lane < THREADS / 32 ? red[lane] : 0.f);
        y = warp_sum(lane < THREADS / 32 ? red[32 + lane] : 0.f);
}

/* One thread's part of a row: vectors i = 0.. at columns (i * LANES + lane) * V,
 * in registers (HOLD) or fetched from the prologue whenever asked for. */
template <int N, int THREADS, int V, bool HOLD, class Prologue>
struct RowPart {
        static constexpr int LANES = row_lanes(N, THREADS);
        static constexpr int PER = N ? (N / V + LANES - 1) / LANES : 1;
        const Prologue &prologue;
        int row, lane, end; /* end: columns; 0 for a row that is not there */
        float v[HOLD ? PER : 1][V];

        __device__ RowPart(const Prologue &h, int rows, int n, int group)
            : prologue(h), row(group * (THREADS / LANES) + (int)threadIdx.x / LANES),
              lane((int)threadIdx.x % LANES), end(row < rows ? (N ? N : n) : 0)
        {
                if (HOLD)
#pragma unroll
                        for (int i = 0; i < PER; i++)
                                if (has(i))
                                        prologue(row, col(i), v[HOLD ? i : 0]);
        }
        __device__ int col(int i) const { return (i * LANES + lane) * V; }
        __device__ bool has(int i) const { return col(i) < end; }
        __device__ int count(int n) const { return N ? PER : (n / V + LANES - 1) / LANES; }
        __device__ float (&at(int i))[V]
        {
                if (HOLD)
                        return v[HOLD ? i : 0];
                prologue(row, col(i), v[0]);
                return v[0];
        }
};

/* Sum of v, or of (v - mean)^2. */
template <int V>
TGC_DEV float vec_sum(const float (&v)[V])
{
        float s = 0.f;
#pragma unroll
        for (int j = 0; j < V; j++)
                s += v[j];
        return s;
}

template <int V>
TGC_DEV float vec_square(const float (&v)[V], float mean)
{
        float s = 0.f;
#pragma unroll
        for (int j = 0; j < V; j++)
                s += (v[j] - mean) * (v[j] - mean);
        return s;
}

/* mean and 1 / sqrt(variance + eps) of each row; mean = 0 for RMS. */
template <int KIND, int N, int THREADS, int V, bool HOLD, class Prologue>
TGC_DEV void norm_stats(RowPart<N, THREADS, V, HOLD, Prologue> &x, float eps, float *red,
                        float &mean, float &rstd)
{
        typedef RowPart<N, THREADS, V, HOLD, Prologue> Part;
        mean = 0.f;
        if (KIND == NORM_LAYER) {
#pragma unroll(HOLD ? Part::PER : 1)
                for (int i = 0; i < Part::PER; i++)
                        if (x.has(i))
                                mean += vec_sum(x.at(i));
                mean = lanes_sum<Part::LANES, THREADS>(mean, red) * (1.f / N);
        }
        float var = 0.f;
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < Part::PER; i++)
                if (x.has(i))
                        var += vec_square(x.at(i), mean);
        rstd = rsqrtf(lanes_sum<Part::LANES, THREADS>(var, red) * (1.f / N) + eps);
}

template <int KIND, int N, int THREADS, bool FEW = false, class Prologue, class Epilogue>
TGC_DEV void norm_task(int rows, int tile, float eps, char *smem, const Prologue &prologue,
                       const Epilogue &epilogue)
{
        constexpr int V = vec_of(N, vec_min(Prologue::MAXV, Epilogue::MAXV)),
                      LANES = row_lanes(N, THREADS);
        constexpr bool HOLD = RowPart<N, THREADS, V, true, Prologue>::PER * V <=
                              row_budget(THREADS);
        typedef RowPart<N, THREADS, V, HOLD, Prologue> Part;
        typedef EpilogueReads<Epilogue, V> Reads;
        constexpr bool AHEAD = FEW && HOLD &&
                               (1 + Reads::N / 2.f) * Part::PER * V <= row_budget(THREADS);
        static_assert(V >= Prologue::MINV && V >= Epilogue::MINV,
                      "norm: needs wider vectors than the row has");

        Part x(prologue, rows, N, tile);
        Reads reads[AHEAD ? Part::PER : 1];
        float mean, rstd;
        if (AHEAD) {
#pragma unroll
                for (int i = 0; i < Part::PER; i++)
                        if (x.has(i))
                                reads[AHEAD ? i : 0].get(epilogue, x.row, x.col(i));
        }
        norm_stats<KIND>(x, eps, (float *)smem, mean, rstd);
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < Part::PER; i++) {
                if (!x.has(i))
                        continue;
                float(&v)[V] = x.at(i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = (v[j] - mean) * rstd;
                if (!AHEAD)
                        reads[0].get(epilogue, x.row, x.col(i));
                reads[AHEAD ? i : 0].call(epilogue, x.row, x.col(i), v);
        }
        if (LANES > 32)
                __syncthreads();
}

/* The second prologue of norm_grad_task with one shape: dy and g. */
template <int ACC, int V, class PrologueDY>
TGC_DEV void norm_backward_prologue(const PrologueDY &prologue, int row, int col, float (&dy)[V],
                                    float (&g)[V])
{
        if constexpr (ACC != 0)
                prologue(row, col, dy, g);
        else
                prologue(row, col, dy);
}

/* Add the columns (col.., V) of all row groups of the block and store them.  sum: N floats for each
 * warp but one. */
template <int N, int THREADS, int V, int PER>
TGC_DEV void norm_grad_flush(float (&acc)[PER][V], float *out, float *sum)
{
        constexpr int LANES = row_lanes(N, THREADS), WARPS = LANES > 32 ? 1 : THREADS / 32;
        const int lane = (int)threadIdx.x % LANES, warp = (int)threadIdx.x / 32;
        const bool mine = LANES > 32 || (int)threadIdx.x % 32 < LANES;
#pragma unroll
        for (int i = 0; i < PER; i++)
#pragma unroll
                for (int j = 0; j < V; j++)
#pragma unroll
                        for (int d = LANES; d < 32; d *= 2)
                                acc[i][j] += __shfl_xor_sync(0xffffffffu, acc[i][j], d);
        if (WARPS > 1) {
#pragma unroll
                for (int i = 0; i < PER; i++)
                        if (warp && mine && (i * LANES + lane) * V < N)
                                store<V>(sum + (warp - 1) * N + (i * LANES + lane) * V, acc[i]);
                __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < PER; i++) {
                const int c = (i * LANES + lane) * V;
                if (!mine || c >= N || (WARPS > 1 && warp))
                        continue;
#pragma unroll
                for (int w = 1; w < WARPS; w++) {
                        float v[V];
                        load<V>(v, sum + (w - 1) * N + c);
#pragma unroll
                        for (int j = 0; j < V; j++)
                                acc[i][j] += v[j];
                }
                store<V>(out + c, acc[i]);
        }
        if (WARPS > 1)
                __syncthreads();
}

template <int KIND, int N, int THREADS, int ACC, bool ONCE = false, bool PREFETCH = false,
          class PrologueX, class PrologueDY, class Epilogue>
TGC_DEV void norm_grad_task(int rows, int tile, int tiles, float eps, char *smem,
                            const PrologueX &prologue_x, const PrologueDY &prologue_dy,
                            const Epilogue &epilogue, float *dgain, float *dbias)
{
        constexpr int V = vec_of(N, vec_min(PrologueX::MAXV,
                                            vec_min(PrologueDY::MAXV, Epilogue::MAXV)));
        constexpr int LANES = row_lanes(N, THREADS), ROWS = THREADS / LANES;
        constexpr int PER = RowPart<N, THREADS, V, true, PrologueX>::PER;
        constexpr int N_ACC = (ACC & ACC_GAIN ? 1 : 0) + (ACC & ACC_BIAS ? 1 : 0);
        constexpr bool HOLD = 2 * PER * V <= row_budget(THREADS);
        constexpr bool HOLD_ACC = N_ACC && (2 + N_ACC) * PER * V <= row_budget(THREADS);
        typedef EpilogueReads<Epilogue, V> Reads;
        constexpr bool AHEAD = ONCE && (3 + N_ACC) * PER * V + Reads::N * PER * V / 2 <=
                                               row_budget(THREADS);
        typedef RowPart<N, THREADS, V, HOLD, PrologueX> Part;
        static_assert(V >= PrologueX::MINV && V >= PrologueDY::MINV && V >= Epilogue::MINV,
                      "norm_grad: vectors too narrow");
        static_assert(!N_ACC || HOLD_ACC || ROWS == 1,
                      "norm_grad: too many threads for this row length");
        static_assert(!N_ACC || LANES > 32 || THREADS <= 128, "NORM_GRAD_SMEM");

        float *red = (float *)smem;
        float dy[HOLD ? PER : 1][V], g_ahead[AHEAD ? PER : 1][V];
        Reads reads[AHEAD ? PER : 1];
        float acc_g[HOLD_ACC ? PER : 1][V] = {}, acc_b[HOLD_ACC ? PER : 1][V] = {};
        dgain += (long long)tile * N * (ACC & ACC_GAIN ? 1 : 0);
        dbias += (long long)tile * N * (ACC & ACC_BIAS ? 1 : 0);
        if (N_ACC && !HOLD_ACC) /* too long for registers: add up in memory, in L2 */
                for (int c = (int)threadIdx.x * V; c < N; c += THREADS * V) {
                        if (ACC & ACC_GAIN)
                                store<V>(dgain + c, acc_g[0]);
                        if (ACC & ACC_BIAS)
                                store<V>(dbias + c, acc_b[0]);
                }

        for (int group = tile; group * ROWS < rows; group += tiles) {
                Part x(prologue_x, rows, N, group);
                float mean, rstd, s1 = 0.f, s2 = 0.f;
                if (AHEAD)
#pragma unroll
                        for (int i = 0; i < PER; i++)
                                if (x.has(i))
                                        reads[AHEAD ? i : 0].get(epilogue, x.row, x.col(i));
                if (PREFETCH)
                        pdl_wait();
                if (AHEAD)
#pragma unroll
                        for (int i = 0; i < PER; i++)
                                if (x.has(i))
                                        norm_backward_prologue<ACC>(prologue_dy, x.row, x.col(i),
                                                                    dy[AHEAD ? i : 0],
                                                                    g_ahead[AHEAD ? i : 0]);
                norm_stats<KIND>(x, eps, red, mean, rstd);
#pragma unroll(HOLD ? PER : 1)
                for (int i = 0; i < PER; i++) {
                        if (!x.has(i))
                                continue;
                        float(&v)[V] = x.at(i);
                        float(&d)[V] = dy[HOLD ? i : 0];
                        float(&g)[V] = g_ahead[AHEAD ? i : 0], t[V];
                        if (!AHEAD)
                                norm_backward_prologue<ACC>(prologue_dy, x.row, x.col(i), d, g);
#pragma unroll
                        for (int j = 0; j < V; j++) {
                                v[j] = (v[j] - mean) * rstd;
                                s1 += d[j];
                                s2 += d[j] * v[j];
                        }
                        if (HOLD_ACC) {
#pragma unroll
                                for (int j = 0; j < V; j++) {
                                        if (ACC & ACC_GAIN)
                                                acc_g[HOLD_ACC ? i : 0][j] += g[j] * v[j];
                                        if (ACC & ACC_BIAS)
                                                acc_b[HOLD_ACC ? i : 0][j] += g[j];
                                }
                                continue;
                        }
                        if (ACC & ACC_GAIN) {
                                load<V>(t, dgain + x.col(i));
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        t[j] += g[j] * v[j];
                                store<V>(dgain + x.col(i), t);
                        }
                        if (ACC & ACC_BIAS) {
                                load<V>(t, dbias + x.col(i));
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        t[j] += g[j];
                                store<V>(dbias + x.col(i), t);
                        }
                }
                lanes_sum2<LANES, THREADS>(s1, s2, red);
                s1 = KIND == NORM_LAYER ? s1 * (1.f / N) : 0.f;
                s2 *= 1.f / N;
#pragma unroll(HOLD ? PER : 1)
                for (int i = 0; i < PER; i++) {
                        if (!x.has(i))
                                continue;
                        float(&v)[V] = x.at(i);
                        float(&d)[V] = dy[HOLD ? i : 0];
                        if (!HOLD) {
                                float g[V];
                                norm_backward_prologue<ACC>(prologue_dy, x.row, x.col(i), d, g);
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        v[j] = (v[j] - mean) * rstd;
                        }
#pragma unroll
                        for (int j = 0; j < V; j++)
                                v[j] = rstd * (d[j] - s1 - v[j] * s2);
                        if (!AHEAD)
                                reads[0].get(epilogue, x.row, x.col(i));
                        reads[AHEAD ? i : 0].call(epilogue, x.row, x.col(i), v);
                }
                if (ONCE)
                        break;
        }
        if constexpr (HOLD_ACC) {
                if (ACC & ACC_GAIN)
                        norm_grad_flush<N, THREADS>(acc_g, dgain, (float *)(smem + ROW_SMEM));
                if (ACC & ACC_BIAS)
                        norm_grad_flush<N, THREADS>(acc_b, dbias, (float *)(smem + ROW_SMEM));
        }
        if (LANES > 32)
                __syncthreads();
}

/* Sum of exponentials met so far, s * exp(m): add v.  m = -inf stands for "nothing
 * but -inf yet", where the reference is 0, so that a NaN still reaches s. */
TGC_DEV float exp_ref(float m) { return m == -INFINITY ? 0.f : m; }

template <int V>
TGC_DEV void exp_add(float &m, float &s, const float (&v)[V])
{
        float top = m;
#pragma unroll
        for (int j = 0; j < V; j++)
                top = fmaxf(top, v[j]);
        if (top > m) {
                s *= expf(m - top);
                m = top;
        }
#pragma unroll
        for (int j = 0; j < V; j++)
                s += expf(v[j] - exp_ref(m));
}

/* The same over all lanes: afterwards each has the row's m and s. */
template <int LANES, int THREADS>
TGC_DEV void exp_join(float &m, float &s, float *red)
{
        float top = lanes_max<LANES, THREADS>(m, red);
        s = lanes_sum<LANES, THREADS>(m == -INFINITY ? s : s * expf(m - top), red);
        m = top;
}

/* softmax, softmax_grad and reduce with the vector width settled. */
template <int N, int THREADS, int V, class Prologue, class Epilogue>
TGC_DEV void softmax_rows(int rows, int n, int tile, float *red, const Prologue &prologue,
                          const Epilogue &epilogue)
{
        constexpr bool HOLD = N && RowPart<N, THREADS, V, true, Prologue>::PER * V <=
                                           row_budget(THREADS);
        typedef RowPart<N, THREADS, V, HOLD, Prologue> Part;
        Part x(prologue, rows, n, tile);
        float m = -INFINITY, s = 0.f;
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < x.count(n); i++) {
                if (!x.has(i))
                        continue;
                float(&v)[V] = x.at(i);
                if (HOLD) {
#pragma unroll
                        for (int j = 0; j < V; j++)
                                m = fmaxf(m, v[j]);
                } else {
                        exp_add(m, s, v);
                }
        }
        if (HOLD) {
                m = lanes_max<Part::LANES, THREADS>(m, red);
#pragma unroll
                for (int i = 0; i < Part::PER; i++)
                        if (x.has(i)) {
                                float(&v)[V] = x.at(i);
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        s += v[j] = expf(v[j] - exp_ref(m));
                        }
                s = lanes_sum<Part::LANES, THREADS>(s, red);
        } else {
                exp_join<Part::LANES, THREADS>(m, s, red);
        }
        float scale = s == 0.f ? 0.f : 1.f / s;
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < x.count(n); i++) {
                if (!x.has(i))
                        continue;
                float(&v)[V] = x.at(i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = scale * (HOLD ? v[j] : expf(v[j] - exp_ref(m)));
                epilogue(x.row, x.col(i), v);
        }
        if (Part::LANES > 32)
                __syncthreads();
}

template <int N, int THREADS, int V, class PrologueY, class PrologueDY, class Epilogue>
TGC_DEV void softmax_grad_rows(int rows, int n, int tile, float *red, const PrologueY &prologue_y,
                               const PrologueDY &prologue_dy, const Epilogue &epilogue)
{
        constexpr bool HOLD = N && 2 * RowPart<N, THREADS, V, true, PrologueY>::PER * V <=
                                           row_budget(THREADS);
        typedef RowPart<N, THREADS, V, HOLD, PrologueY> Part;
        Part y(prologue_y, rows, n, tile);
        RowPart<N, THREADS, V, HOLD, PrologueDY> dy(prologue_dy, rows, n, tile);
        float s = 0.f;
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < y.count(n); i++) {
                if (!y.has(i))
                        continue;
                float(&v)[V] = y.at(i), (&d)[V] = dy.at(i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        s += v[j] * d[j];
        }
        s = lanes_sum<Part::LANES, THREADS>(s, red);
#pragma unroll(HOLD ? Part::PER : 1)
        for (int i = 0; i < y.count(n); i++) {
                if (!y.has(i))
                        continue;
                float(&v)[V] = y.at(i), (&d)[V] = dy.at(i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] *= d[j] - s;
                epilogue(y.row, y.col(i), v);
        }
        if (Part::LANES > 32)
                __syncthreads();
}

template <int KIND, int N, int THREADS, int V, class Prologue, class Epilogue>
TGC_DEV void reduce_rows(int rows, int n, int tile, float *red, const Prologue &prologue,
                         const Epilogue &epilogue)
{
        typedef RowPart<N, THREADS, V, false, Prologue> Part;
        Part x(prologue, rows, n, tile);
        float m = -INFINITY, s = 0.f;
#pragma unroll 4
        for (int i = 0; i < x.count(n); i++) {
                if (!x.has(i))
                        continue;
                float v[V];
                prologue(x.row, x.col(i), v);
                if (KIND == RED_LOGSUMEXP)
                        exp_add(m, s, v);
                else
#pragma unroll
                        for (int j = 0; j < V; j++) {
                                m = fmaxf(m, v[j]);
                                s += v[j];
                        }
        }
        if (KIND == RED_LOGSUMEXP)
                exp_join<Part::LANES, THREADS>(m, s, red);
        else if (KIND == RED_MAX)
                m = lanes_max<Part::LANES, THREADS>(m, red);
        else
                s = lanes_sum<Part::LANES, THREADS>(s, red);
        float out[1] = { KIND == RED_SUM ? s : KIND == RED_MAX ? m : exp_ref(m) + logf(s) };
        if (x.lane == 0 && x.end)
                epilogue(x.row, 0, out);
        if (Part::LANES > 32)
                __syncthreads();
}

/* A row length known only at run time is walked in wide vectors where it divides. */
#define ROW_WIDTH(N, n, MINV, MAXV, call)                                                 \
        do {                                                                              \
                constexpr int W_ = N ? vec_of(N, MAXV) : (MAXV);                          \
                static_assert(W_ >= (MINV),                                               \
                              "rows: this functor needs wider vectors than the row has"); \
                if (N || (n) % W_ == 0) {                                                 \
                        constexpr int V = W_;                                             \
                        call;                                                             \
                } else {                                                                  \
                        constexpr int V = MINV;                                           \
                        call;                                                             \
                }                                                                         \
        } while (0)

template <int N, int THREADS, class Prologue, class Epilogue>
TGC_DEV void softmax_task(int rows, int n, int tile, char *smem, const Prologue &prologue,
                          const Epilogue &epilogue)
{
        constexpr int MAXV = vec_min(Prologue::MAXV, Epilogue::MAXV),
                      MINV = vec_max(Prologue::MINV, Epilogue::MINV);
        ROW_WIDTH(N, n, MINV, MAXV,
                  (softmax_rows<N, THREADS, V>(rows, n, tile, (float *)smem, prologue, epilogue)));
}

template <int N, int THREADS, class PrologueY, class PrologueDY, class Epilogue>
TGC_DEV void softmax_grad_task(int rows, int n, int tile, char *smem, const PrologueY &prologue_y,
                               const PrologueDY &prologue_dy, const Epilogue &epilogue)
{
        constexpr int MAXV = vec_min(PrologueY::MAXV, vec_min(PrologueDY::MAXV, Epilogue::MAXV));
        constexpr int MINV = vec_max(PrologueY::MINV, vec_max(PrologueDY::MINV, Epilogue::MINV));
        ROW_WIDTH(N, n, MINV, MAXV,
                  (softmax_grad_rows<N, THREADS, V>(rows, n, tile, (float *)smem, prologue_y,
                                                    prologue_dy, epilogue)));
}

template <int KIND, int N, int THREADS, class Prologue, class Epilogue>
TGC_DEV void reduce_task(int rows, int n, int tile, char *smem, const Prologue &prologue,
                         const Epilogue &epilogue)
{
        ROW_WIDTH(N, n, Prologue::MINV, Prologue::MAXV,
                  (reduce_rows<KIND, N, THREADS, V>(rows, n, tile, (float *)smem, prologue,
                                                    epilogue)));
}

template <int N, int THREADS, class Prologue>
TGC_DEV void argmax_task(int rows, int n, int tile, char *smem, const Prologue &prologue, int *out)
{
        constexpr int V = N ? vec_of(N, Prologue::MAXV) : Prologue::MINV;
        typedef RowPart<N, THREADS, V, false, Prologue> Part;
        Part x(prologue, rows, n, tile);
        u64 best = 0;
#pragma unroll 4
        for (int i = 0; i < x.count(n); i++) {
                if (!x.has(i))
                        continue;
                float v[V];
                prologue(x.row, x.col(i), v);
#pragma unroll
                for (int j = 0; j < V; j++) {
                        u64 k = order_key_at(v[j], x.col(i) + j);
                        best = k > best ? k : best;
                }
        }
        if (Part::LANES > 32)
                best = block_max_u64<THREADS>(best, (u64 *)smem);
        else
                best = lanes_max_u64<vec_min(Part::LANES, 32)>(best);
        if (x.lane == 0 && x.end)
                out[x.row] = order_index(best);
        if (Part::LANES > 32)
                __syncthreads();
}

#endif
