/* weight_export.c: writes parameters as a checkpoint, one tensor at a time, into one file or
 * several (weight_shards.c). */
#include "weight_map_internal.h"
#include <stdlib.h>
#include <string.h>

static int by_tensor(const void *a, const void *b)
{
        const Piece *x = a, *y = b;
        int c = strcmp(x->entry->name[0], y->entry->name[0]);
        return c ? c : (x->entry > y->entry) - (x->entry < y->entry);
}

/* The tensor's shape: stated, or the target's where only order changes. */
static bool source_shape(const Entry *n, const WeightParam *p, Shape *s)
{
        Box b;

        if (n->rank >= 0) {
                *s = wm_shape(n->rank, n->dim);
                return true;
        }
        if (wm_box(n, p, &b))
                return false;
        *s = b.shape;
        for (int i = 0; i < n->n_steps; i++) {
                const Step *st = &n->step[i];
                /* from rope on a shape stays as it is */
                if (st->op < STEP_ROPE && (st->op != STEP_T || wm_step_shape(st, s)))
                        return false;
        }
        return true;
}

static Affine inverse(const Entry *n)
{
        const Affine by = wm_entry_affine(n);

        return (Affine) { 1 / by.scale, 0 - by.shift / by.scale };
}

static int out_dtype(const WeightParam *p, int dtype)
{
        return ck_dtype_is_float(p->dtype) ? dtype : p->dtype;
}

/* Fill piece[] sorted by tensor, and one CkTensor with its number of pieces per tensor. */
static int plan_export(Export *to, const Name *index, int dtype, Err *e)
{
        const WeightMap *m = to->map;
        const WeightSet *set = to->set;
        Piece *piece = to->piece;
        CkTensor *tensor = to->tensor;
        int n = 0, k = 0;

        for (const Entry *x = m->entry; x < m->entry + m->n; x++) {
                int i = wm_find_param(index, set->n, x->param);
                if (i >= 0)
                        piece[n++] = (Piece) { .entry = x, .param = i };
                else if (!x->optional)
                        return err_set(e, TGC_BAD_FILE,
                                       "%s:%d: error: the model has no parameter %.200s", m->name,
                                       x->line, x->param);
        }
        qsort(piece, (size_t)n, sizeof *piece, by_tensor);
        for (int i = 0; i < n; i++) {
                const Entry *x = piece[i].entry;
                const WeightParam *p = &set->param[piece[i].param];
                CkTensor t = { .name = x->name[0], .dtype = out_dtype(p, dtype) };
                Shape s;
                int rc;

                if (!source_shape(x, p, &s))
                        return err_set(e, TGC_FAIL,
                                       "%s:%d: error: export needs the shape of tensor %.200s: "
                                       "write `%.200s: d0xd1`",
                                       m->name, x->line, t.name, t.name);
                rc = wm_check_entry(m->name, x, p, t.name, s, &piece[i].box, e);
                if (rc)
                        return rc;
                if (!ck_can_convert(t.dtype, p->dtype, inverse(x)))
                        return err_set(
                                e, TGC_FAIL,
                                "%s:%d: error: parameter %.200s is %s, which cannot become %s",
                                m->name, x->line, p->name, ck_dtype_name(p->dtype),
                                ck_dtype_name(t.dtype));
                if (ck_block_values(p->dtype) > 1 &&
                    !wm_box_in_blocks(&piece[i].box, ck_block_values(p->dtype)))
                        return err_set(e, TGC_FAIL,
                                       "%s:%d: error: parameter %.200s is in blocks of %s, which "
                                       "this line would cut",
                                       m->name, x->line, p->name, ck_dtype_name(p->dtype));
                t.rank = s.rank;
                memcpy(t.dim, s.dim, sizeof t.dim);
                t.bytes = (size_t)wm_count(&s) * ck_dtype_size(t.dtype);
                if (k && !strcmp(tensor[k - 1].name, t.name)) {
                        Shape had = wm_shape(tensor[k - 1].rank, tensor[k - 1].dim);
                        if (!wm_same_shape(&had, &s) || tensor[k - 1].dtype != t.dtype)
                                return err_set(
                                        e, TGC_FAIL,
                                        "%s:%d: error: tensor %.200s has another shape or type "
                                        "than it has on line %d",
                                        m->name, x->line, t.name, piece[i - 1].entry->line);
                } else {
                        to->first[k] = i;
                        tensor[k++] = t;
                }
        }
        to->first[k] = n;
        to->n = k;
        return TGC_OK;
}

