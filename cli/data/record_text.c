/* record_text.c: turns one record into ids, and marks which of them are targets.
 *
 * Conversations go through the chat template.  If the template has {% generation %}, that marks the
 * answers.  If not, an answer begins where the messages before it, rendered with the generation
 * prompt, end; it ends where the text that includes it ends.  Each such rendering must be a
 * beginning of the whole text, and its ids a beginning of the whole text's ids.  A record that
 * breaks this rule is refused: the model would learn something else than it is asked for later. */
#include <stdlib.h>
#include <string.h>
#include "record_text.h"

/* ---- ids ---- */

static int room(Records *r, size_t ids, const char *where, Err *e)
{
        if (r->n + 2 > r->cap) {
                const int64_t cap = r->cap ? 2 * r->cap : 256;
                uint64_t *start = realloc(r->start, (size_t)cap * sizeof *start);
                if (!start)
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory", where);
                if (!r->cap)
                        start[0] = 0;
                r->start = start;
                r->cap = cap;
        }
        const uint64_t need = r->start[r->n] + ids;
        if (need > r->cap_ids) {
                const uint64_t cap = need * 2 + 1024;
                uint32_t *id = realloc(r->id, cap * sizeof *id);
                if (!id)
                        return err_set(e, TGC_NO_MEMORY, "%s: no memory", where);
                r->id = id;
                r->cap_ids = cap;
        }
        return TGC_OK;
}

static int encode(Reader *x, const char *s, size_t n, int bos, int **ids, int *k, Err *e)
{
        return ids_of_text(x->how->tok, s, n, bos, x->how->vocab, x->where, ids, k, e);
}

/* How many of the ids are those of the text's first n bytes. */
static int ids_before(Reader *x, const char *s, size_t n, int bos, const int *ids, int all, int *k,
                      Err *e)
{
        int *own;
        int code = encode(x, s, n, bos, &own, k, e);
        if (code)
                return code;
        if (*k > all || memcmp(own, ids, (size_t)*k * sizeof *ids))
                code = err_set(e, TGC_BAD_FILE,
                               "%s: an answer begins or ends inside a token (byte %zu of the "
                               "rendered text), so prompt and answer cannot be told apart",
                               x->where, n);
        free(own);
        return code;
}

/* The text's ids as a record; spans of bytes count.  end: this id behind them, or -1. */
static int add(Reader *x, const char *s, size_t n, int bos, int end, Err *e)
{
        const int first_bos = tokenizer_bos(x->how->tok);
        int *ids, k, code = encode(x, s, n, bos, &ids, &k, e), counted = 0;
        if (code)
                return code;
        if ((code = room(x->r, (size_t)k + 1, x->where, e))) {
                free(ids);
                return code;
        }
        uint32_t *to = x->r->id + x->r->start[x->r->n];
        for (int i = 0; i < k; i++)
                to[i] = (uint32_t)ids[i];
        for (int i = 0; i < x->n_spans && !code; i++) {
                int from = 0, upto = k;
                const size_t a = x->span[2 * i], b = x->span[2 * i + 1];
                if (a && (code = ids_before(x, s, a, bos, ids, k, &from, e)))
                        break;
                if (b < n && (code = ids_before(x, s, b, bos, ids, k, &upto, e)))
                        break;
                for (int j = from; j < upto; j++)
                        to[j] |= RECORD_COUNTS;
        }
        if (!code && end >= 0)
                to[k++] = (uint32_t)end | RECORD_COUNTS;
        for (int i = 1; i < k; i++)
                counted += (to[i] & RECORD_COUNTS) != 0;
        if (!code && !k)
                code = err_set(e, TGC_BAD_FILE, "%s: the prompt is empty: it has no token",
                               x->where);
        if (!code && !counted && !(x->how->kind == RECORDS_PROMPTS && !x->n_spans))
                code = err_set(e, TGC_BAD_FILE,
                               "%s: no token to learn: the answer has none (%d tokens in all)",
                               x->where, k);
        if (!code && bos <= 0 && k > 1 && first_bos >= 0 && ids[0] == first_bos &&
            ids[1] == first_bos && !*x->how->warned) {
                *x->how->warned = true;
                say(x->how->talk,
                    "%s: warning: the text begins with two BOS tokens (%d); models are trained "
                    "with one\n",
                    x->where, first_bos);
        }
        free(ids);
        if (!code) {
                x->r->n++;
                x->r->start[x->r->n] = x->r->start[x->r->n - 1] + (uint64_t)k;
        }
        return code;
}

static int text_end(const Tokenizer *tok)
{
        const int *eos, n = tokenizer_eos(tok, &eos);
        return n ? eos[0] : -1;
}

/* ---- conversations ---- */

/* Behind the value that begins here, which is known to be JSON. */
static const char *behind(const char *s)
{
        int depth = 0;
        for (bool in = false;; s++) {
                if (in && *s == '\\') {
                        s++;
                        continue;
                }
                if (in) {
                        if (*s != '"')
                                continue;
                        in = false;
                } else if (*s == '"') {
                        in = true;
                        continue;
                } else if (*s == '[' || *s == '{') {
                        depth++;
                        continue;
                } else if (*s == ']' || *s == '}') {
                        depth--;
                } else {
                        continue;
                }
                if (!depth)
                        return s + 1;
        }
}

