/* tok_build.c: what the readers of BPE vocabularies share. */
#include <stdio.h>
#include <utf8proc.h>
#include "tok.h"

int tok_json_vocab(Tokenizer *t, Json vocab, Err *e)
{
        JsonBuf b = { 0 };
        int rc = TGC_OK;

        if (json_type(vocab) != '{')
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer: the vocabulary is not an object of token: id");
        for (JsonEach i = json_each(vocab); rc == TGC_OK && json_next(&i);) {
                double id = json_number(i.value);
                size_t n;
                const char *s = json_string(i.key, &b, &n);

                if (!s)
                        rc = tok_no_memory(e);
                else if (!(id >= 0 && id < TOK_MAX_VOCAB) || id != (int)id)
                        rc = err_set(e, TGC_BAD_FILE,
                                     "tokenizer: the id of token '%.*s' is not a whole number "
                                     "from 0 to %d",
                                     n > 60 ? 60 : (int)n, s, TOK_MAX_VOCAB - 1);
                else
                        rc = vocab_error(vocab_put(&t->vocab, (int)id, s, n), "tokenizer", (int)id,
                                         s, n, e);
        }
        json_buf_free(&b);
        return rc;
}

int tok_merge(Tokenizer *t, const char *a, size_t n_a, const char *b, size_t n_b, int rank, Err *e)
{
        char small[256], *both = n_a + n_b <= sizeof small ? small : malloc(n_a + n_b);
        int left, right, whole;

        if (!both)
                return tok_no_memory(e);
        memcpy(both, a, n_a);
        memcpy(both + n_a, b, n_b);
        left = vocab_find(&t->vocab, a, n_a);
        right = vocab_find(&t->vocab, b, n_b);
        whole = vocab_find(&t->vocab, both, n_a + n_b);
        if (both != small)
                free(both);
        if (left < 0 || right < 0 || whole < 0)
                return err_set(
                        e, TGC_BAD_FILE,
                        "tokenizer: merge %d, '%.*s' and '%.*s': %s is not in the vocabulary", rank,
                        n_a > 60 ? 60 : (int)n_a, a, n_b > 60 ? 60 : (int)n_b, b,
                        left < 0    ? "the first"
                        : right < 0 ? "the second"
                                    : "their union");
        return merges_put(&t->merges, left, right, rank, whole) == TGC_OK ? TGC_OK
                                                                          : tok_no_memory(e);
}

int tok_note(Tokenizer *t, Added a, Err *e)
{
        if (!(t->n_added & (t->n_added - 1))) { /* at 0 and the powers of 2 */
                Added *p = realloc(t->added, (size_t)(t->n_added ? 2 * t->n_added : 1) * sizeof *p);
                if (!p)
                        return tok_no_memory(e);
                t->added = p;
        }
        t->added[t->n_added++] = a;
        return TGC_OK;
}

int tok_add(Tokenizer *t, const char *s, size_t n, Added a, Err *e)
{
        int known = vocab_find(&t->vocab, s, n), rc;

        if (known < 0 && (rc = vocab_put(&t->vocab, a.id, s, n)) != VOCAB_OK)
                return vocab_error(rc, "tokenizer: added_tokens", a.id, s, n, e);
        if (known >= 0 && known != a.id)
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer: added token '%.*s' has id %d, and %d in the vocabulary",
                               n > 60 ? 60 : (int)n, s, a.id, known);
        if ((rc = tok_note(t, a, e)) != TGC_OK)
                return rc;
        if (!a.normalized)
                return added_put(&t->raw, s, n, t->n_added - 1, e);

        Buf b = { 0 };
        rc = normalize(t->norm, t->n_norm, s, n, &b, NULL, e);
        if (rc == TGC_OK)
                rc = added_put(&t->normal, b.p, b.n, t->n_added - 1, e);
        buf_free(&b);
        return rc;
}

