/* grouped_gemm_sm90_bench.cu: is grouped_gemm_sm90.cuh right, and how fast, on the Hopper at hand.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/forms
 *      $(make -s kernel-includes) -Iruntime -Itests/bench \
 *           -o grouped_gemm_sm90_bench tests/bench/grouped_gemm_sm90_bench.cu -ldl
 *      ./grouped_gemm_sm90_bench [test | speed] [part of a name]
 *
 * As gemm_sm90_test.cu: tests are processes of their own, and every element is compared with a
 * float64 sum, relative to the root of the sum of squares of the products.  Speed: a time is the
 * median of five runs of ten launches, 512 places are checked;
`portable` is grouped_gemm
                        .cuh's kernel with the tile that training had.  Exit status 1 when something
                        *is wrong, 4 without
                                a GPU that fits.*
        /
#define TGC_BOUNDED 1
#include <math.h>
#include "product_bench.h"
#include "grouped_gemm_sm90.cuh"

        /* The six products of a mixture's two linears; k choices a token. */
enum Kind { UP, DOWN, DOWN_DX, UP_DX, DOWN_DW, UP_DW };
static const char *const kind_name[] = { "up", "down", "down-dx", "up-dx", "down-dw", "up-dw" };
static __host__ __device__ constexpr bool grads(Kind k) { return k >= DOWN_DW; }
/* x (a of a product, dy of a gradient) is read by slot, by token or as sorted; y is a gradient's
 * other operand. */
template <int CHOICES>
static __host__ __device__ constexpr int x_div(Kind k)
{
        return k == UP ? CHOICES : k == DOWN_DX || k == DOWN_DW ? 1 : 0;
}
template <int CHOICES>
static __host__ __device__ constexpr int y_div(Kind k)
{
        return k == UP_DW ? CHOICES : 0;
}

/* Products: (P,N) of (E,N,K) or (E,K,N).  Gradients: (E,N,K). */
struct Problem {
        Kind kind;
        int choices, E, tokens, N, K, spread;
};
static __host__ __device__ int slots(const Problem &p) { return p.tokens * p.choices; }

struct Args {
        const void *x, *y; /* products: y is W */
        TmaMap map_x, map_y;
        void *c;
        const void *add;
        const int *perm, *offs;
        Problem p;
};

/* ---- kernels ------------------------------------------------------------------ */

/* An epilogue that stores; ADDS: the sum with what it reads ahead, as big as C. */
template <class T, bool ADDS>
struct Store {
        static constexpr int MAXV = 8, MINV = 1, STORES = 1, WIDTH0 = 2, WIDTH1 = 0, READ = 0;
        T *c;
        const T *add;
        int N;
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V],
                                                   const Out &out = Out()) const
        {
                out.template put<0>(c + (long)row * N + col, v);
        }
};
template <class T>
struct Store<T, true> {
        static constexpr int MAXV = 8, MINV = 1, READS = 1, ROW_READS = 1, STORES = 1, WIDTH0 = 2,
                             WIDTH1 = 0, READ = 2;
        T *c;
        const T *add;
        int N;
        template <int V>
        struct In {
                Raw<V, T> add;
        };
        template <int V>
        __device__ __forceinline__ void get_rows(int row, int col, In<V> &in) const
        {
                in.add.get(add + (long)row * N + col);
        }
        template <int V>
        __device__ __forceinline__ void get_cols(int, In<V> &) const
        {
        }
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], const In<V> &in,
                                                   const Out &out = Out()) const
        {
                float r[V];
                in.add.template floats<0, 1>(r);
#pragma unroll
                for (int i = 0; i < V; i++)
                        v[i] += r[i];
                out.template put<0>(c + (long)row * N + col, v);
        }
};

/* grouped_gemm.cuh's epilogues: with the expert, and no reads ahead. */
template <class T, bool ADDS, bool GRAD>
struct Slot {
        static constexpr int MAXV = 8, MINV = 1;
        Store<T, ADDS> epilogue;
        int M;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], int e) const
        {
                EpilogueReads<Store<T, ADDS>, V> reads;
                row += GRAD ? e * M : 0;
                reads.get(epilogue, row, col);
                reads.call(epilogue, row, col, v);
        }
};

