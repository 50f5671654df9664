/* attention_decode_rows.cuh: which query rows a block of attention_decode.cuh has, and how two
 * partial online softmaxes merge. */
#ifndef TGC_ATTENTION_DECODE_ROWS_CUH
#define TGC_ATTENTION_DECODE_ROWS_CUH

#include "attention_common.cuh"

/* A block of THREADS threads has ROWS query rows.  A cache has SPLITS parts at most, of a multiple
 * of LEAST keys each (0: of what the block takes in one step). */
template <int ROWS_, int SPLITS_, int THREADS_, int LEAST_ = 0>
struct AttDecode {
        static constexpr int ROWS = ROWS_, SPLITS = SPLITS_, THREADS = THREADS_, LEAST = LEAST_;
};

/* Floats of one row's record: D sums (D rounded up to even), the maximum score, the sum of
 * weights. */
template <class Att>
__host__ __device__ constexpr int att_record()
{
        return (Att::D + 1) / 2 * 2 + 2;
}

/* Merges two online softmaxes, (top, sum, acc) += (top2, sum2, acc2): the factors that bring each
 * to the common maximum; both 0 if neither has seen a key. */
template <class E>
TGC_DEV void att_merge(float &top, float top2, float &f, float &f2)
{
        float t = fmaxf(top, top2), zero = t == -INFINITY ? 0.f : t;
        f = att_exp2<E>(top - zero);
        f2 = att_exp2<E>(top2 - zero);
        top = t;
}

/* A block's ROWS query rows. */
template <class Att, class Tile>
struct AttQueries {
        static constexpr int GROUP = Att::H / Att::K;
        int r0, hk, b; /* rows r0.. of kv head hk of sequence b */
        __device__ int t(int r) const { return (r0 + r) / GROUP; }
        __device__ int h(int r) const { return hk * GROUP + (r0 + r) % GROUP; }
};

#endif
