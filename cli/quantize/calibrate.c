/* calibrate.c: measures importance (imatrix.h).  The model is compiled to one program, `sums`,
 * which returns the sums of squares of each linear's inputs (compiler/passes/input_sums.c).
 * Section `sums` of the plan says which sum belongs to which linear.  It also holds the map from
 * tensors to parameters as it was before linears were merged. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/weights/weight_map.h"
#include "../../runtime/util/file.h"
#include "../export/gguf_write.h"
#include "../load/open.h"

enum { WINDOW = 512 };

/* Of a linear: outputs `sum` and, of experts, `count` of the program. */
typedef struct Linear {
        char *param;
        int sum, count;
        int64_t cols, experts;
} Linear;

/* An output, added up. */
typedef struct Total {
        double *v;
        int64_t n;
} Total;

typedef struct Work {
        const Calibration *how;
        Loaded l;
        Session *s;
        Linear *linear;
        int n;
        Total *total;
        int n_totals;
        char *map;        /* text */
        WeightMap *names; /* of a GGUF file made of the folder, or NULL */
        int *ids, n_ids, windows, window;
} Work;

static void work_free(Work *w)
{
        session_close(w->s);
        loaded_free(&w->l);
        for (int i = 0; i < w->n; i++)
                free(w->linear[i].param);
        for (int i = 0; i < w->n_totals; i++)
                free(w->total[i].v);
        free(w->linear);
        free(w->total);
        free(w->map);
        weight_map_free(w->names);
        free(w->ids);
}

/* ---- the plan ---- */

/* As `tgc eval` would load it. */
static int load_model(Work *w, Args *a, Err *e)
{
        const Calibration *c = w->how;
        char chunk[32], quiet[] = "--quiet";
        char *argv[20];
        int n = 0;
        const struct {
                const char *option, *value;
        } given[] = { { "--data", c->text },
                      { "--ids", c->ids },
                      { "--dtype", c->dtype ? c->dtype : "f32" },
                      { "--device", c->device },
                      { "--threads", c->threads },
                      { "--tokenizer", c->tokenizer },
                      { "--chunk-size", chunk } };
        snprintf(chunk, sizeof chunk, "%d", w->window);
        argv[n++] = (char *)(uintptr_t)c->model;
        for (size_t i = 0; i < sizeof given / sizeof *given; i++)
                if (given[i].value) {
                        argv[n++] = (char *)(uintptr_t)given[i].option;
                        argv[n++] = (char *)(uintptr_t)given[i].value;
                }
        if (c->quiet)
                argv[n++] = quiet;
        const int code = args_parse(a, CMD_EVAL, n, argv, e);
        return code ? code : load(&w->l, a, &(LoadHow) { .mode = BUILD_INFER, .sums = true }, e);
}

/* Section `sums`: lines of linears, then the map's. */
static int read_section(Work *w, Err *e)
{
        const Section *s = plan_find(&w->l.plan, "sums");
        int most = 0, outputs = 0;
        if (!s)
                return err_set(e, TGC_USAGE, "%s: a model with linears is measured, not a plan",
                               w->how->model);
        for (size_t i = 0; i < s->size; i++)
                most += ((const char *)s->data)[i] == '\n';
        char *text = strndup(s->data, s->size);
        w->linear = calloc((size_t)most + 1, sizeof *w->linear);
        for (char *at = text, *next; text && w->linear && at && *at; at = next) {
                Linear x = { 0 };
                char name[512];
                long long cols, experts;
                if ((next = strchr(at, '\n')))
                        *next++ = 0;
                if (!strncmp(at, "map ", 4)) {
                        if (next)
                                next[-1] = '\n';
                        w->map = strdup(at);
                        break;
                }
                if (sscanf(at, "%511s %d %d %lld %lld", name, &x.sum, &x.count, &cols, &experts) !=
                            5 ||
                    !(x.param = strdup(name)))
                        continue;
                x.cols = cols;
                x.experts = experts;
                w->linear[w->n++] = x;
                outputs = x.sum > outputs ? x.sum : outputs;
                outputs = x.count > outputs ? x.count : outputs;
        }
        free(text);
        w->n_totals = outputs + 1;
        w->total = calloc((size_t)w->n_totals, sizeof *w->total);
        if (!w->map || !w->total)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", w->how->model);
        for (int i = 0; i < w->n; i++) {
                const Linear *x = &w->linear[i];
                w->total[x->sum].n = x->experts ? x->experts * x->cols : x->cols;
                if (x->count >= 0)
                        w->total[x->count].n = x->experts;
        }
        for (int i = 0; i < w->n_totals; i++)
                if (!(w->total[i].v = calloc((size_t)w->total[i].n + 1, sizeof(double))))
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory", w->how->model);
        return TGC_OK;
}

