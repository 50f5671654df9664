/* weight_import.c: reads parameters from a checkpoint.  All checks come before the first byte is
 * moved. */
#include "weight_map_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "packed.h"

enum { MAX_PER_PARAM = 4096 }; /* entries of one parameter: they are compared in pairs */

static int by_name(const void *a, const void *b)
{
        const Name *x = a, *y = b;
        int c = strcmp(x->name, y->name);
        return c ? c : (x->i > y->i) - (x->i < y->i);
}

static int by_name_alone(const void *a, const void *b)
{
        return strcmp(((const Name *)a)->name, ((const Name *)b)->name);
}

/* The parameters of the set, sorted by name; two of one name are refused. */
int wm_index_params(const WeightMap *m, const WeightSet *set, Name **out, Err *e)
{
        Name *x = malloc(((size_t)set->n + 1) * sizeof *x);

        *out = 0;
        if (!x)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", m->name);
        for (int i = 0; i < set->n; i++)
                x[i] = (Name) { set->param[i].name, i };
        qsort(x, (size_t)set->n, sizeof *x, by_name);
        for (int i = 1; i < set->n; i++)
                if (!strcmp(x[i - 1].name, x[i].name)) {
                        err_set(e, TGC_FAIL, "%s: two parameters are named %.200s", m->name,
                                x[i].name);
                        free(x);
                        return TGC_FAIL;
                }
        *out = x;
        return TGC_OK;
}

int wm_find_param(const Name *index, int n, const char *name)
{
        Name key = { name, 0 };
        const Name *hit = n ? bsearch(&key, index, (size_t)n, sizeof key, by_name_alone) : 0;
        return hit ? hit->i : -1;
}

static int mismatch(const char *file, const Entry *n, const WeightParam *p, const Box *b,
                    const char *source, const Shape *from, const Shape *to, const char *why, Err *e)
{
        char has[96], target[96], before[96], after[96], place[96] = "";

        if (p->place)
                snprintf(place, sizeof place, " (%s)", p->place);
        return err_set(
                e, TGC_BAD_FILE,
                "%.300s: %s: parameter %.150s%s is %s (target %s), tensor %.150s is %s (%s %s)",
                file, why, p->name, place, ck_shape_text(has, sizeof has, p->rank, p->dim),
                ck_shape_text(target, sizeof target, b->shape.rank, b->shape.dim), source,
                ck_shape_text(before, sizeof before, from->rank, from->dim),
                n->n_steps ? "transformed" : "as it is",
                ck_shape_text(after, sizeof after, to->rank, to->dim));
}

int wm_check_entry(const char *file, const Entry *n, const WeightParam *p, const char *source,
                   Shape from, Box *b, Err *e)
{
        Shape to = from;
        const char *why = wm_box(n, p, b);

        if (!why)
                why = wm_entry_shape(n, &to);
        if (!why && !wm_same_shape(&to, &b->shape))
                why = "shapes differ";
        return why ? mismatch(file, n, p, b, source, &from, &to, why, e) : TGC_OK;
}

/* A list of names cut after the first few, for messages. */
typedef struct Names {
        int n;
        size_t used;
        char text[640];
} Names;

static void names_add(Names *l, const char *name)
{
        if (l->n++ < 6 && l->used < sizeof l->text) {
                int k = snprintf(l->text + l->used, sizeof l->text - l->used, "%s%.150s",
                                 l->used ? ", " : "", name);
                l->used += (size_t)k;
        }
}

static const char *names_text(Names *l)
{
        if (l->n > 6 && l->used < sizeof l->text)
                snprintf(l->text + l->used, sizeof l->text - l->used, " and %d more", l->n - 6);
        return l->text;
}

/* t NULL: optional, absent */
typedef struct Job {
        int param;
        const Entry *entry;
        const CkTensor *t;
        Box box;
} Job;

static int by_param(const void *a, const void *b)
{
        const Job *x = a, *y = b;

        if (x->param != y->param)
                return x->param < y->param ? -1 : 1;
        return (x->entry > y->entry) - (x->entry < y->entry);
}

