/* attention_mask.cuh: AttHead, one query head of one sequence: which keys its queries attend, and
 * the score.
 *
 * Query t is at position pos + t, key s at s.  They attend if all of these hold, of those that Att
 * has: causal (s <= pos + t), window (s > pos + t - WINDOW), the same document, mask(t, s) not 0.
 * Score: SCALE q.k, then the soft cap, then ALiBi's slope times distance; dropout is of
 * probabilities. */
#ifndef TGC_ATTENTION_MASK_CUH
#define TGC_ATTENTION_MASK_CUH

#include "attention_order.cuh"
#include "attention_problem.cuh"
#include "attention_softmax.cuh"

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

#endif
