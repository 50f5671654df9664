/* tok_json.c: Hugging Face's tokenizer.json, type BPE.
 *
 * Each of its parts is null or an object with a "type".  A type is a row of a table
 * and a function that appends steps; what has no row is refused by its name.
 * Failures are sticky: after the first, `rc` is set and reading goes on without
 * effect, so that most readers need not look at it. */
#include <stdarg.h>
#include <stdio.h>
#include "tok.h"
#include "tok_regex.h"

typedef struct Reader {
        Tokenizer *t;
        Err *e;
        int rc;
        bool in_bytes, fused, stripped; /* how far the decoders read so far have come */
        JsonBuf a, b;                   /* strings of the vocabulary, one after the other */
        char **kept;                    /* strings of the settings, until the end */
        size_t n_kept;
} Reader;
typedef struct Part {
        const char *type;
        void (*read)(Reader *r, Json o);
} Part;
/* list: a Sequence's own */
typedef struct Stage {
        const char *name, *list;
        const Part *part;
} Stage;

/* ---- fields ---------------------------------------------------------------------- */

static void __attribute__((format(printf, 2, 3))) bad(Reader *r, const char *fmt, ...)
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
static Json get(Json o, const char *key)
{
        Json v = json_get(o, key);
        return json_type(v) == 'n' ? (Json) { 0 } : v;
}

/* A string with a NUL behind it, until the reader is done; NULL: none, or no memory. */
static const char *keep(Reader *r, Json v, size_t *n)
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

static const char *type_of(Reader *r, Json o)
{
        size_t n;
        const char *s = keep(r, get(o, "type"), &n);

        return s ? s : "";
}

/* fallback NULL: the field must be there.  Never returns NULL. */
static const char *get_str(Reader *r, Json o, const char *key, const char *fallback, size_t *n)
{
        Json c = get(o, key);
        const char *s = keep(r, c, n);

        if (s)
                return s;
        if (json_type(c) || !fallback)
                bad(r, "%s: '%s' should be a string", type_of(r, o), key);
        *n = fallback ? strlen(fallback) : 0;
        return fallback ? fallback : "";
}

/* The same for what must not hold a NUL. */
static const char *get_name(Reader *r, Json o, const char *key, const char *fallback)
{
        size_t n;
        const char *s = get_str(r, o, key, fallback, &n);

        if (strlen(s) != n)
                bad(r, "%s: a NUL character in '%s' is not supported", type_of(r, o), key);
        return s;
}

enum { MUST = -1 };

static bool get_bool(Reader *r, Json o, const char *key, int fallback)
{
        char c = json_type(get(o, key));

        if (c == 't' || c == 'f')
                return c == 't';
        if (c || fallback == MUST)
                bad(r, "%s: '%s' should be true or false", type_of(r, o), key);
        return fallback > 0;
}

/* A whole number from 0 to most, or -1. */
static int whole(Json v, int most)
{
        double x = json_number(v);
        return x >= 0 && x <= most && x == (int)x ? (int)x : -1;
}

static int get_count(Reader *r, Json o, const char *key, int most)
{
        int x = whole(get(o, key), most);

        if (x >= 0)
                return x;
        bad(r, "%s: '%s' should be a whole number from 0 to %d", type_of(r, o), key, most);
        return 0;
}

/* A string of one character */
static const char *get_char(Reader *r, Json o, const char *key)
{
        const char *s = get_name(r, o, key, NULL);
        uint32_t cp;

        if (r->rc == TGC_OK && (!*s || utf8_get(s, strlen(s), &cp) != strlen(s)))
                bad(r, "%s: '%s' should be one character", type_of(r, o), key);
        return r->rc == TGC_OK ? s : " ";
}

static char *copy(Reader *r, const char *s, size_t n)
{
        char *p = r->rc == TGC_OK ? malloc(n + 1) : NULL;

        if (p)
                memcpy(p, s, n + 1);
        else if (r->rc == TGC_OK)
                r->rc = tok_no_memory(r->e);
        return p;
}

