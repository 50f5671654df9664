/* state.c: saves a session's parameters, moments and gradients to files, and loads them. */
#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include "../../runtime/util/c_locale.h"
#include "../../runtime/util/file.h"
#include "../../runtime/weights/weight_map.h"
#include "state.h"

static uint64_t largest(const Manifest *m)
{
        uint64_t n = 1;
        for (int i = 0; i < m->n_params; i++)
                n = m->param[i].count > n ? m->param[i].count : n;
        return n;
}

/* ---- state.safetensors: p of every parameter that is trained, and its states ---- */
/* Frozen weights are not there: they come from where the run began, and `frozen` is their hash. */

static const struct {
        const char *prefix;
        Part part;
} kind[] = {
        { "p", PART_MASTER }, { "m", PART_M },       { "v", PART_V },       { "m8", PART_M8 },
        { "v8", PART_V8 },    { "mmax", PART_MMAX }, { "vmax", PART_VMAX }, { "ema", PART_EMA }
};
enum { N_KINDS = sizeof kind / sizeof *kind };

static bool stored(const Session *s, const Param *p, int k)
{
        const int i = (int)(p - session_manifest(s)->param);
        return p->trainable && (k == 0 || session_part_size(s, kind[k].part, i));
}

/* How a kind of a parameter is stored: p as float32, states as they are. */
static CkTensor tensor_of(const Session *s, const Param *p, int k)
{
        const int i = (int)(p - session_manifest(s)->param);
        CkTensor t = { .dtype = CK_F32, .rank = p->n_dims, .bytes = p->count * 4 };
        memcpy(t.dim, p->dim, sizeof p->dim);
        if (!k)
                return t;
        t.bytes = session_part_size(s, kind[k].part, i);
        if (kind[k].part == PART_M8 || kind[k].part == PART_V8)
                t.dtype = CK_U8;
        if (kind[k].part == PART_MMAX || kind[k].part == PART_VMAX) {
                t.rank = 1;
                t.dim[0] = t.bytes / 4;
        }
        return t;
}

/* averaged: weights and their average have changed places. */
static int read_part(Session *s, int k, int param, bool averaged, float *x, Err *e)
{
        const bool ema = kind[k].part == PART_EMA;
        if (averaged ? ema : k == 0)
                return session_param_get(s, param, x, e);
        return session_part_read(s, averaged && k == 0 ? PART_EMA : kind[k].part, param, x, e);
}

/* The list of tensors; names are malloc'd.  which[i] = N_KINDS * parameter + kind. */
static int list_tensors(const Session *s, CkTensor *t, int *which, int *n, Err *e)
{
        const Manifest *m = session_manifest(s);
        *n = 0;
        for (int i = 0; i < m->n_params; i++)
                for (int k = 0; k < N_KINDS; k++) {
                        const Param *p = &m->param[i];
                        size_t len = strlen(p->name) + strlen(kind[k].prefix) + 2;
                        char *name;
                        if (!stored(s, p, k))
                                continue;
                        if (!(name = malloc(len)))
                                return err_set(e, TGC_NO_MEMORY,
                                               "no memory for the names of parameters");
                        snprintf(name, len, "%s.%s", kind[k].prefix, p->name);
                        t[*n] = tensor_of(s, p, k);
                        t[*n].name = name;
                        which[(*n)++] = N_KINDS * i + k;
                }
        return TGC_OK;
}

static int write_tensors(Session *s, SafetensorsOut *out, const CkTensor *t, const int *which,
                         int n, bool averaged, float *x, Err *e)
{
        const int *order = safetensors_out_order(out);
        int code = TGC_OK;
        for (int i = 0; i < n && !code; i++)
                if (!(code = read_part(s, which[order[i]] % N_KINDS, which[order[i]] / N_KINDS,
                                       averaged, x, e)))
                        code = safetensors_out_write(out, x, t[order[i]].bytes, e);
        return code;
}

/* The metadata: signed or not, numbers of 64 bits. */
static const struct {
        const char *key;
        size_t at;
} number[] = { { "accumulation", offsetof(TrainState, accum) },
               { "batch", offsetof(TrainState, batch) },
               { "block", offsetof(TrainState, block) },
               { "frozen", offsetof(TrainState, frozen) },
               { "graph", offsetof(TrainState, graph) },
               { "norms", offsetof(TrainState, norms.n) },
               { "seed", offsetof(TrainState, seed) },
               { "scale_good", offsetof(TrainState, scale.good) },
               { "scale_skipped", offsetof(TrainState, scale.skipped) },
               { "spikes", offsetof(TrainState, norms.row) },
               { "step", offsetof(TrainState, step) },
               { "text", offsetof(TrainState, text) },
               { "tokens", offsetof(TrainState, tokens) } };
