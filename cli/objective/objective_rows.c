/* objective_rows.c: packs texts side by side into rows of a batch, and fills the objective's inputs
 * for their tokens. */
#include <stdlib.h>
#include <string.h>
#include "objective.h"

const ObjectiveFacts *aim_facts(const Train *t) { return objective_facts(t->aim.objective); }

static int feed_of(const Train *t, const char *name)
{
        const ObjectiveFacts *f = aim_facts(t);
        for (int i = 0; i < f->n_feeds; i++)
                if (!strcmp(f->feed[i], name))
                        return i;
        return -1;
}

float *aim_feed(const Train *t, const char *name)
{
        const int i = feed_of(t, name);
        return i < 0 ? NULL : t->aim.feed[i];
}

int row_document(FedRow *r, const uint32_t *id, int n, bool whole)
{
        const int from = r->at, places = whole ? n : n - 1;
        for (int i = 0; i < places; i++, r->at++) {
                r->ids[r->at] = (int)(id[i] & ~RECORD_COUNTS);
                r->targets[r->at] = !whole && id[i + 1] & RECORD_COUNTS
                                            ? (int)(id[i + 1] & ~RECORD_COUNTS)
                                            : -1;
                r->documents[2 * r->at] = from;
                r->documents[2 * r->at + 1] = from + places;
        }
        return from;
}

void row_end(FedRow *r, int pad)
{
        for (const int from = r->at; r->at < r->T; r->at++) {
                r->ids[r->at] = pad;
                r->targets[r->at] = -1;
                r->documents[2 * r->at] = from;
                r->documents[2 * r->at + 1] = r->T;
        }
}

FedRow row_begin(const Train *t, int micro, int b)
{
        const size_t at = ((size_t)micro * (size_t)t->B + (size_t)b) * (size_t)t->T;
        return (FedRow) { t->x + at, t->y + at, t->d + 2 * at, 0, t->T };
}

/* Places from .. upto of a row belong to a unit where they count. */
void row_unit(const Train *t, const FedRow *r, int from, int unit)
{
        for (int i = from; i < r->at; i++)
                if (r->targets[i] >= 0)
                        t->aim.unit[r->targets + i - t->y] = unit;
}

int rows_weights(const Train *t, int n_micro, int units, Err *e)
{
        const size_t n = (size_t)n_micro * (size_t)t->B * (size_t)t->T;
        float *weight = aim_feed(t, "weight");
        int *of = calloc((size_t)units + 1, sizeof *of), counted = 0, met = 0;
        if (!of)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d texts", units);
        for (size_t i = 0; i < n; i++)
                if (t->aim.unit[i] >= 0) {
                        met += !of[t->aim.unit[i]]++;
                        counted++;
                }
        for (size_t i = 0; i < n && weight; i++)
                if (t->aim.unit[i] >= 0)
                        weight[i] = (float)((double)counted / met / of[t->aim.unit[i]]);
        free(of);
        return TGC_OK;
}

void row_value(const Train *t, float *v, const FedRow *r, int from, float x)
{
        for (int i = from; v && i < r->at; i++)
                v[r->targets + i - t->y] = x;
}

/* A row: the chosen answer behind its prompt, and the rejected one. */
int rows_of_pairs(Train *t, const Windows *w, int64_t step, int n_micro, Err *e)
{
        float *side = aim_feed(t, "side");
        int units = 0;
        for (int m = 0; m < n_micro; m++)
                for (int b = 0; b < t->B; b++) {
                        FedRow r = row_begin(t, m, b);
                        int which;
                        const Source *s = windows_unit(w, (step * n_micro + m) * t->B + b, &which);
                        for (int k = 0; k < 2 && s; k++) {
                                const uint64_t *start = s->r.start + 2 * which + k;
                                const int from = row_document(&r, s->r.id + start[0],
                                                              (int)(start[1] - start[0]), false);
                                row_unit(t, &r, from, units);
                                for (int i = from; side && i < r.at; i++)
                                        side[r.targets + i - t->y] = r.targets[i] < 0 ? 0
                                                                     : k              ? -1.f
                                                                                      : 1.f;
                        }
                        units += s != NULL;
                        row_end(&r, w->pad);
                }
        return rows_weights(t, n_micro, units, e);
}
