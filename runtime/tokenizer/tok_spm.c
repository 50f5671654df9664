/* tok_spm.c: reads sentencepiece's tokenizer.model of type Unigram or BPE.
 *
 * The file is a protobuf message.  These fields are read:
 *
 *   1 pieces            { 1 text, 2 float score, 3 kind }
 *   2 trainer_spec      { 3 model type (1 = Unigram, 2 = BPE), 24 space is a suffix,
 *                         35 byte fallback, 40 unknown id, 41 BOS id, 42 EOS id }
 *   3 normalizer_spec   { 2 character map, 3 add a space in front, 4 remove extra spaces,
 *                         5 write spaces as U+2581 } */
#include "tok.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { UNIGRAM = 1, BPE };

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
        const char *map;
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
                case 3 << 8 | 2:
                        s->map = f.p;
                        s->n_map = f.p ? f.n : 0;
                        break;
                case 3 << 8 | 3: s->prefix = f.value; break;
                case 3 << 8 | 4: s->squeeze = f.value; break;
                case 3 << 8 | 5: s->escape = f.value; break;
                }
        }
        return true;
}

static int broken(const Tokenizer *t, const char *at, Err *e)
{
        return err_set(e, TGC_BAD_FILE, "sentencepiece model: broken at byte %td", at - t->blob);
}

static int put_piece(Tokenizer *t, const Field *message, float *score, unsigned char *kind, Err *e)
{
        const char *p = message->p, *end = p + message->n, *text = "";
        uint64_t what = TOK_NORMAL;
        int id = t->vocab.n;
        size_t n = 0;
        Field f;

        *score = 0;
        while (p < end) {
                if (!next_field(&p, end, &f))
                        return broken(t, message->p, e);
                if (f.id == 1 && f.wire == BYTES) {
                        text = f.p;
                        n = f.n;
                } else if (f.id == 2 && f.wire == FIXED32) {
                        memcpy(score, f.p, 4);
                } else if (f.id == 3 && f.wire == VARINT) {
                        what = f.value;
                }
        }
        *kind = what > 255 ? 255 : (unsigned char)what;
        return vocab_error(vocab_put(&t->vocab, id, text, n), "sentencepiece model", id, text, n,
                           e);
}

/* score and kind have room for every piece that n_blob bytes can hold. */
static int read_message(Tokenizer *t, Spec *s, float *score, unsigned char *kind, Err *e)
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
                if (f.id == 1 &&
                    (rc = put_piece(t, &f, &score[t->vocab.n], &kind[t->vocab.n], e)) != TGC_OK)
                        return rc;
                if ((f.id == 2 || f.id == 3) && !read_spec(&f, s))
                        return broken(t, at, e);
        }
        return TGC_OK;
}

static int check_spec(const Tokenizer *t, const Spec *s, const unsigned char *kind, Err *e)
{
        const char *why = s->type != BPE && s->type != UNIGRAM
                                  ? "a model of another type than Unigram and BPE"
                          : s->suffix  ? "spaces as suffixes"
                          : !s->escape ? "spaces that are not escaped"
                                       : NULL;

        for (int id = 0; id < t->vocab.n && !why; id++)
                if (kind[id] == TOK_UNUSED && s->type == BPE)
                        why = "an unused piece in a BPE";
        return why ? err_set(e, TGC_BAD_FILE,
                             "sentencepiece model: %s is not supported; use its tokenizer.json",
                             why)
                   : TGC_OK;
}

static int build(Tokenizer *t, const Spec *s, const float *score, const unsigned char *kind, Err *e)
{
        Sentence how = { .unigram = s->type == UNIGRAM,
                         .prefix = s->prefix,
                         .squeeze = s->squeeze,
                         .score = score,
                         .kind = kind };
        int rc = check_spec(t, s, kind, e);

        if (rc == TGC_OK && s->n_map)
                rc = charsmap_open(&how.map, s->map, s->n_map, e);
        if (rc == TGC_OK)
                rc = tok_sentence(t, &how, e);
        t->byte_fallback = s->bytes;
        t->unk = s->unk < (uint64_t)t->vocab.n ? (int)s->unk : -1;
        if (rc == TGC_OK && how.unigram && t->unk < 0)
                rc = err_set(e, TGC_BAD_FILE, "sentencepiece model: there is no unknown piece");
        return rc;
}

int read_spm(Tokenizer *t, Err *e)
{
        Spec s = { .type = 1, .bos = 1, .eos = 2, .prefix = 1, .squeeze = 1, .escape = 1 };
        /* a piece has two bytes at least */
        size_t most = t->n_blob / 2 < TOK_MAX_VOCAB ? t->n_blob / 2 : TOK_MAX_VOCAB;
        float *score = malloc((most + 1) * (sizeof *score + 1));
        int rc;

        if (!score)
                return tok_no_memory(e);
        unsigned char *kind = (unsigned char *)(score + most + 1);
        rc = read_message(t, &s, score, kind, e);
        if (rc == TGC_OK && t->vocab.n)
                rc = build(t, &s, score, kind, e);
        free(score);
        if (rc != TGC_OK)
                return rc;
        if (s.bos < (uint64_t)t->vocab.n) {
                /* some models end a text with BOS */
                t->bos = t->prefix[0] = t->eos[t->n_eos++] = (int)s.bos;
                t->n_prefix = t->adds_bos = 1;
        }
        if (s.eos < (uint64_t)t->vocab.n)
                t->eos[t->n_eos++] = (int)s.eos;
        return TGC_OK;
}
