/* plot_csv.c: reads the log of a training run: `tgc train --log_csv`, or any CSV with such
 * columns.  A last line that has no end and is no row is one that is being written: it is left
 * out. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/file.h"
#include "plot.h"

enum { MAX_COLUMNS = 256, MAX_LOG = 1 << 30, STEP = N_CURVES };
#define MOST_VALUE 1e100            /* quotients of what is drawn are finite */
#define MOST_STEP 9007199254740992. /* 2^53: beyond it two steps may be one number */

/* Names of nanoGPT, of llm.c and of wandb's exports are known as well. */
static const struct {
        int curve;
        const char *name;
} known[] = { { STEP, "step" },
              { STEP, "iter" },
              { STEP, "iter_num" },
              { STEP, "iteration" },
              { STEP, "_step" },
              { CURVE_TRAIN, "loss" },
              { CURVE_TRAIN, "train_loss" },
              { CURVE_TRAIN, "train/loss" },
              { CURVE_TRAIN, "loss/train" },
              { CURVE_VAL, "val_loss" },
              { CURVE_VAL, "val/loss" },
              { CURVE_VAL, "loss/val" },
              { CURVE_VAL, "eval_loss" },
              { CURVE_LR, "lr" },
              { CURVE_LR, "learning_rate" },
              { CURVE_NORM, "grad_norm" },
              { CURVE_NORM, "norm" },
              { CURVE_RATE, "tokens_per_s" },
              { CURVE_RATE, "tokens_per_sec" },
              { CURVE_RATE, "tok_per_s" },
              { CURVE_RATE, "tok/s" },
              { CURVE_TIME, "dt" },
              { CURVE_TIME, "dt_ms" },
              { CURVE_TIME, "step_ms" },
              { CURVE_TIME, "ms" },
              { CURVE_TIME, "time_ms" } };
enum { N_KNOWN = sizeof known / sizeof *known };

/* Cuts a line at its commas; blanks and quotes around a cell go. */
static int cells(char *line, char **cell)
{
        int n = 0;
        for (char *s = line; s && n < MAX_COLUMNS; n++) {
                char *comma = strchr(s, ','), *end = comma ? comma : s + strlen(s);
                while (isspace((unsigned char)*s) || *s == '"')
                        s++;
                while (end > s && (isspace((unsigned char)end[-1]) || end[-1] == '"'))
                        end--;
                cell[n] = s;
                s = comma ? comma + 1 : NULL;
                *end = 0;
        }
        return n;
}

/* Which cell is which curve's; -1: none. */
static int read_head(RunLog *r, char **cell, int n, int *of, Err *e)
{
        for (int c = 0; c <= N_CURVES; c++)
                of[c] = -1;
        for (int i = 0; i < n; i++)
                for (int k = 0; k < N_KNOWN; k++)
                        if (!strcmp(cell[i], known[k].name) && of[known[k].curve] < 0) {
                                of[known[k].curve] = i;
                                if (known[k].curve != STEP)
                                        snprintf(r->column[known[k].curve], sizeof r->column[0],
                                                 "%s", cell[i]);
                        }
        if (of[STEP] < 0)
                return err_set(e, TGC_BAD_FILE,
                               "%s:1: no column of steps: its name is step, iter, iter_num, "
                               "iteration or _step",
                               r->path);
        for (int c = 0; c < N_CURVES; c++)
                if (of[c] >= 0)
                        return TGC_OK;
        return err_set(e, TGC_BAD_FILE,
                       "%s:1: nothing to plot: known columns are loss, train_loss, val_loss, lr, "
                       "grad_norm, tokens_per_s, dt",
                       r->path);
}

/* An empty cell is no value; nan, inf and what is beyond MOST_VALUE have no place in a picture. */
static int number(const RunLog *r, const char *s, int line, double *x, Err *e)
{
        char *end;
        *x = NAN;
        if (!*s)
                return TGC_OK;
        *x = c_strtod(s, &end);
        if (*end || end == s)
                return err_set(e, TGC_BAD_FILE, "%s:%d: '%.40s' is not a number", r->path, line, s);
        if (fabs(*x) > MOST_VALUE)
                *x = NAN;
        else if (fabs(*x) < 1 / MOST_VALUE)
                *x = 0;
        return TGC_OK;
}

static int read_rows(RunLog *r, char *at, Err *e)
{
        char *cell[MAX_COLUMNS];
        int of[N_CURVES + 1], width = 0, line = 0, code = TGC_OK;
        size_t rows = 1;
        for (const char *s = at; (s = strchr(s, '\n')); s++)
                rows++;
        for (int c = 0; c < N_CURVES; c++) {
                Points *p = &r->of[c];
                p->x = malloc(rows * sizeof *p->x);
                p->y = malloc(rows * sizeof *p->y);
                p->line = malloc(rows * sizeof *p->line);
                if (!p->x || !p->y || !p->line)
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory for %zu rows", r->path,
                                       rows);
        }
        while (at && *at && !code) {
                char *eol = strchr(at, '\n');
                if (eol)
                        *eol = 0;
                line++;
                if (strspn(at, " \t\r") < strlen(at)) {
                        double x, y;
                        int n = cells(at, cell);
                        if (!width) {
                                width = n;
                                code = read_head(r, cell, n, of, e);
                        } else if (n != width) {
                                code = err_set(e, TGC_BAD_FILE,
                                               "%s:%d: %d cells, where the first line has %d",
                                               r->path, line, n, width);
                        } else if (!(code = number(r, cell[of[STEP]], line, &x, e)) &&
                                   !(fabs(x) <= MOST_STEP)) {
                                code = err_set(e, TGC_BAD_FILE, "%s:%d: no step: '%.40s'", r->path,
                                               line, cell[of[STEP]]);
                        } else {
                                for (int c = 0; c < N_CURVES && !code; c++) {
                                        Points *p = &r->of[c];
                                        if (of[c] < 0 ||
                                            (code = number(r, cell[of[c]], line, &y, e)) ||
                                            !isfinite(y))
                                                continue;
                                        p->x[p->n] = x;
                                        p->y[p->n] = y;
                                        p->line[p->n++] = line;
                                }
                        }
                }
                if (code == TGC_BAD_FILE && !eol && width && line > 1) {
                        r->torn = line;
                        code = TGC_OK;
                }
                at = eol ? eol + 1 : NULL;
        }
        if (code)
                return code;
        for (int c = 0; c < N_CURVES; c++)
                if (r->of[c].n)
                        return TGC_OK;
        return err_set(e, TGC_BAD_FILE, "%s: no rows of numbers", r->path);
}

int run_log_read(RunLog *r, const char *path, Err *e)
{
        char *inside = file_is_dir(path) ? file_join(path, "log.csv") : NULL, *text;
        size_t n;
        *r = (RunLog) { .path = path };
        int code = file_read_text(inside ? inside : path, MAX_LOG, &text, &n, e);
        free(inside);
        if (code)
                return code;
        if (strlen(text) < n)
                code = err_set(e, TGC_BAD_FILE, "%s: not a text: it holds a NUL byte", path);
        else
                code = read_rows(r, text + text_mark(text, n), e);
        free(text);
        return code;
}

void run_log_free(RunLog *r)
{
        for (int c = 0; c < N_CURVES; c++) {
                free(r->of[c].x);
                free(r->of[c].y);
                free(r->of[c].line);
        }
}