static uint64_t index_at(const Array *a, int64_t i)
{
        uint64_t v = 0;
        uint32_t w;

        if (!a->p)
                return (uint64_t)(a->base + i);
        if (a->size == 8) {
                memcpy(&v, a->p + (size_t)i * 8, 8);
                return v;
        }
        memcpy(&w, a->p + (size_t)i * 4, 4);
        return w;
}

/* Put one piece's elements where they belong in out; cover[i] is set for
 * elements that have their value. */
static int export_piece(const WeightMap *m, const Piece *x, const WeightParam *p, void *data,
                        const CkTensor *t, unsigned char *out, unsigned char *cover, Err *e)
{
        size_t size = ck_dtype_size(t->dtype);
        int64_t total = (int64_t)(t->bytes / size);
        Array a = { .shape = wm_shape(t->rank, t->dim), .size = total > UINT32_MAX ? 8 : 4 };
        const Affine by = inverse(x->entry);
        unsigned char *flat = 0;
        int rc = TGC_OK;

        if (!wm_array_run(&a, x->entry))
                goto no_memory;
        /* in order and first: straight in */
        if (!a.p && !memchr(cover + a.base, 1, (size_t)x->box.count)) {
                wm_box_move(&x->box, data, p->dtype, out + (size_t)a.base * size, t->dtype, false,
                            by);
                memset(cover + a.base, 1, (size_t)x->box.count);
                goto done;
        }
        flat = malloc((size_t)x->box.count * size);
        if (!flat)
                goto no_memory;
        wm_box_move(&x->box, data, p->dtype, flat, t->dtype, false, by);
        for (int64_t i = 0; i < x->box.count; i++) {
                uint64_t at = index_at(&a, i);

                if (cover[at] && memcmp(out + at * size, flat + (size_t)i * size, size)) {
                        rc = err_set(
                                e, TGC_FAIL,
                                "%s:%d: error: tensor %.200s gets two different values for element "
                                "%llu, one from parameter %.200s",
                                m->name, x->entry->line, t->name, (unsigned long long)at, p->name);
                        goto done;
                }
                memcpy(out + at * size, flat + (size_t)i * size, size);
                cover[at] = 1;
        }
        goto done;
no_memory:
        rc = err_set(e, TGC_NO_MEMORY, "%s: no memory to transform tensor %.200s", m->name,
                     t->name);
done:
        free(flat);
        free(a.own);
        return rc;
}

/* out: the tensor's bytes */
static int make_tensor(const WeightMap *m, const WeightSet *set, const Piece *piece, int n,
                       const CkTensor *t, unsigned char *out, Err *e)
{
        size_t total = t->bytes / ck_dtype_size(t->dtype);
        unsigned char *cover = calloc(total, 1), *hole;
        int rc = TGC_OK;

        if (!cover)
                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory for tensor %.200s", m->name, t->name);
        for (; n && !rc; n--, piece++) {
                const WeightParam *p = &set->param[piece->param];
                void *data = p->data;

                if (set->begin && (rc = set->begin(set->ctx, piece->param, &data, e)))
                        break;
                rc = data ? export_piece(m, piece, p, data, t, out, cover, e)
                          : err_set(e, TGC_FAIL, "%s: parameter %.200s has no values", m->name,
                                    p->name);
                if (set->end) {
                        int rc2 = set->end(set->ctx, piece->param, !rc, rc ? 0 : e);
                        rc = rc ? rc : rc2;
                }
        }
        if (!rc && (hole = memchr(cover, 0, total)))
                rc = err_set(e, TGC_FAIL,
                             "%s: element %zu of tensor %.200s comes from no parameter", m->name,
                             (size_t)(hole - cover), t->name);
        free(cover);
        return rc;
}

