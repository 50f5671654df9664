/* tok_spm.c: sentencepiece's tokenizer.model, type BPE.
 *
 * The file is a protobuf message.  Of it matter
 *
 *   1 pieces            { 1 text, 2 float score, 3 kind }
 *   2 trainer_spec      { 3 model type (2 = BPE), 24 space is a suffix, 35 byte fallback,
 *                         40 unknown id, 41 BOS id, 42 EOS id }
 *   3 normalizer_spec   { 2 character map, 3 add a space in front, 4 remove extra spaces,
 *                         5 write spaces as U+2581 }
 *
 * A text gets a space in front, spaces become U+2581, user-defined pieces are cut out
 * whole, and the neighbours whose union has the best score are joined, leftmost first. */
#include "tok.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { BPE = 2 };
#define MARK "\xe2\x96\x81"

typedef struct Field {
        int id, wire;
        uint64_t value;
        const char *p;
        size_t n;
} Field;

static bool varint(const char **p, const char *end, uint64_t *x)
{
        *x = 0;
        for (int shift = 0; shift < 64 && *p < end; shift += 7) {
                unsigned char c = (unsigned char)*(*p)++;
                *x |= (uint64_t)(c & 127) << shift;
                if (c < 128)
                        return true;
        }
        return false;
}

/* The field at *p; false where the message is broken. */
static bool next_field(const char **p, const char *end, Field *f)
{
        uint64_t tag;

        if (!varint(p, end, &tag) || tag >> 3 > INT32_MAX)
                return false;
        *f = (Field) { .id = (int)(tag >> 3), .wire = (int)(tag & 7) };
        switch (f->wire) {
        case VARINT: return varint(p, end, &f->value);
        case BYTES:
                if (!varint(p, end, &f->value) || f->value > (uint64_t)(end - *p))
                        return false;
                f->n = (size_t)f->value;
                break;
        case FIXED32:
        case FIXED64:
                f->n = f->wire == FIXED32 ? 4 : 8;
                if ((size_t)(end - *p) < f->n)
                        return false;
                break;
        default: return false;
        }
        f->p = *p;
        *p += f->n;
        return true;
}

/* What is not written has sentencepiece's defaults. */
typedef struct Spec {
        uint64_t type, suffix, bytes, unk, bos, eos, prefix, squeeze, escape;
        size_t n_map;
} Spec;

static bool read_spec(const Field *message, Spec *s)
{
        const char *p = message->p, *end = p + message->n;
        Field f;

        while (p < end) {
                if (!next_field(&p, end, &f))
                        return false;
                switch (message->id << 8 | (f.id < 256 ? f.id : 0)) {
                case 2 << 8 | 3: s->type = f.value; break;
                case 2 << 8 | 24: s->suffix = f.value; break;
                case 2 << 8 | 35: s->bytes = f.value; break;
                case 2 << 8 | 40: s->unk = f.value; break;
                case 2 << 8 | 41: s->bos = f.value; break;
                case 2 << 8 | 42: s->eos = f.value; break;
                case 3 << 8 | 2: s->n_map = f.n; break;
                case 3 << 8 | 3: s->prefix = f.value; break;
                case 3 << 8 | 4: s->squeeze = f.value; break;
                case 3 << 8 | 5: s->escape = f.value; break;
                }
        }
        return true;
}

/* A piece of a kind of its own: special ones print nothing, user-defined ones are looked for in the
 * text. */
static int put_added(Tokenizer *t, int id, uint64_t kind, const char *text, size_t n, Err *e)
{
        int rc = tok_note(t, (Added) { .id = id, .special = kind != TOK_USER_DEFINED }, e);

        return rc == TGC_OK && kind == TOK_USER_DEFINED
                       ? added_put(&t->normal, text, n, t->n_added - 1, e)
                       : rc;
}

static int broken(const Tokenizer *t, const char *at, Err *e)
{
        return err_set(e, TGC_BAD_FILE, "sentencepiece model: broken at byte %td", at - t->blob);
}

static int put_piece(Tokenizer *t, const Field *message, Scored *score, Err *e)
{
        const char *p = message->p, *end = p + message->n, *text = "";
        uint64_t kind = TOK_NORMAL;
        int id = t->vocab.n, rc;
        size_t n = 0;
        Field f;

        *score = (Scored) { 0, id };
        while (p < end) {
                if (!next_field(&p, end, &f))
                        return broken(t, message->p, e);
                if (f.id == 1 && f.wire == BYTES) {
                        text = f.p;
                        n = f.n;
                } else if (f.id == 2 && f.wire == FIXED32) {
                        memcpy(&score->score, f.p, 4);
                } else if (f.id == 3 && f.wire == VARINT) {
                        kind = f.value;
                }
        }
        if ((rc = vocab_error(vocab_put(&t->vocab, id, text, n), "sentencepiece model", id, text, n,
                              e)) != TGC_OK)
                return rc;
        if (kind != TOK_NORMAL)
                score->score = NO_MERGE;
        if (kind == TOK_BYTE && n == 6) {
                int byte = fallback_byte(text, n);
                if (byte >= 0)
                        t->byte_id[byte] = id;
        }
        if (kind == TOK_UNUSED || kind > TOK_BYTE || !kind)
                return err_set(
                        e, TGC_BAD_FILE,
                        "sentencepiece model: piece %d '%.*s' is of kind %d (unused), which is not "
                        "supported; use its tokenizer.json",
                        id, n > 60 ? 60 : (int)n, text, kind < 100 ? (int)kind : 100);
        return kind == TOK_NORMAL || kind == TOK_BYTE ? TGC_OK : put_added(t, id, kind, text, n, e);
}

