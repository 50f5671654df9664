/* gemv_test.cu: gemv.cuh and its forms for few rows against plain loops, in the emulator or on a
 * GPU:
 *
 *      tests/emulate/play.sh gemv_test            the emulator
 *      tests/emulate/play.sh --gpu gemv_test      a GPU
 *
 * Inputs are small integers, so sums are exact; where a norm or bf16 rounds them, results are
 * compared within that. */
#include "task.h"
#include "gemv_narrow.cuh"
#include "gemv_shape.h"
#include "gemv_mma.cuh"
#include "gemv_short.cuh"

/* A gain by column, and with layer norm a bias. */
__host__ __device__ static float gain_at(int col) { return 0.5f + (float)(col % 7) * 0.25f; }
__host__ __device__ static float bias_at(int norm, int col)
{
        return norm == NORM_LAYER ? (float)(col % 5) * 0.5f - 1.f : 0.f;
}

template <int NORM>
struct Weigh {
        static constexpr int MAXV = 4, MINV = 1;
        int rows;
        template <int V>
        __device__ void operator()(int row, int col, float (&v)[V]) const
        {
                for (int i = 0; i < V; i++)
                        v[i] = row < rows && col % V == 0
                                       ? v[i] * gain_at(col + i) + bias_at(NORM, col + i)
                                       : NAN;
        }
};

/* What a task of a norm multiplies the standardised row by. */
template <int NORM, int M>
__device__ static auto gain_of()
{
        if constexpr (NORM == NORM_NONE)
                return NoGain();
        else
                return Weigh<NORM> { M };
}

/* A form of the product, Form::task, and its operands. */
template <class Form, class T, int HV, int V, int MINV>
struct GemvRun {
        static constexpr int MOST = Form::MOST;
        const T *w;
        int ldw;
        Give<HV> prologue;
        Keep<V, MINV> epilogue;
        __device__ void operator()(int tile, char *smem) const
        {
                Form::task(w, ldw, tile, smem, prologue, epilogue);
        }
};

template <class T, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN>
struct ShortForm {
        static constexpr int MOST = THREADS;
        template <class P, class E>
        __device__ static void task(const T *w, int ldw, int tile, char *smem, const P &prologue,
                                    const E &epilogue)
        {
                gemv_short_task<T, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(w, ldw, 1e-5f, tile,
                                                                            smem, prologue,
                                                                            epilogue,
                                                                            gain_of<NORM, 1>());
        }
};

template <class T, int M, int N, int K, int WARPS, int TILES, int ROUNDS, int NORM>
struct MmaForm {
        static constexpr int MOST = WARPS * 32;
        template <class P, class E>
        __device__ static void task(const T *w, int ldw, int tile, char *smem, const P &prologue,
                                    const E &epilogue)
        {
                gemv_mma_task<T, M, N, K, WARPS, TILES, ROUNDS, NORM>(w, ldw, 1e-5f, tile, smem,
                                                                      prologue, epilogue,
                                                                      gain_of<NORM, M>());
        }
};

template <class T, int N, int K, int LANES, int TILES, int NORM, int ALIGN>
struct NarrowForm {
        static constexpr int MOST = NARROW_THREADS;
        template <class P, class E>
        __device__ static void task(const T *w, int ldw, int tile, char *, const P &prologue,
                                    const E &epilogue)
        {
                gemv_narrow_task<T, N, K, NARROW_THREADS, LANES, TILES, NORM, ALIGN>(
                        w, ldw, 1e-5f, tile, prologue, epilogue, gain_of<NORM, 1>());
        }
};

template <class T, int M, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN>
struct RowsForm {
        static constexpr int MOST = THREADS;
        template <class P, class E>
        __device__ static void task(const T *w, int ldw, int tile, char *smem, const P &prologue,
                                    const E &epilogue)
        {
                if constexpr (SPLIT > 0)
                        gemv_task<T, M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>(
                                w, ldw, 1e-5f, tile, smem, prologue, epilogue, gain_of<NORM, M>());
                else
                        gemv_kn_task<T, M, N, K, THREADS, ROWS, NORM, ALIGN>(w, ldw, 1e-5f, tile,
                                                                             smem, prologue,
                                                                             epilogue,
                                                                             gain_of<NORM, M>());
        }
};