/* Do whole blocks of the tensor become whole blocks of the parameter, as they are? */
static bool stay_blocks(const Entry *x, const CkTensor *t, const Box *b)
{
        const int values = ck_block_values(t->dtype);
        const Affine by = wm_entry_affine(x);
        Entry in_blocks;
        return values > 1 && by.scale == 1 && by.shift == 0 && wm_box_in_blocks(b, values) &&
               wm_entry_in_blocks(x, wm_shape(t->rank, t->dim), values, &in_blocks);
}

/* Fill job[] with the entries that have a parameter, sorted by parameter. */
static int plan_import(const WeightMap *m, const Checkpoint *ck, const WeightSet *set,
                       const Name *index, Job *job, int *n_jobs, Err *e)
{
        Names missing = { 0 };
        int n = 0;

        for (const Entry *x = m->entry; x < m->entry + m->n; x++) {
                Job *j = &job[n];
                const WeightParam *p;
                Shape from;
                int rc;

                *j = (Job) { .param = wm_find_param(index, set->n, x->param), .entry = x };
                if (j->param < 0 && x->optional)
                        continue;
                if (j->param < 0)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s:%d: error: the model has no parameter %.200s", m->name,
                                       x->line, x->param);
                p = &set->param[j->param];
                for (int i = 0; i < x->n_names && !j->t; i++)
                        j->t = checkpoint_find(ck, x->name[i]);
                n++;
                if (!j->t) {
                        const char *why = wm_box(x, p, &j->box);
                        if (why)
                                return err_set(e, TGC_BAD_FILE, "%s:%d: error: %s: %.200s", m->name,
                                               x->line, why, p->name);
                        if (!x->optional)
                                names_add(&missing, x->name[0]);
                        continue;
                }
                from = wm_shape(j->t->rank, j->t->dim);
                if (x->rank >= 0) {
                        Shape stated = wm_shape(x->rank, x->dim);
                        char has[96], wants[96];
                        if (!wm_same_shape(&from, &stated))
                                return err_set(e, TGC_BAD_FILE,
                                               "%s: tensor %.200s is %s, the map wants %s (%s:%d)",
                                               checkpoint_path(ck), j->t->name,
                                               ck_shape_text(has, sizeof has, from.rank, from.dim),
                                               ck_shape_text(wants, sizeof wants, x->rank, x->dim),
                                               m->name, x->line);
                }
                rc = wm_check_entry(checkpoint_path(ck), x, p, j->t->name, from, &j->box, e);
                if (rc)
                        return rc;
                const CkTensor t = ck_as_blocks(j->t, p->dtype);
                if (!ck_can_convert(p->dtype, t.dtype, wm_entry_affine(x)))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: tensor %.200s is %s, parameter %.200s is %s: no "
                                       "conversion (%s:%d)",
                                       checkpoint_path(ck), t.name, ck_dtype_name(t.dtype), p->name,
                                       ck_dtype_name(p->dtype), m->name, x->line);
                if (ck_block_values(p->dtype) > 1 && !stay_blocks(x, &t, &j->box))
                        return err_set(e, TGC_BAD_FILE,
                                       "%s:%d: error: parameter %.200s is in blocks of %s, which "
                                       "this line would cut or change",
                                       m->name, x->line, p->name, ck_dtype_name(p->dtype));
        }
        if (missing.n)
                return err_set(e, TGC_BAD_FILE, "%s: %d tensors of the map are missing: %s",
                               checkpoint_path(ck), missing.n, names_text(&missing));
        qsort(job, (size_t)n, sizeof *job, by_param);
        *n_jobs = n;
        return TGC_OK;
}

/* Every element of parameter p once.  *absent: all of what is not covered is
 * the target of optional entries without a tensor. */
