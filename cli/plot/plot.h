/* plot.h: curves of training runs.  Functions are grouped by the file that defines them. */
#ifndef TGC_PLOT_H
#define TGC_PLOT_H

#include "../cli.h"

/* What a run may have a column of; the picture has a panel for each that some run has. */
typedef enum Curve {
        CURVE_TRAIN,
        CURVE_VAL,
        CURVE_LR,
        CURVE_NORM,
        CURVE_RATE,
        CURVE_TIME,
        N_CURVES
} Curve;

/* One curve: points with finite values; line[i] is where point i stands in the file. */
typedef struct Points {
        double *x, *y;
        int *line, n;
} Points;

typedef struct RunLog {
        const char *path; /* as the user typed it */
        Points of[N_CURVES];
        char column[N_CURVES][48]; /* its name in the file; "": it has none */
        int torn;                  /* the line that was left out for its end; 0: none */
} RunLog;

/* ---- plot_csv.c ---- */

/* A file of columns, or a folder with log.csv.  Errors say file:line. */
int run_log_read(RunLog *r, const char *path, Err *e);
void run_log_free(RunLog *r);

/* ---- plot_svg.c ---- */

int plot_svg(FILE *f, const RunLog *run, int n, bool log_scale, Err *e);

#endif
