/* objective.h: training with --objective: the inputs that it adds to a step, and the texts that it
 * samples. */
#ifndef TGC_CLI_OBJECTIVE_H
#define TGC_CLI_OBJECTIVE_H

#include "objective_lua.h"
#include "../train/train.h"

/* ---- objective_rows.c ---- */

/* A row in the making: ids, targets and documents of the batch, and its feeds. */
typedef struct FedRow {
        int *ids, *targets, *documents; /* (T), (T), (T,2) */
        int at, T;
} FedRow;

/* A document behind what the row has: tokens id (n) as records have them; the target of token t - 1
 * is token t, where that has RECORD_COUNTS.  whole: the last token is an input, too, and nothing
 * counts.  Returns where it begins; it must fit. */
int row_document(FedRow *r, const uint32_t *id, int n, bool whole);
void row_end(FedRow *r, int pad); /* the rest counts for nothing */

const ObjectiveFacts *aim_facts(const Train *t);
float *aim_feed(const Train *t, const char *name); /* NULL: the objective has none of that name */
FedRow row_begin(const Train *t, int micro, int b);
/* What counts from place `from` of a row on belongs to a unit: an answer, a pair. */
void row_unit(const Train *t, const FedRow *r, int from, int unit);
/* weight: the mean over units of the means over their tokens is the sum of weight x over the tokens
 * that count. */
int rows_weights(const Train *t, int n_micro, int units, Err *e);
void row_value(const Train *t, float *v, const FedRow *r, int from, float x); /* v may be NULL */
int rows_of_pairs(Train *t, const Windows *w, int64_t step, int n_micro, Err *e);

/* ---- objective_groups.c ---- */

enum { SAMPLING, JUDGING, LOG_P }; /* of Aim.seconds */
int rows_of_groups(Train *t, const Windows *w, int64_t step, int n_micro, Err *e);
/* A record's prompt and max_tokens after it, in tokens; 0: it has no prompt. */
int aim_sequence(const Train *t, const Records *r, int which);
/* Places of a row that a record takes; 0: it cannot be used. */
int aim_places(const Train *t, const Records *r, int which);

/* ---- objective_sample.c: continuations ---- */

typedef struct Said {
        int *ids, n; /* of the continuation, what ended it included */
        bool ended;  /* by a token that ends texts */
        char *text;  /* without that */
        size_t n_text;
} Said;

typedef struct Ask {
        const int *ids; /* a prompt */
        int n;
        uint64_t seed;
} Ask;

/* samples continuations of each of n prompts by the live weights, said (n, samples). */
int sample_groups(Train *t, const ObjectiveFacts *f, const Ask *ask, int n, Said *said, Err *e);
void said_free(Said *said, int n);

/* ---- objective_open.c ---- */

int aim_open(Train *t, Err *e);  /* before the plan is compiled */
int aim_ready(Train *t, Err *e); /* after the plan and the records are there */
void aim_close(Train *t);
int aim_sequences(const Train *t); /* that are sampled together; 0: none are */

/* ---- objective_step.c ---- */

/* Does a step need more than its windows? */
bool aim_drives(const Train *t);
/* Those of the step that is under way, of one micro-batch; feed has room for OBJECTIVE_FEEDS. */
int aim_feeds(const Train *t, int micro, Feed *feed);
/* Where the time of the run's seconds went; nothing where no texts are sampled. */
void aim_report(const Train *t, double seconds);
/* May the run be saved or ended before this step?  Samples that several steps learn from are not
 * kept. */
bool aim_between(const Train *t, int64_t step);
/* Rows of n_micro micro-batches of the step, into t->x, t->y, t->d and feeds, which `in` gets.  No
 * step is under way. */
int aim_fill(Train *t, const Windows *w, int64_t step, int n_micro, TrainStep *in, Err *e);

#endif
