/* attention_backward_sm90_bench.cu: is attention_backward_sm90.cuh right, and how fast, on the
 * Hopper at hand.
 *
 *      nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DTGC_SM90A=1 -Icodegen/forms
 *      $(make -s kernel-includes) -Iruntime \
 *           -o attention_backward_sm90_bench tests/bench/attention_backward_sm90_bench.cu -ldl
 *      ./attention_backward_sm90_bench [test [number]|speed [part of a problem's name]]
 *
 * Every problem: normal inputs, outputs poisoned, gradients of one kv head and its query heads
 * against plain sums in double; error is |got - want| / |want| over a whole tensor, and the worst
 * element's over |want| + rms. The portable kernels' error stands beside it.  Everything runs twice
 * and must give the same bits. Speed: median of nine runs, microseconds; TFLOP/s counts the
 * products of that kernel, 2 D for each pair that attends.  With -DBENCH_CANDIDATES other tiles
 * than the table's, too. */
#define TGC_BOUNDED 1
#define TGC_FAST_MATH 1
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <algorithm>
#include <vector>
#include "hopper.h"
#include "../emulate/attention_tiles.h"
#include "attention_backward_sm90.cuh"
#include "attention_short_backward_sm90.cuh"
#include "functor.cuh"

template <class T>
static T *device(size_t n)
{
        T *p = 0;
        CUDA(cudaMalloc((void **)&p, n * sizeof(T)));
        return p;
}

template <class T>
__global__ void fill(T *p, size_t n, unsigned seed)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x) {
                uint4 r = philox(make_uint4((unsigned)i, (unsigned)(i >> 32), 0, 0), seed, 1);
                float u = ((float)(r.x >> 8) + 1.f) / 16777217.f,
                      v = (float)r.y * (1.f / 4294967296.f);
                from_float(p + i, sqrtf(-2.f * logf(u)) * cospif(2.f * v));
        }
}

template <int D_, int H_, int K_, bool CAUSAL_, int WINDOW_ = 0>
struct Shape : AttBase {
        static constexpr int D = D_, H = H_, K = K_, WINDOW = WINDOW_;
        static constexpr bool CAUSAL = CAUSAL_;
        static constexpr float SCALE = D_ == 64 ? 0.125f : 0.08838834764831845f;
};

template <class E>
struct Out {
        E *p;
        int C;
        static constexpr int MAXV = 8, MINV = 1;
        template <int N>
        __device__ void operator()(int row, int col, float (&v)[N]) const
        {
                store(p + (long)row * C + col, v);
        }
};

/* An epilogue that takes its time, as models with rotary positions have one; for speed, with any
 * numbers as frequencies. */
template <class E>
struct RopeOut {
        E *p;
        int C, T;
        const float *freq;
        static constexpr int MAXV = 8, MINV = 2;
        template <int N>
        __device__ void operator()(int row, int col, float (&v)[N]) const
        {
                float w[N];
#pragma unroll
                for (int j = 0; j < N; j += 2)
                        rope(v[j], v[j + 1], -(float)(row % T), fixed(freq + (col + j) % 64 / 2),
                             &w[j], &w[j + 1]);
                store(p + (long)row * C + col, w);
        }
};

/* q, k, v: slices of one (B,T,(H+2K)D) matrix. */
template <class E>
struct Mem {
        E *qkv, *g, *o, *dq, *dk, *dv;
        float *lse, *delta;
        Rt *rt;
        TmaMap map_qkv, map_g, map_o;
        int B, T;
};

template <class E, class A>
__device__ __forceinline__ AttIn<E, A> inputs(const Mem<E> &m)
{
        constexpr long D = A::D, W = (A::H + 2 * A::K) * D;
        const Strides s = { m.T * W, W, D };
        return { m.qkv, m.qkv + A::H * D, m.qkv + (A::H + A::K) * D, s, s, s, 0, 0, 0, 0, 0, 0 };
}

/* ---- portable kernels ---------------------------------------------------------- */

template <class E, class A, class Tile, int MINB>
__global__ void __launch_bounds__(Tile::THREADS, MINB) k_fwd(Mem<E> m)
{
        pdl_wait();
        TGC_SMEM(smem);
        attention_task<E, A, Tile>(inputs<E, A>(m), m.lse, m.B, m.T, m.rt, blockIdx.x, smem,
                                   Out<E> { m.o, A::H * A::D });
}