/* {"String": ...} or {"Regex": ...}: returns which, with its text. */
static const char *get_pattern(Reader *r, Json o, bool *regex, size_t *n)
{
        Json c = get(o, "pattern"), s = get(c, "String"), x = get(c, "Regex");
        const char *text = keep(r, json_type(s) ? s : x, n);

        *regex = !json_type(s);
        if (!text)
                bad(r, "%s: 'pattern' should be {\"String\": ...} or {\"Regex\": ...}",
                    type_of(r, o));
        else if (*regex && strlen(text) != *n)
                bad(r, "%s: a NUL character in a regular expression is not supported",
                    type_of(r, o));
        return text ? text : "";
}

static void read_pattern(Reader *r, Json o, Pattern *p)
{
        bool regex;
        size_t n;
        const char *s = get_pattern(r, o, &regex, &n);

        if (r->rc == TGC_OK)
                r->rc = regex ? pattern_regex(p, s, r->e) : pattern_literal(p, s, n, r->e);
}

static void read_stage(Reader *r, const Stage *stage, Json o)
{
        Json type = get(o, "type"), list;

        if (!json_type(o) || r->rc != TGC_OK)
                return;
        if (json_is(type, "Sequence") && stage->list) {
                if (json_type(list = get(o, stage->list)) != '[')
                        bad(r, "%s Sequence: '%s' should be a list", stage->name, stage->list);
                for (JsonEach i = json_each(list); json_next(&i) && r->rc == TGC_OK;)
                        read_stage(r, stage, i.value);
                return;
        }
        for (const Part *part = stage->part; part->type; part++)
                if (json_is(type, part->type)) {
                        part->read(r, o);
                        return;
                }
        bad(r, "%s of type '%.60s' is not supported", stage->name, type_of(r, o));
}

/* ---- normalizer ------------------------------------------------------------------ */

/* Takes n over. */
static void put_norm(Reader *r, Norm n)
{
        Tokenizer *t = r->t;

        if (r->rc == TGC_OK && t->n_norm == TOK_MAX_STEPS)
                bad(r, "more than %d normalizers", TOK_MAX_STEPS);
        if (r->rc == TGC_OK)
                t->norm[t->n_norm++] = n;
        else
                norm_free(&n);
}

static void norm_unicode(Reader *r, Json o)
{
        const char *form = type_of(r, o);

        if (r->rc == TGC_OK)
                r->rc = tok_norm_form(r->t, form, r->e);
}

static void norm_lower(Reader *r, Json o)
{
        (void)o;
        put_norm(r, (Norm) { .op = NORM_LOWER });
}

static void norm_no_marks(Reader *r, Json o)
{
        (void)o;
        put_norm(r, (Norm) { .op = NORM_NO_MARKS });
}

static void norm_strip(Reader *r, Json o)
{
        bool left = get_bool(r, o, "strip_left", MUST), right = get_bool(r, o, "strip_right", MUST);
        put_norm(r, (Norm) { .op = NORM_STRIP, .left = left, .right = right });
}

static void norm_prepend(Reader *r, Json o)
{
        size_t n;
        const char *s = get_str(r, o, "prepend", NULL, &n);

        put_norm(r, (Norm) { .op = NORM_PREPEND, .with = copy(r, s, n), .n_with = n });
}

static void norm_replace(Reader *r, Json o)
{
        size_t len;
        const char *s = get_str(r, o, "content", NULL, &len);
        Norm n = { .op = NORM_REPLACE, .with = copy(r, s, len), .n_with = len };

        read_pattern(r, o, &n.pattern);
        put_norm(r, n);
}

static const Part norm_part[] = { { "NFC", norm_unicode },           { "NFD", norm_unicode },
                                  { "NFKC", norm_unicode },          { "NFKD", norm_unicode },
                                  { "Strip", norm_strip },           { "Prepend", norm_prepend },
                                  { "Lowercase", norm_lower },       { "Replace", norm_replace },
                                  { "StripAccents", norm_no_marks }, { 0 } };
static const Stage normalizer = { "normalizer", "normalizers", norm_part };

/* ---- pre_tokenizer --------------------------------------------------------------- */

