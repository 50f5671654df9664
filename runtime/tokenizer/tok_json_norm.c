/* tok_json_norm.c: normalizers of a tokenizer.json */
#include "tok_json.h"

/* Takes n over. */
static void put_norm(Reader *r, Norm n)
{
        if (r->rc == TGC_OK)
                r->rc = tok_norm(r->t, n, r->e);
        else
                norm_free(&n);
}

static void norm_unicode(Reader *r, Json o)
{
        const char *form = hf_type(r, o);

        if (r->rc == TGC_OK)
                r->rc = tok_norm_form(r->t, form, r->e);
}

static void put_op(Reader *r, int op) { put_norm(r, (Norm) { .op = op }); }

static void norm_lower(Reader *r, Json o)
{
        (void)o;
        put_op(r, NORM_LOWER);
}

static void norm_no_marks(Reader *r, Json o)
{
        (void)o;
        put_op(r, NORM_NO_MARKS);
}

static void norm_strip(Reader *r, Json o)
{
        bool left = hf_bool(r, o, "strip_left", MUST), right = hf_bool(r, o, "strip_right", MUST);
        put_norm(r, (Norm) { .op = NORM_STRIP, .left = left, .right = right });
}

static void norm_prepend(Reader *r, Json o)
{
        size_t n;
        const char *s = hf_str(r, o, "prepend", NULL, &n);

        put_norm(r, (Norm) { .op = NORM_PREPEND, .with = hf_copy(r, s, n), .n_with = n });
}

static void norm_replace(Reader *r, Json o)
{
        size_t len;
        const char *s = hf_str(r, o, "content", NULL, &len);
        Norm n = { .op = NORM_REPLACE, .with = hf_copy(r, s, len), .n_with = len };

        hf_pattern(r, o, &n.pattern);
        put_norm(r, n);
}

static void norm_nmt(Reader *r, Json o)
{
        (void)o;
        put_op(r, NORM_NMT);
}

static void norm_bytes(Reader *r, Json o)
{
        (void)o;
        put_op(r, NORM_BYTES);
}

static void norm_bert(Reader *r, Json o)
{
        bool lower = hf_bool(r, o, "lowercase", MUST);
        bool clean = hf_bool(r, o, "clean_text", MUST);
        bool han = hf_bool(r, o, "handle_chinese_chars", MUST);
        bool strip = hf_bool(r, o, "strip_accents", lower);

        if (r->rc == TGC_OK)
                r->rc = tok_bert_norm(r->t, clean, han, strip, lower, r->e);
}

/* "precompiled_charsmap" is base64. */
static void norm_precompiled(Reader *r, Json o)
{
        size_t len;
        const char *s = hf_str(r, o, "precompiled_charsmap", NULL, &len);
        Norm n = { .op = NORM_CHARSMAP };
        Buf b = { 0 };

        if (r->rc == TGC_OK && len && !base64_put(s, len, &b))
                hf_bad(r, "Precompiled: 'precompiled_charsmap' is not base64");
        if (b.bad && r->rc == TGC_OK)
                r->rc = tok_no_memory(r->e);
        n.with = b.p;
        n.n_with = b.n;
        if (r->rc == TGC_OK)
                r->rc = charsmap_open(&n.map, b.p ? b.p : "", b.n, r->e);
        put_norm(r, n);
}

static const Part norm_part[] = { { "NFC", norm_unicode },
                                  { "NFD", norm_unicode },
                                  { "NFKC", norm_unicode },
                                  { "NFKD", norm_unicode },
                                  { "Strip", norm_strip },
                                  { "Prepend", norm_prepend },
                                  { "Lowercase", norm_lower },
                                  { "Replace", norm_replace },
                                  { "StripAccents", norm_no_marks },
                                  { "Nmt", norm_nmt },
                                  { "BertNormalizer", norm_bert },
                                  { "ByteLevel", norm_bytes },
                                  { "Precompiled", norm_precompiled },
                                  { 0 } };
const Stage hf_normalizer = { "normalizer", "normalizers", norm_part };
