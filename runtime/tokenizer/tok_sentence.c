/* tok_sentence.c: sentencepiece models, read from their own file (tok_spm.c) or from GGUF
 * (tok_parts.c): BPE by scores or Unigram, the normaliser, decoding. */
#include "tok.h"

#define MARK "\xe2\x96\x81"

static int put_kind(Tokenizer *t, const Sentence *s, int id, Err *e)
{
        int kind = s->kind ? s->kind[id] : TOK_NORMAL, rc = TGC_OK, byte;
        Added a = { .id = id, .special = kind != TOK_USER_DEFINED };
        size_t n;
        const char *text = vocab_text(&t->vocab, id, &n);

        switch (kind) {
        case TOK_NORMAL: return TGC_OK;
        case TOK_BYTE:
                if ((byte = fallback_byte(text, n)) < 0)
                        return err_set(e, TGC_BAD_FILE,
                                       "tokenizer: token %d '%.*s' is said to be a byte", id,
                                       n > 60 ? 60 : (int)n, text);
                t->byte_id[byte] = id;
                return TGC_OK;
        case TOK_UNUSED: return tok_note(t, a, e);
        case TOK_UNKNOWN:
        case TOK_CONTROL: return s->find_control ? tok_add(t, text, n, a, e) : tok_note(t, a, e);
        case TOK_USER_DEFINED:
                if (s->find_control)
                        return tok_add(t, text, n, a, e);
                if ((rc = tok_note(t, a, e)) != TGC_OK ||
                    (rc = added_put(&t->user, text, n, t->n_added - 1, e)) != TGC_OK)
                        return rc;
                return s->unigram ? TGC_OK : added_put(&t->normal, text, n, t->n_added - 1, e);
        default:
                return err_set(e, TGC_BAD_FILE, "tokenizer: piece %d '%.*s' is of kind %d", id,
                               n > 60 ? 60 : (int)n, text, kind);
        }
}

/* The neighbours whose union has the best score are joined, leftmost first. */
static int put_merges(Tokenizer *t, const Sentence *s, Err *e)
{
        Scored *score = malloc((size_t)t->vocab.n * sizeof *score);
        int rc;

        if (!score)
                return tok_no_memory(e);
        for (int id = 0; id < t->vocab.n; id++)
                score[id] = (Scored) { s->kind && s->kind[id] != TOK_NORMAL ? NO_MERGE
                                                                            : s->score[id],
                                       id };
        rc = merges_by_score(&t->merges, score, t->vocab.n, e);
        free(score);
        t->merges.by_text = t->fuse_unk = true;
        return rc;
}

static int put_pieces(Tokenizer *t, const Sentence *s, Err *e)
{
        int rc = TGC_OK;

        t->model = MODEL_UNIGRAM;
        t->unigram.single = true;
        for (int id = 0; id < t->vocab.n && rc == TGC_OK; id++) {
                size_t n;
                const char *text = vocab_text(&t->vocab, id, &n);
                rc = unigram_put(&t->unigram, id, text, n, s->score[id],
                                 s->kind ? s->kind[id] : TOK_NORMAL, e);
        }
        return rc;
}

static Decode decode_step(int op, const char *with, Err *e, int *rc)
{
        Decode d = { .op = op, .with = strdup(with), .n_with = strlen(with) };

        if (!d.with)
                *rc = tok_no_memory(e);
        return d;
}

/* Back to text: spaces, bytes, and without the space put in front. */
static int put_decoders(Tokenizer *t, bool prefix, Err *e)
{
        int rc = TGC_OK;
        Decode *d = t->decode;

        d[t->n_decode++] = decode_step(DECODE_REPLACE, " ", e, &rc);
        if (rc == TGC_OK)
                rc = pattern_literal(&d[0].pattern, MARK, 3, e);
        d[t->n_decode++] = (Decode) { .op = DECODE_FALLBACK };
        d[t->n_decode++] = (Decode) { .op = DECODE_FUSE };
        if (prefix && rc == TGC_OK) {
                d[t->n_decode] = decode_step(DECODE_STRIP, " ", e, &rc);
                d[t->n_decode++].start = 1;
        }
        return rc;
}

int tok_sentence(Tokenizer *t, const Sentence *s, Err *e)
{
        Norm n = { .op = NORM_SENTENCE,
                   .map = s->map,
                   .prefix = s->prefix,
                   .squeeze = s->squeeze,
                   .user = &t->user };
        int rc = TGC_OK;

        for (int id = 0; id < t->vocab.n && rc == TGC_OK; id++)
                rc = put_kind(t, s, id, e);
        if (rc != TGC_OK || (rc = tok_norm(t, n, e)) != TGC_OK ||
            (rc = put_decoders(t, s->prefix, e)) != TGC_OK)
                return rc;
        return s->unigram ? put_pieces(t, s, e) : put_merges(t, s, e);
}
