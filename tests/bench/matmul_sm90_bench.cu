/* matmul_sm90_bench.cu: how fast are matmul_sm90.cuh and matmul_short_sm90.cuh on the Hopper at hand.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/kernels -Iruntime \
 *           -o matmul_sm90_bench tests/bench/matmul_sm90_bench.cu -ldl
 *      ./matmul_sm90_bench [part of a shape]
 *
 * A time is the median of seven runs of ten launches, in turn with those of the others; 512 places of C are checked.  cuBLAS is the peer where it can be opened.
 * The fastest of ours is marked *.  Exit status 1 when something is wrong, 4 without a GPU that fits. */
#include <dlfcn.h>
#include "matmul_sm90.h"

/* ---- cuBLAS, from the library that is there --------------------------------------------- */

static void *symbol(const char *const *libs, const char *name)
{
        for (; *libs; libs++) {
                void *lib = dlopen(*libs, RTLD_NOW | RTLD_GLOBAL);
                void *p = lib ? dlsym(lib, name) : 0;
                if (p)
                        return p;
        }
        return 0;
}

typedef int BlasCreate(void **);
typedef int BlasGemm(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int,
                     const void *, void *, int, int, int, int);

/* C = op(A) op(B), row-major bf16 or (words) tf32, on stream 0; false: no cuBLAS. */
static bool blas_run(const void *a, const void *b, void *c, Problem p, bool words)
{
        static const char *const libs[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so", 0 };
        static BlasGemm *gemm;
        static void *handle;
        static bool tried;
        const float one = 1.f, zero = 0.f;
        enum { ANY = -1 /* CUBLAS_GEMM_DEFAULT */ };
        const int type = words ? 0 /* CUDA_R_32F */ : 14 /* CUDA_R_16BF */;
        const int sum = words ? 77 /* CUBLAS_COMPUTE_32F_FAST_TF32 */ : 68 /* CUBLAS_COMPUTE_32F */;

        if (!tried) {
                BlasCreate *create = (BlasCreate *)symbol(libs, "cublasCreate_v2");
                gemm = (BlasGemm *)symbol(libs, "cublasGemmEx");
                tried = true;
                if (!create || !gemm || create(&handle) != 0)
                        handle = 0;
        }
        /* Column-major: Ct (N,M) = op(B)t op(A)t. */
        return handle && gemm(handle, p.TB ? 1 : 0, p.TA ? 1 : 0, p.N, p.M, p.K, &one, b, type, p.TB ? p.K : p.N,
                              a, type, p.TA ? p.M : p.K, &zero, c, type, p.N, sum, ANY) == 0;
}

/* ---- ways ------------------------------------------------------------------------------- */

struct Way { const char *name; Mode mode; int n; Launch *launch; };
struct Ways { const Way *way; int n; };
#define ALL(list) { list, sizeof list / sizeof *list }

#define WAY_OF(T, Tile, TA, TB, MODE, n) { #MODE " " #Tile " " #n, MODE, n, launch<T, Tile, TA, TB, MODE> },
#define WAY(Tile, TA, TB, MODE, n) WAY_OF(bf16, Tile, TA, TB, MODE, n)
#define WAYS(TA, TB, MODE, n) \
        WAY(S128x256, TA, TB, MODE, n) WAY(S128x192, TA, TB, MODE, n) WAY(S256x128, TA, TB, MODE, n) \
        WAY(S128x128, TA, TB, MODE, n) WAY(S128x128t, TA, TB, MODE, n) WAY(S128x192t, TA, TB, MODE, n) \
        WAY(S128x128p, TA, TB, MODE, n) WAY(S128x192p, TA, TB, MODE, n)

/* As programs have them in training: results by the copy engine. */
#define BOXES(TA, TB, MODE) \
        WAY(Boxes<S128x256>, TA, TB, MODE, 0) WAY(Boxes<S128x192>, TA, TB, MODE, 0) WAY(Boxes<S256x128>, TA, TB, MODE, 0) \
        WAY(Boxes<S128x128>, TA, TB, MODE, 0) WAY(Boxes<S128x128p>, TA, TB, MODE, 0) WAY(Boxes<S128x192p>, TA, TB, MODE, 0) \
        WAY(Boxes<Pairs<S128x256>>, TA, TB, MODE, 0)

static const Way ways_01[] = { WAYS(0, 1, PERSISTENT, 0) WAYS(0, 1, ADDED, 0) BOXES(0, 1, PERSISTENT) BOXES(0, 1, ADDED)
        BOXES(0, 1, TWICE) WAY(S128x192p, 0, 1, TWICE, 0) WAY(S128x128p, 0, 1, TWICE, 0) BOXES(0, 1, HALVES) WAY(S128x192p, 0, 1, HALVES, 0) };
static const Way ways_00[] = { WAYS(0, 0, PERSISTENT, 0) WAYS(0, 0, ADDED, 0) BOXES(0, 0, PERSISTENT) BOXES(0, 0, ADDED)
        BOXES(0, 0, SPREAD) WAY(S128x128p, 0, 0, SPREAD, 0) WAY(S128x192p, 0, 0, SPREAD, 0) };
static const Way ways_10[] = { WAYS(1, 0, PERSISTENT, 0) WAYS(1, 0, SPLIT, 2) WAYS(1, 0, SPLIT, 3)
        WAY(S128x256, 1, 0, SPLIT, 7) WAY(S128x256, 1, 0, SUMMED_SPLIT, 7) WAY(S128x192t, 1, 0, SPLIT, 4)
        WAY(S128x192t, 1, 0, SUMMED_SPLIT, 4) };

static const Way ways_prompt[] = { WAYS(0, 1, PERSISTENT, 0) WAYS(0, 1, ADDED, 0) WAYS(0, 1, SPLIT, 2)
        WAYS(0, 1, SPLIT, 4)
        WAY(S128x128p2, 0, 1, PERSISTENT, 0) WAY(S128x128p4, 0, 1, PERSISTENT, 0)
        WAY(S128x128p2, 0, 1, ADDED, 132) WAY(S128x128p4, 0, 1, ADDED, 132) };

/* Words, as programs have them: in pairs. */
#define WORDS_WAYS(TA, TB, MODE, n) \
        WAY_OF(float, Pairs<S128x256>, TA, TB, MODE, n) WAY_OF(float, Pairs<S128x192>, TA, TB, MODE, n) \
        WAY_OF(float, Pairs<S128x128>, TA, TB, MODE, n)
#define WORDS_WAYS_0(TB, MODE) \
        WORDS_WAYS(0, TB, MODE, 0) WAY_OF(float, Pairs<S256x128>, 0, TB, MODE, 0) \
        WAY_OF(float, S128x128p, 0, TB, MODE, 0) WAY_OF(float, S128x192p, 0, TB, MODE, 0)
static const Way words_01[] = { WORDS_WAYS_0(1, PERSISTENT) WORDS_WAYS_0(1, WIDE_ADDED) };
static const Way words_00[] = { WORDS_WAYS_0(0, PERSISTENT) };
static const Way words_10[] = { WORDS_WAYS(1, 0, PERSISTENT, 0) WORDS_WAYS(1, 0, SPLIT, 3) WORDS_WAYS(1, 0, SPLIT, 7)
        WAY_OF(float, Pairs<S128x256>, 1, 0, SUMMED_SPLIT, 7) };

/* By TA and TB. */
static const Ways ways[2][2] = { { ALL(ways_00), ALL(ways_01) }, { ALL(ways_10), {} } }, prompt = ALL(ways_prompt),
                  ways_of_words[2][2] = { { ALL(words_00), ALL(words_01) }, { ALL(words_10), {} } };

/* TA, TB, M, N, K: y = x Wt, dx = dy W, dW = dyt x */
static const Problem problems[] = {
        { 0, 1, 511, 3072, 2048 }, { 0, 1, 511, 2048, 2048 }, { 0, 1, 511, 16384, 2048 }, { 0, 1, 511, 2048, 8192 },
        { 0, 1, 1999, 3072, 2048 }, { 0, 1, 1999, 2048, 2048 }, { 0, 1, 1999, 16384, 2048 }, { 0, 1, 1999, 2048, 8192 },
        { 0, 1, 511, 2304, 768 }, { 0, 1, 511, 768, 768 }, { 0, 1, 511, 3072, 768 }, { 0, 1, 511, 768, 3072 },
        { 0, 1, 32768, 2304, 768 }, { 0, 1, 32768, 768, 768 }, { 0, 1, 32768, 3072, 768 }, { 0, 1, 32768, 768, 3072 },
        { 0, 1, 8192, 50304, 768 }, { 0, 1, 8192, 8192, 2048 }, { 0, 1, 8192, 2048, 8192 }, { 0, 1, 4096, 4096, 4096 },
        { 0, 0, 32768, 768, 2304 }, { 0, 0, 32768, 768, 768 }, { 0, 0, 32768, 768, 3072 }, { 0, 0, 32768, 3072, 768 },
        { 0, 0, 8192, 768, 50304 }, { 0, 0, 8192, 2048, 8192 }, { 0, 0, 8192, 8192, 2048 },
        { 1, 0, 2304, 768, 32768 }, { 1, 0, 768, 768, 32768 }, { 1, 0, 3072, 768, 32768 }, { 1, 0, 768, 3072, 32768 },
        { 1, 0, 50304, 768, 8192 }, { 1, 0, 8192, 2048, 8192 }, { 1, 0, 2048, 8192, 8192 },
};
static const Problem words[] = {
        { 0, 1, 8192, 2304, 768 }, { 0, 1, 8192, 768, 768 }, { 0, 1, 8192, 3072, 768 }, { 0, 1, 8192, 768, 3072 },
        { 0, 1, 8192, 50304, 768 }, { 0, 1, 4096, 4096, 4096 },
        { 0, 0, 8192, 768, 2304 }, { 0, 0, 8192, 768, 50304 }, { 0, 0, 8192, 768, 768 }, { 0, 0, 8192, 3072, 768 },
        { 1, 0, 2304, 768, 8192 }, { 1, 0, 768, 768, 8192 }, { 1, 0, 3072, 768, 8192 }, { 1, 0, 768, 3072, 8192 },
        { 1, 0, 50304, 768, 8192 }, { 1, 0, 4096, 4096, 4096 },
};

/* ---- times ------------------------------------------------------------------------------ */

enum { PLACES = 512, RUNS = 7, LAUNCHES = 10 };

/* Milliseconds per launch; way 0: cuBLAS. */
template <class T>
static double time_of(const Way *w, const Data &d, Problem p)
{
        return time_ms<1, LAUNCHES>([&](int i) {
                if (w)
                        w->launch(args_of(d, p, i, sizeof(T)), w->n, 0);
                else
                        blas_run(d.a, (T *)d.b + (size_t)(i % d.copies) * p.N * p.K, d.c, p, sizeof(T) == 4);
        });
}

static double median(const double *v)
{
        std::vector<double> s(v, v + RUNS);
        std::sort(s.begin(), s.end());
        return s[RUNS / 2];
}

__global__ void k_spin(long long cycles) { for (const long long from = clock64(); clock64() - from < cycles; ) { } }

/* The clock right after the load before, which power limits hold below the nominal one. */
static double clock_mhz()
{
        cudaEvent_t from, to;
        float ms;
        CUDA(cudaEventCreate(&from));
        CUDA(cudaEventCreate(&to));
        CUDA(cudaEventRecord(from));
        k_spin<<<1, 1>>>(2000000);
        CUDA(cudaEventRecord(to));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&ms, from, to));
        cudaEventDestroy(from);
        cudaEventDestroy(to);
        return 2000 / ms;
}

