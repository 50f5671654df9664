/* tok_spm.c: sentencepiece's tokenizer.model as llama2.c's tokenizer.bin.
 *
 * The file is a protobuf message.  Of it matter
 *
 *   1 pieces            { 1 text, 2 float score, 3 kind (1 normal, 4 user defined, ...) }
 *   2 trainer_spec      { 3 model type (2 = BPE), 41 BOS id, 42 EOS id }
 *   3 normalizer_spec   { 2 character map, 3 add a space in front, 4 remove extra spaces }
 *
 * and only what run.c's encoder does can be taken over: BPE by score, a space in
 * front, no other normalising. */
#include "tok.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { USER_DEFINED = 4, BPE = 2 };

typedef struct Field { int id, wire; uint64_t value; const char *p; size_t n; } Field;

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
        *f = (Field){ .id = (int)(tag >> 3), .wire = (int)(tag & 7) };
        switch (f->wire) {
        case VARINT:
                return varint(p, end, &f->value);
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
        default:
                return false;
        }
        f->p = *p;
        *p += f->n;
        return true;
}

/* What is not written has sentencepiece's defaults. */
typedef struct Spec { uint64_t type, bos, eos, prefix, squeeze; size_t n_map; } Spec;

static bool read_spec(const Field *message, Spec *s)
{
        const char *p = message->p, *end = p + message->n;
        Field f;

        while (p < end) {
                if (!next_field(&p, end, &f))
                        return false;
                switch (message->id << 8 | f.id) {
                case 2 << 8 | 3:  s->type = f.value;    break;
                case 2 << 8 | 41: s->bos = f.value;     break;
                case 2 << 8 | 42: s->eos = f.value;     break;
                case 3 << 8 | 2:  s->n_map = f.n;       break;
                case 3 << 8 | 3:  s->prefix = f.value;  break;
                case 3 << 8 | 4:  s->squeeze = f.value; break;
                }
        }
        return true;
}

/* One piece as an entry of tokenizer.bin: U+2581 is a space, BOS and EOS have their lines. */
static bool put_piece(const Field *message, int id, Buf *out, uint64_t *kind)
{
        static const char *const name[] = { NULL, "\n<s>\n", "\n</s>\n" };
        const char *p = message->p, *end = p + message->n, *text = "";
        size_t n = 0, at = out->n;
        int32_t len, longest;
        Field f;

        *kind = 1;
        buf_put(out, "\0\0\0\0\0\0\0", 8);
        while (p < end) {
                if (!next_field(&p, end, &f))
                        return false;
                if (f.id == 1 && f.wire == BYTES) {
                        text = f.p;
                        n = f.n;
                } else if (f.id == 2 && f.wire == FIXED32 && !out->bad) {
                        memcpy(out->p + at, f.p, 4);
                } else if (f.id == 3 && f.wire == VARINT) {
                        *kind = f.value;
                }
        }
        if (id == 1 || id == 2) {
                text = name[id];
                n = strlen(text);
        }
        for (size_t i = 0; i < n; i++) {
                bool mark = n - i >= 3 && !memcmp(text + i, "\xe2\x96\x81", 3);
                buf_put(out, mark ? " " : text + i, 1);
                i += mark ? 2 : 0;
        }
        if (out->bad)
                return true;
        len = (int32_t)(out->n - at - 8);
        memcpy(out->p + at + 4, &len, 4);
        memcpy(&longest, out->p, 4);
        if (len > longest)
                memcpy(out->p, &len, 4);
        return true;
}

int spm_convert(const char *model, size_t n, Buf *out, Err *e)
{
        const char *p = model, *end = p + n;
        Spec s = { .type = 1, .bos = 1, .eos = 2, .prefix = 1, .squeeze = 1 };
        uint64_t kind;
        int id = 0;
        Field f;

        buf_put(out, "\0\0\0", 4);
        while (p < end) {
                bool good = next_field(&p, end, &f);
                if (good && f.id == 1 && f.wire == BYTES) {
                        good = put_piece(&f, id++, out, &kind);
                        if (good && kind == USER_DEFINED)
                                return err_set(e, TGC_BAD_FILE, "sentencepiece model: user-defined pieces (id %d) are "
                                               "not supported; use its tokenizer.json", id - 1);
                } else if (good && (f.id == 2 || f.id == 3) && f.wire == BYTES) {
                        good = read_spec(&f, &s);
                }
                if (!good)
                        return err_set(e, TGC_BAD_FILE, "sentencepiece model: broken at byte %zu", (size_t)(p - model));
        }
        if (s.type != BPE || s.bos != 1 || s.eos != 2 || s.n_map || !s.prefix || s.squeeze)
                return err_set(e, TGC_BAD_FILE, "sentencepiece model: only BPE with BOS 1, EOS 2, a space in front and "
                               "no normaliser is supported; use its tokenizer.json");
        return out->bad ? tok_no_memory(e) : TGC_OK;
}
