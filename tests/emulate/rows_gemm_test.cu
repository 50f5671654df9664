/* rows_gemm_test.cu: products of few rows on Hopper (gemm_rows_sm90.cuh), played: sums in double
 * precision, every number of rows that a decode step has, edges of N and K, parts of K; a row alone
 * has the bits that it has in company, whatever the tile; nothing is written outside. */
#define TGC_SM90A 1
#include "gemm_rows_sm90.cuh"
#include "gemm_rows_shape.h"
#include "bench/product_epilogues.h"
#include <cmath>
#include <cstdio>
#include <cstring>
#include <type_traits>

enum { MOST = 256, MOST_N = 328, LD = 1040, GUARD = 64 };

static unsigned short x[MOST * LD], w[MOST_N * LD], r[MOST * MOST_N];
static unsigned short y[MOST * MOST_N + GUARD], z[MOST * MOST_N + GUARD], gate[MOST * MOST_N];

/* A pair of neighbours makes one value, as SwiGLU's do. */
template <class T>
struct Gated {
        static constexpr int MAXV = 8, MINV = 2;
        T *c;
        int N;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                float u[V / 2];
#pragma unroll
                for (int j = 0; j < V / 2; j++)
                        u[j] = silu(v[2 * j]) * v[2 * j + 1];
                store<V / 2>(c + ((long)row * N + col) / 2, u);
        }
};

/* A residual, of rows from `add` on, and a bias. */
template <class T>
struct Residual : AddStore<T, 1> {
        const T *bias;
        template <int V>
        __device__ __forceinline__ void get_cols(int col,
                                                 typename AddStore<T, 1>::template In<V> &in) const
        {
                in.bias.get(bias + col);
        }
};

enum Finish { PLAIN, RESIDUAL, GATED };

template <class T, int HOW>
static auto epilogue_of(T *c, const T *add, int N)
{
        if constexpr (HOW == PLAIN)
                return Store<T, 1, 8> { c, N };
        else if constexpr (HOW == RESIDUAL)
                return Residual<T> { { c, c, add, N }, (const T *)r };
        else
                return Gated<T> { c, N };
}

template <class T, class Tile, int PARTS, int HOW>
static void kernel(T *c, const T *add, const __grid_constant__ TmaMap map_x,
                   const __grid_constant__ TmaMap map_w, int M, int N, int K)
{
        TGC_SMEM(smem);
        gemm_rows<T, Tile, PARTS, PREFETCH_B>(&map_x, &map_w, M, N, K, (int)blockIdx.x, smem,
                                              epilogue_of<T, HOW>(c, add, N));
}

static TmaMap map_of(const void *p, unsigned rows, unsigned cols, unsigned ld, int box_rows)
{
        const emu::Map m = { (const char *)p, 2, rows, cols, ld, box_rows, 128 };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
}

struct Run {
        int M, N, K, first; /* row of x */
        unsigned short *to;
};

template <class T, int ROWS, int PARTS, int HOW>
static bool run_as(const Run &p, char *err, size_t n)
{
        typedef RowsTile<ROWS, ROWS == 256 ? 4 : 5> Tile;
        TmaMap map_x = map_of(x + p.first * LD, p.M, p.K, LD, Tile::BOX),
               map_w = map_of(w, p.N, p.K, LD, 64);
        emu::Entry<7> k("kernel", kernel<T, Tile, PARTS, HOW>);
        const unsigned short *add = r + p.first * p.N;
        int M = p.M, N = p.N, K = p.K;
        void *args[] = { p.to, (void *)add, &map_x, &map_w, &M, &N, &K };
        memset(p.to, 0x7f, sizeof y);
        tgc_emulate_clusters(PARTS, PARTS);
        const bool ran = !tgc_emulate_launch("kernel", (N + 127) / 128 * PARTS, Tile::THREADS,
                                             Tile::SMEM, args, 7, err, (unsigned)n);
        emu::kernels = k.next;
        return ran;
}

