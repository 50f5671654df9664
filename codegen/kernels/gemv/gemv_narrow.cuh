/* gemv_narrow.cuh: y = norm(x) W^T for one short row of x and a W with many rows that fits in L2:
 * the logits of a tiny model.
 *
 *      gemv_narrow_task<T, N, K, THREADS, LANES, TILES, NORM, ALIGN>(w, ldw, eps, tile, prologue,
 *              epilogue[, gain])
 *              as gemv_task (gemv.cuh) with M = 1.  LANES * ALIGN bytes divide a row; the
 *              epilogue's MINV is 1.  A tile has every TILES-th group of THREADS / LANES columns.
 *
 * A row of W is a few 16-byte vectors (K = 288 in bf16: 36), too few for a warp.  So LANES lanes
 * share a row and a warp reads 32 / LANES rows at once.  A lane keeps its part of x in registers
 * for all its rows; no shared memory, no barrier.  The first rows of W are loaded before pdl_wait,
 * the next ones while the current ones are multiplied.
 *
 * LANES and TILES: ../../forms/gemv_shape.h. */
#ifndef TGC_GEMV_NARROW_CUH
#define TGC_GEMV_NARROW_CUH

#include "epilogue_protocol.cuh"
#include "gemv.cuh"

/* Loads and standardises this lane's part of x.  With NORM_RMS the caller still multiplies y by
 * `scale`. */
template <int K, int STEP, int PER, int UNIT, int LANES, int NORM, class Prologue, class Gain>
TGC_DEV void narrow_row(float (&x)[PER][UNIT], int own, float eps, float &scale,
                        const Prologue &prologue, const Gain &gain)
{
        constexpr int HV = prologue_width<Prologue, Gain, UNIT>();
        static_assert(HV >= Prologue::MINV && HV >= Gain::MINV,
                      "gemv_narrow: a functor wants wider vectors");
        float mean = 0.f, square = 0.f;
#pragma unroll
        for (int f = 0; f < PER; f++)
                prologue_vectors<HV>(x[f], [&](int j, float(&v)[HV]) {
                        prologue(0, own + f * STEP + j, v);
#pragma unroll
                        for (int i = 0; i < HV; i++) {
                                mean += v[i];
                                square += v[i] * v[i];
                        }
                        if (NORM == NORM_RMS)
                                gain(0, own + f * STEP + j, v);
                });
        scale = 1.f;
        if (NORM == NORM_RMS)
                scale = rsqrtf(lanes_sum<LANES>(square) * (1.f / K) + eps);
        if (NORM != NORM_LAYER)
                return;
        mean = lanes_sum<LANES>(mean) * (1.f / K);
        square = 0.f;
#pragma unroll
        for (int f = 0; f < PER; f++)
#pragma unroll
                for (int j = 0; j < UNIT; j++)
                        square += (x[f][j] - mean) * (x[f][j] - mean);
        const float r = rsqrtf(lanes_sum<LANES>(square) * (1.f / K) + eps);
#pragma unroll
        for (int f = 0; f < PER; f++)
                prologue_vectors<HV>(x[f], [&](int j, float(&v)[HV]) {
                        standardise(v, mean, r);
                        gain(0, own + f * STEP + j, v);
                });
}

template <class T, int N, int K, int THREADS, int LANES, int TILES, int NORM, int ALIGN,
          class Prologue, class Epilogue, class Gain = NoGain>
TGC_DEV void gemv_narrow_task(const T *w, long ldw, float eps, int tile, const Prologue &prologue,
                              const Epilogue &epilogue, const Gain &gain = Gain())
{
        constexpr int UNIT = ALIGN / (int)sizeof(T), STEP = LANES * UNIT, PER = K / STEP,
                      ROWS = 32 / LANES;
        constexpr int WARPS = THREADS / 32, NEXT = TILES * WARPS * ROWS;
        static_assert(K % STEP == 0 && Epilogue::MINV == 1, "gemv_narrow: not for this product");
        const int lane = threadIdx.x & 31, own = lane % LANES * UNIT;
        int col = (tile * WARPS + (int)(threadIdx.x >> 5)) * ROWS + lane / LANES;
        const T *row = w + (col < N ? col : N - 1) * ldw + own;
        const int from = lane / LANES; /* this lane's row among the warp's; a warp leaves the loop
                                        * as a whole */
        Bytes<T, ALIGN> p[PER];
#pragma unroll
        for (int f = 0; f < PER; f++)
                p[f].get(row + f * STEP);
        pdl_wait();
        float x[PER][UNIT] = {}, scale;
        narrow_row<K, STEP, PER, UNIT, LANES, NORM>(x, own, eps, scale, prologue, gain);
        for (; col - from < N; col += NEXT) {
                const bool mine = own == 0 && col < N;
                EpilogueReads<Epilogue, 1> ahead;
                float acc = 0.f;
                if (mine)
                        ahead.get(epilogue, 0, col);
                row = w + (col + NEXT < N ? col + NEXT : N - 1) * ldw + own;
#pragma unroll
                for (int f = 0; f < PER; f++) {
                        float wv[UNIT];
                        p[f].floats(wv);
                        if (col - from + NEXT < N)
                                p[f].get(row + f * STEP);
#pragma unroll
                        for (int j = 0; j < UNIT; j++)
                                acc = fmaf(x[f][j], wv[j], acc);
                }
                float v[1] = { lanes_sum<LANES>(acc) * scale };
                if (mine)
                        ahead.call(epilogue, 0, col, v);
        }
}

#endif
