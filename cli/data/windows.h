/* windows.h: rows of a batch, drawn from sources of tokens (data.h). */
#ifndef TGC_WINDOWS_H
#define TGC_WINDOWS_H

#include "data.h"

/* What of a source is drawn from. */
typedef struct View {
        const Source *source;
        int64_t begin, end; /* a stream: windows lie in here, the target after the last token too */
        int *which, n;      /* records: these of the source's ... */
        Packing pack;       /* ... in rows */
} View;

enum { MIX_ROWS = 1000 };
typedef struct Mix {
        int view[MIX_ROWS];          /* whose a row is */
        int (*before)[MIX_ROWS + 1]; /* of each view: its rows before this one */
} Mix;

typedef struct Windows {
        View *view;
        int n;
        Mix *mix; /* NULL: of one view */
        int T;
        uint64_t seed;
        const int64_t *offset; /* [steps, n_micro, B], or NULL: at random */
        int separator;         /* this token begins a document of a stream; -1: none does */
        int pad, pad_to;       /* what fills up rows of records */
        bool count_padding;    /* up to pad_to */
        bool once;             /* rows of records behind the first epoch are empty */
} Windows;

int windows_mix(Windows *w, Err *e); /* after its views are there */
void windows_free(Windows *w);
/* Ids and targets (B,T) of one micro-step, and where documents lie (B,T,2; NULL: nobody asks); all
 * depend on the arguments only.  Targets of -1 do not count. */
void windows_fill(const Windows *w, int64_t step, int micro, int n_micro, int B, int *ids,
                  int *targets, int *documents);
/* Of records that have a row each: which record, or pair of them, global row r has, and of what
 * source; NULL: none, where w->once. */
const Source *windows_unit(const Windows *w, int64_t r, int *unit);

#endif
