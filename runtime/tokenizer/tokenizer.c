/* tokenizer.c: builds, packs and queries a tokenizer. */
#include <limits.h>
#include "tok.h"

int tok_take(Tokenizer **out, int kind, int limit, Buf *blob, Err *e)
{
        static int (*const read[])(Tokenizer *, Err *) = {
                [TOK_CHAR] = read_char,         [TOK_HF] = read_hf,
                [TOK_LLAMA2C] = read_llama2c,   [TOK_GPT2] = read_gpt2,
                [TOK_TIKTOKEN] = read_tiktoken, [TOK_SPM] = read_spm,
                [TOK_PARTS] = read_parts,       [TOK_BERT] = read_bert
        };
        size_t n = blob->n;
        Tokenizer *t;
        int rc;

        *out = NULL;
        buf_put(blob, "", 1);
        if (kind < TOK_CHAR || kind > TOK_BERT)
                rc = err_set(e, TGC_BAD_FILE, "tokenizer: kind %d is not known", kind);
        else if (!blob->bad && (!n || n > TOK_MAX_FILE))
                rc = err_set(e, TGC_BAD_FILE, "tokenizer: %zu bytes; 1 to %d are possible", n,
                             TOK_MAX_FILE);
        else
                rc = blob->bad || !(t = calloc(1, sizeof *t)) ? tok_no_memory(e) : TGC_OK;
        if (rc != TGC_OK) {
                buf_free(blob);
                return rc;
        }
        t->blob = blob->p;
        *blob = (Buf) { 0 };
        t->n_blob = n;
        t->kind = kind;
        t->limit = limit;
        t->bos = t->unk = -1;
        memset(t->byte_id, 0xff, sizeof t->byte_id);

        rc = read[kind](t, e);
        if (rc == TGC_OK && !t->vocab.count)
                rc = err_set(e, TGC_BAD_FILE, "tokenizer: its vocabulary has no tokens");
        if (rc == TGC_OK && !(t->special = calloc((size_t)t->vocab.n, 1)))
                rc = tok_no_memory(e);
        if (rc == TGC_OK) {
                merges_seal(&t->merges, &t->vocab);
                t->to_bytes = t->n_split && t->split[t->n_split - 1].op == SPLIT_BYTES;
                t->n_split -= t->to_bytes;
                for (int i = 0; i < t->n_added; i++)
                        t->special[t->added[i].id] |= t->added[i].special;
                for (int i = 0; i < t->n_control && i < t->vocab.n; i++)
                        t->special[i] = 1;
                rc = decode_table(t, e);
        }
        if (rc != TGC_OK) {
                tokenizer_free(t);
                return rc;
        }
        *out = t;
        return TGC_OK;
}

int tok_new(Tokenizer **out, int kind, int limit, const void *blob, size_t n, Err *e)
{
        Buf b = { 0 };

        *out = NULL;
        if (n > TOK_MAX_FILE)
                return err_set(e, TGC_BAD_FILE, "tokenizer: %zu bytes; 1 to %d are possible", n,
                               TOK_MAX_FILE);
        buf_room(&b, n + 1);
        buf_put(&b, blob, n);
        return tok_take(out, kind, limit, &b, e);
}

int tokenizer_new(Tokenizer **out, int kind, const void *blob, size_t n, Err *e)
{
        return tok_new(out, kind, 0, blob, n, e);
}

void tokenizer_free(Tokenizer *t)
{
        if (!t)
                return;
        vocab_free(&t->vocab);
        merges_free(&t->merges);
        added_free(&t->raw);
        added_free(&t->normal);
        added_free(&t->user);
        unigram_free(&t->unigram);
        for (int i = 0; i < t->n_norm; i++)
                norm_free(&t->norm[i]);
        for (int i = 0; i < t->n_split; i++)
                split_free(&t->split[i]);
        for (int i = 0; i < t->n_decode; i++)
                decode_free(&t->decode[i]);
        buf_free(&t->stream);
        free(t->mid); /* first and the lengths lie in the same block */
        free(t->is_byte);
        free(t->special);
        free(t->added);
        free(t->blob);
        free(t);
}

/* ---- packing: magic, kind, limit, bos, adds_bos, n_eos, eos[8], size; then the bytes --- */

enum { PACK_INTS = 5 + TOK_MAX_EOS, PACK_HEAD = 8 + 4 * PACK_INTS + 8 };
static const char pack_magic[8] = "tgctok1";

static void put_le(unsigned char *p, uint64_t x, int bytes)
{
        for (int i = 0; i < bytes; i++)
                p[i] = (unsigned char)(x >> 8 * i);
}

static uint64_t get_le(const unsigned char *p, int bytes)
{
        uint64_t x = 0;

        for (int i = 0; i < bytes; i++)
                x |= (uint64_t)p[i] << 8 * i;
        return x;
}

int tokenizer_pack(const Tokenizer *t, void **blob, size_t *n, Err *e)
{
        int head[PACK_INTS] = { t->kind, t->limit, t->bos, t->adds_bos, t->n_eos };
        unsigned char *p = malloc(PACK_HEAD + t->n_blob);

        if (!p)
                return tok_no_memory(e);
        memcpy(head + 5, t->eos, sizeof t->eos);
        memcpy(p, pack_magic, 8);
        for (int i = 0; i < PACK_INTS; i++)
                put_le(p + 8 + 4 * i, (uint32_t)head[i], 4);
        put_le(p + PACK_HEAD - 8, t->n_blob, 8);
        memcpy(p + PACK_HEAD, t->blob, t->n_blob);
        *blob = p;
        *n = PACK_HEAD + t->n_blob;
        return TGC_OK;
}

