/* norm_grad.cuh: gradient of a norm's input, and of gain and bias if asked (row_part.cuh).
 * norm_backward.cuh does the same for many rows of 16-bit values.
 *
 *      norm_grad_task<KIND, N, THREADS, ACC, ONCE, PREFETCH>(rows, tile, tiles, eps, smem,
 *              prologue_x, prologue_dy, epilogue, dgain, dbias)
 *              dx of norm_task from x (statistics are recomputed) and dy, the gradient of the value
 *              before gain and bias.  ACC: 0, ACC_GAIN, ACC_BIAS or both.  With ACC 0 prologue_dy
 *              is a plain prologue.  Else prologue_dy(row, col, dy, g) fills two vectors: g, the
 *              gradient of the whole output, and dy = g * gain; and dgain, dbias: float (tiles, N)
 *              get each tile's sums of g * xhat and of g, for columns_reduce_task (columns.cuh).
 *              Tile t has the row groups t, t + tiles, ...: with ACC launch a fixed number of tiles
 *              (528, or the groups if fewer), without ACC one per group.  ONCE: tiles is the number
 *              of groups, and small.  PREFETCH (with ONCE): the task calls pdl_wait after issuing
 *              all reads but prologue_dy's.
 *
 * shared memory: ROW_SMEM bytes; with ACC NORM_GRAD_SMEM(N). */
#ifndef TGC_NORM_GRAD_CUH
#define TGC_NORM_GRAD_CUH

#include "norm.cuh"

enum { ACC_GAIN = 1, ACC_BIAS = 2 };

#define NORM_GRAD_SMEM(N) (ROW_SMEM + ((N) <= 1024 ? 12 * (N) : 0))

/* Two sums with one pair of barriers. */
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

/* Calls prologue_dy in either form: dy and g. */
template <int ACC, int V, class PrologueDY>
TGC_DEV void norm_backward_prologue(const PrologueDY &prologue, int row, int col, float (&dy)[V],
                                    float (&g)[V])
{
        if constexpr (ACC != 0)
                prologue(row, col, dy, g);
        else
                prologue(row, col, dy);
}

/* Adds the columns (col.., V) of all row groups of the block and stores them.  sum: N floats per
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
        if (N_ACC && !HOLD_ACC) /* too long for registers: accumulate in memory (L2) */
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

#endif