/* A conversation as JSON text, and where its messages begin in it. */
typedef struct Talk {
        char *text;
        size_t n;
        Json list; /* of messages */
        const char *tools;
        int n_tools;
} Talk;

static int render_first(Reader *x, const Talk *t, int messages, bool answer, ChatRendered *r,
                        Err *e)
{
        const char *end = t->list.at + 1;
        JsonText in;
        Json root;
        char *s = NULL;
        int k = 0, code;
        size_t n = 0;
        for (JsonEach i = json_each(t->list); k < messages && json_next(&i); k++)
                end = behind(i.value.at);
        FILE *f = open_memstream(&s, &n);
        if (f) {
                fprintf(f, "{\"messages\": %.*s]", (int)(end - t->list.at), t->list.at);
                if (t->n_tools)
                        fprintf(f, ", \"tools\": %.*s", t->n_tools, t->tools);
                fputc('}', f);
        }
        if (!f || fclose(f) || !s)
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", x->where);
        else if (!(code = json_open(&in, &root, s, n, x->where, true, e))) {
                Err why;
                if ((code = chat_text(x->how->chat, root, answer, r, &why)))
                        code = err_set(e, code == TGC_USAGE ? TGC_BAD_FILE : code, "%s: %s",
                                       x->where, why.msg);
                json_close(&in);
        }
        free(s);
        return code;
}

static int add_span(Reader *x, size_t from, size_t upto, Err *e)
{
        if (x->n_spans == MOST_ANSWERS)
                return err_set(e, TGC_BAD_FILE, "%s: more than %d answers", x->where, MOST_ANSWERS);
        x->span[2 * x->n_spans] = from;
        x->span[2 * x->n_spans++ + 1] = upto;
        return TGC_OK;
}

/* Where a text that the whole should begin with ends. */
static int prefix(Reader *x, const Talk *t, int messages, bool answer, const ChatRendered *whole,
                  size_t *n, Err *e)
{
        ChatRendered r = { 0 };
        int code = render_first(x, t, messages, answer, &r, e);
        if (!code && (r.n > whole->n || memcmp(r.text, whole->text, r.n)))
                code = err_set(
                        e, TGC_BAD_FILE,
                        "%s: the chat template writes the first %d messages %s otherwise than as "
                        "the beginning of all of them, and marks no answers ({%% generation %%}): "
                        "--loss last or --loss all, --chat-template-kwargs or --template may do",
                        x->where, messages, answer ? "with the generation prompt" : "alone");
        *n = r.n;
        chat_rendered_free(&r);
        return code;
}

static int answers(Reader *x, const Talk *t, const ChatRendered *whole, Err *e)
{
        /* of a pair or a prompt the last answer is the one that is meant */
        const LossOn loss = x->how->kind ? LOSS_LAST : x->how->loss;
        const int n = (int)json_count(t->list);
        int k = 0, last = -1, code = TGC_OK;
        if (loss == LOSS_ALL || loss == LOSS_PADDING)
                return add_span(x, 0, whole->n, e);
        if (loss == LOSS_MARKED && !whole->n_spans)
                return err_set(e, TGC_BAD_FILE,
                               "%s: --loss marked: the chat template marks nothing here (it has no "
                               "{%% generation %%}, or no answer); --loss answer finds answers by "
                               "rendering what stands before them",
                               x->where);
        for (int i = 0; i < whole->n_spans && !code; i++)
                if (loss != LOSS_LAST || i == whole->n_spans - 1)
                        code = add_span(x, whole->span[2 * i], whole->span[2 * i + 1], e);
        if (code || whole->n_spans)
                return code;
        for (JsonEach i = json_each(t->list); json_next(&i); k++)
                if (json_is(json_get(i.value, "role"), "assistant"))
                        last = k;
        k = 0;
        for (JsonEach i = json_each(t->list); json_next(&i) && !code; k++) {
                size_t from, upto = whole->n;
                if (!json_is(json_get(i.value, "role"), "assistant") ||
                    (loss == LOSS_LAST && k < last))
                        continue;
                if ((code = prefix(x, t, k, true, whole, &from, e)) ||
                    (k + 1 < n && (code = prefix(x, t, k + 1, false, whole, &upto, e))))
                        break;
                if (from > upto)
                        code = err_set(e, TGC_BAD_FILE,
                                       "%s: message %d ends before its answer begins", x->where,
                                       k + 1);
                else
                        code = add_span(x, from, upto, e);
        }
        if (!code && last < 0)
                code = err_set(e, TGC_BAD_FILE, "%s: no message of the role \"assistant\"",
                               x->where);
        return code;
}

