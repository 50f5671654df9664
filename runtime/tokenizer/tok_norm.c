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

/* Put each code point, as `op` changes it. */
static void each_cp(int op, const char *text, size_t n, Buf *out)
{
        char s[4];
        uint32_t cp;

        for (size_t i = 0, len; i < n; i += len) {
                if (!(len = utf8_get(text + i, n - i, &cp))) {
                        buf_put(out, text + i, len = 1);
                } else if (op == NORM_LOWER) {
                        if (cp == 0x130) /* the one letter whose small form is two code points */
                                buf_put(out, "i\xcc\x87", 3);
                        else
                                buf_put(out, s, utf8_put(s, cp_lower(cp)));
                } else if (!cp_is_accent(cp)) {
                        buf_put(out, text + i, len);
                }
        }
}

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
        case NORM_NO_MARKS: each_cp(s->op, text, n, out); return TGC_OK;
        case NORM_STRIP: strip(s, text, n, out); return TGC_OK;
        case NORM_PREPEND: /* nothing goes before nothing */
                if (n)
                        buf_put(out, s->with, s->n_with);
                buf_put(out, text, n);
                return TGC_OK;
        default: return pattern_replace(&s->pattern, text, n, s->with, s->n_with, out, e);
        }
}

int normalize(const Norm *step, int n_step, const char *text, size_t n, Buf *out, Err *e)
{
        Buf other = { 0 };
        int rc = TGC_OK;

        out->n = 0;
        buf_put(out, text, n);
        for (int i = 0; i < n_step && rc == TGC_OK; i++) {
                Buf swap = other;
                other = *out;
                *out = swap;
                out->n = 0;
                rc = apply(&step[i], other.p ? other.p : "", other.n, out, e);
                if (other.bad)
                        out->bad = true;
        }
        buf_free(&other);
        return rc != TGC_OK ? rc : out->bad ? tok_no_memory(e) : TGC_OK;
}

void norm_free(Norm *s)
{
        free(s->with);
        pattern_free(&s->pattern);
        *s = (Norm) { 0 };
}
