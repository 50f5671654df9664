/* tok_parts.c: a tokenizer from pieces in memory, as GGUF files have them.
 *
 * tok_from_parts writes the parts into one blob, which a plan keeps.  The blob is then read like a
 * file.  Little-endian, without gaps:
 *
 *   "tgcparts"; int32 x N_HEAD; then for each text of piece, merge: its uint32 length;
 *   if there are: float32 scores, uint8 kinds; the character map; the texts, end to end,
 *   those of model and pre first */
#include <stdio.h>
#include "tok.h"

enum {
        N_MODEL, /* lengths of these two, and of the lists */
        N_PRE,
        N_PIECE,
        N_MERGE,
        N_MAP,
        HAS_SCORE,
        HAS_KIND,
        BOS,
        UNK,
        SEP,
        ADD_BOS,
        ADD_EOS,
        ADD_PREFIX,
        SQUEEZE,
        LOWERCASE,
        N_EOS,
        EOS,
        N_HEAD = EOS + TOK_MAX_EOS
};
static const char magic[8] = "tgcparts";

/* ---- writing ------------------------------------------------------------------- */

static void put_texts(Buf *b, const TokText *s, int n)
{
        for (int i = 0; i < n; i++)
                buf_put(b, s[i].p, s[i].n);
}

static int put_lengths(Buf *b, const TokText *s, int n, const char *what, Err *e)
{
        for (int i = 0; i < n; i++) {
                uint32_t len = (uint32_t)s[i].n;
                if (s[i].n > TOK_MAX_FILE)
                        return err_set(e, TGC_BAD_FILE, "tokenizer: %s %d has %zu bytes", what, i,
                                       s[i].n);
                buf_put(b, &len, 4);
        }
        return TGC_OK;
}

static int check_counts(const TokParts *p, Err *e)
{
        if (p->n_piece < 1 || p->n_piece > TOK_MAX_VOCAB)
                return err_set(e, TGC_BAD_FILE, "tokenizer: %d pieces; 1 to %d are possible",
                               p->n_piece, TOK_MAX_VOCAB);
        if (p->n_merge < 0 || p->n_merge > 4 * TOK_MAX_VOCAB)
                return err_set(e, TGC_BAD_FILE, "tokenizer: %d merges; at most %d", p->n_merge,
                               4 * TOK_MAX_VOCAB);
        if (p->n_eos < 0 || p->n_eos > TOK_MAX_EOS)
                return err_set(e, TGC_USAGE, "tokenizer: %d EOS ids, at most %d", p->n_eos,
                               TOK_MAX_EOS);
        if (p->n_charsmap > TOK_MAX_FILE)
                return err_set(e, TGC_BAD_FILE, "tokenizer: a character map of %zu bytes",
                               p->n_charsmap);
        return TGC_OK;
}

int tok_from_parts(Tokenizer **out, const TokParts *p, Err *e)
{
        const char *model = p->model ? p->model : "", *pre = p->pre ? p->pre : "";
        int32_t head[N_HEAD] = { [N_MODEL] = (int32_t)strlen(model),
                                 [N_PRE] = (int32_t)strlen(pre),
                                 [N_PIECE] = p->n_piece,
                                 [N_MERGE] = p->n_merge,
                                 [N_MAP] = (int32_t)p->n_charsmap,
                                 [HAS_SCORE] = p->score != NULL,
                                 [HAS_KIND] = p->kind != NULL,
                                 [BOS] = p->bos,
                                 [UNK] = p->unk,
                                 [SEP] = p->sep,
                                 [ADD_BOS] = p->add_bos,
                                 [ADD_EOS] = p->add_eos,
                                 [ADD_PREFIX] = p->add_space_prefix,
                                 [SQUEEZE] = p->remove_extra_whitespaces,
                                 [LOWERCASE] = p->lowercase,
                                 [N_EOS] = p->n_eos };
        Buf b = { 0 };
        int rc;

        *out = NULL;
        if ((rc = check_counts(p, e)) != TGC_OK)
                return rc;
        memcpy(head + EOS, p->eos, sizeof p->eos);
        buf_put(&b, magic, sizeof magic);
        buf_put(&b, head, sizeof head);
        if ((rc = put_lengths(&b, p->piece, p->n_piece, "piece", e)) != TGC_OK ||
            (rc = put_lengths(&b, p->merge, p->n_merge, "merge", e)) != TGC_OK) {
                buf_free(&b);
                return rc;
        }
        if (p->score)
                buf_put(&b, p->score, (size_t)p->n_piece * sizeof *p->score);
        for (int i = 0; i < p->n_piece && p->kind; i++) {
                unsigned char kind = p->kind[i] < 0 || p->kind[i] > 255 ? 255
                                                                        : (unsigned char)p->kind[i];
                buf_put(&b, &kind, 1);
        }
        buf_put(&b, p->charsmap, p->n_charsmap);
        buf_put(&b, model, strlen(model));
        buf_put(&b, pre, strlen(pre));
        put_texts(&b, p->piece, p->n_piece);
        put_texts(&b, p->merge, p->n_merge);
        return tok_take(out, TOK_PARTS, 0, &b, e);
}

