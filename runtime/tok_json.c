/* tok_json.c: Hugging Face's tokenizer.json, type BPE.
 *
 * Each of its parts is null or an object with a "type".  A type is a row of a table
 * and a function that appends steps; what has no row is refused by its name.
 * Failures are sticky: after the first, `rc` is set and reading goes on without
 * effect, so that most readers need not look at it. */
#include <stdarg.h>
#include <stdio.h>
#include <cjson/cJSON.h>
#include <utf8proc.h>
#include "tok.h"

typedef struct Reader {
        Tokenizer *t;
        Err  *e;
        int   rc;
        bool  in_bytes, fused, stripped;        /* how far the decoders read so far have come */
} Reader;
typedef struct Part { const char *type; void (*read)(Reader *r, const cJSON *o); } Part;
typedef struct Stage { const char *name, *list; const Part *part; } Stage;      /* list: a Sequence's own */

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

/* Case counts, and null is absent. */
static const cJSON *get(const cJSON *o, const char *key)
{
        const cJSON *c;

        cJSON_ArrayForEach(c, o)
                if (c->string && !strcmp(c->string, key))
                        return cJSON_IsNull(c) ? NULL : c;
        return NULL;
}

static const char *type_of(const cJSON *o)
{
        const cJSON *type = get(o, "type");
        return cJSON_IsString(type) ? type->valuestring : "";
}

/* fallback NULL: the field must be there.  Never returns NULL. */
static const char *get_str(Reader *r, const cJSON *o, const char *key, const char *fallback)
{
        const cJSON *c = get(o, key);

        if (cJSON_IsString(c))
                return c->valuestring;
        if (c || !fallback)
                bad(r, "%s: '%s' should be a string", type_of(o), key);
        return fallback ? fallback : "";
}

enum { MUST = -1 };

static bool get_bool(Reader *r, const cJSON *o, const char *key, int fallback)
{
        const cJSON *c = get(o, key);

        if (cJSON_IsBool(c))
                return cJSON_IsTrue(c);
        if (c || fallback == MUST)
                bad(r, "%s: '%s' should be true or false", type_of(o), key);
        return fallback > 0;
}

static int get_count(Reader *r, const cJSON *o, const char *key, int most)
{
        const cJSON *c = get(o, key);

        if (cJSON_IsNumber(c) && c->valuedouble >= 0 && c->valuedouble <= most && c->valuedouble == c->valueint)
                return c->valueint;
        bad(r, "%s: '%s' should be a whole number from 0 to %d", type_of(o), key, most);
        return 0;
}

/* A string of one character */
static const char *get_char(Reader *r, const cJSON *o, const char *key)
{
        const char *s = get_str(r, o, key, NULL);
        uint32_t cp;

        if (r->rc == TGC_OK && (!*s || utf8_get(s, strlen(s), &cp) != strlen(s)))
                bad(r, "%s: '%s' should be one character", type_of(o), key);
        return r->rc == TGC_OK ? s : " ";
}

static char *copy(Reader *r, const char *s)
{
        char *p = r->rc == TGC_OK ? strdup(s) : NULL;

        if (!p && r->rc == TGC_OK)
                r->rc = tok_no_memory(r->e);
        return p;
}

/* {"String": ...} or {"Regex": ...}: returns which, with its text. */
static const char *get_pattern(Reader *r, const cJSON *o, bool *regex)
{
        const cJSON *c = get(o, "pattern"), *s = get(c, "String"), *x = get(c, "Regex");

        *regex = !s;
        if (!cJSON_IsString(s) && !cJSON_IsString(x))
                bad(r, "%s: 'pattern' should be {\"String\": ...} or {\"Regex\": ...}", type_of(o));
        return r->rc != TGC_OK ? "" : (s ? s : x)->valuestring;
}

static void read_pattern(Reader *r, const cJSON *o, Pattern *p)
{
        bool regex;
        const char *s = get_pattern(r, o, &regex);

        if (r->rc == TGC_OK)
                r->rc = regex ? pattern_regex(p, s, r->e) : pattern_literal(p, s, strlen(s), r->e);
}

