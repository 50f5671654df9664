/* prompts.c: reads the prompts of `tgc run`: -p (repeatable), -f, --prompt-ids or standard input.
 *
 * All prompts are read and turned into ids before anything runs.  Standard input is read for -f -.
 * It is also read if no prompt was given and it is a pipe or a file. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../runtime/util/file.h"
#include "../../runtime/util/json.h"
#include "prompts.h"

enum { PATIENCE_MS = 1000 }; /* until a person is told what is waited for */

static bool stdin_is_piped(void)
{
        struct stat st;
        return !fstat(STDIN_FILENO, &st) &&
               (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISREG(st.st_mode));
}

static int read_piped(const Args *a, char **text, size_t *n, Err *e)
{
        struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
        Progress talk = progress_new(a);
        if (!poll(&p, 1, PATIENCE_MS))
                say(&talk, "reading the prompt from standard input until it ends; -p TEXT gives "
                           "one here\n");
        return read_stdin(text, n, e);
}

/* An editor and echo put a newline at the end that nobody means. */
static void drop_newline(const char *text, size_t *n)
{
        if (*n > 1 && text[*n - 1] == '\n')
                *n -= 1 + (*n > 2 && text[*n - 2] == '\r');
}

int prompts_add(Prompts *p, int *ids, int n, Err *e)
{
        Prompt *list = realloc(p->prompt, (size_t)(p->n + 1) * sizeof *list);
        if (!list) {
                free(ids);
                return err_set(e, TGC_NO_MEMORY, "no memory for the prompts");
        }
        p->prompt = list;
        list[p->n++] = (Prompt) { ids, n, 0 };
        return TGC_OK;
}

/* from: where the text was read, for messages; NULL: --prompt. */
static int add_text(Prompts *p, const Tokenizer *tok, const char *text, size_t n, const char *from,
                    Err *e)
{
        Err why;
        int *ids, k, code = tokenizer_encode(tok, text, n, -1, &ids, &k, &why);
        if (code)
                return err_set(e, code == TGC_BAD_FILE && !from ? TGC_USAGE : code, "%s: %s",
                               from ? from : "--prompt", why.msg);
        if (k)
                return prompts_add(p, ids, k, e);
        free(ids);
        if (n)
                return err_set(e, TGC_USAGE,
                               "%s: the text has no token: none of its characters is in the "
                               "model's vocabulary",
                               from ? from : "--prompt");
        return err_set(
                e, TGC_USAGE,
                "run: the prompt is empty, and the tokenizer puts nothing before a text; leave %s "
                "out to begin anywhere",
                from ? "--file" : "--prompt");
}

/* Without a prompt: what the tokenizer may put before a text, else a new line if there is such a
 * token. */
static int add_none(Prompts *p, const Tokenizer *tok, Err *e)
{
        int *ids, k, code = tokenizer_encode(tok, "", 0, 1, &ids, &k, e);
        if (code)
                return code;
        if (k)
                return prompts_add(p, ids, k, e);
        free(ids);
        if (!add_text(p, tok, "\n", 1, NULL, NULL))
                return TGC_OK;
        return err_set(e, TGC_USAGE,
                       "run: this model needs a prompt: -p TEXT, -f FILE (- is standard input) or "
                       "--prompt-ids");
}

static int read_file(Prompts *p, const Args *a, const Tokenizer *tok, const char *file, Err *e)
{
        const bool piped = !file || !strcmp(file, "-");
        char *text = NULL;
        size_t n = 0;
        int code = piped ? read_piped(a, &text, &n, e)
                         : file_read_text(file, TOK_MAX_TEXT, &text, &n, e);
        const Progress talk = progress_new(a);
        if (code)
                return code;
        n = drop_mark(text, n, piped ? "standard input" : file, &talk);
        drop_newline(text, &n);
        code = !file && !n ? add_none(p, tok, e)
                           : add_text(p, tok, text, n, piped ? "standard input" : file, e);
        free(text);
        return code;
}

int lines_each(const char *file, OnLine *f, void *to, Err *e)
{
        char *text, from[300];
        size_t n, k;
        int code = file_read_text(file, TOK_MAX_TEXT, &text, &n, e), line = 1;
        if (code)
                return code;
        for (size_t at = text_mark(text, n); at < n && !code; at += k + 1, line++) {
                const char *end = memchr(text + at, '\n', n - at); /* a NUL is a byte as others */
                k = end ? (size_t)(end - text) - at : n - at;
                const size_t own = k && text[at + k - 1] == '\r' ? k - 1 : k;
                text[at + own] = 0;
                snprintf(from, sizeof from, "%.200s:%d", file, line);
                if (own)
                        code = f(to, from, text + at, own, e);
        }
        free(text);
        return code;
}

typedef struct Lines {
        Prompts *p;
        const Plan *plan;
        const Tokenizer *tok;
        int vocab;
} Lines;

