/* tok_llama2c.c: llama2.c's tokenizer.bin, a sentencepiece vocabulary.
 *
 *   int32 longest; then per id: float32 score, int32 length, bytes
 *
 * run.c puts a space before a text and takes characters (or, if one is no token, the byte tokens
 * 3..258).  It joins the neighbours whose union has the best score, leftmost first.  Ids 0, 1, 2
 * are <unk>, BOS and EOS; run.c stops at BOS and at EOS. */
#include <stdio.h>
#include "tok.h"

enum { UNK, BOS, EOS, FIRST_BYTE };
static int by_score(const void *pa, const void *pb)
{
        const Scored *a = pa, *b = pb;
        return a->score != b->score ? a->score > b->score ? -1 : 1 : a->id - b->id;
}

int merges_by_score(Merges *m, Scored *s, int n, Err *e)
{
        int n_merge = 0;

        if (!(m->rank_of = malloc((size_t)n * sizeof *m->rank_of)))
                return tok_no_memory(e);
        for (int i = 0; i < n; i++) {
                m->rank_of[i] = -1;
                if (s[i].score > NO_MERGE) /* false for NaN */
                        s[n_merge++] = s[i];
        }
        qsort(s, (size_t)n_merge, sizeof *s, by_score);
        for (int i = 0, rank = 0; i < n_merge; i++) {
                if (i && s[i].score != s[i - 1].score)
                        rank = i;
                m->rank_of[s[i].id] = rank;
        }
        return TGC_OK;
}

static int read_tokens(Tokenizer *t, Scored *score, int n_max, Err *e)
{
        const char *p = t->blob + 4, *end = t->blob + t->n_blob;
        int32_t len;

        for (int id = 0; id < n_max && p < end; id++) {
                if (end - p < 8)
                        return err_set(e, TGC_BAD_FILE, "tokenizer.bin: cut off in token %d", id);
                memcpy(&score[id].score, p, 4);
                memcpy(&len, p + 4, 4);
                score[id].id = id;
                p += 8;
                if (len < 0 || len > end - p)
                        return err_set(e, TGC_BAD_FILE,
                                       "tokenizer.bin: token %d is said to have %d bytes, %td are "
                                       "left",
                                       id, (int)len, end - p);
                switch (vocab_put(&t->vocab, id, p, (size_t)len)) {
                case VOCAB_OK: break;
                case VOCAB_SAME_TEXT:
                        return vocab_error(VOCAB_SAME_TEXT, "tokenizer.bin", id, p, (size_t)len, e);
                default: return tok_no_memory(e);
                }
                p += len;
        }
        if (t->limit && t->vocab.n < t->limit)
                return err_set(e, TGC_BAD_FILE, "tokenizer.bin has %d tokens, the model %d",
                               t->vocab.n, t->limit);
        if (p < end && !t->limit)
                return err_set(e, TGC_BAD_FILE, "tokenizer.bin: more than %d tokens", n_max);
        return TGC_OK;
}

static int check_layout(const Tokenizer *t, Err *e)
{
        size_t n;
        const char *bos = vocab_text(&t->vocab, BOS, &n);

        if (!bos || !memmem(bos, n, "<s>", 3))
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer.bin: token 1 is not <s>; only sentencepiece vocabularies "
                               "in llama2.c's layout can be read");
        for (int b = 0; b < 256; b++) {
                char name[8];
                snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
                if (vocab_find(&t->vocab, name, 6) != FIRST_BYTE + b)
                        return err_set(e, TGC_BAD_FILE, "tokenizer.bin: token %d is not %s",
                                       FIRST_BYTE + b, name);
        }
        return TGC_OK;
}

int read_llama2c(Tokenizer *t, Err *e)
{
        size_t most = t->n_blob / 8;
        int n_max = most < TOK_MAX_VOCAB ? (int)most : TOK_MAX_VOCAB, rc;
        Scored *score;

        if (t->n_blob < 12)
                return err_set(e, TGC_BAD_FILE, "tokenizer.bin: %zu bytes hold no token",
                               t->n_blob);
        if (t->limit && t->limit < n_max)
                n_max = t->limit;
        if (!(score = malloc((size_t)n_max * sizeof *score)))
                return tok_no_memory(e);
        rc = read_tokens(t, score, n_max, e);
        if (rc == TGC_OK)
                rc = check_layout(t, e);
        if (rc == TGC_OK)
                rc = merges_by_score(&t->merges, score, t->vocab.n, e);
        free(score);
        if (rc != TGC_OK)
                return rc;

        t->merges.by_text = t->byte_fallback = true;
        for (int b = 0; b < 256; b++)
                t->byte_id[b] = FIRST_BYTE + b;
        t->norm[0] = (Norm) { .op = NORM_PREPEND, .with = strdup(" "), .n_with = 1 };
        t->n_norm = 1;
        t->decode[0] = (Decode) {
                .op = DECODE_STRIP, .with = strdup(" "), .n_with = 1, .start = 1, .drop_first = true
        };
        t->decode[1] = (Decode) { .op = DECODE_FALLBACK };
        t->n_decode = 2;
        if (!t->norm[0].with || !t->decode[0].with)
                return tok_no_memory(e);
        t->bos = t->prefix[0] = BOS;
        t->n_prefix = t->adds_bos = 1;
        t->eos[0] = BOS;
        t->eos[1] = EOS;
        t->n_eos = 2;
        t->n_control = FIRST_BYTE;
        return TGC_OK;
}
