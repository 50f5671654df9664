/* weight_compose.c: composes two weight maps, so that a model can read another kind of file.  The
 * model's map names the tensors of one kind of checkpoint.  The other map says how the file's own
 * tensors make those.  The result makes parameters from the file's tensors directly. */
#include "weight_map_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_rope(const Step *s) { return s->op == STEP_ROPE || s->op == STEP_UNROPE; }

/* Does b undo what a does to a tensor of shape s?  Transposed twice, or turned there and back. */
static bool undoes(const Step *a, const Step *b, const Shape *s)
{
        if (a->op == STEP_T && b->op == STEP_T)
                return true;
        if (!is_rope(a) || !is_rope(b) || a->op == b->op || a->u.arg[0] != b->u.arg[0])
                return false;
        const int64_t width = s->rank ? s->dim[0] / a->u.arg[0] : 0;
        return (a->n == 2 ? a->u.arg[1] : width) == (b->n == 2 ? b->u.arg[1] : width);
}

/* x behind `from`, whose tensor is t: one list of steps, without pairs that do nothing. */
static int put_behind(const WeightMap *m, Entry *x, const Entry *from, const CkTensor *t, Err *e)
{
        const int n_all = from->n_steps + x->n_steps;
        Shape s = wm_shape(t->rank, t->dim), before[2 * MAP_MAX_STEPS + 1] = { s };
        Step step[2 * MAP_MAX_STEPS];
        const char *why = wm_entry_shape(from, &s);
        int n = 0;

        if (!why && x->rank >= 0) {
                const Shape stated = wm_shape(x->rank, x->dim);
                why = wm_same_shape(&s, &stated) ? 0 : "shapes differ";
        }
        if (why) {
                char has[96], makes[96], wants[96] = "another";
                if (x->rank >= 0)
                        ck_shape_text(wants, sizeof wants, x->rank, x->dim);
                return err_set(e, TGC_BAD_FILE,
                               "%s: %s: tensor %.200s is %s, which makes %.200s %s, and the model "
                               "wants %s (line %d of its map)",
                               m->name, why, t->name,
                               ck_shape_text(has, sizeof has, t->rank, t->dim), x->name[0],
                               ck_shape_text(makes, sizeof makes, s.rank, s.dim), wants, x->line);
        }
        for (int i = 0; i < n_all; i++) {
                const Step *st = i < from->n_steps ? &from->step[i] : &x->step[i - from->n_steps];

                if (n && undoes(&step[n - 1], st, &before[n - 1])) {
                        n--;
                        continue;
                }
                step[n] = *st;
                before[n + 1] = before[n];
                /* a step that cannot be is reported by import, with the parameter */
                (void)wm_step_shape(st, &before[++n]);
        }
        if (n > MAP_MAX_STEPS)
                return err_set(e, TGC_BAD_FILE, "%s:%d: error: more than %d transforms of %.200s",
                               m->name, x->line, MAP_MAX_STEPS, t->name);
        memcpy(x->step, step, (size_t)n * sizeof *step);
        x->n_steps = n;
        x->rank = -1;
        x->n_names = 1;
        x->name[0] = from->name[0];
        return TGC_OK;
}

static int by_param(const void *a, const void *b)
{
        return strcmp((*(const Entry *const *)a)->param, (*(const Entry *const *)b)->param);
}

static const Entry *find(const Entry *const *sorted, int n, const char *name)
{
        const Entry key = { .param = name }, *at = &key;
        const Entry *const *hit = n ? bsearch(&at, sorted, (size_t)n, sizeof *sorted, by_param) : 0;
        return hit ? *hit : 0;
}

int weight_map_compose(WeightMap *m, const WeightMap *names, const Checkpoint *ck, Err *e)
{
        const Entry **sorted = malloc(((size_t)names->n + 1) * sizeof *sorted);
        const char **ignore = realloc(m->ignore, ((size_t)m->n_ignore + (size_t)names->n_ignore +
                                                  1) * sizeof *ignore);
        int rc = TGC_OK;

        if (ignore)
                m->ignore = ignore;
        if (!sorted || !ignore) {
                free(sorted);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", m->name);
        }
        for (int i = 0; i < names->n; i++)
                sorted[i] = &names->entry[i];
        qsort(sorted, (size_t)names->n, sizeof *sorted, by_param);
        for (Entry *x = m->entry; x < m->entry + m->n && !rc; x++)
                for (int i = 0; i < x->n_names; i++) {
                        const Entry *from = find(sorted, names->n, x->name[i]);
                        const CkTensor *t = from ? checkpoint_find(ck, from->name[0]) : 0;
                        if (t) {
                                rc = put_behind(m, x, from, t, e);
                                break;
                        }
                }
        for (int i = 0; i < names->n_ignore; i++)
                m->ignore[m->n_ignore++] = names->ignore[i];
        free(sorted);
        return rc;
}
