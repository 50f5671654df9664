/* check_impl.h: private to check*.c: the state of a run of `tgc check`, and the comparison of an
 * output with the reference. */
#ifndef TGC_CHECK_IMPL_H
#define TGC_CHECK_IMPL_H

#include "asked.h"
#include "check.h"

typedef struct Check {
        const CheckOptions *a;
        Session *s;
        const Manifest *m;
        const Section *ir;
        double tolerance;
        bool rounds;   /* products are tf32 */
        bool shakes;   /* as CheckOptions.shake; also where e4m3's steps decide */
        double *x;     /* one parameter, double */
        float *f;      /* and float */
        float *before; /* all of them, as the optimiser has them */
        CheckFn *fn;
        void *user;
        CheckSum *sum;
} Check;

/* Of an output: how far it is from the reference, and whether that is as near as it should be, or
 * as the reference is to itself. */
typedef struct Distance {
        double err;
        bool ok, moved;
} Distance;

/* ---- check.c ---- */

Distance check_distance(double err, double tolerance);
double check_largest(const double *v, int64_t n); /* of absolute values */
/* An output's distance into the sum, and to whom looks on. */
void check_report(Check *c, const char *program, const char *what, Distance d);
/* Where an output is further off than it should be: is the reference, by itself? */
int check_excuse(Check *c, Asked *a, const Piece *p, Distance *d, Err *e);
/* got against a piece of the reference's answer; check_result reports it. */
int check_compare(Check *c, Asked *a, const Piece *p, const float *got, Distance *out, Err *e);
int check_result(Check *c, Asked *a, const char *program, const char *what, const Piece *p,
                 const float *got, Err *e);
/* Asks the reference; asked_free(a), also after an error. */
int check_consult(Check *c, Asked *a, Ask what, int B, int T, const int *ids, const int *targets,
                  Err *e);
/* n ids by the seed, with documents where the plan has them; the caller frees *ids. */
int check_ids(const Check *c, int n, uint64_t seed, int **ids, Err *e);

/* ---- one for each kind of program ---- */

int check_step(Check *c, uint64_t seed, Err *e);  /* check_train.c */
int check_infer(Check *c, uint64_t seed, Err *e); /* check_infer.c */
int check_embed(Check *c, uint64_t seed, Err *e); /* check_infer.c */
int check_mixed(Check *c, uint64_t seed, Err *e); /* check_mixed.c: needs the program `mixed` */

#endif