template <class T, int M, int K, int NORM, bool ROWS_OF_W>
static bool gemv_is(const Result &r, const Matrix<float> &x, const Matrix<T> &w, const char *name,
                    double rounded = 0)
{
        double mean[M], scale[M];
        for (int m = 0; m < M; m++) {
                double sum = 0, square = 0;
                for (int k = 0; k < K; k++)
                        sum += x.at(m, k);
                mean[m] = NORM == NORM_LAYER ? sum / K : 0;
                for (int k = 0; k < K; k++)
                        square += (x.at(m, k) - mean[m]) * (x.at(m, k) - mean[m]);
                scale[m] = NORM == NORM_NONE ? 1 : 1 / sqrt(square / K + 1e-5);
        }
        /* float32 sums of K products of unit size: K/2^24 of their absolute sum at most */
        return result_is(
                r,
                [&](int i, int j) {
                        double sum = 0;
                        for (int k = 0; k < K; k++)
                                sum += ((x.at(i, k) - mean[i]) * scale[i] *
                                                (NORM == NORM_NONE ? 1 : gain_at(k)) +
                                        bias_at(NORM, k)) *
                                       (ROWS_OF_W ? w.at(j, k) : w.at(k, j));
                        return sum;
                },
                ((NORM == NORM_NONE ? 1 : 2) * 1e-5 + rounded) * sqrt((double)K) + 1e-6, name);
}

/* Random operands, whose rows are PAD elements longer than they need be; IN_T: x is of T; rounded:
 * as gemv_is. */
template <class Form, class T, int M, int N, int K, int NORM, int HV, int V, int MINV, int PAD,
          bool ROWS_OF_W = true, bool IN_T = false>
static void form_case(int blocks, int threads, int smem, const char *name, double rounded = 0)
{
        Matrix<T> w(ROWS_OF_W ? N : K, ROWS_OF_W ? K : N, (ROWS_OF_W ? K : N) + PAD, false);
        Matrix<float> x(M, K, K, false);
        for (int i = 0; IN_T && i < M * K; i++) {
                T t;
                put(&t, x.p[i]);
                x.p[i] = get(t);
        }
        Result r(M, N);
        GemvRun<Form, T, HV, V, MINV> f = { w.p, w.ld, { x.p, K, M }, Keep<V, MINV>(r) };
        const bool ok = task_run(f, blocks, threads, smem, name);
        report(ok && gemv_is<T, M, K, NORM, ROWS_OF_W>(r, x, w, name, rounded), name);
}

/* SPLIT 0: gemv_kn_task with ROWS columns per block */
template <class T, int M, int N, int K, int THREADS, int ROWS, int SPLIT, int NORM, int ALIGN,
          int HV, int V, int MINV = 1>
static void gemv_case()
{
        char name[128];
        snprintf(name, sizeof name, "gemv %s %dx%dx%d threads %d rows %d split %d norm %d align %d",
                 type_name<T>(), M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN);
        GemvShape s = { 0, 0, 0, ROWS, gemv_kn_smem(M, K, THREADS, ROWS) };
        if constexpr (SPLIT > 0) {
                typedef GemvShapeOf<(int)sizeof(T), M, K, THREADS, ROWS, SPLIT, ALIGN> S;
                s = gemv_shape((int)sizeof(T), M, K, THREADS, ROWS, SPLIT, ALIGN);
                report(s.unit == S::UNIT && s.flight == S::FLIGHT && s.kc == S::KC &&
                               s.cols == S::COLS && s.smem == S::SMEM,
                       "gemv_shape.h agrees with GemvShapeOf");
        }
        form_case<RowsForm<T, M, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>, T, M, N, K, NORM, HV, V,
                  MINV, 2 * ALIGN / (int)sizeof(T), (SPLIT > 0)>((N + s.cols - 1) / s.cols, THREADS,
                                                                 s.smem, name);
}

/* gemv_short_task with the shape the compiler would choose, for SMS multiprocessors */
template <class T, int N, int K, int SMS, int NORM, int ALIGN, int HV, int V, int MINV, int THREADS,
          int ROWS, int SPLIT>
