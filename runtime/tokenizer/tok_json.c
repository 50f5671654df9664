/* tok_json.c: reads Hugging Face's tokenizer.json: its fields and added tokens.  tok_json_*.c read
 * the other parts. */
#include <stdarg.h>
#include <stdio.h>
#include "tok_json.h"

/* ---- fields ---------------------------------------------------------------------- */

void hf_bad(Reader *r, const char *fmt, ...)
{
        char why[512];
        va_list ap;

        if (r->rc != TGC_OK)
                return;
        va_start(ap, fmt);
        vsnprintf(why, sizeof why, fmt, ap);
        va_end(ap);
        r->rc = err_set(r->e, TGC_BAD_FILE, "tokenizer.json: %s", why);
}

/* null is absent */
Json hf_get(Json o, const char *key)
{
        Json v = json_get(o, key);
        return json_type(v) == 'n' ? (Json) { 0 } : v;
}

/* A string with a NUL behind it, until the reader is done; NULL: none, or no memory. */
const char *hf_keep(Reader *r, Json v, size_t *n)
{
        const char *s;
        char **more, *p;

        if (r->rc != TGC_OK || json_type(v) != '"')
                return NULL;
        s = json_string(v, &r->a, n);
        more = realloc(r->kept, (r->n_kept + 1) * sizeof *more);
        if (more)
                r->kept = more;
        if (!s || !more || !(p = malloc(*n + 1))) {
                r->rc = tok_no_memory(r->e);
                return NULL;
        }
        memcpy(p, s, *n);
        p[*n] = 0;
        return r->kept[r->n_kept++] = p;
}

const char *hf_type(Reader *r, Json o)
{
        size_t n;
        const char *s = hf_keep(r, hf_get(o, "type"), &n);

        return s ? s : "";
}

/* fallback NULL: the field must be there.  Never returns NULL. */
const char *hf_str(Reader *r, Json o, const char *key, const char *fallback, size_t *n)
{
        Json c = hf_get(o, key);
        const char *s = hf_keep(r, c, n);

        if (s)
                return s;
        if (json_type(c) || !fallback)
                hf_bad(r, "%s: '%s' should be a string", hf_type(r, o), key);
        *n = fallback ? strlen(fallback) : 0;
        return fallback ? fallback : "";
}

/* The same for what must not hold a NUL. */
const char *hf_name(Reader *r, Json o, const char *key, const char *fallback)
{
        size_t n;
        const char *s = hf_str(r, o, key, fallback, &n);

        if (strlen(s) != n)
                hf_bad(r, "%s: a NUL character in '%s' is not supported", hf_type(r, o), key);
        return s;
}

bool hf_bool(Reader *r, Json o, const char *key, int fallback)
{
        char c = json_type(hf_get(o, key));

        if (c == 't' || c == 'f')
                return c == 't';
        if (c || fallback == MUST)
                hf_bad(r, "%s: '%s' should be true or false", hf_type(r, o), key);
        return fallback > 0;
}

/* A whole number from 0 to most, or -1. */
int hf_whole(Json v, int most)
{
        double x = json_number(v);
        return x >= 0 && x <= most && x == (int)x ? (int)x : -1;
}

int hf_count(Reader *r, Json o, const char *key, int most)
{
        int x = hf_whole(hf_get(o, key), most);

        if (x >= 0)
                return x;
        hf_bad(r, "%s: '%s' should be a whole number from 0 to %d", hf_type(r, o), key, most);
        return 0;
}

/* A string of one character */
const char *hf_char(Reader *r, Json o, const char *key)
{
        const char *s = hf_name(r, o, key, NULL);
        uint32_t cp;

        if (r->rc == TGC_OK && (!*s || utf8_get(s, strlen(s), &cp) != strlen(s)))
                hf_bad(r, "%s: '%s' should be one character", hf_type(r, o), key);
        return r->rc == TGC_OK ? s : " ";
}

char *hf_copy(Reader *r, const char *s, size_t n)
{
        char *p = r->rc == TGC_OK ? malloc(n + 1) : NULL;

        if (p)
                memcpy(p, s, n + 1);
        else if (r->rc == TGC_OK)
                r->rc = tok_no_memory(r->e);
        return p;
}