template <class E, class A>
__global__ void __launch_bounds__(128) k_delta(Mem<E> m)
{
        pdl_wait();
        const Strides s = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        attention_delta_task<E, A, 128>(m.o, s, m.g, s, m.delta, m.B, m.T, blockIdx.x);
}

template <class E, class A, class Tile, int MINB>
__global__ void __launch_bounds__(Tile::THREADS, MINB) k_dkv(Mem<E> m)
{
        pdl_wait();
        TGC_SMEM(smem);
        const Strides s = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        attention_dkv_task<E, A, Tile>(inputs<E, A>(m), m.g, s, m.lse, m.delta, m.B, m.T, m.rt,
                                       blockIdx.x, smem, Out<E> { m.dk, A::K * A::D },
                                       Out<E> { m.dv, A::K * A::D });
}

template <class E, class A, class Tile, int MINB>
__global__ void __launch_bounds__(Tile::THREADS, MINB) k_dq(Mem<E> m)
{
        pdl_wait();
        TGC_SMEM(smem);
        const Strides s = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        attention_dq_task<E, A, Tile>(inputs<E, A>(m), m.g, s, m.lse, m.delta, m.B, m.T, m.rt,
                                      blockIdx.x, smem, Out<E> { m.dq, A::H * A::D });
}

template <bool SECOND, class X, class Y>
__device__ __forceinline__ auto pick(const X &x, const Y &y)
{
        if constexpr (SECOND)
                return y;
        else
                return x;
}

/* ---- Hopper's.  CB, CT: B and T as constants, as the generator has them, or 0 ---------- */

template <class A>
__device__ __forceinline__ AttGradMaps maps(const void *qkv, const void *g)
{
        return { { qkv, 0, A::D },
                 { qkv, A::H * A::D, A::D },
                 { qkv, (A::H + A::K) * A::D, A::D },
                 { g, 0, A::D } };
}

template <class E, class A, class Tile, int CB, int CT, bool ROPE>
__global__ void __launch_bounds__(Tile::THREADS, 1) k_dkv_sm90(const __grid_constant__ Mem<E> m)
{
        pdl_wait();
        TGC_SMEM(smem);
        const Out<E> out = { m.dk, A::K * A::D };
        const RopeOut<E> rope = { m.dk, A::K * A::D, CT, m.lse };
        attention_dkv_tma<E, A, Tile>(maps<A>(&m.map_qkv, &m.map_g), m.lse, m.delta, CB ? CB : m.B,
                                      CT ? CT : m.T, blockIdx.x, gridDim.x, smem,
                                      pick<ROPE>(out, rope), Out<E> { m.dv, A::K * A::D });
}

template <class E, class A, class Tile, int CB, int CT, bool ROPE>
__global__ void __launch_bounds__(Tile::THREADS, 1) k_dq_sm90(const __grid_constant__ Mem<E> m)
{
        pdl_wait();
        TGC_SMEM(smem);
        const Out<E> out = { m.dq, A::H * A::D };
        const RopeOut<E> rope = { m.dq, A::H * A::D, CT, m.lse };
        const Strides so = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        attention_dq_tma<E, A, Tile>(maps<A>(&m.map_qkv, &m.map_g), m.o, so, m.lse, m.delta,
                                     CB ? CB : m.B, CT ? CT : m.T, blockIdx.x, gridDim.x, smem,
                                     pick<ROPE>(out, rope));
}

/* The table's tiles are the same for both. */
template <class E, class A, class Tile, int CB, int CT>
__global__ void __launch_bounds__(Tile::THREADS, 1) k_both_sm90(const __grid_constant__ Mem<E> m)
{
        pdl_wait();
        TGC_SMEM(smem);
        const Strides s = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        const AttGradRows<E> rows = { m.o, s, m.g, s };
        attention_both_tma<E, A, Tile>(maps<A>(&m.map_qkv, &m.map_g), rows, m.lse, m.delta,
                                       CB ? CB : m.B, CT ? CT : m.T, blockIdx.x, smem,
                                       Out<E> { m.dq, A::H * A::D }, Out<E> { m.dk, A::K * A::D },
                                       Out<E> { m.dv, A::K * A::D });
}

