/* short_test.cu: short products of Hopper (gemm_single_wave_sm90.cuh), played: epilogues that read
 * and epilogues that do not, K of few steps and of many, each operand early or not, against plain
 * loops. */
#define TGC_SM90A 1
#include "gemm_single_wave_sm90.cuh"
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>

enum { M = 70, N = 136, MOST_K = 600, LD = 608 };

/* C = 2 sum, or with R: sum + r. */
template <bool READS>
struct Epilogue;
template <>
struct Epilogue<false> {
        static constexpr int MAXV = 8, MINV = 1;
        const bf16 *r;
        bf16 *c;
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                for (int j = 0; j < V; j++)
                        v[j] *= 2.f;
                store<V>(c + row * N + col, v);
        }
};
template <>
struct Epilogue<true> {
        static constexpr int MAXV = 8, MINV = 1, READS = 1, ROW_READS = 1, STORES = 1, WIDTH0 = 2,
                             WIDTH1 = 0, READ = 2;
        const bf16 *r;
        bf16 *c;
        template <int V>
        struct In {
                Raw<V, bf16> r;
        };
        template <int V>
        __device__ __forceinline__ void get_rows(int row, int col, In<V> &in) const
        {
                in.r.get(r + row * N + col);
        }
        template <int V>
        __device__ __forceinline__ void get_cols(int, In<V> &) const
        {
        }
        template <int V>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V]) const
        {
                In<V> in;
                get_rows(row, col, in);
                (*this)(row, col, v, in);
        }
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], const In<V> &in,
                                                   const Out &out = Out()) const
        {
                float x[V];
                in.r.template floats<0, 1>(x);
                for (int j = 0; j < V; j++)
                        v[j] += x[j];
                out.template put<0>(c + row * N + col, v);
        }
};

template <class Tile, int PREFETCH, bool READS>
static void kernel(int *k, const bf16 *r, bf16 *c, const __grid_constant__ TmaMap map_a,
                   const __grid_constant__ TmaMap map_b)
{
        TGC_SMEM(smem);
        const Epilogue<READS> epilogue = { r, c };
        gemm_single_wave<bf16, Tile, false, true, PREFETCH>(&map_a, &map_b, M, N, *k,
                                                            (int)blockIdx.x, smem, epilogue);
}

static unsigned short at(int m, int r, int c)
{
        return emu_to_bf16((float)((r * 37 + c * 11 + m * 5) % 17 - 8));
}

static TmaMap map_of(const unsigned short *p, unsigned rows, unsigned cols)
{
        const emu::Map m = { (const char *)p, 2, rows, cols, LD, 64, 128 };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
}

static int failures;

template <class Tile, int PREFETCH, bool READS>
static void test(const char *name, int K)
{
        static unsigned short a[M * LD], b[N * LD], r[M * N], c[M * N];
        for (int i = 0; i < N; i++)
                for (int k = 0; k < LD; k++) {
                        if (i < M)
                                a[i * LD + k] = at(0, i, k);
                        b[i * LD + k] = at(1, i, k);
                }
        for (int i = 0; i < M * N; i++)
                r[i] = at(2, i / N, i % N), c[i] = 0x7fff;
        TmaMap map_a = map_of(a, M, K), map_b = map_of(b, N, K);
        const unsigned grid = (M + Tile::BM - 1) / Tile::BM * ((N + Tile::BN - 1) / Tile::BN);
        emu::Entry<5> k("kernel", kernel<Tile, PREFETCH, READS>);
        int *kp = &K;
        const bf16 *rp = (const bf16 *)r;
        bf16 *cp = (bf16 *)c;
        void *args[] = { kp, (void *)rp, cp, &map_a, &map_b };
        char err[600] = "";
        tgc_emulate_clusters(1, 1);
        const bool ran = !tgc_emulate_launch("kernel", grid, Tile::THREADS, Tile::SMEM, args, 5,
                                             err, sizeof err);
        emu::kernels = k.next;
        double worst = 0;
        for (int i = 0; i < M * N; i++) {
                double want = 0;
                for (int j = 0; j < K; j++)
                        want += (double)emu_from_bf16(a[i / N * LD + j]) *
                                emu_from_bf16(b[i % N * LD + j]);
                want = READS ? want + emu_from_bf16(r[i]) : 2 * want;
                const double e = fabs(emu_from_bf16(c[i]) - want) / (1 + fabs(want));
                worst = e <= worst ? worst : e == e ? e : INFINITY;
        }
        const bool ok = ran && worst < 1. / 128;
        printf("%s %s, K = %d, early %d, %s%s%s\n", ok ? "ok" : "not ok", name, K, PREFETCH,
               READS ? "reads" : "reads nothing", ok ? "" : ": ", ok ? "" : err);
        failures += !ok;
}

template <class Tile>
static void all(const char *name)
{
        /* one step, four, ten: more than the pipeline has */
        for (int K : { 40, 200, (int)MOST_K }) {
                test<Tile, 0, true>(name, K);
                test<Tile, PREFETCH_A, true>(name, K);
                test<Tile, PREFETCH_B, true>(name, K);
                test<Tile, PREFETCH_A | PREFETCH_B, true>(name, K);
                test<Tile, 0, false>(name, K);
                test<Tile, PREFETCH_B, false>(name, K);
        }
}

int main()
{
        all<S64x64s>("64x64");
        all<S64x128s>("64x128");
        all<S128x128s>("128x128");
        all<S192x128s>("192x128");
        return failures != 0;
}
