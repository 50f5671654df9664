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

/* Of a token of a ragged call: where it stands in its sequence, and in the cache. */
typedef struct RtToken {
        int position, place;
} RtToken;

typedef struct Rt {
        /* Sequences, and tokens of each, in this call.  A ragged call (programs of a paged cache
         * that take several tokens of a sequence) has T tokens in all: those of sequence b are
         * start[b] .. start[b + 1] - 1. */
        int B, T;
        int pos[TGC_MAX_BATCH]; /* tokens cached before this call, per sequence; S=pos+T */
        int start[TGC_MAX_BATCH + 1];
        /* A paged cache: the slot of each sequence, which has a row in the table of pages, and the
         * place in the cache (page * TGC_PAGE + offset) of its one token in this call */
        int slot[TGC_MAX_BATCH], place[TGC_MAX_BATCH];
        int slot_pages;       /* entries of a row of the table */
        const int *pages;     /* (slots, slot_pages): numbers of pages */
        const RtToken *token; /* of a ragged call, T of them */
        int step;             /* optimiser step, from 0                                */
        int micro, n_micro;   /* micro-step within the step; 0 overwrites gradients    */
        unsigned seed[2];     /* Philox key: dropout, sampling                         */
        float share;          /* weight of this micro-step's loss (its share of tokens)*/
        float inv_tokens;     /* 1 / number of targets that count in this call         */
        float lr, beta1, beta2, eps, weight_decay;
        float clip;         /* largest gradient norm; 0: no clipping                 */
        float bias1, bias2; /* 1 - beta^(step+1), computed in double by the host     */
        float temp, top_p, min_p, repeat_penalty;
        int top_k, repeat_last_n;
        int n_out; /* tokens sampled so far (device side ring position)     */
        int sms;   /* the GPU's multiprocessors; 0: there are none, or it is not known */
        int reserved[10];
} Rt;

#endif
