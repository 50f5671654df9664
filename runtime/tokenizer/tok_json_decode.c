/* tok_json_decode.c: decoders and post-processors of a tokenizer.json */
#include "tok_json.h"

/* ---- decoder --------------------------------------------------------------------- */

/* Takes d over. */
static void put_decode(Reader *r, Json o, Decode d)
{
        Tokenizer *t = r->t;

        if (r->rc == TGC_OK && t->n_decode == TOK_MAX_STEPS)
                hf_bad(r, "more than %d decoders", TOK_MAX_STEPS);
        if (r->fused && (d.op != DECODE_STRIP || r->stripped) && d.op != DECODE_FUSE)
                hf_bad(r, "decoder %s after %s is not supported", hf_type(r, o),
                       r->stripped ? "Strip" : "Fuse or ByteLevel");
        if (r->in_bytes && d.op != DECODE_FUSE)
                hf_bad(r, "decoder %s after ByteFallback, without Fuse between, is not supported",
                       hf_type(r, o));
        if (r->fused && d.stop)
                hf_bad(r, "decoder Strip: a 'stop' after Fuse needs the end of the text, which a "
                          "stream does not have");
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
        const char *mark = hf_char(r, o, "replacement");
        bool drop = hf_scheme(r, o) != PREFIX_NEVER;

        put_decode(r, o,
                   (Decode) { .op = DECODE_METASPACE,
                              .with = hf_copy(r, mark, strlen(mark)),
                              .n_with = strlen(mark),
                              .drop_first = drop });
}

static void decode_replace(Reader *r, Json o)
{
        size_t n;
        const char *s = hf_str(r, o, "content", NULL, &n);
        Decode d = { .op = DECODE_REPLACE, .with = hf_copy(r, s, n), .n_with = n };

        hf_pattern(r, o, &d.pattern);
        put_decode(r, o, d);
}

static void decode_strip(Reader *r, Json o)
{
        const char *s = hf_char(r, o, "content");
        int start = hf_count(r, o, "start", TOK_MAX_ADDED),
            stop = hf_count(r, o, "stop", TOK_MAX_ADDED);

        put_decode(r, o,
                   (Decode) { .op = DECODE_STRIP,
                              .with = hf_copy(r, s, strlen(s)),
                              .n_with = strlen(s),
                              .start = start,
                              .stop = stop });
}

static void decode_wordpiece(Reader *r, Json o)
{
        const char *prefix = hf_name(r, o, "prefix", NULL);
        bool clean_up = hf_bool(r, o, "cleanup", MUST);

        put_decode(r, o,
                   (Decode) { .op = DECODE_WORDPIECE,
                              .with = hf_copy(r, prefix, strlen(prefix)),
                              .n_with = strlen(prefix) });
        if (clean_up)
                put_decode(r, o, (Decode) { .op = DECODE_CLEAN_UP });
}

void hf_no_decoder(Reader *r, Json o)
{
        put_decode(r, o, (Decode) { .op = DECODE_JOIN, .with = hf_copy(r, " ", 1), .n_with = 1 });
}

static const Part decode_part[] = {
        { "ByteLevel", decode_bytes },     { "ByteFallback", decode_fallback },
        { "Fuse", decode_fuse },           { "Replace", decode_replace },
        { "Metaspace", decode_metaspace }, { "Strip", decode_strip },
        { "WordPiece", decode_wordpiece }, { 0 }
};
const Stage hf_decoder = { "decoder", "decoders", decode_part };

/* ---- post_processor -------------------------------------------------------------- */

static void post_offsets(Reader *r, Json o)
{
        (void)r, (void)o; /* ByteLevel here moves offsets, not ids */
}

static void put_around(Reader *r, bool before, int id, const char *name)
{
        Tokenizer *t = r->t;
        int *list = before ? t->prefix : t->suffix, *n = before ? &t->n_prefix : &t->n_suffix;

        if (id < 0 || *n == TOK_MAX_PREFIX)
                hf_bad(r, "post_processor: the ids of '%.60s' should be at most %d whole numbers",
                       name, TOK_MAX_PREFIX);
        else
                list[(*n)++] = id;
}

/* The special tokens before "A" are what adding BOS adds; those behind it (an EOS, [SEP]) end a
 * text, which encode leaves to its caller. */
static void post_template(Reader *r, Json o)
{
        Json single = hf_get(o, "single");
        bool before = true;

        if (json_type(single) != '[')
                hf_bad(r, "TemplateProcessing: 'single' should be a list");
        for (JsonEach i = json_each(single); json_next(&i) && r->rc == TGC_OK;) {
                size_t n;
                Json text = hf_get(i.value, "Sequence");
                const char *name = hf_keep(r, hf_get(hf_get(i.value, "SpecialToken"), "id"), &n);
                Json ids = name ? hf_get(hf_get(hf_get(o, "special_tokens"), name), "ids")
                                : (Json) { 0 };

                if (json_type(text)) {
                        if (!before || !json_is(hf_get(text, "id"), "A"))
                                hf_bad(r,
                                       "TemplateProcessing: 'single' should have the text A once");
                        before = false;
                        continue;
                }
                if (json_type(ids) != '[')
                        hf_bad(r, "TemplateProcessing: a special token without ids");
                for (JsonEach k = json_each(ids); json_next(&k) && r->rc == TGC_OK;)
                        put_around(r, before, hf_whole(k.value, TOK_MAX_VOCAB - 1), name);
        }
}

/* BertProcessing and RobertaProcessing: "cls" and "sep" are [token, id]. */
static void post_bert(Reader *r, Json o)
{
        static const char *const key[] = { "cls", "sep" };

        for (int i = 0; i < 2 && r->rc == TGC_OK; i++) {
                JsonEach k = json_each(hf_get(o, key[i]));
                bool two = json_next(&k) && json_type(k.value) == '"' && json_next(&k);

                put_around(r, !i, two ? hf_whole(k.value, TOK_MAX_VOCAB - 1) : -1, key[i]);
        }
}

static const Part post_part[] = { { "TemplateProcessing", post_template },
                                  { "BertProcessing", post_bert },
                                  { "RobertaProcessing", post_bert },
                                  { "ByteLevel", post_offsets },
                                  { 0 } };
const Stage hf_post_processor = { "post_processor", "processors", post_part };
