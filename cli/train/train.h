/* train.h: a training run, split over train_setup.c (what to train on, and how) and
 * cmd_train.c (the loop). */
#ifndef TGC_TRAIN_H
#define TGC_TRAIN_H

#include "../../compiler/read/objective.h"
#include "../../runtime/weights/npy.h"
#include "../run/prompts.h"
#include "../eval/eval_score.h"
#include "state.h"
#include "train_log.h"
#include "../data/windows.h"

enum { N_LISTS = 5 }; /* -D, --train, --group, --lora, --objective */

/* Of --objective (objective.h). */
typedef struct Aim {
        Objective *objective; /* NULL: the model's own loss */
        Loaded second;        /* --reference */
        Session *other;
        Loaded embed; /* --embedder */
        Session *embedder;
        Sentence how;
        float *feed[OBJECTIVE_FEEDS]; /* (n_micro, B, T) each, of a teacher (n_micro, B, T, V) */
        Feed feeds[OBJECTIVE_FEEDS];
        char name[OBJECTIVE_FEEDS][80];
        int *unit;       /* (n_micro, B, T): which answer or pair a target is of, or -1 */
        int64_t rows_of; /* the step whose groups the rows have, or -1 */
        int end_of_turn; /* token that ends an answer; -1: none */
        double scores;   /* of the groups of this step */
        int n_scores;
        double seconds[3]; /* of the run: sampling, judging, log-probabilities */
} Aim;

typedef struct Saving Saving;

typedef struct Train {
        const Args *a; /* &args */
        const Args *given;
        Args args; /* the command line's; with --resume what it leaves open is the run's */
        /* settings of the run that is resumed, as its state has them */
        char *was[MOST_SETTINGS];
        const char **list[N_LISTS]; /* of them: options that were given again and again */
        char *list_text[N_LISTS];
        bool plan; /* a PLAN was given, not a MODEL */
        int lock;  /* of OUT_DIR; -1: none */
        Progress talk;
        Loaded l;
        Manifest m; /* the plan's, and its programs for one target: what is known of it before */
        Program p;  /* a session is opened and kernels are compiled */
        Session *s;
        bool in_place; /* what is trained is OUT_DIR/model.plan itself */
        Sources data, val_data;
        bool records;       /* some of them are */
        Chat chat;          /* that renders them */
        Npy offsets;        /* --batch_offsets, or zeroed */
        Windows train, val; /* val.T 0: no validation */
        Aim aim;
        Prompts samples;  /* --sample_prompt */
        char *again_text; /* of run.txt */
        const char *again_model, *again_called;
        Schedule schedule;
        Optimizer optimizer;
        double beta1, beta2, eps; /* its own, or those asked for */
        int B, T, n_micro, max_steps;
        int *d; /* (n_micro, B, T, 2), where documents lie; NULL: the ids say it, or nobody asks */
        int *x, *y;       /* (n_micro, B, T) */
        TrainState state; /* state.step: steps done */
        TrainLog log;
        EvalScore score;    /* --eval_score */
        int n_fixed;        /* of samples: --sample_prompt, those behind it --eval_prompt */
        int end_of_turn;    /* token that ends an answer to those; -1: none */
        bool scaling;       /* gradients are f16: the loss has a scale */
        double grads_scale; /* that of the last step */
        int scale_window;   /* of loss_scale_step */
        int skipped;        /* steps in a row that were not finite */
        /* checkpoints on their way to the disk, one behind the other, or NULL */
        struct Saving *saving, *queued;
        Session *snapshot[2]; /* of those; their memory serves the next */
        uint64_t snapshot_bytes[2];
        int n_saves;
        double save_waits, save_writes; /* seconds: of steps, of files made beside them */
        int64_t saved; /* steps done in what this run saved, or goes on from; 0: none */
        TrainResult last;
        double last_val; /* NAN: none yet */
        double began;
        double opened, max_seconds; /* of --max_time, since it was opened; 0: any */
        bool save_now;              /* SIGUSR1 asked */
        double memory;              /* bytes on the device */
        int first;                  /* step this process began with */
} Train;

int train_open(Train *t, const Args *a, Err *e); /* everything before the first step */
void train_close(Train *t);
/* train_settings.c */
/* what the command line leaves open */
int settings_take(Train *t, const char *state, bool plan, Err *e);
int settings_same(const Train *t, Err *e);      /* the plan and the data are those of the run */
int settings_keep(Train *t, bool plan, Err *e); /* into t->state, for the next one */
void settings_free(Train *t);
/* train_again.c */
int again_keep(const Train *t, Err *e); /* OUT_DIR/run.txt */
/* The model as the run's first command line has it. */
const char *train_called(const Train *t);
/* `train OUT_DIR --resume`: model, data and the rest from there; else nothing */
int again_take(Train *t, Err *e);
void again_free(Train *t, const Args *given);
/* The model of the run in dir, to be freed. */
int again_model(const char *dir, char **model, Err *e);
/* train_data.c */
int data_find(Train *t, Err *e); /* the files */
/* The vocabulary of the text, unless the model comes with a tokenizer or one is named. */
int data_tokenizer(const Train *t, ModelKind kind, const char *path, Tokenizer **tok, Err *e);
bool data_packs(const Train *t); /* rows hold several records */
int data_read(Train *t, Err *e);
uint64_t data_hash(const Train *t);
int data_split(Train *t, Err *e); /* t->train, t->val */
int data_show(Train *t, Err *e);  /* show_data.c: --show_data, to stdout */
void data_close(Train *t);
/* train_keep.c */
int keep_checkpoint(const Train *t, int64_t now, bool lora, bool improved, Err *e); /* --keep */
int read_max_time(const Args *a, double *seconds, Err *e);
/* train_save.c */
/* Begins to save this step; the disk is waited for by train_saved, or by the next but one. */
int train_save(Train *t, bool improved, Err *e);
/* What became of it, where it is done, or once it is. */
int train_saved(Train *t, bool wait, Err *e);
void train_save_close(Train *t);
int train_save_last(Train *t, Err *e); /* OUT_DIR/model.plan, at the end of a run */
/* train_ema.c */
typedef enum { EMA_EVAL, EMA_EXPORT } EmaUse;
int ema_open(Train *t, Err *e);
double ema_weight(const Train *t, int64_t step); /* of TrainStep */
bool ema_for(const Train *t, EmaUse what); /* is the average what validates, or what is left? */
/* Where it is, weights and average change places; again: back. */
int ema_swap(Train *t, EmaUse what, Err *e);
/* train_watch.c */
int train_validate(Train *t, double *train, double *val, Err *e);
int train_samples(Train *t, Err *e);                /* what --sample_interval needs is there */
int train_sample(Train *t, Err *e);                 /* say them */
char *train_path(const Train *t, const char *name); /* in out_dir; caller frees */

#endif
