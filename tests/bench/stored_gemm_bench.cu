/* stored_gemm_bench.cu: gemm_stored.cuh and gemm_stored_sm90.cuh on the Hopper at hand: products
 * with weights in blocks, checked and timed.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/forms \
 *           $(make -s kernel-includes) -Iruntime -Iruntime/weights -o stored_gemm_bench \
 *           tests/bench/stored_gemm_bench.cu
 *      ./stored_gemm_bench [M ...]
 *
 * Every tile's result is compared with sums in double precision of the decoded weights, unrounded,
 * at 64 columns (worst over tiles: root of the mean square of errors over that of results).  A time
 * is the median of nine graphs of launches over weights that together exceed L2; each tile's best
 * number of splits is named behind it.  Exit status 1 when something is wrong, 4 without a GPU that
 * fits. */
#include "hopper.h"
#include <math.h>
#include "gemm_stored_sm90.cuh"
#include "stored_decode.cuh"
#include "product_epilogues.h"

TGC_STORED_TYPE(Q4_0, 32, 18, q4_0)
TGC_STORED_TYPE(Q4_K, 256, 144, q4_k)
TGC_STORED_TYPE(Q6_K, 256, 210, q6_k)
TGC_STORED_TYPE(Q8_0, 32, 34, q8_0)
TGC_STORED_TYPE(F8_128, 128, 132, f8)
TGC_STORED_TYPE(I4_128, 128, 68, i4)
TGC_STORED_TYPE(NF4, 64, 36, nf4)

enum { COLUMNS = 64, MOST_M = 2048 };

struct Product {
        const bf16 *x;
        unsigned char *w;
        bf16 *y;
        float *ws;
        int *joined;
        long copy_bytes; /* from one copy of the weights to the next */
        int M, splits, copies;
};
static int launches; /* the next takes the next weights */

template <class Tile, class S, int N, int K, bool GROUPS>
__global__ void __launch_bounds__(Tile::THREADS, Tile::MINB)
        kernel(const bf16 *x, const unsigned char *w, bf16 *y, int M, int splits, float *ws,
               int *joined)
{
        TGC_SMEM(smem);
        pdl_launch();
        const Store<bf16, 1, 8> epilogue = { y, N };
        if constexpr (GROUPS)
                stored_wgmma_task<bf16, S, Tile, N, K, 16>(x, K, w, M,
                                                           (M + Tile::BM - 1) / Tile::BM, splits,
                                                           ws, joined, (int)blockIdx.x, smem,
                                                           epilogue);
        else
                stored_gemm_task<bf16, S, Tile, N, K, 16>(x, K, w, M, (M + Tile::BM - 1) / Tile::BM,
                                                          splits, ws, joined, (int)blockIdx.x, smem,
                                                          epilogue);
}

template <class S>
__global__ void decode(bf16 *to, const unsigned char *w, long n)
{
        pdl_launch();
        pdl_wait();
        stored_decode_task<S, bf16, 128>(to, w, n, (int)blockIdx.x);
}

static void start(void *k, int grid, int threads, int smem, void **args)
{
        cudaLaunchAttribute a[1] = {};
        a[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        a[0].val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t c = {};
        CUDA(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
        c.gridDim = grid, c.blockDim = threads, c.dynamicSmemBytes = smem, c.stream = stream();
        c.attrs = a, c.numAttrs = 1;
        CUDA(cudaLaunchKernelExC(&c, k, args));
}

template <class Tile, class S, int N, int K, bool GROUPS>
static void run(const Product &p)
{
        constexpr int SMEM = Tile::template smem<S, K>();
        Product q = p;
        const int tiles = (p.M + Tile::BM - 1) / Tile::BM * ((N + Tile::BN - 1) / Tile::BN);
        q.w += launches++ % p.copies * p.copy_bytes;
        void *args[] = { &q.x, &q.w, &q.y, &q.M, &q.splits, &q.ws, &q.joined };
        start((void *)kernel<Tile, S, N, K, GROUPS>, tiles * p.splits, Tile::THREADS, SMEM, args);
}

template <class S, int N, int K>
static void run_decode(const Product &p)
{
        long n = (long)N * K;
        const unsigned char *w = p.w + launches++ % p.copies * p.copy_bytes;
        bf16 *to = (bf16 *)p.ws;
        void *args[] = { &to, &w, &n };
        start((void *)decode<S>, (int)((n + 4 * STORED_DECODED - 1) / (4 * STORED_DECODED)), 128, 0,
              args);
}

static unsigned random_state = 1;
static unsigned next_random()
{
        return random_state = random_state * 1664525u + 1013904223u, random_state >> 10;
}

static __global__ void fill(bf16 *p, size_t n)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x) {
                unsigned h = (unsigned)(i * 2654435761u) ^ (unsigned)(i >> 32) * 97u;
                h = (h ^ h >> 15) * 0x85ebca6bu, h = (h ^ h >> 13) * 0xc2b2ae35u, h ^= h >> 16;
                p[i] = __float2bfloat16((float)(int)(h & 0xffff) / 32768.f - 1.f);
        }
}