static int add_talk(Reader *x, const Talk *t, Err *e)
{
        ChatRendered whole = { 0 };
        int code;
        if (!x->how->chat)
                return err_set(e, TGC_USAGE, "%s: %s", x->where, x->how->no_chat);
        if (!json_count(t->list))
                return err_set(e, TGC_BAD_FILE, "%s: a conversation without messages", x->where);
        code = render_first(x, t, (int)json_count(t->list), false, &whole, e);
        if (!code && !(code = answers(x, t, &whole, e)))
                code = add(x, whole.text, whole.n, 0, -1, e);
        chat_rendered_free(&whole);
        return code;
}

int record_add_messages(Reader *x, Json list, Json tools, Err *e)
{
        Talk t = { .list = list };
        for (JsonEach i = json_each(list); json_next(&i);)
                if (json_type(i.value) != '{' || json_type(json_get(i.value, "role")) != '"')
                        return err_set(e, TGC_BAD_FILE, "%s: a message without a \"role\"",
                                       x->where);
        if (json_type(tools) == '[') {
                t.tools = tools.at;
                t.n_tools = (int)(behind(tools.at) - tools.at);
        }
        return add_talk(x, &t, e);
}

/* Both as they are, and the token that ends a text. */
static int add_joined(Reader *x, Json prompt, Json answer, Err *e)
{
        JsonBuf b = { 0 };
        size_t n = 0, k = 0;
        const char *s = json_string(prompt, &b, &n);
        char *both = s ? malloc(n + 1) : NULL;
        int code = TGC_OK;
        if (both)
                memcpy(both, s, n);
        s = both ? json_string(answer, &b, &k) : NULL;
        char *all = s ? realloc(both, n + k + 1) : NULL;
        if (all) {
                memcpy(all + n, s, k);
                both = all;
                x->n_spans = 1;
                x->span[0] = x->how->kind || x->how->loss < LOSS_ALL ? n : 0;
                x->span[1] = n + k;
                if (!k)
                        code = err_set(e, TGC_BAD_FILE,
                                       "%s: no token to learn: the completion is empty", x->where);
                else
                        code = add(x, both, n + k, -1, text_end(x->how->tok), e);
        } else {
                code = err_set(e, TGC_NO_MEMORY, "%s: no memory", x->where);
        }
        json_buf_free(&b);
        free(both);
        return code;
}

int record_add_pair(Reader *x, Json prompt, Json answer, Err *e)
{
        JsonText in;
        Json root;
        char *s = NULL;
        size_t n = 0;
        if (x->how->join)
                return add_joined(x, prompt, answer, e);
        FILE *f = open_memstream(&s, &n);
        if (f) {
                fprintf(f,
                        "[{\"role\": \"user\", \"content\": %.*s}, {\"role\": \"assistant\", "
                        "\"content\": %.*s}]",
                        (int)(behind(prompt.at) - prompt.at), prompt.at,
                        (int)(behind(answer.at) - answer.at), answer.at);
        }
        int code = !f || fclose(f) || !s ? err_set(e, TGC_NO_MEMORY, "%s: no memory", x->where)
                                         : json_open(&in, &root, s, n, x->where, true, e);
        if (!code) {
                code = json_is(answer, "")
                               ? err_set(e, TGC_BAD_FILE,
                                         "%s: no token to learn: the completion is empty", x->where)
                               : add_talk(x, &(Talk) { .list = root }, e);
                json_close(&in);
        }
        free(s);
        return code;
}

int record_add_text(Reader *x, Json text, Err *e)
{
        JsonBuf b = { 0 };
        size_t n;
        const char *s = json_string(text, &b, &n);
        x->n_spans = 1;
        x->span[0] = 0;
        x->span[1] = n;
        int code = s ? add(x, s, n, -1, text_end(x->how->tok), e)
                     : err_set(e, TGC_NO_MEMORY, "%s: no memory", x->where);
        json_buf_free(&b);
        return code;
}

/* A prompt whose answer is to be made. */
int record_add_prompt(Reader *x, Json prompt, Err *e)
{
        JsonBuf b = { 0 };
        JsonText in;
        Json list;
        ChatRendered r = { 0 };
        char *s = NULL;
        size_t n = 0;
        int code;
        if (x->how->join) {
                const char *text = json_string(prompt, &b, &n);
                code = text ? add(x, text, n, -1, -1, e)
                            : err_set(e, TGC_NO_MEMORY, "%s: no memory", x->where);
                json_buf_free(&b);
                return code;
        }
        if (!x->how->chat)
                return err_set(e, TGC_USAGE, "%s: %s", x->where, x->how->no_chat);
        FILE *f = open_memstream(&s, &n);
        if (f)
                fprintf(f, "[{\"role\": \"user\", \"content\": %.*s}]",
                        (int)(behind(prompt.at) - prompt.at), prompt.at);
        code = !f || fclose(f) || !s ? err_set(e, TGC_NO_MEMORY, "%s: no memory", x->where)
                                     : json_open(&in, &list, s, n, x->where, true, e);
        if (!code) {
                if (!(code = render_first(x, &(Talk) { .list = list }, 1, true, &r, e)))
                        code = add(x, r.text, r.n, 0, -1, e);
                chat_rendered_free(&r);
                json_close(&in);
        }
        free(s);
        return code;
}
