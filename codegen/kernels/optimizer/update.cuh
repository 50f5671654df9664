/* update.cuh: the optimiser over flat arenas: gradient norm, then one step of a rule.
 *
 * Grads: the gradients of n parameters.  Those of the first n_low, a multiple of 8, are stored in
 * bf16 (low), and their sum over several micro-steps in float32 (sum, which may be null else);
 * those of the others are float32 (rest).
 *
 *      grad_add_task<THREADS>(rt, g, sum, tile)
 *              sum = low in the first micro-step, sum += low in the others.  tiles: ceil(n_low /
 *              (THREADS * 8)).
 *      grad_norm_task<THREADS>(rt, g, tile, tiles, partial, done, norm, flag, smem)
 *              partial[tile] = sum of squares of its share of g; the block that is done last,
 *              counted by *done (0 before and after), makes *norm = sqrt(sum of partial), in order
 *              whichever it is, and *flag = 1 if that is not finite, 2 if it is a spike
 *              (rt->most_norm; *norm is infinite then, so that nothing is changed), else 0.  tiles:
 *              fixed, 1056 at most.
 *      update_task<THREADS, Rule, SCALED>(rt, param, states, g, n_decay, norm, tile)
 *              one step of Rule (of ir/optimizers.def); elements below n_decay have weight decay.
 *               param: Params, SplitParams, LowParams or StochasticParams.  states: arrays
 *              of n floats, as many as the rule has.  If *norm is not finite nothing is changed, so
 *              that a bad step cannot spoil the weights.  norm may be null: no clipping, no test.
 *              SCALED: gradients and norm are of the loss times a scale, 1 / rt->unscale.
 *              tiles: ceil(n / (THREADS * UPDATE_PER_THREAD)).  It calls pdl_wait once it has asked
 *              for all that no launch of a step but this one writes.
 *
 * A rule is a struct with STATES, a constructor (rt), which takes what all elements share, `grad`,
 * the factor that clips the gradient, and element(p, s, g, decay), which changes a parameter and
 * its states.
 *
 * Arenas are aligned to 16 bytes; n is arbitrary.  THREADS: 256.  shared memory: UPDATE_SMEM. */
#ifndef TGC_UPDATE_CUH
#define TGC_UPDATE_CUH

#include "tgc.cuh"
#include "ptx.cuh"

#define UPDATE_SMEM 256
#define UPDATE_PER_THREAD 4

struct Grads {
        const bf16 *low;
        const float *sum, *rest;
        long long n_low, n;
};

template <int THREADS>
TGC_DEV void grad_add_task(const Rt *rt, const Grads &g, float *sum, int tile)
{
        long long i = ((long long)tile * THREADS + threadIdx.x) * 8;
        if (i >= g.n_low)
                return;
        float v[8], w[8];
        load<8>(v, g.low + i);
        if (rt->micro > 0) {
                load<8>(w, sum + i);
#pragma unroll
                for (int j = 0; j < 8; j++)
                        v[j] += w[j];
        }
        store<8>(sum + i, v);
}

