/* weight_geometry.c: applies the transforms and targets of a weight map to shapes and bytes.  It
 * knows no files and no parameter names.
 *
 * A transform runs on an Array: a shape, and either bytes or the statement that element i is index
 * base + i of the source.  Import runs it on the tensor's bytes.  Export runs it on the source's
 * indices, which gives each element of the target its place in the source. */
#include "weight_map_internal.h"
#include <stdlib.h>
#include <string.h>

/* Shapes -------------------------------------------------------------- */

int64_t wm_count(const Shape *s)
{
        int64_t n;
        return ck_count(s->rank, s->dim, &n) ? n : -1;
}

Shape wm_shape(int rank, const int64_t *dim)
{
        Shape s = { .rank = rank };

        for (int i = 0; i < rank; i++)
                s.dim[i] = dim[i];
        return s;
}

bool wm_same_shape(const Shape *a, const Shape *b)
{
        return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

static void drop_first(Shape *s)
{
        s->rank--;
        memmove(s->dim, s->dim + 1, (size_t)s->rank * sizeof *s->dim);
}

/* What a transform makes of a shape; the reason when it cannot be. */
const char *wm_step_shape(const Step *st, Shape *s)
{
        const int64_t *arg = st->u.arg;
        int64_t n = wm_count(s), x;
        int axis;

        switch (st->op) {
        case STEP_T:
                if (s->rank < 2)
                        return "t needs a matrix";
                x = s->dim[s->rank - 1];
                s->dim[s->rank - 1] = s->dim[s->rank - 2];
                s->dim[s->rank - 2] = x;
                return 0;
        case STEP_ROWS:
        case STEP_COLS:
                axis = st->op == STEP_COLS;
                if (s->rank <= axis || arg[1] > s->dim[axis])
                        return axis ? "cols beyond the second axis" : "rows beyond the first axis";
                s->dim[axis] = arg[1] - arg[0];
                return 0;
        case STEP_INDEX:
                if (s->rank < 1 || arg[0] >= s->dim[0])
                        return "index beyond the first axis";
                drop_first(s);
                return 0;
        case STEP_RESHAPE:
                *s = wm_shape(st->n, arg);
                return wm_count(s) == n ? 0 : "reshape changes the number of elements";
        case STEP_GROUP:
                return s->rank < 1 || s->dim[0] % (arg[0] + 2 * arg[1])
                               ? "group: the heads do not divide the first axis"
                               : 0;
        case STEP_ROPE:
        case STEP_UNROPE:
                if (s->rank < 1 || s->dim[0] % arg[0])
                        return "rope: the heads do not divide the first axis";
                x = s->dim[0] / arg[0];
                if (st->n == 2 ? arg[1] > x : x % 2)
                        return "rope: a head has fewer rows than are rotary, or an odd number";
                return 0;
        default: return 0;
        }
}

/* The source's shape taken through all transforms. */
const char *wm_entry_shape(const Entry *n, Shape *s)
{
        const char *why = 0;

        if (wm_count(s) < 1)
                return "the tensor has no elements";
        for (int i = 0; i < n->n_steps && !why; i++)
                why = wm_step_shape(&n->step[i], s);
        return why;
}

Affine wm_entry_affine(const Entry *n)
{
        Affine by = { 1, 0 };

        for (int i = 0; i < n->n_steps; i++) {
                if (n->step[i].op == STEP_SCALE) {
                        by.scale *= n->step[i].u.x;
                        by.shift *= n->step[i].u.x;
                }
                if (n->step[i].op == STEP_ADD)
                        by.shift += n->step[i].u.x;
        }
        return by;
}

bool wm_entry_in_blocks(const Entry *n, Shape s, int values, Entry *out)
{
        *out = *n;
        for (int i = 0; i <= n->n_steps; i++) {
                const Step *st = &n->step[i];
                int64_t *arg = out->step[i].u.arg;

                if (s.rank < 1 || s.dim[s.rank - 1] % values)
                        return false;
                if (i == n->n_steps)
                        break;
                switch (st->op) {
                case STEP_SCALE:
                case STEP_ADD: break;
                case STEP_RESHAPE:
                        if (arg[st->n - 1] % values)
                                return false;
                        arg[st->n - 1] /= values;
                        break;
                case STEP_COLS:
                        if (s.rank == 2 && (arg[0] % values || arg[1] % values))
                                return false;
                        for (int k = 0; k < 2 && s.rank == 2; k++)
                                arg[k] /= values;
                        break;
                default: /* of the first axis, which must not be the last */
                        if (st->op == STEP_T || s.rank == 1)
                                return false;
                }
                if (wm_step_shape(st, &s))
                        return false;
        }
        return true;
}

/* Targets -------------------------------------------------------------- */

const char *wm_box(const Entry *n, const WeightParam *p, Box *b)
{
        *b = (Box) { .rank = p->rank };
        if (n->n_ranges > p->rank)
                return "the target has more brackets than the parameter has axes";
        for (int i = 0; i < p->rank; i++) {
                Axis *a = &b->axis[i];
                const Range *r = &n->range[i];

                b->dim[i] = p->dim[i];
                *a = (Axis) { 0, 1, p->dim[i] };
                if (i < n->n_ranges && r->kind != RANGE_ALL) {
                        if (r->end > p->dim[i])
                                return "the target lies beyond the parameter";
                        *a = (Axis) { r->begin, r->step,
                                      (r->end - r->begin + r->step - 1) / r->step };
                }
                if (i >= n->n_ranges || r->kind != RANGE_ONE)
                        b->shape.dim[b->shape.rank++] = a->len;
        }
        b->count = wm_count(&b->shape);
        return b->count < 1 ? "the parameter has no elements" : 0;
}

/* Do two progressions share an element? */
static bool axes_meet(Axis a, Axis b)
{
        int64_t last_a = a.begin + (a.len - 1) * a.step, last_b = b.begin + (b.len - 1) * b.step;

        if (last_a < b.begin || last_b < a.begin)
                return false;
        if (a.step == b.step)
                return (a.begin - b.begin) % a.step == 0;
        if (a.len > b.len) {
                Axis t = a;
                a = b;
                b = t;
        }
        for (int64_t i = 0; i < a.len; i++) {
                int64_t d = a.begin + i * a.step - b.begin;
                if (d >= 0 && d % b.step == 0 && d / b.step < b.len)
                        return true;
        }
        return false;
}

bool wm_boxes_meet(const Box *a, const Box *b)
{
        for (int i = 0; i < a->rank; i++)
                if (!axes_meet(a->axis[i], b->axis[i]))
                        return false;
        return true;
}

bool wm_box_in_blocks(const Box *b, int values)
{
        if (!b->rank)
                return false;
        const Axis *last = &b->axis[b->rank - 1];
        return last->step == 1 && last->len % values == 0;
}

/* Copy between a box within a parameter and consecutive elements, as few and
 * long runs as the box allows. */
void wm_box_move(const Box *b, unsigned char *param, int param_dtype, unsigned char *flat,
                 int flat_dtype, bool into_param, Affine by)
{
        const size_t ps = ck_block_bytes(param_dtype), pv = (size_t)ck_block_values(param_dtype),
                     fs = ck_block_bytes(flat_dtype), fv = (size_t)ck_block_values(flat_dtype);
        int64_t stride[CK_MAX_RANK], at[CK_MAX_RANK] = { 0 }, run = 1, first = 0;
        int outer = b->rank;

        for (int i = b->rank - 1, n = 1; i >= 0; i--) {
                stride[i] = i == b->rank - 1 ? 1 : stride[i + 1] * b->dim[i + 1];
                first += b->axis[i].begin * stride[i];
                if (n && (b->axis[i].step == 1 || b->axis[i].len == 1)) {
                        run *= b->axis[i].len;
                        outer = i;
                        n = b->axis[i].len == b->dim[i]; /* only whole axes continue the run */
                } else {
                        n = 0;
                }
        }
        for (;;) {
                int64_t off = first;
                int i;

                for (i = 0; i < outer; i++)
                        off += at[i] * b->axis[i].step * stride[i];
                unsigned char *at_param = param + (size_t)off / pv * ps;
                if (into_param)
                        ck_convert_affine(at_param, param_dtype, flat, flat_dtype, (size_t)run, by);
                else
                        ck_convert_affine(flat, flat_dtype, at_param, param_dtype, (size_t)run, by);
                flat += (size_t)run / fv * fs;
                for (i = outer - 1; i >= 0 && ++at[i] == b->axis[i].len; i--)
                        at[i] = 0;
                if (i < 0)
                        break;
        }
}

/* Transforms on data -------------------------------------------------------------- */

/* Write the indices out; elements are then 4 or 8 bytes. */
static bool array_realise(Array *a)
{
        int64_t n = wm_count(&a->shape);

        if (a->p)
                return true;
        a->own = malloc((size_t)n * a->size);
        a->p = a->own;
        if (!a->own)
                return false;
        for (int64_t i = 0; i < n; i++) {
                uint64_t v = (uint64_t)(a->base + i);
                uint32_t w = (uint32_t)v;
                memcpy(a->own + (size_t)i * a->size, a->size == 8 ? (void *)&v : (void *)&w,
                       a->size);
        }
        return true;
}

/* Transpose rows x cols in squares that fit the cache. */
#define TRANSPOSE(T)                                                                           \
        static void transpose_##T(unsigned char *d, const unsigned char *s, int64_t rows,      \
                                  int64_t cols)                                                \
        {                                                                                      \
                for (int64_t i0 = 0; i0 < rows; i0 += 32)                                      \
                        for (int64_t j0 = 0; j0 < cols; j0 += 32)                              \
                                for (int64_t i = i0; i < rows && i < i0 + 32; i++)             \
                                        for (int64_t j = j0; j < cols && j < j0 + 32; j++)     \
                                                memcpy(d + (size_t)(j * rows + i) * sizeof(T), \
                                                       s + (size_t)(i * cols + j) * sizeof(T), \
                                                       sizeof(T));                             \
        }
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)

