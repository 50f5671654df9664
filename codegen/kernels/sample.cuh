/* sample.cuh: from logits to the next token, one sequence per tile.
 *
 *      sample_task<T, V, THREADS>(rt, logits, ld, hist, cap, next, tile, smem)
 *
 * logits: T (B, ld), of the last token of each sequence; overwritten.
 * hist: int (B, cap), the tokens so far: position p of sequence b is hist[b][p % cap]; the host puts
 * the prompt there.  next: int (B).  With S = rt->pos[b] + rt->T, the token chosen for position S
 * goes to next[b] and hist[b][S % cap]; then rt->pos[b] = S, and tile 0 adds 1 to rt->n_out.
 * A tile from rt->B on does nothing.
 *
 * Which token, exactly (the C back end does the same, in the order of llama.cpp's default chain):
 *  1. Penalty.  Each distinct token x[i] among the last min(repeat_last_n, S, cap) of hist: x > 0 ? x / p :
 *     x * p with p = repeat_penalty, rounded to T.  Skipped if p is 1 or the window is empty.
 *  2. temp <= 0: the largest x, lowest index on a tie.  Done.
 *  3. M = max x.  weight(d) = (u64)(expf(d) * 2^32), truncated; so anything 22.2 below M has weight 0.
 *     Sums of weights are integers and have no order.
 *  4. top_k in [1, V): t = the k-th largest x; keep x >= t (all of a tie).
 *  5. top_p < 1: Z = sum of weight(x - M) over what is kept; t = the largest value with
 *     sum of weight(x - M) over kept x >= t at least (u64)(top_p * (double)Z), and at least 1; keep x >= t.
 *  6. min_p > 0: keep x - M >= logf(min_p).
 *  7. w = weight((x - M) / temp) over what is kept, Z their sum, u = first word of Philox at counter
 *     {S, b, SAMPLE_ID, 0} with key rt->seed, r = floor(u * Z / 2^32): the first index, in rising
 *     order, at which the running sum of w exceeds r.
 * NaN counts as -inf.  If no weight is left (all -inf), token 0.
 *
 * tiles: B.  THREADS: 1024.  shared memory: SAMPLE_SMEM. */
#ifndef TGC_SAMPLE_CUH
#define TGC_SAMPLE_CUH

#include "tgc.cuh"

#define SAMPLE_ID 0x73616d70u
#define SAMPLE_LIST 4096                /* candidates held in shared memory */
#define SAMPLE_SMEM (1024 + 8 * SAMPLE_LIST)

template <class T, int V, int THREADS>
TGC_DEV void sample_task(Rt *rt, T *logits, int ld, int *hist, int cap, int *next, int tile, char *smem);

#endif