template <class T, class Tile, Kind KIND, int CHOICES, bool ADDS>
__global__ void __launch_bounds__(Tile::THREADS, 1) k_hopper(const __grid_constant__ Args g)
{
        constexpr int XDIV = x_div<CHOICES>(KIND), YDIV = y_div<CHOICES>(KIND);
        constexpr bool SCATTER = KIND == DOWN || KIND == UP_DX;
        TGC_SMEM(smem);
        const Problem &p = g.p;
        const Store<T, ADDS> epilogue = { (T *)g.c, (const T *)g.add, grads(KIND) ? p.K : p.N };
        if constexpr (grads(KIND))
                grouped_gemm_grad_tma<T, Tile, XDIV, YDIV>((const T *)g.x, p.N, &g.map_x,
                                                           (const T *)g.y, p.K, &g.map_y, g.perm,
                                                           g.offs, p.E, p.N, p.K, (int)blockIdx.x,
                                                           (int)gridDim.x, smem, epilogue);
        else
                grouped_gemm_tma<T, Tile, KIND == UP || KIND == DOWN, XDIV, SCATTER>(
                        (const T *)g.x, p.K, &g.map_x, &g.map_y, g.perm, g.offs, p.E, p.N, p.K,
                        (int)blockIdx.x, (int)gridDim.x, smem, epilogue);
}

template <class T, class Tile, Kind KIND, int CHOICES, bool ADDS>
__global__ void __launch_bounds__(Tile::THREADS, Tile::MINB) k_portable(Args g)
{
        constexpr int XDIV = x_div<CHOICES>(KIND), YDIV = y_div<CHOICES>(KIND);
        constexpr bool SCATTER = KIND == DOWN || KIND == UP_DX;
        TGC_SMEM(smem);
        const Problem &p = g.p;
        const Slot<T, ADDS, grads(KIND)> epilogue = {
                { (T *)g.c, (const T *)g.add, grads(KIND) ? p.K : p.N }, p.N
        };
        if constexpr (grads(KIND))
                grouped_gemm_grad_task<T, Tile, XDIV, YDIV, 16>((const T *)g.x, p.N, (const T *)g.y,
                                                                p.K, g.perm, g.offs, p.E, p.N, p.K,
                                                                blockIdx.x, smem, epilogue);
        else
                grouped_gemm_task<T, Tile, KIND == UP || KIND == DOWN, XDIV, SCATTER, 16>(
                        (const T *)g.x, p.K, (const T *)g.y, g.perm, g.offs, p.E, p.N, p.K,
                        blockIdx.x, smem, epilogue);
}

typedef void Launch(const Args &, int blocks);

template <class Tile>
static int tiles_most(const Problem &p)
{
        return grads(p.kind)
                       ? p.E * ((p.N + Tile::BM - 1) / Tile::BM) * ((p.K + Tile::BN - 1) / Tile::BN)
                       : ((slots(p) + Tile::BM - 1) / Tile::BM + p.E) *
                                 ((p.N + Tile::BN - 1) / Tile::BN);
}

/* blocks: at most; 0: as many as fit. */
template <class T, class Tile, Kind KIND, int CHOICES, bool ADDS>
static void hopper(const Args &g, int blocks)
{
        const int most = tiles_most<Tile>(g.p), fit = blocks ? blocks : sms;
        auto k = k_hopper<T, Tile, KIND, CHOICES, ADDS>;
        CUDA(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::SMEM));
        k < <<most<fit ? most : fit, Tile::THREADS, Tile::SMEM>>>(g);
}
template <class T, class Tile, Kind KIND, int CHOICES, bool ADDS>
static void portable(const Args &g, int)
{
        auto k = k_portable<T, Tile, KIND, CHOICES, ADDS>;
        CUDA(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::SMEM));
        k<<<tiles_most<Tile>(g.p), Tile::THREADS, Tile::SMEM>>>(g);
}

/* ---- a problem on the device ---------------------------------------------------- */

