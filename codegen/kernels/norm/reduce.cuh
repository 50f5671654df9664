/* reduce.cuh: reductions of rows (row_part.cuh).
 *
 *      reduce_task<KIND, N, THREADS>(rows, n, tile, smem, prologue, epilogue)
 *              RED_SUM, RED_MAX, RED_LOGSUMEXP: epilogue(row, 0, v[1]).  Rows are not empty.
 *              RED_MAX ignores NaN, as fmaxf does.
 *      argmax_task<N, THREADS>(rows, n, tile, smem, prologue, int *out)     out: int (rows)
 *              ties: lowest index; NaN counts as -inf */
#ifndef TGC_REDUCE_CUH
#define TGC_REDUCE_CUH

#include "order.cuh"
#include "row_exp.cuh"

enum { RED_SUM, RED_MAX, RED_LOGSUMEXP };

/* With the vector width as a template argument. */
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
