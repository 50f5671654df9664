/* rt.h: the values a kernel reads at run time.
 *
 * One Rt lies in device memory and every emitted kernel gets its address as
 * first argument.  Shapes of the model are constants in the kernel's source;
 * what changes between two calls of one program is here, so that a captured
 * CUDA graph is replayed unchanged.  The runtime and the emitted code (CUDA, C)
 * include this same file: it is the ABI between them, plain C, fixed size. */
#ifndef TGC_RT_H
#define TGC_RT_H

#define TGC_MAX_BATCH 256
#define TGC_PAGE 64 /* tokens of a page of a paged cache */
/* Pools of pages: one of the layers that look back farthest, one of those with narrower windows,
 * which keep fewer pages of a sequence.  A plan may have the first alone. */
#define TGC_POOLS 2
/* Tiles of keys may begin up to so many tokens before the first that a query looks at; a sequence
 * whose layers look back `window` tokens has at least so many pages. */
#define TGC_MARGIN 256
#define TGC_KEPT(window) (((window) + 8 * TGC_PAGE + TGC_PAGE - 1) / TGC_PAGE)

/* Of a token of a ragged call: where it stands in its sequence, and in the cache. */
typedef struct RtToken {
        int position, place[TGC_POOLS];
} RtToken;

/* ---- sampling ----
 *
 * A sequence has a slot: a block of RT_SLOT_WORDS words in device memory with all that the sampler
 * knows of it.  Row b of a call belongs to slot rt->slot[b].  A slot of zeros is greedy.  Its
 * parts, one after the other (RT_SLOT_*): RtSample; int history[cap], the token at position p in p
 * % cap; RtBias bias[RT_BIASES]; int breaker[RT_BREAKERS]; bits over the vocabulary, one a token,
 * of DRY's breakers and of the tokens that may come next.  */

/* Samplers by the names and in the order of llama.cpp's default chain. */
enum {
        SAMPLER_END,
        SAMPLER_PENALTIES,
        SAMPLER_DRY,
        SAMPLER_TOP_N_SIGMA,
        SAMPLER_TOP_K,
        SAMPLER_TYP_P,
        SAMPLER_TOP_P,
        SAMPLER_MIN_P,
        SAMPLER_XTC,
        SAMPLER_TEMPERATURE,
        N_SAMPLERS
};

/* What the sampler does for a sequence, beyond taking the largest logit. */
enum {
        SAMPLE_DRAW = 1,     /* top_k, top_p, min_p, temp > 0, in this order */
        SAMPLE_CHAIN = 2,    /* `order`, then draw */
        SAMPLE_MASK = 4,     /* only tokens whose bit is set */
        SAMPLE_BIAS = 8,     /* the biases */
        SAMPLE_LOGPROBS = 16 /* log-probabilities, of the logits as they come */
};

enum {
        RT_HISTORY = 8192,  /* most tokens that penalties look back */
        RT_BIASES = 512,    /* most biases of a sequence */
        RT_BREAKERS = 1024, /* words for DRY's breakers of several tokens */
        RT_LOGPROBS = 20,   /* most alternatives to a token */
        RT_ORDER = 16,      /* most samplers in a chain */
        RT_DRAWN = 16       /* calls whose tokens are kept for the host */
};

typedef struct RtSample {
        unsigned seed[2]; /* Philox key of this sequence */
        int drawn;        /* tokens drawn with it: the counter */
        int n_hist;       /* tokens in its history, prompt included */
        int what;         /* SAMPLE_* */
        int top_k;
        float temp, top_p, min_p;
        float dynatemp_range, dynatemp_exponent;
        float typical_p, top_n_sigma;
        float xtc_probability, xtc_threshold;
        int repeat_last_n;
        float repeat_penalty, presence_penalty, frequency_penalty;
        float dry_multiplier, dry_base;
        int dry_allowed_length, dry_last_n;
        int n_breaker; /* words of breaker: first token, number of others, the others; and again */
        int n_bias;
        int n_logprobs; /* alternatives */
        int mirostat;   /* 2: mirostat 2 in place of the chain */
        float mirostat_tau, mirostat_eta, mirostat_mu;
        unsigned char order[RT_ORDER]; /* SAMPLER_*; SAMPLER_END ends */
} RtSample;

