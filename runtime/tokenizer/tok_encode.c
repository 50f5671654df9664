/* tok_encode.c: a text through added tokens, normaliser, pre-tokeniser and merges. */
#include <limits.h>
#include "tok.h"

/* Scratch that lasts for one text. */
typedef struct Work {
        Buf normal;
        Pieces pieces;
        MergeWork merge;
} Work;

/* The characters of one piece as symbols.  As in Hugging Face's BPE an unknown
 * character waits until the next known one, and bytes put in its place meanwhile go
 * before it. */
static void put_symbols(const Tokenizer *t, const char *s, size_t n, MergeWork *w)
{
        uint32_t cp, unk_at = 0, unk_len = 0;

        for (size_t i = 0, len; i < n; i += len) {
                int id;

                if (!(len = utf8_get(s + i, n - i, &cp)))
                        len = 1;
                if ((id = vocab_find(&t->vocab, s + i, len)) >= 0) {
                        if (unk_len)
                                work_put(w, t->unk, unk_at, unk_len);
                        unk_len = 0;
                        work_put(w, id, (uint32_t)i, (uint32_t)len);
                        continue;
                }
                if (t->byte_fallback) {
                        size_t k = 0;
                        while (k < len && t->byte_id[(unsigned char)s[i + k]] >= 0)
                                k++;
                        if (k == len) {
                                for (k = 0; k < len; k++)
                                        work_put(w, t->byte_id[(unsigned char)s[i + k]],
                                                 (uint32_t)(i + k), 1);
                                continue;
                        }
                }
                if (t->unk < 0)
                        continue;
                if (unk_len && !t->fuse_unk)
                        work_put(w, t->unk, unk_at, unk_len);
                if (!unk_len || !t->fuse_unk) {
                        unk_at = (uint32_t)i;
                        unk_len = 0;
                }
                unk_len += (uint32_t)len;
        }
        if (unk_len)
                work_put(w, t->unk, unk_at, unk_len);
}

static void encode_piece(const Tokenizer *t, const char *s, size_t n, MergeWork *w, Ints *ids)
{
        int id;

        if (t->ignore_merges && (id = vocab_find(&t->vocab, s, n)) >= 0) {
                ints_put(ids, id);
                return;
        }
        put_symbols(t, s, n, w);
        work_merge(w, &t->merges, &t->vocab, s, ids);
}

static int encode_split(const Tokenizer *t, const char *s, size_t n, bool at_start, Work *w,
                        Ints *ids, Err *e)
{
        size_t at = 0;
        int rc = split_text(t->split, t->n_split, s, n, at_start, &w->pieces, e);

        if (rc != TGC_OK)
                return rc;
        for (size_t i = 0; i < w->pieces.end.n; i++) {
                size_t end = (size_t)w->pieces.end.p[i];
                encode_piece(t, w->pieces.text.p + at, end - at, &w->merge, ids);
                at = end;
        }
        return w->merge.bad || ids->bad ? tok_no_memory(e) : TGC_OK;
}

/* Text between two added tokens: normalise, then look for the tokens that are found only now. */
static int encode_stretch(const Tokenizer *t, const char *s, size_t n, bool at_start, Work *w,
                          Ints *ids, Err *e)
{
        size_t pos = 0, done = 0, from, to;
        int which, rc = TGC_OK;

        if (t->n_norm) {
                if ((rc = normalize(t->norm, t->n_norm, s, n, &w->normal, e)) != TGC_OK)
                        return rc;
                s = w->normal.p ? w->normal.p : "";
                n = w->normal.n;
        }
        if (n > INT_MAX)
                return err_set(e, TGC_FAIL, "tokenizer: the text grows beyond %d bytes", INT_MAX);
        while (rc == TGC_OK && added_next(&t->normal, t->added, s, n, &pos, &from, &to, &which)) {
                if (from > done)
                        rc = encode_split(t, s + done, from - done, at_start && !done, w, ids, e);
                ints_put(ids, t->added[which].id);
                done = to;
        }
        if (rc == TGC_OK && n > done)
                rc = encode_split(t, s + done, n - done, at_start && !done, w, ids, e);
        return rc;
}

int encode_text(const Tokenizer *t, const char *text, size_t n, Ints *ids, Err *e)
{
        size_t pos = 0, done = 0, from, to;
        int which, rc = TGC_OK;
        Work w = { 0 };

        while (rc == TGC_OK && added_next(&t->raw, t->added, text, n, &pos, &from, &to, &which)) {
                if (from > done)
                        rc = encode_stretch(t, text + done, from - done, !done, &w, ids, e);
                ints_put(ids, t->added[which].id);
                done = to;
        }
        if (rc == TGC_OK && n > done)
                rc = encode_stretch(t, text + done, n - done, !done, &w, ids, e);
        buf_free(&w.normal);
        pieces_free(&w.pieces);
        work_free(&w.merge);
        return rc;
}
