/* train_log.h: the logs of a run.
 *
 * OUT_DIR/log.csv (or --log_csv FILE), OUT_DIR/log.jsonl, and with --tensorboard an event file
 * there.  A resumed run removes the rows of steps that it does again. */
#ifndef TGC_TRAIN_LOG_H
#define TGC_TRAIN_LOG_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include "../../runtime/util/err.h"

typedef struct LogFile {
        int fd; /* -1: none */
        char *path;
} LogFile;

typedef struct TrainLog {
        LogFile csv, jsonl, events;
} TrainLog;

typedef struct LogRow { /* NAN: not known, and not written */
        int64_t step;   /* its losses are of the weights after it; -1: before any */
        double lr, loss, aux_loss, grad_norm, val_loss;
        double tokens, seconds, tokens_per_s; /* of this process, so far */
        double score;                         /* of --eval_prompt */
} LogRow;
#define LOG_ROW_NONE                                                                        \
        {                                                                                   \
                .lr = NAN, .loss = NAN, .aux_loss = NAN, .grad_norm = NAN, .val_loss = NAN, \
                .tokens = NAN, .seconds = NAN, .tokens_per_s = NAN, .score = NAN            \
        }

/* Rows from step `from` on go; 0: all.  csv: another path than DIR/log.csv, or NULL. */
int log_open(TrainLog *l, const char *dir, const char *csv, int events, int64_t from, Err *e);
int log_step_row(TrainLog *l, const LogRow *r, Err *e);  /* in all files */
int log_score_row(TrainLog *l, const LogRow *r, Err *e); /* not in the CSV */
void log_sync(TrainLog *l);
void log_close(TrainLog *l); /* zeroed is fine where log_open was not called */

/* ---- tb_events.c: TensorBoard's event file ---- */

typedef struct TbScalar {
        const char *tag;
        double value; /* NAN: left out */
} TbScalar;

/* Its name has the time, so that each process has one of its own. */
int tb_open(LogFile *f, const char *dir, int64_t from, Err *e);
int tb_scalars(LogFile *f, int64_t step, const TbScalar *s, int n, Err *e);

int log_write(const LogFile *f, const void *data, size_t n, Err *e);

#endif