/* ---- reading ------------------------------------------------------------------- */

typedef struct Reader {
        Tokenizer *t;
        Err *e;
        int32_t head[N_HEAD];
        const char *piece_len, *merge_len, *score, *kind, *text; /* in the blob */
        char model[64], pre[64];
} Reader;

static uint32_t u32_at(const char *p, int i)
{
        uint32_t x;
        memcpy(&x, p + 4 * (size_t)i, 4);
        return x;
}

static int kind_of(const Reader *r, int id)
{
        return r->kind ? (unsigned char)r->kind[id] : TOK_NORMAL;
}

static int broken(const Reader *r)
{
        return err_set(r->e, TGC_BAD_FILE, "tokenizer: its parts are cut off or too long");
}

/* A name of the head at *p, into 64 bytes. */
static bool get_name(const char **p, const char *end, int32_t n, char *name)
{
        if (n < 0 || n > 63 || n > end - *p || memchr(*p, 0, (size_t)n))
                return false;
        memcpy(name, *p, (size_t)n);
        name[n] = 0;
        *p += n;
        return true;
}

/* Where everything lies; the lengths add up to the blob's. */
static int find_parts(Reader *r)
{
        const char *p = r->t->blob, *end = p + r->t->n_blob;
        int32_t *h = r->head;
        uint64_t need = 0, texts = 0;

        if (r->t->n_blob < sizeof magic + sizeof r->head || memcmp(p, magic, sizeof magic))
                return err_set(r->e, TGC_BAD_FILE, "tokenizer: these are not its parts");
        memcpy(h, p + sizeof magic, sizeof r->head);
        p += sizeof magic + sizeof r->head;
        if (h[N_PIECE] < 1 || h[N_PIECE] > TOK_MAX_VOCAB || h[N_MERGE] < 0 || h[N_MAP] < 0 ||
            h[N_EOS] < 0 || h[N_EOS] > TOK_MAX_EOS)
                return broken(r);
        need = 4 * ((uint64_t)h[N_PIECE] + (uint64_t)h[N_MERGE]) + (uint64_t)h[N_MAP] +
               (uint64_t)(h[HAS_SCORE] ? 4 * (int64_t)h[N_PIECE] : 0) +
               (uint64_t)(h[HAS_KIND] ? h[N_PIECE] : 0);
        if (need > (uint64_t)(end - p))
                return broken(r);
        r->piece_len = p;
        r->merge_len = p += 4 * (size_t)h[N_PIECE];
        p += 4 * (size_t)h[N_MERGE];
        r->score = h[HAS_SCORE] ? p : NULL;
        p += h[HAS_SCORE] ? 4 * (size_t)h[N_PIECE] : 0;
        r->kind = h[HAS_KIND] ? p : NULL;
        p += h[HAS_KIND] ? h[N_PIECE] : 0;
        r->t->charsmap = p;
        r->t->n_charsmap = (size_t)h[N_MAP];
        p += h[N_MAP];
        if (!get_name(&p, end, h[N_MODEL], r->model) || !get_name(&p, end, h[N_PRE], r->pre))
                return err_set(r->e, TGC_BAD_FILE,
                               "tokenizer: the name of its model or pre-tokenizer is no name");
        for (int i = 0; i < h[N_PIECE]; i++)
                texts += u32_at(r->piece_len, i);
        for (int i = 0; i < h[N_MERGE]; i++)
                texts += u32_at(r->merge_len, i);
        if (texts != (uint64_t)(end - p))
                return broken(r);
        r->text = p;
        return TGC_OK;
}

