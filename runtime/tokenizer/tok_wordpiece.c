/* tok_wordpiece.c: BERT's WordPiece, and WordLevel (whole words).
 *
 * A word is cut from its start, each time into the longest piece of the vocabulary.  Pieces that
 * begin a word and pieces that continue one have different prefixes ("" and "##" in Hugging Face's
 * files, U+2581 and "" in GGUF).  A word that cannot be cut so, or is too long, is unknown. */
#include "tok.h"

/* The longest piece at the start of s, with a prefix; its bytes in *len; -1: none. */
static int longest(const Tokenizer *t, const char *prefix, const char *s, size_t n, Buf *b,
                   size_t *len)
{
        size_t k = strlen(prefix), most = t->vocab.longest > k ? t->vocab.longest - k : 0;
        int id;

        if (n > most)
                n = most;
        b->n = 0;
        buf_put(b, prefix, k);
        buf_put(b, s, n);
        for (; n && !b->bad; n--)
                if ((id = vocab_find(&t->vocab, b->p, k + n)) >= 0 &&
                    ((unsigned char)s[n - 1] < 0x80 || utf8_valid(s, n) == n)) {
                        *len = n;
                        return id;
                }
        return -1;
}

static size_t count_chars(const char *s, size_t n)
{
        size_t chars = 0;

        for (size_t i = 0; i < n; i++)
                chars += ((unsigned char)s[i] & 0xc0) != 0x80;
        return chars;
}

void encode_wordpiece(const Tokenizer *t, const char *s, size_t n, Buf *b, Ints *ids)
{
        size_t was = ids->n, len, mark = strlen(t->word_start);
        int id;

        if (n > (size_t)t->max_chars && count_chars(s, n) > (size_t)t->max_chars) {
                ints_put(ids, t->unk);
                return;
        }
        for (size_t i = 0; i < n; i += len) {
                /* a word that holds the mark itself: what would match begins another word */
                bool marked = mark && i && n - i >= mark && !memcmp(s + i, t->word_start, mark);
                if (marked || (id = longest(t, i ? t->word_next : t->word_start, s + i, n - i, b,
                                            &len)) < 0) {
                        ids->n = was;
                        ints_put(ids, t->unk);
                        break;
                }
                ints_put(ids, id);
        }
        ids->bad |= b->bad;
}

void encode_word(const Tokenizer *t, const char *s, size_t n, Ints *ids)
{
        int id = vocab_find(&t->vocab, s, n);

        ints_put(ids, id >= 0 ? id : t->unk);
}
