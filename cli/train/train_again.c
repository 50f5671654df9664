/* train_again.c: writes and reads OUT_DIR/run.txt, so that `tgc train OUT_DIR --resume` needs no
 * other options.
 *
 * Settings that determine the steps are in the state (train_settings.c).  run.txt has the rest:
 * model, data and device, one line each, NAME VALUE, with absolute paths. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../runtime/util/file.h"
#include "train.h"

char *train_path(const Train *t, const char *name)
{
        return file_join(opt_str(t->a, O_OUT_DIR), name);
}

/* CALLED: what the model was called on the command line, where that is no absolute path. */
static const char NAME[] = "run.txt", MODEL[] = "tgc-train", CALLED[] = "called";
enum { MOST_TEXT = 1 << 20 };

static const OptionId kept[] = { O_INIT_FROM,     O_TRAIN_DATA,  O_VAL_DATA,      O_FIELDS,
                                 O_TEMPLATE,      O_CHAT_KWARGS, O_TOKENIZER,     O_MODEL_FILE,
                                 O_DOCUMENTS,     O_TUNED,       O_BATCH_OFFSETS, O_LUA_TIMEOUT,
                                 O_QUICK_CHECK,   O_DEVICE,      O_GPU,           O_THREADS,
                                 O_LOG_INTERVAL,  O_LOG_CSV,     O_SAMPLE_PROMPT, O_SAMPLE_INTERVAL,
                                 O_SAMPLE_TOKENS, O_EVAL_PROMPT, O_EVAL_SCORE,    O_TENSORBOARD,
                                 O_KEEP,          O_REFERENCE,   O_EMBEDDER,      O_OFFLOAD };
enum { N_KEPT = sizeof kept / sizeof *kept };

const char *train_called(const Train *t)
{
        return t->again_called ? t->again_called : t->a->pos[0];
}

/* ---- writing ---- */

/* One line: a newline is \n, a backslash two. */
static void put_line(FILE *f, const char *name, const char *before, const char *value)
{
        fprintf(f, "%s ", name);
        for (int part = 0; part < 2; part++)
                for (const char *s = part ? value : before; *s; s++)
                        if (*s == '\n')
                                fputs("\\n", f);
                        else if (*s == '\\')
                                fputs("\\\\", f);
                        else
                                fputc(*s, f);
        fputc('\n', f);
}

static void put_path(FILE *f, const char *name, const char *path, bool file)
{
        char here[4096] = "", before[4200] = "";
        const bool chars = !strncmp(path, "char:", 5);
        if (chars)
                path += 5;
        if (file && *path != '/' && (chars || strcmp(path, "char")) && getcwd(here, sizeof here))
                snprintf(before, sizeof before, "%s%s/", chars ? "char:" : "", here);
        else if (chars)
                snprintf(before, sizeof before, "char:");
        put_line(f, name, before, path);
}

int again_keep(const Train *t, Err *e)
{
        const Args *a = t->a;
        char *text = NULL, *path = train_path(t, NAME), value[32];
        size_t n = 0;
        FILE *f = path ? open_memstream(&text, &n) : NULL;
        int code = TGC_OK;
        if (f) {
                put_path(f, MODEL, a->pos[0], file_exists(a->pos[0]) || file_is_dir(a->pos[0]));
                if (*train_called(t) != '/')
                        put_line(f, CALLED, "", train_called(t));
                for (int i = 0; i < N_KEPT; i++) {
                        const OptionInfo *x = &option_info[kept[i]];
                        const OptionValue *v = &a->v[kept[i]];
                        if (!v->set)
                                continue;
                        if (x->kind == OPT_FILE) /* `scratch` is none */
                                put_path(f, x->name, v->s,
                                         strcmp(v->s, kept[i] == O_INIT_FROM  ? "scratch"
                                                      : kept[i] == O_TEMPLATE ? "none"
                                                                              : ""));
                        else if (x->kind == OPT_LIST)
                                for (int k = 0; k < v->n; k++)
                                        put_path(f, x->name, v->list[k],
                                                 kept[i] == O_TRAIN_DATA || kept[i] == O_VAL_DATA);
                        else if (x->kind == OPT_FLAG)
                                put_line(f, x->name, "", v->i ? "1" : "0");
                        else if (x->kind == OPT_INT)
                                snprintf(value, sizeof value, "%lld", (long long)v->i),
                                        put_line(f, x->name, "", value);
                        else
                                put_line(f, x->name, "", v->s);
                }
        }
        if (!f || fclose(f) || !text)
                code = err_set(e, TGC_NO_MEMORY, "no memory for the run's settings");
        else
                code = file_write_atomic(path, text, n, e);
        free(text);
        free(path);
        return code;
}

/* ---- reading ---- */

static void unescape(char *s)
{
        char *to = s;
        for (; *s; s++)
                *to++ = *s != '\\' || !s[1] ? *s : *++s == 'n' ? '\n' : *s;
        *to = 0;
}

/* Lines are added to a log alone, whatever a folder of strangers says. */
static bool is_log(const char *path)
{
        char head[10];
        return file_head(path, head, sizeof head) == sizeof head && !memcmp(head, "step,lr,lo", 10);
}