/* A warp per place of C: |c - sum| / sqrt(sum of squares), as in gemm_sm90.h. */
template <class T>
__global__ void check_places(Args g, bool adds, long places, unsigned seed, float *err)
{
        const long i = blockIdx.x * 8L + threadIdx.x / 32, lane = threadIdx.x % 32;
        const Problem p = g.p;
        const bool grad = grads(p.kind), trans = p.kind == UP || p.kind == DOWN;
        const long across = grad ? p.K : p.N, rows = grad ? (long)p.E * p.N : slots(p);
        if (i >= places)
                return;
        long m = i / across, n = i % across;
        if (places < rows * across) {
                const uint4 r = philox(make_uint4((unsigned)i, 0, 0, 1), seed, 1);
                m = r.x % rows, n = i & 2 ? across - 1 - r.y % 9 : r.y % across;
        }
        const T *x = (const T *)g.x, *y = (const T *)g.y;
        const int xdiv = p.kind == UP ? p.choices : p.kind == DOWN_DX || p.kind == DOWN_DW;
        int e = 0;
        double s = 0, q = 0;
        if (grad) {
                e = (int)(m / p.N);
                for (int at = g.offs[e] + (int)lane; at < g.offs[e + 1]; at += 32) {
                        const int px = xdiv ? g.perm[at] / xdiv : at,
                                  py = p.kind == UP_DW ? g.perm[at] / p.choices : at;
                        const double v = (double)to_float(x[(long)px * p.N + m % p.N]) *
                                         to_float(y[(long)py * p.K + n]);
                        s += v, q += v * v;
                }
        } else {
                while (g.offs[e + 1] <= m)
                        e++;
                const int px = xdiv ? g.perm[m] / xdiv : (int)m;
                for (long k = lane; k < p.K; k += 32) {
                        const double v = (double)to_float(x[(long)px * p.K + k]) *
                                         to_float(y[(long)e * p.N * p.K +
                                                    (trans ? n * p.K + k : k * p.N + n)]);
                        s += v, q += v * v;
                }
                m = p.kind == DOWN || p.kind == UP_DX ? g.perm[m] : m;
        }
        for (int d = 16; d; d >>= 1) {
                s += __shfl_xor_sync(~0u, s, d);
                q += __shfl_xor_sync(~0u, q, d);
        }
        const long at = m * across + n;
        if (adds)
                s += (double)to_float(((const T *)g.add)[at]);
        if (lane == 0)
                err[i] = (float)(fabs((double)to_float(((const T *)g.c)[at]) - s) /
                                 sqrt(q + 1e-30));
}

enum { GUARD = 4096, PLACES = 512 };
struct Data {
        Args g;
        void *mem[6];
        size_t c_bytes;
};

/* spread 0: experts get as many slots each as chance gives; 1: the first none, the second a few,
 * the last most; 2: one gets all. */
static void route(const Problem &p, int *perm, int *offs, unsigned seed)
{
        const int P = slots(p);
        int *of = (int *)malloc(P * sizeof *of), at = 0;
        srand(seed);
        for (int s = 0; s < P; s++)
                of[s] = p.spread == 2      ? p.E / 2
                        : p.spread == 0    ? rand() % p.E
                        : rand() % 50 == 0 ? 1
                                           : p.E - 1 - rand() % (p.E - 2) * (rand() % 2);
        for (int e = 0; e < p.E; e++) {
                offs[e] = at;
                for (int s = 0; s < P; s++)
                        if (of[s] == e)
                                perm[at++] = s;
        }
        offs[p.E] = at;
        free(of);
}

template <class T>
static Data data_new(const Problem &p, unsigned seed)
{
        Data d;
        const bool grad = grads(p.kind);
        const int P = slots(p), xdiv = p.kind == UP ? p.choices : 1,
                  ydiv = p.kind == UP_DW ? p.choices : 1;
        const bool trans = p.kind == UP || p.kind == DOWN;
        const long xr = P / xdiv, xc = grad ? p.N : p.K,
                   yr = grad ? P / ydiv : (long)p.E * (trans ? p.N : p.K),
                   yc = grad || trans ? p.K : p.N, c = grad ? (long)p.E * p.N * p.K : (long)P * p.N;
        const size_t bytes[6] = {
                xr * xc * 2 + GUARD, yr * yc * 2 + GUARD, c * 2 + GUARD, c * 2, P * 4ul,
                p.E * 4 + 4ul
        };
        int *perm = (int *)malloc(P * sizeof *perm),
            *offs = (int *)malloc((p.E + 1) * sizeof *offs);
        route(p, perm, offs, seed);
        for (int i = 0; i < 6; i++)
                CUDA(cudaMalloc(d.mem + i, bytes[i]));
        fill_normal<<<528, 256>>>((T *)d.mem[0], xr * xc, seed);
        fill_normal<<<528, 256>>>((T *)d.mem[1], yr * yc, seed + 1);
        fill_normal<<<528, 256>>>((T *)d.mem[3], c, seed + 2);
        CUDA(cudaMemcpy(d.mem[4], perm, P * sizeof *perm, cudaMemcpyHostToDevice));
        CUDA(cudaMemcpy(d.mem[5], offs, (p.E + 1) * sizeof *offs, cudaMemcpyHostToDevice));
        free(perm);
        free(offs);
        d.g = { d.mem[0],
                d.mem[1],
                map_of(d.mem[0], xr, xc, IsHalf<T>::is),
                map_of(d.mem[1], yr, yc, IsHalf<T>::is),
                d.mem[2],
                d.mem[3],
                (int *)d.mem[4],
                (int *)d.mem[5],
                p };
        d.c_bytes = c * 2;
        return d;
}