/* The pieces, in the order of their ids; r->text moves to the merges. */
static int put_pieces(Reader *r)
{
        Tokenizer *t = r->t;
        int rc;

        for (int id = 0; id < r->head[N_PIECE]; id++) {
                char other[32];
                const char *s = r->text;
                size_t n = u32_at(r->piece_len, id);

                r->text += n;
                if (!n) { /* files have such places; llama.cpp names them so */
                        n = (size_t)snprintf(other, sizeof other, "[EMPTY_%d]", id);
                        s = other;
                }
                if ((rc = vocab_error(vocab_put(&t->vocab, id, s, n), "tokenizer", id, s, n,
                                      r->e)) != TGC_OK)
                        return rc;
        }
        return TGC_OK;
}

/* Pieces that are looked for in the text, whole. */
static int put_added(Reader *r)
{
        Tokenizer *t = r->t;
        int rc = TGC_OK;

        for (int id = 0; id < t->vocab.n && rc == TGC_OK; id++) {
                int kind = kind_of(r, id);
                Added a = { .id = id, .special = kind != TOK_USER_DEFINED };
                size_t n;
                const char *s = vocab_text(&t->vocab, id, &n);

                if (kind == TOK_UNKNOWN || kind == TOK_CONTROL || kind == TOK_USER_DEFINED)
                        rc = tok_add(t, s, n, a, r->e);
                else if (kind == TOK_UNUSED)
                        rc = tok_note(t, a, r->e);
        }
        return rc;
}

/* "llama" and "t5": sentencepiece's BPE and Unigram.  What add_space_prefix and
 * remove_extra_whitespaces are without being said is sentencepiece's habit there. */
static int model_sentence(Reader *r)
{
        Tokenizer *t = r->t;
        bool unigram = !strcmp(r->model, "t5");
        int32_t *h = r->head;
        Sentence s = { .unigram = unigram,
                       .prefix = h[ADD_PREFIX] != 0,
                       .squeeze = h[SQUEEZE] < 0 ? unigram : h[SQUEEZE],
                       .kind = (const unsigned char *)r->kind,
                       .find_control = true };
        float *score;
        int rc = TGC_OK;

        if (!r->score)
                return err_set(r->e, TGC_BAD_FILE, "tokenizer: model '%s' without scores",
                               r->model);
        if (t->n_charsmap && (rc = charsmap_open(&s.map, t->charsmap, t->n_charsmap, r->e)) != 0)
                return rc;
        if (!(score = malloc((size_t)t->vocab.n * sizeof *score)))
                return tok_no_memory(r->e);
        memcpy(score, r->score, (size_t)t->vocab.n * sizeof *score);
        s.score = score;
        rc = tok_sentence(t, &s, r->e);
        free(score);
        for (int b = 0; b < 256; b++)
                t->byte_fallback |= t->byte_id[b] >= 0;
        t->adds_bos = !unigram;
        t->unk = h[UNK];
        if (rc == TGC_OK && unigram && (t->unk < 0 || t->unk >= t->vocab.n))
                return err_set(r->e, TGC_BAD_FILE, "tokenizer: model 't5' without an unknown id");
        return rc;
}

/* "bert": WordPiece.  A piece that begins a word begins with U+2581 here, and ## is gone. */
static int model_bert(Reader *r)
{
        Tokenizer *t = r->t;
        bool lower = r->head[LOWERCASE] != 0;
        int rc;

        t->model = MODEL_WORDPIECE;
        t->word_start = "\xe2\x96\x81";
        t->word_next = "";
        t->max_chars = 100;
        t->adds_bos = 1;
        t->unk = r->head[UNK];
        if (t->unk < 0 || t->unk >= t->vocab.n)
                return err_set(r->e, TGC_BAD_FILE, "tokenizer: model 'bert' without an unknown id");
        if ((rc = put_added(r)) != TGC_OK ||
            (rc = tok_bert_norm(t, true, true, lower, lower, r->e)) != TGC_OK ||
            (rc = tok_bert_split(t, r->e)) != TGC_OK)
                return rc;
        return tok_bert_decode(t, DECODE_METASPACE, t->word_start, r->e);
}

