/* train.h: a training run, split over train_setup.c (what to train on, and how) and
 * cmd_train.c (the loop). */
#ifndef TGC_TRAIN_H
#define TGC_TRAIN_H

#include "../runtime/npy.h"
#include "work.h"

typedef struct Train {
        const Args *a;
        Say        talk;
        Loaded     l;
        Session   *s;
        bool       in_place;            /* what is trained is OUT_DIR/model.plan itself */
        int       *ids; int n_ids;      /* the stream */
        Npy        offsets;             /* --batch_offsets, or zeroed */
        Windows    train, val;          /* val.T 0: no validation */
        Schedule   schedule;
        int        B, T, n_micro, max_steps;
        int       *x, *y;               /* (n_micro, B, T) */
        TrainState state;               /* state.step: steps done */
        FILE      *csv;
        int        skipped;             /* steps in a row that were not finite */
        int64_t    saved;               /* steps done in what this run saved, or goes on from; 0: none */
        TrainResult last;
        double     last_val;            /* NAN: none yet */
        double     began;
        int        first;               /* step this process began with */
} Train;

int  train_open(Train *t, const Args *a, Err *e);       /* everything before the first step */
void train_close(Train *t);
char *train_path(const Train *t, const char *name);     /* in out_dir; caller frees */

#endif
