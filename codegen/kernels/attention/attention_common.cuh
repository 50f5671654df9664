/* attention_common.cuh: what all attention kernels share: the problem (Att, AttIn), which keys a
 * query attends, scores, the order of tiles, and storing results. */
#ifndef TGC_ATTENTION_COMMON_CUH
#define TGC_ATTENTION_COMMON_CUH

#include "attention_fp8.cuh"
#include "ptx.cuh"

#ifndef TGC_TF32
#define TGC_TF32 0 /* 1: float32 products are one product of tf32 each */
#endif

/* Element strides between batches, tokens and heads; D is contiguous. */
struct Strides {
        long b, t, h;
};

/* Defaults of a problem.  The generator derives from it and adds D, H, K and SCALE (> 0). */
struct AttBase {
        static constexpr bool CAUSAL = true;
        static constexpr int WINDOW = 0;      /* 0: none */
        static constexpr float SOFTCAP = 0.f; /* 0: none */
        static constexpr bool ALIBI = false;
        static constexpr bool MASK = false; /* in.mask is read */
        /* in.documents is read; CACHED is false */
        static constexpr bool DOCUMENTS = false;
        /* k and v hold rt->pos[b] tokens before the queries */
        static constexpr bool CACHED = false;
        /* CACHED: k and v are paged, (pages, PAGE, K, D); rt->pages has a row of page numbers per
         * sequence.  0: contiguous */
        static constexpr int PAGE = 0;
        static constexpr int POOL = 0; /* pages in a row of rt->pages */
        /* CACHED: k and v are 8-bit (attention_fp8.cuh); strides are in bytes */
        static constexpr bool FP8 = false;
        /* CACHED: q holds the tokens of rt->B sequences back to back; rt->start has their
         * offsets */
        static constexpr bool RAGGED = false;
        /* a mixed call: its first rt->sampled sequences decode, one token each.  RAGGED: this
         * kernel does the other sequences; else it does the decoding ones */
        static constexpr bool MIXED = false;
        /* a call may have fewer than T tokens; the memory behind them is undefined */
        static constexpr bool COUNTED = false;
        /* dropout of probabilities; the random number's index is ((b*H+h)*T+t)*S + s */
        static constexpr float DROPOUT = 0.f;
        static constexpr unsigned DROP_ID = 0; /* plus in.drop_id */
        /* every pointer and stride is a multiple of VEC elements (8, 4, 2 or 1); pointers are
         * 16-byte aligned if VEC is 8, or E is float and VEC is 4 */
        static constexpr int VEC = 8;
        typedef float Mask; /* or int */
};

/* Storage of keys and values: element type and the address of a row. */
template <class E, bool FP8>
struct AttStored {
        typedef E Element;
        typedef const E *Row;
};
template <class E>
struct AttStored<E, true> {
        typedef unsigned char Element;
        typedef Fp8Row Row;
};

template <class E, class Att>
struct AttIn {
        typedef typename AttStored<E, Att::FP8>::Element Stored;
        const E *q;          /* (B,T,H,D) */
        const Stored *k, *v; /* (B,S,K,D) (B,S,K,D) */
        Strides sq, sk, sv;
        const typename Att::Mask *mask; /* element b*mb + t*mt + s*ms; strides 0 broadcast */
        long mb, mt, ms;
        const float *slopes; /* (H) ALiBi */
        unsigned drop_id;    /* of dropout; an argument, so that layers share a kernel */
        /* (B,T,2): first and end token of each token's document; 0 <= begin <= t < end <= T */
        const int *documents;
};

template <int BM_, int BN_, int SUB_, int COLS_, int THREADS_>
struct AttTile {
        static constexpr int BM = BM_, BN = BN_, SUB = SUB_, COLS = COLS_, THREADS = THREADS_;
};

#define ATT_LOG2E 1.4426950408889634f
#define ATT_LN2 0.6931471805599453f

/* Keys or values of one head of one sequence; at(s) is key s. */
template <class E, class Att>
struct AttKeys {
        typedef typename AttStored<E, Att::FP8>::Element Stored;
        typedef typename AttStored<E, Att::FP8>::Row Row;
        Row base;
        long step;
        const int *pages; /* the sequence's page numbers; Att::PAGE only */

