/* attention.cuh: scaled dot-product attention forward; scores are never stored.
 *
 * Query t of sequence b stands at p = rt->pos[b] + t (Att::CACHED) or at t; there
 * are S = p's offset + T keys.  It attends key s if s < S and, as Att says,
 *      CAUSAL  s <= p        WINDOW > 0  s > p - WINDOW        MASK  mask(b,t,s) != 0
 *      DOCUMENTS  begin(b,t) <= s < end(b,t): a row of tokens holds several texts, one after the other
 * with score
 *      x = SCALE q.k;   SOFTCAP > 0: x = SOFTCAP tanh(x / SOFTCAP);   ALIBI: x += slopes[h] (s - p)
 * A query with no key gives 0 and lse = -inf.  Kv head of query head h is h / (H/K).
 *
 * All families take the same description of the problem, written by the generator:
 *
 *      struct Att7 : AttBase { static constexpr int D = 64, H = 12, K = 4;
 *                              static constexpr float SCALE = 0.125f; };
 *      AttIn<bf16, Att7> in = { q, k, v, {bq, tq, hq}, {bk, tk, hk}, {bv, tv, hv} };
 *
 * and a tile `AttTile<BM, BN, SUB, COLS, THREADS>` from a row of attention_tiles.def:
 *
 *   attention_task<E, Att, Tile>(in, lse, B, T, rt, tile, smem, tail)      B*H*ceil(T/BM) tiles
 *      lse (B,H,T) float, natural log, or null.  tail(row = b*T + t, col = h*D + d, v).
 *   attention_grad.cuh:
 *   attention_delta_task<E, Att, THREADS>(o, so, g, sg, delta, B, T, tile)
 *                                                   ceil(B*H*T / att_delta_rows<E, Att, THREADS>()) tiles
 *      delta (B,H,T) float = sum_d o g, where g is the gradient of o; so, sg their strides.
 *   attention_dkv_task<E, Att, Tile>(in, g, sg, lse, delta, B, T, rt, tile, smem, tail_k, tail_v)
 *      B*K*ceil(T/BM) tiles.  tail(row = b*T + s, col = kvh*D + d, v).  CACHED must be false.
 *   attention_dq_task<E, Att, Tile>(in, g, sg, lse, delta, B, T, rt, tile, smem, tail)
 *      B*H*ceil(T/BM) tiles.  tail as forward.
 *   attention_decode.cuh: the same function for few queries and a long cache.
 *
 * Tails are called with V <= 4 and rows x cols as stated; MINV may be 1 or 2 (2
 * needs an even D).  Shared memory: the SMEM column of the table.
 *
 * Two implementations behind each task.  16-bit types with VEC == 8 use the tensor
 * cores (probabilities rounded to E before the second product, as is usual);
 * everything else uses float32 FMA, exact float32 whatever the storage.
 *
 * Each warp holds whole query rows, so that softmax needs only the four lanes of a
 * quad, and the score fragment becomes the A operand of the second product
 * without leaving registers (Dao, FlashAttention-2, 2023). */
#ifndef TGC_ATTENTION_CUH
#define TGC_ATTENTION_CUH

#include "ptx.cuh"

/* Elements from one batch, token, head to the next; D is contiguous. */
struct Strides { long b, t, h; };

/* What the generator derives from; it must add D, H, K and SCALE (> 0). */
struct AttBase {
        static constexpr bool  CAUSAL = true;
        static constexpr int   WINDOW = 0;        /* 0: none                                         */
        static constexpr float SOFTCAP = 0.f;     /* 0: none                                         */
        static constexpr bool  ALIBI = false;
        static constexpr bool  MASK = false;      /* in.mask is read                                 */
        static constexpr bool  DOCUMENTS = false; /* in.documents is read; CACHED is false           */
        static constexpr bool  CACHED = false;    /* k, v begin rt->pos[b] tokens before the queries */
        static constexpr bool  COUNTED = false;   /* of T tokens a run has fewer, and what lies behind them is anything */
        static constexpr float DROPOUT = 0.f;     /* of probabilities; element ((b*H+h)*T+t)*S + s   */
        static constexpr unsigned DROP_ID = 0;    /* in.drop_id is added                             */
        static constexpr int   VEC = 8;           /* every pointer and stride is a multiple of VEC
                                                     elements (8, 4, 2 or 1), pointers 16-byte aligned
                                                     where VEC is 8 or E float and VEC 4             */
        typedef float Mask;                       /* or int                                          */
};

template <class E, class Att>
struct AttIn {
        const E *q, *k, *v;                       /* (B,T,H,D) (B,S,K,D) (B,S,K,D) */
        Strides sq, sk, sv;
        const typename Att::Mask *mask;           /* element b*mb + t*mt + s*ms; strides 0 broadcast */
        long mb, mt, ms;
        const float *slopes;                      /* (H) ALiBi */
        unsigned drop_id;                         /* of dropout: layers differ in it, not in their kernels */
        const int *documents;                     /* (B,T,2): where the document of a token begins, and where it ends:
                                                     0 <= begin <= t < end <= T, the same of all its tokens */
};

template <int BM_, int BN_, int SUB_, int COLS_, int THREADS_>
struct AttTile {
        static constexpr int BM = BM_, BN = BN_, SUB = SUB_, COLS = COLS_, THREADS = THREADS_;
};

