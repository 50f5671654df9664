/* norm.cuh: layer norm and RMS norm of rows (row_part.cuh).
 *
 *      norm_task<KIND, N, THREADS, FEW>(rows, tile, eps, smem, prologue, epilogue)
 *              The epilogue gets (x - mean) * rstd (NORM_LAYER) or x * rstd (NORM_RMS), and applies
 *              gain and bias.  FEW: few rows, bound by memory latency: the epilogue's reads are
 *              issued with x's, if there are registers. */
#ifndef TGC_NORM_CUH
#define TGC_NORM_CUH

#include "epilogue_protocol.cuh"
#include "row_part.cuh"

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

#endif
