/* attention.cuh: scaled dot-product attention forward; scores are never stored.
 *
 * Query t of sequence b stands at p = rt->pos[b] + t (Att::CACHED) or at t; there
 * are S = p's offset + T keys.  It attends key s if s < S and, as Att says,
 *      CAUSAL  s <= p        WINDOW > 0  s > p - WINDOW        MASK  mask(b,t,s) != 0
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
        static constexpr bool  CACHED = false;    /* k, v begin rt->pos[b] tokens before the queries */
        static constexpr float DROPOUT = 0.f;     /* of probabilities; element ((b*H+h)*T+t)*S + s   */
        static constexpr unsigned DROP_ID = 0;
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
};

template <int BM_, int BN_, int SUB_, int COLS_, int THREADS_>
struct AttTile {
        static constexpr int BM = BM_, BN = BN_, SUB = SUB_, COLS = COLS_, THREADS = THREADS_;
};

#endif
