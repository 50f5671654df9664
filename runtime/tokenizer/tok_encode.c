/* tok_encode.c: runs a text through added tokens, normaliser, pre-tokeniser and merges. */
#include <limits.h>
#include "tok.h"

/* Words come again and again.  A slot remembers a short one with its ids; a word that meets
 * another in its slot takes its place, so nobody can make the table slow or large. */
typedef struct Cached {
        char word[22];
        unsigned char len, n_ids; /* len 0: empty */
        int ids[10];
} Cached;

/* Scratch that lasts for one text. */
typedef struct Work {
        Buf normal, bytes, piece;
        Pieces pieces;
        MergeWork merge;
        BestWork best;
        Cached *cache; /* (n_cache), a power of 2; 0: the text is too short for one */
        size_t n_cache;
} Work;

/* Slots for a text of n bytes; without memory there is no cache. */
static void open_cache(Work *w, size_t n)
{
        size_t slots = 64;

        if (n < 1024)
                return;
        while (slots < 32768 && slots < n / 16)
                slots *= 2;
        if ((w->cache = calloc(slots, sizeof *w->cache)))
                w->n_cache = slots;
}

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

static void encode_new_piece(const Tokenizer *t, const char *s, size_t n, Work *w, Ints *ids)
{
        int id;

        if (t->to_bytes) {
                w->bytes.n = 0;
                put_byte_level(s, n, &w->bytes);
                s = w->bytes.p;
                n = w->bytes.n;
                if (w->bytes.bad) {
                        ids->bad = true;
                        return;
                }
        }
        if (t->ignore_merges && (id = vocab_find(&t->vocab, s, n)) >= 0) {
                ints_put(ids, id);
                return;
        }
        switch (t->model) {
        case MODEL_WORDPIECE: encode_wordpiece(t, s, n, &w->piece, ids); break;
        case MODEL_WORDS: encode_word(t, s, n, ids); break;
        case MODEL_UNIGRAM: encode_unigram(t, s, n, &w->best, ids); break;
        default:
                put_symbols(t, s, n, &w->merge);
                work_merge(&w->merge, &t->merges, &t->vocab, s, ids);
        }
}

/* The word in two numbers: its first 8 and last 8 bytes, which overlap or leave a gap. */
static size_t slot_of(const Work *w, const char *s, size_t n)
{
        uint64_t a = 0, b = 0;

        if (n >= 8) {
                memcpy(&a, s, 8);
                memcpy(&b, s + n - 8, 8);
        } else {
                memcpy(&a, s, n);
        }
        a = (a ^ n) * 0x9e3779b97f4a7c15u + b;
        a = (a ^ a >> 32) * 0xd6e8feb86659fd93u;
        return (size_t)(a >> 32) & (w->n_cache - 1);
}

static void encode_piece(const Tokenizer *t, const char *s, size_t n, Work *w, Ints *ids)
{
        size_t was = ids->n;
        Cached *c;

        if (!w->n_cache || n > sizeof c->word) {
                encode_new_piece(t, s, n, w, ids);
                return;
        }
        c = &w->cache[slot_of(w, s, n)];
        if (c->len == n && !memcmp(c->word, s, n)) {
                for (int i = 0; i < c->n_ids; i++)
                        ints_put(ids, c->ids[i]);
                return;
        }
        encode_new_piece(t, s, n, w, ids);
        if (ids->bad || w->merge.bad || ids->n - was > sizeof c->ids / sizeof *c->ids)
                return;
        c->len = (unsigned char)n;
        c->n_ids = (unsigned char)(ids->n - was);
        memcpy(c->word, s, n);
        for (int i = 0; i < c->n_ids; i++)
                c->ids[i] = ids->p[was + (size_t)i];
}

static int encode_split(const Tokenizer *t, const char *s, size_t n, bool at_start, Work *w,
                        Ints *ids, Err *e)
{
        int rc = split_text(t->split, t->n_split, s, n, at_start, &w->pieces, e);

        if (rc != TGC_OK)
                return rc;
        for (size_t i = 0; i < w->pieces.at.n; i += 2) {
                int from = w->pieces.at.p[i];
                encode_piece(t, w->pieces.s + from, (size_t)(w->pieces.at.p[i + 1] - from), w, ids);
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
                if ((rc = normalize(t->norm, t->n_norm, s, n, &w->normal, &at_start, e)) != TGC_OK)
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

        open_cache(&w, n);
        while (rc == TGC_OK && added_next(&t->raw, t->added, text, n, &pos, &from, &to, &which)) {
                if (from > done)
                        rc = encode_stretch(t, text + done, from - done, !done, &w, ids, e);
                ints_put(ids, t->added[which].id);
                done = to;
        }
        if (rc == TGC_OK && n > done)
                rc = encode_stretch(t, text + done, n - done, !done, &w, ids, e);
        buf_free(&w.normal);
        buf_free(&w.bytes);
        buf_free(&w.piece);
        free(w.best.best);
        ints_free(&w.best.ends);
        free(w.cache);
        pieces_free(&w.pieces);
        work_free(&w.merge);
        return rc;
}
