/* tok_char.c: a vocabulary of code points, one id each, for small models trained on one text. */
#include "tok.h"

static int not_utf8(size_t at, Err *e)
{
        return err_set(e, TGC_BAD_FILE, "tokenizer: byte %zu is not UTF-8", at);
}

int read_char(Tokenizer *t, Err *e)
{
        uint32_t cp;
        int rc;

        for (size_t i = 0, len; i < t->n_blob; i += len) {
                int id = t->vocab.n;
                if (!(len = utf8_get(t->blob + i, t->n_blob - i, &cp)))
                        return not_utf8(i, e);
                if ((rc = vocab_put(&t->vocab, id, t->blob + i, len)) != VOCAB_OK)
                        return vocab_error(rc, "char vocabulary", id, t->blob + i, len, e);
        }
        return TGC_OK;
}

int encode_chars(const Tokenizer *t, const char *text, size_t n, Ints *ids, Err *e)
{
        uint32_t cp;
        int id;

        for (size_t i = 0, len; i < n; i += len) {
                if (!(len = utf8_get(text + i, n - i, &cp)))
                        return not_utf8(i, e);
                if ((id = vocab_find(&t->vocab, text + i, len)) < 0)
                        return err_set(e, TGC_BAD_FILE,
                                       "tokenizer: '%.*s' (U+%04X, byte %zu) is not among the %d "
                                       "characters the model knows",
                                       (int)len, text + i, (unsigned)cp, i, t->vocab.n);
                ints_put(ids, id);
        }
        return TGC_OK;
}

int tokenizer_char_blob(const char *text, size_t n, char **blob, size_t *blob_n, Err *e)
{
        const uint32_t n_cp = 0x110000;
        unsigned char *seen = calloc(n_cp, 1);
        Buf b = { 0 };
        char s[4];
        uint32_t cp;

        if (!seen)
                return tok_no_memory(e);
        for (size_t i = 0, len; i < n; i += len) {
                if (!(len = utf8_get(text + i, n - i, &cp))) {
                        free(seen);
                        return not_utf8(i, e);
                }
                seen[cp] = 1;
        }
        for (cp = 0; cp < n_cp; cp++)
                if (seen[cp])
                        buf_put(&b, s, utf8_put(s, cp));
        free(seen);
        if (b.bad) {
                buf_free(&b);
                return tok_no_memory(e);
        }
        if (!b.n)
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer: a text without characters gives no vocabulary");
        *blob = b.p;
        *blob_n = b.n;
        return TGC_OK;
}
