/* tune.h: `tgc tune`, split over tune_time.c (a plan's products, and one round of measuring) and
 * cmd_tune.c (which tiles each round tries, and which win). */
#ifndef TGC_TUNE_H
#define TGC_TUNE_H

#include "../load/open.h"

enum { MOST_TRIED = 6, MOST_PROGS = 4 };

extern const char *const tuned_progs[MOST_PROGS]; /* step, prefill, prefill_long, score */

typedef struct Product {
        const char *key, *tile[MOST_TRIED]; /* tile[0]: the model's */
        int n, prog, launches, best;        /* prog: of tuned_progs; -1: none of these has it */
        double us[MOST_TRIED];              /* of all its launches in one run */
        double model, won; /* the same in the last rounds, of tile[0] and of the winner */
} Product;

typedef struct Tune {
        const Args *a;
        Progress talk;
        Loaded l;
        Product *product;
        int n;
        int rounds, round;
        char gpu[128];
        /* of the programs, in the last rounds */
        double model_ms[MOST_PROGS], won_ms[MOST_PROGS];
} Tune;

/* us[i]: of product i, 0 where it shares launches; ms[k]: of tuned_progs[k] as a whole; clock: ms
 * of kernels that are busy computing and no products, whatever tiles these have. */
typedef struct Round {
        double *us, ms[MOST_PROGS], clock;
} Round;

/* The products of a plan, and of their tiles those that this GPU has.  Keys and tiles point into
 * *mem. */
int tune_products(Tune *t, const Plan *p, bool sm90, char **mem, Err *e);
/* The plan with these choices (text, NULL: none), opened and timed; counts t->round.  r->us has
 * t->n places. */
int tune_measure(Tune *t, const char *choices, Round *r, Err *e);

#endif