        static __device__ __forceinline__ Row row_at(const Stored *p, int hk)
        {
                if constexpr (Att::FP8) /* exponents are stored behind the codes of all heads */
                        return { p, Att::K * Att::D - hk * (Att::D - 1) };
                else
                        return p;
        }
        __device__ __forceinline__ AttKeys(const Stored *p, const Strides &s, const Rt *rt, int b,
                                           int hk)
            : base(row_at(p + (Att::PAGE ? 0 : b * s.b) + hk * s.h, hk)), step(s.t),
              pages(Att::PAGE ? rt->pages[Att::POOL] + (long)rt->slot[b] * rt->slot_pages : nullptr)
        {
        }
        /* Row number of key s; with pages, in the whole pool. */
        __device__ __forceinline__ long row(int s) const
        {
                if (!Att::PAGE)
                        return s;
                constexpr int PAGE = Att::PAGE ? Att::PAGE : 1;
                return (long)pages[s / PAGE] * PAGE + s % PAGE;
        }
        __device__ __forceinline__ Row at(int s) const { return base + row(s) * step; }
        /* near(s0) + s * step is at(s) for keys s of s0's page. */
        __device__ __forceinline__ Row near(int s0) const
        {
                return Att::PAGE ? base + (row(s0) - s0) * step : base;
        }
        /* V elements of a key as floats. */
        template <int V>
        __device__ __forceinline__ void read(float (&u)[V], int s, int col) const
        {
                if constexpr (Att::FP8)
                        fp8_read<false>(u, at(s), col);
                else
                        load(u, at(s) + col);
        }
};

/* A tensor map; head h's columns begin at col + h*head. */
struct AttMap {
        const void *map;
        int col, head;
};

/* Prefetches column d of a row into L2. */
template <class E>
TGC_DEV void att_prefetch(const E *row, int d)
{
        prefetch_l2(row + d);
}
TGC_DEV void att_prefetch(Fp8Row row, int d)
{
        prefetch_l2(row.p + d);
        if (d == 0)
                prefetch_l2(row.p + row.aside);
}

/* RAGGED: the sequence that `tile` belongs to, and the tile's number within it.  Sequences take
 * `each` tiles per BM tokens, one sequence after the other.  b is rt->B behind the last.  MIXED as
 * in AttBase. */
struct AttSequence {
        int b, start, T, tile;
};
template <int BM, bool MIXED>
TGC_DEV AttSequence att_sequence(const Rt *rt, int each, int tile)
{
        const int B = rt->B, first = MIXED ? rt->sampled : 0;
        int start = first;
#pragma unroll 4
        for (int b = first; b < B; b++) {
                const int end = rt->start[b + 1], n = (end - start + BM - 1) / BM * each;
                if (tile < n)
                        return { b, start, end - start, tile };
                tile -= n;
                start = end;
        }
        return { B, 0, 0, 0 };
}

/* Which implementation serves a problem, and how a row lies in shared memory. */
template <class E, class Att>
struct AttPath {
        static constexpr bool TF32 = sizeof(E) == 4 && Att::VEC == 4 && Att::D % 4 == 0 &&
                                     Att::D <= 128;
        static constexpr bool MMA = TF32 || (sizeof(E) == 2 && Att::VEC == 8 && Att::D % 8 == 0);
        static constexpr int CHUNK = 16 / (int)sizeof(E);                 /* elements per 16-byte
                                                                           * copy */
        static constexpr int KT = (Att::D + 2 * CHUNK - 1) / (2 * CHUNK); /* k steps of a product
                                                                           * over D */
        static constexpr int PAD = TF32 ? 32 : 16;
        static constexpr int DP = (Att::D + PAD - 1) / PAD * PAD; /* D, padded */
        /* register budget of accumulators plus resident A fragments; above it, fragments are read
         * again at each use */
        static constexpr int KEEP = TF32 && !TGC_TF32 ? 0 : 160;
        static constexpr int LD = MMA ? DP + CHUNK                  /* elements per row */
                                      : ((Att::D + 3) / 4 | 1) * 4; /* floats */
};

/* Begin and end of the document of token t (clamped to the last token); documents (T,2) of one
 * sequence. */
TGC_DEV int att_begin(const int *documents, int t, int T)
{
        return documents[2 * (t < T ? t : T - 1)];
}
TGC_DEV int att_end(const int *documents, int t, int T)
{
        return documents[2 * (t < T ? t : T - 1) + 1];
}

/* One query head of one sequence: which keys its queries attend, and the score. */
template <class E, class Att>
struct AttHead {
        const typename Att::Mask *mask;
        long mt, ms;
        const Rt *rt;
        int T, pos, S, bh;
        int row0; /* row of query 0 in the results */
        float slope;
        unsigned drop_id;
        const int *documents;

        static constexpr bool SHAPED = Att::SOFTCAP > 0.f || Att::ALIBI;
        /* exp(score) = 2^(BASE2 x), where x is score()'s result: q.k itself, or the full score if
         * it is SHAPED */
        static constexpr float BASE2 = SHAPED ? ATT_LOG2E : Att::SCALE * ATT_LOG2E;

