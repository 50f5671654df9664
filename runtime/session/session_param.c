/* session_param.c: reads and writes parameters in pieces, so that no copy of a whole model is
 * made. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../weights/ck_tensor.h"
#include "../util/parallel.h"
#include "session_impl.h"

enum { CHUNK = 4 << 20, SLICE = 1 << 16 }; /* elements */

static const char *const part_arena[N_PARTS] = { "w",  "p",  "g",    "m",    "v",
                                                 "m8", "v8", "mmax", "vmax", "ema" };
/* ir/optimizer.h has these, too: it is of the compiler. */
enum { STATE_BLOCK = 256, STATE_SMALL = 4096 };

/* As session_part_read gives it. */
static size_t part_elem(const Session *s, Part part)
{
        return part == PART_WEIGHT                  ? store_size(s->m.dtype)
               : part == PART_M8 || part == PART_V8 ? 1
                                                    : 4;
}

/* Are master weights what is in w and 16 bits more? */
static bool is_split(const Session *s) { return program_arena(&s->p, "lo") >= 0; }

static int part_place(const Session *s, Part part)
{
        return program_arena(&s->p, part == PART_MASTER && is_split(s) ? "lo" : part_arena[part]);
}

/* Parameters before this element have gradients in bf16, or, over several micro-steps, sums of them
 * in gsum. */
static uint64_t low_grads(const Session *s)
{
        int a = program_arena(&s->p, "gsum");
        return a < 0 ? 0 : s->p.arena[a].size / 4;
}

static uint64_t blocks(uint64_t n) { return (n + STATE_BLOCK - 1) / STATE_BLOCK; }

static bool has_states8(const Session *s) { return program_arena(&s->p, "m8") >= 0; }

/* Is the part one of those that the parameter's states are kept in? */
static bool keeps_part(const Session *s, Part part, const Param *p)
{
        if (part < PART_M || part == PART_EMA || !has_states8(s))
                return true;
        return (p->count < STATE_SMALL) == (part == PART_M || part == PART_V);
}

/* The first element of a parameter in the arena of a part. */
static uint64_t part_offset(const Session *s, Part part, const Param *p)
{
        uint64_t at = 0;
        if (part == PART_MMAX || part == PART_VMAX)
                return p->offset / STATE_BLOCK;
        if (part < PART_M || !has_states8(s) || part > PART_V)
                return p->offset;
        for (int i = 0; i < s->m.n_params; i++) { /* of the small ones before it */
                const Param *q = &s->m.param[i];
                if (q->trainable && q->count < STATE_SMALL && q->offset < p->offset)
                        at += blocks(q->count) * STATE_BLOCK;
        }
        return at;
}

static uint64_t part_count(Part part, const Param *p)
{
        return part == PART_MMAX || part == PART_VMAX ? blocks(p->count) : p->count;
}

/* Where a parameter's part lies on the device; NULL: there is none. */
static char *part_mem(const Session *s, Part part, int param)
{
        const Param *p = &s->m.param[param];
        bool low = part == PART_GRAD && p->offset < low_grads(s);
        int a = low && s->grads_summed ? program_arena(&s->p, "gsum") : part_place(s, part);
        if (a < 0 || !s->arena[a].mem || (part != PART_WEIGHT && !p->trainable) ||
            !keeps_part(s, part, p))
                return 0;
        uint64_t at = part_offset(s, part, p) * part_elem(s, part);
        if (part == PART_GRAD && !(low && s->grads_summed))
                at -= 2 * (low ? p->offset : low_grads(s));
        if (part == PART_MASTER && is_split(s))
                at /= 2;
        return (char *)s->arena[a].mem + at;
}

static uint64_t small_states(const Session *s)
{
        const Param end = { .offset = UINT64_MAX };
        return part_offset(s, PART_M, &end);
}

