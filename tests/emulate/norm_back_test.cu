/* norm_back_test.cu: a short product and the backward pass of an rmsnorm in one launch (norm_back_short_sm90.cuh), played: rows of one
 * tile and of several, odd sizes, twice with the same words, against plain loops. */
#define TGC_SM90A 1
#include "norm_back_short_sm90.cuh"
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

enum { K = 200, LD = 208 };
static const float EPS = 1e-5f;

/* dx = v + r */
template <int N>
struct Tail {
        static constexpr int MAXV = 8, MINV = 1, READS = 1, ROW_READS = 1, STORES = 1, WIDTH0 = 2, WIDTH1 = 0, READ = 2;
        const bf16 *r;
        bf16 *dx;
        template <int V> struct In { Raw<V, bf16> r; };
        template <int V> __device__ __forceinline__ void get_rows(int row, int col, In<V> &in) const { in.r.get(r + row * N + col); }
        template <int V> __device__ __forceinline__ void get_cols(int, In<V> &) const {}
        template <int V, class Out = Straight>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[V], const In<V> &in, const Out &out = Out()) const
        {
                float x[V];
                in.r.template floats<0, 1>(x);
                for (int j = 0; j < V; j++)
                        v[j] += x[j];
                out.template put<0>(dx + row * N + col, v);
        }
};

template <class Tile, int M, int N>
static void kernel(const bf16 *x, const bf16 *gain, const bf16 *r, bf16 *dx, unsigned long long *words, float *dgain,
                   const __grid_constant__ TmaMap map_a, const __grid_constant__ TmaMap map_b)
{
        TGC_SMEM(smem);
        const NormBack<bf16> back = { x, N, gain, EPS, words, dgain };
        norm_back_short<bf16, Tile, false, true, EARLY_B, N>(&map_a, &map_b, M, N, K, (int)blockIdx.x, smem, back, Tail<N>{ r, dx });
}

typedef std::vector<unsigned short> Values;

static unsigned seed;
static Values values(int n, float about, float scale)
{
        Values v(n);
        for (auto &x : v) {
                seed = seed * 1664525u + 1013904223u;
                x = emu_to_bf16(about + scale * ((float)(seed >> 8) / (1 << 23) - 1.f));
        }
        return v;
}
static double at(const Values &v, long i) { return emu_from_bf16(v[i]); }

static TmaMap map_of(const Values &v, unsigned rows)
{
        const emu::Map m = { (const char *)v.data(), 2, rows, K, LD };
        TmaMap map = {};
        memcpy(&map, &m, sizeof m);
        return map;
}

static int failures;

static double worse(double worst, double got, double want)
{
        const double e = fabs(got - want) / (1 + fabs(want));
        return e <= worst ? worst : e == e ? e : INFINITY;
}

template <class Tile, int M, int N> static void test(const char *name)
{
        const int parts = (M + 15) / 16;
        seed = 7;
        const Values a = values(M * LD, 0.f, 1.f), b = values(N * LD, 0.f, 1.f), x = values(M * N, 2.f, 1.f),
                     gain = values(N, 1.f, .5f), r = values(M * N, 0.f, 1.f);
        Values dx(M * N, 0x7fff);
        std::vector<unsigned long long> words(norm_back_words(M, N, Tile::BN));
        std::vector<float> dgain(parts * N, NAN);
        TmaMap map_a = map_of(a, M), map_b = map_of(b, N);
        const unsigned grid = (M + Tile::BM - 1) / Tile::BM * ((N + Tile::BN - 1) / Tile::BN);
        emu::Entry<8> k("kernel", kernel<Tile, M, N>);
        void *args[] = { (void *)x.data(), (void *)gain.data(), (void *)r.data(), dx.data(), words.data(), dgain.data(),
                         &map_a, &map_b };
        char err[600] = "";
        bool ran = true, clean = true;
        for (int i = 0; i < 2; i++) {
                tgc_emulate_clusters(1, grid);
                ran = ran && !tgc_emulate_launch("kernel", grid, Tile::THREADS, Tile::SMEM, args, 8, err, sizeof err);
                for (auto w : words)
                        clean = clean && !w;
        }
        emu::kernels = k.next;

        std::vector<double> want_gain(N);
        double worst = 0, worst_sums = 0;
        for (int i = 0; i < M; i++) {
                std::vector<double> g(N), y(N);
                double var = 0, s2 = 0;
                for (int c = 0; c < N; c++) {
                        for (int j = 0; j < K; j++)
                                g[c] += at(a, i * LD + j) * at(b, c * LD + j);
                        var += pow(at(x, i * N + c), 2) / N;
                }
                for (int c = 0; c < N; c++) {
                        y[c] = at(x, i * N + c) / sqrt(var + EPS);
                        s2 += g[c] * at(gain, c) * y[c] / N;
                        want_gain[c] += g[c] * y[c];
                }
                for (int c = 0; c < N; c++)
                        worst = worse(worst, at(dx, i * N + c), (g[c] * at(gain, c) - y[c] * s2) / sqrt(var + EPS) + at(r, i * N + c));
        }
        for (int c = 0; c < N; c++) {
                double sum = 0;
                for (int p = 0; p < parts; p++)
                        sum += dgain[p * N + c];
                worst_sums = worse(worst_sums, sum, want_gain[c]);
        }
        const bool ok = ran && clean && worst < 1. / 128 && worst_sums < 1e-4;
        printf("%s %s, %d rows of %d", ok ? "ok" : "not ok", name, M, N);
        if (!ok)
                printf(": %s%s dx %g, sums %g", err, clean ? "" : " words are left,", worst, worst_sums);
        printf("\n");
        failures += !ok;
}

template <class Tile> static void all(const char *name)
{
        test<Tile, 70, 136>(name);
        test<Tile, 129, 64>(name);
        test<Tile, 66, 384>(name);
        test<Tile, 66, 488>(name);
}

int main()
{
        all<S64x64s>("64x64");
        all<S64x128s>("64x128");
        all<S128x128s>("128x128");
        all<S192x128s>("192x128");
        return failures != 0;
}
