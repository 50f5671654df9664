/* attention_sm90_bench.cu: is attention_sm90.cuh right, and how fast, on the Hopper at hand.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/forms
 *      $(make -s kernel-includes) -Iruntime \
 *           -o attention_sm90_bench tests/bench/attention_sm90_bench.cu -ldl
 *      ./attention_sm90_bench [test|speed [part of a problem's name]]
 *
 * Tests: every query (or 4096 of them) and its lse against float64, fresh random inputs, outputs
 * poisoned before; lengths that are no multiple of a tile, windows, soft caps, slopes, fewer kv
 * heads; twice the same bits.  Speed: medians beside the portable kernel's; TFLOP/s of useful work,
 * 4 B H T^2 D, half of it if causal.  `table`: the row of sm90_attention_tiles.def; with
 * -DBENCH_CANDIDATES others too, GROUPS BN STAGES TURNS.  Exit status 1 when something is wrong, 4
 * without a GPU that fits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <vector>
#include "hopper.h"
#include "attention_sm90.cuh"
#include "attention_short_sm90.cuh"
#include "../emulate/attention_tiles.h"

template <int D, int GROUPS>
struct Table;
#define ATT_SM90(D, GROUPS, BN, STAGES, TURNS, threads, smem)                 \
        template <>                                                           \
        struct Table<D, GROUPS> {                                             \
                typedef AttTileSm90<D, GROUPS, BN, STAGES, TURNS> Tile;       \
                static_assert(Tile::THREADS == threads && Tile::SMEM == smem, \
                              "the table's row of " #D ", " #GROUPS);         \
        };
#define ATT_SHORT(NB, smem) \
        static_assert(AttShortTileSm90<NB>::SMEM == smem, "the table's row of " #NB);
#include "../../codegen/forms/sm90_attention_tiles.def"
#undef ATT_SM90
#undef ATT_SHORT

/* ---- problems ---------------------------------------------------------------- */

template <int D_, int H_, int K_, bool CAUSAL_ = true>
struct Plain : AttBase {
        static constexpr int D = D_, H = H_, K = K_;
        static constexpr bool CAUSAL = CAUSAL_;
        static constexpr float SCALE = D_ == 64 ? 0.125f : 0.08838834764831845f;
};
template <class A, int WINDOW_>
struct Windowed : A {
        static constexpr int WINDOW = WINDOW_;
};
template <class A>
struct Capped : A {
        static constexpr float SOFTCAP = 2.f;
};
template <class A>
struct Sloped : A {
        static constexpr bool ALIBI = true;
};

/* Rows of W of each of the T tokens of a sequence; those of the last are 1 + grow times as
 * large. */
template <class E>
__global__ void fill(E *p, long n, unsigned seed, int W, int T, float grow)
{
        for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) {
                uint4 r = philox(make_uint4((unsigned)i, (unsigned)(i >> 32), 0, 0), seed, 0);
                float u = ((r.x >> 8) + 1) * (1.f / 16777217.f),
                      v = (r.y >> 8) * (6.2831853f / 16777216.f);
                from_float(p + i, sqrtf(-2.f * logf(u)) * cosf(v) *
                                          (1.f + grow * (float)(i / W % T) / (float)T));
        }
}

/* q, k, v are parts of the rows of one (B, T, (H+2K)D) matrix. */
struct Mem {
        void *qkv, *o;
        TmaMap map;
        float *lse, *slopes;
        Rt *rt;
        int B, T;
};

template <class E, class A>
__device__ __forceinline__ AttIn<E, A> inputs(const Mem &m, int T)
{
        constexpr long D = A::D, W = (A::H + 2 * A::K) * D;
        const Strides s = { T * W, W, D };
        const E *x = (const E *)m.qkv;
        return { x, x + A::H * D, x + (A::H + A::K) * D, s, s, s, 0, 0, 0, 0, m.slopes, 0 };
}

template <class E>
struct Out {
        static constexpr int MAXV = 8, MINV = 1;
        E *p;
        int C;
        template <int N>
        __device__ __forceinline__ void operator()(int row, int col, float (&v)[N]) const
        {
                store(p + (long)row * C + col, v);
        }
};

