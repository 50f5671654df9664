/* tok_ranks.c: byte-level vocabularies whose files hold only ranks: GPT-2's encoder.json +
 * vocab.bpe, and tiktoken's rank files.
 *
 * Neither file says how text is split or which special tokens there are.  Both are known for each
 * vocabulary, which is recognised by its number of ordinary tokens. */
#include "tok.h"
#include "tok_regex.h"

typedef struct Special {
        int id;
        const char *text;
} Special;
typedef struct Family {
        int n; /* ordinary tokens */
        const char *regex;
        int bos, adds_bos, eos[3]; /* -1: none */
        Special special[12];
} Family;

static const Family family[] = {
        { 50256, RE_GPT2, 50256, 0, { 50256, -1, -1 }, { { 50256, "<|endoftext|>" } } },
        { 100256,
          RE_CL100K,
          -1,
          0,
          { 100257, -1, -1 },
          { { 100257, "<|endoftext|>" },
            { 100258, "<|fim_prefix|>" },
            { 100259, "<|fim_middle|>" },
            { 100260, "<|fim_suffix|>" },
            { 100276, "<|endofprompt|>" } } },
        { 199998,
          RE_O200K,
          -1,
          0,
          { 199999, -1, -1 },
          { { 199999, "<|endoftext|>" }, { 200018, "<|endofprompt|>" } } },
        { 128000,
          RE_CL100K,
          128000,
          1,
          { 128001, 128008, 128009 },
          { { 128000, "<|begin_of_text|>" },
            { 128001, "<|end_of_text|>" },
            { 128004, "<|finetune_right_pad_id|>" },
            { 128006, "<|start_header_id|>" },
            { 128007, "<|end_header_id|>" },
            { 128008, "<|eom_id|>" },
            { 128009, "<|eot_id|>" },
            { 128010, "<|python_tag|>" } } },
        { 151643,
          RE_QWEN2,
          -1,
          0,
          { 151643, 151645, -1 },
          { { 151643, "<|endoftext|>" }, { 151644, "<|im_start|>" }, { 151645, "<|im_end|>" } } }
};

/* What the vocabulary alone does not say. */
static int add_family(Tokenizer *t, const Family *f, Err *e)
{
        int rc;

        if ((rc = tok_split_regex(t, f->regex, CUT_ISOLATED, false, e)) != TGC_OK ||
            (rc = tok_split_bytes(t, e)) != TGC_OK)
                return rc;
        t->decode[t->n_decode++] = (Decode) { .op = DECODE_BYTES };
        for (const Special *s = f->special; s->text; s++) {
                Added a = { .id = s->id, .special = true };
                if ((rc = tok_add(t, s->text, strlen(s->text), a, e)) != TGC_OK)
                        return rc;
        }
        t->bos = t->prefix[0] = f->bos;
        t->n_prefix = f->bos >= 0;
        t->adds_bos = f->adds_bos;
        while (t->n_eos < 3 && f->eos[t->n_eos] >= 0) {
                t->eos[t->n_eos] = f->eos[t->n_eos];
                t->n_eos++;
        }
        return TGC_OK;
}

static const Family *family_of(int n)
{
        for (size_t i = 0; i < sizeof family / sizeof *family; i++)
                if (family[i].n == n)
                        return &family[i];
        return NULL;
}

/* ---- encoder.json, NUL, vocab.bpe -------------------------------------------------- */

/* Lines "left right"; the first may be "#version: ...". */
static int read_merges(Tokenizer *t, const char *p, const char *end, Err *e)
{
        int rank = 0, rc;

        for (const char *eol; p < end; p = eol + 1) {
                const char *stop, *gap;

                if (!(eol = memchr(p, '\n', (size_t)(end - p))))
                        eol = end;
                stop = eol > p && eol[-1] == '\r' ? eol - 1 : eol;
                if (stop == p || (!rank && stop - p > 8 && !memcmp(p, "#version", 8)))
                        continue;
                gap = memchr(p, ' ', (size_t)(stop - p));
                if (!gap || memchr(gap + 1, ' ', (size_t)(stop - gap - 1)))
                        return err_set(e, TGC_BAD_FILE, "vocab.bpe: merge %d is not two tokens",
                                       rank);
                rc = tok_merge(t, p, (size_t)(gap - p), gap + 1, (size_t)(stop - gap - 1), rank, e);
                if (rc != TGC_OK)
                        return rc;
                rank++;
        }
        return TGC_OK;
}

