/* state.h: what a training run carries from step to step, and how it lies on disk. */
#ifndef TGC_CLI_STATE_H
#define TGC_CLI_STATE_H

#include "../load/open.h"

/* ---- schedule.c ---- */

/* in the order of --lr_schedule */
typedef enum { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_WSD, SCHEDULE_CONSTANT } ScheduleKind;

typedef struct Schedule {
        double lr, min_lr;
        int64_t warmup, decay_steps, cooldown; /* of SCHEDULE_WSD */
        bool decay;
        ScheduleKind kind; /* where it decays */
} Schedule;
double schedule_lr(const Schedule *s, int64_t step);

/* ---- loss_scale.c: f16 gradients are those of the loss times this ---- */

typedef struct LossScale {
        double scale;
        int64_t good;    /* steps since it last changed */
        int64_t skipped; /* steps of the run that changed nothing */
} LossScale;

enum { LOSS_SCALE_FIRST = 1 << 16 };

/* After a step, as torch.amp.GradScaler does: halved by one that was not finite, doubled after
 * `window` that were.  window 0: it stays. */
void loss_scale_step(LossScale *s, bool bad, int64_t window);

/* ---- state.c: training on disk ---- */

enum { MOST_SETTINGS = 64 };

typedef struct TrainState {
        int64_t step; /* steps done */
        double best;  /* validation loss */
        LossScale scale;
        /* of the gradient's norm, for --skip_spikes: mean, number of steps; spikes in a row */
        struct {
                double mean;
                int64_t n, row;
        } norms;
        uint64_t seed;
        int64_t tokens;              /* of the data */
        int64_t batch, block, accum; /* a step's sizes */
        uint64_t graph, text;        /* hashes of the model as read, and of ids and vocabulary */
        uint64_t frozen;             /* of the weights that are not trained; 0: there are none */
        /* of the run (train_settings.c); written, not read */
        StMeta setting[MOST_SETTINGS];
        int n_settings;
} TrainState;

/* state.safetensors: p. m. v. of every parameter that is trained as float32, the rest as metadata,
 * and a checksum.  averaged: weights and their average have changed places (ema_swap). */
int state_save(Session *s, const char *path, const TrainState *t, bool averaged, Err *e);
int state_check(const char *path, Err *e);               /* the checksum; TGC_BAD_FILE */
int state_peek(const char *path, TrainState *t, Err *e); /* the metadata alone */
/* A file of one step is first NAME.next-STEP; when the state of that step is there it gets its
 * name.  So all files of a folder that is looked at through these two are of the state's step,
 * whenever its writer was killed. */
int run_file_next(const char *dir, const char *name, int64_t step, char **path, Err *e);
/* names what the state has made true, removes what it has not */
int run_settle(const char *dir, Err *e);
/* What the file does not say stays in *t: one of an older tgc has no sizes and hashes. */
int state_load(Session *s, const char *path, TrainState *t, Err *e);
int state_frozen(Session *s, uint64_t *hash, Err *e); /* TrainState.frozen of what it holds */
typedef enum { EXPORT_WEIGHTS, EXPORT_GRADS } ExportWhat;
/* By checkpoint names, through the plan's map.  Values are multiplied by scale. */
int export_params(Session *s, const Plan *p, const char *path, ExportWhat what, int ck_dtype,
                  double scale, Err *e);
int import_params(Session *s, const Plan *p, const char *path, Err *e);
/* The plan with the session's weights; *mem is freed after the plan is written. */
int plan_take_weights(Plan *p, Session *s, void **mem, Err *e);

#endif
