/* tok_bert.c: reads BERT's vocab.txt: one piece a line, in the order of ids.
 *
 * The file does not say how text is cleaned.  tokenizer_config.json does ("do_lower_case",
 * "strip_accents", "tokenize_chinese_chars"); missing keys get BertTokenizer's defaults.  The five
 * special tokens are known by their names. */
#include "tok.h"

static int get_flag(Json o, const char *key, int fallback, int *flag, Err *e)
{
        Json v = json_get(o, key);

        *flag = json_type(v) == 't' ? 1 : json_type(v) == 'f' ? 0 : fallback;
        if (strchr("tfn", json_type(v)) || !json_type(v))
                return TGC_OK;
        return err_set(e, TGC_BAD_FILE, "tokenizer_config.json: '%s' should be true or false", key);
}

static int read_settings(Tokenizer *t, const char *text, size_t n, Err *e)
{
        int lower = 1, strip, han = 1, rc = TGC_OK;
        JsonText in;
        Json o = { 0 };

        if (n && (rc = json_open(&in, &o, text, n, "tokenizer_config.json", true, e)) != TGC_OK)
                return rc;
        rc = get_flag(o, "do_lower_case", 1, &lower, e);
        strip = lower;
        if (rc == TGC_OK)
                rc = get_flag(o, "strip_accents", lower, &strip, e);
        if (rc == TGC_OK)
                rc = get_flag(o, "tokenize_chinese_chars", 1, &han, e);
        if (n)
                json_close(&in);
        return rc == TGC_OK ? tok_bert_norm(t, true, han, strip, lower, e) : rc;
}

static int read_lines(Tokenizer *t, const char *p, const char *end, Err *e)
{
        for (const char *eol; p < end; p = eol + 1) {
                int id = t->vocab.n, rc;
                size_t n;

                if (!(eol = memchr(p, '\n', (size_t)(end - p))))
                        eol = end;
                n = (size_t)(eol - p);
                n -= n && p[n - 1] == '\r';
                if ((rc = vocab_error(vocab_put(&t->vocab, id, p, n), "vocab.txt", id, p, n, e)) !=
                    TGC_OK)
                        return rc;
        }
        return TGC_OK;
}

/* The token of that name; where it is not there, -1, or an error if it must be. */
static int special(Tokenizer *t, const char *name, bool must, int *id, Err *e)
{
        *id = vocab_find(&t->vocab, name, strlen(name));
        if (*id >= 0)
                return tok_add(t, name, strlen(name), (Added) { .id = *id, .special = true }, e);
        return must ? err_set(e, TGC_BAD_FILE, "vocab.txt: no token %s", name) : TGC_OK;
}

int tok_bert_decode(Tokenizer *t, int op, const char *with, Err *e)
{
        Decode d = { .op = op, .with = strdup(with), .n_with = strlen(with), .drop_first = true };

        t->decode[t->n_decode++] = d;
        t->decode[t->n_decode++] = (Decode) { .op = DECODE_CLEAN_UP };
        return d.with ? TGC_OK : tok_no_memory(e);
}

int read_bert(Tokenizer *t, Err *e)
{
        const char *nul = memchr(t->blob, 0, t->n_blob), *end = t->blob + t->n_blob;
        int cls, sep, other, rc;

        if (!nul)
                return err_set(e, TGC_BAD_FILE, "tokenizer: settings without vocab.txt");
        t->model = MODEL_WORDPIECE;
        t->word_start = "";
        t->word_next = "##";
        t->max_chars = 100;
        if ((rc = read_lines(t, nul + 1, end, e)) != TGC_OK ||
            (rc = read_settings(t, t->blob, (size_t)(nul - t->blob), e)) != TGC_OK ||
            (rc = special(t, "[UNK]", true, &t->unk, e)) != TGC_OK ||
            (rc = special(t, "[CLS]", false, &cls, e)) != TGC_OK ||
            (rc = special(t, "[SEP]", false, &sep, e)) != TGC_OK ||
            (rc = special(t, "[PAD]", false, &other, e)) != TGC_OK ||
            (rc = special(t, "[MASK]", false, &other, e)) != TGC_OK ||
            (rc = tok_bert_split(t, e)) != TGC_OK)
                return rc;
        t->bos = t->prefix[0] = cls;
        t->adds_bos = t->n_prefix = cls >= 0;
        t->suffix[0] = sep;
        t->n_suffix = sep >= 0;
        return tok_bert_decode(t, DECODE_WORDPIECE, "##", e);
}