/* ---- shared by forward and backward ------------------------------------- */

#define ATT_LOG2E 1.4426950408889634f
#define ATT_LN2   0.6931471805599453f

/* Which of the two implementations a problem gets. */
template <class E, class Att>
struct AttPath {
        static constexpr bool MMA = sizeof(E) == 2 && Att::VEC == 8 && Att::D % 8 == 0;
        static constexpr int  DP = (Att::D + 15) / 16 * 16;             /* D padded for k steps of 16 */
        static constexpr int  LD = MMA ? DP + 8                         /* elements of a row in smem  */
                                       : ((Att::D + 3) / 4 | 1) * 4;    /* floats                     */
};

/* Where the document of token t, or of the last one, begins and ends; documents (T,2) of one sequence. */
TGC_DEV int att_begin(const int *documents, int t, int T) { return documents[2 * (t < T ? t : T - 1)]; }
TGC_DEV int att_end(const int *documents, int t, int T) { return documents[2 * (t < T ? t : T - 1) + 1]; }

/* One query head of one sequence: what may be attended, and the score. */
template <class E, class Att>
struct AttHead {
        const typename Att::Mask *mask;
        long  mt, ms;
        const Rt *rt;
        int   T, pos, S, bh;
        float slope;
        unsigned drop_id;
        const int *documents;

        static constexpr bool  SHAPED = Att::SOFTCAP > 0.f || Att::ALIBI;
        /* exp(score) = 2^(BASE2 x), with x from score(): q.k itself, or the score */
        static constexpr float BASE2 = SHAPED ? ATT_LOG2E : Att::SCALE * ATT_LOG2E;

        __device__ AttHead(const AttIn<E, Att> &in, const Rt *rt_, int b, int h, int T_)
                : AttHead(in, rt_, b, h, T_, Att::CACHED ? rt_->pos[b] : 0) {}
        __device__ AttHead(const AttIn<E, Att> &in, const Rt *rt_, int b, int h, int T_, int pos_)
                : mask(Att::MASK ? in.mask + b * in.mb : 0), mt(in.mt), ms(in.ms), rt(rt_), T(T_), pos(pos_), S(pos + T_),
                  bh(b * Att::H + h), slope(Att::ALIBI ? in.slopes[h] : 0.f), drop_id(in.drop_id),
                  documents(Att::DOCUMENTS ? in.documents + (long)b * T_ * 2 : 0) {}

        __device__ int begin(int t) const { return att_begin(documents, t, T); }
        __device__ int end(int t) const { return att_end(documents, t, T); }

        /* Keys that some query of [t0, t1) may attend; queries that may attend some key of [s0, s1).  from: begin(t0),
         * for who has it. */
        __device__ int first_key(int t0, int from) const
        {
                int s = pos + t0 - Att::WINDOW + 1;
                s = Att::WINDOW > 0 && s > 0 ? s : 0;
                return Att::DOCUMENTS && from > s ? from : s;
        }
        __device__ int first_key(int t0) const { return first_key(t0, Att::DOCUMENTS ? begin(t0) : 0); }
        __device__ int end_key(int t1) const
        {
                return Att::CAUSAL ? pos + (t1 < T ? t1 : T) : Att::DOCUMENTS ? end(t1 - 1) : S;
        }
        __device__ int first_query(int s0) const
        {
                return Att::CAUSAL && s0 > pos ? s0 - pos : Att::DOCUMENTS ? begin(s0) : 0;
        }
        __device__ int end_query(int s1) const
        {
                int t = s1 - 1 + Att::WINDOW - pos;
                t = Att::WINDOW > 0 && t < T ? t : T;
                return Att::DOCUMENTS && end(s1 - 1) < t ? end(s1 - 1) : t;
        }

        /* All pairs of queries [t0, t1) and keys [s0, s1) attend; would, in one document; none does. */
        __device__ bool full(int t0, int t1, int s0, int s1) const
        {
                return one_full(t0, t1, s0, s1) && (!Att::DOCUMENTS || (s0 >= begin(t1 - 1) && s1 <= end(t0)));
        }
        __device__ bool one_full(int t0, int t1, int s0, int s1) const
        {
                return !Att::MASK && s1 <= S && t1 <= T && (!Att::CAUSAL || s1 - 1 <= pos + t0)
                    && (Att::WINDOW == 0 || s0 > pos + t1 - 1 - Att::WINDOW);
        }
        __device__ bool empty(int t0, int t1, int s0, int s1) const
        {
                return s0 >= S || t0 >= T || (Att::CAUSAL && s0 > pos + t1 - 1)
                    || (Att::WINDOW > 0 && s1 - 1 <= pos + t0 - Att::WINDOW)
                    || (Att::DOCUMENTS && (s1 <= begin(t0) || s0 >= end(t1 - 1)));
        }
        __device__ bool attends(int t, int s) const
        {
                return s < S && t < T && (!Att::CAUSAL || s <= pos + t)
                    && (Att::WINDOW == 0 || s > pos + t - Att::WINDOW)
                    && (!Att::DOCUMENTS || (s >= begin(t) && s < end(t)))
                    && (!Att::MASK || mask[t * mt + s * ms] != (typename Att::Mask)0);
        }

