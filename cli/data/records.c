/* records.c: reads examples from JSONL as ids, and marks which of them are targets.
 *
 *      {"prompt": "2 + 2?", "completion": "4"}         a user's message and the assistant's
 *      {"messages": [{"role": ..., "content": ...}]}   a conversation, perhaps with "tools"
 *      {"text": "..."}                                 a text as it is; all of it counts
 *
 * An objective that learns from pairs takes these records:
 *
 *      {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}     or two conversations that end with
 *                                                               an answer
 *
 * An objective that learns from prompts also takes {"prompt": "2 + 2?"}.
 *
 * The file is JSON lines, or one JSON list of objects.  record_text.c makes the ids. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "record_text.h"

static const char *const field_name[N_FIELDS] = { "prompt", "completion", "messages",
                                                  "text",   "chosen",     "rejected" };

/* ---- records ---- */

/* Both answers of a pair, each behind the prompt. */
static int add_preference(Reader *x, const Json *v, Err *e)
{
        const bool talks = json_type(v[CHOSEN]) == '[' && json_type(v[REJECTED]) == '[';
        if (!talks && (json_type(v[PROMPT]) != '"' || json_type(v[CHOSEN]) != '"' ||
                       json_type(v[REJECTED]) != '"'))
                return err_set(e, TGC_BAD_FILE,
                               "%s: a record has the texts \"%s\", \"%s\" and \"%s\", or the last "
                               "two as lists of messages (--fields gives other names)",
                               x->where, x->key[PROMPT], x->key[CHOSEN], x->key[REJECTED]);
        int code = TGC_OK;
        for (int k = CHOSEN; k <= REJECTED && !code; k++) {
                x->n_spans = 0;
                code = talks ? record_add_messages(x, v[k], (Json) { 0 }, e)
                             : record_add_pair(x, v[PROMPT], v[k], e);
        }
        return code;
}

static int add_record(Reader *x, Json o, Err *e)
{
        Json v[N_FIELDS];
        for (int i = 0; i < N_FIELDS; i++)
                v[i] = json_get(o, x->key[i]);
        x->n_spans = 0;
        if (json_type(o) != '{')
                return err_set(e, TGC_BAD_FILE, "%s: a record must be an object", x->where);
        if (x->how->kind == RECORDS_PAIRS)
                return add_preference(x, v, e);
        if (x->how->kind == RECORDS_PROMPTS && json_type(v[PROMPT]) == '"' &&
            json_type(v[COMPLETION]) != '"' && !v[MESSAGES].at && !v[TEXT].at)
                return record_add_prompt(x, v[PROMPT], e);
        const bool pair = json_type(v[PROMPT]) == '"' && json_type(v[COMPLETION]) == '"';
        if (pair + (json_type(v[MESSAGES]) == '[') + (json_type(v[TEXT]) == '"') != 1)
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: a record has the texts \"%s\" and \"%s\", or the list \"%s\", or "
                        "the text \"%s\", and one of these three (--fields gives other names)",
                        x->where, x->key[PROMPT], x->key[COMPLETION], x->key[MESSAGES],
                        x->key[TEXT]);
        return pair ? record_add_pair(x, v[PROMPT], v[COMPLETION], e)
               : json_type(v[MESSAGES]) == '['
                       ? record_add_messages(x, v[MESSAGES], json_get(o, "tools"), e)
                       : record_add_text(x, v[TEXT], e);
}

/* "prompt=instruction,completion=output" */
static int read_fields(Reader *x, const char *s, Err *e)
{
        for (int i = 0; i < N_FIELDS; i++)
                snprintf(x->key[i], sizeof *x->key, "%s", field_name[i]);
        for (; s && *s; s += strspn(s, ",")) {
                const size_t n = strcspn(s, ","), k = strcspn(s, "=");
                int which = -1;
                for (int i = 0; i < N_FIELDS; i++)
                        if (strlen(field_name[i]) == k && !strncmp(field_name[i], s, k))
                                which = i;
                if (which < 0 || k + 1 >= n || n - k - 1 >= sizeof *x->key)
                        return err_set(e, TGC_USAGE,
                                       "--fields %.60s: give NAME=KEY,..., where NAME is prompt, "
                                       "completion, messages, text, chosen or rejected",
                                       x->how->fields);
                snprintf(x->key[which], sizeof *x->key, "%.*s", (int)(n - k - 1), s + k + 1);
                s += n;
        }
        return TGC_OK;
}

static void at_line(Reader *x, int line)
{
        snprintf(x->where, sizeof x->where, "%.200s:%d", x->name, line);
}

