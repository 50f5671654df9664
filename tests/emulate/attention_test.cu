/* attention_test.cu: the attention families against plain loops in double.
 *
 *      tests/emulate/play.sh attention_test            the emulator
 *      tests/emulate/play.sh --gpu attention_test      a GPU
 *
 * Each case is one problem: storage type, head widths and counts, what is masked,
 * and lengths that do not divide the tiles.  Not-yet-written cache rows hold NaN.
 * With TGC_TF32 (attention_tf32_test.cu): those of float32. */
#include "attention_tiles.h"
#include "attention_short.cuh"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Args {
        const void *qkv, *g, *k, *v; /* (B,T,(H+2K)D), (B,T,H,D); with a cache k, v (B,cap,K,D) */
        void *o, *dq, *dk, *dv, *o_decode;
        float *lse, *delta, *work;
        int *done;
        const void *mask; /* (B,T,cap) */
        const float *slopes;
        const int *documents; /* (B,T,2) */
        const Rt *rt;
        int B, T, cap;
};

template <class E, int V>
struct Out {
        E *p;
        int C;
        static constexpr int MAXV = V, MINV = 1;
        template <int N>
        __device__ void operator()(int row, int col, float (&v)[N]) const
        {
                store(p + (long)row * C + col, v);
        }
};

/* C: E, Att, OUT (the epilogue's MAXV), ROWS and SPLITS of decode. */
template <class C>
TGC_DEV AttIn<typename C::E, typename C::Att> inputs(const Args *a)
{
        typedef typename C::Att A;
        const long W = (A::H + 2 * A::K) * A::D, C1 = A::K * A::D;
        const typename C::E *x = (const typename C::E *)a->qkv;
        AttIn<typename C::E, A> in = { x,
                                       x + A::H * A::D,
                                       x + (A::H + A::K) * A::D,
                                       { a->T * W, W, A::D },
                                       { a->T * W, W, A::D },
                                       { a->T * W, W, A::D },
                                       (const typename A::Mask *)a->mask,
                                       (long)a->T * a->cap,
                                       a->cap,
                                       1,
                                       a->slopes,
                                       0,
                                       a->documents };
        if (A::CACHED) {
                in.k = (const typename C::E *)a->k;
                in.v = (const typename C::E *)a->v;
                in.sk = in.sv = { a->cap * C1, C1, A::D };
        }
        return in;
}

template <class C>
TGC_DEV Out<typename C::E, C::OUT> out(void *p, int heads)
{
        return { (typename C::E *)p, heads * C::Att::D };
}

template <class C>
TGC_DEV void run_fwd(const Args *a, int tile, char *smem)
{
        typedef typename C::Att A;
        attention_task<typename C::E, A, typename Tiles<typename C::E, A>::Fwd::Tile>(
                inputs<C>(a), a->lse, a->B, a->T, a->rt, tile, smem, out<C>(a->o, A::H));
}

template <class C>
TGC_DEV void run_decode(const Args *a, int tile, char *smem)
{
        typedef typename C::Att A;
        attention_decode_task<typename C::E, A, AttDecode<C::ROWS, C::SPLITS, 128>>(
                inputs<C>(a), a->work, a->done, a->B, a->T, a->rt, tile, smem,
                out<C>(a->o_decode, A::H));
}

template <class C>
TGC_DEV void run_delta(const Args *a, int tile, char *)
{
        typedef typename C::Att A;
        const Strides s = { (long)a->T * A::H * A::D, A::H * A::D, A::D };
        attention_delta_task<typename C::E, A, 128>((const typename C::E *)a->o, s,
                                                    (const typename C::E *)a->g, s, a->delta, a->B,
                                                    a->T, tile);
}

template <class C>
TGC_DEV void run_dkv(const Args *a, int tile, char *smem)
{
        typedef typename C::Att A;
        const Strides s = { (long)a->T * A::H * A::D, A::H * A::D, A::D };
        attention_dkv_task<typename C::E, A, typename Tiles<typename C::E, A>::Dkv::Tile>(
                inputs<C>(a), (const typename C::E *)a->g, s, a->lse, a->delta, a->B, a->T, a->rt,
                tile, smem, out<C>(a->dk, A::K), out<C>(a->dv, A::K));
}