        /* x of BASE2; slope is the derivative of the score by SCALE q.k. */
        __device__ float score(float dot, int t, int s, float &derivative) const
        {
                float x = dot;
                derivative = 1.f;
                if (SHAPED)
                        x *= Att::SCALE;
                if (Att::SOFTCAP > 0.f) {
                        constexpr float c = Att::SOFTCAP > 0.f ? Att::SOFTCAP : 1.f;
                        float y = sizeof(E) == 4 ? tanhf(x * (1.f / c))
                                : 1.f - 2.f * fast_rcp(1.f + fast_exp2(x * (2.f * ATT_LOG2E / c)));
                        derivative = 1.f - y * y;
                        x = c * y;
                }
                if (Att::ALIBI)
                        x += slope * (float)(s - (pos + t));
                return x;
        }
        __device__ float drop(float x, int t, int s) const
        {
                return dropout(x, Att::DROPOUT, Att::DROP_ID + drop_id,
                               ((unsigned long long)bh * T + t) * S + s, rt);
        }
};

/* Tile -> (head of the batch, row block).  Heads go in groups whose keys and
 * values fit in L2 together; in a group the blocks with most work start first,
 * so that the short ones fill the gaps at the end. */
template <class E, class Att>
TGC_DEV void att_order(int tile, int heads, int per_kv, int blocks, int T, bool last_first, int &bh, int &m)
{
        int group = (int)((16 << 20) / ((long)T * Att::D * 2 * (int)sizeof(E)) + 1) * per_kv;
        group = group < heads ? group : heads;
        int g = tile / (group * blocks), i = tile % (group * blocks);
        int n = heads - g * group < group ? heads - g * group : group;
        bh = g * group + i % n;
        m = last_first ? blocks - 1 - i / n : i / n;
}

/* V <= 4 neighbours to a tail that takes fewer. */
template <class Tail>
TGC_DEV void att_put4(Tail &tail, int row, int col, float a, float b, float c, float d)
{
        if constexpr (Tail::MAXV >= 4) {
                float v[4] = { a, b, c, d };
                tail(row, col, v);
        } else if constexpr (Tail::MAXV == 2) {
                float v[2] = { a, b }, w[2] = { c, d };
                tail(row, col, v);
                tail(row, col + 2, w);
        } else {
                float v[1] = { a }, w[1] = { b }, x[1] = { c }, y[1] = { d };
                tail(row, col, v);
                tail(row, col + 1, w);
                tail(row, col + 2, x);
                tail(row, col + 3, y);
        }
}

/* Columns d and, where it exists, d + 1 (d even). */
template <int D, class Tail>
TGC_DEV void att_put2(Tail &tail, int row, int col_base, int d, const float (&o)[2])
{
        if constexpr (Tail::MAXV >= 2 && D % 2 == 0) {
                float v[2] = { o[0], o[1] };
                tail(row, col_base + d, v);
        } else {
                float v[1] = { o[0] }, w[1] = { o[1] };
                tail(row, col_base + d, v);
                if (d + 1 < D)
                        tail(row, col_base + d + 1, w);
        }
}

/* 2^x: to the last bits for floats, the hardware's own for 16-bit types. */
template <class E> TGC_DEV float att_exp2(float x) { return sizeof(E) == 4 ? exp2f(x) : fast_exp2(x); }

/* How lanes share a row of D elements: LANES lanes (a power of two), V neighbours
 * of up to 16 bytes each, C times. */
template <class E, class Att>
struct AttLanes {
        static constexpr int MOST = 16 / (int)sizeof(E) < Att::VEC ? 16 / (int)sizeof(E) : Att::VEC;
        static constexpr int V = Att::D % 8 == 0 || MOST == 1 ? MOST : Att::D % 4 == 0 && MOST >= 4 ? 4
                               : Att::D % 2 == 0 ? 2 : 1;
        static constexpr int N = Att::D / V;
        static constexpr int LANES = N > 16 ? 32 : N > 8 ? 16 : N > 4 ? 8 : N > 2 ? 4 : N > 1 ? 2 : 1;
        static constexpr int C = (N + LANES - 1) / LANES;

        static __device__ __forceinline__ int column(int lane, int i) { return (i / V * LANES + lane) * V + i % V; }

        /* This lane's elements of the row at p, as they lie; those past D are left alone.  PAST_L1: the row's
         * neighbours in memory may still be written. */
        typedef typename Chunk<V * (int)sizeof(E)>::T Bytes;
        template <bool PAST_L1>
        static __device__ __forceinline__ void get(Bytes (&x)[C], const E *p, int lane)
        {
#pragma unroll
                for (int c = 0; c < C; c++)
                        if ((c * LANES + lane) * V < Att::D) {
                                const E *from = p + (c * LANES + lane) * V;
                                TGC_ACCESS(from, V * sizeof(E));
                                x[c] = PAST_L1 ? load_l2((const Bytes *)from) : *(const Bytes *)from;
                        }
        }
        static __device__ __forceinline__ float value(const Bytes (&x)[C], int i)
        {
                return to_float(((const E *)&x[i / V])[i % V]);
        }
        static __device__ __forceinline__ void read(float (&x)[C * V], const E *p, int lane)
        {
#pragma unroll
                for (int c = 0; c < C; c++)
                        if ((c * LANES + lane) * V < Att::D) {
                                float u[V];
                                load(u, p + (c * LANES + lane) * V);
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        x[c * V + j] = u[j];
                        }
        }
};