typedef struct RtBias {
        int token;
        float bias;
} RtBias;

/* What a call says of a row: element (n_out % RT_DRAWN, b) of an array of RT_DRAWN x slots. */
typedef struct RtDrawn {
        int token;             /* -1: the logits were not finite */
        float mirostat_mu;     /* after it */
        float logprob;         /* natural logarithms, of the softmax of the raw logits */
        int best[RT_LOGPROBS]; /* the likeliest, the lower id first on a tie; -1: no more */
        float best_logprob[RT_LOGPROBS];
} RtDrawn;

#define RT_SAMPLE_WORDS ((int)(sizeof(RtSample) / 4))
#define RT_MASK_WORDS(V) (((V) + 31) / 32)
#define RT_HISTORY_OF(ctx) ((ctx) < RT_HISTORY ? (ctx) : RT_HISTORY)
/* offsets in words, of a vocabulary V and a history of cap tokens */
#define RT_SLOT_HISTORY RT_SAMPLE_WORDS
#define RT_SLOT_BIAS(cap) (RT_SLOT_HISTORY + (cap))
#define RT_SLOT_BREAKER(cap) (RT_SLOT_BIAS(cap) + 2 * RT_BIASES)
#define RT_SLOT_BREAK_MASK(cap) (RT_SLOT_BREAKER(cap) + RT_BREAKERS)
#define RT_SLOT_MASK(V, cap) (RT_SLOT_BREAK_MASK(cap) + RT_MASK_WORDS(V))
#define RT_SLOT_WORDS(V, cap) ((RT_SLOT_MASK(V, cap) + RT_MASK_WORDS(V) + 31) / 32 * 32)

typedef struct Rt {
        /* Sequences, and tokens of each, in this call.  A ragged call (programs of a paged cache
         * that take several tokens of a sequence) has T tokens in all: those of sequence b are
         * start[b] .. start[b + 1] - 1. */
        int B, T;
        int pos[TGC_MAX_BATCH]; /* tokens cached before this call, per sequence; S=pos+T */
        int start[TGC_MAX_BATCH + 1];
        /* The slot of each row's sequence (one from the number of slots on, or below 0: it is
         * nobody's, and nothing is sampled).  In a paged cache a slot has a row in each pool's
         * table of pages; and the place in the pool (page * TGC_PAGE + offset) of its one token in
         * this call */
        int slot[TGC_MAX_BATCH], place[TGC_POOLS][TGC_MAX_BATCH];
        int n_out[TGC_MAX_BATCH];    /* calls that sampled a row since the host wrote this */
        int slot_pages;              /* entries of a row of the tables */
        const int *pages[TGC_POOLS]; /* (slots, slot_pages): numbers of pages; NULL: no such pool */
        const RtToken *token;        /* of a ragged call, T of them */
        int step;                    /* optimiser step, from 0                                */
        int micro, n_micro;          /* micro-step within the step; 0 overwrites gradients    */
        unsigned seed[2];            /* Philox key of dropout */
        float share;                 /* weight of this micro-step's loss (its share of tokens)*/
        float inv_tokens;            /* 1 / number of targets that count in this call         */
        float lr, beta1, beta2, eps, weight_decay;
        float clip;         /* largest gradient norm; 0: no clipping                 */
        float bias1, bias2; /* 1 - beta^(step+1), computed in double by the host     */
        int sms;            /* the GPU's multiprocessors; 0: there are none, or it is not known */
        float unscale;      /* gradients times this are those of the loss: 1 / its scale */
        float most_norm;    /* a step of a larger gradient norm changes nothing; 0: any may */
        float ema_weight;   /* of the parameters in their average, 1 - its decay; 0: it stays */
        /* Rows of a decoding call that are sampled, its first ones: B; of a call that reads prompts
         * as well those of the sequences that decode. */
        int sampled;
        int reserved[6];
} Rt;

#endif