/* and doubles */
static const struct {
        const char *key;
        size_t at;
} real[] = { { "best", offsetof(TrainState, best) },
             { "norm", offsetof(TrainState, norms.mean) },
             { "scale", offsetof(TrainState, scale.scale) } };
enum { N_NUMBERS = sizeof number / sizeof *number, N_REALS = sizeof real / sizeof *real };

typedef struct MetaText {
        StMeta meta[N_NUMBERS + N_REALS + 1 + MOST_SETTINGS];
        char text[N_NUMBERS + N_REALS][40];
        int n;
} MetaText;

static void write_meta(const TrainState *st, MetaText *m)
{
        for (int i = 0; i < N_REALS; i++) {
                double x;
                memcpy(&x, (const char *)st + real[i].at, sizeof x);
                c_format(m->text[N_NUMBERS + i], sizeof *m->text, "%.17g", x);
                m->meta[N_NUMBERS + i] = (StMeta) { real[i].key, m->text[N_NUMBERS + i] };
        }
        for (int i = 0; i < N_NUMBERS; i++) {
                uint64_t x;
                memcpy(&x, (const char *)st + number[i].at, sizeof x);
                snprintf(m->text[i], sizeof *m->text, "%llu", (unsigned long long)x);
                m->meta[i] = (StMeta) { number[i].key, m->text[i] };
        }
        m->n = N_NUMBERS + N_REALS;
        for (int i = 0; i < st->n_settings; i++)
                m->meta[m->n++] = st->setting[i];
        m->meta[m->n++] = (StMeta) { SAFETENSORS_HASH, SAFETENSORS_NO_HASH };
}

int state_save(Session *s, const char *path, const TrainState *st, bool averaged, Err *e)
{
        const Manifest *m = session_manifest(s);
        size_t room = (size_t)m->n_params * N_KINDS + 1;
        CkTensor *t = calloc(room, sizeof *t);
        int *which = calloc(room, sizeof *which), n = 0;
        float *x = malloc(largest(m) * sizeof *x);
        SafetensorsOut *out = NULL;
        MetaText meta;
        write_meta(st, &meta);
        int code = t && which && x ? list_tensors(s, t, which, &n, e)
                                   : err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        if (!code && !(code = safetensors_out_open(&out, path, t, n, meta.meta, meta.n, e))) {
                code = write_tensors(s, out, t, which, n, averaged, x, e);
                if (code)
                        safetensors_out_abort(out);
                else
                        code = safetensors_out_commit(out, e);
        }
        for (int i = 0; t && i < n; i++)
                free((char *)t[i].name);
        free(t);
        free(which);
        free(x);
        return code;
}

static int restore(Session *s, const Checkpoint *ck, int k, int param, float *x, Err *e)
{
        const Param *p = &session_manifest(s)->param[param];
        char name[512];
        snprintf(name, sizeof name, "%s.%s", kind[k].prefix, p->name);
        const CkTensor *t = checkpoint_find(ck, name);
        if (!t && !p->trainable) /* but an older tgc's states have them */
                return TGC_OK;
        if (!t && kind[k].part == PART_EMA)
                return err_set(
                        e, TGC_USAGE,
                        "--ema: the run in %s kept no average of its weights; begin anew, or "
                        "take its weights with --init_from",
                        checkpoint_path(ck));
        if (!t)
                return err_set(e, TGC_BAD_FILE,
                               "%s: has no tensor %.200s; was it made with another model?",
                               checkpoint_path(ck), name);
        const CkTensor want = tensor_of(s, p, k);
        if (t->dtype != want.dtype || t->bytes != want.bytes)
                return err_set(e, TGC_BAD_FILE,
                               "%s: %.200s has %zu bytes of %s, the model %zu of %s",
                               checkpoint_path(ck), name, t->bytes, ck_dtype_name(t->dtype),
                               want.bytes, ck_dtype_name(want.dtype));
        memcpy(x, t->data, t->bytes); /* the file's data need not be aligned */
        return k ? session_part_write(s, kind[k].part, param, x, e)
                 : session_param_set(s, param, x, e);
}

static int load_meta(const Checkpoint *ck, TrainState *st, Err *e)
{
        const char *step = checkpoint_meta(ck, "step");
        char *end = "";
        long long n = step ? strtoll(step, &end, 10) : -1;
        if (*end || end == step || n < 0 || n > INT32_MAX)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the metadata has no step; not a state of training",
                               checkpoint_path(ck));
        for (int i = 0; i < N_NUMBERS; i++) {
                const char *v = checkpoint_meta(ck, number[i].key);
                uint64_t x = v ? strtoull(v, NULL, 10) : 0;
                if (v)
                        memcpy((char *)st + number[i].at, &x, sizeof x);
        }
        for (int i = 0; i < N_REALS; i++) {
                const char *v = checkpoint_meta(ck, real[i].key);
                double x = v ? c_strtod(v, NULL) : 0;
                if (v)
                        memcpy((char *)st + real[i].at, &x, sizeof x);
        }
        return TGC_OK;
}

