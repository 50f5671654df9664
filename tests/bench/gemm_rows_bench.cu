/* gemm_rows_bench.cu: gemm_rows_sm90.cuh on the Hopper at hand: products of few rows, checked and
 * timed.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/forms \
 *           $(make -s kernel-includes) -Iruntime -o gemm_rows_bench tests/bench/gemm_rows_bench.cu
 *      ./gemm_rows_bench
 *
 * Every product is compared with sums in double precision at 64 columns, and each of its rows with
 * the same row computed alone, bit by bit.  A time is the median of nine graphs of launches over
 * weights that together exceed L2.  share: of the rate at which a large copy reads and writes.
 * Exit status 1 when something is wrong, 4 without a GPU that fits. */
#include "hopper.h"
#include "gemm_rows_sm90.cuh"
#include "gemm_rows_shape.h"
#include "product_epilogues.h"

enum { SMS = 132, COLUMNS = 64 };

struct Product {
        int M, N, K, copies;
        bf16 *x, *w, *y;
        int smem; /* of a block, at most */
};
static int launches; /* the next takes the next weights */

template <class Tile, int PARTS>
__global__ void __launch_bounds__(320, 1)
        kernel(const __grid_constant__ TmaMap x, const __grid_constant__ TmaMap w, bf16 *y, int M,
               int N, int K)
{
        TGC_SMEM(smem);
        pdl_launch();
        const Store<bf16, 1, 8> epilogue = { y, N };
        gemm_rows<bf16, Tile, PARTS, PREFETCH_B>(&x, &w, M, N, K, (int)blockIdx.x, smem, epilogue);
}

template <class Tile, int PARTS>
static void run_as(const Product &p)
{
        auto *k = kernel<Tile, PARTS>;
        CUDA(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::SMEM));
        const int at = launches++ % p.copies;
        cudaLaunchAttribute a[2] = {};
        a[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        a[0].val.programmaticStreamSerializationAllowed = 1;
        a[1].id = cudaLaunchAttributeClusterDimension;
        a[1].val.clusterDim = { PARTS, 1, 1 };
        cudaLaunchConfig_t c = {};
        c.gridDim = (p.N + Tile::BN - 1) / Tile::BN * PARTS, c.blockDim = Tile::THREADS;
        c.dynamicSmemBytes = Tile::SMEM, c.stream = stream(), c.attrs = a, c.numAttrs = 2;
        CUDA(cudaLaunchKernelEx(&c, k, map_of(p.x, p.M, p.K, MAP_BF16, Tile::BOX),
                                map_of(p.w + (size_t)at * p.N * p.K, p.N, p.K, MAP_BF16), p.y, p.M,
                                p.N, p.K));
}

template <int ROWS, int BYTES>
static void run_rows(const Product &p)
{
        constexpr int STAGES = BYTES / ((128 + ROWS) * 128 + 16);
        typedef RowsTile<ROWS, STAGES> Tile;
        switch (gemm_rows_parts(p.N, p.K, SMS)) {
        case 1: run_as<Tile, 1>(p); break;
        case 2: run_as<Tile, 2>(p); break;
        case 3: run_as<Tile, 3>(p); break;
        case 4: run_as<Tile, 4>(p); break;
        case 8: run_as<Tile, 8>(p); break;
        }
}

static void run(const Product &p)
{
        const bool half = p.smem < 120000; /* two blocks on a multiprocessor */
        switch (gemm_rows_tile(p.M)) {
        case 8: half ? run_rows<8, 113000>(p) : run_rows<8, 225000>(p); break;
        case 32: half ? run_rows<32, 113000>(p) : run_rows<32, 225000>(p); break;
        case 64: half ? run_rows<64, 113000>(p) : run_rows<64, 225000>(p); break;
        case 128: half ? run_rows<128, 113000>(p) : run_rows<128, 225000>(p); break;
        case 256: run_rows<256, 225000>(p); break;
        }
}

static __global__ void fill(bf16 *p, size_t n, unsigned seed)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x) {
                unsigned h = (unsigned)(i * 2654435761u) ^ (unsigned)(i >> 32) * 97u ^ seed;
                h = (h ^ h >> 15) * 0x85ebca6bu, h = (h ^ h >> 13) * 0xc2b2ae35u, h ^= h >> 16;
                p[i] = __float2bfloat16((float)(int)(h & 0xffff) / 32768.f - 1.f);
        }
}

/* out[m][j], column j * N / COLUMNS, and the sum of the terms' magnitudes. */
static __global__ void sums(const bf16 *x, const bf16 *w, int N, int K, double *out, double *size)
{
        const int m = blockIdx.x, j = threadIdx.x;
        const bf16 *a = x + (size_t)m * K, *b = w + (size_t)((long)j * N / COLUMNS) * K;
        double s = 0, t = 0;
        for (int k = 0; k < K; k++) {
                const double e = (double)__bfloat162float(a[k]) * (double)__bfloat162float(b[k]);
                s += e, t += fabs(e);
        }
        out[m * COLUMNS + j] = s, size[m * COLUMNS + j] = t;
}

