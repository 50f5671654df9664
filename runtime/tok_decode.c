/* tok_decode.c: what each token adds to a stream, worked out once when loading.
 *
 * Decoders of a tokenizer.json look at a list of tokens; the ones we take act on
 * each by itself, save that the first may lose the space put before the text.  So
 * there are two answers per token, `mid` and `first`.  Special tokens print nothing. */
#include "tok.h"

/* "<0xE2>" is a byte; -1 else. */
static int fallback_byte(const char *s, size_t n)
{
        static const char hex[] = "0123456789ABCDEF0123456789abcdef";
        const char *hi, *lo;

        if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || !s[3] || !s[4])
                return -1;
        if (!(hi = strchr(hex, s[3])) || !(lo = strchr(hex, s[4])))
                return -1;
        return (int)((hi - hex) % 16 * 16 + (lo - hex) % 16);
}

/* Byte-level characters to bytes; a token with any other character is itself. */
static void put_bytes(const char *s, size_t n, Buf *out)
{
        size_t was = out->n;
        uint32_t cp;

        for (size_t i = 0, len; i < n; i += len) {
                int byte;
                if (!(len = utf8_get(s + i, n - i, &cp)) || (byte = byte_level_byte(cp)) < 0) {
                        out->n = was;
                        buf_put(out, s, n);
                        return;
                }
                buf_put(out, (char[]){ (char)byte }, 1);
        }
}

static bool starts(const Decode *d, const char *s, size_t n)
{
        return n >= d->n_with && !memcmp(s, d->with, d->n_with);
}

static void strip(const Decode *d, int start, const char *s, size_t n, Buf *out)
{
        for (; start > 0 && n && starts(d, s, n); start--, n -= d->n_with)
                s += d->n_with;
        for (int stop = d->stop; stop > 0 && n >= d->n_with && starts(d, s + n - d->n_with, d->n_with); stop--)
                n -= d->n_with;
        buf_put(out, s, n);
}

static void metaspace(const Decode *d, bool first, const char *s, size_t n, Buf *out)
{
        while (n) {
                size_t k = starts(d, s, n) ? d->n_with : 1;
                if (k == 1 && !starts(d, s, n))
                        buf_put(out, s, 1);
                else if (!(first && d->drop_first))
                        buf_put(out, " ", 1);
                s += k;
                n -= k;
        }
}

/* One token through every step.  After FUSE the list is one text, and only the
 * token that comes first stands at its beginning. */
static int decode_token(const Tokenizer *t, bool first, const char *s, size_t n, Buf *out, Err *e)
{
        Buf other = {0};
        bool fused = false;
        int byte, rc = TGC_OK;

        out->n = 0;
        buf_put(out, s, n);
        for (int i = 0; i < t->n_decode && rc == TGC_OK; i++) {
                const Decode *d = &t->decode[i];
                Buf swap = other;

                if (d->op == DECODE_FUSE) {
                        fused = true;
                        continue;
                }
                other = *out;
                *out = swap;
                out->n = 0;
                s = other.p ? other.p : "";
                n = other.n;
                switch (d->op) {
                case DECODE_BYTES:
                        put_bytes(s, n, out);
                        break;
                case DECODE_FALLBACK:
                        if ((byte = fallback_byte(s, n)) >= 0)
                                buf_put(out, (char[]){ (char)byte }, 1);
                        else
                                buf_put(out, s, n);
                        break;
                case DECODE_METASPACE:
                        metaspace(d, first, s, n, out);
                        break;
                case DECODE_REPLACE:
                        rc = pattern_replace(&d->pattern, s, n, d->with, d->n_with, out, e);
                        break;
                case DECODE_STRIP:
                        strip(d, first || !fused ? d->start : 0, s, n, out);
                        break;
                default:
                        if (!first)
                                buf_put(out, d->with, d->n_with);
                        buf_put(out, s, n);
                }
                if (other.bad)
                        out->bad = true;
        }
        buf_free(&other);
        return rc != TGC_OK ? rc : out->bad ? tok_no_memory(e) : TGC_OK;
}

int decode_table(Tokenizer *t, Err *e)
{
        size_t n_id = (size_t)t->vocab.n + 1;
        uint32_t *p = calloc(4 * n_id, sizeof *p);
        Buf one = {0};
        int rc = TGC_OK;

        if (!p)
                return tok_no_memory(e);
        t->mid = p;
        t->mid_len = p + n_id;
        t->first = p + 2 * n_id;
        t->first_len = p + 3 * n_id;
        for (int id = 0; id < t->vocab.n && rc == TGC_OK; id++) {
                size_t n;
                const char *s = vocab_text(&t->vocab, id, &n);

                if (!s || t->special[id])
                        continue;
                for (int first = 0; first < 2 && rc == TGC_OK; first++) {
                        rc = decode_token(t, first, s, n, &one, e);
                        if (first && one.n == t->mid_len[id]
                            && (!one.n || !memcmp(t->stream.p + t->mid[id], one.p, one.n))) {
                                t->first[id] = t->mid[id];
                                t->first_len[id] = t->mid_len[id];
                                continue;
                        }
                        (first ? t->first : t->mid)[id] = (uint32_t)t->stream.n;
                        (first ? t->first_len : t->mid_len)[id] = (uint32_t)one.n;
                        buf_put(&t->stream, one.p, one.n);
                        if (rc == TGC_OK && (t->stream.bad || t->stream.n > TOK_MAX_TEXT))
                                rc = tok_no_memory(e);
                }
        }
        buf_free(&one);
        return rc;
}

void decode_free(Decode *d)
{
        free(d->with);
        pattern_free(&d->pattern);
        *d = (Decode){0};
}
