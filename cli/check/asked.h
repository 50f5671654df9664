/* asked.h: a question to the double-precision reference and its answer.  Also: by how much the
 * answer moves when the reference rounds as a device does. */
#ifndef TGC_ASKED_H
#define TGC_ASKED_H

#include "../../runtime/session/session.h"
#include "oracle.h"

enum { FEW_SAMPLES = 4, MOST_SAMPLES = 40 };

/* Of a step, of its loss alone (eval), or of texts that are one document each. */
typedef enum { ASK_STEP, ASK_LOSS, ASK_TEXT } Ask;

typedef struct Asked {
        Oracle *o; /* has run */
        Session *s;
        const Section *ir;
        Ask what;
        int B, T;
        unsigned seed[2];
        double *ids, *targets, *documents; /* (B,T), (B,T), (B,T,2) */
        double *weights;                   /* as they were when it was asked; NULL: not kept */
        bool tf32;                         /* the device rounds so */
        Oracle *sample[MOST_SAMPLES];
        int n_samples;
} Asked;

/* Asks, with the session's weights as they are now.  sampled: asked_moves will be called. */
int asked_new(Asked *a, Session *s, const Section *ir, Ask what, int B, int T, const int *ids,
              const int *targets, bool sampled, bool tf32, Err *e);
void asked_free(Asked *a); /* zeroed is fine */

/* A piece of an answer: elements [from, from+n) of what `of` gives for a name.  Errors are parts of
 * its largest value, or of `least` where that is more. */
typedef const double *Answer(Oracle *o, const char *name, int64_t *n);
typedef struct Piece {
        Answer *of;
        const char *name;
        int64_t from, n;
        double least;
} Piece;

double asked_scale(const Asked *a, const Piece *p);

/* By how much it moves over so many samples (MOST_SAMPLES at most), at most; INFINITY: a sample
 * is not finite.  An error leaves it less. */
int asked_moves(Asked *a, const Piece *p, int samples, double *moves, Err *e);

#endif
