/* attention_decode_lanes.cuh: a warp's loop of attention_decode.cuh by float32 FMA, for any type
 * and width.
 *
 * LANES lanes share a key, 16 bytes each, and keep q and their part of the output in registers.
 * Each such group runs its own online softmax; shuffles merge the groups at the end. */
#ifndef TGC_ATTENTION_DECODE_LANES_CUH
#define TGC_ATTENTION_DECODE_LANES_CUH

#include "attention_decode_rows.cuh"

/* WARP_KEYS keys and values of a warp; 0 where there is none. */
template <class E, class Att, class Tile>
struct AttLanesStep {
        typedef AttLanes<E, Att> L;
        typedef typename AttKeys<E, Att>::Row Row;
        static constexpr int KEYS = 32 / L::LANES; /* keys per warp and load */
        static constexpr bool FETCHES = false;
        static constexpr int CV = L::C * L::V; /* elements per lane */
        /* such loads in flight; for one row, as many as leave registers for the next launch's
         * blocks */
        static constexpr int UNROLL = Tile::ROWS * CV <= 8 && Tile::THREADS <= 192 ? 8
                                      : Tile::ROWS * CV <= 32                      ? 4
                                                                                   : 2;
        static constexpr int WARP_KEYS = KEYS * UNROLL;
        typename L::Bytes k[UNROLL][L::C], v[UNROLL][L::C];

        static __device__ __forceinline__ int lane() { return threadIdx.x % L::LANES; }
        static __device__ __forceinline__ int key() { return (threadIdx.x & 31) / L::LANES; }
        __device__ __forceinline__ void clear()
        {
#pragma unroll
                for (int u = 0; u < UNROLL; u++)
#pragma unroll
                        for (int c = 0; c < L::C; c++)
                                k[u][c] = v[u][c] = typename L::Bytes {};
        }
        /* Loads keys from n0 on, those within [lo, hi). */
        template <bool PAST_L1>
        __device__ __forceinline__ void read(Row kp, long k_step, Row vp, long v_step, int n0,
                                             int lo, int hi)
        {
#pragma unroll
                for (int u = 0; u < UNROLL; u++) {
                        const int s = n0 + key() + u * KEYS;
                        if (s >= lo && s < hi) {
                                L::template get<PAST_L1>(k[u], kp + s * k_step, lane());
                                L::template get<PAST_L1>(v[u], vp + s * v_step, lane());
                        }
                }
        }
        /* The same where a step's keys may lie in several pages. */
        template <bool PAST_L1>
        __device__ __forceinline__ void read_pages(const AttKeys<E, Att> &kp,
                                                   const AttKeys<E, Att> &vp, int n0, int lo,
                                                   int hi)
        {
#pragma unroll
                for (int u = 0; u < UNROLL; u++) {
                        const int s = n0 + key() + u * KEYS;
                        if (s >= lo && s < hi) {
                                const long row = kp.row(s);
                                L::template get<PAST_L1>(k[u], kp.base + row * kp.step, lane());
                                L::template get<PAST_L1>(v[u], vp.base + row * vp.step, lane());
                        }
                }
        }
};

/* The softmax state of this warp's keys for ROWS query rows. */
template <class E, class Att, class Tile>
struct AttLanesSums {
        typedef AttLanesStep<E, Att, Tile> Step;
        typedef typename Step::L L;
        static constexpr int ROWS = Tile::ROWS, CV = Step::CV, U = Step::UNROLL;
        float q[ROWS][CV], acc[ROWS][CV], top[ROWS], sum[ROWS], slope[ROWS];

        __device__ __forceinline__ AttLanesSums(const AttIn<E, Att> &in,
                                                const AttQueries<Att, Tile> &rows, int T)
        {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        const int t = rows.t(r), h = rows.h(r);
                        slope[r] = Att::ALIBI && t < T ? in.slopes[h] : 0.f;
                        top[r] = -INFINITY;
                        sum[r] = 0.f;
#pragma unroll
                        for (int c = 0; c < CV; c++)
                                q[r][c] = acc[r][c] = 0.f;
                        if (t < T)
                                L::read(q[r], in.q + rows.b * in.sq.b + t * in.sq.t + h * in.sq.h,
                                        Step::lane());
                }
        }
        /* Adds keys n0.. below s1. */
        __device__ __forceinline__ void add(const Step &step, const AttHead<E, Att> &hd,
                                            const AttQueries<Att, Tile> &rows, int n0, int s1)
        {
                float x[ROWS][U];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        const int t = rows.t(r);
                        AttHead<E, Att> hr = hd;
                        hr.slope = slope[r];
                        float mx = top[r];
#pragma unroll
                        for (int u = 0; u < U; u++) {
                                const int s = n0 + Step::key() + u * Step::KEYS;
                                float dot = 0.f, derivative;
#pragma unroll
                                for (int c = 0; c < CV; c++)
                                        dot = fmaf(q[r][c], L::value(step.k[u], c), dot);
#pragma unroll
                                for (int d = L::LANES / 2; d; d >>= 1)
                                        dot += __shfl_xor_sync(0xffffffffu, dot, d);
                                x[r][u] = s < s1 && hr.attends(t, s)
                                                  ? (hr.SHAPED ? hr.score(dot, t, s, derivative)
                                                               : dot) *
                                                            hr.BASE2
                                                  : -INFINITY;
                                mx = fmaxf(mx, x[r][u]);
                        }
                        const float zero = mx == -INFINITY ? 0.f : mx,
                                    scale = att_exp2<E>(top[r] - zero);
                        top[r] = mx;
                        sum[r] *= scale;
#pragma unroll
                        for (int c = 0; c < CV; c++)
                                acc[r][c] *= scale;
#pragma unroll
                        for (int u = 0; u < U; u++) {
                                const float p = att_exp2<E>(x[r][u] - zero);
                                sum[r] += p;
#pragma unroll
                                for (int c = 0; c < CV; c++)
                                        acc[r][c] = fmaf(p, L::value(step.v[u], c), acc[r][c]);
                        }
                }
        }
        /* Stores this warp's records. */
        __device__ __forceinline__ void put(float *part)
        {
                constexpr int RECORD = att_record<Att>();
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
#pragma unroll
                        for (int d = L::LANES; d < 32; d <<= 1) {
                                float f, f2, other = __shfl_xor_sync(0xffffffffu, top[r], d);
                                att_merge<E>(top[r], other, f, f2);
                                sum[r] = sum[r] * f + __shfl_xor_sync(0xffffffffu, sum[r], d) * f2;
#pragma unroll
                                for (int c = 0; c < CV; c++)
                                        acc[r][c] = acc[r][c] * f +
                                                    __shfl_xor_sync(0xffffffffu, acc[r][c], d) * f2;
                        }
                        if (Step::key() == 0)
#pragma unroll
                                for (int c = 0; c < CV; c++)
                                        if (L::column(Step::lane(), c) < Att::D)
                                                part[r * RECORD + L::column(Step::lane(), c)] =
                                                        acc[r][c];
                        if ((threadIdx.x & 31) == 0) {
                                part[r * RECORD + RECORD - 2] = top[r];
                                part[r * RECORD + RECORD - 1] = sum[r];
                        }
                }
        }
};

#endif
