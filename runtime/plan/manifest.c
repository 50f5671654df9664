/* manifest.c: parser of the manifest. */
#include "manifest.h"
#include <stdlib.h>
#include <string.h>
#include "../rt.h"
#include "../util/line_reader.h"
#include "../weights/ck_tensor.h"

#define MAX_ELEMENTS ((uint64_t)1 << 56)

static const struct {
        const char *name;
        size_t size;
} store[] = { [STORE_F32] = { "f32", 4 },
              [STORE_BF16] = { "bf16", 2 },
              [STORE_F16] = { "f16", 2 },
              [STORE_FP8] = { "fp8", 1 } };

static const struct {
        const char *name;
        int n_args;
} init[] = { [INIT_NORMAL] = { "normal", 1 },
             [INIT_UNIFORM] = { "uniform", 2 },
             [INIT_ZEROS] = { "zeros", 0 },
             [INIT_ONES] = { "ones", 0 },
             [INIT_VALUE] = { "value", 1 } };

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

size_t store_size(Store t) { return store[t].size; }

const char *store_name(Store t) { return store[t].name; }

int store_ck(Store t) { return t == STORE_F32 ? CK_F32 : t == STORE_BF16 ? CK_BF16 : CK_F16; }

int param_ck(const Manifest *m, int i)
{
        return m->param[i].blocks ? m->param[i].blocks : store_ck(m->dtype);
}

size_t param_bytes(const Manifest *m, int i)
{
        const int type = param_ck(m, i);
        return m->param[i].count / (size_t)ck_block_values(type) * ck_block_bytes(type);
}

/* "768x3072", or "1" for a scalar. */
static void parse_shape(LineReader *w, Param *p, char *text)
{
        p->count = 1;
        for (char *s = text; s;) {
                char *x = strchr(s, 'x');
                uint64_t d;
                if (x)
                        *x++ = 0;
                if (p->n_dims == MANIFEST_MAX_DIMS || !text_int(s, MAX_ELEMENTS, &d) || d == 0 ||
                    __builtin_mul_overflow(p->count, d, &p->count) || p->count > MAX_ELEMENTS) {
                        line_fail(w, "parameter %.60s: bad shape", p->name);
                        return;
                }
                p->dim[p->n_dims++] = (int64_t)d;
                s = x;
        }
}

/* Blocks of them, in elements of the arena: dtype comes first in the manifest. */
static void parse_blocks(LineReader *w, const Manifest *m, Param *p, int type)
{
        const uint64_t values = (uint64_t)ck_block_values(type), size = store_size(m->dtype);
        p->blocks = type;
        if (p->trainable)
                line_fail(w, "parameter %.60s is in blocks and trainable", p->name);
        if (!p->n_dims || (uint64_t)p->dim[p->n_dims - 1] % values)
                line_fail(w, "parameter %.60s: a row of %lld is no whole number of blocks of %llu",
                          p->name, p->n_dims ? (long long)p->dim[p->n_dims - 1] : 1LL,
                          (unsigned long long)values);
        p->slots = (p->count / values * ck_block_bytes(type) + size - 1) / size;
}

static void parse_param(LineReader *w, Manifest *m)
{
        Param p = { .name = line_need(w, "parameter name"), .init = INIT_ZEROS };
        parse_shape(w, &p, line_need(w, "shape"));
        p.offset = line_int(w, "offset", MAX_ELEMENTS);
        const char *kind = line_need(w, "trainable or frozen");
        p.trainable = !strcmp(kind, "trainable");
        if (!p.trainable && strcmp(kind, "frozen"))
                line_fail(w, "'%.40s' is neither trainable nor frozen", kind);
        const char *name = line_need(w, "initialiser");
        const int blocks = ck_blocks_find(name);
        p.slots = p.count;
        if (blocks >= 0) {
                parse_blocks(w, m, &p, blocks);
                name = line_need(w, "initialiser");
        }
        int k = 0;
        while (k < COUNT(init) && strcmp(init[k].name, name))
                k++;
        if (k == COUNT(init))
                line_fail(w, "unknown initialiser '%.40s'", name);
        else {
                p.init = (InitKind)k;
                for (int i = 0; i < init[k].n_args; i++)
                        p.init_arg[i] = line_real(w, "initialiser's argument");
        }
        line_end(w);
        m->param[m->n_params++] = p;
}

