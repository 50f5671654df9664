/* attention_problem.cuh: what attention computes, and on which operands.
 *
 *      Att, derived from AttBase     the problem: sizes and masks, all constants
 *      AttIn                         operands: q, k and v in memory, and what masks read
 *      AttMap                        an operand by TMA
 *      AttPath                       which implementation serves a problem (attention.cuh)
 *      AttTile                       a tile of the portable implementations
 *
 * Letters: B sequences, T queries of each, S keys, H query heads, K key heads, D head width. */
#ifndef TGC_ATTENTION_PROBLEM_CUH
#define TGC_ATTENTION_PROBLEM_CUH

#include "attention_fp8.cuh"
#include "tgc.cuh"

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

/* q, k, v and what the masks of Att read. */
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

/* A tensor map; head h's columns begin at col + h*head. */
struct AttMap {
        const void *map;
        int col, head;
};

template <int BM_, int BN_, int SUB_, int COLS_, int THREADS_>
struct AttTile {
        static constexpr int BM = BM_, BN = BN_, SUB = SUB_, COLS = COLS_, THREADS = THREADS_;
};

/* Which implementation serves a problem, and how a row lies in shared memory. */
template <class E, class Att>
struct AttPath {
        static constexpr bool TF32 = sizeof(E) == 4 && Att::VEC == 4 && Att::D % 4 == 0 &&
                                     Att::D <= 128;
        static constexpr bool MMA = TF32 || (sizeof(E) == 2 && Att::VEC == 8 && Att::D % 8 == 0);
        /* elements per 16-byte copy; k steps of a product over D */
        static constexpr int CHUNK = 16 / (int)sizeof(E);
        static constexpr int KT = (Att::D + 2 * CHUNK - 1) / (2 * CHUNK);
        static constexpr int PAD = TF32 ? 32 : 16;
        static constexpr int DP = (Att::D + PAD - 1) / PAD * PAD; /* D, padded */
        /* register budget of accumulators plus resident A fragments; above it, fragments are read
         * again at each use */
        static constexpr int KEEP = TF32 && !TGC_TF32 ? 0 : 160;
        static constexpr int LD = MMA ? DP + CHUNK                  /* elements per row */
                                      : ((Att::D + 3) / 4 | 1) * 4; /* floats */
};

#endif