static void short_case()
{
        char name[128];
        const GemvShort s = gemv_short((int)sizeof(T), N, K, ALIGN, MINV, SMS);
        snprintf(name, sizeof name,
                 "gemv_short %s %dx%d threads %d rows %d split %d norm %d align %d", type_name<T>(),
                 N, K, THREADS, ROWS, SPLIT, NORM, ALIGN);
        report(s.threads == THREADS && s.rows == ROWS && s.split == SPLIT, "gemv_short's choice");
        form_case<ShortForm<T, N, K, THREADS, ROWS, SPLIT, NORM, ALIGN>, T, 1, N, K, NORM, HV, V,
                  MINV, 2 * ALIGN / (int)sizeof(T)>((N + s.cols - 1) / s.cols, THREADS, s.smem,
                                                    name);
}

/* gemv_mma_task, whose x is of T and is rounded to T again after the norm: of values up to 4 by
 * 2^-9, for bf16. */
template <class T, int M, int N, int K, int SMS, int NORM, int HV, int V, int MINV, int WARPS,
          int TILES, int ROUNDS>
static void mma_case()
{
        char name[128];
        const GemvMma s = gemv_mma(M, N, K, NORM != NORM_NONE, SMS);
        typedef GemvMmaShape<M, K, WARPS, TILES, ROUNDS> S;
        snprintf(name, sizeof name, "gemv_mma %s %dx%dx%d warps %d tiles %d rounds %d norm %d",
                 type_name<T>(), M, N, K, WARPS, TILES, ROUNDS, NORM);
        report(s.warps == WARPS && s.tiles == TILES && s.rounds == ROUNDS && s.smem == S::SMEM,
               "gemv_mma's choice");
        const double rounded = NORM == NORM_NONE
                                       ? 0
                                       : (std::is_same<T, bf16>::value ? 0x1p-7 : 0x1p-10);
        form_case<MmaForm<T, M, N, K, WARPS, TILES, ROUNDS, NORM>, T, M, N, K, NORM, HV, V, MINV,
                  16, true, true>((N + s.cols - 1) / s.cols, WARPS * 32, s.smem, name, rounded);
}

/* gemv_narrow_task with the lanes and tiles that the compiler would choose, for SMS
 * multiprocessors */
template <class T, int N, int K, int SMS, int NORM, int ALIGN, int HV, int LANES, int TILES>
static void narrow_case()
{
        char name[128];
        const GemvNarrow s = gemv_narrow((int)sizeof(T), N, K, ALIGN, SMS);
        snprintf(name, sizeof name, "gemv_narrow %s %dx%d lanes %d tiles %d norm %d align %d",
                 type_name<T>(), N, K, LANES, TILES, NORM, ALIGN);
        report(s.lanes == LANES && s.tiles == TILES, "gemv_narrow's choice");
        form_case<NarrowForm<T, N, K, LANES, TILES, NORM, ALIGN>, T, 1, N, K, NORM, HV, 4, 1,
                  2 * ALIGN / (int)sizeof(T)>(TILES, NARROW_THREADS, 0, name);
}