template <class T, int PARTS, int HOW>
static bool run(const Run &p, char *err, size_t n)
{
        switch (gemm_rows_tile(p.M)) {
        case 8: return run_as<T, 8, PARTS, HOW>(p, err, n);
        case 32: return run_as<T, 32, PARTS, HOW>(p, err, n);
        case 64: return run_as<T, 64, PARTS, HOW>(p, err, n);
        case 128: return run_as<T, 128, PARTS, HOW>(p, err, n);
        default: return run_as<T, 256, PARTS, HOW>(p, err, n);
        }
}

template <class T>
static double value(unsigned short bits)
{
        T t;
        memcpy(&t, &bits, 2);
        return (double)to_float(t);
}

/* What the epilogue makes of sums in double precision. */
template <class T, int HOW>
static double wanted(const Run &p, int m, int n)
{
        double s = 0;
        for (int k = 0; k < p.K; k++)
                s += value<T>(x[m * LD + k]) * value<T>(w[n * LD + k]);
        if (HOW == RESIDUAL)
                s += value<T>(r[m * p.N + n]) + value<T>(r[n]);
        return s;
}

static int failures;

template <class T, int PARTS, int HOW>
static void test(const char *name, int N, int K)
{
        static const int bucket[] = { 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 3, 33 };
        const int cols = HOW == GATED ? N / 2 : N;
        char err[600] = "";
        for (int M : bucket) {
                const Run all = { M, N, K, 0, y };
                bool ok = run<T, PARTS, HOW>(all, err, sizeof err);
                double worst = 0;
                for (int m = 0; ok && m<M; m += M> 16 ? 7 : 1)
                        for (int n = 0; n < cols; n += 3) {
                                double want = wanted<T, HOW>(all, m, HOW == GATED ? 2 * n : n);
                                if (HOW == GATED)
                                        want = want / (1 + exp(-want)) *
                                               wanted<T, HOW>(all, m, 2 * n + 1);
                                const double got = value<T>(y[m * cols + n]),
                                             e = fabs(got - want) / (1 + fabs(want));
                                worst = e > worst || e != e ? e : worst;
                        }
                ok = ok && worst < (std::is_same<T, bf16>::value ? 6e-3 : 2e-3);
                for (int i = M * cols; ok && i < MOST * MOST_N + GUARD; i++)
                        ok = y[i] == 0x7f7f;
                /* the last row, and one more, alone */
                for (int m = M - 1; ok && m >= 0; m -= M / 2 + 1) {
                        const Run alone = { 1, N, K, m, z };
                        ok = run<T, PARTS, HOW>(alone, err, sizeof err) &&
                             !memcmp(z, y + m * cols, (size_t)cols * 2);
                        if (!ok)
                                printf("row %d differs\n", m);
                }
                printf("%s %s, %d rows, N %d, K %d in %d: %g%s%s\n", ok ? "ok" : "not ok", name, M,
                       N, K, PARTS, worst, err[0] ? ": " : "", err);
                failures += !ok;
        }
}

template <class T>
static void fill(unsigned short *p, int rows, int cols, int ld, float scale)
{
        static unsigned state = 7;
        for (int i = 0; i < rows; i++)
                for (int k = 0; k < ld; k++) {
                        state = state * 1664525u + 1013904223u;
                        T t;
                        from_float(&t,
                                   k < cols ? ((float)(state >> 8 & 0xffff) / 32768.f - 1.f) * scale
                                            : NAN);
                        memcpy(p + i * ld + k, &t, 2);
                }
}

template <class T>
static void all(const char *name, int N, int K)
{
        fill<T>(x, MOST, K, LD, 1.f);
        fill<T>(w, MOST_N, K, LD, 0.25f);
        fill<T>(r, MOST, MOST_N, MOST_N, 1.f);
        test<T, 1, PLAIN>(name, N, K);
        test<T, 2, RESIDUAL>(name, N, K);
        test<T, 4, GATED>(name, N, K);
}

int main()
{
        all<bf16>("bf16", 136, 200);
        all<f16>("f16", 328, 328);
        fill<bf16>(x, MOST, 1032, LD, 1.f);
        fill<bf16>(w, MOST_N, 1032, LD, 0.25f);
        test<bf16, 8, PLAIN>("bf16", 72, 1032);
        test<bf16, 3, RESIDUAL>("bf16", 136, 776);
        return failures != 0;
}
