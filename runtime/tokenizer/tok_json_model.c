/* tok_json_model.c: the model of a tokenizer.json, with its vocabulary */
#include <stdio.h>
#include "tok_json.h"

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
        hf_bad(r, "merge %d should be \"a b\" or [\"a\", \"b\"]", rank);
}

static void find_bytes(Tokenizer *t)
{
        for (int b = 0; b < 256; b++) {
                char name[8];
                snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
                t->byte_id[b] = vocab_find(&t->vocab, name, 6);
        }
}

static void model_bpe(Reader *r, Json o)
{
        Json merges = hf_get(o, "merges"), dropout = hf_get(o, "dropout");
        Tokenizer *t = r->t;
        int rank = 0;

        if (json_type(dropout) && json_number(dropout) != 0)
                hf_bad(r, "BPE: dropout is not supported");
        if (*hf_name(r, o, "continuing_subword_prefix", "") ||
            *hf_name(r, o, "end_of_word_suffix", ""))
                hf_bad(r,
                       "BPE: continuing_subword_prefix and end_of_word_suffix are not supported");
        t->fuse_unk = hf_bool(r, o, "fuse_unk", 0);
        t->byte_fallback = hf_bool(r, o, "byte_fallback", 0);
        t->ignore_merges = hf_bool(r, o, "ignore_merges", 0);
        if (r->rc == TGC_OK)
                r->rc = tok_json_vocab(t, hf_get(o, "vocab"), r->e);
        if (json_type(merges) != '[')
                hf_bad(r, "BPE: 'merges' should be a list");
        for (JsonEach i = json_each(merges); r->rc == TGC_OK && json_next(&i);)
                read_merge(r, i.value, rank++);
        find_bytes(t);
}

/* "unk_token", which must be a token where `must`. */
static void read_unk(Reader *r, Json o, bool must)
{
        Json unk = hf_get(o, "unk_token");
        const char *s;
        size_t n;

        if (r->rc != TGC_OK || (!json_type(unk) && !must))
                return;
        r->t->unk = (s = json_string(unk, &r->a, &n)) ? vocab_find(&r->t->vocab, s, n) : -1;
        if (r->t->unk < 0)
                hf_bad(r, "%s: 'unk_token' is not a token", hf_type(r, o));
}

static void model_wordpiece(Reader *r, Json o)
{
        Tokenizer *t = r->t;
        const char *next = hf_name(r, o, "continuing_subword_prefix", "##");

        t->model = MODEL_WORDPIECE;
        t->max_chars = json_type(hf_get(o, "max_input_chars_per_word"))
                               ? hf_count(r, o, "max_input_chars_per_word", INT32_MAX)
                               : 100;
        if (strlen(next) >= sizeof t->prefix_text)
                hf_bad(r, "WordPiece: 'continuing_subword_prefix' is longer than %zu bytes",
                       sizeof t->prefix_text - 1);
        if (r->rc == TGC_OK)
                r->rc = tok_json_vocab(t, hf_get(o, "vocab"), r->e);
        if (r->rc != TGC_OK)
                return;
        strcpy(t->prefix_text, next);
        t->word_start = "";
        t->word_next = t->prefix_text;
}

static void model_words(Reader *r, Json o)
{
        r->t->model = MODEL_WORDS;
        r->rc = tok_json_vocab(r->t, hf_get(o, "vocab"), r->e);
}

/* "vocab" is a list of [piece, score]; ids are places. */
static void model_unigram(Reader *r, Json o)
{
        Json vocab = hf_get(o, "vocab");
        Tokenizer *t = r->t;

        t->model = MODEL_UNIGRAM;
        t->byte_fallback = hf_bool(r, o, "byte_fallback", 0);
        t->unk = hf_count(r, o, "unk_id", TOK_MAX_VOCAB - 1);
        if (json_type(vocab) != '[')
                hf_bad(r, "Unigram: 'vocab' should be a list");
        for (JsonEach i = json_each(vocab); r->rc == TGC_OK && json_next(&i);) {
                JsonEach k = json_each(i.value);
                Json piece = json_next(&k) ? k.value : (Json) { 0 },
                     score = json_next(&k) ? k.value : (Json) { 0 };
                int id = t->vocab.n;
                const char *s;
                size_t n;

                if (json_type(piece) != '"' || json_type(score) != '0' || json_next(&k)) {
                        hf_bad(r, "Unigram: piece %d should be [\"piece\", score]", id);
                        return;
                }
                if (!(s = json_string(piece, &r->a, &n))) {
                        r->rc = tok_no_memory(r->e);
                        return;
                }
                r->rc = vocab_error(vocab_put(&t->vocab, id, s, n), "tokenizer.json", id, s, n,
                                    r->e);
                if (r->rc == TGC_OK)
                        r->rc = unigram_put(&t->unigram, id, s, n, json_number(score), TOK_NORMAL,
                                            r->e);
        }
        if (r->rc == TGC_OK && t->unk >= t->vocab.n)
                hf_bad(r, "Unigram: 'unk_id' is %d, but 'vocab' has %d pieces", t->unk, t->vocab.n);
        find_bytes(t);
}

static const Part model_part[] = { { "BPE", model_bpe },
                                   { "WordPiece", model_wordpiece },
                                   { "WordLevel", model_words },
                                   { "Unigram", model_unigram },
                                   { 0 } };
static const Stage model = { "model", NULL, model_part };

/* The oldest files name no type. */
static void untyped(Reader *r, Json o)
{
        if (json_type(hf_get(o, "merges")))
                model_bpe(r, o);
        else if (json_type(hf_get(o, "max_input_chars_per_word")))
                model_wordpiece(r, o);
        else if (json_type(hf_get(o, "vocab")) == '[')
                model_unigram(r, o);
        else
                hf_stage(r, &model, o);
}

void hf_model(Reader *r, Json o)
{
        if (json_type(o) != '{')
                hf_bad(r, "there is no model");
        else if (!json_type(hf_get(o, "type")))
                untyped(r, o);
        else
                hf_stage(r, &model, o);
}

void hf_unk(Reader *r, Json o)
{
        if (r->t->model != MODEL_UNIGRAM)
                read_unk(r, o, r->t->model != MODEL_BPE);
}