/* Sum of squares of n elements, 16 bytes at a time; the first block takes the remainder. */
template <int THREADS, class T>
TGC_DEV void add_squares(float (&sum)[16 / sizeof(T)], const T *g, long long n, int tile, int tiles)
{
        constexpr int V = 16 / (int)sizeof(T);
        long long vectors = n / V, step = (long long)tiles * THREADS;
#pragma unroll 4
        for (long long i = (long long)tile * THREADS + threadIdx.x; i < vectors; i += step) {
                float v[V];
                load<V>(v, g + V * i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        sum[j] += v[j] * v[j];
        }
        if (tile == 0 && (int)threadIdx.x < (int)(n % V)) {
                float x = to_float(g[V * vectors + threadIdx.x]);
                sum[0] += x * x;
        }
}

template <int THREADS>
TGC_DEV void grad_norm_task(const Rt *rt, const Grads &g, int tile, int tiles, float *partial,
                            int *done, float *norm, int *flag, char *smem)
{
        int *last = (int *)smem + 32; /* behind block_sum's */
        float sum[4] = {}, low[8] = {};
        if (g.n_low && rt->n_micro > 1)
                add_squares<THREADS>(sum, g.sum, g.n_low, tile, tiles);
        else if (g.n_low)
                add_squares<THREADS>(low, g.low, g.n_low, tile, tiles);
        add_squares<THREADS>(sum, g.rest, g.n - g.n_low, tile, tiles);
#pragma unroll
        for (int j = 0; j < 8; j++)
                sum[j % 4] += low[j];
        float s = block_sum<THREADS>(sum[0] + sum[1] + (sum[2] + sum[3]), (float *)smem);
        if (threadIdx.x == 0) {
                partial[tile] = s;
                __threadfence();
                *last = atomicAdd(done, 1) == tiles - 1;
                __threadfence();
        }
        __syncthreads();
        if (*last) {
                s = 0.f;
                for (int i = (int)threadIdx.x; i < tiles; i += THREADS)
                        s += partial[i];
                s = block_sum<THREADS>(s, (float *)smem);
                if (threadIdx.x == 0) {
                        s = sqrtf(s);
                        const bool spike = rt->most_norm > 0.f && s < INFINITY &&
                                           s * rt->unscale > rt->most_norm;
                        *norm = spike ? INFINITY : s;
                        *flag = spike ? 2 : !(s < INFINITY);
                        *done = 0;
                }
        }
        __syncthreads();
}

/* Parameters in float32; low (bf16 or f16, or null) gets them rounded to nearest even. */
template <class Low>
struct Params {
        float *p;
        Low *low;
        template <int V>
        __device__ void get(float (&v)[V], long long i) const
        {
                load<V>(v, p + i);
        }
        template <int V>
        __device__ void put(long long i, const float (&v)[V]) const
        {
                store<V>(p + i, v);
                if (low)
                        store<V>(low + i, v);
        }
};

/* A float32 in two halves: w, the nearest bf16 (ties away from zero), and lo, the bits that w
 * lacks. */
struct SplitParams {
        bf16 *w;
        unsigned short *lo;
        template <int V>
        union Half {
                typename Chunk<2 * V>::T c;
                unsigned short t[V];
                __device__ Half() {}
        };
        template <int V>
        __device__ void get(float (&v)[V], long long i) const
        {
                typedef typename Chunk<2 * V>::T C;
                Half<V> hi, rest;
                hi.c = *(const C *)(w + i);
                rest.c = *(const C *)(lo + i);
#pragma unroll
                for (int j = 0; j < V; j++)
                        v[j] = __uint_as_float(((unsigned)hi.t[j] << 16) +
                                               (unsigned)(int)(short)rest.t[j]);
        }
        template <int V>
        __device__ void put(long long i, const float (&v)[V]) const
        {
                typedef typename Chunk<2 * V>::T C;
                Half<V> hi, rest;
#pragma unroll
                for (int j = 0; j < V; j++) {
                        hi.t[j] = (unsigned short)((__float_as_uint(v[j]) + 0x8000u) >> 16);
                        rest.t[j] = (unsigned short)__float_as_uint(v[j]);
                }
                *(C *)(w + i) = hi.c;
                *(C *)(lo + i) = rest.c;
        }
};

/* 16-bit parameters, rounded to nearest in each step. */
template <class Low>
struct LowParams {
        Low *w;
        template <int V>
        __device__ void get(float (&v)[V], long long i) const
        {
                load<V>(v, w + i);
        }
        template <int V>
        __device__ void put(long long i, const float (&v)[V]) const
        {
                store<V>(w + i, v);
        }
};

#define ROUND_ID 0x726f756eu

/* bf16 parameters with stochastic rounding, unbiased, so that small steps count on average.  Four
 * elements share a Philox call, as in cpu_update.h; i is a multiple of V. */
struct StochasticParams {
        bf16 *w;
        const Rt *rt;
        template <int V>
        __device__ void get(float (&v)[V], long long i) const
        {
                load<V>(v, w + i);
        }
        template <int V>
        __device__ void put(long long i, const float (&v)[V]) const
        {
                static_assert(V == 1 || V % 4 == 0, "words of whole calls");
#pragma unroll
                for (int at = 0; at < V; at += 4) {
                        const uint4 r = philox(make_uint4((unsigned)((i + at) >> 2),
                                                          (unsigned)((i + at) >> 34), ROUND_ID,
                                                          (unsigned)rt->step),
                                               rt->seed[0], rt->seed[1]);
                        const unsigned word[4] = { r.x, r.y, r.z, r.w };
#pragma unroll
                        for (int j = 0; j < (V < 4 ? V : 4); j++) {
                                const unsigned w16 = V == 1 ? word[i & 3] : word[j];
                                ((unsigned short *)w)[i + at + j] =
                                        (unsigned short)((__float_as_uint(v[at + j]) +
                                                          (w16 >> 16)) >>
                                                         16);
                        }
                }
        }
};

template <int N>
struct States {
        float *s[N];
};

/* The factor that clips the gradient and removes the loss's scale; false: the step is bad. */
template <bool SCALED>
TGC_DEV bool clip_factor(const Rt *rt, const float *norm, float &grad)
{
        const float unscale = SCALED ? rt->unscale : 1.f;
        grad = 1.f;
        if (norm && !(*norm < INFINITY))
                return false;
        if (norm && rt->clip > 0.f)
                grad = fminf(1.f, rt->clip / (*norm * unscale + 1e-6f));
        grad *= unscale;
        return true;
}

template <int THREADS, class Rule, bool SCALED = false, class Param>
TGC_DEV void update_task(const Rt *rt, const Param &param, const States<Rule::STATES> &state,
                         const Grads &g, long long n_decay, const float *norm, int tile)
{
        constexpr int V = UPDATE_PER_THREAD, S = Rule::STATES;
        long long i = ((long long)tile * THREADS + threadIdx.x) * V;
        if (i + V <= g.n) {
                float vp[V], vs[S][V], vg[V];
                param.get(vp, i);
#pragma unroll
                for (int s = 0; s < S; s++)
                        load<V>(vs[s], state.s[s] + i);
                pdl_wait();
                Rule rule(rt);
                if (!clip_factor<SCALED>(rt, norm, rule.grad))
                        return;
                if (i >= g.n_low)
                        load<V>(vg, g.rest + (i - g.n_low));
                else if (rt->n_micro > 1)
                        load<V>(vg, g.sum + i);
                else
                        load<V>(vg, g.low + i);
#pragma unroll
                for (int j = 0; j < V; j++) {
                        float x[S];
#pragma unroll
                        for (int s = 0; s < S; s++)
                                x[s] = vs[s][j];
                        rule.element(vp[j], x, vg[j], i + j < n_decay);
#pragma unroll
                        for (int s = 0; s < S; s++)
                                vs[s][j] = x[s];
                }
                param.put(i, vp);
#pragma unroll
                for (int s = 0; s < S; s++)
                        store<V>(state.s[s] + i, vs[s]);
                return;
        }
        pdl_wait();
        Rule rule(rt);
        if (!clip_factor<SCALED>(rt, norm, rule.grad))
                return;
        for (; i < g.n; i++) {
                float p[1], x[S];
                param.get(p, i);
#pragma unroll
                for (int s = 0; s < S; s++)
                        x[s] = state.s[s][i];
                rule.element(p[0], x, g.rest[i - g.n_low], i < n_decay);
                param.put(i, p);
#pragma unroll
                for (int s = 0; s < S; s++)
                        state.s[s][i] = x[s];
        }
}

#endif
