/* schedule.h: decides what the next call of a batch does.
 *
 * A pure function of the sequences' states and a budget: no device, no clock, no allocation.
 * Rules:
 *
 *   - Sequences take rows, tokens and pages in order of arrival.
 *   - Every sequence that decodes gets a row; prompts share the call's tokens, in chunks.
 *   - If pages run out, the newest sequence is swapped out (SCHED_AWAY).  It returns when there is
 *     room, before any new sequence begins.
 *
 * The oldest sequence is never swapped out, and one sequence's pages always fit in the pool
 * (whoever adds a sequence ensures that).  So the oldest ends, then the next, and none starves. */
#ifndef TGC_SCHEDULE_H
#define TGC_SCHEDULE_H

#include <stdbool.h>

enum {
        SCHED_POOLS = 2
}; /* of pages; what has one alone gives the second as many pages and no windows */

typedef enum SchedState {
        SCHED_WAITS,   /* it has no pages yet, or some; tokens of its prompt are to be digested */
        SCHED_DECODES, /* one token is pending */
        SCHED_AWAY     /* set aside; comes back as what it was */
} SchedState;

typedef struct SchedSeq {
        SchedState state;
        int pos;    /* tokens in the cache */
        int prompt; /* tokens that prefill digests before it decodes */
        /* Of each pool: pages it owns (of SCHED_AWAY: owned, before it was set aside); pages before
         * those, which no query looks at any more.  held + gone is the same in all pools. */
        int held[SCHED_POOLS], gone[SCHED_POOLS];
        bool started; /* it has been in a call */
} SchedSeq;

typedef struct SchedBudget {
        int rows;               /* most sequences of a call */
        int tokens;             /* most tokens of a prefill call; 0: none */
        int pages[SCHED_POOLS]; /* free */
        int each;               /* tokens of a page */
        int ahead; /* tokens beyond the next for which a decoding sequence's pages must be there */
        bool prompts_first; /* nobody decodes in a call that reads a prompt */
} SchedBudget;

typedef enum SchedAct {
        SCHED_NOTHING,
        SCHED_DECODE,
        SCHED_PREFILL,
        SCHED_LEAVE,
        SCHED_RETURN
} SchedAct;

/* Of sequence i: what happens to it.  Done in this order: all that leave, all that return, prefill,
 * decode.  A sequence that returns does nothing else in this call. */
typedef struct SchedDo {
        SchedAct act;
        int tokens; /* of SCHED_PREFILL; 0: it has none, and just begins */
        int take;   /* new pages it needs first of each pool; of SCHED_RETURN: as many as it held */
} SchedDo;

/* seq: n of them in order of arrival; out: one each. */
void schedule(const SchedSeq *seq, int n, const SchedBudget *budget, SchedDo *out);

/* Pages for positions 0 .. pos - 1. */
static inline int sched_pages(int pos, int each) { return (pos + each - 1) / each; }

#endif