/* ---- tensor cores -------------------------------------------------------- */

/* Rows [row0, row0 + N) of a (rows, D) matrix to shared memory, zeros outside of it.
 * Where a thread's column never changes, its addresses differ by constants. */
template <int N, int THREADS, class Path, int D, class E>
TGC_DEV void att_copy(E *s, const E *g, long stride, int row0, int rows)
{
        constexpr int C = Path::DP / 8;
        const int tid = threadIdx.x;
#pragma unroll
        for (int i = 0; i < (N * C + THREADS - 1) / THREADS; i++) {
                const int r = THREADS % C == 0 ? tid / C + i * (THREADS / C) : (tid + i * THREADS) / C;
                const int c = (THREADS % C == 0 ? tid % C : (tid + i * THREADS) % C) * 8;
                if (N * C % THREADS && tid + i * THREADS >= N * C)
                        break;
                const bool ok = row0 + r < rows && (Path::DP == D || c < D);
                const int row = row0 + r < rows ? row0 + r : rows - 1;
                cp_async16(s + r * Path::LD + c, g + row * stride + (Path::DP == D || c < D ? c : 0), ok);
        }
}

/* A lane's place in ldmatrix_x4: of a 16 x 16 block as A operand (or transposed B
 * operand), and of a 16 x 16 block of rows that are columns of B. */
template <int LD> TGC_DEV int att_lane_a() { int l = threadIdx.x & 31; return (l & 15) * LD + (l >> 4) * 8; }
template <int LD> TGC_DEV int att_lane_b()
{
        int l = threadIdx.x & 31;
        return ((l & 7) + (l >> 4) * 8) * LD + ((l >> 3) & 1) * 8;
}

/* 16 MT rows as A operand over 16 KT columns: in registers, or read at each use. */
template <class E, int MT, int KT, int LD, bool KEEP> struct AttRows;
template <class E, int MT, int KT, int LD> struct AttRows<E, MT, KT, LD, true> {
        unsigned f[KT][MT][4];
        __device__ void init(const E *s)
        {
#pragma unroll
                for (int k = 0; k < KT; k++)
#pragma unroll
                        for (int m = 0; m < MT; m++)
                                ldmatrix_x4(f[k][m], s + att_lane_a<LD>() + m * 16 * LD + k * 16);
        }
        __device__ void get(unsigned (&a)[MT][4], int k) const
        {
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                a[m][i] = f[k][m][i];
        }
};
template <class E, int MT, int KT, int LD> struct AttRows<E, MT, KT, LD, false> {
        const E *p;
        __device__ void init(const E *s) { p = s + att_lane_a<LD>(); }
        __device__ void get(unsigned (&a)[MT][4], int k) const
        {
#pragma unroll
                for (int m = 0; m < MT; m++)
                        ldmatrix_x4(a[m], p + m * 16 * LD + k * 16);
        }
};

template <int MT, int NT>
TGC_DEV void att_zero(float (&x)[MT][NT][4])
{
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                x[m][n][i] = 0.f;
}

/* x += rows of a times rows of b:  x[i][j] = sum_d a[i][d] b[j][d]. */
template <class E, int MT, int NT, int KT, int LD, bool KEEP>
TGC_DEV void att_mma_nt(float (&x)[MT][NT][4], const AttRows<E, MT, KT, LD, KEEP> &a, const E *b)
{
        b += att_lane_b<LD>();
#pragma unroll
        for (int k = 0; k < KT; k++) {
                unsigned f[MT][4];
                a.get(f, k);
#pragma unroll
                for (int n = 0; n < NT; n += 2) {
                        unsigned r[4];
                        ldmatrix_x4(r, b + n * 8 * LD + k * 16);
#pragma unroll
                        for (int m = 0; m < MT; m++) {
                                mma_16816<E>(x[m][n], f[m], r[0], r[1]);
                                mma_16816<E>(x[m][n + 1], f[m], r[2], r[3]);
                        }
                }
        }
}

/* x += p b:  x[i][d] = sum_j p[i][j] b[j][d], p as fragments. */
template <class E, int LD, int MT, int KT, int NT>
TGC_DEV void att_mma_nn(float (&x)[MT][NT][4], const unsigned (&p)[KT][MT][4], const E *b)
{
        b += att_lane_a<LD>();
#pragma unroll
        for (int k = 0; k < KT; k++)
#pragma unroll
                for (int n = 0; n < NT; n += 2) {
                        unsigned r[4];
                        ldmatrix_x4_trans(r, b + k * 16 * LD + n * 8);
#pragma unroll
                        for (int m = 0; m < MT; m++) {
                                mma_16816<E>(x[m][n], p[k][m], r[0], r[1]);
                                mma_16816<E>(x[m][n + 1], p[k][m], r[2], r[3]);
                        }
                }
}