int state_peek(const char *path, TrainState *st, Err *e)
{
        Checkpoint *ck;
        int code = checkpoint_open(&ck, path, e);
        if (code)
                return code;
        code = load_meta(ck, st, e);
        checkpoint_close(ck);
        return code;
}

/* A state with settings has a checksum; an older one may have none. */
int state_check(const char *path, Err *e)
{
        FileMap m;
        bool there;
        int code = file_map(&m, path, e);
        if (code)
                return code;
        code = safetensors_check_hash(m.data, m.size, &there, path, e);
        if (!code && !there && memmem(m.data, m.size < 1 << 16 ? m.size : 1 << 16, "\"run.", 5))
                code = err_set(e, TGC_BAD_FILE, "%s: damaged: its checksum is missing", path);
        file_unmap(&m);
        return code;
}

int state_load(Session *s, const char *path, TrainState *st, Err *e)
{
        const Manifest *m = session_manifest(s);
        Checkpoint *ck;
        int code = checkpoint_open(&ck, path, e);
        if (code)
                return code;
        float *x = malloc(largest(m) * sizeof *x);
        code = x ? load_meta(ck, st, e) : err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        for (int i = 0; i < m->n_params && !code; i++)
                for (int k = 0; k < N_KINDS && !code; k++)
                        if (k == 0 || stored(s, &m->param[i], k))
                                code = restore(s, ck, k, i, x, e);
        free(x);
        checkpoint_close(ck);
        return code;
}

int state_frozen(Session *s, uint64_t *hash, Err *e)
{
        const Manifest *m = session_manifest(s);
        float *x = malloc(largest(m) * sizeof *x);
        int code = x ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for a parameter");
        *hash = 0;
        for (int i = 0; i < m->n_params && !code; i++) {
                const Param *p = &m->param[i];
                if (p->trainable || (code = session_param_get(s, i, x, e)))
                        continue;
                *hash = XXH3_64bits_withSeed(x, p->count * sizeof *x, *hash + (uint64_t)i + 1);
        }
        free(x);
        return code;
}

/* ---- files of one step ---- */

int run_file_next(const char *dir, const char *name, int64_t step, char **path, Err *e)
{
        char next[128];
        snprintf(next, sizeof next, "%.60s.next-%lld", name, (long long)step);
        *path = file_join(dir, next);
        return *path ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
}

/* -1: there is no state, or it is damaged: --resume will say so. */
static int step_of(const char *dir, int64_t *step, Err *e)
{
        char *path = file_join(dir, "state.safetensors");
        TrainState st = { .step = -1 };
        int code = path ? TGC_OK : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (path && file_exists(path) && (code = state_peek(path, &st, e)))
                st.step = -1;
        free(path);
        *step = st.step;
        return code == TGC_BAD_FILE ? TGC_OK : code;
}

int run_file(const char *dir, const char *name, char **path, Err *e)
{
        int64_t step;
        int code = step_of(dir, &step, e);
        *path = NULL;
        if (code || (step >= 0 && (code = run_file_next(dir, name, step, path, e))))
                return code;
        if (*path && file_exists(*path))
                return TGC_OK;
        free(*path);
        return (*path = file_join(dir, name)) ? TGC_OK
                                              : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
}

/* Files of dir whose names begin with NAME.next-: that of the step gets its name, others go. */
static int settle(const char *dir, const char *name, int64_t step, Err *e)
{
        const size_t n = strlen(name);
        int code = TGC_OK;
        DIR *d = opendir(dir);
        if (!d && errno != ENOENT)
                return err_set(e, errno == ENOMEM ? TGC_NO_MEMORY : TGC_IO, "%s: %s", dir,
                               strerror(errno));
        for (struct dirent *x; d && !code && (x = readdir(d));) {
                if (strncmp(x->d_name, name, n) || strncmp(x->d_name + n, ".next-", 6))
                        continue;
                char *from = file_join(dir, x->d_name), *to = file_join(dir, name);
                bool now = step >= 0 && strtoll(x->d_name + n + 6, NULL, 10) == step;
                if (!from || !to)
                        code = err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
                else if (now ? rename(from, to) : unlink(from))
                        code = err_set(e, TGC_IO, "%s: %s", from, strerror(errno));
                free(from);
                free(to);
        }
        if (d)
                closedir(d);
        return code;
}

int run_settle(const char *dir, Err *e)
{
        static const char *const name[] = { "ckpt.safetensors", "model.plan",
                                            "adapter_model.safetensors" };
        int64_t step;
        int code = step_of(dir, &step, e);
        char *adapter = file_join(dir, "adapter");
        if (!code && !adapter)
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        for (int i = 0; i < 3 && !code; i++)
                code = settle(i == 2 ? adapter : dir, name[i], step, e);
        free(adapter);
        return code;
}