/* B, T: constants, as in a program; or 0. */
template <class E, class A, class Tile, int B, int T>
__global__ void __launch_bounds__(Tile::THREADS, 1) k_sm90(const __grid_constant__ Mem m)
{
        pdl_wait();
        TGC_SMEM(smem);
        constexpr int D = A::D;
        const int b = B ? B : m.B, t = B ? T : m.T;
        const AttMap q = { &m.map, 0, D }, k = { &m.map, A::H * D, D },
                     v = { &m.map, (A::H + A::K) * D, D };
        const Out<E> epilogue = { (E *)m.o, A::H * D };
        const AttIn<E, A> in = inputs<E, A>(m, t);
        attention_sm90_persistent<E, A, Tile>(q, k, v, in, m.lse, b, t, m.rt, blockIdx.x, gridDim.x,
                                              smem, epilogue);
}

template <class E, class A, class Tile, int MINB, int B, int T>
__global__ void __launch_bounds__(Tile::THREADS, MINB) k_portable(Mem m)
{
        pdl_wait();
        TGC_SMEM(smem);
        if (B)
                m.B = B, m.T = T;
        attention_task<E, A, Tile>(inputs<E, A>(m, m.T), m.lse, m.B, m.T, m.rt, blockIdx.x, smem,
                                   Out<E> { (E *)m.o, A::H * A::D });
}

template <class E, class A, class Tile, int B, int T>
__global__ void __launch_bounds__(Tile::THREADS, 1) k_whole_sm90(Mem m)
{
        TGC_SMEM(smem);
        if (B)
                m.B = B, m.T = T;
        attention_short_wgmma<E, A, Tile>(inputs<E, A>(m, m.T), m.lse, m.B, m.T, blockIdx.x, smem,
                                          Out<E> { (E *)m.o, A::H * A::D });
}

static int sms;

template <class E, class A, class Tile, int B = 0, int T = 0>
static void sm90(const Mem &m)
{
        const int tiles = m.B * A::H * ((m.T + Tile::BM - 1) / Tile::BM);
        launch(k_sm90<E, A, Tile, B, T>, tiles < sms ? tiles : sms, Tile::THREADS, Tile::SMEM, m);
}

template <class E, class A, class Tile, int B = 0, int T = 0>
static void whole_sm90(const Mem &m)
{
        launch(k_whole_sm90<E, A, Tile, B, T>, m.B * A::H * Tile::NB, Tile::THREADS, Tile::SMEM, m);
}

template <class E, class A, int B, int T>
static void portable(const Mem &m)
{
        typedef PickTile<E, A, KIND_FWD> P;
        typedef typename P::Tile Tile;
        launch(k_portable<E, A, Tile, P::MINB, B, T>,
               m.B * A::H * ((m.T + Tile::BM - 1) / Tile::BM), Tile::THREADS, P::SMEM, m);
}

template <class T>
struct IsHalf {
        static constexpr bool is = false;
};
template <>
struct IsHalf<f16> {
        static constexpr bool is = true;
};

template <class E, class A>
static Mem mem_new(int B, int T, unsigned seed, float grow)
{
        Mem m = {};
        const long rows = (long)B * T, W = (A::H + 2 * A::K) * A::D;
        float slopes[256];
        m.B = B, m.T = T;
        CUDA(cudaMalloc(&m.qkv, rows * W * 2));
        CUDA(cudaMalloc(&m.o, rows * A::H * A::D * 2));
        CUDA(cudaMalloc(&m.lse, rows * A::H * 4));
        CUDA(cudaMalloc(&m.slopes, sizeof slopes));
        CUDA(cudaMalloc(&m.rt, sizeof(Rt)));
        CUDA(cudaMemset(m.rt, 0, sizeof(Rt)));
        for (int h = 0; h < 256; h++)
                slopes[h] = exp2f(-(h % 8) - 1.f);
        CUDA(cudaMemcpy(m.slopes, slopes, sizeof slopes, cudaMemcpyHostToDevice));
        fill<<<1024, 256>>>((E *)m.qkv, rows * W, seed, (int)W, T, grow);
        m.map = map_of(m.qkv, rows, W, IsHalf<E>::is);
        return m;
}

static void mem_free(const Mem &m)
{
        cudaFree(m.qkv);
        cudaFree(m.o);
        cudaFree(m.lse);
        cudaFree(m.slopes);
        cudaFree(m.rt);
}

/* ---- tests ------------------------------------------------------------------- */

/* A block of 128 threads per query: err[0] = max |o - want| / (|want| + 1 / sqrt(keys)), which is
 * about the size of a mean of normal numbers; err[1] = |lse - want|. */