static int read_message(Tokenizer *t, Spec *s, Scored *score, Err *e)
{
        const char *p = t->blob, *end = p + t->n_blob;
        Field f;
        int rc;

        while (p < end) {
                const char *at = p;
                if (!next_field(&p, end, &f))
                        return broken(t, at, e);
                if (f.wire != BYTES)
                        continue;
                if (f.id == 1 && (rc = put_piece(t, &f, &score[t->vocab.n], e)) != TGC_OK)
                        return rc;
                if ((f.id == 2 || f.id == 3) && !read_spec(&f, s))
                        return broken(t, at, e);
        }
        return TGC_OK;
}

static int check_spec(const Spec *s, Err *e)
{
        const char *why = s->type != BPE ? "a model of another type than BPE"
                          : s->n_map     ? "a character map"
                          : s->squeeze   ? "removing extra spaces"
                          : s->suffix    ? "spaces as suffixes"
                          : !s->escape   ? "spaces that are not escaped"
                                         : NULL;

        return why ? err_set(e, TGC_BAD_FILE,
                             "sentencepiece model: %s is not supported; use its tokenizer.json",
                             why)
                   : TGC_OK;
}

int tok_sentence_steps(Tokenizer *t, bool prefix, Err *e)
{
        int rc;

        if (prefix)
                t->norm[t->n_norm++] = (Norm) { .op = NORM_PREPEND,
                                                .with = strdup(MARK),
                                                .n_with = 3 };
        t->norm[t->n_norm] = (Norm) { .op = NORM_REPLACE, .with = strdup(MARK), .n_with = 3 };
        if ((rc = pattern_literal(&t->norm[t->n_norm++].pattern, " ", 1, e)) != TGC_OK)
                return rc;
        t->decode[t->n_decode] = (Decode) { .op = DECODE_REPLACE,
                                            .with = strdup(" "),
                                            .n_with = 1 };
        if ((rc = pattern_literal(&t->decode[t->n_decode++].pattern, MARK, 3, e)) != TGC_OK)
                return rc;
        t->decode[t->n_decode++] = (Decode) { .op = DECODE_FALLBACK };
        t->decode[t->n_decode++] = (Decode) { .op = DECODE_FUSE };
        if (prefix)
                t->decode[t->n_decode++] = (Decode) {
                        .op = DECODE_STRIP, .with = strdup(" "), .n_with = 1, .start = 1
                };
        for (int i = 0; i < t->n_norm; i++)
                if (!t->norm[i].with)
                        return tok_no_memory(e);
        return t->decode[0].with && (!prefix || t->decode[3].with) ? TGC_OK : tok_no_memory(e);
}

int read_spm(Tokenizer *t, Err *e)
{
        Spec s = { .type = 1, .bos = 1, .eos = 2, .prefix = 1, .squeeze = 1, .escape = 1 };
        /* a piece has two bytes at least */
        size_t most = t->n_blob / 2 < TOK_MAX_VOCAB ? t->n_blob / 2 : TOK_MAX_VOCAB;
        Scored *score = malloc((most + 1) * sizeof *score);
        int rc;

        if (!score)
                return tok_no_memory(e);
        rc = read_message(t, &s, score, e);
        if (rc == TGC_OK)
                rc = check_spec(&s, e);
        if (rc == TGC_OK && t->vocab.n)
                rc = merges_by_score(&t->merges, score, t->vocab.n, e);
        free(score);
        if (rc == TGC_OK)
                rc = tok_sentence_steps(t, s.prefix, e);
        if (rc != TGC_OK)
                return rc;

        t->merges.by_text = t->fuse_unk = true;
        t->byte_fallback = s.bytes;
        t->unk = s.unk < (uint64_t)t->vocab.n ? (int)s.unk : -1;
        if (s.bos < (uint64_t)t->vocab.n) {
                /* some models end a text with BOS */
                t->bos = t->prefix[0] = t->eos[t->n_eos++] = (int)s.bos;
                t->n_prefix = t->adds_bos = 1;
        }
        if (s.eos < (uint64_t)t->vocab.n)
                t->eos[t->n_eos++] = (int)s.eos;
        return TGC_OK;
}