static void parse_rates(LineReader *w, Manifest *m)
{
        const char *name = line_need(w, "parameter name");
        const double rate = line_real(w, "rate"), decay = line_real(w, "weight decay");
        int i = m->n_params;
        while (i > 0 && strcmp(m->param[i - 1].name, name))
                i--;
        if (!i || !(rate >= 0) || !(decay >= 0))
                line_fail(w, "rates of %.60s: %s", name,
                          i ? "numbers from 0 on are wanted" : "there is no such parameter");
        else
                m->param[i - 1].rate = rate, m->param[i - 1].decay = decay;
        line_end(w);
}

static void parse_matrix(LineReader *w, Manifest *m)
{
        ParamMatrix x = { .first = line_int(w, "first element", MAX_ELEMENTS) };
        x.rows = line_int(w, "rows", MAX_ELEMENTS);
        x.cols = line_int(w, "columns", MAX_ELEMENTS);
        x.ld = line_int(w, "distance of rows", MAX_ELEMENTS);
        const uint64_t room = m->n_train > x.first ? m->n_train - x.first : 0;
        if (!x.rows || !x.cols || x.ld < x.cols || x.cols > room ||
            x.rows - 1 > (room - x.cols) / x.ld)
                line_fail(w, "a matrix of %llu x %llu at %llu lies outside of what is trained",
                          (unsigned long long)x.rows, (unsigned long long)x.cols,
                          (unsigned long long)x.first);
        line_end(w);
        m->matrix[m->n_matrices++] = x;
}

static int by_offset(const void *a, const void *b)
{
        const Param *p = *(Param *const *)a, *q = *(Param *const *)b;
        return p->offset < q->offset ? -1 : p->offset > q->offset;
}

static int by_name(const void *a, const void *b)
{
        return strcmp((*(Param *const *)a)->name, (*(Param *const *)b)->name);
}

static void check_params(LineReader *w, Manifest *m, Param **sorted)
{
        for (int i = 0; i < m->n_params; i++) {
                Param *p = sorted[i] = &m->param[i];
                uint64_t end = p->offset + p->slots; /* both below 2^58 */
                if (end > (p->trainable ? m->n_train : m->n_all) ||
                    (!p->trainable && p->offset < m->n_train))
                        line_fail(w, "parameter %.60s lies outside the %s elements", p->name,
                                  p->trainable ? "trainable" : "frozen");
        }
        qsort(sorted, (size_t)m->n_params, sizeof *sorted, by_offset);
        for (int i = 1; i < m->n_params; i++)
                if (sorted[i - 1]->offset + sorted[i - 1]->slots > sorted[i]->offset)
                        line_fail(w, "parameters %.60s and %.60s overlap", sorted[i - 1]->name,
                                  sorted[i]->name);
        qsort(sorted, (size_t)m->n_params, sizeof *sorted, by_name);
        for (int i = 1; i < m->n_params; i++)
                if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
                        line_fail(w, "parameter %.60s is declared twice", sorted[i]->name);
        if (m->n_decay > m->n_train || m->n_train > m->n_all)
                line_fail(w, "params: decayed, trainable and all elements must not shrink");
}

static void parse_mode(LineReader *w, Manifest *m)
{
        const char *s = line_need(w, "mode");
        m->infer = !strcmp(s, "infer") || !strcmp(s, "both");
        m->train = !strcmp(s, "train") || !strcmp(s, "both");
        if (!m->infer && !m->train)
                line_fail(w, "mode '%.20s' is not infer, train or both", s);
}

static void parse_type(LineReader *w, const char *word, Store most, Store *to)
{
        const char *s = line_need(w, word);
        int i = 0;
        while (i <= (int)most && strcmp(store[i].name, s))
                i++;
        if (i > (int)most)
                line_fail(w, "%s '%.20s' is not f32, bf16%s", word, s,
                          most == STORE_FP8 ? ", f16 or fp8" : " or f16");
        else
                *to = (Store)i;
}