template <class E, class A, class Tile, int CB, int CT, bool ROPE>
__global__ void __launch_bounds__(Tile::THREADS, 1) k_whole_sm90(Mem<E> m)
{
        TGC_SMEM(smem);
        const Out<E> out = { m.dk, A::K * A::D }, out_q = { m.dq, A::H * A::D };
        const RopeOut<E> rope = { m.dk, A::K * A::D, CT, m.lse },
                         rope_q = { m.dq, A::H * A::D, CT, m.lse };
        const Strides s = { (long)m.T * A::H * A::D, A::H * A::D, A::D };
        const AttGradRows<E> rows = { m.o, s, m.g, s };
        if (CB)
                m.B = CB, m.T = CT;
        attention_short_backward_wgmma<E, A, Tile, false>(inputs<E, A>(m), rows, m.lse, m.T,
                                                          blockIdx.x, smem,
                                                          pick<ROPE>(out_q, rope_q),
                                                          pick<ROPE>(out, rope),
                                                          Out<E> { m.dv, A::K * A::D });
}

static int sms;

static int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <class E, class A>
static void fwd(const Mem<E> &m)
{
        typedef typename Tiles<E, A>::Fwd R;
        launch(k_fwd<E, A, typename R::Tile, R::MINB>, m.B * A::H * ceil_div(m.T, R::Tile::BM),
               R::Tile::THREADS, R::SMEM, m);
}
template <class E, class A>
static void delta(const Mem<E> &m)
{
        launch(k_delta<E, A>, ceil_div(m.B * m.T * A::H, att_delta_rows<E, A, 128>()), 128, 0, m);
}
template <class E, class A>
static void dkv(const Mem<E> &m)
{
        typedef typename Tiles<E, A>::Dkv R;
        launch(k_dkv<E, A, typename R::Tile, R::MINB>, m.B * A::K * ceil_div(m.T, R::Tile::BM),
               R::Tile::THREADS, R::SMEM, m);
}
template <class E, class A>
static void dq(const Mem<E> &m)
{
        typedef typename Tiles<E, A>::Dq R;
        launch(k_dq<E, A, typename R::Tile, R::MINB>, m.B * A::H * ceil_div(m.T, R::Tile::BM),
               R::Tile::THREADS, R::SMEM, m);
}
template <class E, class A, class Tile, int CB, int CT, bool ROPE = false>
static void dkv_sm90(const Mem<E> &m)
{
        launch(k_dkv_sm90<E, A, Tile, CB, CT, ROPE>,
               std::min(sms, m.B * A::K * ceil_div(m.T, Tile::BM)), Tile::THREADS, Tile::SMEM, m);
}
template <class E, class A, class Tile, int CB, int CT, bool ROPE = false>
static void dq_sm90(const Mem<E> &m)
{
        launch(k_dq_sm90<E, A, Tile, CB, CT, ROPE>,
               std::min(sms, m.B * A::H * ceil_div(m.T, Tile::BM)), Tile::THREADS, Tile::SMEM, m);
}

template <class E, class A, class Tile, int CB, int CT>
static void both_sm90(const Mem<E> &m)
{
        launch(k_both_sm90<E, A, Tile, CB, CT>, 2 * m.B * A::H * ceil_div(m.T, Tile::BM),
               Tile::THREADS, att_both_sm90_smem<Tile>(m.T), m);
}

template <class E, class A, class Tile, int CB, int CT, bool ROPE = false>
static void whole_sm90(const Mem<E> &m)
{
        launch(k_whole_sm90<E, A, Tile, CB, CT, ROPE>, m.B * A::H * Tile::PARTS, Tile::THREADS,
               Tile::SMEM, m);
}

/* ---- plain sums in double ------------------------------------------------------------ */

template <class A>
__device__ bool attends(int t, int s)
{
        return (!A::CAUSAL || s <= t) && (A::WINDOW == 0 || s > t - A::WINDOW);
}