/* Prints a line per way of running p; how many were wrong. */
template <class T>
static int speed_of(Problem p, Ways ways, const char *name, unsigned seed)
{
        const Way *const way = ways.way;
        const int n = ways.n;
        const double flops = 2. * p.M * p.N * p.K;
        double ms[64] = {}, err[64], run[65][RUNS];
        size_t ws = 16;
        int best = -1, bad = 0;
        long at;

        for (int i = 0; i < n; i++) {
                const size_t need = ws_bytes(way[i].mode, p, way[i].n, sizeof(T));
                if (need < (size_t)4 << 30)
                        ws = need > ws ? need : ws;
        }
        Data d = data_new<T>(p, ws, PLACES, seed);
        for (int i = 0; i < n; i++) {
                const Way *w = way + i;
                if (ws_bytes(w->mode, p, w->n, sizeof(T)) > ws)
                        continue;
                data_poison<T>(d, p, w->mode);
                w->launch(args_of(d, p, 0, sizeof(T)), w->n, 0);
                CUDA(cudaGetLastError());
                CUDA(cudaDeviceSynchronize());
                err[i] = data_check<T>(d, p, w->mode, PLACES, seed, &at);
                ms[i] = 1;
        }
        const bool blas = blas_run(d.a, d.b, d.c, p, sizeof(T) == 4);
        CUDA(cudaDeviceSynchronize());
        const double blas_err = data_check<T>(d, p, PERSISTENT, PLACES, seed, &at);
        for (int r = 0; r < RUNS; r++)          /* in turn: what uses more power must not leave the next one less */
                for (int i = 0; i <= n; i++)
                        if (i < n ? ms[i] > 0 : blas)
                                run[i][r] = time_of<T>(i < n ? way + i : 0, d, p);
        for (int i = 0; i < n; i++)
                if (ms[i] > 0) {
                        ms[i] = median(run[i]);
                        if (best < 0 || ms[i] < ms[best])
                                best = i;
                }
        for (int i = 0; i < n; i++)
                if (ms[i] > 0) {
                        const bool ok = err[i] >= 0 && err[i] <= 0.02;
                        printf("%-28s %-36s %9.4f ms %6.0f TF  %8.1e%s%s\n", name, way[i].name, ms[i],
                               flops / ms[i] * 1e-9, err[i], i == best ? " *" : "", ok ? "" : "  WRONG");
                        bad += !ok;
                }
        if (blas) {
                const double t = median(run[n]);
                printf("%-28s %-36s %9.4f ms %6.0f TF  %8.1e   best of ours %.2fx, at %.0f MHz\n", name, "cuBLAS", t,
                       flops / t * 1e-9, blas_err, t / ms[best], clock_mhz());
        }
        fflush(stdout);
        data_free(&d);
        return bad;
}

