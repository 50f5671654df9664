/* check.h: compares a plan's programs on a device with the double-precision evaluator, for `tgc
 * check` and for the random graphs of tests/. */
#ifndef TGC_CHECK_H
#define TGC_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include "../../runtime/plan/plan.h"

typedef struct Session Session;

typedef struct CheckOptions {
        double tolerance;   /* below 0: by the plan's dtype */
        int tokens, greedy; /* tokens of a sequence; said after them */
        bool tokens_given;  /* more than the context is an error then */
        bool shake; /* where it differs, as far as the reference moves by itself is no difference */
        uint64_t seed;
} CheckOptions;

typedef struct CheckSum {
        int compared, bad;
        int shaken;     /* differed, but no more than the reference itself does */
        double natural; /* by how much the reference moved, at most */
        double tolerance;
        double nearest;  /* oracle_nearest, of all that were asked */
        char first[160]; /* the first output that differs: "step d w: 3.1e-01" */
} CheckSum;

/* Called for each output. */
typedef void CheckFn(void *user, const char *program, const char *output, double error, bool ok);

/* ir: the plan's section.  fn may be NULL.  Differences are counted, not an error. */
int check_session(Session *s, const Section *ir, const CheckOptions *o, CheckFn *fn, void *user,
                  CheckSum *sum, Err *e);

/* The same in a session of its own on a device (--device's name) with one thread; o NULL: opens it,
 * which compiles the kernels, and no more. */
int check_plan(const Plan *p, const char *device, const CheckOptions *o, CheckSum *sum, Err *e);

#endif