/* Query t of head h of sequence b: block t + T * (h of the group).  stat: lse and delta; dq. */
template <class E, class A>
__global__ void plain_rows(Mem<E> m, int b, int hk, double2 *stat, double *dq)
{
        constexpr int D = A::D, G = A::H / A::K;
        constexpr long W = (A::H + 2 * A::K) * D;
        extern __shared__ double p[]; /* T scores, T products g v */
        __shared__ double q[D], g[D], red[128];
        const int t = blockIdx.x % m.T, h = hk * G + blockIdx.x / m.T, x = threadIdx.x;
        const E *k = m.qkv + (long)b * m.T * W + (A::H + hk) * D, *v = k + A::K * D;
        if (x < D) {
                q[x] = to_float(m.qkv[((long)b * m.T + t) * W + h * D + x]);
                g[x] = to_float(m.g[((long)b * m.T + t) * A::H * D + h * D + x]);
        }
        __syncthreads();
        double sum = 0, de = 0;
        for (int s = x; s < m.T; s += 128) {
                double y = 0, z = 0;
                for (int d = 0; d < D; d++) {
                        y += q[d] * (double)to_float(k[s * W + d]);
                        z += g[d] * (double)to_float(v[s * W + d]);
                }
                p[s] = attends<A>(t, s) ? exp(y * (double)A::SCALE) : 0.;
                p[m.T + s] = z;
                sum += p[s];
                de += p[s] * z;
        }
        red[x] = sum;
        __syncthreads();
        sum = 0;
        for (int i = 0; i < 128; i++)
                sum += red[i];
        __syncthreads();
        red[x] = de;
        __syncthreads();
        de = 0;
        for (int i = 0; i < 128; i++)
                de += red[i];
        de /= sum;
        if (x == 0)
                stat[blockIdx.x] = make_double2(log(sum), de);
        if (x < D) {
                double a = 0;
                for (int s = 0; s < m.T; s++)
                        a += p[s] / sum * (p[m.T + s] - de) * (double)A::SCALE *
                             (double)to_float(k[s * W + x]);
                dq[(long)blockIdx.x * D + x] = a;
        }
}

template <class E, class A>
__global__ void plain_keys(Mem<E> m, int b, int hk, const double2 *stat, double *dk, double *dv)
{
        constexpr int D = A::D, G = A::H / A::K;
        constexpr long W = (A::H + 2 * A::K) * D;
        __shared__ double k[D], v[D], p[128], ds[128];
        const int s = blockIdx.x, x = threadIdx.x;
        if (x < D) {
                k[x] = to_float(m.qkv[((long)b * m.T + s) * W + (A::H + hk) * D + x]);
                v[x] = to_float(m.qkv[((long)b * m.T + s) * W + (A::H + A::K + hk) * D + x]);
        }
        __syncthreads();
        double ak = 0, av = 0;
        for (int i = 0; i < G; i++)
                for (int t0 = 0; t0 < m.T; t0 += 128) {
                        const E *q = m.qkv + (long)b * m.T * W + (hk * G + i) * D;
                        const E *g = m.g + (long)b * m.T * A::H * D + (hk * G + i) * D;
                        const int t = t0 + x;
                        p[x] = ds[x] = 0;
                        if (t < m.T && attends<A>(t, s)) {
                                double y = 0, z = 0;
                                for (int d = 0; d < D; d++) {
                                        y += k[d] * (double)to_float(q[t * W + d]);
                                        z += v[d] * (double)to_float(g[(long)t * A::H * D + d]);
                                }
                                const double2 st = stat[i * m.T + t];
                                p[x] = exp(y * (double)A::SCALE - st.x);
                                ds[x] = p[x] * (z - st.y) * (double)A::SCALE;
                        }
                        __syncthreads();
                        if (x < D)
                                for (int j = 0; j < 128 && t0 + j < m.T; j++) {
                                        ak += ds[j] * (double)to_float(q[(t0 + j) * W + x]);
                                        av += p[j] *
                                              (double)to_float(g[(long)(t0 + j) * A::H * D + x]);
                                }
                        __syncthreads();
                }
        if (x < D) {
                dk[(long)s * D + x] = ak;
                dv[(long)s * D + x] = av;
        }
}

/* ---- a problem ------------------------------------------------------------------------- */

static double elem(bf16 x) { return __bfloat162float(x); }
static double elem(f16 x) { return __half2float(x); }

template <class E>
static std::vector<E> fetch(const E *p, size_t n)
{
        std::vector<E> h(n);
        CUDA(cudaMemcpy(h.data(), p, n * sizeof(E), cudaMemcpyDeviceToHost));
        return h;
}

struct Error {
        double all, worst;
};

/* rows x D of got, row r at off + r * ld, against want. */
template <class E>
static Error compare(const std::vector<E> &got, size_t off, size_t ld, const double *want, int rows,
                     int D)
{
        double ee = 0, ww = 0, most = 0;
        for (int i = 0; i < rows * D; i++)
                ww += want[i] * want[i];
        const double rms = sqrt(ww / (rows * D));
        for (int r = 0; r < rows; r++)
                for (int d = 0; d < D; d++) {
                        const double w = want[r * D + d], e = fabs(elem(got[off + r * ld + d]) - w);
                        ee += e * e;
                        const double rel = e / (fabs(w) + rms);
                        most = rel <= most ? most : rel; /* keeps a NaN */
                }
        return { sqrt(ee / (ww + 1e-300)), most };
}

