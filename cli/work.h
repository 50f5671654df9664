/* work.h: what the commands that run a plan share: the part of cli.h that needs the runtime's
 * headers. */
#ifndef TGC_WORK_H
#define TGC_WORK_H

#include <cjson/cJSON.h>
#include "../runtime/weights/safetensors.h"
#include "../runtime/session/session.h"
#include "cli.h"

/* ---- open.c ---- */

/* A session as --device, --gpu, --threads and TGC_DEVICE say. */
/* ready, batch: SessionOptions', programs whose kernels are wanted at once; NULL: all. */
int open_session(Session **s, const Plan *p, const Args *a, int mode, uint64_t seed,
                 const char *ready, int batch, Err *e);
/* --offload moves something of the session that is trained, or of its step. */
int offload_check(const Session *s, const Args *a, Err *e);
/* A plan without weights gets those that `tgc train` begins with: says so, unless load did. */
enum { WEIGHTS_SEED = 1337 }; /* train's default */
void say_random(const Args *a, const Loaded *l);
/* UTF-8; NUL is a character */
void json_add_text(cJSON *o, const char *key, const char *text, size_t n);
int json_print(cJSON *o, Err *e);      /* to stdout, with a newline; deletes o */
int json_print_line(cJSON *o, Err *e); /* the same, on one line */
/* Text as ids; refuses ids that the model does not have.  *ids is malloc'd, or NULL.  Errors begin
 * with where. */
int ids_of_text(const Tokenizer *tok, const char *s, size_t n, int bos, int vocab,
                const char *where, int **ids, int *k, Err *e);
int ids_of_text_file(const Tokenizer *tok, const char *path, int vocab, const Progress *talk,
                     int **ids, int *n, Err *e);
int ids_of_id_file(const char *path, int vocab, int **ids, int *n, Err *e);

/* Repeated measurements. */
typedef struct Times {
        double *v;
        int n;
} Times;
double times_median(Times *t); /* sorts */
/* A step of program p on these ids, whose time is measured. */
TrainStep plain_step(const Prog *p, const int *ids);

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
int make_folder(const char *path, Err *e);

/* ---- model_files.c ---- */

/* A plan keeps these files of a folder, as they are, in sections file.NAME. */
int model_files_keep(Plan *p, const char *dir, bool model, bool tokenizer, Err *e);
void model_files_drop_tokenizer(Plan *p);
/* Into dir, config.json with the type that the weights have there.  own: the user has another
 * config.json.  model: the file that tgc's own config.json names, "" where it is a family's; and
 * whether there is a tokenizer. */
int model_files_write(const Loaded *l, const char *dir, const char *dtype, bool own,
                      char model[200], bool *tokenizer, Err *e);

#endif