/* A factor the other way round, before the product. */
static void speed_transpose(int rows, int cols)
{
        const size_t n = (size_t)rows * cols;
        float *a, *b;
        CUDA(cudaMalloc(&a, n * 4));
        CUDA(cudaMalloc(&b, n * 4));
        fill_normal<<<1024, 256>>>(a, n, 1);
        const double ms = time_ms<RUNS, LAUNCHES>([&](int) {
                k_transpose<<<(rows + 63) / 64 * ((cols + 63) / 64), 256, TRANSPOSE_SMEM>>>(a, rows, cols, b);
        });
        CUDA(cudaGetLastError());
        printf("transpose %dx%d %9.4f ms %6.0f GB/s\n", rows, cols, ms, n * 8 / ms * 1e-6);
        cudaFree(a);
        cudaFree(b);
}

template <class T, size_t N>
static int speed_each(const Problem (&list)[N], const Ways (&ways)[2][2], const char *type, const char *part, unsigned seed)
{
        int bad = 0;
        for (const Problem &p : list) {
                char name[64];
                const bool few = sizeof(T) == 2 && p.M <= PROMPT && !p.TA && p.TB;
                snprintf(name, sizeof name, "%s%d%d %dx%dx%d", type, p.TA, p.TB, p.M, p.N, p.K);
                if (!part || strstr(name, part))
                        bad += speed_of<T>(p, few ? prompt : ways[p.TA][p.TB], name, seed++);
        }
        return bad;
}

static int speed_all(const char *part, unsigned seed)
{
        printf("%-28s %-36s\n", "TA TB shape (M x N x K)", "way, mode, tile");
        int bad = speed_each<bf16>(problems, ways, "", part, seed);
        bad += speed_each<float>(words, ways_of_words, "tf32 ", part, seed);
        if (!part || strstr("transpose", part) || strstr(part, "tf32")) {
                speed_transpose(8192, 768);
                speed_transpose(8192, 3072);
                speed_transpose(2304, 768);
                speed_transpose(50304, 768);
        }
        return bad;
}

int main(int argc, char **argv) { return speed_main(argc > 1 ? argv[1] : 0, speed_all); }