static void data_free(Data *d)
{
        for (int i = 0; i < 6; i++)
                cudaFree(d->mem[i]);
}

/* The largest difference; below 0: something behind C was written. */
template <class T>
static double data_check(const Data &d, bool adds, long places, unsigned seed, long *where)
{
        unsigned char guard[GUARD];
        float *err, *host = (float *)malloc(places * sizeof *host);
        double worst = 0;
        CUDA(cudaMalloc(&err, places * sizeof *err));
        check_places<T><<<(int)((places + 7) / 8), 256>>>(d.g, adds, places, seed, err);
        CUDA(cudaMemcpy(host, err, places * sizeof *host, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(guard, (char *)d.g.c + d.c_bytes, GUARD, cudaMemcpyDeviceToHost));
        for (long i = 0; i < places; i++)
                if (!(host[i] <= worst))
                        worst = host[i] == host[i] ? host[i] : INFINITY, *where = i;
        for (int i = 0; i < GUARD; i++)
                if (guard[i] != 0xff)
                        worst = -1;
        cudaFree(err);
        free(host);
        return worst;
}

/* ---- tests ------------------------------------------------------------------------ */

struct Test {
        const char *name;
        bool half, adds;
        int blocks;
        Problem p;
        Launch *launch;
};

#define TEST(T, Tile, KIND, CHOICES, ADDS, E, tokens, N, K, spread, blocks)                    \
        { #T " " #Tile " " #KIND "/" #CHOICES " adds " #ADDS " E" #E " " #tokens "x" #N "x" #K \
             " spread " #spread,                                                               \
          IsHalf<T>::is,                                                                       \
          ADDS,                                                                                \
          blocks,                                                                              \
          { KIND, CHOICES, E, tokens, N, K, spread },                                          \
          hopper<T, Tile, KIND, CHOICES, ADDS> },

/* Of a kind: one step; experts without rows, with few, K's epilogue, N's edge; many tiles for a few
 * blocks. */
#define KINDS(T, Tile, KIND, ADDS)                                            \
        TEST (T, Tile, KIND, 2, ADDS, 1, 64, 256, 64, 0, 0)                   \
                TEST (T, Tile, KIND, 2, ADDS, 5, 333, 328, 200, 1, 3)         \
                        TEST (T, Tile, KIND, 2, ADDS, 4, 700, 264, 520, 2, 0) \
                                TEST (T, Tile, KIND, 2, ADDS, 40, 900, 136, 328, 1, 4)
#define TILES(T, KIND, ADDS)           \
        KINDS(T, S128x256, KIND, ADDS) \
        KINDS(T, S128x192, KIND, ADDS) KINDS(T, S128x128t, KIND, ADDS)

static const Test tests[] = { TILES(bf16, UP, 1) TILES(bf16, DOWN, 1) TILES(bf16, DOWN_DX, 1)
                                      TILES(bf16, UP_DX, 0) TILES(bf16, DOWN_DW, 0)
                                              TILES(bf16, UP_DW, 0) KINDS(f16, S128x256, UP, 1)
                                                      KINDS(f16, S128x256, DOWN, 0)
                                                              KINDS(f16, S128x192, UP_DW, 1) };
enum { N_TESTS = sizeof tests / sizeof *tests };

template <class T>
static bool test_run(const Test *t)
{
        Data d = data_new<T>(t->p, 7);
        const long places = (long)(d.c_bytes / 2);
        long at = 0;
        CUDA(cudaMemset(d.mem[2], 0xff, d.c_bytes + GUARD));
        t->launch(d.g, t->blocks);
        CUDA(cudaGetLastError());
        const cudaError_t e = cudaDeviceSynchronize();
        if (e != cudaSuccess) {
                printf("FAIL  %s: %s\n", t->name, cudaGetErrorString(e));
                return false;
        }
        const double worst = data_check<T>(d, t->adds, places, 7, &at);
        const bool ok = worst >= 0 && worst <= 0.02;
        printf("%s  %s: %.1e", ok ? "ok  " : "FAIL", t->name, worst);
        printf(ok ? "\n" : ", at place %ld of %ld\n", at, places);
        data_free(&d);
        return ok;
}

static int test_all(const char *part)
{
        int bad = 0;
        for (const Test &t : tests)
                if (!part || strstr(t.name, part))
                        bad += apart(t.name, [&] {
                                       return t.half ? test_run<f16>(&t) : test_run<bf16>(&t);
                               }) != 0;
        printf("%d of %d tests failed\n", bad, (int)N_TESTS);
        return bad;
}

/* ---- speed ------------------------------------------------------------------------- */

struct Way {
        const char *name;
        Kind kind;
        bool adds;
        Launch *launch;
};
#define WAY(Tile, KIND, ADDS) { #Tile, KIND, ADDS, hopper<bf16, Tile, KIND, 2, ADDS> },
#define WAYS(KIND, ADDS)                                                        \
        { "portable", KIND, ADDS, portable<bf16, W128x128x64, KIND, 2, ADDS> }, \
                WAY(S128x256, KIND, ADDS) WAY(S128x192, KIND, ADDS) WAY(S128x128t, KIND, ADDS)
static const Way ways[] = { WAYS(UP, 1) WAYS(DOWN, 1) WAYS(DOWN_DX, 1) WAYS(UP_DX, 0)
                                    WAYS(DOWN_DW, 0) WAYS(UP_DW, 0) };
enum { N_WAYS = sizeof ways / sizeof *ways, RUNS = 5, LAUNCHES = 10 };

/* E, tokens, C, F: naive_moe of 12x768 at B8 T512, and a larger mixture. */
static const int shapes[][4] = { { 8, 4096, 768, 3072 },
                                 { 8, 8192, 2048, 1408 },
                                 { 64, 8192, 1024, 768 } };

static int speed_of(const int (&s)[4], const Way &w, unsigned seed)
{
        const bool wide = w.kind == UP || w.kind == DOWN_DX || w.kind == UP_DW; /* N is F */
        const Problem p = { w.kind, 2, s[0], s[1], wide ? s[3] : s[2], wide ? s[2] : s[3], 0 };
        Data d = data_new<bf16>(p, seed);
        long at = 0;
        CUDA(cudaMemset(d.mem[2], 0xff, d.c_bytes + GUARD));
        w.launch(d.g, 0);
        CUDA(cudaGetLastError());
        CUDA(cudaDeviceSynchronize());
        const double e = data_check<bf16>(d, w.adds, PLACES, seed, &at),
                     ms = time_ms<RUNS, LAUNCHES>([&](int) { w.launch(d.g, 0); });
        printf("E%d %dx%dx%d %-8s %-10s %9.1f us %6.0f TF  %8.1e%s\n", s[0], s[1], s[2], s[3],
               kind_name[w.kind], w.name, ms * 1e3, 2. * slots(p) * p.N * p.K / ms * 1e-9, e,
               e >= 0 && e <= 0.02 ? "" : "  WRONG");
        fflush(stdout);
        data_free(&d);
        return !(e >= 0 && e <= 0.02);
}

static int speed_all(const char *part, unsigned seed)
{
        int bad = 0;
        for (const int(&s)[4] : shapes)
                for (int i = 0; i < N_WAYS; i++)
                        if (!part || strstr(kind_name[ways[i].kind], part))
                                bad += speed_of(s, ways[i], seed);
        return bad;
}

int main(int argc, char **argv)
{
        return bench_main(argc, argv, "grouped_gemm_sm90_bench", test_all, speed_all);
}
