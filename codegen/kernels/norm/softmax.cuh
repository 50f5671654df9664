/* softmax.cuh: softmax of rows, and its gradient (row_part.cuh).
 *
 *      softmax_task<N, THREADS>(rows, n, tile, smem, prologue, epilogue)
 *              a row of nothing but -inf gives zeros
 *      softmax_grad_task<N, THREADS>(rows, n, tile, smem, prologue_y, prologue_dy, epilogue)
 *              y * (dy - sum(y * dy)); both prologues are plain ones */
#ifndef TGC_SOFTMAX_CUH
#define TGC_SOFTMAX_CUH

#include "row_exp.cuh"

/* Both with the vector width as a template argument. */
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

#endif