template <class T>
static T *device(size_t n)
{
        void *p;
        CUDA(cudaMalloc(&p, n * sizeof(T)));
        return (T *)p;
}
template <class T>
static std::vector<T> host(const T *p, size_t n)
{
        std::vector<T> v(n);
        CUDA(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
}

/* Largest error in roundings of bf16 (of the result, or of what sums of such size lose). */
static int wrong;
static std::vector<unsigned short> result(Product p)
{
        const size_t n = (size_t)p.M * p.N;
        CUDA(cudaMemset(p.y, 0xff, n * 2));
        launches = 0;
        run(p);
        CUDA(cudaDeviceSynchronize());
        return host((const unsigned short *)p.y, n);
}

static void check(const Product &p, const double *want, const double *size)
{
        const std::vector<unsigned short> y = result(p);
        double worst = 0;
        for (int m = 0; m < p.M; m++)
                for (int j = 0; j < COLUMNS; j++) {
                        const int at = m * COLUMNS + j;
                        const unsigned bits = (unsigned)y[(size_t)m * p.N + (long)j * p.N / COLUMNS]
                                              << 16;
                        float got;
                        memcpy(&got, &bits, 4);
                        const double e = fabs((double)got - want[at]) /
                                         (fabs(want[at]) / 256 + size[at] * 1e-6 + 1e-30);
                        worst = e > worst || e != e ? e : worst;
                }
        if (!(worst <= 1)) {
                printf("WRONG: %d x %d x %d: error %g\n", p.M, p.N, p.K, worst);
                wrong++;
        }
        /* rows alone */
        for (int m = 0; m<p.M; m += p.M> 8 ? p.M / 5 + 1 : 1) {
                Product one = p;
                one.M = 1, one.x = p.x + (size_t)m * p.K;
                const std::vector<unsigned short> z = result(one);
                if (memcmp(z.data(), y.data() + (size_t)m * p.N, (size_t)p.N * 2)) {
                        int differ = 0;
                        for (int i = 0; i < p.N; i++)
                                differ += z[i] != y[(size_t)m * p.N + i];
                        printf("WRONG: %d x %d x %d: row %d alone has %d other values\n", p.M, p.N,
                               p.K, m, differ);
                        wrong++;
                        break;
                }
        }
}

int main()
{
        static const int shapes[][2] = { { 6144, 4096 },  { 4096, 4096 },   { 28672, 4096 },
                                         { 4096, 14336 }, { 128256, 4096 }, { 3072, 2048 },
                                         { 2048, 2048 },  { 16384, 2048 },  { 2048, 8192 },
                                         { 200, 72 },     { 1000, 1544 } };
        static const int all[] = { 1, 8, 16, 32, 33, 64, 96, 128, 192, 256 };
        cudaDeviceProp prop;
        if (cudaGetDeviceProperties(&prop, 0) != cudaSuccess || prop.major != 9)
                return printf("no Hopper\n"), 4;
        const size_t bytes = (size_t)1100 << 20;
        bf16 *x = device<bf16>(256 * 14336), *w = device<bf16>(bytes / 2),
             *y = device<bf16>((size_t)256 * 128256);
        double *want = device<double>(256 * COLUMNS), *size = device<double>(256 * COLUMNS);
        fill<<<1024, 256>>>(x, (size_t)256 * 14336, 1);
        fill<<<4096, 256>>>(w, bytes / 2, 2);
        /* the copy */
        cudaEvent_t e0, e1;
        CUDA(cudaEventCreate(&e0));
        CUDA(cudaEventCreate(&e1));
        float best = 1e9;
        for (int i = 0; i < 6; i++) {
                float ms;
                CUDA(cudaEventRecord(e0));
                CUDA(cudaMemcpyAsync(w, (char *)w + bytes / 2, bytes / 2,
                                     cudaMemcpyDeviceToDevice));
                CUDA(cudaEventRecord(e1));
                CUDA(cudaEventSynchronize(e1));
                CUDA(cudaEventElapsedTime(&ms, e0, e1));
                best = i && ms < best ? ms : best;
        }
        const double copy = (double)bytes / best / 1e6;
        fill<<<4096, 256>>>(w, bytes / 2, 3);
        printf("%s, %d multiprocessors; copy %.0f GB/s\n", prop.name, prop.multiProcessorCount,
               copy);
        printf("%6s %6s %4s %6s | us, GB/s of w, share: one block a multiprocessor | two\n", "N",
               "K", "M", "parts");
        for (const auto &s : shapes)
                for (int M : all) {
                        Product p = { M, s[0], s[1], 1, x, w, y, 0 };
                        sums<<<M, COLUMNS>>>(x, w, p.N, p.K, want, size);
                        const std::vector<double> a = host(want, M * COLUMNS),
                                                  b = host(size, M * COLUMNS);
                        const double each = (double)p.N * p.K * 2;
                        printf("%6d %6d %4d %6d |", p.N, p.K, M, gemm_rows_parts(p.N, p.K, SMS));
                        for (int half = 0; half < 2; half++) {
                                p.smem = half ? 113000 : 225000;
                                p.copies = 1;
                                check(p, a.data(), b.data());
                                p.copies = (int)((double)bytes / each);
                                if (p.copies > 40)
                                        p.copies = 40;
                                const int n = p.copies < 8 ? 8 : p.copies;
                                const double us = time_us(run, p, n);
                                printf(" %8.1f %6.0f %5.1f%% |", us, each / us / 1e3,
                                       each / us / 1e3 / copy * 100);
                        }
                        printf("\n");
                        fflush(stdout);
                }
        printf("%s\n", wrong ? "WRONG" : "all right");
        return wrong > 0;
}