/* \w of the Rust regex crate: no fractions and superscripts, but joiners. */
#define WORD                                                                                          \
        "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}" \
        "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

static int get_cut(Reader *r, Json o, const char *fallback)
{
        static const char *const name[] = { [CUT_REMOVED] = "Removed",
                                            [CUT_ISOLATED] = "Isolated",
                                            [CUT_CONTIGUOUS] = "Contiguous",
                                            [CUT_WITH_PREVIOUS] = "MergedWithPrevious",
                                            [CUT_WITH_NEXT] = "MergedWithNext" };
        const char *s = get_name(r, o, "behavior", fallback);

        for (int i = 0; i < (int)(sizeof name / sizeof *name); i++)
                if (!strcmp(s, name[i]))
                        return i;
        bad(r, "%s: behavior '%.60s' is not supported", type_of(r, o), s);
        return CUT_ISOLATED;
}

static void split_regex(Reader *r, const char *regex, int cut, bool invert)
{
        if (r->rc == TGC_OK)
                r->rc = tok_split_regex(r->t, regex, cut, invert, r->e);
}

static void split_literal(Reader *r, const char *text, size_t n, int cut, bool invert)
{
        if (r->rc == TGC_OK)
                r->rc = tok_split_literal(r->t, text, n, cut, invert, r->e);
}

static void split_set(Reader *r, const Range *set, size_t n, int cut)
{
        if (r->rc == TGC_OK)
                r->rc = tok_split_set(r->t, set, n, cut, r->e);
}

static void split_prefix(Reader *r, const char *with, int when)
{
        if (r->rc == TGC_OK)
                r->rc = tok_split_prefix(r->t, with, when, r->e);
}

static void split_byte_level(Reader *r, Json o)
{
        if (get_bool(r, o, "add_prefix_space", MUST))
                split_prefix(r, " ", PREFIX_ALWAYS);
        if (get_bool(r, o, "use_regex", 1))
                split_regex(r, RE_GPT2, CUT_ISOLATED, false);
        if (r->rc == TGC_OK)
                r->rc = tok_split_bytes(r->t, r->e);
}

static void split_pattern(Reader *r, Json o)
{
        int cut = get_cut(r, o, NULL);
        bool regex, invert = get_bool(r, o, "invert", 0);
        size_t n;
        const char *s = get_pattern(r, o, &regex, &n);

        if (regex)
                split_regex(r, s, cut, invert);
        else
                split_literal(r, s, n, cut, invert);
}

/* When the mark goes before a text: "prepend_scheme", in older files "add_prefix_space". */
static int get_scheme(Reader *r, Json o)
{
        static const char *const name[] = {
                [PREFIX_ALWAYS] = "always", [PREFIX_FIRST] = "first", [PREFIX_NEVER] = "never"
        };
        const char *s = get_name(r, o, "prepend_scheme",
                                 get_bool(r, o, "add_prefix_space", 1) ? "always" : "never");

        for (int i = 0; i < (int)(sizeof name / sizeof *name); i++)
                if (!strcmp(s, name[i]))
                        return i;
        bad(r, "Metaspace: prepend_scheme '%.60s' is not supported", s);
        return PREFIX_NEVER;
}

static void split_metaspace(Reader *r, Json o)
{
        const char *mark = get_char(r, o, "replacement");
        int when = get_scheme(r, o);

        if (r->rc == TGC_OK)
                r->rc = tok_split_replace(r->t, " ", mark, r->e);
        if (when != PREFIX_NEVER)
                split_prefix(r, mark, when);
        if (get_bool(r, o, "split", 1))
                split_literal(r, mark, strlen(mark), CUT_WITH_NEXT, false);
}

static void split_digits(Reader *r, Json o)
{
        split_set(r, cp_digit, n_cp_digit,
                  get_bool(r, o, "individual_digits", 0) ? CUT_ISOLATED : CUT_CONTIGUOUS);
}

static void split_punctuation(Reader *r, Json o)
{
        split_set(r, cp_punctuation, n_cp_punctuation, get_cut(r, o, "Isolated"));
}