static void step_t(const Array *a, unsigned char *d)
{
        int64_t cols = a->shape.dim[a->shape.rank - 1], rows = a->shape.dim[a->shape.rank - 2];
        int64_t n = wm_count(&a->shape) / (rows * cols);
        size_t bytes = (size_t)(rows * cols) * a->size;

        for (int64_t i = 0; i < n; i++) {
                const unsigned char *s = a->p + (size_t)i * bytes;
                unsigned char *to = d + (size_t)i * bytes;

                switch (a->size) {
                case 1: transpose_uint8_t(to, s, rows, cols); break;
                case 2: transpose_uint16_t(to, s, rows, cols); break;
                case 4: transpose_uint32_t(to, s, rows, cols); break;
                default: transpose_uint64_t(to, s, rows, cols);
                }
        }
}

static void step_cols(const Array *a, const int64_t *arg, unsigned char *d)
{
        size_t row = (size_t)(wm_count(&a->shape) / a->shape.dim[0]) * a->size,
               el = row / (size_t)a->shape.dim[1];
        size_t n = (size_t)(arg[1] - arg[0]) * el;

        for (int64_t i = 0; i < a->shape.dim[0]; i++)
                memcpy(d + (size_t)i * n, a->p + (size_t)i * row + (size_t)arg[0] * el, n);
}