template <class C>
TGC_DEV void run_dq(const Args *a, int tile, char *smem)
{
        typedef typename C::Att A;
        const Strides s = { (long)a->T * A::H * A::D, A::H * A::D, A::D };
        attention_dq_task<typename C::E, A, typename Tiles<typename C::E, A>::Dq::Tile>(
                inputs<C>(a), (const typename C::E *)a->g, s, a->lse, a->delta, a->B, a->T, a->rt,
                tile, smem, out<C>(a->dq, A::H));
}

template <class C>
TGC_DEV void run_short(const Args *a, int tile, char *smem)
{
        typedef typename C::Att A;
        attention_short_task<A>(inputs<C>(a), a->lse, a->B, a->T, a->rt, tile, smem,
                                out<C>(a->o, A::H));
}

template <class C>
TGC_DEV void run_short_grad(const Args *a, int tile, char *smem)
{
        typedef typename C::Att A;
        const Strides s = { (long)a->T * A::H * A::D, A::H * A::D, A::D };
        attention_short_grad_task<A>(inputs<C>(a), (const float *)a->g, s, a->lse, a->B, a->T,
                                     a->rt, tile, smem, out<C>(a->dq, A::H), out<C>(a->dk, A::K),
                                     out<C>(a->dv, A::K));
}

/* ---- launches -------------------------------------------------------------- */

/* What a case allocates lives until the next one. */
static std::vector<void *> allocated;