/* {"String": ...} or {"Regex": ...}: returns which, with its text. */
const char *hf_pattern_text(Reader *r, Json o, bool *regex, size_t *n)
{
        Json c = hf_get(o, "pattern"), s = hf_get(c, "String"), x = hf_get(c, "Regex");
        const char *text = hf_keep(r, json_type(s) ? s : x, n);

        *regex = !json_type(s);
        if (!text)
                hf_bad(r, "%s: 'pattern' should be {\"String\": ...} or {\"Regex\": ...}",
                       hf_type(r, o));
        else if (*regex && strlen(text) != *n)
                hf_bad(r, "%s: a NUL character in a regular expression is not supported",
                       hf_type(r, o));
        return text ? text : "";
}

void hf_pattern(Reader *r, Json o, Pattern *p)
{
        bool regex;
        size_t n;
        const char *s = hf_pattern_text(r, o, &regex, &n);

        if (r->rc == TGC_OK)
                r->rc = regex ? pattern_regex(p, s, r->e) : pattern_literal(p, s, n, r->e);
}

void hf_stage(Reader *r, const Stage *stage, Json o)
{
        Json type = hf_get(o, "type"), list;

        if (!json_type(o) || r->rc != TGC_OK)
                return;
        if (json_is(type, "Sequence") && stage->list) {
                if (json_type(list = hf_get(o, stage->list)) != '[')
                        hf_bad(r, "%s Sequence: '%s' should be a list", stage->name, stage->list);
                for (JsonEach i = json_each(list); json_next(&i) && r->rc == TGC_OK;)
                        hf_stage(r, stage, i.value);
                return;
        }
        for (const Part *part = stage->part; part->type; part++)
                if (json_is(type, part->type)) {
                        part->read(r, o);
                        return;
                }
        hf_bad(r, "%s of type '%.60s' is not supported", stage->name, hf_type(r, o));
}

/* ---- added_tokens, and the whole ------------------------------------------------- */

static void read_added(Reader *r, Json list)
{
        if (json_type(list) && json_type(list) != '[')
                hf_bad(r, "'added_tokens' should be a list");
        for (JsonEach i = json_each(list); json_next(&i) && r->rc == TGC_OK;) {
                Added a = { .special = hf_bool(r, i.value, "special", 0),
                            .lstrip = hf_bool(r, i.value, "lstrip", 0) };
                Json content = hf_get(i.value, "content");
                const char *s;
                size_t n;

                if (json_type(content) != '"')
                        hf_bad(r, "an added token: 'content' should be a string");
                a.rstrip = hf_bool(r, i.value, "rstrip", 0);
                a.single_word = hf_bool(r, i.value, "single_word", 0);
                a.normalized = hf_bool(r, i.value, "normalized", !a.special);
                a.id = hf_count(r, i.value, "id", TOK_MAX_VOCAB - 1);
                if (r->rc != TGC_OK)
                        return;
                if (!(s = json_string(content, &r->a, &n)))
                        r->rc = tok_no_memory(r->e);
                else if (n)
                        r->rc = tok_add(r->t, s, n, a, r->e);
        }
}

static void read_root(Reader *r, Json o)
{
        Tokenizer *t = r->t;

        hf_model(r, hf_get(o, "model"));
        hf_stage(r, &hf_normalizer, hf_get(o, "normalizer"));
        hf_stage(r, &hf_pre_tokenizer, hf_get(o, "pre_tokenizer"));
        hf_stage(r, &hf_post_processor, hf_get(o, "post_processor"));
        /* after the normalizer, which they may go through */
        read_added(r, hf_get(o, "added_tokens"));
        hf_stage(r, &hf_decoder, hf_get(o, "decoder"));
        if (!json_type(hf_get(o, "decoder"))) /* Hugging Face then puts spaces between tokens */
                hf_no_decoder(r, o);
        hf_unk(r, hf_get(o, "model")); /* it may be among the added tokens */
        for (int i = 0; i < t->n_prefix + t->n_suffix; i++) {
                int id = i < t->n_prefix ? t->prefix[i] : t->suffix[i - t->n_prefix];
                if (id >= t->vocab.n)
                        hf_bad(r, "post_processor: id %d is not in the vocabulary", id);
        }
        t->adds_bos = t->n_prefix > 0;
        t->bos = t->n_prefix ? t->prefix[0] : -1;
}

int read_hf(Tokenizer *t, Err *e)
{
        Reader r = { .t = t, .e = e };
        JsonText text;
        Json o;
        int rc = json_open(&text, &o, t->blob, t->n_blob, "tokenizer.json", true, e);

        if (rc != TGC_OK)
                return rc;
        read_root(&r, o);
        json_close(&text);
        json_buf_free(&r.a);
        json_buf_free(&r.b);
        while (r.n_kept)
                free(r.kept[--r.n_kept]);
        free(r.kept);
        return r.rc;
}