/* An accumulator's two neighbouring 8-column blocks are an A operand of 16 columns. */
template <class E, int MT, int NT>
TGC_DEV void att_pack(unsigned (&p)[NT / 2][MT][4], const float (&x)[MT][NT][4])
{
#pragma unroll
        for (int n = 0; n < NT; n += 2)
#pragma unroll
                for (int m = 0; m < MT; m++) {
                        p[n / 2][m][0] = pack2<E>(x[m][n][0], x[m][n][1]);
                        p[n / 2][m][1] = pack2<E>(x[m][n][2], x[m][n][3]);
                        p[n / 2][m][2] = pack2<E>(x[m][n + 1][0], x[m][n + 1][1]);
                        p[n / 2][m][3] = pack2<E>(x[m][n + 1][2], x[m][n + 1][3]);
                }
}

/* Row r of block m, half i of a fragment scaled by f[m][i], to the tail: two lanes swap
 * halves of two column blocks, so that each quad writes 16 neighbours.
 * t: the lane's first row; rows below `rows` exist; row_base, col_base are added. */
template <int D, int MT, int NT, class Tail>
TGC_DEV void att_store(const float (&x)[MT][NT][4], const float (&f)[MT][2], int t, int rows,
                       int row_base, int d0, int col_base, Tail &tail)
{
        int l = threadIdx.x & 3;
        bool odd = l & 1;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < 2; i++)
#pragma unroll
                        for (int n = 0; n < NT; n += 2) {
                                float a0 = x[m][n][2 * i] * f[m][i],     a1 = x[m][n][2 * i + 1] * f[m][i];
                                float b0 = x[m][n + 1][2 * i] * f[m][i], b1 = x[m][n + 1][2 * i + 1] * f[m][i];
                                float r0 = __shfl_xor_sync(0xffffffffu, odd ? a0 : b0, 1);
                                float r1 = __shfl_xor_sync(0xffffffffu, odd ? a1 : b1, 1);
                                int row = t + m * 16 + i * 8;
                                int d = d0 + n * 8 + (odd ? 8 : 0) + (l & 2) * 2;
                                if (row < rows && d < D)
                                        att_put4(tail, row_base + row, col_base + d, odd ? r0 : a0, odd ? r1 : a1,
                                                 odd ? b0 : r0, odd ? b1 : r1);
                        }
}

