/* cmd_embed.c: tgc embed.  Each text gets one vector.  The model's folder says which prompt, text
 * length, pooling and normalisation it gets. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/session/embed_text.h"
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"
#include "../../runtime/weights/npy.h"
#include "prompts.h"
#include "../load/open.h"

typedef struct Embedded {
        int *ids, n, cut;
} Embedded;

typedef struct Texts {
        const Tokenizer *tok;
        const Sentence *how;
        int most; /* tokens of a text */
        Embedded *text;
        int n, cap;
} Texts;

static void texts_free(Texts *t)
{
        for (int i = 0; i < t->n; i++)
                free(t->text[i].ids);
        free(t->text);
}

/* from: where it was read, for messages */
static int add(Texts *t, const char *text, size_t n, const char *from, Err *e)
{
        Err why;
        if (t->n == t->cap) {
                const int cap = t->cap ? 2 * t->cap : 16;
                Embedded *p = realloc(t->text, (size_t)cap * sizeof *p);
                if (!p)
                        return err_set(e, TGC_NO_MEMORY, "no memory for %d texts", cap);
                t->text = p;
                t->cap = cap;
        }
        Embedded *x = &t->text[t->n];
        int code = embed_encode(t->tok, t->how, t->most, text, n, &x->ids, &x->n, &x->cut, &why);
        if (!code && !x->n) {
                free(x->ids);
                code = err_set(&why, TGC_USAGE,
                               "the text is empty, and the tokenizer puts nothing around it");
        }
        if (code)
                return err_set(e, code, "%s: %s", from, why.msg);
        t->n++;
        return TGC_OK;
}

/* A line: a text, or an object with `prompt`, as `tgc run --prompts` reads them. */
static int add_line(void *to, const char *from, const char *text, size_t n, Err *e)
{
        Texts *t = to;
        JsonText in;
        JsonBuf b = { 0 };
        Json o;
        size_t k;
        if (text[strspn(text, " \t")] != '{')
                return add(t, text, n, from, e);
        int code = json_open_line(&in, &o, text, n, from, false, e);
        if (code)
                return code;
        const char *said = json_type(json_get(o, "prompt")) == '"'
                                   ? json_string(json_get(o, "prompt"), &b, &k)
                                   : NULL;
        if (!(code = json_only(o, "prompt", "a text to embed", e)))
                code = said ? add(t, said, k, from, e)
                            : err_set(e, TGC_BAD_FILE, "%s: the object has no `prompt`, a text",
                                      from);
        json_buf_free(&b);
        json_close(&in);
        return code;
}

static int add_lines(Texts *t, const char *file, Err *e)
{
        int code = lines_each(file, add_line, t, e);
        return code || t->n ? code : err_set(e, TGC_BAD_FILE, "%s: no texts", file);
}

static int add_file(Texts *t, const Args *a, const char *file, Err *e)
{
        const bool piped = !strcmp(file, "-");
        const Progress talk = progress_new(a);
        char *text;
        size_t n;
        int code = piped ? read_stdin(&text, &n, e)
                         : file_read_text(file, TOK_MAX_TEXT, &text, &n, e);
        if (code)
                return code;
        n = drop_mark(text, n, piped ? "standard input" : file, &talk);
        if (n > 1 && text[n - 1] == '\n') /* an editor's, which nobody means */
                n -= 1 + (n > 2 && text[n - 2] == '\r');
        code = add(t, text, n, piped ? "standard input" : file, e);
        free(text);
        return code;
}

static int read_texts(Texts *t, const Args *a, Err *e)
{
        const OptionValue *p = &a->v[O_PROMPT];
        const char *file = opt_str(a, O_FILE), *lines = opt_str(a, O_PROMPTS);
        int code = TGC_OK;
        if ((p->n > 0) + (file != NULL) + (lines != NULL) > 1)
                return err_set(e, TGC_USAGE, "embed: give one of --prompt, --file and --prompts");
        if (lines)
                return add_lines(t, lines, e);
        for (int i = 0; i < p->n && !code; i++)
                code = add(t, p->list[i], strlen(p->list[i]), "--prompt", e);
        return p->n ? code : add_file(t, a, file ? file : "-", e);
}

/* ---- output ---- */

static char *row_text(const float *v, int C, const char *between)
{
        enum { MOST = 20 }; /* of a number with what stands before it */
        char *s = malloc((size_t)C * MOST + 1), *to = s;
        for (int i = 0; i < C && s; i++)
                to += snprintf(to, MOST, "%s%.9g", i ? between : "", (double)v[i]);
        return s;
}