/* "gpt2": byte-level BPE.  A merge is "left right"; a blank that comes first is left's own. */
static int model_gpt2(Reader *r)
{
        Tokenizer *t = r->t;
        const char *s = r->text;
        int rc = TGC_OK;

        if (!r->head[N_MERGE])
                return err_set(r->e, TGC_BAD_FILE, "tokenizer: model 'gpt2' without merges");
        for (int i = 0; i < r->head[N_MERGE] && rc == TGC_OK; i++) {
                size_t n = u32_at(r->merge_len, i);
                const char *gap = n ? memchr(s + 1, ' ', n - 1) : NULL;
                if (!gap)
                        return err_set(r->e, TGC_BAD_FILE,
                                       "tokenizer: merge %d, '%.*s', is not two tokens", i,
                                       n > 60 ? 60 : (int)n, s);
                rc = tok_merge(t, s, (size_t)(gap - s), gap + 1, (size_t)(s + n - gap - 1), i,
                               r->e);
                s += n;
        }
        if (rc == TGC_OK)
                rc = tok_pre(t, r->pre, r->e);
        t->decode[t->n_decode++] = (Decode) { .op = DECODE_BYTES };
        t->decode[t->n_decode++] = (Decode) { .op = DECODE_FUSE };
        return rc == TGC_OK ? put_added(r) : rc;
}

static const struct {
        const char *name;
        int (*read)(Reader *r);
} model[] = { { "llama", model_sentence },
              { "t5", model_sentence },
              { "gpt2", model_gpt2 },
              { "bert", model_bert } };

/* An id of the head, or -1. */
static int get_id(Reader *r, int which, const char *name, int *id)
{
        *id = r->head[which];
        if (*id >= -1 && *id < r->t->vocab.n)
                return TGC_OK;
        return err_set(r->e, TGC_BAD_FILE, "tokenizer: the %s id is %d, but the vocabulary has %d",
                       name, *id, r->t->vocab.n);
}

static int put_ids(Reader *r)
{
        Tokenizer *t = r->t;
        int bos, unk, sep, last, rc;

        if ((rc = get_id(r, BOS, "BOS", &bos)) != TGC_OK ||
            (rc = get_id(r, UNK, "unknown", &unk)) != TGC_OK ||
            (rc = get_id(r, SEP, "separator", &sep)) != TGC_OK)
                return rc;
        for (int i = 0; i < r->head[N_EOS]; i++) {
                if ((rc = get_id(r, EOS + i, "EOS", &t->eos[i])) != TGC_OK)
                        return rc;
                if (t->eos[i] < 0)
                        return err_set(r->e, TGC_BAD_FILE,
                                       "tokenizer: EOS id %d of %d is -1; ids are 0 to %d", i + 1,
                                       r->head[N_EOS], t->vocab.n - 1);
        }
        t->n_eos = r->head[N_EOS];
        t->unk = unk;
        /* behind a text: BERT's [SEP], T5's </s>, and what asks for an EOS */
        last = !strcmp(r->model, "bert") ? sep : t->n_eos ? t->eos[0] : -1;
        if (r->head[ADD_EOS] < 0 ? t->model != MODEL_BPE : r->head[ADD_EOS] != 0) {
                t->suffix[0] = last;
                t->n_suffix = last >= 0;
        }
        if (r->head[ADD_BOS] >= 0)
                t->adds_bos = r->head[ADD_BOS] != 0;
        if (bos < 0 && t->adds_bos && r->head[ADD_BOS] > 0)
                return err_set(r->e, TGC_BAD_FILE,
                               "tokenizer: a BOS is to be added, and no id of BOS is given");
        t->bos = t->prefix[0] = bos;
        t->n_prefix = bos >= 0;
        t->adds_bos &= bos >= 0;
        return TGC_OK;
}

int read_parts(Tokenizer *t, Err *e)
{
        Reader r = { .t = t, .e = e };
        int rc = find_parts(&r);

        if (rc != TGC_OK || (rc = put_pieces(&r)) != TGC_OK)
                return rc;
        for (size_t i = 0; i < sizeof model / sizeof *model; i++) {
                if (strcmp(r.model, model[i].name))
                        continue;
                rc = model[i].read(&r);
                return rc == TGC_OK ? put_ids(&r) : rc;
        }
        return err_set(e, TGC_BAD_FILE, "tokenizer: model '%s' is not supported", r.model);
}