TGC_DEV float att_quad_sum(float x)
{
        x += __shfl_xor_sync(0xffffffffu, x, 1);
        return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

TGC_DEV float att_quad_max(float x)
{
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
        return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

template <class E, class Att, class Tile>
struct AttForwardMma {
        typedef AttPath<E, Att> Path;
        static constexpr int BM = Tile::BM, BN = Tile::BN, THREADS = Tile::THREADS, LD = Path::LD;
        static constexpr int MT = BM / (THREADS / 32 * 16);       /* 16-row blocks of a warp */
        static constexpr int NT = BN / 8, KT = Path::DP / 16, DT = Path::DP / 8;
        static constexpr int SMEM = (BM + 4 * BN) * LD * (int)sizeof(E);
        static_assert(BM % (THREADS / 32 * 16) == 0 && BN % 16 == 0, "tile of the mma path");

        template <class Tail>
        static __device__ __forceinline__ void run(const AttIn<E, Att> &in, float *lse, const AttHead<E, Att> &hd,
                                                   int b, int h, int m0, char *smem, Tail &tail)
        {
                E *sq = (E *)smem, *skv = sq + BM * LD;
                const int hk = h / (Att::H / Att::K);
                const E *q = in.q + b * in.sq.b + h * in.sq.h;
                const E *k = in.k + b * in.sk.b + hk * in.sk.h;
                const E *v = in.v + b * in.sv.b + hk * in.sv.h;
                const int lane = threadIdx.x & 31, w0 = m0 + (threadIdx.x >> 5) * MT * 16;
                const int lo = hd.first_key(m0) / BN * BN, hi = hd.end_key(m0 + BM);
                const int row = w0 + (lane >> 2);                 /* of fragment half 0 */

                AttRows<E, MT, KT, LD, (MT * KT <= 8)> rows;
                float o[MT][DT][4], top[MT][2], sum[MT][2];
                att_zero(o);
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                top[m][i] = -INFINITY;
                                sum[m][i] = 0.f;
                        }

                att_copy<BM, THREADS, Path, Att::D>(sq, q, in.sq.t, m0, hd.T);
                att_copy<BN, THREADS, Path, Att::D>(skv, k, in.sk.t, lo, hd.S);
                att_copy<BN, THREADS, Path, Att::D>(skv + BN * LD, v, in.sv.t, lo, hd.S);
                cp_async_commit();
                cp_async_wait<0>();
                __syncthreads();
                rows.init(sq + (w0 - m0) * LD);

                for (int n0 = lo, stage = 0; n0 < hi; n0 += BN, stage ^= 1) {
                        E *sk = skv + stage * 2 * BN * LD, *sv = sk + BN * LD;
                        cp_async_wait<0>();
                        __syncthreads();                          /* this stage is here, the other is free */
                        if (n0 + BN < hi) {
                                E *next = skv + (stage ^ 1) * 2 * BN * LD;
                                att_copy<BN, THREADS, Path, Att::D>(next, k, in.sk.t, n0 + BN, hd.S);
                                att_copy<BN, THREADS, Path, Att::D>(next + BN * LD, v, in.sv.t, n0 + BN, hd.S);
                                cp_async_commit();
                        }
                        if (hd.empty(w0, w0 + MT * 16, n0, n0 + BN))
                                continue;
                        float x[MT][NT][4];
                        att_zero(x);
                        att_mma_nt(x, rows, (const E *)sk);
                        mask(x, hd, w0, row, n0);
                        unsigned p[NT / 2][MT][4];
                        softmax(x, o, top, sum, hd, row, n0);
                        att_pack<E>(p, x);
                        att_mma_nn<E, LD>(o, p, (const E *)sv);
                }

                float inv[MT][2];
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                float s = att_quad_sum(sum[m][i]);
                                int t = row + m * 16 + i * 8;
                                inv[m][i] = s > 0.f ? 1.f / s : 0.f;
                                if (lse && (lane & 3) == 0 && t < hd.T)
                                        lse[(long)hd.bh * hd.T + t] = s > 0.f
                                                ? (top[m][i] * hd.BASE2 + fast_log2(s)) * ATT_LN2 : -INFINITY;
                        }
                att_store<Att::D>(o, inv, row, hd.T, b * hd.T, 0, h * Att::D, tail);
                __syncthreads();
        }

        /* Scores from products; -inf where a query does not attend. */
        static __device__ __forceinline__ void mask(float (&x)[MT][NT][4], const AttHead<E, Att> &hd, int w0,
                                                    int row, int n0)
        {
                const bool full = hd.full(w0, w0 + MT * 16, n0, n0 + BN);
                if (!hd.SHAPED && full)
                        return;
                const int col = n0 + (threadIdx.x & 3) * 2;
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int n = 0; n < NT; n++)
#pragma unroll
                                for (int i = 0; i < 4; i++) {
                                        int t = row + m * 16 + (i >> 1) * 8, s = col + n * 8 + (i & 1);
                                        float d;
                                        if (hd.SHAPED)
                                                x[m][n][i] = hd.score(x[m][n][i], t, s, d);
                                        if (!full && !hd.attends(t, s))
                                                x[m][n][i] = -INFINITY;
                                }
        }

        /* The exponent taken off all scores of a row.  A row without keys so far has top = -inf:
         * 2^(-inf - 0) = 0, never inf - inf. */
        static __device__ __forceinline__ float zero(float top)
        {
                return top == -INFINITY ? 0.f : top * AttHead<E, Att>::BASE2;
        }

        /* One step of the online softmax: x becomes probabilities relative to `top`.  The usual
         * top is the largest score so far, and every step rescales o.  Any top near it gives
         * the same quotient, so it is raised only when some row of the warp exceeds it
         * by 2^8, which float32 sums and 16-bit probabilities hold easily. */
        static __device__ __forceinline__ void softmax(float (&x)[MT][NT][4], float (&o)[MT][DT][4],
                                                       float (&top)[MT][2], float (&sum)[MT][2],
                                                       const AttHead<E, Att> &hd, int row, int n0)
        {
                float most[MT][2];
                bool raise = false;
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                float t = fmaxf(x[m][0][2 * i], x[m][0][2 * i + 1]);
#pragma unroll
                                for (int n = 1; n < NT; n++)
                                        t = fmaxf(t, fmaxf(x[m][n][2 * i], x[m][n][2 * i + 1]));
                                most[m][i] = fmaxf(top[m][i], att_quad_max(t));
                                raise |= most[m][i] * hd.BASE2 > top[m][i] * hd.BASE2 + 8.f;
                        }
                if (__any_sync(0xffffffffu, raise))
#pragma unroll
                        for (int m = 0; m < MT; m++)
#pragma unroll
                                for (int i = 0; i < 2; i++) {
                                        const float scale = fast_exp2(top[m][i] * hd.BASE2 - zero(most[m][i]));
                                        top[m][i] = most[m][i];
                                        sum[m][i] *= scale;
#pragma unroll
                                        for (int n = 0; n < DT; n++) {
                                                o[m][n][2 * i] *= scale;
                                                o[m][n][2 * i + 1] *= scale;
                                        }
                                }
#pragma unroll
                for (int m = 0; m < MT; m++)
#pragma unroll
                        for (int i = 0; i < 2; i++) {
                                const float z = zero(top[m][i]);
                                float part = 0.f;
#pragma unroll
                                for (int n = 0; n < NT; n++) {
                                        x[m][n][2 * i] = fast_exp2(x[m][n][2 * i] * hd.BASE2 - z);
                                        x[m][n][2 * i + 1] = fast_exp2(x[m][n][2 * i + 1] * hd.BASE2 - z);
                                        part += x[m][n][2 * i] + x[m][n][2 * i + 1];
                                }
                                sum[m][i] += part;
                        }
                if (Att::DROPOUT > 0.f) {
                        const int col = n0 + (threadIdx.x & 3) * 2;
#pragma unroll
                        for (int m = 0; m < MT; m++)
#pragma unroll
                                for (int n = 0; n < NT; n++)
#pragma unroll
                                        for (int i = 0; i < 4; i++)
                                                x[m][n][i] = hd.drop(x[m][n][i], row + m * 16 + (i >> 1) * 8,
                                                                     col + n * 8 + (i & 1));
                }
        }
};