static int print_json(const Args *a, const Texts *t, const Sentence *how, const float *v, int C,
                      double seconds, Err *e)
{
        cJSON *o = cJSON_CreateObject(), *list;
        json_add_text(o, "model", a->pos[0], strlen(a->pos[0]));
        cJSON_AddNumberToObject(o, "width", C);
        cJSON_AddStringToObject(o, "pooling", pooling_name[how->pooling]);
        cJSON_AddBoolToObject(o, "normalize", how->unit);
        cJSON_AddNumberToObject(o, "seconds", seconds);
        list = cJSON_AddArrayToObject(o, "embeddings");
        for (int i = 0; i < t->n && list; i++) {
                cJSON *x = cJSON_CreateObject();
                char *numbers = row_text(v + (size_t)i * (size_t)C, C, ","),
                     *all = numbers ? malloc(strlen(numbers) + 3) : NULL;
                if (!all) {
                        free(numbers);
                        cJSON_Delete(x);
                        cJSON_Delete(o);
                        return err_set(e, TGC_NO_MEMORY, "no memory for the JSON");
                }
                sprintf(all, "[%s]", numbers);
                cJSON_AddNumberToObject(x, "tokens", t->text[i].n);
                cJSON_AddNumberToObject(x, "truncated", t->text[i].cut);
                cJSON_AddRawToObject(x, "embedding", all);
                cJSON_AddItemToArray(list, x);
                free(numbers);
                free(all);
        }
        return json_print(o, e);
}

static int write_npy(const char *file, const float *v, int n, int C, Err *e)
{
        NpyOut *out;
        int code = npy_out_open(&out, file, 2, (int64_t[]) { n, C }, e);
        if (code)
                return code;
        if (!(code = npy_out_write(out, v, (size_t)n * (size_t)C, e)))
                return npy_out_commit(out, e);
        npy_out_abort(out);
        return code;
}

static int report(const Args *a, const Texts *t, const Sentence *how, const float *v, int C,
                  double seconds, Err *e)
{
        const char *file = opt_str(a, O_OUT);
        int code = file ? write_npy(file, v, t->n, C, e) : TGC_OK;
        if (code || opt_flag(a, O_JSON))
                return code ? code : print_json(a, t, how, v, C, seconds, e);
        for (int i = 0; i < t->n && !file; i++) {
                char *s = row_text(v + (size_t)i * (size_t)C, C, " ");
                if (!s)
                        return err_set(e, TGC_NO_MEMORY, "no memory for a vector");
                puts(s);
                free(s);
        }
        return TGC_OK;
}

/* ---- all ---- */

static void say_cut(const Args *a, const Texts *t)
{
        Progress talk = progress_new(a);
        int n = 0;
        for (int i = 0; i < t->n; i++)
                n += t->text[i].cut > 0;
        if (n)
                say(&talk, "%d of %d texts are longer than %d tokens and lost their ends\n", n,
                    t->n,
                    t->how->max_tokens && t->how->max_tokens < t->most ? t->how->max_tokens
                                                                       : t->most);
}

/* What the plan says, unless the command line does. */
static int settings(Sentence *how, const Plan *p, const Args *a, Err *e)
{
        int code = embed_settings(how, p, e);
        if (!code && opt_set(a, O_POOLING))
                how->pooling = (Pooling)opt_int(a, O_POOLING);
        if (!code && opt_set(a, O_NORMALIZE))
                how->unit = opt_flag(a, O_NORMALIZE);
        return code;
}

static int embed(const Args *a, Session *s, Texts *t, const Sentence *how, Err *e)
{
        const int C = session_manifest(s)->hidden;
        EmbedText *text = calloc((size_t)t->n, sizeof *text);
        float *v = malloc((size_t)t->n * (size_t)C * sizeof *v);
        double start = clock_s();
        int code = text && v ? TGC_OK
                             : err_set(e, TGC_NO_MEMORY, "no memory for the vectors of %d texts",
                                       t->n);
        for (int i = 0; i < t->n && !code; i++)
                text[i] = (EmbedText) { t->text[i].ids, t->text[i].n };
        if (!code)
                code = session_embed(s, text, t->n, how->pooling, how->unit, v, e);
        if (!code)
                code = report(a, t, how, v, C, clock_s() - start, e);
        free(text);
        free(v);
        return code;
}

int cmd_embed(const Args *a, Err *e)
{
        Loaded l;
        Session *s = NULL;
        Sentence how = { 0 };
        Texts t = { .how = &how };
        char ctx[32] = "0";
        int code = load(&l, a, &(LoadHow) { .mode = BUILD_INFER }, e);
        if (code)
                return code;
        manifest_word(&l.plan, "ctx", ctx, sizeof ctx);
        t.tok = l.tok;
        t.most = opt_int(a, O_CTX) ? opt_int(a, O_CTX) : atoi(ctx);
        if (t.most > atoi(ctx))
                code = err_set(e, TGC_USAGE, "--ctx-size %d: the model takes %s tokens", t.most,
                               ctx);
        if (!code && !l.tok)
                code = err_set(e, TGC_USAGE,
                               "embed: %s has no tokenizer; --tokenizer FILE gives one", a->pos[0]);
        if (!code)
                code = settings(&how, &l.plan, a, e);
        if (!code)
                code = read_texts(&t, a, e);
        if (!code)
                code = open_session(&s, &l.plan, a, SESSION_INFER, WEIGHTS_SEED, "embed", 1, e);
        if (!code) {
                say_random(a, &l);
                say_cut(a, &t);
                code = embed(a, s, &t, &how, e);
        }
        session_close(s);
        texts_free(&t);
        sentence_free(&how);
        loaded_free(&l);
        return code;
}