/* ---- by checkpoint names: parameters pass through one buffer ---- */

typedef struct Pass {
        Session *s;
        ExportWhat what;
        double scale;
        float *x;
        bool import;
} Pass;

static int pass_begin(void *ctx, int i, void **data, Err *e)
{
        Pass *p = ctx;
        const Param *q = &session_manifest(p->s)->param[i];
        int code = TGC_OK;
        *data = p->x;
        /* what the checkpoint lacks (a new adapter) stays as it is */
        if (p->import)
                return session_param_get(p->s, i, p->x, e);
        if (p->what == EXPORT_WEIGHTS)
                code = session_param_get(p->s, i, p->x, e);
        else if (session_part_size(p->s, PART_GRAD, i))
                code = session_part_read(p->s, PART_GRAD, i, p->x, e);
        else
                memset(p->x, 0, q->count * sizeof *p->x); /* frozen */
        for (uint64_t k = 0; k < q->count && p->scale != 1; k++)
                p->x[k] = (float)(p->x[k] * p->scale);
        return code;
}

static int pass_end(void *ctx, int i, bool ok, Err *e)
{
        Pass *p = ctx;
        if (!p->import || !ok)
                return TGC_OK;
        return session_manifest(p->s)->param[i].blocks
                       ? session_part_write(p->s, PART_WEIGHT, i, p->x, e)
                       : session_param_set(p->s, i, p->x, e);
}

static int run_pass(Pass *pass, const Plan *plan, const char *path, const Checkpoint *from,
                    int dtype, Err *e)
{
        const Manifest *m = session_manifest(pass->s);
        WeightParam *p = calloc((size_t)m->n_params + 1, sizeof *p);
        WeightMap *map = NULL, *names = NULL;
        Place *place = NULL;
        pass->x = malloc(largest(m) * sizeof *pass->x);
        int code = p && pass->x ? plan_weight_map(plan, from, &map, &names, e)
                                : err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        for (int i = 0; i < m->n_params && p; i++) {
                const int blocks = from ? m->param[i].blocks : 0;
                p[i] = (WeightParam) { .name = m->param[i].name,
                                       .dtype = blocks ? blocks : CK_F32,
                                       .rank = m->param[i].n_dims };
                memcpy(p[i].dim, m->param[i].dim, sizeof p[i].dim);
        }
        if (p && from)
                place = param_places(plan, p, m->n_params);
        WeightSet set = { m->n_params, p, pass, pass_begin, pass_end, PASS_OVER };
        static const StMeta meta[] = { { "format", "pt" } };
        if (!code)
                code = from ? weight_map_import(map, from, &set, NULL, e)
                            : weight_map_export(map, &set, dtype, path, meta, 1, e);
        weight_map_free(map);
        weight_map_free(names);
        free(place);
        free(pass->x);
        free(p);
        return code;
}

int export_params(Session *s, const Plan *p, const char *path, ExportWhat what, int ck_dtype,
                  double scale, Err *e)
{
        Pass pass = { .s = s, .what = what, .scale = scale };
        return run_pass(&pass, p, path, NULL, ck_dtype, e);
}

int import_params(Session *s, const Plan *p, const char *path, Err *e)
{
        Pass pass = { .s = s, .import = true };
        Checkpoint *ck;
        char *inside = NULL;
        /* that training left */
        int code = file_is_dir(path) ? run_file(path, "ckpt.safetensors", &inside, e) : TGC_OK;
        if (code)
                return code;
        code = checkpoint_open(&ck, inside && file_exists(inside) ? inside : path, e);
        free(inside);
        if (code)
                return code;
        code = run_pass(&pass, p, path, ck, CK_F32, e);
        checkpoint_close(ck);
        return code;
}

/* ---- into a plan ---- */

int plan_take_weights(Plan *p, Session *s, void **mem, Err *e)
{
        const Manifest *m = session_manifest(s);
        const Program *g = session_program(s);
        int w = program_arena(g, "w"), code = TGC_OK;
        size_t size = w < 0 ? 0 : (size_t)g->arena[w].size;
        *mem = size ? aligned_alloc(4096, (size + 4095) / 4096 * 4096) : NULL;
        if (!*mem)
                return err_set(e, TGC_NO_MEMORY, "no memory for %.3f GB of weights",
                               (double)size / 1e9);
        memset(*mem, 0, size);
        for (int i = 0; i < m->n_params && !code; i++)
                code = session_part_read(s, PART_WEIGHT, i,
                                         (char *)*mem + m->param[i].offset * store_size(m->dtype),
                                         e);
        return code ? code : plan_add(p, "weights", *mem, size, e);
}