/* The arenas must hold what the manifest lays out in them. */
static int check_arenas(const Session *s, Err *e)
{
        for (int part = 0; part < N_PARTS; part++) {
                int a = part_place(s, part);
                uint64_t need = (part == PART_WEIGHT ? s->m.n_all : s->m.n_train) *
                                part_elem(s, part);
                if (part == PART_MMAX || part == PART_VMAX)
                        need = s->m.n_train / STATE_BLOCK * 4;
                if (has_states8(s) && (part == PART_M || part == PART_V))
                        need = small_states(s) * 4;
                if (part == PART_GRAD)
                        need -= low_grads(s) * 2;
                if (part == PART_MASTER && is_split(s))
                        need /= 2;
                if (a >= 0 && s->p.arena[a].size < need)
                        return err_set(e, TGC_BAD_FILE,
                                       "arena %s has %llu bytes, the parameters need %llu: compile "
                                       "the model again",
                                       part_arena[part], (unsigned long long)s->p.arena[a].size,
                                       (unsigned long long)need);
        }
        for (int i = 0; i < s->m.n_params && has_states8(s); i++)
                if (s->m.param[i].trainable && s->m.param[i].offset % STATE_BLOCK)
                        return err_set(
                                e, TGC_BAD_FILE,
                                "parameter %.60s is not aligned to %d elements, as states of 8 "
                                "bits want it",
                                s->m.param[i].name, STATE_BLOCK);
        if (is_split(s) && s->m.dtype != STORE_BF16)
                return err_set(e, TGC_BAD_FILE,
                               "the plan has arena lo, the low halves of float32 weights, and its "
                               "weights are not bf16: compile the model again");
        if (low_grads(s) > s->m.n_train)
                return err_set(e, TGC_BAD_FILE,
                               "arena gsum has %llu gradients, and the parameters have %llu: "
                               "compile the model again",
                               (unsigned long long)low_grads(s), (unsigned long long)s->m.n_train);
        if (s->m.n_all && program_arena(&s->p, "w") < 0)
                return err_set(
                        e, TGC_BAD_FILE,
                        "the plan has parameters but no arena w for them: compile the model again");
        return TGC_OK;
}

/* Before the first write to weights that are the plan's own mapping: copy them. */
static int own_weights(Session *s, Err *e)
{
        int a = program_arena(&s->p, "w"), code;
        void *mem;
        if (!s->arena[a].borrowed)
                return TGC_OK;
        if ((code = dev_alloc(s->d, s->p.arena[a].size, &mem, e)))
                return code;
        memcpy(mem, s->arena[a].mem, s->p.arena[a].size);
        s->arena[a] = (ArenaState) { mem, false, false };
        return session_resolve(s, e);
}

/* ---- raw ---- */

bool session_has_part(const Session *s, Part part)
{
        int a = part_place(s, part);
        return a >= 0 && s->arena[a].mem;
}

size_t session_part_size(const Session *s, Part part, int param)
{
        if (!part_mem(s, part, param))
                return 0;
        return part == PART_WEIGHT ? param_bytes(&s->m, param)
                                   : part_count(part, &s->m.param[param]) * part_elem(s, part);
}

static void join(float *x, const uint16_t *w, const uint16_t *lo, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                uint32_t bits = ((uint32_t)w[i] << 16) + (uint32_t)(int16_t)lo[i];
                memcpy(x + i, &bits, 4);
        }
}

static void split(const float *x, uint16_t *w, uint16_t *lo, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                uint32_t bits;
                memcpy(&bits, x + i, 4);
                w[i] = (uint16_t)((bits + 0x8000) >> 16);
                lo[i] = (uint16_t)bits;
        }
}

static int read_split(Session *s, int param, float *data, Err *e)
{
        const Param *p = &s->m.param[param];
        char *w = part_mem(s, PART_WEIGHT, param), *lo = part_mem(s, PART_MASTER, param);
        uint16_t *half = malloc(2 * CHUNK * sizeof *half);
        int code = half ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory to read %.60s", p->name);
        for (uint64_t at = 0; at < p->count && !code; at += CHUNK) {
                size_t n = p->count - at < CHUNK ? (size_t)(p->count - at) : CHUNK;
                if (!(code = dev_download(s->d, half, w + at * 2, n * 2, e)) &&
                    !(code = dev_download(s->d, half + CHUNK, lo + at * 2, n * 2, e)))
                        join(data + at, half, half + CHUNK, n);
        }
        free(half);
        return code;
}

int session_part_read(Session *s, Part part, int param, void *data, Err *e)
{
        size_t n = session_part_size(s, part, param);
        if (!n)
                return err_set(e, TGC_USAGE, "parameter %.60s has no part %s in this session",
                               s->m.param[param].name, part_arena[part]);
        if (part == PART_MASTER && is_split(s))
                return read_split(s, param, data, e);
        bool low = part == PART_GRAD && s->m.param[param].offset < low_grads(s) && !s->grads_summed;
        int code = dev_download(s->d, data, part_mem(s, part, param), low ? n / 2 : n, e);
        if (low && !code) /* in place, from the end */
                for (size_t i = n / 4; i-- > 0;) {
                        uint16_t half;
                        memcpy(&half, (char *)data + 2 * i, 2);
                        uint32_t bits = (uint32_t)half << 16;
                        memcpy((char *)data + 4 * i, &bits, 4);
                }
        return code;
}