/* ---- the text ---- */

static int read_ids(Work *w, const Args *a, Err *e)
{
        const Progress talk = progress_new(a);
        const Calibration *c = w->how;
        char word[32] = "0";
        manifest_word(&w->l.plan, "vocab", word, sizeof word);
        int code = c->ids     ? ids_of_id_file(c->ids, atoi(word), &w->ids, &w->n_ids, e)
                   : w->l.tok ? ids_of_text_file(w->l.tok, c->text, atoi(word), &talk, &w->ids,
                                                 &w->n_ids, e)
                              : err_set(e, TGC_USAGE, "%s has no tokenizer: give --tokenizer FILE",
                                        c->model);
        if (code)
                return code;
        const int ctx = manifest_word(&w->l.plan, "ctx", word, sizeof word) ? atoi(word) : 0;
        if (c->window > ctx)
                return err_set(e, TGC_USAGE, "--window %d: the context is %d", c->window, ctx);
        if (ctx < w->window)
                w->window = ctx;
        if (w->n_ids < w->window)
                w->window = w->n_ids;
        w->windows = w->window ? w->n_ids / w->window : 0;
        return w->windows
                       ? TGC_OK
                       : err_set(e, TGC_BAD_FILE, "%s: no tokens in it", c->ids ? c->ids : c->text);
}

static int add_outputs(Work *w, float *room, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < w->n_totals && !code; i++) {
                Total *t = &w->total[i];
                char name[32];
                snprintf(name, sizeof name, "sum.%d", i);
                code = session_read(w->s, "sums", name, room, (size_t)t->n * sizeof *room, e);
                for (int64_t k = 0; k < t->n && !code; k++)
                        t->v[k] += (double)room[k];
        }
        return code;
}

/* Whole windows; the first token of each is BOS where the model's texts begin so, as in
 * llama.cpp. */
static int run(Work *w, const Args *a, Err *e)
{
        const int bos = w->l.tok && !w->how->ids && tokenizer_adds_bos(w->l.tok)
                                ? tokenizer_bos(w->l.tok)
                                : -1;
        Progress talk = progress_new(a);
        int64_t most = 1;
        for (int i = 0; i < w->n_totals; i++)
                most = w->total[i].n > most ? w->total[i].n : most;
        float *room = malloc((size_t)most * sizeof *room);
        int code = room ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for sums");
        for (int i = 0; i < w->windows && !code && !signal_seen(); i++) {
                int *ids = w->ids + (size_t)i * (size_t)w->window;
                progress_bar(&talk, (double)i / w->windows, "%d of %d windows", i, w->windows);
                if (bos >= 0)
                        ids[0] = bos;
                if ((code = session_write(w->s, "sums", "ids", ids, (size_t)w->window * sizeof *ids,
                                          e)) ||
                    (code = session_run(w->s, "sums", 1, w->window, e)) ||
                    (code = session_sync(w->s, e)))
                        break;
                code = add_outputs(w, room, e);
        }
        progress_bar_end(&talk);
        free(room);
        return code || !signal_seen() ? code : 128 + signal_seen();
}

/* ---- the result ---- */

static const Linear *linear_of(const Work *w, const char *param)
{
        for (int i = 0; i < w->n; i++)
                if (!strcmp(w->linear[i].param, param))
                        return &w->linear[i];
        return NULL;
}