int read_gpt2(Tokenizer *t, Err *e)
{
        static const Family other = { 0, RE_GPT2, -1, 0, { -1, -1, -1 }, { { 0, NULL } } };
        const char *nul = memchr(t->blob, 0, t->n_blob), *end = t->blob + t->n_blob;
        static const char eot[] = "<|endoftext|>";
        const Family *f;
        JsonText json;
        Json o;
        int rc;

        if (!nul)
                return err_set(e, TGC_BAD_FILE, "tokenizer: encoder.json without vocab.bpe");
        if ((rc = json_open(&json, &o, t->blob, (size_t)(nul - t->blob), "encoder.json", true,
                            e)) != TGC_OK)
                return rc;
        rc = tok_json_vocab(t, o, e);
        json_close(&json);
        if (rc != TGC_OK || (rc = read_merges(t, nul + 1, end, e)) != TGC_OK)
                return rc;
        if ((f = family_of(t->vocab.count)) || (f = family_of(t->vocab.count - 1))) {
                t->ignore_merges = f->n != 50256;
                return add_family(t, f, e);
        }
        if ((rc = add_family(t, &other, e)) != TGC_OK)
                return rc;
        if ((t->eos[0] = vocab_find(&t->vocab, eot, sizeof eot - 1)) >= 0) {
                t->n_eos = 1;
                return tok_add(t, eot, sizeof eot - 1, (Added) { .id = t->eos[0], .special = true },
                               e);
        }
        t->eos[0] = 0;
        return TGC_OK;
}

/* ---- tiktoken ---------------------------------------------------------------------- */

/* n characters of base64 appended to out as byte-level text; false if they are none. */
static bool put_base64(const char *s, size_t n, Buf *bytes, Buf *out)
{
        bytes->n = 0;
        if (!base64_put(s, n, bytes))
                return false;
        put_byte_level(bytes->p, bytes->n, out);
        out->bad |= bytes->bad;
        return true;
}

static int read_ranks(Tokenizer *t, Err *e)
{
        const char *end = t->blob + t->n_blob;
        int line = 1, rc = TGC_OK;
        Buf b = { 0 }, bytes = { 0 };

        for (const char *p = t->blob, *eol; p < end && rc == TGC_OK; p = eol + 1, line++) {
                const char *gap;
                char *stop;
                long id;

                if (!(eol = memchr(p, '\n', (size_t)(end - p))))
                        eol = end;
                if (eol == p)
                        continue;
                b.n = 0;
                gap = memchr(p, ' ', (size_t)(eol - p));
                id = gap ? strtol(gap, &stop, 10) : -1; /* the blob ends with a NUL */
                if (id < 0 || id >= TOK_MAX_VOCAB || stop == gap ||
                    (stop != eol && *stop != '\r') || !put_base64(p, (size_t)(gap - p), &bytes, &b))
                        rc = err_set(e, TGC_BAD_FILE, "tiktoken file, line %d: not `base64 rank`",
                                     line);
                else if (b.bad)
                        rc = tok_no_memory(e);
                else
                        rc = vocab_error(vocab_put(&t->vocab, (int)id, b.p, b.n), "tiktoken file",
                                         (int)id, b.p, b.n, e);
        }
        buf_free(&b);
        buf_free(&bytes);
        return rc;
}

int read_tiktoken(Tokenizer *t, Err *e)
{
        const Family *f;
        int n, rc = read_ranks(t, e);

        if (rc != TGC_OK)
                return rc;
        if (!(f = family_of(t->vocab.count)))
                return err_set(
                        e, TGC_BAD_FILE,
                        "tiktoken file: no vocabulary of %d tokens is known, and the file does "
                        "not say how it cuts text; use its tokenizer.json",
                        t->vocab.count);
        for (int b = 0; b < 256; b++) {
                char s[4];
                if (vocab_find(&t->vocab, s, utf8_put(s, byte_level_cp((unsigned char)b))) < 0)
                        return err_set(e, TGC_BAD_FILE, "tiktoken file: byte 0x%02X is not a token",
                                       (unsigned)b);
        }
        if ((rc = add_family(t, f, e)) != TGC_OK)
                return rc;
        n = t->vocab.n;
        if (!(t->merges.rank_of = malloc((size_t)n * sizeof *t->merges.rank_of)))
                return tok_no_memory(e);
        for (int id = 0; id < n; id++) /* an ordinary token's id is its rank */
                t->merges.rank_of[id] = id;
        for (int i = 0; i < t->n_added; i++)
                t->merges.rank_of[t->added[i].id] = -1;
        t->merges.by_text = t->ignore_merges = true;
        return TGC_OK;
}