static int check_cover(const WeightMap *m, const WeightParam *p, const Job *job, int n,
                       bool *absent, Names *uncovered, Err *e)
{
        Shape shape = wm_shape(p->rank, p->dim);
        int64_t left = wm_count(&shape), optional = 0;

        if (n > MAX_PER_PARAM)
                return err_set(e, TGC_BAD_FILE,
                               "%s: %d lines for parameter %.200s, the limit is %d", m->name, n,
                               p->name, MAX_PER_PARAM);
        for (int i = 0; i < n; i++) {
                if (!job[i].t) {
                        optional += job[i].box.count;
                        continue;
                }
                left -= job[i].box.count;
                for (int k = 0; k < i; k++)
                        if (job[k].t && wm_boxes_meet(&job[i].box, &job[k].box))
                                return err_set(e, TGC_BAD_FILE,
                                               "%s:%d: error: parameter %.200s is covered twice, "
                                               "from %.200s (line %d) and %.200s",
                                               m->name, job[i].entry->line, p->name, job[k].t->name,
                                               job[k].entry->line, job[i].t->name);
        }
        *absent = left > 0 && optional >= left;
        if (left > 0 && !*absent)
                names_add(uncovered, p->name);
        return TGC_OK;
}

/* The elements of t through the entry's transforms into the box of the parameter at `data`.
 * Blocks are moved as they are, and become elements on the way into the parameter; where that would
 * cut them, all of the tensor becomes float32 first. */
static int import_tensor(const WeightMap *m, const Job *job, const CkTensor *t, void *data,
                         int dtype, Err *e)
{
        const int values = ck_block_values(t->dtype);
        const Entry *entry = job->entry;
        Entry in_blocks;
        Array a = { .shape = wm_shape(t->rank, t->dim),
                    .size = ck_block_bytes(t->dtype),
                    .p = t->data };
        int from = t->dtype;
        bool ok = true;

        if (values > 1 && wm_box_in_blocks(&job->box, values) &&
            wm_entry_in_blocks(entry, a.shape, values, &in_blocks)) {
                a.shape.dim[a.shape.rank - 1] /= values;
                entry = &in_blocks;
        } else if (values > 1) {
                const size_t n = (size_t)wm_count(&a.shape);

                a.size = sizeof(float);
                a.p = a.own = malloc(n * a.size);
                ok = a.own && ck_convert(a.own, CK_F32, t->data, t->dtype, n, 1);
                from = CK_F32;
        }
        ok = ok && wm_array_run(&a, entry);
        if (ok)
                wm_box_move(&job->box, data, dtype, (unsigned char *)(uintptr_t)a.p, from, true,
                            wm_entry_affine(entry));
        free(a.own);
        return ok ? TGC_OK
                  : err_set(e, TGC_NO_MEMORY, "%s: no memory to transform tensor %.200s", m->name,
                            t->name);
}

/* A tensor that others make is decoded first, or becomes blocks. */
static int import_packed(const WeightMap *m, const Job *job, void *data, int dtype, Err *e)
{
        CkTensor plain = ck_as_blocks(job->t, dtype);
        void *mem = malloc(plain.bytes + 1);
        int rc = mem ? ck_unpack(&plain, mem, e)
                     : err_set(e, TGC_NO_MEMORY, "%s: no memory to decode tensor %.200s", m->name,
                               plain.name);
        plain.data = mem;
        if (!rc)
                rc = import_tensor(m, job, &plain, data, dtype, e);
        free(mem);
        return rc;
}

static int import_param(const WeightMap *m, const WeightSet *set, int i, const Job *job, int n,
                        Err *e)
{
        const WeightParam *p = &set->param[i];
        void *data = p->data;
        int rc = TGC_OK;

        if (set->begin && (rc = set->begin(set->ctx, i, &data, e)))
                return rc;
        if (!data)
                rc = err_set(e, TGC_FAIL, "%s: parameter %.200s has no memory to go to", m->name,
                             p->name);
        for (; n && !rc; n--, job++)
                if (job->t)
                        rc = job->t->packed ? import_packed(m, job, data, p->dtype, e)
                                            : import_tensor(m, job, job->t, data, p->dtype, e);
        if (set->end) {
                int rc2 = set->end(set->ctx, i, !rc, rc ? 0 : e);
                rc = rc ? rc : rc2;
        }
        return rc;
}