        __device__ AttHead(const AttIn<E, Att> &in, const Rt *rt_, int b, int h, int T_)
            : AttHead(in, rt_, b, h, T_, Att::CACHED ? rt_->pos[b] : 0)
        {
        }
        __device__ AttHead(const AttIn<E, Att> &in, const Rt *rt_, int b, int h, int T_, int pos_)
            : mask(Att::MASK ? in.mask + b * in.mb : 0), mt(in.mt), ms(in.ms), rt(rt_), T(T_),
              pos(pos_), S(pos + T_), bh(b * Att::H + h), row0(b * T_),
              slope(Att::ALIBI ? in.slopes[h] : 0.f), drop_id(in.drop_id),
              documents(Att::DOCUMENTS ? in.documents + (long)b * T_ * 2 : 0)
        {
        }

        /* RAGGED. */
        __device__ AttHead(const AttIn<E, Att> &in, const Rt *rt_, const AttSequence &q, int h)
            : AttHead(in, rt_, q.b, h, q.T)
        {
                row0 = q.start;
        }

        __device__ const E *queries(const AttIn<E, Att> &in, int b, int h) const
        {
                return in.q + (Att::RAGGED ? row0 * in.sq.t : b * in.sq.b) + h * in.sq.h;
        }
        __device__ int begin(int t) const { return att_begin(documents, t, T); }
        __device__ int end(int t) const { return att_end(documents, t, T); }

        /* Ranges: keys that some query of [t0, t1) may attend, queries that may attend some key of
         * [s0, s1).  from: begin(t0), if the caller has it. */
        __device__ int first_key(int t0, int from) const
        {
                int s = pos + t0 - Att::WINDOW + 1;
                s = Att::WINDOW > 0 && s > 0 ? s : 0;
                return Att::DOCUMENTS && from > s ? from : s;
        }
        __device__ int first_key(int t0) const
        {
                return first_key(t0, Att::DOCUMENTS ? begin(t0) : 0);
        }
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

        /* full: all pairs of queries [t0, t1) and keys [s0, s1) attend (one_full: leaving
         * documents aside); empty: no pair does. */
        __device__ bool full(int t0, int t1, int s0, int s1) const
        {
                return one_full(t0, t1, s0, s1) &&
                       (!Att::DOCUMENTS || (s0 >= begin(t1 - 1) && s1 <= end(t0)));
        }
        __device__ bool one_full(int t0, int t1, int s0, int s1) const
        {
                return !Att::MASK && s1 <= S && t1 <= T && (!Att::CAUSAL || s1 - 1 <= pos + t0) &&
                       (Att::WINDOW == 0 || s0 > pos + t1 - 1 - Att::WINDOW);
        }
        __device__ bool empty(int t0, int t1, int s0, int s1) const
        {
                return s0 >= S || t0 >= T || (Att::CAUSAL && s0 > pos + t1 - 1) ||
                       (Att::WINDOW > 0 && s1 - 1 <= pos + t0 - Att::WINDOW) ||
                       (Att::DOCUMENTS && (s1 <= begin(t0) || s0 >= end(t1 - 1)));
        }
        __device__ bool attends(int t, int s) const
        {
                return s < S && t < T && (!Att::CAUSAL || s <= pos + t) &&
                       (Att::WINDOW == 0 || s > pos + t - Att::WINDOW) &&
                       (!Att::DOCUMENTS || (s >= begin(t) && s < end(t))) &&
                       (!Att::MASK || mask[t * mt + s * ms] != (typename Att::Mask)0);
        }