static void gemv_cases()
{
        mma_case<bf16, 8, 2304, 768, 132, NORM_LAYER, 8, 8, 1, 8, 3, 1>();
        mma_case<bf16, 64, 768, 3072, 132, NORM_NONE, 8, 8, 2, 16, 1, 1>();
        mma_case<f16, 29, 100, 520, 5, NORM_NONE, 8, 4, 1, 8, 3, 1>();
        mma_case<bf16, 16, 768, 2048, 132, NORM_RMS, 8, 8, 2, 16, 1, 1>();
        mma_case<f16, 11, 330, 704, 5, NORM_LAYER, 8, 2, 1, 8, 2, 3>();
        mma_case<bf16, 8, 768, 3072, 132, NORM_NONE, 8, 8, 2, 16, 1, 1>();
        mma_case<f16, 2, 1234, 288, 3, NORM_RMS, 4, 2, 2, 8, 4, 7>();
        mma_case<bf16, 4, 70, 40, 2, NORM_LAYER, 8, 1, 1, 8, 4, 1>();
        mma_case<bf16, 5, 101, 2000, 16, NORM_RMS, 2, 1, 1, 8, 1, 1>();
        mma_case<bf16, 8, 136, 8200, 8, NORM_NONE, 8, 8, 8, 16, 1, 3>();
        mma_case<f16, 7, 33, 4096, 4, NORM_LAYER, 8, 1, 1, 16, 1, 2>();
        /* six rounds, the last one of a part */
        narrow_case<bf16, 1001, 288, 2, NORM_RMS, 16, 8, 4, 6>();
        narrow_case<bf16, 1001, 288, 132, NORM_LAYER, 16, 8, 4, 32>();
        narrow_case<f16, 33, 512, 1, NORM_LAYER, 16, 4, 8, 3>();
        narrow_case<float, 129, 96, 1, NORM_NONE, 16, 4, 4, 3>();
        narrow_case<bf16, 7, 36, 1, NORM_RMS, 2, 1, 4, 1>();
        report(!gemv_narrow(2, 32000, 1024, 16, 132).lanes &&
                       !gemv_narrow(2, 32000, 300, 8, 132).lanes &&
                       !gemv_narrow(2, 64000, 288, 16, 132).lanes,
               "gemv_narrow: not for long rows, odd pieces, a large W");

        short_case<bf16, 2304, 768, 132, NORM_LAYER, 16, 8, 8, 1, 160, 4, 1>();
        short_case<bf16, 768, 3072, 132, NORM_RMS, 16, 8, 8, 2, 256, 4, 4>();
        short_case<bf16, 101, 2000, 16, NORM_LAYER, 16, 4, 1, 1, 256, 2, 2>();
        short_case<bf16, 40, 4000, 8, NORM_LAYER, 16, 8, 4, 1, 256, 4, 4>();
        short_case<f16, 96, 288, 7, NORM_LAYER, 16, 8, 2, 2, 224, 2, 1>();
        short_case<bf16, 34, 768, 132, NORM_NONE, 16, 8, 2, 1, 32, 1, 1>();
        short_case<float, 66, 1026, 10, NORM_LAYER, 8, 2, 2, 2, 256, 2, 2>();
        short_case<bf16, 9, 101, 9, NORM_RMS, 2, 1, 1, 1, 288, 1, 1>();

        gemv_case<bf16, 1, 136, 512, 128, 2, 1, NORM_RMS, 16, 8, 2, 2>();
        gemv_case<bf16, 1, 36, 2048, 128, 4, 1, NORM_LAYER, 16, 8, 8>();
        gemv_case<bf16, 1, 7, 1000, 128, 1, 4, NORM_RMS, 16, 4, 1>();
        gemv_case<f16, 8, 40, 4096, 64, 4, 2, NORM_RMS, 16, 8, 4, 2>(); /* two passes over K */
        gemv_case<bf16, 8, 40, 4096, 64, 2, 1, NORM_LAYER, 16, 8, 2>();
        gemv_case<f16, 3, 33, 1004, 64, 2, 2, NORM_NONE, 8, 4, 1>();
        gemv_case<bf16, 5, 34, 70, 64, 4, 1, NORM_LAYER, 4, 2, 2>();
        gemv_case<bf16, 2, 9, 301, 64, 2, 1, NORM_RMS, 2, 1, 1>();
        gemv_case<bf16, 1, 1, 1, 32, 1, 1, NORM_NONE, 2, 1, 1>();
        gemv_case<float, 1, 64, 520, 128, 2, 2, NORM_RMS, 16, 4, 2, 2>();
        gemv_case<float, 4, 33, 301, 64, 4, 1, NORM_LAYER, 4, 1, 1>();
        gemv_case<float, 7, 10, 3000, 64, 8, 1, NORM_RMS, 16, 8, 2>();

        gemv_case<bf16, 1, 136, 512, 128, 64, 0, NORM_RMS, 16, 8, 8, 2>();
        gemv_case<f16, 8, 72, 2500, 64, 32, 0, NORM_LAYER, 16, 4, 8>();
        gemv_case<bf16, 3, 34, 77, 64, 16, 0, NORM_LAYER, 4, 1, 2, 2>();
        gemv_case<float, 2, 35, 101, 64, 16, 0, NORM_RMS, 4, 1, 1>();
        gemv_case<bf16, 1, 1, 3, 32, 8, 0, NORM_NONE, 2, 1, 1>();
}

int main()
{
        gemv_cases();
        printf("%s gemv tasks: %d runs, %d wrong\n", failures ? "not ok" : "ok", runs, failures);
        return failures != 0;
}
