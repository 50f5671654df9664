/* attention_decode_mma.cuh: a warp's loop of attention_decode.cuh on mma.sync, for two to eight
 * queries, 16-bit types, heads of 64 or 128.
 *
 * A warp takes 16 keys and values per step straight from global memory into fragments, 16 bytes a
 * lane, no shuffles.  That permutes k, which is harmless as long as both operands agree.  With g =
 * lane / 4, t = lane % 4:
 *
 *      S = Q K^T   Q (16 x D, 8 rows used), K^T (D, 2 x 8 keys).  Of each 32 elements lane (g, t)
 *                  has 8t .. 8t+7 of query g and of keys g and g + 8, the k of two mmas.  It gets
 *                  the scores of query g with keys 2t, 2t + 1, 2t + 8, 2t + 9,
 *      O = P V     which is where P (16, 16 keys), as A, wants them.  V (16 keys, 8 columns): lane
 *                  (g, t) has columns 8g .. 8g+7 of 64, of these four keys; mma j takes column j of
 *                  each eight.
 *
 * Softmax works on a lane's four scores of one query, and two shuffles. */
#ifndef TGC_ATTENTION_DECODE_MMA_CUH
#define TGC_ATTENTION_DECODE_MMA_CUH

#include "attention_decode_rows.cuh"
#include "attention_fragment.cuh"

template <class E, class Att, class Tile>
constexpr bool att_decode_mma()
{
        return sizeof(E) == 2 && Tile::ROWS > 1 && Tile::ROWS <= 8 &&
               (Att::D == 64 || Att::D == 128) && Att::VEC >= 8;
}

/* WARP_KEYS keys and values of a warp; 0 where there is none. */
template <class E, class Att, class Tile>
struct AttMmaStep {
        typedef typename AttKeys<E, Att>::Row Row;
        static constexpr int WARP_KEYS = 16, KC = Att::D / 32, VC = Att::D / 64;
        static constexpr bool FETCHES = true;
        /* per lane: keys and values as stored, in vectors of 8; and 16-byte pieces of the ring.
         * 8-bit caches add the words with exponents, of two keys and four values. */
        static constexpr int STORED = 2 * KC + 4 * VC;
        static constexpr int PIECES = Att::FP8 ? STORED / 2 + 2 : STORED;
        uint4 k[2][KC], v[4][VC];

