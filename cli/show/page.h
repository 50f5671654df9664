/* page.h: `tgc dump --html`: a plan as one page.  Functions are grouped by the file that defines
 * them. */
#ifndef TGC_PAGE_H
#define TGC_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include "../load/load.h"

/* ---- page_json.c: JSON inside of a page ---- */

typedef struct JsonOut {
        char *s;
        size_t n, cap;
        bool comma; /* the next value stands behind another one */
        bool lost;  /* there was no memory */
} JsonOut;

/* key NULL: in a list.  What is `[` or `{` is ended by js_end. */
void js_begin(JsonOut *j, const char *key, char bracket);
void js_end(JsonOut *j, char bracket);
void js_num(JsonOut *j, const char *key, double x);
void js_str(JsonOut *j, const char *key, const char *s);
/* No byte of it can end the script that it stands in; what is no UTF-8 becomes U+FFFD. */
void js_strn(JsonOut *j, const char *key, const char *s, size_t n);
void js_free(JsonOut *j);

/* ---- page_graphs.c: what the compiler knows of a model; sees the compiler ---- */

/* "graphs": the model, then every program's graph after all passes; "files" that their lines are
 * of, with their text where the plan has it, or where model, the path of the model's file, is not
 * NULL. */
int page_graphs(JsonOut *j, const Plan *p, const char *path, const char *model, Err *e);

/* ---- page_plan.c: what the runtime knows ---- */

/* "targets": kernels, launches and their buffers; "memory"; "why". */
int page_plan(JsonOut *j, const Plan *p, const char *path, Err *e);

/* ---- page_times.c ---- */

/* "measured": times of every launch on the device that a says. */
int page_times(JsonOut *j, const Plan *p, const Args *a, Err *e);

/* ---- page.c ---- */

/* --html: of the plan that is loaded and, where the command has two, of the other one. */
int page_write(const Loaded *l, const Args *a, Err *e);

#endif