static int take_line(Train *t, const bool *typed, char *line, const char *path, Err *e)
{
        char *value = strchr(line, ' ');
        if (!value)
                return err_set(e, TGC_BAD_FILE, "%s: '%.60s' has no value", path, line);
        *value++ = 0;
        unescape(value);
        if (!strcmp(line, MODEL) || !strcmp(line, CALLED)) {
                *(*line == *CALLED ? &t->again_called : &t->again_model) = value;
                return TGC_OK;
        }
        for (int i = 0; i < N_KEPT; i++) {
                if (strcmp(option_info[kept[i]].name, line))
                        continue;
                if (typed[i] || (kept[i] == O_LOG_CSV && !is_log(value)))
                        return TGC_OK;
                return option_set(&t->args, kept[i], value, e);
        }
        return err_set(e, TGC_BAD_FILE, "%s: '%.60s' is not a setting of a run", path, line);
}

/* DIR --data FILE --resume, where DIR is a model's folder, and a run of it is gone on with in
 * --out_dir.  If DIR is the run's own, that is meant otherwise. */
static int data_again(const Args *a, Err *e)
{
        const char *dir = a->pos[0];
        char *path = file_join(dir, NAME);
        const int code = path && file_exists(path) && !opt_set(a, O_OUT_DIR)
                                 ? err_set(e, TGC_USAGE,
                                           "train: %s/%s says what the run in it learns from: "
                                           "leave --data out; where its file has moved: tgc train "
                                           "MODEL --data FILE --out_dir %s --resume",
                                           dir, NAME, dir)
                                 : TGC_OK;
        free(path);
        return code;
}

int again_take(Train *t, Err *e)
{
        Args *a = &t->args;
        const char *dir = a->pos[0];
        bool typed[N_KEPT];
        char *path;
        int code = TGC_OK;
        if (!opt_flag(a, O_RESUME) || !file_is_dir(dir))
                return TGC_OK;
        if (opt_set(a, O_TRAIN_DATA))
                return data_again(a, e);
        if (!(path = file_join(dir, NAME)))
                return err_set(e, TGC_NO_MEMORY, "no memory");
        if (!file_exists(path) && opt_set(a, O_OUT_DIR) && strcmp(opt_str(a, O_OUT_DIR), dir)) {
                code = err_set(
                        e, TGC_USAGE,
                        "train: --data is missing; `tgc train %s --resume` goes on with what "
                        "the run in %s learned from",
                        opt_str(a, O_OUT_DIR), opt_str(a, O_OUT_DIR));
        } else if (!file_exists(path)) {
                code = err_set(
                        e, TGC_USAGE,
                        "%s: there is no run.txt, which says how the run was started: tgc train "
                        "MODEL --data FILE --out_dir %s --resume",
                        dir, dir);
        } else if (opt_set(a, O_OUT_DIR) && strcmp(opt_str(a, O_OUT_DIR), dir)) {
                code = err_set(e, TGC_USAGE,
                               "train: a resumed run stays in %s: leave --out_dir out", dir);
        } else if (!(code = file_read_text(path, MOST_TEXT, &t->again_text, NULL, e))) {
                for (int i = 0; i < N_KEPT; i++)
                        typed[i] = opt_set(a, kept[i]);
                for (char *s = strtok(t->again_text, "\n"); s && !code; s = strtok(NULL, "\n"))
                        code = take_line(t, typed, s, path, e);
                if (!code && !t->again_model)
                        code = err_set(e, TGC_BAD_FILE, "%s: no line %s MODEL", path, MODEL);
        }
        if (!code) {
                if (strchr(t->again_model, '/') && !file_exists(t->again_model) &&
                    !file_is_dir(t->again_model))
                        code = err_set(
                                e, TGC_IO,
                                "%s: no such file, and %s was made from it; if it has moved: tgc "
                                "train MODEL --data FILE --out_dir %s --resume",
                                t->again_model, dir, dir);
                a->v[O_OUT_DIR].s = dir;
                a->pos = &t->again_model;
        }
        free(path);
        return code;
}

int again_model(const char *dir, char **model, Err *e)
{
        char *path = file_join(dir, NAME), *text = NULL;
        const size_t n = strlen(MODEL);
        int code = path ? file_read_text(path, MOST_TEXT, &text, NULL, e)
                        : err_set(e, TGC_NO_MEMORY, "no memory");
        *model = NULL;
        for (char *s = code ? NULL : strtok(text, "\n"); s && !*model; s = strtok(NULL, "\n"))
                if (!strncmp(s, MODEL, n) && s[n] == ' ') {
                        unescape(s + n + 1);
                        if (!(*model = strdup(s + n + 1)))
                                code = err_set(e, TGC_NO_MEMORY, "no memory");
                }
        if (!code && !*model)
                code = err_set(e, TGC_BAD_FILE, "%s: no line %s MODEL", path, MODEL);
        free(text);
        free(path);
        return code;
}

void again_free(Train *t, const Args *given)
{
        for (int i = 0; i < N_KEPT; i++)
                if (t->args.v[kept[i]].list != given->v[kept[i]].list)
                        free(t->args.v[kept[i]].list);
        free(t->again_text);
}
