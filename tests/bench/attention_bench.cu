/* attention_bench.cu: speed of the attention families on one GPU, checked first.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -Icodegen/forms $(make -s
 *      kernel-includes) -Iruntime \
 *           tests/bench/attention_bench.cu -o build/attention_bench && build/attention_bench
 *           [train|decode]
 *
 * One line per problem and tile: microseconds and TFLOP/s of useful work, forward 4 B H T^2 D
 * (half of it if causal), backward 2.5 times that however many products the kernels compute;
 * decode: GB/s of keys and values read.  Inputs are random (zeros run faster).
 *
 * `table`: the tile is attention_tiles.def's choice; other lines, with -DBENCH_CANDIDATES, are
 * candidates for it.  -DBENCH_FLOAT: of float32, with -DTGC_TF32=1 by one product of tf32. */
#include "../emulate/attention_tiles.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#ifdef BENCH_FLOAT
typedef float Elem;
static double host(float x) { return x; }
static const double allowed = TGC_TF32 ? 1e-2 : 3e-5;
#else
typedef bf16 Elem;
static double host(bf16 x) { return __bfloat162float(x); }
static const double allowed = 4e-2;
#endif

static void ok(cudaError_t e, const char *what)
{
        if (e == cudaSuccess)
                return;
        printf("%s: %s\n", what, cudaGetErrorString(e));
        exit(4);
}

template <class T>
static T *device(size_t n)
{
        T *p = 0;
        ok(cudaMalloc((void **)&p, n * sizeof(T)), "cudaMalloc");
        return p;
}

__global__ void fill(Elem *p, size_t n, unsigned seed, float scale)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x) {
                uint4 r = philox(make_uint4((unsigned)i, 0, 0, 0), seed, 1);
                float u = ((float)(r.x >> 8) + 1.f) / 16777216.f,
                      v = (float)r.y * (1.f / 4294967296.f);
                p[i] = __float2bfloat16_rn(scale * sqrtf(-2.f * logf(u)) * cospif(2.f * v));
        }
}

struct Out {
        Elem *p;
        int C;
        static constexpr int MAXV = 8, MINV = 1;
        template <int N>
        __device__ void operator()(int row, int col, float (&v)[N]) const
        {
                store(p + (long)row * C + col, v);
        }
};

/* q, k, v are slices of one (B,T,(H+2K)D) matrix in training, caches in decode. */
struct Mem {
        Elem *qkv, *g, *o, *dq, *dk, *dv;
        float *lse, *delta, *work;
        int *done;
        Rt *rt;
        int B, T, cap;
};

template <class A>
__device__ __forceinline__ AttIn<Elem, A> inputs(const Mem &m)
{
        constexpr long D = A::D, W = (A::H + 2 * A::K) * D;
        if (!A::CACHED) {
                const Strides s = { m.T * W, W, D };
                return {
                        m.qkv, m.qkv + A::H * D, m.qkv + (A::H + A::K) * D, s, s, s, 0, 0, 0, 0, 0
                };
        }
        const Strides c = { (long)m.cap * A::K * D, A::K * D, D };
        return { m.qkv, m.dk, m.dv, { m.T * A::H * D, A::H * D, D }, c, c, 0, 0, 0, 0, 0 };
}

template <class A, class Tile, int MINB>
__global__ void __launch_bounds__(Tile::THREADS, MINB) k_fwd(Mem m)
{
        TGC_SMEM(smem);
        attention_task<Elem, A, Tile>(inputs<A>(m), m.lse, m.B, m.T, m.rt, blockIdx.x, smem,
                                      Out { m.o, A::H * A::D });
}

template <class A>
__global__ void __launch_bounds__(256) k_delta(Mem m)
{
        const Strides s = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        attention_delta_task<Elem, A, 256>(m.o, s, m.g, s, m.delta, m.B, m.T, blockIdx.x);
}

template <class A, class Tile, int MINB>
__global__ void __launch_bounds__(Tile::THREADS, MINB) k_dkv(Mem m)
{
        TGC_SMEM(smem);
        const Strides s = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        attention_dkv_task<Elem, A, Tile>(inputs<A>(m), m.g, s, m.lse, m.delta, m.B, m.T, m.rt,
                                          blockIdx.x, smem, Out { m.dk, A::K * A::D },
                                          Out { m.dv, A::K * A::D });
}