/* All bytes of tensor i. */
static int wm_export_make(const Export *x, int i, void *out, Err *e)
{
        return make_tensor(x->map, x->set, x->piece + x->first[i], x->first[i + 1] - x->first[i],
                           &x->tensor[i], out, e);
}

static int export_tensor(const Export *x, int i, SafetensorsOut *o, Err *e)
{
        const CkTensor *t = &x->tensor[i];
        void *out = malloc(t->bytes);
        int rc = out ? wm_export_make(x, i, out, e)
                     : err_set(e, TGC_NO_MEMORY, "%s: no memory for tensor %.200s", x->map->name,
                               t->name);

        if (!rc)
                rc = safetensors_out_write(o, out, t->bytes, e);
        free(out);
        return rc;
}

int wm_export_open(Export *x, const WeightMap *m, const WeightSet *set, int dtype, Err *e)
{
        const size_t most = (size_t)m->n + 1;
        Name *index = 0;
        int rc = TGC_OK;

        *x = (Export) { .map = m, .set = set, .piece = malloc(most * sizeof *x->piece) };
        x->tensor = malloc(most * sizeof *x->tensor);
        x->first = malloc(most * sizeof *x->first);
        if (!x->piece || !x->tensor || !x->first)
                rc = err_set(e, TGC_NO_MEMORY, "%s: no memory", m->name);
        else if (!ck_dtype_is_float(dtype))
                rc = err_set(e, TGC_FAIL, "%s: weights are exported as floating types, not %s",
                             m->name, ck_dtype_name(dtype));
        else
                rc = wm_index_params(m, set, &index, e);
        if (!rc)
                rc = plan_export(x, index, dtype, e);
        free(index);
        if (rc)
                wm_export_close(x);
        return rc;
}

void wm_export_close(Export *x)
{
        free(x->piece);
        free(x->tensor);
        free(x->first);
        *x = (Export) { 0 };
}

int wm_export_file(const Export *x, const int *which, int n, const char *path, const StMeta *meta,
                   int n_meta, Err *e)
{
        CkTensor *tensor = malloc(((size_t)n + 1) * sizeof *tensor);
        SafetensorsOut *o = 0;
        int rc = tensor ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", x->map->name);

        for (int i = 0; i < n && !rc; i++)
                tensor[i] = x->tensor[which ? which[i] : i];
        if (!rc)
                rc = safetensors_out_open(&o, path, tensor, n, meta, n_meta, e);
        for (int i = 0; i < n && !rc; i++) {
                int k = safetensors_out_order(o)[i];
                k = which ? which[k] : k;
                rc = export_tensor(x, k, o, e);
        }
        if (!rc) {
                rc = safetensors_out_commit(o, e);
                o = 0;
        }
        safetensors_out_abort(o);
        free(tensor);
        return rc;
}

int weight_map_export(const WeightMap *m, const WeightSet *set, int dtype, const char *path,
                      const StMeta *meta, int n_meta, Err *e)
{
        Export x;
        int rc = wm_export_open(&x, m, set, dtype, e);

        if (rc)
                return rc;
        rc = wm_export_file(&x, NULL, x.n, path, meta, n_meta, e);
        wm_export_close(&x);
        return rc;
}

struct WeightExport {
        Export x;
};

int weight_export_open(WeightExport **out, const WeightMap *m, const WeightSet *set, int dtype,
                       Err *e)
{
        WeightExport *w = calloc(1, sizeof *w);
        int rc = w ? wm_export_open(&w->x, m, set, dtype, e)
                   : err_set(e, TGC_NO_MEMORY, "%s: no memory", m->name);

        if (rc) {
                free(w);
                w = 0;
        }
        *out = w;
        return rc;
}

int weight_export_count(const WeightExport *w) { return w->x.n; }
const CkTensor *weight_export_tensor(const WeightExport *w, int i) { return &w->x.tensor[i]; }

int weight_export_make(const WeightExport *w, int i, void *out, Err *e)
{
        return wm_export_make(&w->x, i, out, e);
}

void weight_export_close(WeightExport *w)
{
        if (w)
                wm_export_close(&w->x);
        free(w);
}
