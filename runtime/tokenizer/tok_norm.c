/* tok_norm.c: normalisers, text to text.  Bytes that are not UTF-8 pass as they are. */
#include "tok.h"
#include <utf8proc.h>

/* Bytes up to the next that are not UTF-8 or whose character normalising leaves alone; *alone: how
 * many those are. */
static size_t touched(const char *s, size_t n, size_t *alone)
{
        size_t i = 0, len;
        uint32_t cp;

        for (*alone = 0; i < n; i += len) {
                if ((unsigned char)s[i] < 0x80) {
                        len = 1;
                        continue;
                }
                len = utf8_get(s + i, n - i, &cp);
                if (!len || cp_is_inert(cp)) {
                        *alone = len ? len : 1;
                        break;
                }
        }
        return i;
}

static int unicode_form(int form, const char *text, size_t n, Buf *out, Err *e)
{
        for (size_t i = 0, alone; i < n; i += alone) {
                size_t some = touched(text + i, n - i, &alone);
                utf8proc_uint8_t *to = NULL;
                utf8proc_ssize_t len;

                if (some) {
                        len = utf8proc_map((const utf8proc_uint8_t *)text + i,
                                           (utf8proc_ssize_t)some, &to, (utf8proc_option_t)form);
                        if (len < 0)
                                return len == UTF8PROC_ERROR_NOMEM
                                               ? tok_no_memory(e)
                                               : err_set(e, TGC_FAIL, "tokenizer: normalising: %s",
                                                         utf8proc_errmsg(len));
                        buf_put(out, (char *)to, (size_t)len);
                        free(to);
                        i += some;
                }
                buf_put(out, text + i, alone);
        }
        return TGC_OK;
}

static void put_cp(uint32_t cp, Buf *out)
{
        char s[4];
        buf_put(out, s, utf8_put(s, cp));
}

static void put_lower(uint32_t cp, Buf *out)
{
        if (cp == 0x130) /* the one letter whose small form is two code points */
                buf_put(out, "i\xcc\x87", 3);
        else
                put_cp(cp_lower(cp), out);
}

static void put_nmt(uint32_t cp, Buf *out)
{
        static const Range gone[] = { { 0x1, 0x8 },   { 0xb, 0xb },   { 0xe, 0x1f },
                                      { 0x7f, 0x7f }, { 0x8f, 0x8f }, { 0x9f, 0x9f } },
                           space[] = { { 0x9, 0xa },       { 0xc, 0xd },       { 0x1680, 0x1680 },
                                       { 0x200b, 0x200f }, { 0x2028, 0x2029 }, { 0x2581, 0x2581 },
                                       { 0xfeff, 0xfeff }, { 0xfffd, 0xfffd } };

        if (cp_in(space, sizeof space / sizeof *space, cp))
                put_cp(' ', out);
        else if (!cp_in(gone, sizeof gone / sizeof *gone, cp))
                put_cp(cp, out);
}

/* One character, changed. */
static void put_changed(int op, uint32_t cp, Buf *out)
{
        switch (op) {
        case NORM_LOWER: put_lower(cp, out); break;
        case NORM_NMT: put_nmt(cp, out); break;
        case NORM_NO_MARKS:
                if (!cp_is_accent(cp))
                        put_cp(cp, out);
                break;
        case NORM_NO_NONSPACING:
                if (!cp_is_nonspacing(cp))
                        put_cp(cp, out);
                break;
        case NORM_CLEAN:
                if (!cp_is_unclean(cp)) /* among these are the other controls that are space */
                        put_cp(cp_is_space(cp) ? ' ' : cp, out);
                break;
        default: /* NORM_HAN */
                if (cp_is_han(cp))
                        put_cp(' ', out);
                put_cp(cp, out);
                if (cp_is_han(cp))
                        put_cp(' ', out);
        }
}

static void each_cp(int op, const char *text, size_t n, Buf *out)
{
        uint32_t cp;

        for (size_t i = 0, len; i < n; i += len)
                if ((len = utf8_get(text + i, n - i, &cp)))
                        put_changed(op, cp, out);
                else
                        buf_put(out, text + i, len = 1);
}

/* ---- sentencepiece ------------------------------------------------------------------ */

#define MARK "\xe2\x96\x81" /* a space in a piece */

/* What stands for the beginning of s: a user-defined piece itself, an entry of the map, or one
 * character.  Returns how much of s that is. */
static size_t next_chunk(const Norm *s, const char *text, size_t n, const char **with,
                         size_t *n_with)
{
        size_t len;
        uint32_t cp;

        *with = text;
        if (s->user && (len = added_at(s->user, text, n)))
                return *n_with = len;
        if (s->map.n_unit && (len = charsmap_find(&s->map, text, n, true, with, n_with)))
                return len;
        *with = text;
        len = utf8_get(text, n, &cp);
        return *n_with = len ? len : 1;
}

/* Spaces become MARK.  With squeeze none is at the start, none follows another, and none is at the
 * end; whether a space follows one is looked at between chunks, as sentencepiece does. */
static void sentence(const Norm *s, const char *text, size_t n, Buf *out)
{
        bool after_space = s->squeeze;
        const char *with;
        size_t i = 0, len, n_with, begun = out->n;

        while (s->squeeze && i < n) {
                len = next_chunk(s, text + i, n - i, &with, &n_with);
                if (n_with != 1 || *with != ' ')
                        break;
                i += len;
        }
        if (i == n)
                return;
        if (s->prefix)
                buf_put(out, MARK, 3);
        for (; i < n; i += len) {
                len = next_chunk(s, text + i, n - i, &with, &n_with);
                while (after_space && n_with && *with == ' ') {
                        with++;
                        n_with--;
                }
                for (size_t k = 0; k < n_with; k++)
                        buf_put(out, with[k] == ' ' ? MARK : with + k, with[k] == ' ' ? 3 : 1);
                if (n_with)
                        after_space = s->squeeze && with[n_with - 1] == ' ';
        }
        while (s->squeeze && !out->bad && out->n - begun >= 3 &&
               !memcmp(out->p + out->n - 3, MARK, 3))
                out->n -= 3;
}

