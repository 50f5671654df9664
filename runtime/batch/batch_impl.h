/* batch_impl.h: private to runtime/batch: the state of a batch and of its sequences. */
#ifndef TGC_BATCH_IMPL_H
#define TGC_BATCH_IMPL_H

#include "../session/session_impl.h"
#include "batch.h"
#include "pages.h"
#include "schedule.h"

_Static_assert(SCHED_POOLS == TGC_POOLS, "as many pools");

typedef struct Seq {
        int id;
        BatchHow how;
        int *ids, n_ids, cap_ids; /* prompt and what was said; room for the context */
        int n_prompt;
        bool started;
        bool failed;   /* its next token is none: nothing may come next */
        bool away;     /* its pages are in `aside`, in the order of move() */
        int pos;       /* tokens in the cache once the calls that are queued have run */
        int under_way; /* tokens that queued calls say for it */
        /* of each pool: pages [gone, n_page) of its positions, in order */
        int *page[TGC_POOLS], gone[TGC_POOLS], n_page;
        int slot, row; /* -1: none */
        int drawn;     /* tokens that its own random numbers have drawn */
        float mu;      /* of mirostat, once something was said */
        void *aside;   /* pages of all caches, one after the other */
} Seq;

enum { BATCH_MOST_AHEAD = 2, BATCH_CALLS = BATCH_MOST_AHEAD + 1 };

/* A decoding call that is queued: who its rows are, by number, since they may end meanwhile. */
typedef struct Call {
        int id[TGC_MAX_BATCH], n, drawn; /* drawn: where the device puts what it says */
} Call;

struct Batch {
        Session *s;
        BatchOptions o;
        /* In the second pool a page is named by that of the first one which holds the same
         * tokens. */
        Pages *pages[TGC_POOLS];
        int n_pools;
        Seq **seq; /* in order of arrival */
        int n_seq, cap_seq, next_id;
        int rows, ahead;
        char *slot_used; /* (rows) */
        SampleMemory memory;
        /* The rows of the last decoding call, and where their next tokens are: in the ids of that
         * program (live), or in `next` on the device. */
        Seq *row[TGC_MAX_BATCH];
        int n_row;
        const Prog *live;
        const Prog *mixed; /* decodes rows and digests prompts; NULL: the plan has none */
        int *next;
        bool rt_stale; /* rows, slots or pages are others than the device's Rt says */
        Call call[BATCH_CALLS];
        int first_call, n_call, n_drawn;
        size_t page_bytes[TGC_POOLS]; /* of all caches of the pool together */
        BatchToken *ready;            /* what was said and not handed out yet */
        int n_ready, cap_ready;
        /* to be told: of a sequence, which has ended; of the batch, in every call from now on */
        Err seq_error, broken;
        BatchStats stats;
        SchedSeq *in; /* (cap_seq): scratch of a step */
        SchedDo *out;
        Seq **who;
};

/* ---- batch.c ---- */

int batch_settle(Batch *b, Err *e);          /* the tokens come next in `next`, whatever runs now */
int seq_leave_row(Batch *b, Seq *q, Err *e); /* the last row takes its place */
/* Its last token is the host's: of the prompt, or because nothing is under way. */
int seq_join_row(Batch *b, Seq *q, Err *e);
int batch_read_call(Batch *b, Err *e);   /* what the oldest call said */
int batch_drain(Batch *b, Err *e);       /* what all calls said */
int batch_whole(const Batch *b, Err *e); /* or the failure after which nothing is to be done */
/* An error of one sequence is kept for the end of the step; the first one counts. */
void batch_keep_error(Batch *b, const Err *why);

/* ---- batch_pages.c ---- */

/* Pages for positions below pos; false: there are none left. */
bool seq_grow(Batch *b, Seq *q, int pos);
bool seq_regrow(Batch *b, Seq *q);        /* as many as it had when it was set aside */
void seq_release(Batch *b, Seq *q);       /* all its pages, and its slot */
void seq_trim(Batch *b, Seq *q);          /* pages before its windows */
int seq_upload(Batch *b, Seq *q, Err *e); /* its row of the table */
int seq_leave(Batch *b, Seq *q, Err *e);  /* pages to the host, and its slot is free */
/* `to` gets what `from` has: its full pages are shared, the last is copied; without a free page it
 * is set aside. */
int seq_fork_pages(Batch *b, const Seq *from, Seq *to, Err *e);
int seq_return(Batch *b, Seq *q, Err *e); /* and back; it has pages and a slot */
void seq_find_prefix(Batch *b, Seq *q);   /* pages of others that begin as it does */
void seq_name_pages(Batch *b, Seq *q);    /* so that others find its own */

#endif
