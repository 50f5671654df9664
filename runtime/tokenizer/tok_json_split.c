/* tok_json_split.c: pre-tokenizers of a tokenizer.json */
#include "tok_json.h"
#include "tok_regex.h"

/* \w of the Rust regex crate: no fractions and superscripts, but joiners. */
#define WORD                                                                     \
        "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}" \
        "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

static int get_cut(Reader *r, Json o, const char *fallback)
{
        static const char *const name[] = { [CUT_REMOVED] = "Removed",
                                            [CUT_ISOLATED] = "Isolated",
                                            [CUT_CONTIGUOUS] = "Contiguous",
                                            [CUT_WITH_PREVIOUS] = "MergedWithPrevious",
                                            [CUT_WITH_NEXT] = "MergedWithNext" };
        const char *s = hf_name(r, o, "behavior", fallback);

        for (int i = 0; i < (int)(sizeof name / sizeof *name); i++)
                if (!strcmp(s, name[i]))
                        return i;
        hf_bad(r, "%s: behavior '%.60s' is not supported", hf_type(r, o), s);
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
        if (hf_bool(r, o, "add_prefix_space", MUST))
                split_prefix(r, " ", PREFIX_ALWAYS);
        if (hf_bool(r, o, "use_regex", 1))
                split_regex(r, RE_GPT2, CUT_ISOLATED, false);
        if (r->rc == TGC_OK)
                r->rc = tok_split_bytes(r->t, r->e);
}

static void split_pattern(Reader *r, Json o)
{
        int cut = get_cut(r, o, NULL);
        bool regex, invert = hf_bool(r, o, "invert", 0);
        size_t n;
        const char *s = hf_pattern_text(r, o, &regex, &n);

        if (regex)
                split_regex(r, s, cut, invert);
        else
                split_literal(r, s, n, cut, invert);
}

/* When the mark goes before a text: "prepend_scheme", in older files "add_prefix_space". */
int hf_scheme(Reader *r, Json o)
{
        static const char *const name[] = {
                [PREFIX_ALWAYS] = "always", [PREFIX_FIRST] = "first", [PREFIX_NEVER] = "never"
        };
        const char *s = hf_name(r, o, "prepend_scheme",
                                hf_bool(r, o, "add_prefix_space", 1) ? "always" : "never");

        for (int i = 0; i < (int)(sizeof name / sizeof *name); i++)
                if (!strcmp(s, name[i]))
                        return i;
        hf_bad(r, "Metaspace: prepend_scheme '%.60s' is not supported", s);
        return PREFIX_NEVER;
}

static void split_metaspace(Reader *r, Json o)
{
        const char *mark = hf_char(r, o, "replacement");
        int when = hf_scheme(r, o);

        if (r->rc == TGC_OK)
                r->rc = tok_split_replace(r->t, " ", mark, r->e);
        if (when != PREFIX_NEVER)
                split_prefix(r, mark, when);
        if (hf_bool(r, o, "split", 1))
                split_literal(r, mark, strlen(mark), CUT_WITH_NEXT, false);
}

static void split_digits(Reader *r, Json o)
{
        split_set(r, cp_digit, n_cp_digit,
                  hf_bool(r, o, "individual_digits", 0) ? CUT_ISOLATED : CUT_CONTIGUOUS);
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
        const char *s = hf_char(r, o, "delimiter");

        split_literal(r, s, strlen(s), CUT_REMOVED, false);
}

static void split_bert(Reader *r, Json o)
{
        (void)o;
        if (r->rc == TGC_OK)
                r->rc = tok_bert_split(r->t, r->e);
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
const Stage hf_pre_tokenizer = { "pre_tokenizer", "pretokenizers", split_part };