/* ---- float32 FMA: 256 threads as 16 x 16 --------------------------------- */

/* Thread (ty, tx) has rows ty*RM + i, score columns tx + 16 j and output column
 * pairs 2 tx + 32 c: shared memory reads without bank conflicts, and a row's
 * scores stay within half a warp. */
template <class Att, class Tile>
struct AttSimt {
        static constexpr int BM = Tile::BM, BN = Tile::BN, D = Att::D;
        static constexpr int RM = BM / 16, RN = BN / 16, DC = (D + 31) / 32;
        static constexpr int LD = ((D + 3) / 4 | 1) * 4, LP = BN + 4;
        static_assert(Tile::THREADS == 256 && BM % 16 == 0 && BN % 16 == 0, "tile of the float path");

        static __device__ __forceinline__ int tx() { return threadIdx.x & 15; }
        static __device__ __forceinline__ int ty() { return threadIdx.x >> 4; }

        /* Rows [row0, row0 + N) of a (rows, D) matrix as floats, zeros outside of it. */
        template <int N, class E>
        static __device__ __forceinline__ void copy(float *s, const E *g, long stride, int row0, int rows)
        {
                constexpr int C = (D + 3) / 4;
                constexpr int V = Att::VEC >= 4 && D % 4 == 0 ? 4 : Att::VEC >= 2 && D % 2 == 0 ? 2 : 1;
                for (int i = threadIdx.x; i < N * C; i += 256) {
                        int r = i / C, c = i % C * 4;
                        float v[4] = { 0.f, 0.f, 0.f, 0.f };
#pragma unroll
                        for (int j = 0; j < 4; j += V)
                                if (row0 + r < rows && c + j < D) {
                                        float u[V];
                                        load(u, g + (row0 + r) * stride + c + j);
#pragma unroll
                                        for (int l = 0; l < V; l++)
                                                v[j + l] = u[l];
                                }
                        store(s + r * LD + c, v);
                }
        }

        /* x[i][j] = sum_d a[row i][d] b[column j][d] */
        static __device__ __forceinline__ void dot(float (&x)[RM][RN], const float *a, const float *b)
        {
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int j = 0; j < RN; j++)
                                x[i][j] = 0.f;
                a += ty() * RM * LD;
                b += tx() * LD;
#pragma unroll 4
                for (int d = 0; d < (D + 3) / 4 * 4; d += 4) {
                        float u[RM][4], v[RN][4];
#pragma unroll
                        for (int i = 0; i < RM; i++)
                                load(u[i], a + i * LD + d);
#pragma unroll
                        for (int j = 0; j < RN; j++)
                                load(v[j], b + j * 16 * LD + d);
#pragma unroll
                        for (int i = 0; i < RM; i++)
#pragma unroll
                                for (int j = 0; j < RN; j++)
#pragma unroll
                                        for (int l = 0; l < 4; l++)
                                                x[i][j] = fmaf(u[i][l], v[j][l], x[i][j]);
                }
        }

        /* The block's rows of scores to shared memory, for acc() by the same half warp. */
        static __device__ __forceinline__ void put(float *p, const float (&x)[RM][RN])
        {
                __syncwarp();
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int j = 0; j < RN; j++)
                                p[(ty() * RM + i) * LP + tx() + 16 * j] = x[i][j];
                __syncwarp();
        }

        /* o[i][d] += sum_j p[row i][j] b[j][d] */
        static __device__ __forceinline__ void acc(float (&o)[RM][DC][2], const float *p, const float *b)
        {
                p += ty() * RM * LP;
                for (int j = 0; j < BN; j += 4) {
                        float u[RM][4];
#pragma unroll
                        for (int i = 0; i < RM; i++)
                                load(u[i], p + i * LP + j);
#pragma unroll
                        for (int l = 0; l < 4; l++)
#pragma unroll
                                for (int c = 0; c < DC; c++) {
                                        int d = 2 * tx() + 32 * c;
                                        float v[2] = { 0.f, 0.f };
                                        if (d < D)
                                                load(v, b + (j + l) * LD + d);
#pragma unroll
                                        for (int i = 0; i < RM; i++) {
                                                o[i][c][0] = fmaf(u[i][l], v[0], o[i][c][0]);
                                                o[i][c][1] = fmaf(u[i][l], v[1], o[i][c][1]);
                                        }
                                }
                }
        }

        static __device__ __forceinline__ void zero(float (&o)[RM][DC][2])
        {
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int c = 0; c < DC; c++)
                                o[i][c][0] = o[i][c][1] = 0.f;
        }

        template <class Tail>
        static __device__ __forceinline__ void out(const float (&o)[RM][DC][2], const float (&f)[RM], int m0, int rows,
                                                   int row_base, int col_base, Tail &tail)
        {
#pragma unroll
                for (int i = 0; i < RM; i++)
#pragma unroll
                        for (int c = 0; c < DC; c++) {
                                int t = m0 + ty() * RM + i, d = 2 * tx() + 32 * c;
                                if (t >= rows || d >= D)
                                        continue;
                                const float v[2] = { o[i][c][0] * f[i], o[i][c][1] * f[i] };
                                att_put2<D>(tail, row_base + t, col_base, d, v);
                        }
        }
};