template <class A, class Tile, int MINB>
__global__ void __launch_bounds__(Tile::THREADS, MINB) k_dq(Mem m)
{
        TGC_SMEM(smem);
        const Strides s = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        attention_dq_task<Elem, A, Tile>(inputs<A>(m), m.g, s, m.lse, m.delta, m.B, m.T, m.rt,
                                         blockIdx.x, smem, Out { m.dq, A::H * A::D });
}

template <class A, class Tile>
__global__ void __launch_bounds__(Tile::THREADS) k_decode(Mem m)
{
        TGC_SMEM(smem);
        attention_decode_task<Elem, A, Tile>(inputs<A>(m), m.work, m.done, m.B, m.T, m.rt,
                                             blockIdx.x, smem, Out { m.o, A::H * A::D });
}

template <class K>
static void launch(K *kernel, int grid, int threads, int smem, const Mem &m)
{
        ok(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem),
           "shared memory");
        kernel<<<grid, threads, smem>>>(m);
        ok(cudaGetLastError(), "launch");
}

static int blocks(int T, int bm) { return (T + bm - 1) / bm; }

template <class A, class Tile, int MINB>
static void fwd(const Mem &m)
{
        launch(k_fwd<A, Tile, MINB>, m.B * A::H * blocks(m.T, Tile::BM), Tile::THREADS,
               attention_smem<Elem, A, Tile>(), m);
}
template <class A>
static void delta(const Mem &m)
{
        constexpr int R = att_delta_rows<Elem, A, 256>();
        launch(k_delta<A>, (m.B * m.T * A::H + R - 1) / R, 256, 0, m);
}
template <class A, class Tile, int MINB>
static void dkv(const Mem &m)
{
        launch(k_dkv<A, Tile, MINB>, m.B * A::K * blocks(m.T, Tile::BM), Tile::THREADS,
               attention_dkv_smem<Elem, A, Tile>(), m);
}
template <class A, class Tile, int MINB>
static void dq(const Mem &m)
{
        launch(k_dq<A, Tile, MINB>, m.B * A::H * blocks(m.T, Tile::BM), Tile::THREADS,
               attention_dq_smem<Elem, A, Tile>(), m);
}
template <class A, class Tile>
static void decode(const Mem &m)
{
        const int groups = (m.T * (A::H / A::K) + Tile::ROWS - 1) / Tile::ROWS;
        launch(k_decode<A, Tile>, m.B * A::K * groups * Tile::SPLITS, Tile::THREADS,
               attention_decode_smem<Elem, A, Tile>(), m);
}
template <class A>
static void backward(const Mem &m)
{
        typedef Tiles<Elem, A> R;
        delta<A>(m);
        dkv<A, typename R::Dkv::Tile, R::Dkv::MINB>(m);
        dq<A, typename R::Dq::Tile, R::Dq::MINB>(m);
}

/* Median microseconds of one call. */
static double time_us(void (*run)(const Mem &), const Mem &m)
{
        cudaEvent_t a, b;
        std::vector<float> t;
        cudaEventCreate(&a);
        cudaEventCreate(&b);
        run(m);
        ok(cudaDeviceSynchronize(), "kernel");
        cudaEventRecord(a);
        run(m);
        cudaEventRecord(b);
        cudaEventSynchronize(b);
        float one = 0;
        cudaEventElapsedTime(&one, a, b);
        const int n = std::max(1, std::min(100, (int)(3.f / one)));
        for (int r = 0; r < 9; r++) {
                cudaEventRecord(a);
                for (int i = 0; i < n; i++)
                        run(m);
                cudaEventRecord(b);
                cudaEventSynchronize(b);
                float ms = 0;
                cudaEventElapsedTime(&ms, a, b);
                t.push_back(ms / n);
        }
        ok(cudaDeviceSynchronize(), "kernel");
        std::sort(t.begin(), t.end());
        return t[t.size() / 2] * 1e3;
}

static std::vector<double> fetch(const Elem *p, size_t n)
{
        std::vector<Elem> h(n);
        std::vector<double> x(n);
        ok(cudaMemcpy(h.data(), p, n * sizeof(Elem), cudaMemcpyDeviceToHost), "copy");
        for (size_t i = 0; i < n; i++)
                x[i] = host(h[i]);
        return x;
}