        /* x of BASE2; derivative: of the score with respect to SCALE q.k. */
        __device__ float score(float dot, int t, int s, float &derivative) const
        {
                float x = dot;
                derivative = 1.f;
                if (SHAPED)
                        x *= Att::SCALE;
                if (Att::SOFTCAP > 0.f) {
                        constexpr float c = Att::SOFTCAP > 0.f ? Att::SOFTCAP : 1.f;
                        float y = sizeof(E) == 4
                                          ? tanhf(x * (1.f / c))
                                          : 1.f - 2.f * fast_rcp(1.f +
                                                                 fast_exp2(x *
                                                                           (2.f * ATT_LOG2E / c)));
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

/* Tile -> (head of the batch, row block).  Heads go in groups whose keys and values fit in L2
 * together.  Within a group the longest blocks start first, so that short ones fill the gaps at
 * the end. */
template <class E, class Att>
TGC_DEV void att_order(int tile, int heads, int per_kv, int blocks, int T, bool last_first, int &bh,
                       int &m)
{
        int group = (int)((16 << 20) / ((long)T * Att::D * 2 * (int)sizeof(E)) + 1) * per_kv;
        group = group < heads ? group : heads;
        int g = tile / (group * blocks), i = tile % (group * blocks);
        int n = heads - g * group < group ? heads - g * group : group;
        bh = g * group + i % n;
        m = last_first ? blocks - 1 - i / n : i / n;
}

/* Up to 4 neighbours to an epilogue of any width. */
template <class Epilogue>
TGC_DEV void att_put4(Epilogue &epilogue, int row, int col, float a, float b, float c, float d)
{
        if constexpr (Epilogue::MAXV >= 4) {
                float v[4] = { a, b, c, d };
                epilogue(row, col, v);
        } else if constexpr (Epilogue::MAXV == 2) {
                float v[2] = { a, b }, w[2] = { c, d };
                epilogue(row, col, v);
                epilogue(row, col + 2, w);
        } else {
                float v[1] = { a }, w[1] = { b }, x[1] = { c }, y[1] = { d };
                epilogue(row, col, v);
                epilogue(row, col + 1, w);
                epilogue(row, col + 2, x);
                epilogue(row, col + 3, y);
        }
}

/* Columns d and, if it exists, d + 1 (d even). */
template <int D, class Epilogue>
TGC_DEV void att_put2(Epilogue &epilogue, int row, int col_base, int d, const float (&o)[2])
{
        if constexpr (Epilogue::MAXV >= 2 && D % 2 == 0) {
                float v[2] = { o[0], o[1] };
                epilogue(row, col_base + d, v);
        } else {
                float v[1] = { o[0] }, w[1] = { o[1] };
                epilogue(row, col_base + d, v);
                if (d + 1 < D)
                        epilogue(row, col_base + d + 1, w);
        }
}

/* 2^x: accurate for float, the hardware's approximation for 16-bit types. */
template <class E>
TGC_DEV float att_exp2(float x)
{
        return sizeof(E) == 4 ? exp2f(x) : fast_exp2(x);
}

/* How lanes share a row of D elements: LANES lanes (a power of two), V neighbours of up to 16
 * bytes each, C times. */
template <class E, class Att>
struct AttLanes {
        static constexpr int MOST = 16 / (int)sizeof(E) < Att::VEC ? 16 / (int)sizeof(E) : Att::VEC;
        static constexpr int V = Att::D % 8 == 0 || MOST == 1   ? MOST
                                 : Att::D % 4 == 0 && MOST >= 4 ? 4
                                 : Att::D % 2 == 0              ? 2
                                                                : 1;
        static constexpr int N = Att::D / V;
        static constexpr int LANES = N > 16  ? 32
                                     : N > 8 ? 16
                                     : N > 4 ? 8
                                     : N > 2 ? 4
                                     : N > 1 ? 2
                                             : 1;
        static constexpr int C = (N + LANES - 1) / LANES;

        static __device__ __forceinline__ int column(int lane, int i)
        {
                return (i / V * LANES + lane) * V + i % V;
        }

        /* Loads this lane's elements of the row at p, unconverted; those past D are not touched.
         * PAST_L1: bypass L1, as neighbouring rows may still be written. */
        typedef typename Chunk<V *(int)sizeof(E)>::T Bytes;
        template <bool PAST_L1>
        static __device__ __forceinline__ void get(Bytes (&x)[C], const E *p, int lane)
        {
#pragma unroll
                for (int c = 0; c < C; c++)
                        if ((c * LANES + lane) * V < Att::D) {
                                const E *from = p + (c * LANES + lane) * V;
                                TGC_ACCESS(from, V * sizeof(E));
                                x[c] = PAST_L1 ? load_l2((const Bytes *)from)
                                               : *(const Bytes *)from;
                        }
        }
        template <bool PAST_L1>
        static __device__ __forceinline__ void get(Bytes (&x)[C], Fp8Row p, int lane)
        {
#pragma unroll
                for (int c = 0; c < C; c++) {
                        const int col = (c * LANES + lane) * V;
                        if (col >= Att::D)
                                continue;
                        if constexpr (V * sizeof(E) == 16) {
                                x[c] = fp8_get16<E, PAST_L1>(p, col);
                        } else {
                                float u[V];
                                fp8_read<PAST_L1>(u, p, col);
#pragma unroll
                                for (int j = 0; j < V; j++)
                                        from_float((E *)&x[c] + j, u[j]);
                        }
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

#endif