/* `lora` of an object: an adapter of the plan by its name, or null. */
static int take_adapter(Json name, const char *from, const Plan *plan, int *adapter, Err *e)
{
        JsonBuf b = { 0 };
        char key[32], one[64], all[300] = "";
        size_t n = 0, at = 0;
        *adapter = 0;
        if (!json_type(name) || json_type(name) == 'n')
                return TGC_OK;
        const char *want = json_type(name) == '"' ? json_string(name, &b, &n) : NULL;
        for (int i = 1; want && !*adapter; i++) {
                snprintf(key, sizeof key, "meta adapter %d", i);
                if (!plan || !manifest_word(plan, key, one, sizeof one))
                        break;
                if (strlen(one) == n && !memcmp(one, want, n))
                        *adapter = i;
                if (at < sizeof all)
                        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", at ? ", " : "",
                                               one);
        }
        int code = *adapter ? TGC_OK
                   : !want  ? err_set(e, TGC_BAD_FILE, "%s: `lora` is the name of an adapter", from)
                   : *all   ? err_set(e, TGC_USAGE, "%s: no adapter is called '%.*s'; there are %s",
                                      from, (int)(n < 60 ? n : 60), want, all)
                            : err_set(e, TGC_USAGE,
                                      "%s: `lora` '%.*s': there are no adapters to choose from: "
                                        "give --lora DIR --lora-switch",
                                      from, (int)(n < 60 ? n : 60), want);
        json_buf_free(&b);
        return code;
}

/* A line: a text, or an object with `prompt` (a text) or `prompt_ids`. */
static int add_line(void *to, const char *from, const char *text, size_t n, Err *e)
{
        const Lines *l = to;
        Prompts *p = l->p;
        const Tokenizer *tok = l->tok;
        JsonText in;
        JsonBuf b = { 0 };
        Json o;
        int code;
        if (text[strspn(text, " \t")] != '{')
                return tok ? add_text(p, tok, text, n, from, e)
                           : err_set(e, TGC_USAGE, "%s: a text, and the model has no tokenizer",
                                     from);
        if ((code = json_open_line(&in, &o, text, n, from, false, e)))
                return code;
        const Json prompt = json_get(o, "prompt"), ids = json_get(o, "prompt_ids");
        if ((code = json_only(o, "prompt prompt_ids lora", "a prompt", e))) {
                /* said */
        } else if (json_type(prompt) && json_type(ids)) {
                code = err_set(e, TGC_BAD_FILE, "%s: `prompt` and `prompt_ids`: give one of them",
                               from);
        } else if (json_type(prompt) == '"' && tok) {
                size_t k;
                const char *said = json_string(prompt, &b, &k);
                code = said ? add_text(p, tok, said, k, from, e)
                            : err_set(e, TGC_NO_MEMORY, "no memory for a prompt");
        } else if (json_type(ids) == '[' && json_count(ids)) {
                int *list, k;
                if (!(code = ids_of_list(ids, "prompt_ids", l->vocab, &list, &k, e)))
                        code = prompts_add(p, list, k, e);
        } else {
                code = err_set(e, TGC_BAD_FILE,
                               "%s: the object has no `prompt` (a text%s) and no `prompt_ids` "
                               "(numbers)",
                               from, tok ? "" : ", for which the model has no tokenizer");
        }
        if (!code)
                code = take_adapter(json_get(o, "lora"), from, l->plan,
                                    &p->prompt[p->n - 1].adapter, e);
        json_buf_free(&b);
        json_close(&in);
        return code;
}

/* A prompt each line. */
static int read_lines(Prompts *p, const Args *a, const Plan *plan, const Tokenizer *tok, int vocab,
                      Err *e)
{
        const char *file = opt_str(a, O_PROMPTS);
        Lines l = { p, plan, tok, vocab };
        int code = lines_each(file, add_line, &l, e);
        if (!code && !p->n)
                code = err_set(e, TGC_BAD_FILE, "%s: no prompts", file);
        return code;
}

int prompts_read(Prompts *p, const Args *a, const Plan *plan, const Tokenizer *tok, int vocab,
                 Err *e)
{
        const OptionValue *text = &a->v[O_PROMPT];
        const char *ids = opt_str(a, O_PROMPT_IDS), *file = opt_str(a, O_FILE);
        int code = TGC_OK, *list, n;
        *p = (Prompts) { 0 };
        if ((ids != NULL) + (text->n > 0) + (file != NULL) + (opt_str(a, O_PROMPTS) != NULL) > 1)
                return err_set(e, TGC_USAGE,
                               "run: give one of --prompt, --file, --prompts and --prompt-ids");
        if (opt_str(a, O_PROMPTS))
                return read_lines(p, a, plan, tok, vocab, e);
        if (ids) {
                code = ids_parse(ids, strlen(ids), vocab, "--prompt-ids", &list, &n, e);
                if (code)
                        return code == TGC_BAD_FILE ? TGC_USAGE : code;
                return prompts_add(p, list, n, e);
        }
        if (!tok)
                return err_set(
                        e, TGC_USAGE,
                        "run: %s has no tokenizer: give --prompt-ids 1,2,3 or --tokenizer FILE",
                        a->pos[0]);
        if (file || (!text->n && stdin_is_piped()))
                return read_file(p, a, tok, file, e);
        return prompts_of(p, text, tok, e);
}

int prompts_of(Prompts *p, const OptionValue *text, const Tokenizer *tok, Err *e)
{
        int code = TGC_OK;
        for (int i = 0; i < text->n && !code; i++)
                code = add_text(p, tok, text->list[i], strlen(text->list[i]), NULL, e);
        return text->n ? code : add_none(p, tok, e);
}

void prompts_free(Prompts *p)
{
        for (int i = 0; i < p->n; i++)
                free(p->prompt[i].ids);
        free(p->prompt);
        *p = (Prompts) { 0 };
}