static void step_rope(const Array *a, const Step *st, unsigned char *d)
{
        int64_t heads = st->u.arg[0], width = a->shape.dim[0] / heads,
                rotary = st->n == 2 ? st->u.arg[1] : width;
        size_t row = (size_t)(wm_count(&a->shape) / a->shape.dim[0]) * a->size;

        for (int64_t h = 0; h < heads; h++)
                for (int64_t i = 0; i < width; i++) {
                        int64_t to = i >= rotary      ? i
                                     : i < rotary / 2 ? 2 * i
                                                      : 2 * (i - rotary / 2) + 1;
                        bool turn = st->op == STEP_ROPE; /* or back */
                        memcpy(d + (size_t)(h * width + (turn ? to : i)) * row,
                               a->p + (size_t)(h * width + (turn ? i : to)) * row, row);
                }
}

static void step_group(const Array *a, const Step *st, unsigned char *d)
{
        int64_t heads = st->u.arg[0], kv = st->u.arg[1], group = heads / kv;
        size_t head = (size_t)(wm_count(&a->shape) / (heads + 2 * kv)) * a->size;

        for (int64_t k = 0; k < kv; k++) {
                memcpy(d, a->p + (size_t)(k * group) * head, (size_t)group * head);
                d += (size_t)group * head;
                for (int64_t part = 0; part < 2; part++, d += head)
                        memcpy(d, a->p + (size_t)(heads + part * kv + k) * head, head);
        }
}

/* Shapes have been checked.  False: no memory. */
static bool array_step(Array *a, const Step *st)
{
        int64_t first = 0;

        switch (st->op) {
        case STEP_ROWS:
        case STEP_INDEX: /* a move of the beginning */
                first = st->u.arg[0] * (wm_count(&a->shape) / a->shape.dim[0]);
                break;
        case STEP_T:
        case STEP_COLS:
        case STEP_GROUP:
        case STEP_UNROPE:
        case STEP_ROPE: {
                unsigned char *d = array_realise(a) ? malloc((size_t)wm_count(&a->shape) * a->size)
                                                    : 0;

                if (!d)
                        return false;
                if (st->op == STEP_T)
                        step_t(a, d);
                else if (st->op == STEP_COLS)
                        step_cols(a, st->u.arg, d);
                else if (st->op == STEP_GROUP)
                        step_group(a, st, d);
                else
                        step_rope(a, st, d);
                free(a->own);
                a->p = a->own = d;
        }
        }
        if (a->p)
                a->p += (size_t)first * a->size;
        else
                a->base += first;
        wm_step_shape(st, &a->shape);
        return true;
}

bool wm_array_run(Array *a, const Entry *n)
{
        for (int i = 0; i < n->n_steps; i++)
                if (!array_step(a, &n->step[i]))
                        return false;
        return true;
}