template <class E, class A>
__global__ void __launch_bounds__(128) k_check(Mem m, int places, unsigned seed, float *err)
{
        extern __shared__ double p[]; /* T */
        __shared__ double red[4];
        const int all = m.B * m.T * A::H, tid = threadIdx.x;
        int i = blockIdx.x;
        if (places < all)
                i = philox(make_uint4(i, 0, 0, 1), seed, 1).x % all;
        const int h = i % A::H, t = i / A::H % m.T, b = i / A::H / m.T, hk = h / (A::H / A::K);
        const AttIn<E, A> in = inputs<E, A>(m, m.T);
        const E *q = in.q + b * in.sq.b + t * in.sq.t + h * in.sq.h;
        double top = -INFINITY, sum = 0;
        for (int s = tid; s < m.T; s += 128) {
                const E *k = in.k + b * in.sk.b + s * in.sk.t + hk * in.sk.h;
                double x = 0;
                for (int d = 0; d < A::D; d++)
                        x += (double)to_float(q[d]) * (double)to_float(k[d]);
                x *= A::SCALE;
                if (A::SOFTCAP > 0.f)
                        x = A::SOFTCAP * tanh(x * (1. / (A::SOFTCAP > 0.f ? A::SOFTCAP : 1.f)));
                if (A::ALIBI)
                        x += (double)m.slopes[h] * (s - t);
                if ((A::CAUSAL && s > t) || (A::WINDOW > 0 && s <= t - A::WINDOW))
                        x = -INFINITY;
                p[s] = x;
                top = fmax(top, x);
        }
        for (int d = 16; d; d >>= 1)
                top = fmax(top, __shfl_xor_sync(~0u, top, d));
        if (tid % 32 == 0)
                red[tid / 32] = top;
        __syncthreads();
        top = fmax(fmax(red[0], red[1]), fmax(red[2], red[3]));
        double squares = 0;
        for (int s = 0; s < m.T; s++)
                sum += exp(p[s] - top), squares += exp(2 * (p[s] - top));
        double worst = 0;
        for (int d = tid; d < A::D; d += 128) {
                double o = 0;
                for (int s = 0; s < m.T; s++)
                        o += exp(p[s] - top) *
                             (double)to_float(in.v[b * in.sv.b + s * in.sv.t + hk * in.sv.h + d]);
                o /= sum;
                const double got = to_float(
                        ((const E *)m.o)[((long)b * m.T + t) * A::H * A::D + h * A::D + d]);
                const double e = fabs(got - o) / (fabs(o) + sqrt(squares) / sum);
                worst = e <= worst ? worst : e;
        }
        for (int d = 16; d; d >>= 1) {
                const double e = __shfl_xor_sync(~0u, worst, d);
                worst = e <= worst ? worst : e;
        }
        __syncthreads();
        if (tid % 32 == 0)
                red[tid / 32] = worst;
        __syncthreads();
        if (tid == 0) {
                for (int w = 1; w < 4; w++)
                        worst = red[w] <= worst ? worst : red[w];
                err[2 * blockIdx.x] = (float)worst;
                err[2 * blockIdx.x + 1] = (float)fabs(m.lse[((long)b * A::H + h) * m.T + t] -
                                                      (top + log(sum)));
        }
}

static unsigned long long sum_of(const void *p, size_t n)
{
        std::vector<unsigned char> h(n);
        unsigned long long x = 1469598103934665603ull;
        CUDA(cudaMemcpy(h.data(), p, n, cudaMemcpyDeviceToHost));
        for (unsigned char c : h)
                x = (x ^ c) * 1099511628211ull;
        return x;
}

