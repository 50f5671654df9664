/* batch.h: many sequences over one session, decoded together, added and dropped at any time.
 *
 * A batch works on a session whose plan has a paged cache (compiled with --batch-size 2 or more).
 * Sequences may be of any length, up to the context; they are added and dropped between steps.
 * schedule.h decides which of them a step serves; pages.h records who owns which page.  Sequences
 * with the same beginning share its pages.
 *
 *      batch_open(&b, session, NULL, &e);
 *      batch_add(b, ids, n, &how, &seq, &e);           as often as wanted, at any time
 *      while (batch_left(b) && !batch_step(b, out, &n, &e))
 *              for (i < n) ... out[i].seq says out[i].token
 *      batch_close(b);
 *
 * On a GPU a step's tokens come one or two steps later, so that the device never waits for the
 * host.  A sequence with a mask (Sampling.mask, which is told the sequence's number) gets its
 * tokens at once.  One thread at a time.
 *
 * What fails for one sequence (its logits are not finite, its mask allows nothing) ends that one:
 * the step returns the error, and yet has tokens, of which the sequence's is -1 with BATCH_FAILED.
 * After any other failure (the device, memory) every call but batch_close returns that error. */
#ifndef TGC_BATCH_H
#define TGC_BATCH_H

#include "../session/session.h"

typedef struct Batch Batch;

enum { BATCH_STOPS = 16 };

typedef struct BatchHow {
        Sampling sampling;
        int predict;                   /* most tokens; below 0: until the context is full */
        int stop[BATCH_STOPS], n_stop; /* tokens that end it; they are delivered, too */
        int adapter; /* of those that the plan has for sequences, from 1; 0: none */
} BatchHow;

typedef enum BatchEnd {
        BATCH_GOES_ON,
        BATCH_STOPPED,
        BATCH_ENOUGH,
        BATCH_FULL,
        BATCH_FAILED
} BatchEnd;

typedef struct BatchToken {
        int seq, token;
        BatchEnd end;  /* why it is the sequence's last one, which is dropped then */
        RtDrawn drawn; /* log-probabilities, where sampling asks for them */
} BatchToken;

typedef struct BatchOptions {
        int chunk;      /* most tokens of prompts in a step; 0: what the prefill programs take */
        int rows;       /* most sequences in the cache; 0: what the plan takes */
        bool no_prefix; /* equal beginnings are not shared */
        bool prompts_first; /* no sequence decodes while another one's prompt is read */
} BatchOptions;

/* o may be NULL.  The session serves nothing else meanwhile. */
int batch_open(Batch **b, Session *s, const BatchOptions *o, Err *e);
void batch_close(Batch *b); /* NULL is fine */

/* A sequence with n >= 1 tokens, which are copied.  TGC_USAGE: ids out of range, too long for the
 * context or for all pages, or the program lacks what `how` asks for. */
int batch_add(Batch *b, const int *ids, int n, const BatchHow *how, int *seq, Err *e);
/* A sequence that goes on from where `seq` is, with its pages, which are copied when written.
 * TGC_USAGE: there is no such sequence, or it has ended. */
int batch_fork(Batch *b, int seq, const BatchHow *how, int *child, Err *e);
/* It says no more.  TGC_USAGE: there is no such sequence, or it has ended already. */
int batch_drop(Batch *b, int seq, Err *e);

int batch_left(const Batch *b); /* sequences that have not ended */
/* One call of the device, or none where only results are outstanding.  out has room for
 * TGC_MAX_BATCH. */
int batch_step(Batch *b, BatchToken *out, int *n, Err *e);

typedef struct BatchStats {
        uint64_t steps, decoded, prefilled, from_prefix; /* tokens, but steps */
        uint64_t mixed; /* steps that decoded and read prompts by one call */
        int pages, pages_free, most_used, set_aside; /* set_aside: times */
        int most_shared;   /* pages that there would have been more, were none shared */
        size_t page_bytes; /* of all layers together, or of those that look back farthest */
        /* the others' pool, where there is one (rt.h) */
        int narrow_pages, narrow_free, narrow_most_used;
        size_t narrow_page_bytes;
} BatchStats;
BatchStats batch_stats(const Batch *b);

#endif