/* Worst |got - want| / (|want| + rms). */
static double worst(const std::vector<double> &got, const std::vector<double> &want)
{
        double ss = 0, w = 0;
        for (double x : want)
                ss += x * x;
        const double rms = sqrt(ss / want.size());
        for (size_t i = 0; i < want.size(); i++) {
                const double e = fabs(got[i] - want[i]) / (fabs(want[i]) + rms);
                w = e <= w ? w : e; /* keeps a NaN */
        }
        return w;
}

/* The kv head `hk` of sequence b in double against what lies in o, dq, dk, dv. */
template <class A>
static bool check(const char *name, const Mem &m, int b, int hk)
{
        const int T = m.T, H = A::H, K = A::K, D = A::D, G = H / K;
        const size_t W = (H + 2 * K) * D;
        const std::vector<double> x = fetch(m.qkv + b * T * W, T * W);
        const std::vector<double> g = fetch(m.g + (size_t)b * T * H * D, (size_t)T * H * D);
        const std::vector<double> o = fetch(m.o + (size_t)b * T * H * D, (size_t)T * H * D);
        const std::vector<double> dq = fetch(m.dq + (size_t)b * T * H * D, (size_t)T * H * D);
        const std::vector<double> dk = fetch(m.dk + (size_t)b * T * K * D, (size_t)T * K * D);
        const std::vector<double> dv = fetch(m.dv + (size_t)b * T * K * D, (size_t)T * K * D);
        std::vector<double> wo, wq, wk(T * D), wv(T * D), go, gq, gk, gv, p(T);
        for (int h = hk * G; h < hk * G + G; h++)
                for (int t = 0; t < T; t++) {
                        const double *q = &x[t * W + h * D], *gr = &g[((size_t)t * H + h) * D];
                        const int n = A::CAUSAL ? t + 1 : T;
                        double top = -INFINITY, sum = 0, dl = 0;
                        for (int s = 0; s < n; s++) {
                                const double *k = &x[s * W + (H + hk) * D];
                                double y = 0;
                                for (int d = 0; d < D; d++)
                                        y += q[d] * k[d];
                                p[s] = y * A::SCALE;
                                top = std::max(top, p[s]);
                        }
                        for (int s = 0; s < n; s++)
                                sum += p[s] = exp(p[s] - top);
                        std::vector<double> ro(D), rq(D);
                        for (int s = 0; s < n; s++)
                                for (int d = 0; d < D; d++)
                                        ro[d] += p[s] / sum * x[s * W + (H + K + hk) * D + d];
                        for (int d = 0; d < D; d++)
                                dl += ro[d] * gr[d];
                        for (int s = 0; s < n; s++) {
                                const double *k = &x[s * W + (H + hk) * D], *v = k + K * D;
                                double gv2 = 0;
                                for (int d = 0; d < D; d++)
                                        gv2 += gr[d] * v[d];
                                const double ds = p[s] / sum * (gv2 - dl) * A::SCALE;
                                for (int d = 0; d < D; d++) {
                                        wv[s * D + d] += p[s] / sum * gr[d];
                                        wk[s * D + d] += ds * q[d];
                                        rq[d] += ds * k[d];
                                }
                        }
                        for (int d = 0; d < D; d++) {
                                wo.push_back(ro[d]);
                                wq.push_back(rq[d]);
                                go.push_back(o[((size_t)t * H + h) * D + d]);
                                gq.push_back(dq[((size_t)t * H + h) * D + d]);
                        }
                }
        for (int t = 0; t < T; t++)
                for (int d = 0; d < D; d++) {
                        gk.push_back(dk[((size_t)t * K + hk) * D + d]);
                        gv.push_back(dv[((size_t)t * K + hk) * D + d]);
                }
        const double e[4] = { worst(go, wo), worst(gq, wq), worst(gk, wk), worst(gv, wv) };
        const bool good = e[0] < allowed && e[1] < 1.5 * allowed && e[2] < 1.5 * allowed &&
                          e[3] < 1.5 * allowed;
        printf("%-28s check: o %.1e  dq %.1e  dk %.1e  dv %.1e  %s\n", name, e[0], e[1], e[2], e[3],
               good ? "ok" : "WRONG");
        return good;
}

template <int D_, int H_, int K_, bool CAUSAL_>
struct Train : AttBase {
        static constexpr int D = D_, H = H_, K = K_, VEC = 16 / sizeof(Elem);
        static constexpr bool CAUSAL = CAUSAL_;
        static constexpr float SCALE = D_ == 64    ? 0.125f
                                       : D_ == 128 ? 0.08838834764831845f
                                                   : 0.0625f;
};