static void say_how_far(const Reader *x, size_t at, size_t n)
{
        if (x->r->n % 64 == 0)
                progress_bar(x->how->talk, (double)at / (double)(n + 1), "%s: %lld records",
                             x->name, (long long)x->r->n);
}

static int read_list(Reader *x, const char *text, size_t n, Err *e)
{
        JsonText in;
        Json root;
        int code = json_open(&in, &root, text, n, x->name, true, e), line = 1;
        const char *from = text;
        if (code)
                return code;
        for (JsonEach i = json_each(root); json_next(&i) && !code;) {
                for (; from < i.value.at; from++)
                        line += *from == '\n';
                at_line(x, line);
                say_how_far(x, (size_t)(from - text), n);
                code = add_record(x, i.value, e);
        }
        json_close(&in);
        return code;
}

static int read_lines(Reader *x, const char *text, size_t n, Err *e)
{
        int code = TGC_OK, line = 1;
        size_t k;
        for (size_t at = 0; at < n && !code; at += k + 1, line++) {
                const char *eol = memchr(text + at, '\n', n - at);
                k = eol ? (size_t)(eol - text) - at : n - at;
                size_t own = k;
                JsonText in;
                Json o;
                while (own && strchr(" \t\r", text[at + own - 1]))
                        own--;
                at_line(x, line);
                say_how_far(x, at, n);
                if (!own || (code = json_open_line(&in, &o, text + at, own, x->where, true, e)))
                        continue;
                code = add_record(x, o, e);
                json_close(&in);
        }
        return code;
}

int records_read(Records *r, const RecordsHow *how, const char *text, size_t n, const char *name,
                 Err *e)
{
        Reader *x = malloc(sizeof *x);
        *r = (Records) { 0 };
        if (!x)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", name);
        memset(x, 0, offsetof(Reader, span)); /* those are many */
        x->how = how;
        x->r = r;
        x->name = name;
        size_t at = text_mark(text, n);
        text += at, n -= at, at = 0;
        while (at < n && strchr(" \t\r\n", text[at]))
                at++;
        int code = read_fields(x, how->fields, e);
        if (!code)
                code = at < n && text[at] == '[' ? read_list(x, text, n, e)
                                                 : read_lines(x, text, n, e);
        progress_bar_end(how->talk);
        if (!code && !r->n)
                code = err_set(e, TGC_BAD_FILE, "%s: no records", name);
        if (code)
                records_free(r);
        free(x);
        return code;
}

void records_free(Records *r)
{
        if (!r->mem) {
                free(r->id);
                free(r->start);
        }
        free(r->mem);
        *r = (Records) { 0 };
}

/* ---- as bytes: n, starts, ids ---- */

int records_pack(const Records *r, void **data, size_t *n, Err *e)
{
        const size_t starts = ((size_t)r->n + 1) * sizeof *r->start,
                     ids = (size_t)r->start[r->n] * sizeof *r->id;
        const uint64_t count = (uint64_t)r->n;
        char *b = malloc(8 + starts + ids);
        if (!b)
                return err_set(e, TGC_NO_MEMORY, "no memory for %lld records", (long long)r->n);
        memcpy(b, &count, 8);
        memcpy(b + 8, r->start, starts);
        memcpy(b + 8 + starts, r->id, ids);
        *data = b;
        *n = 8 + starts + ids;
        return TGC_OK;
}

int records_unpack(Records *r, void *data, size_t n, int vocab, Err *e)
{
        uint64_t count = 0;
        *r = (Records) { .mem = data };
        if (n >= 16)
                memcpy(&count, data, 8);
        bool ok = count && count < INT32_MAX && 16 + count * 8 <= n;
        if (ok) {
                r->n = (int64_t)count;
                r->start = (uint64_t *)((char *)data + 8);
                r->id = (uint32_t *)((char *)data + 16 + count * 8);
                ok = !r->start[0] && (n - 16 - count * 8) % 4 == 0 &&
                     r->start[count] == (n - 16 - count * 8) / 4;
        }
        for (uint64_t i = 0; ok && i < count; i++)
                ok = r->start[i] < r->start[i + 1] && r->start[i + 1] <= r->start[count];
        for (uint64_t i = 0; ok && i < r->start[count]; i++)
                ok = (r->id[i] & ~RECORD_COUNTS) < (uint32_t)vocab;
        if (ok)
                return TGC_OK;
        records_free(r);
        return err_set(e, TGC_BAD_FILE, "no packed records");
}