template <class E, class A>
static bool test_of(void (*run)(const Mem &), const char *name, const char *tile, int B, int T,
                    float grow)
{
        static unsigned seed = 100;
        const Mem m = mem_new<E, A>(B, T, seed++, grow);
        const size_t bytes = (size_t)B * T * A::H * A::D * 2;
        const int places = std::min(B * T * A::H, 4096);
        unsigned long long sum[2];
        float *err, e[2] = { 0.f, 0.f };
        std::vector<float> host(2 * places);
        CUDA(cudaMalloc(&err, places * 8));
        for (int r = 0; r < 2; r++) {
                CUDA(cudaMemset(m.o, 0xff, bytes));
                CUDA(cudaMemset(m.lse, 0xff, (size_t)B * T * A::H * 4));
                run(m);
                CUDA(cudaDeviceSynchronize());
                sum[r] = sum_of(m.o, bytes) ^ sum_of(m.lse, (size_t)B * T * A::H * 4) * 3;
        }
        k_check<E, A><<<places, 128, T * 8>>>(m, places, seed, err);
        CUDA(cudaMemcpy(host.data(), err, places * 8, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 2 * places; i++)
                e[i & 1] = host[i] <= e[i & 1] ? e[i & 1] : host[i]; /* a NaN stays */
        const bool same = sum[0] == sum[1], good = e[0] < 0.02f && e[1] < 1e-3f && same;
        printf("%-4s %-28s %-9s B%d T%-5d  o %.1e  lse %.1e  %s\n", IsHalf<E>::is ? "f16" : "bf16",
               name, tile, B, T, e[0], e[1],
               good   ? "ok"
               : same ? "WRONG"
                      : "NOT TWICE THE SAME");
        cudaFree(err);
        mem_free(m);
        return good;
}

template <class E, class A, class Tile>
static bool test(const char *name, int B, int T, float grow = 0.f)
{
        char tile[20];
        snprintf(tile, sizeof tile, "%d x %d", Tile::BM, Tile::BN);
        return test_of<E, A>(sm90<E, A, Tile>, name, tile, B, T, grow);
}

template <class E, class A>
static bool test_whole(const char *name, int B, int T, float grow = 0.f)
{
        void (*const run[])(const Mem &) = { whole_sm90<E, A, AttShortTileSm90<1>>,
                                             whole_sm90<E, A, AttShortTileSm90<2>>,
                                             whole_sm90<E, A, AttShortTileSm90<3>>,
                                             whole_sm90<E, A, AttShortTileSm90<4>> };
        return test_of<E, A>(run[(T - 1) / 64], name, "whole", B, T, grow);
}

static bool tests_whole()
{
        bool good = true;
        for (int T : { 1, 64, 65, 77, 128, 130, 191, 192, 200, 256 }) {
                good &= test_whole<bf16, Plain<64, 6, 6>>("causal", 8, T);
                good &= test_whole<f16, Plain<64, 3, 3, false>>("full", 3, T);
        }
        good &= test_whole<bf16, Plain<64, 12, 12>>("causal, growing", 32, 255, 3.f);
        good &= test_whole<f16, Plain<64, 4, 4, false>>("full, growing", 2, 199, 5.f);
        return good;
}

/* All kinds of problems on one tile. */
template <int D, class Tile>
static bool tests()
{
        bool good = true;
        for (int T : { 1000, 77, 2, 64, 128, 129, 192, 321, 512 })
                good &= test<bf16, Plain<D, 6, 2>, Tile>("causal", 3, T);
        good &= test<bf16, Plain<D, 12, 12>, Tile>("causal", 16, 700);
        good &= test<f16, Plain<D, 6, 3>, Tile>("causal", 3, 1000);
        for (int T : { 1000, 77, 384 })
                good &= test<bf16, Plain<D, 6, 2, false>, Tile>("full", 3, T);
        /* scores that grow along the sequence, so that sums taken before must be scaled again */
        good &= test<bf16, Plain<D, 6, 2>, Tile>("causal, growing", 3, 1500, 3.f);
        good &= test<f16, Plain<D, 4, 4, false>, Tile>("full, growing", 2, 1111, 5.f);
        good &= test<f16, Windowed<Plain<D, 4, 2>, 300>, Tile>("window 300, growing", 2, 1600, 4.f);
        good &= test<bf16, Windowed<Plain<D, 4, 1>, 100>, Tile>("window 100", 2, 1000);
        good &= test<bf16, Windowed<Plain<D, 4, 4>, 1>, Tile>("window 1", 2, 333);
        good &= test<f16, Windowed<Plain<D, 4, 2>, 512>, Tile>("window 512", 2, 1999);
        good &= test<bf16, Windowed<Plain<D, 4, 2, false>, 100>, Tile>("full, window 100", 2, 1000);
        good &= test<bf16, Capped<Plain<D, 4, 2>>, Tile>("soft cap", 2, 500);
        good &= test<bf16, Sloped<Plain<D, 8, 2>>, Tile>("alibi", 2, 500);
        good &= test<f16, Sloped<Capped<Windowed<Plain<D, 8, 2>, 150>>>, Tile>(
                "soft cap, alibi, window", 2, 777);
        return good;
}

/* ---- speed ------------------------------------------------------------------- */

static const char *part = ""; /* of the names of problems to time */

template <class A, int B, int T>
struct Speed {
        Mem m;
        const char *name;
        double flop;

        Speed(const char *id) : m(mem_new<bf16, A>(B, T, 7, 0.f)), name(id)
        {
                flop = 4. * B * A::H * T * (double)T * A::D * (A::CAUSAL ? 0.5 : 1.);
                time("portable", portable<bf16, A, B, T>);
        }
        ~Speed() { mem_free(m); }
        void time(const char *what, void (*f)(const Mem &)) const
        {
                const double us = time_us(f, m, flop < 1e11 ? 40 : 10);
                printf("%-30s %-16s %8.1f us %7.1f TFLOP/s\n", name, what, us, flop / us * 1e-6);
        }
        template <class Tile>
        void run(const char *what) const
        {
                time(what, sm90<bf16, A, Tile, B, T>);
        }
};

#ifdef BENCH_CANDIDATES
#define TRY(...) p.template run<AttTileSm90<A::D, __VA_ARGS__>>(#__VA_ARGS__)
#else
#define TRY(...)
#endif

template <class A, int B, int T>
static void speed(const char *name)
{
        if (!strstr(name, part))
                return;
        Speed<A, B, T> p(name);
        if constexpr (A::D == 64) {
                p.template run<typename Table<64, 4>::Tile>("4 groups");
                p.template run<typename Table<64, 2>::Tile>("2 groups");
                if constexpr (A::H == A::K && A::WINDOW == 0 && T <= 256)
                        p.time("whole", whole_sm90<bf16, A, AttShortTileSm90<(T + 63) / 64>, B, T>);
                TRY(3, 128, 6, true);
                TRY(3, 64, 8, false);
                TRY(4, 64, 8, false);
        } else {
                p.template run<typename Table<128, 2>::Tile>("2 groups");
                TRY(2, 128, 5, false);
                TRY(3, 64, 8, false);
                TRY(3, 64, 8, true);
        }
}

static void speeds()
{
        speed<Plain<64, 12, 12>, 32, 1024>("gpt2 B32 H12 D64 T1024");
        speed<Plain<64, 12, 12>, 16, 1024>("gpt2 B16 H12 D64 T1024");
        speed<Plain<64, 32, 8>, 4, 2048>("llama-1B B4 H32/8 D64 T2048");
        speed<Plain<64, 32, 32>, 4, 2048>("causal B4 H32 D64 T2048");
        speed<Plain<128, 32, 32>, 2, 4096>("causal B2 H32 D128 T4096");
        speed<Plain<128, 32, 8>, 4, 2048>("llama B4 H32/8 D128 T2048");
        speed<Plain<128, 32, 8>, 2, 4096>("llama B2 H32/8 D128 T4096");
        speed<Plain<64, 32, 32>, 4, 4096>("causal B4 H32 D64 T4096");
        speed<Plain<64, 32, 32, false>, 4, 4096>("full B4 H32 D64 T4096");
        speed<Plain<128, 16, 16, false>, 4, 4096>("full B4 H16 D128 T4096");
        speed<Windowed<Plain<128, 32, 8>, 1024>, 2, 4096>("window 1024 B2 H32/8 D128 T4096");
        speed<Capped<Plain<64, 32, 8>>, 4, 2048>("soft cap B4 H32/8 D64 T2048");
        speed<Sloped<Plain<64, 32, 8>>, 4, 2048>("alibi B4 H32/8 D64 T2048");
        speed<Plain<64, 12, 12>, 4, 1024>("B4 H12 D64 T1024");
        speed<Plain<64, 12, 12>, 16, 512>("B16 H12 D64 T512");
        speed<Plain<64, 12, 12>, 32, 256>("B32 H12 D64 T256");
        speed<Plain<64, 12, 12>, 64, 128>("B64 H12 D64 T128");
        speed<Plain<64, 6, 6>, 12, 256>("B12 H6 D64 T256");
        speed<Plain<64, 6, 6>, 8, 192>("TinyLM B8 H6 D64 T192");
        speed<Plain<64, 6, 6>, 32, 192>("B32 H6 D64 T192");
        speed<Plain<64, 6, 6>, 8, 256>("B8 H6 D64 T256");
        speed<Plain<64, 6, 6>, 8, 128>("B8 H6 D64 T128");
        speed<Plain<128, 32, 8>, 16, 128>("B16 H32/8 D128 T128");
}

int main(int argc, char **argv)
{
        cudaDeviceProp prop;
        const char *only = argc > 1 ? argv[1] : "";
        bool good = true;
        part = argc > 2 ? argv[2] : "";
        setvbuf(stdout, 0, _IOLBF, 0);
        CUDA(cudaGetDeviceProperties(&prop, 0));
        sms = prop.multiProcessorCount;
        printf("%s, %d multiprocessors\n", prop.name, sms);
        if (prop.major != 9)
                return 4;
        if (!*only || !strcmp(only, "test"))
                good &= tests_whole() & tests<64, Table<64, 4>::Tile>() &
                        tests<64, Table<64, 2>::Tile>() & tests<128, Table<128, 2>::Tile>();
        if (!*only || !strcmp(only, "speed"))
                speeds();
        return good ? 0 : 1;
}