static void report(const char *name, const char *what, const char *tile, double us, double flop)
{
        printf("%-28s %-8s %-22s %9.1f us  %7.1f TFLOP/s\n", name, what, tile, us,
               flop / us * 1e-6);
}

template <class A>
struct Problem {
        Mem m = {};
        const char *name;
        double flop;

        Problem(const char *id, int B, int T) : name(id)
        {
                const size_t nq = (size_t)B * T * A::H * A::D, nk = (size_t)B * T * A::K * A::D;
                m.B = B;
                m.T = T;
                m.qkv = device<Elem>(nq + 2 * nk);
                m.g = device<Elem>(nq);
                m.o = device<Elem>(nq);
                m.dq = device<Elem>(nq);
                m.dk = device<Elem>(nk);
                m.dv = device<Elem>(nk);
                m.lse = device<float>((size_t)B * T * A::H);
                m.delta = device<float>((size_t)B * T * A::H);
                m.rt = device<Rt>(1);
                cudaMemset(m.rt, 0, sizeof(Rt));
                fill<<<1024, 256>>>(m.qkv, nq + 2 * nk, 1, 1.f);
                fill<<<1024, 256>>>(m.g, nq, 2, 1.f);
                flop = 4. * B * A::H * T * T * A::D * (A::CAUSAL ? 0.5 : 1.);
        }
        ~Problem()
        {
                void *p[] = { m.qkv, m.g, m.o, m.dq, m.dk, m.dv, m.lse, m.delta, m.rt };
                for (void *x : p)
                        cudaFree(x);
        }
        bool table(bool checked)
        {
                typedef Tiles<Elem, A> R;
                bool good = true;
                fwd<A, typename R::Fwd::Tile, R::Fwd::MINB>(m);
                backward<A>(m);
                ok(cudaDeviceSynchronize(), name);
                if (checked)
                        good = check<A>(name, m, m.B - 1, A::K - 1);
                report(name, "forward", "table",
                       time_us(fwd<A, typename R::Fwd::Tile, R::Fwd::MINB>, m), flop);
                report(name, "backward", "table", time_us(backward<A>, m), 2.5 * flop);
                report(name, "  delta", "table", time_us(delta<A>, m), 0);
                report(name, "  dkv", "table",
                       time_us(dkv<A, typename R::Dkv::Tile, R::Dkv::MINB>, m), 2 * flop);
                report(name, "  dq", "table", time_us(dq<A, typename R::Dq::Tile, R::Dq::MINB>, m),
                       1.5 * flop);
                return good;
        }
};

#ifndef BENCH_CANDIDATES
#define TRY(KIND, FACTOR, BM, BN, SUB, COLS, THREADS, MINB)
#else
#define TRY(KIND, FACTOR, BM, BN, SUB, COLS, THREADS, MINB)                               \
        report(p.name, "  " #KIND, #BM " " #BN " " #SUB " " #COLS " " #THREADS " " #MINB, \
               time_us(KIND<A, AttTile<BM, BN, SUB, COLS, THREADS>, MINB>, p.m), FACTOR *p.flop)
#endif