        static __device__ __forceinline__ int g() { return (threadIdx.x & 31) / 4; }
        static __device__ __forceinline__ int t() { return threadIdx.x & 3; }
        /* Which of the 16 keys value i of a lane, and its score i, belong to. */
        static __device__ __forceinline__ int key(int i)
        {
                return 2 * t() + (i & 1) + (i >> 1) * 8;
        }
        __device__ __forceinline__ void clear()
        {
                const uint4 zero = { 0, 0, 0, 0 };
#pragma unroll
                for (int i = 0; i < 2 * KC; i++)
                        k[i / KC][i % KC] = zero;
#pragma unroll
                for (int i = 0; i < 4 * VC; i++)
                        v[i / VC][i % VC] = zero;
        }
        template <bool PAST_L1>
        static __device__ __forceinline__ uint4 get(const E *p)
        {
                TGC_ACCESS(p, 16);
                return PAST_L1 ? load_l2((const uint4 *)p) : *(const uint4 *)p;
        }
        template <bool PAST_L1>
        static __device__ __forceinline__ uint4 get(Row p, int col)
        {
                if constexpr (Att::FP8)
                        return fp8_get16<E, PAST_L1>(p, col);
                else
                        return get<PAST_L1>(p + col);
        }
        /* Loads keys from n0 on, those within [lo, hi). */
        template <bool PAST_L1>
        __device__ __forceinline__ void read(Row kp, long k_step, Row vp, long v_step, int n0,
                                             int lo, int hi)
        {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const int s = n0 + g() + 8 * i;
#pragma unroll
                        for (int c = 0; c < KC; c++)
                                if (s >= lo && s < hi)
                                        k[i][c] = get<PAST_L1>(kp + s * k_step, c * 32 + t() * 8);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const int s = n0 + key(i);
#pragma unroll
                        for (int c = 0; c < VC; c++)
                                if (s >= lo && s < hi)
                                        v[i][c] = get<PAST_L1>(vp + s * v_step, c * 64 + g() * 8);
                }
        }
        /* Copies what read() would load to `to` in shared memory by cp.async; take() reads it from
         * there.  One piece of every thread, then the next. */
        static __device__ __forceinline__ void copy(uint4 *to, Row kp, long k_step, Row vp,
                                                    long v_step, int n0, int hi)
        {
                if constexpr (Att::FP8) {
                        copy_codes(to, kp, k_step, vp, v_step, n0, hi);
                        return;
                } else {
                        copy_elements(to, kp, k_step, vp, v_step, n0, hi);
                }
        }
        /* All codes, 8 bytes each, then the words with exponents. */
        static __device__ __forceinline__ void copy_codes(uint4 *to, Fp8Row kp, long k_step,
                                                          Fp8Row vp, long v_step, int n0, int hi)
        {
                uint2 *codes = (uint2 *)to + threadIdx.x;
                unsigned *words = (unsigned *)((uint2 *)to + STORED * Tile::THREADS) + threadIdx.x;
#pragma unroll
                for (int i = 0; i < 6; i++) {
                        const int s = n0 + (i < 2 ? g() + 8 * i : key(i - 2)), n = i < 2 ? KC : VC;
                        const Fp8Row p = i < 2 ? kp + (s < hi ? s : n0) * k_step
                                               : vp + (s < hi ? s : n0) * v_step;
#pragma unroll
                        for (int c = 0; c < n; c++, codes += Tile::THREADS)
                                cp_async8(codes,
                                          p.p + (i < 2 ? c * 32 + t() * 8 : c * 64 + g() * 8),
                                          s < hi);
                        cp_async4(words + i * Tile::THREADS, p.word(), s < hi);
                }
        }
        static __device__ __forceinline__ void copy_elements(uint4 *to, const E *kp, long k_step,
                                                             const E *vp, long v_step, int n0,
                                                             int hi)
        {
                to += threadIdx.x;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                        const int s = n0 + g() + 8 * i;
                        const E *p = kp + (s < hi ? s : n0) * k_step + t() * 8;
#pragma unroll
                        for (int c = 0; c < KC; c++)
                                cp_async16(to + (i * KC + c) * Tile::THREADS, p + c * 32, s < hi);
                }
                to += 2 * KC * Tile::THREADS;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const int s = n0 + key(i);
                        const E *p = vp + (s < hi ? s : n0) * v_step + g() * 8;
#pragma unroll
                        for (int c = 0; c < VC; c++)
                                cp_async16(to + (i * VC + c) * Tile::THREADS, p + c * 64, s < hi);
                }
        }
        /* shift: the exponent's position in its word, the same for kp and vp (rows are multiples
         * of 16 bytes) */
        __device__ __forceinline__ void take_codes(const uint4 *from, int shift)
        {
                const uint2 *codes = (const uint2 *)from + threadIdx.x;
                const unsigned *words = (const unsigned *)((const uint2 *)from +
                                                           STORED * Tile::THREADS) +
                                        threadIdx.x;
#pragma unroll
                for (int i = 0; i < 6; i++) {
                        const float scale = fp8_scale(words[i * Tile::THREADS] >> shift & 255);
#pragma unroll
                        for (int c = 0; c < (i < 2 ? KC : VC); c++, codes += Tile::THREADS)
                                if (i < 2)
                                        k[i & 1][c] = fp8_chunk<E>(*codes, scale);
                                else
                                        v[(i - 2) & 3][c] = fp8_chunk<E>(*codes, scale);
                }
        }
        __device__ __forceinline__ void take(const uint4 *from)
        {
                from += threadIdx.x;
#pragma unroll
                for (int i = 0; i < 2 * KC; i++)
                        k[i / KC][i % KC] = from[i * Tile::THREADS];
#pragma unroll
                for (int i = 0; i < 4 * VC; i++)
                        v[i / VC][i % VC] = from[(2 * KC + i) * Tile::THREADS];
        }
        /* Prefetches keys from n0 on, below hi, into L2. */
        __device__ __forceinline__ void fetch(Row kp, long k_step, Row vp, long v_step, int n0,
                                              int hi) const
        {
                const int lane = threadIdx.x & 31, s = n0 + lane % WARP_KEYS;
                if (s >= hi)
                        return;
#pragma unroll
                for (int c = 0; c < VC; c++)
                        att_prefetch(lane < WARP_KEYS ? kp + s * k_step : vp + s * v_step, c * 64);
        }
};