int tok_norm(Tokenizer *t, Norm n, Err *e)
{
        if (t->n_norm == TOK_MAX_STEPS) {
                norm_free(&n);
                return err_set(e, TGC_BAD_FILE, "tokenizer: more than %d normalizers",
                               TOK_MAX_STEPS);
        }
        t->norm[t->n_norm++] = n;
        return TGC_OK;
}

int tok_norm_form(Tokenizer *t, const char *form, Err *e)
{
        int options = UTF8PROC_STABLE | (form[2] == 'K' ? UTF8PROC_COMPAT : 0) |
                      (strchr(form, 'D') ? UTF8PROC_DECOMPOSE : UTF8PROC_COMPOSE);

        return tok_norm(t, (Norm) { .op = NORM_UNICODE, .form = options }, e);
}

int tok_bert_norm(Tokenizer *t, bool clean, bool han, bool strip_accents, bool lower, Err *e)
{
        int rc = clean ? tok_norm(t, (Norm) { .op = NORM_CLEAN }, e) : TGC_OK;

        if (rc == TGC_OK && han)
                rc = tok_norm(t, (Norm) { .op = NORM_HAN }, e);
        if (rc == TGC_OK && strip_accents) {
                rc = tok_norm_form(t, "NFD", e);
                if (rc == TGC_OK)
                        rc = tok_norm(t, (Norm) { .op = NORM_NO_NONSPACING }, e);
        }
        return rc == TGC_OK && lower ? tok_norm(t, (Norm) { .op = NORM_LOWER }, e) : rc;
}

int tok_bert_split(Tokenizer *t, Err *e)
{
        int rc = tok_split_set(t, cp_space, n_cp_space, CUT_REMOVED, e);

        return rc == TGC_OK ? tok_split_set(t, cp_punctuation, n_cp_punctuation, CUT_ISOLATED, e)
                            : rc;
}

/* Room for one more step, or NULL. */
static Split *new_split(Tokenizer *t, int op, Err *e)
{
        if (t->n_split == TOK_MAX_STEPS) {
                err_set(e, TGC_BAD_FILE, "tokenizer: more than %d pre-tokenizer steps",
                        TOK_MAX_STEPS);
                return NULL;
        }
        t->split[t->n_split] = (Split) { .op = op };
        return &t->split[t->n_split++];
}

int tok_split_regex(Tokenizer *t, const char *regex, int cut, bool invert, Err *e)
{
        Split *s = new_split(t, SPLIT_PATTERN, e);

        if (!s)
                return TGC_BAD_FILE;
        s->cut = cut;
        s->invert = invert;
        return pattern_regex(&s->pattern, regex, e);
}

int tok_split_literal(Tokenizer *t, const char *text, size_t n, int cut, bool invert, Err *e)
{
        Split *s = new_split(t, SPLIT_PATTERN, e);

        if (!s)
                return TGC_BAD_FILE;
        s->cut = cut;
        s->invert = invert;
        return pattern_literal(&s->pattern, text, n, e);
}

int tok_split_set(Tokenizer *t, const Range *set, size_t n, int cut, Err *e)
{
        Split *s = new_split(t, SPLIT_PATTERN, e);

        if (!s)
                return TGC_BAD_FILE;
        s->cut = cut;
        pattern_set(&s->pattern, set, n);
        return TGC_OK;
}

int tok_split_prefix(Tokenizer *t, const char *with, int when, Err *e)
{
        Split *s = new_split(t, SPLIT_PREFIX, e);

        if (!s)
                return TGC_BAD_FILE;
        s->when = when;
        snprintf(s->with, sizeof s->with, "%s", with);
        return TGC_OK;
}

int tok_split_replace(Tokenizer *t, const char *what, const char *with, Err *e)
{
        Split *s = new_split(t, SPLIT_REPLACE, e);

        if (!s)
                return TGC_BAD_FILE;
        snprintf(s->with, sizeof s->with, "%s", with);
        return pattern_literal(&s->pattern, what, strlen(what), e);
}

int tok_split_bytes(Tokenizer *t, Err *e)
{
        return new_split(t, SPLIT_BYTES, e) ? TGC_OK : TGC_BAD_FILE;
}