#ifdef BENCH_FLOAT
static bool train()
{
        bool good = true;
        {
                typedef Train<64, 12, 12, true> A;
                Problem<A> p("gpt2 B8 H12 D64 T1024", 8, 1024);
                good &= p.table(true);
                TRY(fwd, 1, 128, 32, 32, 1, 128, 2);
                TRY(fwd, 1, 128, 64, 64, 1, 256, 1);
                TRY(dkv, 2, 128, 32, 32, 1, 128, 2);
                TRY(dkv, 2, 128, 32, 32, 1, 256, 1);
                TRY(dq, 1.5, 64, 32, 32, 1, 128, 3);
                TRY(dq, 1.5, 128, 32, 32, 1, 128, 2);
        }
        {
                typedef Train<128, 16, 8, true> A;
                Problem<A> p("llama B4 H16/8 D128 T1024", 4, 1024);
                good &= p.table(true);
                TRY(fwd, 1, 128, 16, 16, 1, 128, 2);
                TRY(dkv, 2, 64, 32, 32, 1, 128, 1);
                TRY(dq, 1.5, 64, 32, 32, 1, 128, 1);
        }
        good &= Problem<Train<64, 12, 12, false>>("full B8 H12 D64 T1024", 8, 1024).table(false);
        good &= Problem<Train<32, 8, 8, true>>("causal B32 H8 D32 T256", 32, 256).table(true);
        return good;
}
#else
static bool train()
{
        bool good = true;
        {
                typedef Train<64, 12, 12, true> A;
                Problem<A> p("gpt2 B32 H12 D64 T1024", 32, 1024);
                good &= p.table(true);
                TRY(fwd, 1, 128, 64, 64, 1, 128, 1);
                TRY(fwd, 1, 128, 32, 32, 1, 128, 2);
                TRY(fwd, 1, 128, 128, 128, 1, 128, 1);
                TRY(fwd, 1, 64, 64, 64, 1, 128, 3);
                TRY(fwd, 1, 64, 64, 64, 1, 64, 4);
                TRY(fwd, 1, 128, 64, 64, 1, 256, 1);
                TRY(fwd, 1, 128, 64, 64, 1, 256, 2);
                TRY(dkv, 2, 128, 64, 32, 1, 128, 2);
                TRY(dkv, 2, 128, 32, 32, 1, 128, 2);
                TRY(dkv, 2, 64, 64, 64, 1, 128, 2);
                TRY(dkv, 2, 128, 64, 64, 1, 256, 1);
                TRY(dkv, 2, 64, 64, 32, 1, 128, 2);
                TRY(dkv, 2, 64, 64, 32, 1, 128, 3);
                TRY(dkv, 2, 128, 64, 16, 1, 128, 2);
                TRY(dkv, 2, 128, 64, 16, 1, 256, 2);
                TRY(dkv, 2, 128, 32, 32, 1, 256, 1);
                TRY(dq, 1.5, 128, 64, 16, 1, 128, 2);
                TRY(dq, 1.5, 128, 64, 32, 1, 256, 1);
                TRY(dq, 1.5, 64, 64, 32, 1, 128, 3);
                TRY(dq, 1.5, 64, 64, 64, 1, 128, 2);
                TRY(dq, 1.5, 64, 64, 32, 1, 64, 4);
        }
        {
                typedef Train<128, 32, 8, true> A;
                Problem<A> p("llama B4 H32/8 D128 T2048", 4, 2048);
                good &= p.table(true);
                TRY(fwd, 1, 128, 64, 64, 1, 128, 1);
                TRY(fwd, 1, 64, 64, 64, 1, 128, 2);
                TRY(fwd, 1, 128, 64, 64, 1, 256, 1);
                TRY(fwd, 1, 64, 32, 32, 1, 64, 3);
                TRY(dkv, 2, 128, 32, 32, 1, 256, 1);
                TRY(dkv, 2, 64, 64, 32, 1, 128, 2);
                TRY(dkv, 2, 64, 64, 64, 1, 128, 2);
                TRY(dkv, 2, 128, 64, 32, 1, 256, 1);
                TRY(dkv, 2, 64, 32, 16, 1, 128, 2);
                TRY(dq, 1.5, 64, 64, 32, 1, 128, 2);
                TRY(dq, 1.5, 128, 32, 16, 1, 128, 1);
                TRY(dq, 1.5, 128, 64, 32, 1, 256, 1);
        }
        good &= Problem<Train<64, 12, 12, true>>("gpt2 B16 H12 D64 T1024", 16, 1024).table(false);
        good &= Problem<Train<64, 32, 8, true>>("llama-1B B4 H32/8 D64 T2048", 4, 2048)
                        .table(false);
        good &= Problem<Train<128, 32, 8, true>>("llama B2 H32/8 D128 T4096", 2, 4096).table(false);
        good &= Problem<Train<64, 32, 32, true>>("causal D64 T512", 32, 512).table(false);
        good &= Problem<Train<64, 32, 32, true>>("causal D64 T1024", 16, 1024).table(false);
        good &= Problem<Train<64, 32, 32, true>>("causal D64 T4096", 4, 4096).table(false);
        good &= Problem<Train<64, 32, 32, true>>("causal D64 T16384", 1, 16384).table(false);
        good &= Problem<Train<64, 32, 32, false>>("full D64 T1024", 16, 1024).table(false);
        good &= Problem<Train<64, 32, 32, false>>("full D64 T4096", 4, 4096).table(false);
        good &= Problem<Train<128, 16, 16, true>>("causal D128 T1024", 16, 1024).table(false);
        good &= Problem<Train<128, 16, 16, true>>("causal D128 T4096", 4, 4096).table(false);
        good &= Problem<Train<128, 16, 16, false>>("full D128 T4096", 4, 4096).table(false);
        good &= Problem<Train<256, 8, 8, true>>("causal D256 T1024", 4, 1024).table(true);
        return good;
}