int session_part_write(Session *s, Part part, int param, const void *data, Err *e)
{
        size_t n = session_part_size(s, part, param);
        int code;
        if (!n)
                return err_set(e, TGC_USAGE, "parameter %.60s has no part %s in this session",
                               s->m.param[param].name, part_arena[part]);
        if (part == PART_MASTER && is_split(s))
                return session_param_set(s, param, data, e);
        if (part == PART_WEIGHT && (code = own_weights(s, e)))
                return code;
        return dev_upload(s->d, part_mem(s, part, param), data, n, e);
}

/* ---- as float32 ---- */

int session_param_get(Session *s, int param, float *data, Err *e)
{
        const Param *p = &s->m.param[param];
        if (part_mem(s, PART_MASTER, param))
                return session_part_read(s, PART_MASTER, param, data, e);
        const int type = param_ck(&s->m, param);
        if (type == CK_F32)
                return session_part_read(s, PART_WEIGHT, param, data, e);
        const size_t values = (size_t)ck_block_values(type), bytes = ck_block_bytes(type);
        char *mem = part_mem(s, PART_WEIGHT, param), *raw = malloc(CHUNK / values * bytes);
        int code = mem && raw ? TGC_OK
                              : err_set(e, TGC_NO_MEMORY, "no memory to read %.60s", p->name);
        for (uint64_t at = 0; at < p->count && !code; at += CHUNK) {
                size_t n = p->count - at < CHUNK ? (size_t)(p->count - at) : CHUNK;
                if (!(code = dev_download(s->d, raw, mem + at / values * bytes, n / values * bytes,
                                          e)))
                        ck_convert(data + at, CK_F32, raw, type, n, 1);
        }
        free(raw);
        return code;
}

/* As weights are stored, unless that is float32: raw, and lo of those that are split. */
static void narrow(const Session *s, int param, const float *x, uint16_t *raw, uint16_t *lo,
                   size_t n)
{
        if (is_split(s) && s->m.param[param].trainable)
                split(x, raw, lo, n);
        else if (s->m.dtype != STORE_F32)
                ck_convert(raw, store_ck(s->m.dtype), x, CK_F32, n, 1);
}

/* Elements [at, at+n) of the weight and, if there is one, of the master copy; raw, lo: narrow's. */
static int put(Session *s, int param, uint64_t at, size_t n, const float *x, const uint16_t *raw,
               const uint16_t *lo, Err *e)
{
        char *master = part_mem(s, PART_MASTER, param), *w = part_mem(s, PART_WEIGHT, param);
        int code = !master       ? TGC_OK
                   : is_split(s) ? dev_upload(s->d, master + at * 2, lo, n * 2, e)
                                 : dev_upload(s->d, master + at * 4, x, n * 4, e);
        if (code)
                return code;
        if (s->m.dtype == STORE_F32)
                return dev_upload(s->d, w + at * 4, x, n * 4, e);
        return dev_upload(s->d, w + at * 2, raw, n * 2, e);
}

int session_param_set(Session *s, int param, const float *data, Err *e)
{
        const Param *p = &s->m.param[param];
        if (p->blocks)
                return err_set(e, TGC_USAGE,
                               "parameter %.60s lies in blocks of %s; it cannot be set", p->name,
                               ck_dtype_name(p->blocks));
        uint16_t *raw = malloc(2 * CHUNK * sizeof *raw);
        int code = raw ? own_weights(s, e)
                       : err_set(e, TGC_NO_MEMORY, "no memory to write %.60s", p->name);
        for (uint64_t at = 0; at < p->count && !code; at += CHUNK) {
                size_t n = p->count - at < CHUNK ? (size_t)(p->count - at) : CHUNK;
                narrow(s, param, data + at, raw, raw + CHUNK, n);
                code = put(s, param, at, n, data + at, raw, raw + CHUNK, e);
        }
        free(raw);
        return code;
}

/* ---- at opening ---- */

typedef struct Fill {
        const Session *s;
        int index;
        uint64_t at;
        size_t n;
        float *out;
        uint16_t *raw, *lo;
} Fill;

static void fill_slice(void *ctx, int i)
{
        Fill *f = ctx;
        size_t first = (size_t)i * SLICE, n = f->n - first < SLICE ? f->n - first : SLICE;
        param_init(&f->s->m.param[f->index], f->index, f->s->seed, f->at + first, n,
                   f->out + first);
        narrow(f->s, f->index, f->out + first, f->raw + first, f->lo + first, n);
}

