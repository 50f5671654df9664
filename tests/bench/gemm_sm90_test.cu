/* gemm_sm90_test.cu: are gemm_sm90.cuh and gemm_single_wave_sm90.cuh right on the Hopper at hand.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/forms
 *      $(make -s kernel-includes) -Iruntime \
 *           -o gemm_sm90_test tests/bench/gemm_sm90_test.cu
 *      ./gemm_sm90_test [part of a name]
 *
 * From the parts to the whole: descriptors alone, one step of one tile, a pipe that goes round,
 * edges, several tiles, splits;
each is a process of its own,
        since a trap ends the context.Every element is compared.Exit *status 1 when something is
                wrong,
        4 without a GPU that fits.*/
#include "gemm_sm90.h"

/* One product of 64x256x64 with given strides in the descriptor of the operand
                 * whose C side is contiguous,
 * no pipeline, no asynchronous copy: A (64,64), B (64,256) [or At (64,64), Bt (256,64)], C
 * float32. */
template <bool TA, bool TB>
__global__ void __launch_bounds__(128)
        k_probe(const bf16 *a, const bf16 *b, float *c, unsigned lbo, unsigned sbo)
{
        TGC_SMEM(smem);
        float d[1][32][4];
        float(&acc)[128] = reinterpret_cast<float(&)[128]>(d);
        char *sb = smem + 8192;
        const int t = threadIdx.x, warp = t / 32, lane = t % 32;

        for (int i = t; i < 64 * 64; i += 128) {
                const int r = i / 64, x = i % 64;
                *(bf16 *)(smem + r * 128 + ((x / 8 ^ r % 8) * 16) + x % 8 * 2) = a[i];
        }
        for (int i = t; i < 256 * 64; i += 128) { /* box, row, place in the row */
                const int box = i / 4096, r = i / 64 % 64, x = i % 64;
                *(bf16 *)(sb + box * 8192 + r * 128 + ((x / 8 ^ r % 8) * 16) +
                          x % 8 * 2) = TB ? b[(box * 64 + r) * 64 + x] : b[r * 256 + box * 64 + x];
        }
        fence_proxy_async();
        __syncthreads();
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
                wgmma<TA, !TB>(acc,
                               TA ? wgmma_desc(smem + ks * 2048, lbo, sbo, SWIZZLE_128)
                                  : wgmma_desc_k128(smem + ks * 32),
                               TB ? wgmma_desc_k128(sb + ks * 32)
                                  : wgmma_desc(sb + ks * 2048, lbo, sbo, SWIZZLE_128),
                               ks > 0, bf16());
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(acc);
#pragma unroll
        for (int j = 0; j < 32; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                        c[(warp * 16 + lane / 4 + e / 2 * 8) * 256 + j * 8 + lane % 4 * 2 + e % 2] =
                                d[0][j][e];
}

template <bool TA, bool TB>
static bool probe(unsigned lbo, unsigned sbo, double *worst)
{
        static bf16 a[64 * 64], b[64 * 256];
        static float c[64 * 256];
        void *da, *db, *dc;
        CUDA(cudaMalloc(&da, sizeof a));
        CUDA(cudaMalloc(&db, sizeof b));
        CUDA(cudaMalloc(&dc, sizeof c));
        fill_normal<<<8, 256>>>((bf16 *)da, 64 * 64, 1);
        fill_normal<<<8, 256>>>((bf16 *)db, 64 * 256, 2);
        CUDA(cudaMemcpy(a, da, sizeof a, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(b, db, sizeof b, cudaMemcpyDeviceToHost));
        k_probe<TA, TB>
                <<<1, 128, 40960>>>((const bf16 *)da, (const bf16 *)db, (float *)dc, lbo, sbo);
        CUDA(cudaMemcpy(c, dc, sizeof c, cudaMemcpyDeviceToHost));
        *worst = 0;
        for (int m = 0; m < 64; m++)
                for (int n = 0; n < 256; n++) {
                        double s = 0;
                        for (int k = 0; k < 64; k++)
                                s += (double)__bfloat162float(a[TA ? k * 64 + m : m * 64 + k]) *
                                     __bfloat162float(b[TB ? n * 64 + k : k * 256 + n]);
                        *worst = fmax(*worst, fabs(s - c[m * 256 + n]));
                }
        return *worst < 1e-3;
}

struct Test {
        const char *name;
        int type; /* of its maps */
        Mode mode;
        Problem p;
        int bm, bn, n; /* of a tile, and launch's n */
        Launch *launch;
};

#define STR_(x) #x
#define STR(x) STR_(x)
#define TEST(T, Tile, TA, TB, MODE, M, N, K, n)                            \
        { #MODE " " STR(TA) STR(TB) " " #Tile " " #M "x" #N "x" #K " " #T, \
          map_type<T>(),                                                   \
          MODE,                                                            \
          { TA, TB, M, N, K },                                             \
          Tile::BM,                                                        \
          Tile::BN,                                                        \
          n,                                                               \
          launch<T, Tile, TA, TB, MODE> },
#define ALL_SIDES(MODE, M, N, K, n)                                   \
        TEST (bf16, S128x256, 0, 1, MODE, M, N, K, n)                 \
                TEST (bf16, S128x256, 0, 0, MODE, M, N, K, n)         \
                        TEST (bf16, S128x256, 1, 1, MODE, M, N, K, n) \
                                TEST (bf16, S128x256, 1, 0, MODE, M, N, K, n)
#define ALL_TILES(T, TA, TB, MODE, M, N, K, n)                                        \
        TEST (T, S128x256, TA, TB, MODE, M, N, K, n)                                  \
                TEST (T, S128x192, TA, TB, MODE, M, N, K, n)                          \
                        TEST (T, S256x128, TA, TB, MODE, M, N, K, n)                  \
                                TEST (T, S128x128, TA, TB, MODE, M, N, K, n)          \
                                        TEST (T, S128x128t, TA, TB, MODE, M, N, K, n) \
                                                TEST (T, S128x192t, TA, TB, MODE, M, N, K, n)

/* Of those whose sums leave registers for A's words. */
#define WORDS(MODE, M, N, K, n)                                \
        TEST (float, S128x256, 1, 0, MODE, M, N, K, n)         \
                TEST (float, S128x192, 1, 0, MODE, M, N, K, n) \
                        TEST (float, S128x128, 1, 1, MODE, M, N, K, n)

#define SHORT(Tile)                                                                                \
        TEST (bf16, Tile, 0, 1, PERSISTENT, 64, 64, 8, 0)                                          \
                TEST (bf16, Tile, 0, 0, PERSISTENT, 1000, 1032, 1000, 0)                           \
                        TEST (bf16, Tile, 1, 0, PERSISTENT, 200, 328, 520, 0)                      \
                                TEST (f16, Tile, 1, 1, WIDE, 1000, 1032, 520, 0)                   \
                                        TEST (bf16, Tile, 0, 1, ADDED, 768, 1536, 384, 0)          \
                                                TEST (bf16, Tile, 1, 0, ADDED, 1000, 1032, 520, 0) \
                                                        TEST (bf16, Tile, 0, 1, TWICE, 1000, 1032, \
                                                              40, 0)                               \
                                                                TEST (bf16, Tile, 0, 1,            \
                                                                      WIDE_ADDED, 511, 1032, 200,  \
                                                                      0)                           \
                                                                        TEST (f16, Tile, 0, 0,     \
                                                                              HALVES, 1000, 1032,  \
                                                                              520, 0)              \
                                                                                TEST (bf16, Tile,  \
                                                                                      0, 0,        \
                                                                                      SPREAD,      \
                                                                                      1000, 1032,  \
                                                                                      520, 0)

/* Of one step a tile, so that epilogues meet; edges, whose second results end at 16 bytes. */
#define BOXES(Tile, TB, n)                                                                         \
        TEST (bf16, Boxes<Tile>, 0, TB, PERSISTENT, 1000, 1032, 520, n)                            \
                TEST (f16, Boxes<Tile>, 0, TB, PERSISTENT, 768, 1536, 64, n)                       \
                        TEST (bf16, Boxes<Tile>, 0, TB, ADDED, 1000, 1032, 520, n)                 \
                                TEST (bf16, Boxes<Tile>, 0, TB, ADDED, 768, 1536, 64, n)           \
                                        TEST (bf16, Boxes<Tile>, 1, 0, TWICE, 1000, 1032, 520, n)  \
                                                TEST (f16, Boxes<Tile>, 0, TB, TWICE, 768, 1536,   \
                                                      64, n)                                       \
                                                        TEST (f16, Boxes<Tile>, 0, TB, HALVES,     \
                                                              1000, 1040, 520, n)                  \
                                                                TEST (bf16, Boxes<Tile>, 0, TB,    \
                                                                      HALVES, 768, 1536, 64, n)    \
                                                                        TEST (bf16, Boxes<Tile>,   \
                                                                              0, TB, SPREAD, 1000, \
                                                                              1032, 520, n)        \
                                                                                TEST (f16,         \
                                                                                      Boxes<Tile>, \
                                                                                      0, TB,       \
                                                                                      SPREAD, 768, \
                                                                                      1536, 64, n)

/* With one set of panels for two consumers, of several tiles and of one. */
#define FETCHES(Tile, TB, n)                                                                      \
        TEST (bf16, Fetches<Tile>, 0, TB, ADDED, 1000, 1032, 520, n)                              \
                TEST (f16, Fetches<Tile>, 0, TB, ADDED, 768, 1536, 64, n)                         \
                        TEST (bf16, Fetches<Tile>, 1, 0, TWICE, 1000, 1032, 520, n)               \
                                TEST (bf16, Fetches<Tile>, 0, TB, TIMES, 1000, 1032, 2000, n)     \
                                        TEST (bf16, Fetches<Tile>, 0, TB, TIMES, 256, 384, 40, 0) \
                                                TEST (f16, Fetches<Tile>, 0, TB, TIMES, 2048,     \
                                                      2304, 64, n)                                \
                                                        TEST (bf16, Fetches<Tile>, 0, TB, SPREAD, \
                                                              1000, 1032, 520, n)                 \
                                                                TEST (f16, Fetches<Tile>, 0, TB,  \
                                                                      SPREAD, 768, 1536, 64, n)

/* With rows of tiles that are not even, columns that end before a part's begin. */
#define JOINT(Tile, PARTS)                                                                        \
        TEST (bf16, Tile, 0, 1, PERSISTENT, 1, 512, 64 * PARTS, 0)                                \
                TEST (bf16, Tile, 0, 0, ADDED, 128, 1024, 1024, 0)                                \
                        TEST (bf16, Tile, 0, 1, ADDED, 384, 768, 1000, 132)                       \
                                TEST (f16, Tile, 1, 1, TWICE, 504, 1096, 520, 0)                  \
                                        TEST (f16, Tile, 0, 1, WIDE_ADDED, 511, 2056, 520, 0)     \
                                                TEST (bf16, Tile, 0, 1, WIDE, 256, 256, 520, 0)   \
                                                        TEST (bf16, Tile, 0, 1, HALVES, 384, 768, \
                                                              1000, 132)                          \
                                                                TEST (f16, Tile, 0, 0, SPREAD,    \
                                                                      504, 1096, 520, 0)

static const Test tests[] = {
        ALL_SIDES(PERSISTENT, 128, 256, 64, 0)                /* one step, one tile */
        ALL_SIDES(PERSISTENT, 128, 256, 192, 0)               /* a few stages */
        ALL_SIDES(PERSISTENT, 128, 256, 1024, 0)              /* the pipeline goes round */
        ALL_SIDES(PERSISTENT, 200, 328, 200, 0)               /* edges everywhere */
        ALL_TILES(bf16, 0, 1, PERSISTENT, 1000, 1032, 520, 3) /* several tiles per block */
        ALL_TILES(bf16, 1, 0, PERSISTENT, 1000, 1032, 520, 3)
                ALL_TILES(bf16, 0, 1, ADDED, 1000, 1032, 520, 3)
                        ALL_TILES(bf16, 0, 0, ADDED, 768, 1536, 512, 3) /* whole tiles */
        ALL_TILES(bf16, 0, 1, TWICE, 1000, 1032, 520, 3) ALL_TILES(
                bf16, 0, 0, TWICE, 768, 1536, 512,
                3) ALL_TILES(bf16, 0, 1, HALVES, 1000, 1032, 520,
                             3) ALL_TILES(bf16, 0, 0, SPREAD, 1000, 1032, 520, 3)
                TEST (bf16, S128x128p, 0, 1, HALVES, 768, 1536, 512,
                      4) TEST (f16, S128x192p, 0, 1, HALVES, 1000, 1032, 520,
                               4) TEST (bf16, S128x128p, 0, 0, SPREAD, 768, 1536, 512,
                                        4) TEST (f16, S128x192p, 0, 0, SPREAD, 1000, 1032, 520, 4)
                        BOXES(S128x256, 0, 3) BOXES(S128x192, 1, 3) BOXES(S256x128, 0, 3) BOXES(
                                S128x128,
                                0, 3) BOXES(S128x128t, 1,
                                            3) BOXES(S128x192t, 0, 3)
                                BOXES(S128x128p, 0, 4) BOXES(S128x192p, 1, 4) FETCHES(
                                        S128x128t,
                                        1, 3) FETCHES(S128x192t,
                                                      0, 3) FETCHES(S128x128p, 0,
                                                                    4) FETCHES(S128x192p, 1, 4)
                                        TEST (bf16, Boxes<S128x192p>, 0, 1, GELU, 1000, 1032, 520,
                                              4) TEST (bf16, Boxes<S128x256>, 0, 1, GELU, 1000,
                                                       1032, 520,
                                                       3) ALL_TILES(bf16, 0, 1, WIDE, 1000, 1032,
                                                                    520, 3)
                                                ALL_TILES(bf16, 0, 1, WIDE_ADDED, 1000, 1032, 520,
                                                          3) TEST (bf16, S128x256, 0, 0, PERSISTENT,
                                                                   1000, 1032, 520, 3)
                                                        TEST (bf16, S128x256, 1, 1, PERSISTENT,
                                                              1000, 1032, 520,
                                                              3) TEST (f16, S128x256, 0, 1,
                                                                       PERSISTENT, 1000, 1032, 520,
                                                                       3) TEST (f16, S128x192t, 0,
                                                                                1, ADDED, 1000,
                                                                                1032, 520, 3)
                                                                TEST (bf16, S128x128, 0, 0,
                                                                      PERSISTENT, 1000, 1032, 8,
                                                                      3) /* less than a step */
        TEST (bf16, S128x192t, 0, 0, ADDED, 1000, 1032, 40, 3)
                TEST (bf16, S128x256, 1, 0, SPLIT, 304, 264, 1000, 5)
                        TEST (bf16, S128x192t, 1, 0, SPLIT, 304, 264, 1000, 5)
                                ALL_TILES(bf16, 1, 0, SUMMED, 1000, 1032, 520,
                                          3) /* more tiles across than K-steps for some */
        TEST (bf16, S128x256, 0, 0, SUMMED, 200, 328, 200,
              0) TEST (f16, S128x192, 1, 0, SUMMED, 1000, 1032, 520,
                       3) TEST (bf16, S128x256, 1, 0, SUMMED_SPLIT, 304, 264, 1000, 5)
                TEST (bf16, S128x128p, 0, 0, PERSISTENT, 256, 128, 64, 0) /* one pair, one step */
        TEST (bf16, S128x128p, 0, 1, PERSISTENT, 1000, 1032,
              520, 4) TEST (bf16, S128x192p, 0, 1, PERSISTENT, 1000, 1032, 520,
                            0) TEST (bf16, S128x192p, 1, 1, PERSISTENT, 1000, 1032, 40,
                                     4) TEST (bf16, S128x128p, 0, 0, ADDED, 1000, 1032, 520, 4)
                TEST (f16, S128x192p, 0, 1, ADDED, 1000, 1032, 2000,
                      4) TEST (f16, S128x192p, 0, 1, TWICE, 1000, 1032, 520,
                               4) TEST (bf16, S128x128p, 0, 1, WIDE, 1000, 1032, 520, 4)
                        TEST (bf16, S128x192p, 0, 0, WIDE_ADDED, 1000, 1032, 520,
                              4) TEST (bf16, S128x192p, 1, 0, SPLIT, 240, 264, 1000,
                                       5) TEST (bf16, S128x192p, 1, 0, SUMMED, 1000, 1032, 520, 4)
                                TEST (bf16, S128x192p, 1, 0, SUMMED_SPLIT, 240, 264, 1000,
                                      5) TEST (bf16, S128x192t, 1, 0, SUMMED_SPLIT, 304, 264, 1000,
                                               5) SHORT(S64x64s) SHORT(S64x128s) SHORT(S128x128s)
                                        SHORT(S192x128s) JOINT(S128x128p2, 2) JOINT(S128x128p4, 4)
                                                TEST (bf16, S128x128p4, 0, 1, PERSISTENT, 511, 3072,
                                                      520, 0)     /* more than run at once */
        TEST (float, S128x256, 0, 1, PERSISTENT, 128, 256, 32, 0) /* words */
        TEST (float, S128x256, 1, 1, PERSISTENT, 128, 256, 32,
              0) TEST (float, S128x256, 1, 0, PERSISTENT, 200, 328, 199,
                       0) TEST (float, S128x128p, 0, 0, WIDE_ADDED, 1000, 1032, 524,
                                0) TEST (float, S128x256, 0, 1, PERSISTENT, 200, 328, 200, 0)
                TEST (float, S128x256, 1, 1, PERSISTENT, 200, 328, 200,
                      0) ALL_TILES(float, 0, 1, PERSISTENT, 1000, 1032, 524,
                                   3) ALL_TILES(float, 0, 1, WIDE, 1000, 1032, 524, 3)
                        ALL_TILES(float, 0, 1, WIDE_ADDED, 1000, 1032,
                                  524, 3) ALL_TILES(float, 0, 1, WIDE_ADDED, 768, 1536, 512,
                                                    3) WORDS(PERSISTENT, 1000, 1032, 524, 3)
                                WORDS(WIDE_ADDED, 768, 1536, 512,
                                      3) WORDS(SPLIT, 304, 264, 1000,
                                               5) WORDS(SUMMED, 1000, 1032, 524,
                                                        3) WORDS(SUMMED_SPLIT, 304, 264, 1000, 5)
                                        TEST (float, S128x128p, 0, 1, WIDE_ADDED, 1000, 1032, 524,
                                              4) TEST (float, S128x192p, 0, 1, WIDE_ADDED, 768,
                                                       1536, 512, 4) TEST (float, S128x128p2, 0, 1,
                                                                           WIDE_ADDED, 511, 2056,
                                                                           524, 0)
                                                TEST (float, Pairs<S128x256>, 0, 1, WIDE_ADDED, 511,
                                                      2056, 524, 4) TEST (float, Pairs<S256x128>,
                                                                          0, 0, PERSISTENT, 1000,
                                                                          1032, 524, 4)
                                                        TEST (float, Pairs<S128x192>, 1, 0, SUMMED,
                                                              1000, 1032, 524,
                                                              4) TEST (float, Pairs<S128x128>, 1, 0,
                                                                       WIDE_ADDED, 504, 264, 999, 0)
                                                                TEST (float, Pairs<S128x256>, 1, 0,
                                                                      SUMMED_SPLIT, 240, 264, 1000,
                                                                      5)
};
enum { N_TESTS = sizeof tests / sizeof *tests };

/* The largest difference of a sum of A's row from a float64 one, of K normal numbers. */
template <class T>
static double sums_check(const Data &d, Problem p, int parts)
{
        const size_t n = (size_t)p.M * p.K;
        T *a = (T *)malloc(n * sizeof(T));
        float *sums = (float *)malloc((size_t)parts * p.M * sizeof(float));
        double worst = 0;
        CUDA(cudaMemcpy(a, d.a, n * sizeof(T), cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(sums, d.sums, (size_t)parts * p.M * sizeof(float), cudaMemcpyDeviceToHost));
        for (long m = 0; m < p.M; m++) {
                double e = 0;
                for (long k = 0; k < p.K; k++)
                        e -= (double)(float)a[p.TA ? k * p.M + m : m * p.K + k];
                for (int i = 0; i < parts; i++)
                        e += sums[(long)i * p.M + m];
                worst = fabs(e) <= worst ? worst : fabs(e); /* a NaN stays */
        }
        free(a);
        free(sums);
        return worst;
}

template <class T>
static bool test_run(const Test *t)
{
        const long places = (long)t->p.M * t->p.N;
        long at;
        const double most = sizeof(T) == 4 ? 4e-3 : 0.02;
        Data d = data_new<T>(t->p, ws_bytes(t->mode, t->p, t->n, sizeof(T)), places, 7);
        data_poison<T>(d, t->p, t->mode);
        t->launch(args_of(d, t->p, 0, sizeof(T)), t->n, 0);
        CUDA(cudaGetLastError());
        const cudaError_t e = cudaDeviceSynchronize();
        if (e != cudaSuccess) {
                printf("FAIL  %s: %s\n", t->name, cudaGetErrorString(e));
                return false;
        }
        const int across = (t->p.N + t->bn - 1) / t->bn;
        const double off = t->mode == SUMMED         ? sums_check<T>(d, t->p, across)
                           : t->mode == SUMMED_SPLIT ? sums_check<T>(d, t->p, across * t->n)
                                                     : 0;
        /* float32 sums of up to 1000 numbers, or of what they were rounded to */
        if (!(off < (sizeof(T) == 4 ? 0.05 : 1e-3))) {
                printf("FAIL  %s: a sum of a row is %.1e off\n", t->name, off);
                return false;
        }
        const double worst = data_check<T>(d, t->p, t->mode, places, 7, &at);
        if (worst >= 0 && worst <= most)
                printf("ok    %s: %.1e\n", t->name, worst);
        else if (worst < 0)
                printf("FAIL  %s: wrote past the end\n", t->name);
        else
                printf("FAIL  %s: %.1e, first at row %ld column %ld\n", t->name, worst, at / t->p.N,
                       at % t->p.N);
        data_free(&d);
        return worst >= 0 && worst <= most;
}

static bool test_descriptors()
{
        double e[4];
        probe<false, true>(8192, 1024, e);
        probe<false, false>(8192, 1024, e + 1);
        probe<true, true>(8192, 1024, e + 2);
        probe<false, false>(1024, 8192, e + 3);
        const bool ok = e[0] < 1e-3 && e[1] < 1e-3 && e[2] < 1e-3;
        printf("%s  descriptors: largest difference K-major %.1e, B N-major %.1e (%.1e with lbo "
               "and sbo exchanged), A M-major %.1e\n",
               ok ? "ok  " : "FAIL", e[0], e[1], e[3], e[2]);
        return ok;
}

static int test_all(const char *part)
{
        int bad = apart("descriptors", test_descriptors) != 0;
        for (const Test &t : tests)
                if (!part || strstr(t.name, part))
                        bad += apart(t.name, [&] {
                                       return t.type == MAP_TF32  ? test_run<float>(&t)
                                              : t.type == MAP_F16 ? test_run<f16>(&t)
                                                                  : test_run<bf16>(&t);
                               }) != 0;
        printf("%d of %d tests failed\n", bad, N_TESTS + 1);
        return bad;
}

int main(int argc, char **argv) { return test_all(argc > 1 ? argv[1] : 0) != 0; }
