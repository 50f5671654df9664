/* windows.c: the rows of a batch as a pure function of (seed, step, micro, row), so that a resumed
 * run sees what an uninterrupted one does.
 *
 * Several sources share every MIX_ROWS rows by their weights, in an order that is always the same.
 * So the number of rows that a source has had by any step is known without counting.  Row k of a
 * source of records is row k modulo the rows of an epoch, in that epoch's order. */
#include <stdlib.h>
#include <string.h>
#include "windows.h"

static int64_t random_offset(const Windows *w, int view, int64_t step, int micro, int row)
{
        const View *v = &w->view[view];
        const uint64_t n = (uint64_t)(v->end - v->begin - w->T),
                       seed = view ? w->seed ^ mix64((uint64_t)view) : w->seed;
        uint64_t x = mix64(mix64(mix64(seed) ^ (uint64_t)step) ^
                           ((uint64_t)micro << 32 | (uint64_t)row));
        return v->begin + (int64_t)(x % n); /* n is far below 2^64: no bias to speak of */
}

int windows_mix(Windows *w, Err *e)
{
        double all = 0, sum = 0;
        int k = 0;
        if (w->n < 2)
                return TGC_OK;
        if (!(w->mix = malloc(sizeof *w->mix)) ||
            !(w->mix->before = calloc((size_t)w->n, sizeof *w->mix->before)))
                return err_set(e, TGC_NO_MEMORY, "no memory for %d sources", w->n);
        for (int i = 0; i < w->n; i++)
                all += w->view[i].source->weight;
        for (int i = 0; i < w->n; i++) { /* each has one row at least */
                sum += w->view[i].source->weight;
                int upto = (int)(sum / all * MIX_ROWS + 0.5);
                upto = upto > k ? upto : k + 1;
                upto = upto > MIX_ROWS - (w->n - 1 - i) ? MIX_ROWS - (w->n - 1 - i) : upto;
                while (k < upto)
                        w->mix->view[k++] = i;
        }
        for (int i = MIX_ROWS - 1; i > 0; i--) {
                const int j = (int)(mix64(0x6d6978 + (uint64_t)i) % ((uint64_t)i + 1)),
                          x = w->mix->view[i];
                w->mix->view[i] = w->mix->view[j];
                w->mix->view[j] = x;
        }
        for (int r = 0; r < MIX_ROWS; r++)
                for (int i = 0; i < w->n; i++)
                        w->mix->before[i][r + 1] = w->mix->before[i][r] + (w->mix->view[r] == i);
        return TGC_OK;
}

void windows_free(Windows *w)
{
        for (int i = 0; i < w->n; i++) {
                packing_free(&w->view[i].pack);
                free(w->view[i].which);
        }
        if (w->mix)
                free(w->mix->before);
        free(w->mix);
        free(w->view);
        *w = (Windows) { 0 };
}

/* Which view global row r is of, and how many rows of that there were before. */
static int view_of(const Windows *w, int64_t r, int64_t *k)
{
        *k = r;
        if (!w->mix)
                return 0;
        const int at = (int)(r % MIX_ROWS), i = w->mix->view[at];
        *k = r / MIX_ROWS * w->mix->before[i][MIX_ROWS] + w->mix->before[i][at];
        return i;
}

typedef struct Row {
        int *ids, *targets, *documents; /* (T), (T), (T,2) or NULL */
} Row;

static void document(const Row *row, int from, int upto)
{
        for (int t = from; row->documents && t < upto; t++) {
                row->documents[2 * t] = from;
                row->documents[2 * t + 1] = upto;
        }
}

static void fill_window(const Windows *w, const View *v, int64_t at, const Row *row)
{
        const int T = w->T;
        tokens_copy(&v->source->tokens, at, T, row->ids);
        memcpy(row->targets, row->ids + 1, ((size_t)T - 1) * sizeof *row->ids);
        tokens_copy(&v->source->tokens, at + T, 1, &row->targets[T - 1]);
        for (int from = 0, upto; from < T; from = upto) {
                for (upto = from + 1; upto < T && row->ids[upto] != w->separator; upto++)
                        ;
                document(row, from, upto);
        }
}

static void fill_records(const Windows *w, View *v, int64_t k, const Row *row)
{
        const Records *r = &v->source->r;
        Packing *p = &v->pack;
        const int64_t epoch = k / p->n_rows;
        int at = 0, counted = 0;
        packing_epoch(p, w->seed, epoch);
        const int line = p->order[k % p->n_rows];
        for (int i = p->row[line]; i < p->row[line + 1] && !(w->once && epoch); i++) {
                const int places = p->length[p->slot[i]], from = at;
                const uint32_t *id = r->id + r->start[v->which[p->record[p->slot[i]]]];
                for (int t = 0; t < places; t++, at++) {
                        row->ids[at] = (int)(id[t] & ~RECORD_COUNTS);
                        row->targets[at] = id[t + 1] & RECORD_COUNTS
                                                   ? (int)(id[t + 1] & ~RECORD_COUNTS)
                                                   : -1;
                }
                document(row, from, at);
                counted = w->count_padding ? w->pad_to - 1 : 0;
        }
        document(row, at, w->T);
        for (; at < w->T; at++) {
                row->ids[at] = w->pad;
                row->targets[at] = at < counted ? w->pad : -1;
        }
}

void windows_fill(const Windows *w, int64_t step, int micro, int n_micro, int B, int *ids,
                  int *targets, int *documents)
{
        const size_t T = (size_t)w->T;
        for (int b = 0; b < B; b++) {
                const int64_t r = (step * n_micro + micro) * B + b;
                const Row row = { ids + (size_t)b * T, targets + (size_t)b * T,
                                  documents ? documents + (size_t)b * T * 2 : NULL };
                int64_t k;
                const int i = view_of(w, r, &k);
                if (w->view[i].source->records)
                        fill_records(w, &w->view[i], k, &row);
                else
                        fill_window(w, &w->view[i],
                                    w->offset ? w->offset[r] : random_offset(w, i, step, micro, b),
                                    &row);
        }
}

const Source *windows_unit(const Windows *w, int64_t r, int *unit)
{
        int64_t k;
        View *v = &w->view[view_of(w, r, &k)];
        Packing *p = &v->pack;
        const int64_t epoch = k / p->n_rows;
        if (w->once && epoch)
                return NULL;
        packing_epoch(p, w->seed, epoch);
        *unit = v->which[p->record[p->slot[p->row[p->order[k % p->n_rows]]]]];
        return v->source;
}