/* ---- all of them -------------------------------------------------------------------- */

static void strip(const Norm *s, const char *text, size_t n, Buf *out)
{
        size_t from = 0, to = n, len;
        uint32_t cp;

        while (s->left && from < n && (len = utf8_get(text + from, n - from, &cp)) &&
               cp_is_space(cp))
                from += len;
        while (s->right && to > from) {
                size_t at = to - 1;
                while (at > from && to - at < 4 && ((unsigned char)text[at] & 0xc0) == 0x80)
                        at--;
                if (utf8_get(text + at, to - at, &cp) != to - at || !cp_is_space(cp))
                        break;
                to = at;
        }
        buf_put(out, text + from, to - from);
}

static int apply(const Norm *s, const char *text, size_t n, Buf *out, Err *e)
{
        switch (s->op) {
        case NORM_UNICODE: return unicode_form(s->form, text, n, out, e);
        case NORM_LOWER:
        case NORM_NO_MARKS:
        case NORM_NO_NONSPACING:
        case NORM_CLEAN:
        case NORM_HAN:
        case NORM_NMT: each_cp(s->op, text, n, out); return TGC_OK;
        case NORM_BYTES: put_byte_level(text, n, out); return TGC_OK;
        case NORM_CHARSMAP: charsmap_graphemes(&s->map, text, n, out); return TGC_OK;
        case NORM_SENTENCE: sentence(s, text, n, out); return TGC_OK;
        case NORM_STRIP: strip(s, text, n, out); return TGC_OK;
        case NORM_PREPEND: /* nothing goes before nothing */
                if (n)
                        buf_put(out, s->with, s->n_with);
                buf_put(out, text, n);
                return TGC_OK;
        default: return pattern_replace(&s->pattern, text, n, s->with, s->n_with, out, e);
        }
}

/* How many characters one becomes. */
static int decomposed(int form, uint32_t cp)
{
        utf8proc_int32_t to[32];
        utf8proc_ssize_t n;
        int class = 0;

        if (cp_is_inert(cp) || !(form & UTF8PROC_DECOMPOSE))
                return 1;
        n = utf8proc_decompose_char((utf8proc_int32_t)cp, to, 32, (utf8proc_option_t)form, &class);
        return n < 1 ? 1 : n > 32 ? 32 : (int)n;
}

/* Of the first `lead` characters of a text, how many are there after a step; a decomposition makes
 * more of them. */
static int lead_after(const Norm *s, const char *text, size_t n, int lead, Err *e, int *rc)
{
        char room[16];
        Buf b = { .p = room, .cap = sizeof room };
        int after = 0;
        size_t from, to, len;
        uint32_t cp;
        Scan scan;

        if (s->op == NORM_REPLACE) { /* what is put there stands for the last one it replaces */
                if ((*rc = scan_open(&scan, &s->pattern, e)) != TGC_OK)
                        return lead;
                scan_text(&scan, text, n);
                int more = scan_next(&scan, &from, &to, e);
                scan_close(&scan);
                if (more < 0)
                        *rc = e ? e->code : TGC_FAIL;
                if (more <= 0 || from)
                        return lead;
                for (size_t i = 0; i < to; i++)
                        lead -= ((unsigned char)text[i] & 0xc0) != 0x80;
                return lead < 0 ? 0 : lead + (s->n_with > 0);
        }
        for (size_t i = 0; lead && i < n && (len = utf8_get(text + i, n - i, &cp)); i += len) {
                lead--;
                switch (s->op) {
                case NORM_NO_MARKS:
                case NORM_NO_NONSPACING:
                case NORM_CLEAN:
                case NORM_NMT:
                        b.n = 0;
                        put_changed(s->op, cp, &b);
                        after += b.n > 0;
                        break;
                case NORM_STRIP: after += after || !s->left || !cp_is_space(cp); break;
                case NORM_UNICODE: after += decomposed(s->form, cp); break;
                default: after++;
                }
        }
        return s->op == NORM_UNICODE && !(s->form & UTF8PROC_DECOMPOSE) && after ? 1 : after;
}

int normalize(const Norm *step, int n_step, const char *text, size_t n, Buf *out, bool *at_start,
              Err *e)
{
        Buf other = { 0 };
        int rc = TGC_OK, lead = 1; /* characters that stand for the text's first one */

        out->n = 0;
        buf_put(out, text, n);
        for (int i = 0; i < n_step && rc == TGC_OK; i++) {
                Buf swap = other;
                other = *out;
                *out = swap;
                out->n = 0;
                if (at_start && lead)
                        lead = lead_after(&step[i], other.p ? other.p : "", other.n, lead, e, &rc);
                if (rc == TGC_OK)
                        rc = apply(&step[i], other.p ? other.p : "", other.n, out, e);
                if (other.bad)
                        out->bad = true;
        }
        buf_free(&other);
        if (at_start)
                *at_start &= lead > 0;
        return rc != TGC_OK ? rc : out->bad ? tok_no_memory(e) : TGC_OK;
}

void norm_free(Norm *s)
{
        free(s->with);
        pattern_free(&s->pattern);
        *s = (Norm) { 0 };
}