/* '*' is any run of characters, '?' any one.  Only the last star is tried
 * again, which suffices and keeps the time at length times length. */
static bool glob_match(const char *glob, const char *s)
{
        const char *star = 0, *from = 0;

        while (*s) {
                if (*glob == '*') {
                        star = glob++;
                        from = s;
                } else if (*glob == '?' || *glob == *s) {
                        glob++;
                        s++;
                } else if (star) {
                        glob = star + 1;
                        s = ++from;
                } else {
                        return false;
                }
        }
        while (*glob == '*')
                glob++;
        return !*glob;
}

/* Of a line NAME=OTHER about `name`: OTHER, else NULL. */
static const char *twin_of(const char *line, const char *name)
{
        size_t n = strlen(name);
        return !strncmp(line, name, n) && line[n] == '=' ? line + n + 1 : 0;
}

static bool same_bytes(const CkTensor *a, const CkTensor *b)
{
        return a->data && b->data && a->dtype == b->dtype && a->bytes == b->bytes &&
               !memcmp(a->data, b->data, a->bytes);
}

/* *twin: the tensor that it would have to equal, and does not; else NULL. */
static bool is_ignored(const WeightMap *m, const Checkpoint *ck, const CkTensor *t,
                       const char **twin)
{
        bool named = false;

        *twin = 0;
        for (int i = 0; i < m->n_ignore; i++) {
                const char *other = twin_of(m->ignore[i], t->name);
                const CkTensor *o = other ? checkpoint_find(ck, other) : 0;
                if (glob_match(m->ignore[i], t->name) || (o && same_bytes(t, o)))
                        return true;
                named |= other != 0;
                if (o)
                        *twin = other;
        }
        return named && !*twin;
}

static int differ(const Checkpoint *ck, const char *name, const char *twin, Err *e)
{
        return err_set(e, TGC_BAD_FILE,
                       "%s: %s differs from %s, and the model has one tensor for both; if it has "
                       "two, set \"tie_word_embeddings\": false in config.json",
                       checkpoint_path(ck), name, twin);
}

int weight_map_twins(const WeightMap *m, const Checkpoint *ck, Err *e)
{
        for (int i = 0; i < checkpoint_count(ck); i++) {
                const CkTensor *t = checkpoint_at(ck, i);
                const char *other;
                if (!is_ignored(m, ck, t, &other) && other)
                        return differ(ck, t->name, other, e);
        }
        return TGC_OK;
}

/* A tensor that nothing uses is a part of the model that is left out: another model. */
static int refuse_unused(const WeightMap *m, const Checkpoint *ck, const Job *job, int n_jobs,
                         const char *left_over, Err *e)
{
        int n = checkpoint_count(ck);
        bool *used = calloc((size_t)n + 1, 1);
        Names unused = { 0 };
        const char *twin = 0, *other, *name = 0;

        if (!used)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", m->name);
        for (int i = 0; i < n_jobs; i++)
                if (job[i].t)
                        used[job[i].t - checkpoint_at(ck, 0)] = true;
        for (int i = 0; i < n; i++)
                if (!used[i] && !checkpoint_at(ck, i)->may_go &&
                    !is_ignored(m, ck, checkpoint_at(ck, i), &other)) {
                        names_add(&unused, checkpoint_at(ck, i)->name);
                        if (other) {
                                name = checkpoint_at(ck, i)->name;
                                twin = other;
                        }
                }
        free(used);
        if (name)
                return differ(ck, name, twin, e);
        return unused.n ? err_set(e, TGC_BAD_FILE,
                                  "%s: %d tensor%s that the model does not use: %s; is it of this "
                                  "model?%s",
                                  checkpoint_path(ck), unused.n, unused.n == 1 ? "" : "s",
                                  names_text(&unused), left_over ? left_over : "")
                        : TGC_OK;
}

