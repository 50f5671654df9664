/* gemv_short.cuh: y = norm(x) W^T for one row of x and a W that fits in the registers of the whole
 * GPU.
 *
 *      gemv_short_task<T, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(w, ldw, eps, tile, smem,
 *              prologue, epilogue[, gain[, keep]])
 *              as gemv_task (gemv.cuh) with M = 1.  Each warp calls the prologue once per tile
 *              for its part of K.  keep, called like an epilogue, gets the standardised row from
 *              tile 0.
 *
 * Decoding a small model is a chain of dependent launches, bound by latency, not bytes.  So a lane
 * requests all of its W before pdl_wait, then reads only its own part of x, into registers.  x
 * does not pass through shared memory; only the SPLIT warps that split K meet at a barrier.  The
 * epilogue's reads start before the FMAs.
 *
 * Tiles and shared memory: ../../forms/gemv_shape.h. */
#ifndef TGC_GEMV_SHORT_CUH
#define TGC_GEMV_SHORT_CUH

#include "epilogue_protocol.cuh"
#include "gemv.cuh"

/* Mean and 1/sqrt(variance + eps) of a row of K elements that SPLIT warps hold in registers, this
 * lane's in x[][] (own: index of its first).  Each warp computes its own moments, then
 * merge_moments joins them.  each: 2 floats of shared memory per warp. */
template <int K, int SPLIT, int PER, int UNIT>
TGC_DEV void single_wave_moments(const float (&x)[PER][UNIT], int own, float eps, float *each,
                                 float &mean, float &scale)
{
        constexpr int STEP = 32 * UNIT * SPLIT;
        const int warp = threadIdx.x >> 5, part = warp % SPLIT;
        float s = 0.f, q = 0.f;
#pragma unroll
        for (int f = 0; f < PER; f++)
#pragma unroll
                for (int j = 0; j < UNIT; j++)
                        s += x[f][j]; /* x is 0 beyond K */
        const int n = moments_count<K, PER, STEP, 32 * UNIT>(part * 32 * UNIT);
        mean = warp_sum(s) * (SPLIT == 1 ? 1.f / K : n ? 1.f / n : 0.f);
#pragma unroll
        for (int f = 0; f < PER; f++)
#pragma unroll
                for (int j = 0; j < UNIT; j++)
                        q += own + f * STEP < K ? (x[f][j] - mean) * (x[f][j] - mean) : 0.f;
        q = warp_sum(q);
        if (SPLIT > 1) {
                if ((threadIdx.x & 31) == 0) {
                        each[2 * warp] = mean;
                        each[2 * warp + 1] = q;
                }
                __syncthreads();
                const float *all = each + 2 * (warp - part);
                merge_moments<K, SPLIT, true>(
                        eps, mean, scale, [=](int p) { return all[2 * p]; },
                        [=](int p) { return all[2 * p + 1]; },
                        [](int p) {
                                return (float)moments_count<K, PER, STEP, 32 * UNIT>(p * 32 * UNIT);
                        });
                return;
        }
        scale = rsqrtf(q * (1.f / K) + eps);
}

/* The default `start`: does nothing. */
struct NoStart {
        __device__ __forceinline__ void operator()() const {}
};

/* The columns col0 .. col0+ROWS-1, which this warp shares with SPLIT - 1 others.  keeps: call
 * keep.  start() is called right after pdl_wait. */
template <class T, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN,
          class Prologue, class Epilogue, class Gain = NoGain, class Keep = NoKeep,
          class Start = NoStart>
