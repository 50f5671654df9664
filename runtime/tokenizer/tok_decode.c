/* tok_decode.c: turns ids into text.
 *
 * The decoders of a tokenizer.json take a list of tokens, without the special ones.  Those
 * supported here act on each token by itself, with three exceptions: what the first token loses,
 * runs of byte tokens, and what is stripped off the whole.  So each token has two texts, `mid` and
 * `first`, computed at load.  The exceptions are handled as tokens follow each other. */
#include "tok.h"

/* "<0xE2>" is a byte; -1 else. */
int fallback_byte(const char *s, size_t n)
{
        static const char hex[] = "0123456789ABCDEF0123456789abcdef";
        const char *hi, *lo;

        if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || !s[3] || !s[4])
                return -1;
        if (!(lo = strchr(hex, s[4])))
                return -1;
        if (s[3] == '+') /* Rust reads numbers so, and the reference with it */
                return (int)((lo - hex) % 16);
        return (hi = strchr(hex, s[3])) ? (int)((hi - hex) % 16 * 16 + (lo - hex) % 16) : -1;
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
                buf_put(out, (char[]) { (char)byte }, 1);
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
        for (int stop = d->stop;
             stop > 0 && n >= d->n_with && starts(d, s + n - d->n_with, d->n_with); stop--)
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