void weight_report_free(WeightReport *r)
{
        free(r->absent);
        memset(r, 0, sizeof *r);
}

/* first[i] .. first[i+1] are the jobs of parameter i. */
static int check_all(const WeightMap *m, const WeightSet *set, const Job *job, int n_jobs,
                     int *first, WeightReport *r, Err *e)
{
        Names uncovered = { 0 };
        int at = 0, rc = TGC_OK;

        r->absent = malloc(((size_t)set->n + 1) * sizeof *r->absent);
        if (!r->absent)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", m->name);
        for (int i = 0; i < set->n && !rc; i++) {
                bool absent = false;

                first[i] = at;
                while (at < n_jobs && job[at].param == i)
                        at++;
                rc = check_cover(m, &set->param[i], job + first[i], at - first[i], &absent,
                                 &uncovered, e);
                if (!rc && absent)
                        r->absent[r->n_absent++] = set->param[i].name;
        }
        first[set->n] = at;
        if (!rc && uncovered.n)
                rc = err_set(e, TGC_BAD_FILE,
                             "%s: %d parameters get no weights, or not for all their elements: %s",
                             m->name, uncovered.n, names_text(&uncovered));
        return rc;
}

int weight_map_import(const WeightMap *m, const Checkpoint *ck, const WeightSet *set,
                      WeightReport *report, Err *e)
{
        Job *job = malloc(((size_t)m->n + 1) * sizeof *job);
        int *first = malloc(((size_t)set->n + 1) * sizeof *first);
        WeightReport r = { 0 };
        Name *index = 0;
        int n_jobs = 0, rc;

        if (report)
                *report = r;
        if (job && first)
                rc = wm_index_params(m, set, &index, e);
        else
                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory", m->name);
        if (!rc)
                rc = plan_import(m, ck, set, index, job, &n_jobs, e);
        if (!rc)
                rc = check_all(m, set, job, n_jobs, first, &r, e);
        if (!rc)
                rc = refuse_unused(m, ck, job, n_jobs, set->left_over, e);
        for (int i = 0; i < set->n && !rc; i++)
                if (first[i + 1] > first[i])
                        rc = import_param(m, set, i, job + first[i], first[i + 1] - first[i], e);
        if (!rc && report)
                *report = r;
        else
                weight_report_free(&r);
        free(index);
        free(first);
        free(job);
        return rc;
}

int weight_map_blocks(const WeightMap *m, const Checkpoint *ck, const WeightSet *set, int *type,
                      Err *e)
{
        Name *index = 0;
        int rc = wm_index_params(m, set, &index, e);

        for (int i = 0; i < set->n; i++)
                type[i] = -1;
        for (const Entry *x = m->entry; !rc && x < m->entry + m->n; x++) {
                const int i = wm_find_param(index, set->n, x->param);
                const CkTensor *found = 0;
                Box b;

                for (int k = 0; k < x->n_names && !found; k++)
                        found = checkpoint_find(ck, x->name[k]);
                if (i < 0)
                        continue;
                const CkTensor t = found ? ck_as_blocks(found, found->blocks) : (CkTensor) { 0 };
                const bool ok = found && ck_dtype_is_float(t.dtype) &&
                                !wm_box(x, &set->param[i], &b) && stay_blocks(x, &t, &b) &&
                                (type[i] == -1 || type[i] == t.dtype);
                type[i] = ok ? t.dtype : -2;
        }
        free(index);
        return rc;
}

void weight_map_annotate(WeightMap *m, const Checkpoint *ck)
{
        for (Entry *n = m->entry; n < m->entry + m->n; n++) {
                const CkTensor *t = 0;

                for (int i = 0; i < n->n_names && !t; i++)
                        t = checkpoint_find(ck, n->name[i]);
                if (!t || n->rank >= 0)
                        continue;
                n->rank = t->rank;
                memcpy(n->dim, t->dim, sizeof n->dim);
        }
}