#ifdef TGC_EMULATE
static void *memory(size_t n)
{
        allocated.push_back(aligned_alloc(256, (n + 255) / 256 * 256 + 256));
        return allocated.back();
}
static void memory_release(void *p) { free(p); }
#define LAUNCH(kernel, grid, threads, smem, a)                                                    \
        do {                                                                                      \
                char err[512];                                                                    \
                void *args[1] = { a };                                                            \
                if (tgc_emulate_launch(#kernel, grid, threads, smem, args, 1, err, sizeof err)) { \
                        printf("  %s\n", err);                                                    \
                        return 1;                                                                 \
                }                                                                                 \
        } while (0)
#else
static void *memory(size_t n)
{
        void *p = 0;
        if (cudaMallocManaged(&p, n + 256) != cudaSuccess) {
                printf("skip attention_test: no GPU\n");
                exit(0);
        }
        allocated.push_back(p);
        return p;
}
static void memory_release(void *p) { cudaFree(p); }

#define LAUNCH(kernel, grid, threads, smem, a)                                                   \
        do {                                                                                     \
                cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem); \
                kernel<<<grid, threads, smem>>>(a);                                              \
                cudaError_t e = cudaDeviceSynchronize();                                         \
                if (e != cudaSuccess) {                                                          \
                        printf("  %s: %s\n", #kernel, cudaGetErrorString(e));                    \
                        return 1;                                                                \
                }                                                                                \
        } while (0)
#endif

/* ---- the reference --------------------------------------------------------- */

static double host(float x) { return x; }
static double host(bf16 x) { return __bfloat162float(x); }
static double host(f16 x) { return __half2float(x); }
static void host_set(float &y, double x) { y = (float)x; }
static void host_set(bf16 &y, double x) { y = __float2bfloat16_rn((float)x); }
static void host_set(f16 &y, double x) { y = __float2half_rn((float)x); }

static unsigned rng = 1;
static double uniform() /* (-1, 1) */
{
        rng = rng * 1664525u + 1013904223u;
        return ((double)(rng >> 8) / 8388608.0) - 1.0;
}

/* 0, or 1/(1-p): the factor dropout() applies, drawn independently of tgc.cuh. */
static double keep(const Rt *rt, float p, unsigned id, unsigned long long i)
{
        unsigned c[4] = { (unsigned)(i >> 2), (unsigned)(i >> 34), id,
                          (unsigned)(rt->step * rt->n_micro + rt->micro) };
        unsigned k0 = rt->seed[0], k1 = rt->seed[1];
        for (int r = 0; r < 10; r++) {
                unsigned long long x = 0xD2511F53ull * c[0], z = 0xCD9E8D57ull * c[2];
                unsigned n[4] = { (unsigned)(z >> 32) ^ c[1] ^ k0, (unsigned)z,
                                  (unsigned)(x >> 32) ^ c[3] ^ k1, (unsigned)x };
                memcpy(c, n, sizeof c);
                k0 += 0x9E3779B9u;
                k1 += 0xBB67AE85u;
        }
        return (float)(c[i & 3] >> 8) * (1.f / 16777216.f) < p ? 0. : 1. / (1. - p);
}

/* Largest |got - want| over (|want| + rms of want), against tol; inputs are about 1, so what
 * cancels leaves 1e-7. */
template <class E>
static int differ(const char *name, const char *what, const E *got, const std::vector<double> &want,
                  double tol)
{
        double ss = 0, worst = 0;
        size_t at = 0;
        for (double w : want)
                ss += w * w;
        double rms = sqrt(ss / (double)want.size()) + 1e-5;
        for (size_t i = 0; i < want.size(); i++) {
                double e = fabs(host(got[i]) - want[i]) / (fabs(want[i]) + rms);
                if (!(e <= worst)) {
                        worst = e;
                        at = i;
                }
                if (e != e)
                        break;
        }
        if (worst <= tol)
                return 0;
        printf("  %s: %s[%zu] is %g, should be %g (error %.2g, allowed %.2g)\n", name, what, at,
               host(got[at]), want[at], worst, tol);
        return 1;
}

template <class E>
static double tolerance()
{
        return 0;
}
/* float32: sums of some hundred terms; of factors rounded to 11 bits.  16 bits: probabilities and
 * outputs are rounded to 11 or 8 bits, gradients also dS, and delta comes from the rounded o. */
template <>
double tolerance<float>()
{
        return TGC_TF32 ? 1e-2 : 3e-5;
}
template <>
double tolerance<f16>()
{
        return 6e-3;
}
template <>
double tolerance<bf16>()
{
        return 4e-2;
}

template <class C>
static int check(const char *name, int B, int T, const int *pos, int (*run)(Args *))
{
        typedef typename C::Att A;
        typedef typename C::E E;
        const int H = A::H, K = A::K, D = A::D, G = H / K;
        int cap = T;
        Rt *rt = (Rt *)memory(sizeof *rt);
        memset(rt, 0, sizeof *rt);
        rt->B = B;
        rt->T = T;
        rt->n_micro = 1;
        rt->step = 7;
        rt->seed[0] = 1234;
        rt->seed[1] = 99;
        for (int b = 0; b < B; b++) {
                rt->pos[b] = A::CACHED ? pos[b % 3] : 12345; /* not to be read without a cache */
                if (A::CACHED && rt->pos[b] + T > cap)
                        cap = rt->pos[b] + T;
        }
        cap += A::CACHED ? 5 : 0;
        const size_t W = (size_t)(H + 2 * K) * D, nq = (size_t)B * T * H * D,
                     nk = (size_t)B * T * K * D;
        const size_t nc = (size_t)B * cap * K * D;
        E *x = (E *)memory(B * T * W * sizeof(E)), *g = (E *)memory(nq * sizeof(E));
        E *kc = (E *)memory(nc * sizeof(E)), *vc = (E *)memory(nc * sizeof(E));
        E *o = (E *)memory(nq * sizeof(E)), *o2 = (E *)memory(nq * sizeof(E)),
          *dq = (E *)memory(nq * sizeof(E));
        E *dk = (E *)memory(nk * sizeof(E)), *dv = (E *)memory(nk * sizeof(E));
        float *lse = (float *)memory(B * H * T * 4), *delta = (float *)memory(B * H * T * 4);
        float *work = (float *)memory((size_t)B * H * T * C::SPLITS * att_record<A>() * 4);
        int *done = (int *)memory((size_t)B * H * T * 4);
        memset(done, 0, (size_t)B * H * T * 4);
        typename A::Mask *mask = (typename A::Mask *)memory((size_t)B * T * cap * 4);
        float *slopes = (float *)memory(H * 4);
        rng = (unsigned)(B * 131 + T * 7 + D);
        for (size_t i = 0; i < B * T * W; i++)
                host_set(x[i], 1.7 * uniform());
        for (size_t i = 0; i < nq; i++)
                host_set(g[i], uniform());
        for (int b = 0; b < B; b++)
                for (size_t i = 0; i < (size_t)cap * K * D; i++) {
                        bool there = (int)(i / (K * D)) < rt->pos[b] + T;
                        host_set(kc[b * (size_t)cap * K * D + i], there ? 1.7 * uniform() : NAN);
                        host_set(vc[b * (size_t)cap * K * D + i], there ? 1.7 * uniform() : NAN);
                }
        for (size_t i = 0; i < (size_t)B * T * cap; i++)
                mask[i] = (typename A::Mask)(uniform() > -0.3 &&
                                             i / cap % 5 != 2); /* every fifth: no key */
        int *documents = (int *)memory((size_t)B * T * 8);
        for (int b = 0; b < B; b++)
                for (int begin = 0, end; begin < T; begin = end) { /* of 1 to 90 tokens */
                        end = begin + 1 + (int)(45. * (1. + uniform()));
                        end = end < T ? end : T;
                        for (int t = begin; t < end; t++)
                                documents[2 * (b * T + t)] = begin,
                                                       documents[2 * (b * T + t) + 1] = end;
                }
        for (int h = 0; h < H; h++)
                slopes[h] = 0.25f / (float)(h + 1);

        Args *a = (Args *)memory(sizeof *a);
        *a = { x,     g,    kc,   vc,   o,      dq,        dk, dv, o2, lse,
               delta, work, done, mask, slopes, documents, rt, B,  T,  cap };
        memset((void *)o, 0x7f, nq * sizeof(E));
        memset((void *)o2, 0x7f, nq * sizeof(E));
        if (run(a))
                return 1;

        std::vector<double> ro(nq), rl((size_t)B * H * T), rdq(nq), rdk(nk), rdv(nk), p, dropped;
        for (int b = 0; b < B; b++)
                for (int h = 0; h < H; h++)
                        for (int t = 0; t < T; t++) {
                                const int P0 = A::CACHED ? rt->pos[b] : 0, S = P0 + T, at = P0 + t,
                                          hk = h / G;
                                const E *q = x + ((size_t)b * T + t) * W + h * D;
                                std::vector<double> sc(S), der(S, 1.);
                                double top = -INFINITY, sum = 0;
                                auto key = [&](int s, int d, bool v) {
                                        return A::CACHED
                                                       ? host((v ? vc
                                                                 : kc)[(((size_t)b * cap + s) * K +
                                                                        hk) * D +
                                                                       d])
                                                       : host(x[((size_t)b * T + s) * W +
                                                                (H + (v ? K : 0) + hk) * D + d]);
                                };
                                for (int s = 0; s < S; s++) {
                                        double y = 0;
                                        for (int d = 0; d < D; d++)
                                                y += host(q[d]) * key(s, d, false);
                                        y *= A::SCALE;
                                        const double cap_at = A::SOFTCAP > 0 ? A::SOFTCAP : 1;
                                        if (A::SOFTCAP > 0) {
                                                double th = tanh(y / cap_at);
                                                der[s] = 1 - th * th;
                                                y = cap_at * th;
                                        }
                                        if (A::ALIBI)
                                                y += slopes[h] * (s - at);
                                        if ((A::CAUSAL && s > at) ||
                                            (A::WINDOW && s <= at - A::WINDOW) ||
                                            (A::MASK && mask[((size_t)b * T + t) * cap + s] == 0) ||
                                            (A::DOCUMENTS && (s < documents[2 * (b * T + t)] ||
                                                              s >= documents[2 * (b * T + t) + 1])))
                                                y = -INFINITY;
                                        sc[s] = y;
                                        top = fmax(top, y);
                                }
                                p.assign(S, 0.);
                                for (int s = 0; s < S && top > -INFINITY; s++)
                                        sum += p[s] = exp(sc[s] - top);
                                rl[((size_t)b * H + h) * T + t] = sum > 0 ? top + log(sum)
                                                                          : -INFINITY;
                                dropped.assign(S, 1.);
                                for (int s = 0; s < S; s++) {
                                        if (sum > 0)
                                                p[s] /= sum;
                                        if (A::DROPOUT > 0)
                                                dropped[s] = keep(rt, A::DROPOUT, A::DROP_ID,
                                                                  (((unsigned long long)b * H + h) *
                                                                           T +
                                                                   t) * S +
                                                                          s);
                                }
                                const size_t row = (((size_t)b * T + t) * H + h) * D;
                                double dl = 0;
                                for (int d = 0; d < D; d++) {
                                        for (int s = 0; s < S; s++)
                                                if (p[s] > 0)
                                                        ro[row + d] += p[s] * dropped[s] *
                                                                       key(s, d, true);
                                        dl += ro[row + d] * host(g[row + d]);
                                }
                                for (int s = 0; s < S && !A::CACHED; s++) {
                                        const size_t kr = (((size_t)b * T + s) * K + hk) * D;
                                        double gv = 0;
                                        for (int d = 0; d < D; d++)
                                                gv += host(g[row + d]) * key(s, d, true);
                                        double ds = p[s] * (gv * dropped[s] - dl) * der[s] *
                                                    A::SCALE;
                                        for (int d = 0; d < D; d++) {
                                                rdv[kr + d] += p[s] * dropped[s] * host(g[row + d]);
                                                rdk[kr + d] += ds * host(q[d]);
                                                rdq[row + d] += ds * key(s, d, false);
                                        }
                                }
                        }
        const double tol = tolerance<E>();
        int bad = differ(name, "o", o, ro, tol);
        for (size_t i = 0; i < rl.size() && !bad; i++)
                if (!(lse[i] == rl[i] ||
                      fabs(lse[i] - rl[i]) <= (TGC_TF32 ? 2e-3 : 1e-4) * (1 + fabs(rl[i])))) {
                        printf("  %s: lse[%zu] is %g, should be %g\n", name, i, lse[i], rl[i]);
                        bad = 1;
                }
        if (A::CACHED)
                bad |= T <= 8 && differ(name, "o (decode)", o2, ro, tol);
        else
                bad |= differ(name, "dq", dq, rdq, tol) | differ(name, "dk", dk, rdk, tol) |
                       differ(name, "dv", dv, rdv, tol);
        return bad;
}

/* ---- cases ----------------------------------------------------------------- */

#define SET(type, id, value) static constexpr type id = value;
#define CAUSAL_(x) SET(bool, CAUSAL, x)
#define WINDOW_(x) SET(int, WINDOW, x)
#define CAP_(x) SET(float, SOFTCAP, x)
#define ALIBI_ SET(bool, ALIBI, true)
#define MASK_(t) SET(bool, MASK, true) typedef t Mask;
#define CACHED_ SET(bool, CACHED, true)
#define DOCUMENTS_ SET(bool, DOCUMENTS, true)
#define DROP_(x) SET(float, DROPOUT, x) SET(unsigned, DROP_ID, 42)
#define VEC_(x) SET(int, VEC, x)

/*    name          type  D    H  K  OUT  ROWS SPLITS  B  T    pos             options */
#define FLOAT_CASES                                                                        \
        CASE(exact, float, 64, 4, 2, 8, 1, 1, 2, 75, 0, 0, 0, VEC_(4))                     \
        CASE(exact_odd, float, 81, 2, 1, 2, 1, 1, 1, 41, 0, 0, 0,                          \
             VEC_(1) WINDOW_(9) ALIBI_ CAP_(3.f))                                          \
        CASE(exact_widest, float, 256, 1, 1, 4, 1, 1, 1, 37, 0, 0, 0, VEC_(4) DROP_(0.1f)) \
        CASE(exact_docs, float, 36, 4, 2, 4, 1, 1, 2, 155, 0, 0, 0,                        \
             DOCUMENTS_ VEC_(4) DROP_(0.1f) ALIBI_)                                        \
        CASE(cached_exact, float, 80, 2, 2, 2, 1, 8, 2, 1, 17, 333, 0, CACHED_ VEC_(4))    \
        CASE(exact_wide, float, 128, 4, 2, 4, 1, 1, 1, 133, 0, 0, 0, VEC_(4))              \
        CASE(exact_window, float, 48, 2, 1, 2, 1, 1, 2, 141, 0, 0, 0,                      \
             VEC_(4) WINDOW_(20) CAUSAL_(false))                                           \
        CASE(exact_shaped, float, 32, 3, 3, 1, 1, 1, 1, 170, 0, 0, 0,                      \
             VEC_(4) CAP_(3.f) ALIBI_ MASK_(int))                                          \
        CASE(exact_narrow, float, 8, 6, 2, 4, 1, 1, 1, 66, 0, 0, 0, VEC_(4) DROP_(0.2f))   \
        CASE(exact_chunk, float, 64, 4, 2, 4, 2, 1, 3, 70, 0, 61, 130, VEC_(4) CACHED_)
#define HALF_CASES                                                                               \
        CASE(plain, bf16, 64, 4, 4, 8, 1, 1, 2, 150, 0, 0, 0, )                                  \
        CASE(one_token, bf16, 64, 4, 2, 4, 1, 1, 1, 1, 0, 0, 0, CAUSAL_(false))                  \
        CASE(all_to_all, f16, 64, 2, 1, 2, 1, 1, 1, 131, 0, 0, 0, CAUSAL_(false))                \
        CASE(wide, f16, 128, 4, 1, 4, 1, 1, 1, 67, 0, 0, 0, )                                    \
        CASE(window, bf16, 80, 2, 2, 4, 1, 1, 2, 133, 0, 0, 0, WINDOW_(20))                      \
        CASE(window_ahead, bf16, 32, 2, 1, 4, 1, 1, 1, 141, 0, 0, 0, WINDOW_(20) CAUSAL_(false)) \
        CASE(narrow_cap, f16, 8, 2, 1, 4, 1, 1, 1, 33, 0, 0, 0, CAP_(2.f))                       \
        CASE(alibi_mask, bf16, 16, 3, 3, 1, 1, 1, 2, 40, 0, 0, 0, ALIBI_ MASK_(int))             \
        CASE(alibi_long, bf16, 64, 2, 1, 4, 1, 1, 1, 210, 0, 0, 0, ALIBI_)                       \
        CASE(mask_all, f16, 24, 2, 2, 4, 1, 1, 1, 70, 0, 0, 0, MASK_(float) CAUSAL_(false))      \
        CASE(widest, f16, 256, 2, 1, 4, 1, 1, 1, 50, 0, 0, 0, )                                  \
        CASE(dropped, f16, 48, 2, 1, 4, 1, 1, 2, 45, 0, 0, 0, DROP_(0.2f))                       \
        CASE(odd_bf16, bf16, 33, 2, 2, 1, 1, 1, 1, 35, 0, 0, 0, VEC_(1) MASK_(int))              \
        CASE(documents, bf16, 64, 4, 2, 4, 1, 1, 2, 330, 0, 0, 0, DOCUMENTS_)                    \
        CASE(documents_128, bf16, 128, 2, 2, 8, 1, 1, 1, 203, 0, 0, 0, DOCUMENTS_ WINDOW_(33))   \
        CASE(documents_all, f16, 48, 2, 1, 2, 1, 1, 1, 171, 0, 0, 0, DOCUMENTS_ CAUSAL_(false))  \
        CASE(cached, bf16, 64, 8, 2, 8, 8, 4, 3, 3, 0, 5, 290, CACHED_)                          \
        CASE(cached_one, f16, 128, 4, 1, 4, 4, 3, 3, 1, 0, 700, 64, CACHED_ WINDOW_(300))        \
        CASE(cached_chunk, bf16, 128, 4, 2, 4, 2, 1, 3, 70, 0, 61, 130, CACHED_)                 \
        CASE(cached_shaped, f16, 96, 6, 2, 4, 8, 2, 3, 8, 2, 40, 99,                             \
             CACHED_ CAP_(4.f) ALIBI_ MASK_(int))                                                \
        CASE(cached_tensor, f16, 64, 6, 2, 4, 8, 2, 3, 8, 2, 40, 99,                             \
             CACHED_ CAP_(4.f) ALIBI_ MASK_(int))                                                \
        CASE(cached_odd, bf16, 21, 6, 2, 2, 4, 1, 2, 2, 50, 3, 0, CACHED_ VEC_(1) WINDOW_(16))   \
        CASE(cached_widest, bf16, 256, 2, 1, 4, 2, 5, 2, 1, 100, 7, 0, CACHED_ CAP_(30.f))
#if TGC_TF32
#define CASES FLOAT_CASES
#else
#define CASES FLOAT_CASES HALF_CASES
#endif

#define CASE(name, type, D_, H_, K_, OUT_, ROWS_, SPLITS_, B_, T_, P0, P1, P2, options)       \
        struct name##_case {                                                                  \
                typedef type E;                                                               \
                struct Att : AttBase {                                                        \
                        SET(int, D, D_)                                                       \
                        SET(int, H, H_)                                                       \
                        SET(int, K, K_) SET(float, SCALE, 2.f / (8 + D_ / 8)) options         \
                };                                                                            \
                static constexpr int OUT = OUT_, ROWS = ROWS_, SPLITS = SPLITS_;              \
        };                                                                                    \
        extern "C" __global__ void name##_fwd(const Args *a)                                  \
        {                                                                                     \
                TGC_SMEM(smem);                                                               \
                run_fwd<name##_case>(a, blockIdx.x, smem);                                    \
        }                                                                                     \
        extern "C" __global__ void name##_decode(const Args *a)                               \
        {                                                                                     \
                TGC_SMEM(smem);                                                               \
                run_decode<name##_case>(a, blockIdx.x, smem);                                 \
        }                                                                                     \
        TGC_KERNEL(name##_fwd, 1)                                                             \
        TGC_KERNEL(name##_decode, 1)                                                          \
        GRAD(name)                                                                            \
        static int name##_run(Args *a)                                                        \
        {                                                                                     \
                typedef name##_case C;                                                        \
                typedef C::Att A;                                                             \
                typedef Tiles<C::E, A> R;                                                     \
                const int bm = R::Fwd::Tile::BM, heads = a->B * A::H;                         \
                LAUNCH(name##_fwd, heads *((a->T + bm - 1) / bm), R::Fwd::Tile::THREADS,      \
                       R::Fwd::SMEM, a);                                                      \
                if (A::CACHED && a->T <= 8) {                                                 \
                        const int groups = (a->T * (A::H / A::K) + C::ROWS - 1) / C::ROWS;    \
                        LAUNCH(name##_decode, a->B *A::K *groups *C::SPLITS, 128,             \
                               (attention_decode_smem<C::E, A,                                \
                                                      AttDecode<C::ROWS, C::SPLITS, 128>>()), \
                               a);                                                            \
                }                                                                             \
                return name##_grad_run(a);                                                    \
        }

/* Gradients of the cases without a cache; the tasks refuse the others. */
template <class C, bool CACHED>
struct Grad {
        static __device__ void delta(const Args *a, int tile, char *s) { run_delta<C>(a, tile, s); }
        static __device__ void dkv(const Args *a, int tile, char *s) { run_dkv<C>(a, tile, s); }
        static __device__ void dq(const Args *a, int tile, char *s) { run_dq<C>(a, tile, s); }
};
template <class C>
struct Grad<C, true> {
        static __device__ void delta(const Args *, int, char *) {}
        static __device__ void dkv(const Args *, int, char *) {}
        static __device__ void dq(const Args *, int, char *) {}
};
#define GRAD(name)                                                                            \
        typedef Grad<name##_case, name##_case::Att::CACHED> name##_g;                         \
        extern "C" __global__ void name##_delta(const Args *a)                                \
        {                                                                                     \
                TGC_SMEM(smem);                                                               \
                name##_g::delta(a, blockIdx.x, smem);                                         \
        }                                                                                     \
        extern "C" __global__ void name##_dkv(const Args *a)                                  \
        {                                                                                     \
                TGC_SMEM(smem);                                                               \
                name##_g::dkv(a, blockIdx.x, smem);                                           \
        }                                                                                     \
        extern "C" __global__ void name##_dq(const Args *a)                                   \
        {                                                                                     \
                TGC_SMEM(smem);                                                               \
                name##_g::dq(a, blockIdx.x, smem);                                            \
        }                                                                                     \
        TGC_KERNEL(name##_delta, 1)                                                           \
        TGC_KERNEL(name##_dkv, 1)                                                             \
        TGC_KERNEL(name##_dq, 1)                                                              \
        static int name##_grad_run(Args *a)                                                   \
        {                                                                                     \
                typedef name##_case C;                                                        \
                typedef C::Att A;                                                             \
                typedef Tiles<C::E, A> R;                                                     \
                if (A::CACHED)                                                                \
                        return 0;                                                             \
                const int rows = att_delta_rows<C::E, A, 128>(), bk = R::Dkv::Tile::BM,       \
                          bq = R::Dq::Tile::BM;                                               \
                LAUNCH(name##_delta, (a->B * A::H * a->T + rows - 1) / rows, 128, 0, a);      \
                LAUNCH(name##_dkv, a->B *A::K *((a->T + bk - 1) / bk), R::Dkv::Tile::THREADS, \
                       R::Dkv::SMEM, a);                                                      \
                LAUNCH(name##_dq, a->B *A::H *((a->T + bq - 1) / bq), R::Dq::Tile::THREADS,   \
                       R::Dq::SMEM, a);                                                       \
                return 0;                                                                     \
        }

CASES
#undef CASE

/* Short ones: a head per block, float32. */
/*    name           D   H  OUT  B  T   options */
#define SHORT_CASES                                                       \
        CASE(short_whole, 32, 4, 8, 2, 64, )                              \
        CASE(short_odd, 64, 2, 2, 1, 37, )                                \
        CASE(short_one, 32, 2, 1, 2, 1, CAUSAL_(false))                   \
        CASE(short_shaped, 32, 3, 4, 2, 50, WINDOW_(20) ALIBI_ CAP_(3.f)) \
        CASE(short_docs, 32, 2, 4, 3, 61, DOCUMENTS_)                     \
        CASE(short_dropped, 32, 2, 4, 2, 45, DROP_(0.2f) MASK_(int))

#define CASE(name, D_, H_, OUT_, B_, T_, options)                                             \
        struct name##_case {                                                                  \
                typedef float E;                                                              \
                struct Att : AttBase {                                                        \
                        SET(int, D, D_)                                                       \
                        SET(int, H, H_)                                                       \
                        SET(int, K, H_) SET(float, SCALE, 2.f / (8 + D_ / 8)) VEC_(4) options \
                };                                                                            \
                static constexpr int OUT = OUT_, ROWS = 1, SPLITS = 1;                        \
        };                                                                                    \
        extern "C" __global__ void name##_fwd(const Args *a)                                  \
        {                                                                                     \
                TGC_SMEM(smem);                                                               \
                run_short<name##_case>(a, blockIdx.x, smem);                                  \
        }                                                                                     \
        extern "C" __global__ void name##_grad(const Args *a)                                 \
        {                                                                                     \
                TGC_SMEM(smem);                                                               \
                run_short_grad<name##_case>(a, blockIdx.x, smem);                             \
        }                                                                                     \
        TGC_KERNEL(name##_fwd, 1)                                                             \
        TGC_KERNEL(name##_grad, 1)                                                            \
        static int name##_run(Args *a)                                                        \
        {                                                                                     \
                typedef AttShort<name##_case::Att> S;                                         \
                LAUNCH(name##_fwd, a->B *H_, S::THREADS, S::SMEM_FWD, a);                     \
                LAUNCH(name##_grad, a->B *H_, S::THREADS, S::SMEM_GRAD, a);                   \
                return 0;                                                                     \
        }
SHORT_CASES
#undef CASE

/* All cases, or those whose name contains argv[1]. */
int main(int argc, char **argv)
{
        int bad = 0;
        setvbuf(stdout, 0, _IOLBF, 0);
#define RUN(name, B_, T_, ...)                                              \
        if (argc < 2 || strstr("attention_" #name, argv[1])) {              \
                const int pos[3] = { __VA_ARGS__ };                         \
                int r = check<name##_case>(#name, B_, T_, pos, name##_run); \
                printf("%s attention_%s\n", r ? "not ok" : "ok", #name);    \
                bad |= r;                                                   \
                for (void *p : allocated)                                   \
                        memory_release(p);                                  \
                allocated.clear();                                          \
        }
#define CASE(name, type, D_, H_, K_, OUT_, ROWS_, SPLITS_, B_, T_, P0, P1, P2, options) \
        RUN(name, B_, T_, P0, P1, P2)
        CASES
#undef CASE
#define CASE(name, D_, H_, OUT_, B_, T_, options) RUN(name, B_, T_, 0)
        SHORT_CASES
        return bad;
}