template <class E, class A>
struct Problem {
        Mem<E> m = {};
        const char *name;
        size_t nq, nk;
        double flop;
        std::vector<double> wq, wk, wv; /* of kv head hk of sequence b */
        int b, hk;

        Problem(const char *id, int B, int T) : name(id)
        {
                nq = (size_t)B * T * A::H * A::D, nk = (size_t)B * T * A::K * A::D;
                m.B = B, m.T = T, b = B - 1, hk = A::K - 1;
                m.qkv = device<E>(nq + 2 * nk), m.g = device<E>(nq), m.o = device<E>(nq);
                m.dq = device<E>(nq), m.dk = device<E>(nk), m.dv = device<E>(nk);
                m.lse = device<float>((size_t)B * T * A::H),
                m.delta = device<float>((size_t)B * T * A::H);
                /* more than one needs */
                m.rt = device<Rt>(1);
                CUDA(cudaMemset(m.rt, 0, sizeof(Rt)));
                m.map_qkv = map_of(m.qkv, (long)B * T, (A::H + 2 * A::K) * A::D,
                                   std::is_same<E, f16>::value);
                m.map_g = map_of(m.g, (long)B * T, A::H * A::D, std::is_same<E, f16>::value);
                m.map_o = map_of(m.o, (long)B * T, A::H * A::D, std::is_same<E, f16>::value);
                fill<<<1024, 256>>>(m.qkv, nq + 2 * nk, 1);
                fill<<<1024, 256>>>(m.g, nq, 2);
                double pairs = 0;
                for (int t = 0; t < T; t++)
                        pairs += std::min(A::CAUSAL ? t + 1 : T,
                                          A::WINDOW ? A::WINDOW + (A::CAUSAL ? 0 : T - 1 - t) : T);
                flop = 10. * B * A::H * pairs * A::D;
                fwd<E, A>(m);
                delta<E, A>(m);
                CUDA(cudaDeviceSynchronize());
        }
        ~Problem()
        {
                void *p[] = { m.qkv, m.g, m.o, m.dq, m.dk, m.dv, m.lse, m.delta, m.rt };
                for (void *x : p)
                        cudaFree(x);
        }