static void split_words(Reader *r, Json o)
{
        (void)o;
        split_regex(r, "[" WORD "]+|[^" WORD "\\s]+", CUT_REMOVED, true);
}

static void split_spaces(Reader *r, Json o)
{
        (void)o;
        split_set(r, cp_space, n_cp_space, CUT_REMOVED);
}

static void split_delimiter(Reader *r, Json o)
{
        const char *s = get_char(r, o, "delimiter");

        split_literal(r, s, strlen(s), CUT_REMOVED, false);
}

static void split_bert(Reader *r, Json o)
{
        (void)o;
        split_set(r, cp_space, n_cp_space, CUT_REMOVED);
        split_set(r, cp_punctuation, n_cp_punctuation, CUT_ISOLATED);
}

static const Part split_part[] = { { "ByteLevel", split_byte_level },
                                   { "Metaspace", split_metaspace },
                                   { "Split", split_pattern },
                                   { "Whitespace", split_words },
                                   { "WhitespaceSplit", split_spaces },
                                   { "Digits", split_digits },
                                   { "Punctuation", split_punctuation },
                                   { "BertPreTokenizer", split_bert },
                                   { "CharDelimiterSplit", split_delimiter },
                                   { 0 } };
static const Stage pre_tokenizer = { "pre_tokenizer", "pretokenizers", split_part };

/* ---- decoder --------------------------------------------------------------------- */

/* Takes d over. */
static void put_decode(Reader *r, Json o, Decode d)
{
        Tokenizer *t = r->t;

        if (r->rc == TGC_OK && t->n_decode == TOK_MAX_STEPS)
                bad(r, "more than %d decoders", TOK_MAX_STEPS);
        if (r->fused && (d.op != DECODE_STRIP || r->stripped) && d.op != DECODE_FUSE)
                bad(r, "decoder %s after %s is not supported", type_of(r, o),
                    r->stripped ? "Strip" : "Fuse or ByteLevel");
        if (r->in_bytes && d.op != DECODE_FUSE)
                bad(r, "decoder %s after ByteFallback, without Fuse between, is not supported",
                    type_of(r, o));
        if (r->fused && d.stop)
                bad(r,
                    "decoder Strip: a 'stop' after Fuse needs the end of the text, which a stream does not have");
        if (d.op == DECODE_FUSE && r->fused)
                return;
        r->stripped |= r->fused && d.op == DECODE_STRIP;
        r->in_bytes = d.op == DECODE_FALLBACK;
        r->fused |= d.op == DECODE_FUSE;
        if (r->rc == TGC_OK)
                t->decode[t->n_decode++] = d;
        else
                decode_free(&d);
}

static void decode_bytes(Reader *r, Json o)
{
        put_decode(r, o, (Decode) { .op = DECODE_BYTES });
        /* the reference makes one text of them */
        put_decode(r, o, (Decode) { .op = DECODE_FUSE });
}

static void decode_fallback(Reader *r, Json o)
{
        put_decode(r, o, (Decode) { .op = DECODE_FALLBACK });
}

static void decode_fuse(Reader *r, Json o) { put_decode(r, o, (Decode) { .op = DECODE_FUSE }); }

static void decode_metaspace(Reader *r, Json o)
{
        const char *mark = get_char(r, o, "replacement");
        bool drop = get_scheme(r, o) != PREFIX_NEVER;

        put_decode(r, o,
                   (Decode) { .op = DECODE_METASPACE,
                              .with = copy(r, mark, strlen(mark)),
                              .n_with = strlen(mark),
                              .drop_first = drop });
}

static void decode_replace(Reader *r, Json o)
{
        size_t n;
        const char *s = get_str(r, o, "content", NULL, &n);
        Decode d = { .op = DECODE_REPLACE, .with = copy(r, s, n), .n_with = n };

        read_pattern(r, o, &d.pattern);
        put_decode(r, o, d);
}