static int fill_elements(Session *s, int i, float *x, uint16_t *raw, Err *e)
{
        const uint64_t count = s->m.param[i].count;
        int code = TGC_OK;
        for (uint64_t at = 0; at < count && !code; at += CHUNK) {
                size_t n = count - at < CHUNK ? (size_t)(count - at) : CHUNK;
                Fill f = { s, i, at, n, x, raw, raw + CHUNK };
                parallel_for((int)((n + SLICE - 1) / SLICE), 16, fill_slice, &f);
                code = put(s, i, at, n, x, raw, raw + CHUNK, e);
        }
        return code;
}

static void fill_slice_blocks(void *ctx, int i)
{
        Fill *f = ctx;
        const Param *p = &f->s->m.param[f->index];
        const size_t values = (size_t)ck_block_values(p->blocks), first = (size_t)i * SLICE,
                     n = f->n - first < SLICE ? f->n - first : SLICE;
        const double std = p->init == INIT_NORMAL    ? p->init_arg[0]
                           : p->init == INIT_UNIFORM ? (p->init_arg[1] - p->init_arg[0]) / sqrt(12)
                                                     : 0.02;
        ck_random_blocks((char *)f->raw + first / values * ck_block_bytes(p->blocks), p->blocks,
                         (f->at + first) / values, n / values, (float)std,
                         f->s->seed * 0x9e3779b1u + (uint64_t)f->index);
}

static int fill_blocks(Session *s, int i, uint16_t *raw, Err *e)
{
        const Param *p = &s->m.param[i];
        const size_t values = (size_t)ck_block_values(p->blocks), bytes = ck_block_bytes(p->blocks);
        int code = TGC_OK;
        for (uint64_t at = 0; at < p->count && !code; at += CHUNK) {
                size_t n = p->count - at < CHUNK ? (size_t)(p->count - at) : CHUNK;
                Fill f = { s, i, at, n, NULL, raw, NULL };
                parallel_for((int)((n + SLICE - 1) / SLICE), 16, fill_slice_blocks, &f);
                code = dev_upload(s->d, part_mem(s, PART_WEIGHT, i) + at / values * bytes, raw,
                                  n / values * bytes, e);
        }
        return code;
}

static int initialise(Session *s, Err *e)
{
        float *x = malloc(CHUNK * sizeof *x);
        uint16_t *raw = malloc(2 * CHUNK * sizeof *raw); /* or blocks, which take less */
        int code = x && raw ? TGC_OK
                            : err_set(e, TGC_NO_MEMORY, "no memory to initialise the parameters");
        for (int i = 0; i < s->m.n_params && !code; i++)
                code = s->m.param[i].blocks ? fill_blocks(s, i, raw, e)
                                            : fill_elements(s, i, x, raw, e);
        free(x);
        free(raw);
        return code;
}

/* Master copies of weights that came with the plan. */
static int fill_masters(Session *s, const char *weights, Err *e)
{
        int a = part_place(s, PART_MASTER);
        if (is_split(s))
                return dev_clear(s->d, s->arena[a].mem, s->p.arena[a].size, e);
        float *x = malloc(CHUNK * sizeof *x);
        int code = x ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for the master weights");
        for (uint64_t at = 0; at < s->m.n_train && !code; at += CHUNK) {
                size_t n = s->m.n_train - at < CHUNK ? (size_t)(s->m.n_train - at) : CHUNK;
                ck_convert(x, CK_F32, weights + at * store_size(s->m.dtype), store_ck(s->m.dtype),
                           n, 1);
                code = dev_upload(s->d, (char *)s->arena[a].mem + at * 4, x, n * 4, e);
        }
        free(x);
        return code;
}

int session_load_weights(Session *s, Err *e)
{
        const Section *w = plan_find(s->plan, "weights");
        int a = program_arena(&s->p, "w"), code = check_arenas(s, e);

        if (code || a < 0)
                return code;
        if (!w)
                return initialise(s, e);
        if (w->size > s->p.arena[a].size || w->size < s->m.n_all * store_size(s->m.dtype))
                return err_set(
                        e, TGC_BAD_FILE,
                        "section weights has %zu bytes, arena w %llu: compile the model again",
                        w->size, (unsigned long long)s->p.arena[a].size);
        if (!s->arena[a].borrowed)
                code = dev_upload(s->d, s->arena[a].mem, w->data, w->size, e);
        if (!code && session_has_part(s, PART_MASTER))
                code = fill_masters(s, w->data, e);
        return code;
}