/* Matrix `at` of a tensor, by the name that it has in a GGUF file where that is wanted. */
static int put_sums(const Work *w, Imatrix *m, const char *tensor, int64_t matrices, int64_t at,
                    const double *sum, int64_t cols, double count, Err *e)
{
        WeightLine line;
        for (int i = 0; w->names && weight_map_line(w->names, NULL, i, &line); i++)
                if (!strcmp(line.param, tensor)) {
                        const bool stacked = line.from >= 0;
                        return imatrix_put(m, line.name, stacked ? line.of : matrices,
                                           stacked ? line.from : at, sum, cols, count, e);
                }
        return imatrix_put(m, tensor, matrices, at, sum, cols, count, e);
}

/* What a line of the map says of a tensor's columns. */
static int put_line(const Work *w, Imatrix *m, const WeightLine *line, Err *e)
{
        const Linear *x = linear_of(w, line->param);
        const CkTensor *t = line->tensor;
        if (!x || !t || t->rank < 2 ||
            (t->dim[t->rank - 1] != x->cols && t->dim[t->rank - 2] != x->cols))
                return TGC_OK;
        const Total *sum = &w->total[x->sum];
        const int64_t matrices = t->rank > 2 ? t->dim[0] : 1;
        const bool whole = x->experts && line->to < 0;
        int code = TGC_OK;
        for (int64_t i = 0; i < (whole ? x->experts : 1) && !code; i++) {
                const int64_t expert = whole        ? i
                                       : x->experts ? line->to
                                                    : 0,
                              at = whole             ? i
                                   : line->from >= 0 ? line->from
                                                     : 0;
                if (expert >= x->experts && x->experts)
                        break;
                code = put_sums(w, m, t->name, matrices, at, sum->v + expert * x->cols, x->cols,
                                x->experts ? w->total[x->count].v[expert]
                                           : (double)w->windows * w->window,
                                e);
        }
        return code;
}

/* Of a folder that no GGUF file can be made of, tensors keep their names. */
static int find_names(Work *w, const Args *a, Err *e)
{
        Progress talk = progress_new(a);
        char *text = NULL;
        Err why;
        int code = gguf_names_of_folder(w->how->model, &text, &why);
        if (!code)
                code = weight_map_parse(&w->names, text, "names", e);
        else if (code == TGC_NO_MEMORY)
                *e = why;
        else
                say(&talk, "%s; its tensors are called as in the folder\n", why.msg);
        free(text);
        return code == TGC_BAD_FILE ? TGC_OK : code;
}

static int result(const Work *w, Imatrix **out, Err *e)
{
        Checkpoint *ck = NULL;
        WeightMap *map = NULL, *names = NULL;
        WeightLine line;
        int code = checkpoint_open(&ck, w->how->model, e);
        if (!code)
                code = weight_map_for(w->map, ck, &map, &names, e);
        if (!code)
                code = imatrix_new(out, w->how->text ? w->how->text : w->how->ids, w->windows,
                                   w->window, e);
        for (int i = 0; !code && weight_map_line(map, ck, i, &line); i++)
                code = put_line(w, *out, &line, e);
        weight_map_free(map);
        weight_map_free(names);
        checkpoint_close(ck);
        return code;
}

int imatrix_measure(Imatrix **out, const Calibration *c, Err *e)
{
        Work w = { .how = c, .window = c->window ? c->window : WINDOW };
        Args a = { 0 };
        *out = NULL;
        int code = load_model(&w, &a, e);
        if (!code && !(code = read_section(&w, e)) && !(code = read_ids(&w, &a, e)))
                code = open_session(&w.s, &w.l.plan, &a, SESSION_INFER, WEIGHTS_SEED, "sums", 0, e);
        if (!code) {
                say_random(&a, &w.l);
                signals_defer();
                code = run(&w, &a, e);
        }
        if (!code && c->gguf_names && file_is_dir(c->model))
                code = find_names(&w, &a, e);
        if (!code)
                code = result(&w, out, e);
        if (code) {
                imatrix_close(*out);
                *out = NULL;
        }
        work_free(&w);
        args_free(&a);
        return code;
}

int imatrix_calibrate(Imatrix **out, const Args *a, Err *e)
{
        const Calibration c = { .model = a->pos[0],
                                .text = opt_str(a, O_CALIBRATE),
                                .gguf_names = is_gguf_type(opt_str(a, O_TYPE)),
                                .quiet = opt_flag(a, O_QUIET) };
        return imatrix_measure(out, &c, e);
}