template <class S>
static __global__ void sums(const bf16 *x, const unsigned char *w, int N, int K, double *out)
{
        const int m = blockIdx.x, j = threadIdx.x;
        const bf16 *a = x + (size_t)m * K;
        double s = 0;
        for (int k = 0; k < K; k += 32) {
                float v[32];
                S::chunk(v, w, (long)j * N / COLUMNS * K + k);
                for (int i = 0; i < 32; i++)
                        s += (double)__bfloat162float(a[k + i]) * (double)v[i];
        }
        out[m * COLUMNS + j] = s;
}

template <class T>
static T *device(size_t n)
{
        void *p;
        CUDA(cudaMalloc(&p, n * sizeof(T)));
        CUDA(cudaMemset(p, 0, n * sizeof(T)));
        return (T *)p;
}

static int wrong;
static bf16 *x;
static unsigned char *w;
static bf16 *y;
static float *ws;
static int *joined;
static double *want;
static const size_t W_BYTES = (size_t)400 << 20, WS_BYTES = (size_t)512 << 20;

static double error_of(const Product &p, int N, void (*f)(const Product &))
{
        static std::vector<unsigned short> got;
        static std::vector<double> is;
        double e2 = 0, s2 = 0;
        CUDA(cudaMemset(y, 0xff, (size_t)p.M * N * 2));
        launches = 0;
        f(p);
        CUDA(cudaStreamSynchronize(stream()));
        got.resize((size_t)p.M * N), is.resize((size_t)p.M * COLUMNS);
        CUDA(cudaMemcpy(got.data(), y, got.size() * 2, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(is.data(), want, is.size() * 8, cudaMemcpyDeviceToHost));
        for (int m = 0; m < p.M; m++)
                for (int j = 0; j < COLUMNS; j++) {
                        const unsigned bits = (unsigned)got[(size_t)m * N + (long)j * N / COLUMNS]
                                              << 16;
                        float v;
                        memcpy(&v, &bits, 4);
                        const double r = is[(size_t)m * COLUMNS + j], d = v - r;
                        e2 += d * d, s2 += r * r;
                }
        return sqrt(e2 / s2);
}

/* The best number of splits. */
template <class Tile, class S, int N, int K, bool GROUPS>
static void race(const char *name, Product p, double *worst)
{
        const int tiles = (p.M + Tile::BM - 1) / Tile::BM * ((N + Tile::BN - 1) / Tile::BN);
        double best = 1e9;
        int at = 0;
        if (Tile::BM > 8 && Tile::BM >= 2 * p.M)
                return;
        if (p.M > 8 * Tile::BM)
                return;
        for (int s = 1; s <= 8 && (s == 1 || (tiles * s <= 800 && K / 256 / s >= 2)); s++) {
                if (s == 5 || s == 7)
                        continue;
                p.splits = s;
                if (s == 1 || s == 3) {
                        const double e = error_of(p, N, run<Tile, S, N, K, GROUPS>);
                        if (!(e < 0.01))
                                printf("WRONG: %s %d x %d x %d splits %d: error %g\n", name, p.M, N,
                                       K, s, e),
                                        wrong++;
                        *worst = e > *worst ? e : *worst;
                }
                const double us = time_us(run<Tile, S, N, K, GROUPS>, p, p.M > 256 ? 4 : 12);
                if (us < best)
                        best = us, at = s;
        }
        printf(" %s %.1f/%d", name, best, at);
}

/* half0, half1: where a block's scales are, as float16 or the upper half of a float. */
template <class S>
static void blocks_fill(int half0, int half1)
{
        std::vector<unsigned char> v((size_t)S::BYTES * 4096);
        for (size_t i = 0; i < v.size(); i++) {
                v[i] = (unsigned char)next_random();
                v[i] -= (v[i] & 0x7f) == 0x7f; /* E4M3's NaN */
        }
        for (size_t b = 0; b < 4096; b++)
                for (int h : { half0, half1 })
                        if (h >= 0) {
                                const unsigned u = 0x1400 + next_random() % 0x800;
                                v[b * S::BYTES + h] = (unsigned char)u;
                                v[b * S::BYTES + h + 1] = (unsigned char)(u >> 8);
                        }
        for (size_t i = 0; i + v.size() <= W_BYTES; i += v.size())
                CUDA(cudaMemcpyAsync(w + i, v.data(), v.size(), cudaMemcpyHostToDevice));
        CUDA(cudaDeviceSynchronize());
}

template <class S, int N, int K>
static void shape(const char *type, int half0, int half1, const std::vector<int> &all)
{
        const long bytes = (long)N * K / S::VALUES * S::BYTES;
        blocks_fill<S>(half0, half1);
        Product p = { x, w, y, ws, joined, (bytes + 1023) / 1024 * 1024, 0, 1, 0 };
        p.copies = (int)(W_BYTES / p.copy_bytes);
        printf("%s %d x %d, %.1f MB: decode to bf16 %.1f us\n", type, N, K, bytes / 1e6,
               time_us(run_decode<S, N, K>, p, 8));
        for (int M : all) {
                double worst = 0;
                p.M = M;
                sums<S><<<M, COLUMNS>>>(x, w, N, K, want);
                printf(" M %d:", M);
#define MMA(name, ...) race<StoredTile<__VA_ARGS__>, S, N, K, false>(name, p, &worst)
#define WGMMA(name, ...) race<StoredGroups<__VA_ARGS__>, S, N, K, true>(name, p, &worst)
#include "stored_gemm_race.h"
                printf("  error %.1e\n", worst);
                fflush(stdout);
        }
}

int main(int argc, char **argv)
{
        std::vector<int> all;
        cudaDeviceProp prop;
        for (int i = 1; i < argc; i++)
                all.push_back(atoi(argv[i]));
        if (all.empty())
                all = { 8, 16, 32, 64, 128, 256, 2048 };
        if (cudaGetDeviceProperties(&prop, 0) != cudaSuccess || prop.major != 9)
                return printf("no Hopper\n"), 4;
        x = device<bf16>((size_t)MOST_M * 14336), w = device<unsigned char>(W_BYTES);
        y = device<bf16>((size_t)MOST_M * 28672), ws = device<float>(WS_BYTES / 4);
        joined = device<int>(65536), want = device<double>(MOST_M * COLUMNS);
        fill<<<1024, 256>>>(x, (size_t)MOST_M * 14336);
        printf("%s\n", prop.name);
        shape<Stored_Q4_K, 28672, 4096>("Q4_K", 0, 2, all);
        shape<Stored_Q4_K, 4096, 14336>("Q4_K", 0, 2, all);
        shape<Stored_Q4_K, 4096, 4096>("Q4_K", 0, 2, all);
        shape<Stored_Q4_0, 28672, 4096>("Q4_0", 0, -1, all);
        shape<Stored_Q6_K, 4096, 14336>("Q6_K", 208, -1, all);
        shape<Stored_Q8_0, 28672, 4096>("Q8_0", 0, -1, all);
        shape<Stored_F8_128, 28672, 4096>("F8_128", 2, -1, all);
        shape<Stored_I4_128, 28672, 4096>("I4_128", 2, -1, all);
        shape<Stored_I4_128, 4096, 4096>("I4_128", 2, -1, all);
        shape<Stored_NF4, 28672, 4096>("NF4", 2, -1, all);
        return wrong != 0;
}