static void read_stage(Reader *r, const Stage *stage, const cJSON *o)
{
        const char *type = type_of(o);
        const cJSON *list, *c;

        if (!o || r->rc != TGC_OK)
                return;
        if (!strcmp(type, "Sequence") && stage->list) {
                if (!cJSON_IsArray(list = get(o, stage->list)))
                        bad(r, "%s Sequence: '%s' should be a list", stage->name, stage->list);
                cJSON_ArrayForEach(c, list)
                        read_stage(r, stage, c);
                return;
        }
        for (const Part *part = stage->part; part->type; part++)
                if (!strcmp(part->type, type)) {
                        part->read(r, o);
                        return;
                }
        bad(r, "%s of type '%.60s' is not supported", stage->name, type);
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

static void norm_unicode(Reader *r, const cJSON *o)
{
        const char *form = type_of(o);          /* NFC, NFD, NFKC, NFKD */
        int options = UTF8PROC_STABLE | (form[2] == 'K' ? UTF8PROC_COMPAT : 0);

        put_norm(r, (Norm){ .op = NORM_UNICODE, .form = options | (strchr(form, 'D') ? UTF8PROC_DECOMPOSE
                                                                                     : UTF8PROC_COMPOSE) });
}

static void norm_lower(Reader *r, const cJSON *o)
{
        (void)o;
        put_norm(r, (Norm){ .op = NORM_LOWER });
}

static void norm_no_marks(Reader *r, const cJSON *o)
{
        (void)o;
        put_norm(r, (Norm){ .op = NORM_NO_MARKS });
}

static void norm_strip(Reader *r, const cJSON *o)
{
        bool left = get_bool(r, o, "strip_left", MUST), right = get_bool(r, o, "strip_right", MUST);
        put_norm(r, (Norm){ .op = NORM_STRIP, .left = left, .right = right });
}

static void norm_prepend(Reader *r, const cJSON *o)
{
        const char *s = get_str(r, o, "prepend", NULL);
        put_norm(r, (Norm){ .op = NORM_PREPEND, .with = copy(r, s), .n_with = strlen(s) });
}

static void norm_replace(Reader *r, const cJSON *o)
{
        const char *s = get_str(r, o, "content", NULL);
        Norm n = { .op = NORM_REPLACE, .with = copy(r, s), .n_with = strlen(s) };

        read_pattern(r, o, &n.pattern);
        put_norm(r, n);
}

static const Part norm_part[] = {
        { "NFC",          norm_unicode  }, { "NFD",     norm_unicode }, { "NFKC",    norm_unicode },
        { "NFKD",         norm_unicode  }, { "Strip",   norm_strip   }, { "Prepend", norm_prepend },
        { "Lowercase",    norm_lower    }, { "Replace", norm_replace }, { "StripAccents", norm_no_marks }, { 0 }
};
static const Stage normalizer = { "normalizer", "normalizers", norm_part };

/* ---- pre_tokenizer --------------------------------------------------------------- */

/* \w of the Rust regex crate: no fractions and superscripts, but joiners. */
#define WORD  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}" \
              "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

static int get_cut(Reader *r, const cJSON *o, const char *fallback)
{
        static const char *const name[] = {
                [CUT_REMOVED] = "Removed", [CUT_ISOLATED] = "Isolated", [CUT_CONTIGUOUS] = "Contiguous",
                [CUT_WITH_PREVIOUS] = "MergedWithPrevious", [CUT_WITH_NEXT] = "MergedWithNext"
        };
        const char *s = get_str(r, o, "behavior", fallback);

        for (int i = 0; i < (int)(sizeof name / sizeof *name); i++)
                if (!strcmp(s, name[i]))
                        return i;
        bad(r, "%s: behavior '%.60s' is not supported", type_of(o), s);
        return CUT_ISOLATED;
}

static void split_regex(Reader *r, const char *regex, int cut, bool invert)
{
        if (r->rc == TGC_OK)
                r->rc = tok_split_regex(r->t, regex, cut, invert, r->e);
}

static void split_literal(Reader *r, const char *text, int cut, bool invert)
{
        if (r->rc == TGC_OK)
                r->rc = tok_split_literal(r->t, text, cut, invert, r->e);
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

static void split_byte_level(Reader *r, const cJSON *o)
{
        if (get_bool(r, o, "add_prefix_space", MUST))
                split_prefix(r, " ", PREFIX_ALWAYS);
        if (get_bool(r, o, "use_regex", 1))
                split_regex(r, gpt2_regex, CUT_ISOLATED, false);
        if (r->rc == TGC_OK)
                r->rc = tok_split_bytes(r->t, r->e);
}

static void split_pattern(Reader *r, const cJSON *o)
{
        int cut = get_cut(r, o, NULL);
        bool regex, invert = get_bool(r, o, "invert", 0);
        const char *s = get_pattern(r, o, &regex);

        (regex ? split_regex : split_literal)(r, s, cut, invert);
}

/* When the mark goes before a text: "prepend_scheme", in older files "add_prefix_space". */
static int get_scheme(Reader *r, const cJSON *o)
{
        static const char *const name[] = { [PREFIX_ALWAYS] = "always", [PREFIX_FIRST] = "first",
                                            [PREFIX_NEVER] = "never" };
        const char *s = get_str(r, o, "prepend_scheme", get_bool(r, o, "add_prefix_space", 1) ? "always" : "never");

        for (int i = 0; i < (int)(sizeof name / sizeof *name); i++)
                if (!strcmp(s, name[i]))
                        return i;
        bad(r, "Metaspace: prepend_scheme '%.60s' is not supported", s);
        return PREFIX_NEVER;
}

static void split_metaspace(Reader *r, const cJSON *o)
{
        const char *mark = get_char(r, o, "replacement");
        int when = get_scheme(r, o);

        if (r->rc == TGC_OK)
                r->rc = tok_split_replace(r->t, " ", mark, r->e);
        if (when != PREFIX_NEVER)
                split_prefix(r, mark, when);
        if (get_bool(r, o, "split", 1))
                split_literal(r, mark, CUT_WITH_NEXT, false);
}

static void split_digits(Reader *r, const cJSON *o)
{
        split_set(r, cp_digit, n_cp_digit, get_bool(r, o, "individual_digits", 0) ? CUT_ISOLATED : CUT_CONTIGUOUS);
}

static void split_punctuation(Reader *r, const cJSON *o)
{
        split_set(r, cp_punctuation, n_cp_punctuation, get_cut(r, o, "Isolated"));
}

static void split_words(Reader *r, const cJSON *o)
{
        (void)o;
        split_regex(r, "[" WORD "]+|[^" WORD "\\s]+", CUT_REMOVED, true);
}

static void split_spaces(Reader *r, const cJSON *o)
{
        (void)o;
        split_set(r, cp_space, n_cp_space, CUT_REMOVED);
}

static void split_delimiter(Reader *r, const cJSON *o)
{
        split_literal(r, get_char(r, o, "delimiter"), CUT_REMOVED, false);
}

static void split_bert(Reader *r, const cJSON *o)
{
        (void)o;
        split_set(r, cp_space, n_cp_space, CUT_REMOVED);
        split_set(r, cp_punctuation, n_cp_punctuation, CUT_ISOLATED);
}

static const Part split_part[] = {
        { "ByteLevel",  split_byte_level }, { "Metaspace",        split_metaspace }, { "Split",  split_pattern },
        { "Whitespace", split_words      }, { "WhitespaceSplit",  split_spaces    }, { "Digits", split_digits  },
        { "Punctuation", split_punctuation }, { "BertPreTokenizer", split_bert    },
        { "CharDelimiterSplit", split_delimiter }, { 0 }
};
static const Stage pre_tokenizer = { "pre_tokenizer", "pretokenizers", split_part };

/* ---- decoder --------------------------------------------------------------------- */

/* Takes d over. */
static void put_decode(Reader *r, const cJSON *o, Decode d)
{
        Tokenizer *t = r->t;

        if (r->rc == TGC_OK && t->n_decode == TOK_MAX_STEPS)
                bad(r, "more than %d decoders", TOK_MAX_STEPS);
        if (r->fused && (d.op != DECODE_STRIP || r->stripped) && d.op != DECODE_FUSE)
                bad(r, "decoder %s after %s is not supported", type_of(o), r->stripped ? "Strip" : "Fuse or ByteLevel");
        if (r->in_bytes && d.op != DECODE_FUSE)
                bad(r, "decoder %s after ByteFallback, without Fuse between, is not supported", type_of(o));
        if (r->fused && d.stop)
                bad(r, "decoder Strip: a 'stop' after Fuse needs the end of the text, which a stream does not have");
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

static void decode_bytes(Reader *r, const cJSON *o)
{
        put_decode(r, o, (Decode){ .op = DECODE_BYTES });
        put_decode(r, o, (Decode){ .op = DECODE_FUSE });        /* the reference makes one text of them */
}

static void decode_fallback(Reader *r, const cJSON *o)
{
        put_decode(r, o, (Decode){ .op = DECODE_FALLBACK });
}

static void decode_fuse(Reader *r, const cJSON *o)
{
        put_decode(r, o, (Decode){ .op = DECODE_FUSE });
}

static void decode_metaspace(Reader *r, const cJSON *o)
{
        const char *mark = get_char(r, o, "replacement");
        bool drop = get_scheme(r, o) != PREFIX_NEVER;

        put_decode(r, o, (Decode){ .op = DECODE_METASPACE, .with = copy(r, mark), .n_with = strlen(mark),
                                   .drop_first = drop });
}

static void decode_replace(Reader *r, const cJSON *o)
{
        const char *s = get_str(r, o, "content", NULL);
        Decode d = { .op = DECODE_REPLACE, .with = copy(r, s), .n_with = strlen(s) };

        read_pattern(r, o, &d.pattern);
        put_decode(r, o, d);
}

static void decode_strip(Reader *r, const cJSON *o)
{
        const char *s = get_char(r, o, "content");
        int start = get_count(r, o, "start", TOK_MAX_ADDED), stop = get_count(r, o, "stop", TOK_MAX_ADDED);

        put_decode(r, o, (Decode){ .op = DECODE_STRIP, .with = copy(r, s), .n_with = strlen(s),
                                   .start = start, .stop = stop });
}

static const Part decode_part[] = {
        { "ByteLevel", decode_bytes   }, { "ByteFallback", decode_fallback  }, { "Fuse",  decode_fuse  },
        { "Replace",   decode_replace }, { "Metaspace",    decode_metaspace }, { "Strip", decode_strip }, { 0 }
};
static const Stage decoder = { "decoder", "decoders", decode_part };

/* ---- post_processor -------------------------------------------------------------- */

static void post_offsets(Reader *r, const cJSON *o)
{
        (void)r, (void)o;               /* ByteLevel here moves offsets, not ids */
}

/* The special tokens before "A" are what adding BOS adds; those behind it (an EOS)
 * would end a prompt and are left out. */
static void post_template(Reader *r, const cJSON *o)
{
        const cJSON *single = get(o, "single"), *item, *id;
        Tokenizer *t = r->t;

        if (!cJSON_IsArray(single))
                bad(r, "TemplateProcessing: 'single' should be a list");
        cJSON_ArrayForEach(item, single) {
                const cJSON *name = get(get(item, "SpecialToken"), "id"), *ids;

                if (get(item, "Sequence") || r->rc != TGC_OK)
                        break;
                ids = cJSON_IsString(name) ? get(get(get(o, "special_tokens"), name->valuestring), "ids") : NULL;
                if (!cJSON_IsArray(ids))
                        bad(r, "TemplateProcessing: a special token without ids");
                cJSON_ArrayForEach(id, ids) {
                        if (!cJSON_IsNumber(id) || id->valuedouble != id->valueint || id->valueint < 0
                            || t->n_prefix == TOK_MAX_PREFIX) {
                                bad(r, "TemplateProcessing: the ids of '%.60s' should be at most %d whole numbers",
                                    name->valuestring, TOK_MAX_PREFIX);
                                break;
                        }
                        t->prefix[t->n_prefix++] = id->valueint;
                }
        }
}

static const Part post_part[] = { { "TemplateProcessing", post_template }, { "ByteLevel", post_offsets }, { 0 } };
static const Stage post_processor = { "post_processor", "processors", post_part };

/* ---- model ----------------------------------------------------------------------- */

/* Called while rc is TGC_OK.  A merge is "a b", or since 2024 ["a", "b"]. */
static void read_merge(Reader *r, const cJSON *o, int rank)
{
        const cJSON *a = cJSON_IsArray(o) ? o->child : NULL, *b = a ? a->next : NULL;
        const char *s, *gap;

        if (cJSON_IsString(a) && cJSON_IsString(b) && !b->next) {
                r->rc = tok_merge(r->t, a->valuestring, strlen(a->valuestring), b->valuestring,
                                  strlen(b->valuestring), rank, r->e);
                return;
        }
        s = cJSON_IsString(o) ? o->valuestring : "";
        gap = strchr(s, ' ');
        if (!gap || strchr(gap + 1, ' '))
                bad(r, "merge %d should be \"a b\" or [\"a\", \"b\"]", rank);
        else
                r->rc = tok_merge(r->t, s, (size_t)(gap - s), gap + 1, strlen(gap + 1), rank, r->e);
}

static void model_bpe(Reader *r, const cJSON *o)
{
        const cJSON *merges = get(o, "merges"), *dropout = get(o, "dropout"), *m;
        Tokenizer *t = r->t;
        int rank = 0;

        if (dropout && !(cJSON_IsNumber(dropout) && dropout->valuedouble == 0))
                bad(r, "BPE: dropout is not supported");
        if (*get_str(r, o, "continuing_subword_prefix", "") || *get_str(r, o, "end_of_word_suffix", ""))
                bad(r, "BPE: continuing_subword_prefix and end_of_word_suffix are not supported");
        t->fuse_unk = get_bool(r, o, "fuse_unk", 0);
        t->byte_fallback = get_bool(r, o, "byte_fallback", 0);
        t->ignore_merges = get_bool(r, o, "ignore_merges", 0);
        if (r->rc == TGC_OK)
                r->rc = tok_json_vocab(t, get(o, "vocab"), r->e);
        if (!cJSON_IsArray(merges))
                bad(r, "BPE: 'merges' should be a list");
        for (m = r->rc == TGC_OK ? merges->child : NULL; m && r->rc == TGC_OK; m = m->next)
                read_merge(r, m, rank++);
        for (int b = 0; b < 256; b++) {
                char name[8];
                snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
                t->byte_id[b] = vocab_find(&t->vocab, name, 6);
        }
}

static const Part model_part[] = { { "BPE", model_bpe }, { 0 } };
static const Stage model = { "model", NULL, model_part };

static void read_model(Reader *r, const cJSON *o)
{
        if (!cJSON_IsObject(o))
                bad(r, "there is no model");
        else if (!get(o, "type") && get(o, "merges"))           /* files before 2020 name no type */
                model_bpe(r, o);
        else
                read_stage(r, &model, o);
}

/* ---- added_tokens, and the whole ------------------------------------------------- */

static void read_added(Reader *r, const cJSON *list)
{
        const cJSON *o;

        if (list && !cJSON_IsArray(list))
                bad(r, "'added_tokens' should be a list");
        cJSON_ArrayForEach(o, list) {
                const char *s = get_str(r, o, "content", NULL);
                Added a = { .special = get_bool(r, o, "special", 0), .lstrip = get_bool(r, o, "lstrip", 0) };

                a.rstrip = get_bool(r, o, "rstrip", 0);
                a.single_word = get_bool(r, o, "single_word", 0);
                a.normalized = get_bool(r, o, "normalized", !a.special);
                a.id = get_count(r, o, "id", TOK_MAX_VOCAB - 1);
                if (r->rc == TGC_OK && *s)
                        r->rc = tok_add(r->t, s, strlen(s), a, r->e);
        }
}

int read_hf(Tokenizer *t, Err *e)
{
        Reader r = { .t = t, .e = e };
        const cJSON *unk;
        cJSON *o;
        int rc = tok_json_parse(&o, "tokenizer.json", t->blob, t->n_blob, e);

        if (rc != TGC_OK)
                return rc;
        read_model(&r, get(o, "model"));
        read_stage(&r, &normalizer, get(o, "normalizer"));
        read_stage(&r, &pre_tokenizer, get(o, "pre_tokenizer"));
        read_stage(&r, &post_processor, get(o, "post_processor"));
        read_added(&r, get(o, "added_tokens"));         /* after the normalizer, which they may go through */
        read_stage(&r, &decoder, get(o, "decoder"));
        if (!get(o, "decoder"))                         /* Hugging Face then puts spaces between tokens */
                put_decode(&r, o, (Decode){ .op = DECODE_JOIN, .with = copy(&r, " "), .n_with = 1 });

        if (r.rc == TGC_OK && (unk = get(get(o, "model"), "unk_token"))) {
                t->unk = cJSON_IsString(unk) ? vocab_find(&t->vocab, unk->valuestring, strlen(unk->valuestring)) : -1;
                if (t->unk < 0)
                        bad(&r, "BPE: 'unk_token' is not a token");
        }
        for (int i = 0; i < t->n_prefix; i++)
                if (t->prefix[i] >= t->vocab.n)
                        bad(&r, "TemplateProcessing: id %d is not in the vocabulary", t->prefix[i]);
        t->adds_bos = t->n_prefix > 0;
        t->bos = t->n_prefix ? t->prefix[0] : -1;
        cJSON_Delete(o);
        return r.rc;
}