template <class E, class Att, class Tile>
struct AttForwardSimt {
        typedef AttSimt<Att, Tile> G;
        static constexpr int BM = Tile::BM, BN = Tile::BN, RM = G::RM, RN = G::RN, DC = G::DC;
        static constexpr int SMEM = ((BM + 2 * BN) * G::LD + BM * G::LP) * 4;

        template <class Tail>
        static __device__ __forceinline__ void run(const AttIn<E, Att> &in, float *lse, const AttHead<E, Att> &hd,
                                                   int b, int h, int m0, char *smem, Tail &tail)
        {
                float *sq = (float *)smem, *sk = sq + BM * G::LD, *sv = sk + BN * G::LD, *sp = sv + BN * G::LD;
                const int hk = h / (Att::H / Att::K);
                const int lo = hd.first_key(m0) / BN * BN, hi = hd.end_key(m0 + BM);
                float o[RM][DC][2], top[RM], sum[RM];
                G::zero(o);
#pragma unroll
                for (int i = 0; i < RM; i++) {
                        top[i] = -INFINITY;
                        sum[i] = 0.f;
                }
                G::template copy<BM>(sq, in.q + b * in.sq.b + h * in.sq.h, in.sq.t, m0, hd.T);
                for (int n0 = lo; n0 < hi; n0 += BN) {
                        float x[RM][RN];
                        __syncthreads();
                        G::template copy<BN>(sk, in.k + b * in.sk.b + hk * in.sk.h, in.sk.t, n0, hd.S);
                        G::template copy<BN>(sv, in.v + b * in.sv.b + hk * in.sv.h, in.sv.t, n0, hd.S);
                        __syncthreads();
                        G::dot(x, sq, sk);
#pragma unroll
                        for (int i = 0; i < RM; i++) {
                                int t = m0 + G::ty() * RM + i;
                                float mx = -INFINITY, part = 0.f;
#pragma unroll
                                for (int j = 0; j < RN; j++) {
                                        int s = n0 + G::tx() + 16 * j;
                                        float d;
                                        x[i][j] = hd.attends(t, s) ? hd.score(x[i][j], t, s, d)
                                                                     * (hd.BASE2 * ATT_LN2) : -INFINITY;
                                        mx = fmaxf(mx, x[i][j]);
                                }
#pragma unroll
                                for (int d = 8; d; d >>= 1)
                                        mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, d));
                                mx = fmaxf(mx, top[i]);
                                float zero = mx == -INFINITY ? 0.f : mx, scale = expf(top[i] - zero);
                                top[i] = mx;
#pragma unroll
                                for (int j = 0; j < RN; j++) {
                                        x[i][j] = expf(x[i][j] - zero);
                                        part += x[i][j];
                                        if (Att::DROPOUT > 0.f)
                                                x[i][j] = hd.drop(x[i][j], t, n0 + G::tx() + 16 * j);
                                }
                                sum[i] = sum[i] * scale + part;
#pragma unroll
                                for (int c = 0; c < DC; c++) {
                                        o[i][c][0] *= scale;
                                        o[i][c][1] *= scale;
                                }
                        }
                        G::put(sp, x);
                        G::acc(o, sp, sv);
                }
                float inv[RM];
#pragma unroll
                for (int i = 0; i < RM; i++) {
                        int t = m0 + G::ty() * RM + i;
#pragma unroll
                        for (int d = 8; d; d >>= 1)
                                sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], d);
                        inv[i] = sum[i] > 0.f ? 1.f / sum[i] : 0.f;
                        if (lse && G::tx() == 0 && t < hd.T)
                                lse[(long)hd.bh * hd.T + t] = sum[i] > 0.f ? top[i] + logf(sum[i]) : -INFINITY;
                }
                G::out(o, inv, m0, hd.T, b * hd.T, h * Att::D, tail);
                __syncthreads();
        }
};

/* ---- the task ------------------------------------------------------------- */

template <bool FIRST, class A, class B> struct AttPick { typedef A Type; };
template <class A, class B> struct AttPick<false, A, B> { typedef B Type; };

template <class E, class Att, class Tile>
struct AttForward {
        typedef typename AttPick<AttPath<E, Att>::MMA, AttForwardMma<E, Att, Tile>,
                                 AttForwardSimt<E, Att, Tile>>::Type Impl;
};

/* Shared memory of attention_task; the generator asserts it equals the table's. */
template <class E, class Att, class Tile>
__host__ __device__ constexpr int attention_smem() { return AttForward<E, Att, Tile>::Impl::SMEM; }

template <class E, class Att, class Tile, class Tail>
TGC_DEV void attention_task(const AttIn<E, Att> &in, float *lse, int B, int T, const Rt *rt, int tile, char *smem,
                            Tail tail)
{
        static_assert(Att::H % Att::K == 0, "query heads are a multiple of kv heads");
        int bh, m;
        att_order<E, Att>(tile, B * Att::H, Att::H / Att::K, (T + Tile::BM - 1) / Tile::BM, T, Att::CAUSAL, bh, m);
        const int b = bh / Att::H, h = bh % Att::H;
        const AttHead<E, Att> hd(in, rt, b, h, T);
        AttForward<E, Att, Tile>::Impl::run(in, lse, hd, b, h, m * Tile::BM, smem, tail);
}

#endif