static void decode_strip(Reader *r, Json o)
{
        const char *s = get_char(r, o, "content");
        int start = get_count(r, o, "start", TOK_MAX_ADDED),
            stop = get_count(r, o, "stop", TOK_MAX_ADDED);

        put_decode(r, o,
                   (Decode) { .op = DECODE_STRIP,
                              .with = copy(r, s, strlen(s)),
                              .n_with = strlen(s),
                              .start = start,
                              .stop = stop });
}

static const Part decode_part[] = { { "ByteLevel", decode_bytes },
                                    { "ByteFallback", decode_fallback },
                                    { "Fuse", decode_fuse },
                                    { "Replace", decode_replace },
                                    { "Metaspace", decode_metaspace },
                                    { "Strip", decode_strip },
                                    { 0 } };
static const Stage decoder = { "decoder", "decoders", decode_part };

/* ---- post_processor -------------------------------------------------------------- */

static void post_offsets(Reader *r, Json o)
{
        (void)r, (void)o; /* ByteLevel here moves offsets, not ids */
}

/* The special tokens before "A" are what adding BOS adds; those behind it (an EOS)
 * would end a prompt and are left out. */
static void post_template(Reader *r, Json o)
{
        Json single = get(o, "single");
        Tokenizer *t = r->t;

        if (json_type(single) != '[')
                bad(r, "TemplateProcessing: 'single' should be a list");
        for (JsonEach i = json_each(single);
             json_next(&i) && r->rc == TGC_OK && !json_type(get(i.value, "Sequence"));) {
                size_t n;
                const char *name = keep(r, get(get(i.value, "SpecialToken"), "id"), &n);
                Json ids = name ? get(get(get(o, "special_tokens"), name), "ids") : (Json) { 0 };

                if (json_type(ids) != '[')
                        bad(r, "TemplateProcessing: a special token without ids");
                for (JsonEach k = json_each(ids); json_next(&k) && r->rc == TGC_OK;) {
                        int id = whole(k.value, TOK_MAX_VOCAB - 1);
                        if (id < 0 || t->n_prefix == TOK_MAX_PREFIX)
                                bad(r,
                                    "TemplateProcessing: the ids of '%.60s' should be at most %d whole numbers",
                                    name, TOK_MAX_PREFIX);
                        else
                                t->prefix[t->n_prefix++] = id;
                }
        }
}

static const Part post_part[] = { { "TemplateProcessing", post_template },
                                  { "ByteLevel", post_offsets },
                                  { 0 } };
static const Stage post_processor = { "post_processor", "processors", post_part };

/* ---- model ----------------------------------------------------------------------- */

/* Called while rc is TGC_OK.  A merge is "a b", or since 2024 ["a", "b"]. */
static void read_merge(Reader *r, Json o, int rank)
{
        const char *a, *b, *gap;
        size_t n, m;

        if (json_type(o) == '[') {
                JsonEach i = json_each(o);
                Json left = json_next(&i) ? i.value : (Json) { 0 },
                     right = json_next(&i) ? i.value : (Json) { 0 };

                if (json_type(left) == '"' && json_type(right) == '"' && !json_next(&i)) {
                        a = json_string(left, &r->a, &n);
                        b = json_string(right, &r->b, &m);
                        r->rc = a && b ? tok_merge(r->t, a, n, b, m, rank, r->e)
                                       : tok_no_memory(r->e);
                        return;
                }
        } else if (json_type(o) == '"') {
                if (!(a = json_string(o, &r->a, &n))) {
                        r->rc = tok_no_memory(r->e);
                        return;
                }
                gap = memchr(a, ' ', n);
                if (gap && !memchr(gap + 1, ' ', (size_t)(a + n - gap - 1))) {
                        r->rc = tok_merge(r->t, a, (size_t)(gap - a), gap + 1,
                                          (size_t)(a + n - gap - 1), rank, r->e);
                        return;
                }
        }
        bad(r, "merge %d should be \"a b\" or [\"a\", \"b\"]", rank);
}