TGC_DEV void gemv_short_columns(const T *w, long ldw, float eps, int col0, bool keeps, char *smem,
                                const Prologue &prologue, const Epilogue &epilogue,
                                const Gain &gain = Gain(), const Keep &keep = Keep(),
                                const Start &start = Start())
{
        constexpr int UNIT = ALIGN / (int)sizeof(T), STEP = 32 * UNIT * SPLIT,
                      PER = (K + STEP - 1) / STEP;
        constexpr int HV = prologue_width<Prologue, Gain, UNIT>();
        constexpr int TV = epilogue_width<Epilogue, ROWS>(), WARPS = THREADS / 32;
        constexpr bool WHOLE = K % STEP == 0;
        constexpr int KV = UNIT < Keep::MAXV ? UNIT : Keep::MAXV;
        static_assert(HV >= Prologue::MINV && HV >= Gain::MINV && TV >= Epilogue::MINV,
                      "gemv_short: a functor wants wider vectors");
        const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, part = warp % SPLIT;
        const int own = (part * 32 + lane) * UNIT; /* offset of this lane's elements in every
                                                    * step */
        float *each = (float *)smem, *partial = each + 2 * WARPS;

        const PlainRows<T, ROWS> row(w, ldw, col0, N);
        Bytes<T, ALIGN> p[PER][ROWS];
        batch_get<PER, ROWS, STEP, K, WHOLE>(p, row, own);
        pdl_wait();
        start();

        float x[PER][UNIT], acc[ROWS], square = 0.f;
        EpilogueReads<Gain, HV> gains[PER][UNIT / HV];
        EpilogueReads<Epilogue, TV> ahead;
        const int mine = lane < ROWS / TV ? lane : 0; /* lane i passes columns i * TV .. to the
                                                       * epilogue */
        const bool last = part == 0 && lane < ROWS / TV && col0 + mine * TV < N;
#pragma unroll
        for (int f = 0; f < PER; f++)
#pragma unroll
                for (int j = 0; j < UNIT; j += HV) {
                        const int k = own + f * STEP + j;
                        float v[HV];
#pragma unroll
                        for (int i = 0; i < HV; i++)
                                v[i] = 0.f;
                        if (WHOLE || k < K) {
                                prologue(0, k, v);
                                gains[f][j / HV].get(gain, 0, k);
                        }
#pragma unroll
                        for (int i = 0; i < HV; i++)
                                x[f][j + i] = v[i];
                }
        if (last)
                ahead.get(epilogue, 0, col0 + mine * TV);
        if (NORM == NORM_RMS) {
#pragma unroll
                for (int f = 0; f < PER; f++)
#pragma unroll
                        for (int j = 0; j < UNIT; j++)
                                square += x[f][j] * x[f][j];
        }
        if (NORM != NORM_NONE) {
                float mean = 0.f, scale = 1.f;
                if (NORM == NORM_LAYER)
                        single_wave_moments<K, SPLIT, PER, UNIT>(x, own, eps, each, mean, scale);
#pragma unroll
                for (int f = 0; f < PER; f++)
#pragma unroll
                        for (int j = 0; j < UNIT; j += HV) {
                                const int k = own + f * STEP + j;
                                float v[HV];
#pragma unroll
                                for (int i = 0; i < HV; i++)
                                        v[i] = x[f][j + i];
                                standardise(v, mean, scale);
                                if (WHOLE || k < K)
                                        gains[f][j / HV].call(gain, 0, k, v);
#pragma unroll
                                for (int i = 0; i < HV; i++)
                                        x[f][j + i] = WHOLE || k < K ? v[i] : 0.f;
                        }
        }

#pragma unroll
        for (int r = 0; r < ROWS; r++)
                acc[r] = 0.f;
#pragma unroll
        for (int f = 0; f < PER; f++)
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        float wv[UNIT];
                        p[f][r].floats(wv);
#pragma unroll
                        for (int j = 0; j < UNIT; j++)
                                acc[r] = fmaf(x[f][j], wv[j], acc[r]);
                }
#pragma unroll
        for (int r = 0; r < ROWS; r++)
                acc[r] = warp_sum(acc[r]);
        if (NORM == NORM_RMS)
                square = warp_sum(square);
        if (SPLIT > 1) {
                /* not parts_sum, which compiles to other code: the sums of a part are contiguous */
                if (lane == 0) {
#pragma unroll
                        for (int r = 0; r < ROWS; r++)
                                partial[warp * (ROWS + 1) + r] = acc[r];
                        partial[warp * (ROWS + 1) + ROWS] = square;
                }
                __syncthreads();
                square = 0.f;
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        acc[r] = 0.f;
#pragma unroll
                for (int s = 0; s < SPLIT; s++) {
                        const float *from = partial + (warp - part + s) * (ROWS + 1);
#pragma unroll
                        for (int r = 0; r < ROWS; r++)
                                acc[r] += from[r];
                        square += from[ROWS];
                }
        }
        const float scale = NORM == NORM_RMS ? rsqrtf(square * (1.f / K) + eps) : 1.f;
        if (last) {
                float v[TV];
#pragma unroll
                for (int c = 0; c < ROWS / TV; c++)
                        if (c == lane) {
#pragma unroll
                                for (int j = 0; j < TV; j++)
                                        v[j] = acc[c * TV + j] * scale;
                        }
                ahead.call(epilogue, 0, col0 + mine * TV, v);
        }
        if (Keeps<Keep>::YES && keeps && warp < SPLIT) {
#pragma unroll
                for (int f = 0; f < PER; f++)
#pragma unroll
                        for (int j = 0; j < UNIT; j += KV) {
                                const int k = own + f * STEP + j;
                                float v[KV];
#pragma unroll
                                for (int i = 0; i < KV; i++)
                                        v[i] = x[f][j + i] * scale;
                                if (WHOLE || k < K)
                                        keep(0, k, v);
                        }
        }
        if (SPLIT > 1)
                __syncthreads();
}

template <class T, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN,
          class Prologue, class Epilogue, class Gain = NoGain, class Keep = NoKeep>
TGC_DEV void gemv_short_task(const T *w, long ldw, float eps, int tile, char *smem,
                             const Prologue &prologue, const Epilogue &epilogue,
                             const Gain &gain = Gain(), const Keep &keep = Keep())
{
        gemv_short_columns<T, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(
                w, ldw, eps, gemv_column<THREADS, ROWS, SPLIT>(tile), tile == 0, smem, prologue,
                epilogue, gain, keep);
}

#endif