static void parse_line(LineReader *w, Manifest *m)
{
        const struct {
                const char *name;
                int *to, max;
        } number[] = { { "vocab", &m->vocab, 1 << 28 },
                       { "ctx", &m->ctx, 1 << 28 },
                       { "batch", &m->batch, TGC_MAX_BATCH },
                       { "chunk", &m->chunk, 1 << 28 },
                       { "documents", &m->documents, 1 << 28 },
                       { "tf32", &m->tf32, 1 },
                       { "fast", &m->fast, 1 },
                       { "act8", &m->act8, 1 },
                       { "act_fp8", &m->act_fp8, 1 << 20 },
                       { "pages", &m->pages, 1 << 24 },
                       { "window", &m->window, 1 << 28 },
                       { "narrow_pages", &m->narrow_pages, 1 << 24 },
                       { "narrow_window", &m->narrow_window, 1 << 28 },
                       { "hidden", &m->hidden, 1 << 28 } };
        char *word = line_need(w, "statement");
        for (int i = 0; i < COUNT(number); i++)
                if (!strcmp(word, number[i].name)) {
                        *number[i].to = (int)line_int(w, word, (uint64_t)number[i].max);
                        line_end(w);
                        return;
                }
        if (!strcmp(word, "param"))
                parse_param(w, m);
        else if (!strcmp(word, "rates"))
                parse_rates(w, m);
        else if (!strcmp(word, "matrix"))
                parse_matrix(w, m);
        else if (!strcmp(word, "params")) {
                m->n_train = line_int(w, "trainable elements", MAX_ELEMENTS);
                m->n_decay = line_int(w, "decayed elements", MAX_ELEMENTS);
                m->n_all = line_int(w, "elements", MAX_ELEMENTS);
                line_end(w);
        } else if (!strcmp(word, "model"))
                m->model = line_rest(w);
        else if (!strcmp(word, "dtype")) {
                parse_type(w, word, STORE_F16, &m->dtype);
                m->cache = m->dtype; /* unless a later line says otherwise */
        } else if (!strcmp(word, "cache"))
                parse_type(w, word, STORE_FP8, &m->cache);
        else if (!strcmp(word, "mode"))
                parse_mode(w, m);
        else if (!strcmp(word, "adapters")) {
                m->n_adapters = (int)line_int(w, "adapters", 256);
                line_end(w);
        } else if (!strcmp(word, "optimizer"))
                m->optimizer = line_rest(w);
        else if (strcmp(word, "map") && strcmp(word, "meta"))
                line_fail(w, "unknown statement '%.60s'; the plan needs a newer program", word);
}

int manifest_parse(Manifest *m, const char *text, size_t size, Err *e)
{
        LineReader w = { .what = "manifest", .e = e };
        *m = (Manifest) { .model = "", .optimizer = "adamw", .documents = -1 };
        if (size > MANIFEST_MAX_TEXT || memchr(text, 0, size))
                return err_set(e, TGC_BAD_FILE, "manifest: %s",
                               size > MANIFEST_MAX_TEXT ? "longer than 256 MiB"
                                                        : "a zero byte in the text");
        size_t n = text_count(text, size, "param") + 1;
        const size_t n_matrices = text_count(text, size, "matrix") + 1;
        m->mem = calloc(1, n * (sizeof *m->param + sizeof m->param) +
                                   n_matrices * sizeof *m->matrix + size + 1);
        if (!m->mem)
                return err_set(e, TGC_NO_MEMORY, "manifest: no memory");
        m->param = m->mem;
        Param **sorted = (Param **)(m->param + n);
        m->matrix = (ParamMatrix *)(sorted + n);
        w.rest = (char *)(m->matrix + n_matrices);
        memcpy(w.rest, text, size);

        if (!line_next(&w) || !line_keyword(&w, "tgc") || line_int(&w, "version", 1) != 1)
                line_fail(&w, "the first line must be 'tgc 1'");
        while (!w.code && line_next(&w))
                parse_line(&w, m);
        if (!w.code)
                check_params(&w, m, sorted);
        if (!w.code && (!(m->infer || m->train) || m->vocab < 1 || m->ctx < 1 || m->batch < 1))
                line_fail(&w, "mode, vocab, ctx and batch must be given");
        if (w.code)
                manifest_free(m);
        return w.code;
}

void manifest_free(Manifest *m)
{
        free(m->mem);
        *m = (Manifest) { 0 };
}

uint64_t manifest_elements(const Manifest *m)
{
        uint64_t n = m->n_all;
        for (int i = 0; i < m->n_params; i++)
                n += m->param[i].count - m->param[i].slots;
        return n;
}

int manifest_param(const Manifest *m, const char *name)
{
        for (int i = 0; i < m->n_params; i++)
                if (!strcmp(m->param[i].name, name))
                        return i;
        return -1;
}