        void plain()
        {
                const int G = A::H / A::K;
                double2 *stat = device<double2>((size_t)G * m.T);
                double *q = device<double>((size_t)G * m.T * A::D),
                       *k = device<double>((size_t)m.T * A::D),
                       *v = device<double>((size_t)m.T * A::D);
                const int smem = 16 * m.T;
                CUDA(cudaFuncSetAttribute(plain_rows<E, A>,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
                plain_rows<E, A><<<G * m.T, 128, smem>>>(m, b, hk, stat, q);
                plain_keys<E, A><<<m.T, 128>>>(m, b, hk, stat, k, v);
                CUDA(cudaDeviceSynchronize());
                wq = fetch(q, (size_t)G * m.T * A::D);
                wk = fetch(k, (size_t)m.T * A::D), wv = fetch(v, (size_t)m.T * A::D);
                cudaFree(stat), cudaFree(q), cudaFree(k), cudaFree(v);
        }

        void poison()
        {
                CUDA(cudaMemset(m.delta, 0xff, (size_t)m.B * m.T * A::H * 4));
                CUDA(cudaMemset(m.dq, 0xff, nq * 2));
                CUDA(cudaMemset(m.dk, 0xff, nk * 2));
                CUDA(cudaMemset(m.dv, 0xff, nk * 2));
        }

        /* What lies in dq, or in dk and dv; and that all of it was written. */
        bool check(const char *what, bool is_q)
        {
                const int G = A::H / A::K, T = m.T, D = A::D;
                Error e[2] = {};
                bool finite = true;
                if (is_q) {
                        const std::vector<E> got = fetch(m.dq, nq);
                        for (E x : got)
                                finite &= isfinite(elem(x));
                        for (int i = 0; i < G; i++) {
                                Error x = compare(got, ((size_t)b * T * A::H + hk * G + i) * D,
                                                  A::H * D, &wq[(size_t)i * T * D], T, D);
                                e[0] = { std::max(x.all, e[0].all),
                                         x.worst <= e[0].worst ? e[0].worst : x.worst };
                        }
                } else {
                        const std::vector<E> k = fetch(m.dk, nk), v = fetch(m.dv, nk);
                        for (size_t i = 0; i < nk; i++)
                                finite &= isfinite(elem(k[i])) && isfinite(elem(v[i]));
                        e[0] = compare(k, ((size_t)b * T * A::K + hk) * D, A::K * D, wk.data(), T,
                                       D);
                        e[1] = compare(v, ((size_t)b * T * A::K + hk) * D, A::K * D, wv.data(), T,
                                       D);
                }
                const double most = std::is_same<E, f16>::value ? 1.5e-2 : 0.1;
                /* T = 1: dq and dk are 0 but for rounding */
                const bool good = finite &&
                                  (T == 1 || (e[0].worst < most && e[0].all < most / 20)) &&
                                  e[1].worst < most && e[1].all < most / 20;
                printf("%-26s %-24s %s %.2e worst %.2e", name, what, is_q ? "dq" : "dk", e[0].all,
                       e[0].worst);
                if (!is_q)
                        printf("  dv %.2e worst %.2e", e[1].all, e[1].worst);
                printf("  %s\n", !finite ? "NOT FINITE" : good ? "ok" : "WRONG");
                return good;
        }

        /* before: what makes delta. */
        bool run(const char *what, bool is_q, void (*before)(const Mem<E> &),
                 void (*f)(const Mem<E> &))
        {
                poison();
                if (before)
                        before(m);
                f(m);
                CUDA(cudaDeviceSynchronize());
                bool good = check(what, is_q);
                const std::vector<E> q = fetch(m.dq, nq), k = fetch(m.dk, nk), v = fetch(m.dv, nk);
                poison();
                if (before)
                        before(m);
                f(m);
                CUDA(cudaDeviceSynchronize());
                const std::vector<E> q2 = fetch(m.dq, nq), k2 = fetch(m.dk, nk),
                                     v2 = fetch(m.dv, nk);
                if (memcmp(q.data(), q2.data(), nq * 2) || memcmp(k.data(), k2.data(), nk * 2) ||
                    memcmp(v.data(), v2.data(), nk * 2)) {
                        printf("%-26s %-24s OTHER BITS the second time\n", name, what);
                        good = false;
                }
                return good;
        }

        double speed(const char *what, void (*f)(const Mem<E> &), double part)
        {
                const double us = time_us(f, m, flop < 1e11 ? 40 : 4);
                printf("%-26s %-24s %9.1f us %7.1f TFLOP/s of products\n", name, what, us,
                       part * flop / us * 1e-6);
                return us;
        }
};

/* The rows of ../../codegen/forms/sm90_attention_backward_tiles.def. */
template <int D>
struct Best;
template <>
struct Best<64> {
        typedef AttBackwardTileSm90<64, 6, 2, true> DKV, DQ;
};
template <>
struct Best<128> {
        typedef AttBackwardTileSm90<128, 4, 1, false> DKV, DQ;
};
#define ATT_BACKWARD(kind, d, stages, owns, keep, smem)                                           \
        static_assert(                                                                            \
                std::is_same<Best<d>::kind, AttBackwardTileSm90<d, stages, owns, keep>>::value && \
                        Best<d>::kind::SMEM == smem,                                              \
                #kind " " #d);
#define ATT_SHORT_BACKWARD(nb, causal, parts, keep_k, keep_v, many, some, smem)                   \
        template <class A>                                                                        \
        struct BestWhole<A, nb, parts, causal> {                                                  \
                typedef AttShortBackwardTile<nb, causal, parts, keep_k, keep_v, many, some> Tile; \
                static_assert(Tile::SMEM == smem, "whole");                                       \
        };
template <class A, int NB, int PARTS, bool CAUSAL = A::CAUSAL>
struct BestWhole;
#include "../../codegen/forms/sm90_attention_backward_tiles.def"
#undef ATT_BACKWARD
#undef ATT_SHORT_BACKWARD

/* Most blocks of 64 tokens of those that are in shared memory whole. */
template <class A>
constexpr int most_whole()
{
        return A::D != 64 || A::H != A::K || A::WINDOW ? 0 : A::CAUSAL ? 4 : 3;
}

template <int NB, class E, class A>
static bool test_whole(Problem<E, A> &p)
{
        if constexpr (NB <= most_whole<A>()) {
                if ((p.m.T + 63) / 64 == NB)
                        return p.run("whole", true, 0,
                                     whole_sm90<E, A, typename BestWhole<A, NB, 1>::Tile, 0, 0>) &
                               p.check("whole", false) &
                               p.run("halves", true, 0,
                                     whole_sm90<E, A, typename BestWhole<A, NB, 2>::Tile, 0, 0>) &
                               p.check("halves", false);
                return test_whole<NB + 1>(p);
        }
        return true;
}

template <class E, class A>
static bool test(const char *name, int B, int T)
{
        typedef Best<A::D> R;
        Problem<E, A> p(name, B, T);
        bool good = true;
        p.plain();
        good &= p.run("portable dkv", false, delta<E, A>, dkv<E, A>);
        good &= p.run("portable dq", true, delta<E, A>, dq<E, A>);
        good &= p.run("dq", true, 0, dq_sm90<E, A, typename R::DQ, 0, 0>);
        good &= p.run("dkv", false, dq_sm90<E, A, typename R::DQ, 0, 0>,
                      dkv_sm90<E, A, typename R::DKV, 0, 0>);
        if constexpr (A::H == A::K) {
                good &= p.run("both", true, 0, both_sm90<E, A, typename R::DQ, 0, 0>);
                good &= p.run("both", false, 0, both_sm90<E, A, typename R::DQ, 0, 0>);
        }
        good &= test_whole<2>(p);
        fflush(stdout);
        return good;
}

static bool tests(int only)
{
        bool good = true;
        int i = 0;
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, true>>("D64 T128", 2, 128);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, true>>("D64 T1000", 2, 1000);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, true>>("D64 T77", 3, 77);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, true>>("D64 T1", 3, 1);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, true>>("D64 B40 T512", 40, 512);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, true>>("D64 B70 T1234", 70, 1234);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 6, 6, true>>("D64 B8 H6 T192", 8, 192);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, true>>("D64 T256", 40, 256);
        if (only < 0 || i++ == only)
                good &= test<f16, Shape<64, 4, 4, true>>("D64 f16 T199", 3, 199);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, false>>("D64 T180 not causal", 3, 180);
        if (only < 0 || i++ == only)
                good &= test<f16, Shape<64, 4, 4, false>>("D64 f16 T65 not causal", 3, 65);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 4, false>>("D64 T200 not causal", 2, 200);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 8, 2, true>>("D64 H8/2 T333", 2, 333);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 2, true, 100>>("D64 H4/2 T1000 window 100", 2,
                                                               1000);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<64, 4, 2, false, 70>>("D64 T300 window 70 both", 2, 300);
        if (only < 0 || i++ == only)
                good &= test<f16, Shape<64, 4, 4, true>>("D64 f16 T1000", 2, 1000);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<128, 4, 4, true>>("D128 T1000", 2, 1000);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<128, 8, 2, true>>("D128 H8/2 T77", 3, 77);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<128, 8, 2, true>>("D128 H8/2 T640", 9, 640);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<128, 4, 2, true, 100>>("D128 H4/2 T1000 window 100", 2,
                                                                1000);
        if (only < 0 || i++ == only)
                good &= test<bf16, Shape<128, 4, 4, false>>("D128 T200 not causal", 2, 200);
        if (only < 0 || i++ == only)
                good &= test<f16, Shape<128, 4, 2, true>>("D128 f16 H4/2 T1000", 2, 1000);
        return good;
}

/* rotated: with RopeOut. */
template <class Tile, class A, int B, int T>
static bool candidate(Problem<bf16, A> &p, const char *name)
{
        char dkv_name[40], dq_name[40];
        bool good = true;
        snprintf(dkv_name, sizeof dkv_name, "dkv %s", name),
                snprintf(dq_name, sizeof dq_name, "dq %s", name);
        good &= p.run(dq_name, true, 0, dq_sm90<bf16, A, Tile, B, T>);
        good &= p.run(dkv_name, false, dq_sm90<bf16, A, Tile, B, T>, dkv_sm90<bf16, A, Tile, B, T>);
        p.speed(dq_name, dq_sm90<bf16, A, Tile, B, T>, 0.6);
        p.speed("   rotated", dq_sm90<bf16, A, Tile, B, T, true>, 0.6);
        p.speed(dkv_name, dkv_sm90<bf16, A, Tile, B, T>, 0.8);
        p.speed("   rotated", dkv_sm90<bf16, A, Tile, B, T, true>, 0.8);
        return good;
}

#define TRY(...) good &= candidate<AttBackwardTileSm90<A::D, __VA_ARGS__>, A, B, T>(p, #__VA_ARGS__)

template <class A, int B, int T>
static bool speed(const char *name)
{
        Problem<bf16, A> p(name, B, T);
        bool good = true;
        p.plain();
        const double d = p.speed("portable delta", delta<bf16, A>, 0);
        const double k = p.speed("portable dkv", dkv<bf16, A>, 0.8),
                     q = p.speed("portable dq", dq<bf16, A>, 0.6);
        printf("%-26s %-24s %9.1f us\n", name, "portable, all", d + k + q);
        if constexpr (A::D == 64) {
                TRY(6, 2, true);
                if constexpr (A::H == A::K) {
                        good &= p.run("both", true, 0,
                                      both_sm90<bf16, A, typename Best<64>::DQ, B, T>);
                        good &= p.check("both", false);
                        p.speed("both", both_sm90<bf16, A, typename Best<64>::DQ, B, T>, 1.4);
                }
                if constexpr ((T + 63) / 64 <= most_whole<A>()) {
                        typedef typename BestWhole<A, (T + 63) / 64, 1>::Tile Whole;
                        typedef typename BestWhole<A, (T + 63) / 64, 2>::Tile Halves;
                        p.speed("whole", whole_sm90<bf16, A, Whole, B, T>, 1);
                        p.speed("   rotated", whole_sm90<bf16, A, Whole, B, T, true>, 1);
                        p.speed("halves", whole_sm90<bf16, A, Halves, B, T>, 1);
                        p.speed("   rotated", whole_sm90<bf16, A, Halves, B, T, true>, 1);
                }
#ifdef BENCH_CANDIDATES
                TRY(6, 1, true);
                TRY(8, 2, true);
                TRY(8, 2, false);
#endif
        } else {
                TRY(4, 1, false);
#ifdef BENCH_CANDIDATES
                TRY(3, 2, false);
#endif
        }
        fflush(stdout);
        return good;
}

static bool speeds(const char *part)
{
        bool good = true;
#define SPEED(NAME, B, T, ...)  \
        if (strstr(NAME, part)) \
        good &= speed<Shape<__VA_ARGS__, true>, B, T>(NAME)
        SPEED("gpt2 B32 H12 D64 T1024", 32, 1024, 64, 12, 12);
        SPEED("gpt2 B16 H12 D64 T1024", 16, 1024, 64, 12, 12);
        SPEED("B4 H32/8 D64 T2048", 4, 2048, 64, 32, 8);
        SPEED("B4 H32 D64 T2048", 4, 2048, 64, 32, 32);
        SPEED("B4 H32/8 D128 T2048", 4, 2048, 128, 32, 8);
        SPEED("B2 H32/8 D128 T4096", 2, 4096, 128, 32, 8);
        SPEED("B2 H32 D128 T4096", 2, 4096, 128, 32, 32);
        SPEED("TinyLM B8 H6 D64 T192", 8, 192, 64, 6, 6);
        SPEED("B32 H6 D64 T192", 32, 192, 64, 6, 6);
        SPEED("B32 H12 D64 T256", 32, 256, 64, 12, 12);
        SPEED("B8 H6 D64 T256", 8, 256, 64, 6, 6);
        SPEED("B8 H6 D64 T128", 8, 128, 64, 6, 6);
        SPEED("B64 H12 D64 T128", 64, 128, 64, 12, 12);
#undef SPEED
        return good;
}

int main(int argc, char **argv)
{
        cudaDeviceProp prop;
        bool good = true;
        const char *only = argc > 1 ? argv[1] : "";
        const char *part = argc > 2 ? argv[2] : ""; /* of a problem's name; of tests: the number */
        setvbuf(stdout, 0, _IOLBF, 0);
        CUDA(cudaGetDeviceProperties(&prop, 0));
        sms = prop.multiProcessorCount;
        printf("%s, %d multiprocessors\n", prop.name, sms);
        if (!*only || !strcmp(only, "test"))
                good &= tests(*part ? atoi(part) : -1);
        if (!*only || !strcmp(only, "speed"))
                good &= speeds(part);
        printf("%s\n", good ? "all right" : "SOMETHING IS WRONG");
        return good ? 0 : 1;
}