int tokenizer_unpack(Tokenizer **out, const void *blob, size_t n, Err *e)
{
        const unsigned char *p = blob;
        int head[PACK_INTS], rc;

        *out = NULL;
        if (n < PACK_HEAD || memcmp(p, pack_magic, 8) ||
            get_le(p + PACK_HEAD - 8, 8) != n - PACK_HEAD)
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer: not a packed tokenizer of this version");
        for (int i = 0; i < PACK_INTS; i++)
                head[i] = (int)(uint32_t)get_le(p + 8 + 4 * i, 4);
        if (head[1] < 0 || head[1] > TOK_MAX_VOCAB)
                return err_set(e, TGC_BAD_FILE, "tokenizer: vocabulary of %d", head[1]);
        if ((rc = tok_new(out, head[0], head[1], p + PACK_HEAD, n - PACK_HEAD, e)) != TGC_OK)
                return rc;
        if ((rc = tokenizer_set_bos(*out, head[2], head[3], e)) != TGC_OK ||
            (rc = tokenizer_set_eos(*out, head + 5, head[4], e)) != TGC_OK) {
                tokenizer_free(*out);
                *out = NULL;
                if (e)
                        e->code = TGC_BAD_FILE;
                return TGC_BAD_FILE;
        }
        return TGC_OK;
}

/* ---- asking ---------------------------------------------------------------------- */

int tokenizer_kind(const Tokenizer *t) { return t->kind; }

int tokenizer_vocab(const Tokenizer *t) { return t->vocab.n; }

int tokenizer_find(const Tokenizer *t, const char *piece, size_t n)
{
        return vocab_find(&t->vocab, piece, n);
}

const char *tokenizer_piece(const Tokenizer *t, int id, size_t *n)
{
        return vocab_text(&t->vocab, id, n);
}

int tokenizer_bos(const Tokenizer *t) { return t->bos; }

int tokenizer_adds_bos(const Tokenizer *t) { return t->adds_bos; }

int tokenizer_suffix(const Tokenizer *t, const int **ids)
{
        *ids = t->suffix;
        return t->n_suffix;
}

int tokenizer_eos(const Tokenizer *t, const int **ids)
{
        *ids = t->eos;
        return t->n_eos;
}

int tokenizer_is_eos(const Tokenizer *t, int id)
{
        for (int i = 0; i < t->n_eos; i++)
                if (t->eos[i] == id)
                        return 1;
        return 0;
}

int tokenizer_is_special(const Tokenizer *t, int id)
{
        return id >= 0 && id < t->vocab.n && t->special[id];
}

int tokenizer_set_bos(Tokenizer *t, int bos, int adds_bos, Err *e)
{
        if (bos < -1 || bos >= t->vocab.n)
                return err_set(e, TGC_USAGE, "tokenizer: BOS id %d, but the vocabulary has %d", bos,
                               t->vocab.n);
        if (bos != t->bos) {
                t->n_prefix = bos >= 0;
                t->prefix[0] = bos;
        }
        t->bos = bos;
        t->adds_bos = adds_bos != 0;
        return TGC_OK;
}

int tokenizer_set_eos(Tokenizer *t, const int *ids, int n, Err *e)
{
        if (n < 0 || n > TOK_MAX_EOS)
                return err_set(e, TGC_USAGE, "tokenizer: %d EOS ids, at most %d", n, TOK_MAX_EOS);
        for (int i = 0; i < n; i++)
                if (ids[i] < 0 || ids[i] >= t->vocab.n)
                        return err_set(e, TGC_USAGE,
                                       "tokenizer: EOS id %d, but the vocabulary has %d", ids[i],
                                       t->vocab.n);
        memset(t->eos, 0, sizeof t->eos);
        memcpy(t->eos, ids, (size_t)n * sizeof *ids);
        t->n_eos = n;
        return TGC_OK;
}

/* ---- using ------------------------------------------------------------------------- */

int tokenizer_encode(const Tokenizer *t, const char *text, size_t n, int add_bos, int **ids,
                     int *n_ids, Err *e)
{
        Ints v = { 0 };
        int rc;

        *ids = NULL;
        *n_ids = 0;
        if (n > TOK_MAX_TEXT)
                return err_set(e, TGC_USAGE, "tokenizer: a text of %zu bytes; at most %d at once",
                               n, TOK_MAX_TEXT);
        ints_put(&v, 0); /* so that there is a block to return */
        v.n = 0;
        for (int i = 0; i < t->n_prefix && (add_bos < 0 ? t->adds_bos : add_bos); i++)
                ints_put(&v, t->prefix[i]);
        rc = t->kind == TOK_CHAR ? encode_chars(t, text, n, &v, e) : encode_text(t, text, n, &v, e);
        if (rc == TGC_OK && (v.bad || v.n > INT_MAX))
                rc = tok_no_memory(e);
        for (size_t i = 0; i < v.n && t->limit && rc == TGC_OK; i++)
                if (v.p[i] >= t->limit)
                        rc = err_set(e, TGC_BAD_FILE,
                                     "tokenizer: the text needs token %d, but the model has %d",
                                     v.p[i], t->limit);
        if (rc != TGC_OK) {
                ints_free(&v);
                return rc;
        }
        *ids = v.p;
        *n_ids = (int)v.n;
        return TGC_OK;
}
