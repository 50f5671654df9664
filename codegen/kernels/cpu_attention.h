/* cpu_attention.h: softmax(scale q k' + ...) v, forward and backward; scores never
 * stand in memory.
 *
 * Query t of sequence b is at p = pos[b] + t; there are S = pos[b] + T keys, key s
 * at s.  Key s is allowed iff (causal: s <= p) and (window > 0: s > p - window) and
 * (mask: mask != 0).  In this order: score = scale * q.k; softcap c > 0:
 * c * tanh(score / c); slopes: + slope[h] * (s - p).  A row with nothing allowed
 * gives 0 and lse = -inf.  Dropout zeroes probabilities after the softmax; element
 * index ((b*H + h)*T + t)*S + s (training: pos = 0).  Query head h reads key head
 * h / (H/K).
 *
 * Online softmax over key blocks, in order: same bits whatever the threads. */
#ifndef TGC_CPU_ATTENTION_H
#define TGC_CPU_ATTENTION_H

#include "tgc.h"

/* A (b, t, h, d) tensor: strides in elements, d contiguous.  For k and v t runs over S, h over K. */
typedef struct Heads { const void *p; int ty; long b, t, h; } Heads;

typedef struct Attention {
        int          H, K, D, DV;       /* query heads, key heads, width of q and k, width of v (0: D) */
        Heads        q, k, v;
        float        scale, softcap;    /* softcap 0: none */
        int          causal;
        int          window;            /* 0: none */
        const float *slopes;            /* ALiBi, (H), or NULL */
        const uint8_t *mask;            /* booleans, or NULL */
        long         mask_b, mask_h, mask_t;    /* its strides; along s: 1 */
        float        drop;              /* probability, 0: none */
        unsigned     drop_id;
        float       *lse;               /* (B,H,T), out (backward: in), or NULL */
} Attention;

/* Forward.  tail(row = b*T + t, col = h*DV + d, ...). */
TGC_INLINE long attention_tiles(const Attention *a, const Rt *rt);
TGC_INLINE void attention_task(const Attention *a, const Rt *rt, long tile, const void *args, TailFn *tail);

/* Backward, two tasks over different tiles, each recomputing the scores from a->lse
 * (which must be there).  out, dout: forward's result and its gradient,
 * (b, t, h, d).  dq: tail(row = b*T + t, col = h*D + d); dk, dv: tails(row = b*S + s,
 * col = k*D + d resp. k*DV + d), where S = pos[b] + T is the same for all b.  D is
 * at most ATTENTION_D_MAX. */
enum { ATTENTION_D_MAX = 256 };
TGC_INLINE long attention_grad_q_tiles(const Attention *a, const Rt *rt);
TGC_INLINE void attention_grad_q_task(const Attention *a, Heads out, Heads dout, const Rt *rt, long tile,
                                      const void *args, TailFn *tail);
TGC_INLINE long attention_grad_kv_tiles(const Attention *a, const Rt *rt);
TGC_INLINE void attention_grad_kv_task(const Attention *a, Heads out, Heads dout, const Rt *rt, long tile,
                                       const void *args, TailFn *tail_k, TailFn *tail_v);

#endif