static void model_bpe(Reader *r, Json o)
{
        Json merges = get(o, "merges"), dropout = get(o, "dropout");
        Tokenizer *t = r->t;
        int rank = 0;

        if (json_type(dropout) && json_number(dropout) != 0)
                bad(r, "BPE: dropout is not supported");
        if (*get_name(r, o, "continuing_subword_prefix", "") ||
            *get_name(r, o, "end_of_word_suffix", ""))
                bad(r, "BPE: continuing_subword_prefix and end_of_word_suffix are not supported");
        t->fuse_unk = get_bool(r, o, "fuse_unk", 0);
        t->byte_fallback = get_bool(r, o, "byte_fallback", 0);
        t->ignore_merges = get_bool(r, o, "ignore_merges", 0);
        if (r->rc == TGC_OK)
                r->rc = tok_json_vocab(t, get(o, "vocab"), r->e);
        if (json_type(merges) != '[')
                bad(r, "BPE: 'merges' should be a list");
        for (JsonEach i = json_each(merges); r->rc == TGC_OK && json_next(&i);)
                read_merge(r, i.value, rank++);
        for (int b = 0; b < 256; b++) {
                char name[8];
                snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
                t->byte_id[b] = vocab_find(&t->vocab, name, 6);
        }
}

static const Part model_part[] = { { "BPE", model_bpe }, { 0 } };
static const Stage model = { "model", NULL, model_part };

static void read_model(Reader *r, Json o)
{
        if (json_type(o) != '{')
                bad(r, "there is no model");
        else if (!json_type(get(o, "type")) &&
                 json_type(get(o, "merges"))) /* files before 2020 name no type */
                model_bpe(r, o);
        else
                read_stage(r, &model, o);
}

/* ---- added_tokens, and the whole ------------------------------------------------- */

static void read_added(Reader *r, Json list)
{
        if (json_type(list) && json_type(list) != '[')
                bad(r, "'added_tokens' should be a list");
        for (JsonEach i = json_each(list); json_next(&i) && r->rc == TGC_OK;) {
                Added a = { .special = get_bool(r, i.value, "special", 0),
                            .lstrip = get_bool(r, i.value, "lstrip", 0) };
                Json content = get(i.value, "content");
                const char *s;
                size_t n;

                if (json_type(content) != '"')
                        bad(r, "an added token: 'content' should be a string");
                a.rstrip = get_bool(r, i.value, "rstrip", 0);
                a.single_word = get_bool(r, i.value, "single_word", 0);
                a.normalized = get_bool(r, i.value, "normalized", !a.special);
                a.id = get_count(r, i.value, "id", TOK_MAX_VOCAB - 1);
                if (r->rc != TGC_OK)
                        return;
                if (!(s = json_string(content, &r->a, &n)))
                        r->rc = tok_no_memory(r->e);
                else if (n)
                        r->rc = tok_add(r->t, s, n, a, r->e);
        }
}

static void read_unk(Reader *r, Json unk)
{
        const char *s;
        size_t n;

        if (r->rc != TGC_OK || !json_type(unk))
                return;
        r->t->unk = (s = json_string(unk, &r->a, &n)) ? vocab_find(&r->t->vocab, s, n) : -1;
        if (r->t->unk < 0)
                bad(r, "BPE: 'unk_token' is not a token");
}

static void read_root(Reader *r, Json o)
{
        Tokenizer *t = r->t;

        read_model(r, get(o, "model"));
        read_stage(r, &normalizer, get(o, "normalizer"));
        read_stage(r, &pre_tokenizer, get(o, "pre_tokenizer"));
        read_stage(r, &post_processor, get(o, "post_processor"));
        /* after the normalizer, which they may go through */
        read_added(r, get(o, "added_tokens"));
        read_stage(r, &decoder, get(o, "decoder"));
        if (!json_type(get(o, "decoder"))) /* Hugging Face then puts spaces between tokens */
                put_decode(r, o,
                           (Decode) { .op = DECODE_JOIN, .with = copy(r, " ", 1), .n_with = 1 });
        read_unk(r, get(get(o, "model"), "unk_token"));
        for (int i = 0; i < t->n_prefix; i++)
                if (t->prefix[i] >= t->vocab.n)
                        bad(r, "TemplateProcessing: id %d is not in the vocabulary", t->prefix[i]);
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