#endif

template <int D_, int H_, int K_>
struct Infer : Train<D_, H_, K_, true> {
        static constexpr bool CACHED = true;
};

/* Decode T tokens of B sequences at position pos; checked against attention_task. */
template <class A, class Tile>
static bool infer(const char *name, int B, int T, int pos)
{
        Mem m = {};
        Rt rt = {};
        m.B = B;
        m.T = T;
        m.cap = pos + T;
        const size_t nq = (size_t)B * T * A::H * A::D, nc = (size_t)B * m.cap * A::K * A::D;
        for (int b = 0; b < B; b++)
                rt.pos[b] = pos;
        m.rt = device<Rt>(1);
        cudaMemcpy(m.rt, &rt, sizeof rt, cudaMemcpyHostToDevice);
        m.qkv = device<Elem>(nq);
        m.o = device<Elem>(nq);
        m.dk = device<Elem>(nc);
        m.dv = device<Elem>(nc);
        m.lse = device<float>((size_t)B * T * A::H);
        m.work = device<float>((size_t)B * T * A::H * Tile::SPLITS * att_record<A>());
        m.done = device<int>((size_t)B * T * A::H);
        cudaMemset(m.done, 0, (size_t)B * T * A::H * sizeof(int));
        fill<<<1024, 256>>>(m.qkv, nq, 1, 1.f);
        fill<<<1024, 256>>>(m.dk, nc, 2, 1.f);
        fill<<<1024, 256>>>(m.dv, nc, 3, 1.f);
        typedef PickTile<Elem, A, KIND_FWD> F;
        fwd<A, typename F::Tile, F::MINB>(m);
        const std::vector<double> want = fetch(m.o, nq);
        cudaMemset(m.o, 0xff, nq * sizeof(Elem));
        decode<A, Tile>(m);
        const double e = worst(fetch(m.o, nq), want);
        const double us = time_us(decode<A, Tile>, m);
        printf("%-28s decode   rows %d splits %-2d pos %-6d %9.1f us  %7.1f GB/s  error %.1e %s\n",
               name, Tile::ROWS, Tile::SPLITS, pos, us, nc * 4. / us * 1e-3, e,
               e < 4e-2 ? "ok" : "WRONG");
        void *p[] = { m.qkv, m.o, m.dk, m.dv, m.lse, m.work, m.done, m.rt };
        for (void *x : p)
                cudaFree(x);
        return e < 4e-2;
}

static bool decoding()
{
        bool good = true;
        good &= infer<Infer<64, 12, 12>, AttDecode<1, 8, 128>>("gpt2 B1", 1, 1, 1023);
        good &= infer<Infer<64, 12, 12>, AttDecode<1, 16, 128>>("gpt2 B1", 1, 1, 1023);
        good &= infer<Infer<64, 32, 8>, AttDecode<4, 16, 128>>("llama-1B B1", 1, 1, 2047);
        good &= infer<Infer<64, 32, 8>, AttDecode<4, 32, 128>>("llama-1B B1", 1, 1, 8191);
        good &= infer<Infer<128, 32, 8>, AttDecode<4, 16, 128>>("llama-8B B1", 1, 1, 2047);
        good &= infer<Infer<128, 32, 8>, AttDecode<4, 32, 128>>("llama-8B B1", 1, 1, 8191);
        good &= infer<Infer<128, 32, 8>, AttDecode<4, 32, 128>>("llama-8B B1", 1, 1, 131071);
        good &= infer<Infer<128, 32, 8>, AttDecode<4, 8, 128>>("llama-8B B32", 32, 1, 8191);
        good &= infer<Infer<128, 32, 8>, AttDecode<8, 16, 128>>("llama-8B B1 T8", 1, 8, 8191);
        return good;
}

int main(int argc, char **argv)
{
        cudaDeviceProp prop;
        bool good = true;
        const char *only = argc > 1 ? argv[1] : "";
        setvbuf(stdout, 0, _IOLBF, 0);
        ok(cudaGetDeviceProperties(&prop, 0), "no GPU");
        printf("%s, %d multiprocessors\n", prop.name, prop.multiProcessorCount);
        if (!*only || !strcmp(only, "decode"))
                good &= decoding();
        if (!*only || !strcmp(only, "train"))
                good &= train();
        return good ? 0 : 7;
}
