/* tok_bert_write.c: writes a WordPiece vocabulary as BERT's vocab.txt and tokenizer_config.json.
 *
 * A GGUF vocabulary marks pieces that begin a word; vocab.txt marks pieces that continue one.  The
 * result is read back: a vocabulary whose tokenizer would change is refused. */
#include "tok.h"

static bool is_added(const Tokenizer *t, int id)
{
        for (int i = 0; i < t->n_added; i++)
                if (t->added[i].id == id)
                        return true;
        return false;
}

static void put_piece(const Tokenizer *t, int id, Buf *b)
{
        const size_t mark = strlen(t->word_start), next = strlen(t->word_next);
        size_t n;
        const char *s = vocab_text(&t->vocab, id, &n);

        if (!s)
                b->bad = true;
        else if (mark && n >= mark && !memcmp(s, t->word_start, mark))
                buf_put(b, s + mark, n - mark);
        else if (is_added(t, id))
                buf_put(b, s, n);
        else if (mark || (next && n >= next && !memcmp(s, t->word_next, next))) {
                buf_put(b, "##", 2);
                buf_put(b, s + next, n - next);
        } else
                buf_put(b, s, n);
        buf_put(b, "\n", 1);
}

/* A place holder of the vocabulary: no text becomes it, for brackets are words by themselves. */
static bool is_unused(const Tokenizer *t, int id)
{
        const size_t mark = strlen(t->word_start);
        size_t n;
        const char *s = vocab_text(&t->vocab, id, &n);
        return s && n > mark + 2 && !memcmp(s, t->word_start, mark) && s[mark] == '[' &&
               s[n - 1] == ']' && added_at(&t->raw, s, n) != n && added_at(&t->normal, s, n) != n;
}

static bool same(const Tokenizer *t, const Tokenizer *u)
{
        bool ok = t->vocab.n == u->vocab.n && t->unk == u->unk && t->n_norm == u->n_norm &&
                  t->n_split == u->n_split && t->n_prefix == u->n_prefix &&
                  t->n_suffix == u->n_suffix && t->max_chars == u->max_chars;
        for (int i = 0; i < t->n_norm && ok; i++)
                ok = t->norm[i].op == u->norm[i].op;
        for (int i = 0; i < t->n_prefix && ok; i++)
                ok = t->prefix[i] == u->prefix[i];
        for (int i = 0; i < t->n_suffix && ok; i++)
                ok = t->suffix[i] == u->suffix[i];
        for (int i = 0; i < t->n_added && ok; i++)
                ok = is_added(u, t->added[i].id) || is_unused(t, t->added[i].id);
        for (int i = 0; i < u->n_added && ok; i++)
                ok = is_added(t, u->added[i].id);
        return ok;
}

int tokenizer_vocab_txt(const Tokenizer *t, char **settings, char **text, size_t *n, Err *e)
{
        static const char *const head[] = {
                "{\"tokenizer_class\": \"BertTokenizer\", \"do_lower_case\": true}",
                "{\"tokenizer_class\": \"BertTokenizer\", \"do_lower_case\": false}"
        };
        *settings = *text = NULL;
        *n = 0;
        for (int k = 0; k < 2 && t->model == MODEL_WORDPIECE && !*text; k++) {
                const size_t before = strlen(head[k]) + 1;
                Tokenizer *u;
                Buf b = { 0 };
                Err why;
                buf_put(&b, head[k], before);
                for (int id = 0; id < t->vocab.n; id++)
                        put_piece(t, id, &b);
                if (!b.bad && !tok_new(&u, TOK_BERT, t->limit, b.p, b.n, &why)) {
                        if (same(t, u)) {
                                *n = b.n - before;
                                *settings = strdup(head[k]);
                                *text = malloc(*n + 1);
                                if (*text)
                                        memcpy(*text, b.p + before, *n);
                        }
                        tokenizer_free(u);
                        if (*n && (!*settings || !*text)) {
                                free(*settings);
                                free(*text);
                                *settings = *text = NULL;
                                buf_free(&b);
                                return tok_no_memory(e);
                        }
                }
                buf_free(&b);
        }
        return TGC_OK;
}