/* English as it is written: no space before marks and endings. */
static int clean_up(const char *s, size_t n, Buf *out, Err *e)
{
        static const char *const row[][2] = {
                { " .", "." },   { " ?", "?" },     { " !", "!" },    { " ,", "," },
                { " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },  { " do not", " don't" },
                { " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" }
        };
        Buf other = { 0 };
        int rc = TGC_OK;

        buf_put(out, s, n);
        for (size_t i = 0; i < sizeof row / sizeof *row && rc == TGC_OK; i++) {
                Pattern p = { .literal = (char *)(uintptr_t)row[i][0], .n = strlen(row[i][0]) };
                Buf swap = other;

                if (!memmem(out->p, out->n, p.literal, p.n))
                        continue;
                other = *out;
                *out = swap;
                out->n = 0;
                rc = pattern_replace(&p, other.p, other.n, row[i][1], strlen(row[i][1]), out, e);
        }
        buf_free(&other);
        return rc;
}

static void wordpiece(const Decode *d, bool first, const char *s, size_t n, Buf *out)
{
        if (!first && starts(d, s, n)) {
                s += d->n_with;
                n -= d->n_with;
        } else if (!first) {
                buf_put(out, " ", 1);
        }
        buf_put(out, s, n);
}

/* One token through every step up to where the list becomes one text. */
static int decode_token(const Tokenizer *t, int id, bool first, const char *s, size_t n, Buf *out,
                        Err *e)
{
        Buf other = { 0 };
        int byte, rc = TGC_OK;

        out->n = 0;
        buf_put(out, s, n);
        for (int i = 0; i < t->n_decode && rc == TGC_OK && t->decode[i].op != DECODE_FUSE; i++) {
                const Decode *d = &t->decode[i];
                Buf swap = other;

                other = *out;
                *out = swap;
                out->n = 0;
                s = other.p ? other.p : "";
                n = other.n;
                switch (d->op) {
                case DECODE_BYTES: put_bytes(s, n, out); break;
                case DECODE_FALLBACK:
                        if ((byte = fallback_byte(s, n)) >= 0)
                                buf_put(out, (char[]) { (char)byte }, 1);
                        else
                                buf_put(out, s, n);
                        t->is_byte[id] = byte >= 0;
                        break;
                case DECODE_WORDPIECE: wordpiece(d, first, s, n, out); break;
                case DECODE_CLEAN_UP: rc = n ? clean_up(s, n, out, e) : TGC_OK; break;
                case DECODE_METASPACE: metaspace(d, first, s, n, out); break;
                case DECODE_REPLACE:
                        rc = pattern_replace(&d->pattern, s, n, d->with, d->n_with, out, e);
                        break;
                case DECODE_STRIP:
                        strip(d, first || !d->drop_first ? d->start : 0, s, n, out);
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

/* Both answers for id, whose token is n bytes at s. */
static int decode_id(Tokenizer *t, int id, const char *s, size_t n, Buf *one, Err *e)
{
        for (int first = 0; first < 2; first++) {
                int rc = decode_token(t, id, first, s, n, one, e);

                if (rc != TGC_OK)
                        return rc;
                if (first && one->n == t->mid_len[id] &&
                    (!one->n || !memcmp(t->stream.p + t->mid[id], one->p, one->n))) {
                        t->first[id] = t->mid[id];
                        t->first_len[id] = t->mid_len[id];
                        break;
                }
                (first ? t->first : t->mid)[id] = (uint32_t)t->stream.n;
                (first ? t->first_len : t->mid_len)[id] = (uint32_t)one->n;
                buf_put(&t->stream, one->p, one->n);
                if (t->stream.bad || t->stream.n > TOK_MAX_TEXT)
                        return tok_no_memory(e);
        }
        return TGC_OK;
}

int decode_table(Tokenizer *t, Err *e)
{
        size_t n_id = (size_t)t->vocab.n + 1;
        uint32_t *p = calloc(4 * n_id, sizeof *p);
        Buf one = { 0 };
        int rc = TGC_OK;

        if (!p)
                return tok_no_memory(e);
        t->mid = p;
        t->mid_len = p + n_id;
        t->first = p + 2 * n_id;
        t->first_len = p + 3 * n_id;
        if (!(t->is_byte = calloc(n_id, 1)))
                return tok_no_memory(e);
        for (int id = 0; id < t->vocab.n && rc == TGC_OK; id++) {
                size_t n;
                const char *text = vocab_text(&t->vocab, id, &n);

                if (text && !t->special[id])
                        rc = decode_id(t, id, text, n, &one, e);
        }
        /* the reference keeps these normalised */
        for (int i = 0; i < t->n_added && rc == TGC_OK; i++) {
                const Added *a = &t->added[i];
                size_t n;
                const char *text = vocab_text(&t->vocab, a->id, &n);
                Buf normal = { 0 };

                if (!a->normalized || t->special[a->id] || !t->n_norm)
                        continue;
                if ((rc = normalize(t->norm, t->n_norm, text, n, &normal, NULL, e)) == TGC_OK)
                        rc = decode_id(t, a->id, normal.p ? normal.p : "", normal.n, &one, e);
                buf_free(&normal);
        }
        for (int i = 0; i < t->n_decode; i++)
                if (t->decode[i].op == DECODE_FUSE && i + 1 < t->n_decode &&
                    t->decode[i + 1].op == DECODE_STRIP)
                        t->strip = &t->decode[i + 1];
        buf_free(&one);
        return rc;
}

/* ---- tokens one after another ------------------------------------------------------ */

/* What id adds, before anything is stripped off the whole; NULL: it is not in the list. */
static const char *piece(const Tokenizer *t, bool first, int id, size_t *n)
{
        size_t unused;

        *n = 0;
        if (id < 0 || id >= t->vocab.n || t->special[id] || !vocab_text(&t->vocab, id, &unused))
                return NULL;
        *n = first ? t->first_len[id] : t->mid_len[id];
        return *n ? t->stream.p + (first ? t->first[id] : t->mid[id]) : "";
}

/* Take off what the text loses at its start; *stripped counts, and is `start` when that is over. */
static void strip_start(const Tokenizer *t, int *stripped, const char **s, size_t *n)
{
        const Decode *d = t->strip;

        while (d && *stripped < d->start && *n) {
                if (!starts(d, *s, *n)) {
                        *stripped = d->start;
                        return;
                }
                *s += d->n_with;
                *n -= d->n_with;
                ++*stripped;
        }
}

const char *tokenizer_next(const Tokenizer *t, TokStream *to, int id, size_t *n)
{
        const char *s = piece(t, !to->begun, id, n);

        if (!s)
                return "";
        to->begun = 1;
        strip_start(t, &to->stripped, &s, n);
        return s;
}

/* Byte tokens in a row are characters together, or none of them is one. */
static void end_run(Buf *run, Buf *out)
{
        if (utf8_valid(run->p, run->n) == run->n)
                buf_put(out, run->p, run->n);
        else
                for (size_t i = 0; i < run->n; i++)
                        buf_put(out, "\xef\xbf\xbd", 3);
        run->n = 0;
}

int tokenizer_text(const Tokenizer *t, const int *ids, int n_ids, char **text, size_t *n_text,
                   Err *e)
{
        Buf all = { 0 }, run = { 0 };
        bool begun = false;
        int stripped = 0;
        const char *s;
        size_t n;

        for (int i = 0; i < n_ids; i++) {
                if (!(s = piece(t, !begun, ids[i], &n)))
                        continue;
                begun = true;
                if (!t->is_byte[ids[i]] && run.n)
                        end_run(&run, &all);
                buf_put(t->is_byte[ids[i]] ? &run : &all, s, n);
        }
        if (run.n)
                end_run(&run, &all);
        s = all.p ? all.p : "";
        n = all.n;
        strip_start(t, &stripped, &s, &n);
        run.n = 0;
        utf8_lossy(s, n, &run);
        buf_put(&run, "", 1);
        run.bad |= all.bad;
        buf_free(&all);
        if (run.bad) {
                buf_free(&run);
                return tok_no_memory(e);
        }
        *text = run.p;
        *n_text = run.n - 1;
        return TGC_OK;
}

void decode_free(Decode *d)
{
        free(d->with);
        pattern_free(&d->pattern);
        *d = (Decode) { 0 };
}