/* Word i of the four. */
TGC_DEV unsigned att_word(const uint4 &x, int i)
{
        return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

/* Element j of two vectors of eight, packed. */
TGC_DEV unsigned att_pair(const uint4 &x, const uint4 &y, int j)
{
        const unsigned lo = att_word(x, j / 2), hi = att_word(y, j / 2);
        return j % 2 ? lo >> 16 | (hi & 0xffff0000u) : (lo & 0xffffu) | hi << 16;
}

/* The softmax state of this warp's keys; lane (g, t) holds query row g. */
template <class E, class Att, class Tile>
struct AttMmaSums {
        typedef AttMmaStep<E, Att, Tile> Step;
        static constexpr int KC = Step::KC, VC = Step::VC;
        uint4 q[KC];
        float acc[8 * VC][4], top, sum, slope;
        int row; /* token of its query; T if there is none */

        __device__ __forceinline__ AttMmaSums(const AttIn<E, Att> &in,
                                              const AttQueries<Att, Tile> &rows, int T)
        {
                const int r = Step::g(), h = rows.h(r);
                const uint4 zero = { 0, 0, 0, 0 };
                row = r < Tile::ROWS && rows.t(r) < T ? rows.t(r) : T;
                slope = Att::ALIBI && row < T ? in.slopes[h] : 0.f;
                top = -INFINITY;
                sum = 0.f;
#pragma unroll
                for (int c = 0; c < KC; c++)
                        q[c] = row < T ? Step::template get<false>(in.q + rows.b * in.sq.b +
                                                                   row * in.sq.t + h * in.sq.h +
                                                                   c * 32 + Step::t() * 8)
                                       : zero;
#pragma unroll
                for (int i = 0; i < 32 * VC; i++)
                        acc[i / 4][i % 4] = 0.f;
        }
        /* Adds keys n0.. below s1. */
        __device__ __forceinline__ void add(const Step &step, const AttHead<E, Att> &hd,
                                            const AttQueries<Att, Tile> &, int n0, int s1)
        {
                float dot[2][4] = {}, p[4], mx = top;
                AttHead<E, Att> hr = hd;
                hr.slope = slope;
#pragma unroll
                for (int c = 0; c < KC; c++)
#pragma unroll
                        for (int j = 0; j < 4; j += 2) {
                                const unsigned a[4] = { att_word(q[c], j), 0, att_word(q[c], j + 1),
                                                        0 };
#pragma unroll
                                for (int i = 0; i < 2; i++)
                                        mma_16816<E>(dot[i], a, att_word(step.k[i][c], j),
                                                     att_word(step.k[i][c], j + 1));
                        }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const int s = n0 + Step::key(i);
                        float derivative;
                        p[i] = s < s1 && hr.attends(row, s)
                                       ? (hr.SHAPED
                                                  ? hr.score(dot[i / 2][i % 2], row, s, derivative)
                                                  : dot[i / 2][i % 2]) *
                                                 hr.BASE2
                                       : -INFINITY;
                        mx = fmaxf(mx, p[i]);
                }
                mx = quad_max(mx);
                const float zero = mx == -INFINITY ? 0.f : mx, scale = att_exp2<E>(top - zero);
                top = mx;
                sum *= scale;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        p[i] = att_exp2<E>(p[i] - zero);
                        sum += p[i];
                }
                const unsigned a[4] = { pack2<E>(p[0], p[1]), 0, pack2<E>(p[2], p[3]), 0 };
#pragma unroll
                for (int i = 0; i < 8 * VC; i++) {
                        acc[i][0] *= scale;
                        acc[i][1] *= scale;
                        mma_16816<E>(acc[i], a, att_pair(step.v[0][i / 8], step.v[1][i / 8], i % 8),
                                     att_pair(step.v[2][i / 8], step.v[3][i / 8], i % 8));
                }
        }
        /* Stores this warp's records. */
        __device__ __forceinline__ void put(float *part)
        {
                constexpr int RECORD = att_record<Att>();
                sum = quad_sum(sum);
                if (Step::g() >= Tile::ROWS)
                        return;
                part += Step::g() * RECORD;
#pragma unroll
                for (int c = 0; c < VC; c++)
#pragma unroll
                        for (int e = 0; e < 2; e++)
#pragma unroll
                                for (int j = 0; j < 8; j += 2) {
                                        const float v[2] = { acc[c * 8 + j][e],
                                                             acc[c * 8 + j + 1][e] };
                                        store(part + c * 64 + (2 * Step::t() + e) * 8 + j, v);
                                }
                if (Step::t() == 0) {
                        part[RECORD - 2] = top;
                        part[RECORD - 1] = sum;
                }
        }
};

#endif
