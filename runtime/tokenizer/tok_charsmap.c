/* tok_charsmap.c: sentencepiece's map of characters (normalisation rules such as nmt_nfkc).
 *
 * A double-array trie of Darts: unit u of node i has
 *   bits 0..7   the byte that leads here, and bit 31, which no byte has
 *   bit 8       a value is here; it is in the low 31 bits of the unit at this node's offset
 *   bit 9       the offset counts in 256s
 *   bits 10..   the offset: children of i are at i ^ offset ^ byte
 * A value is a place among the replacements.  The file is not trusted: a place outside ends the
 * search. */
#include <utf8proc.h>
#include "tok.h"

static uint32_t unit_at(const Charsmap *m, size_t i)
{
        uint32_t u = 0;

        if (i < m->n_unit)
                memcpy(&u, m->unit + 4 * i, 4);
        return u;
}

static size_t offset_of(uint32_t u) { return (size_t)(u >> 10) << ((u & 1u << 9) >> 6); }

int charsmap_open(Charsmap *m, const char *p, size_t n, Err *e)
{
        uint32_t size = 0;

        if (n >= 4)
                memcpy(&size, p, 4);
        if (n < 4 || size % 4 || size > n - 4)
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer: the character map says its trie has %u bytes, of %zu",
                               (unsigned)size, n < 4 ? 0 : n - 4);
        *m = (Charsmap) { p + 4, p + 4 + size, size / 4, n - 4 - size };
        if (utf8_valid(m->text, m->n_text) != m->n_text)
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer: the replacements of the character map are not UTF-8");
        return TGC_OK;
}

size_t charsmap_find(const Charsmap *m, const char *s, size_t n, bool longest, const char **with,
                     size_t *n_with)
{
        size_t node = offset_of(unit_at(m, 0)), found = 0, value = 0;

        for (size_t i = 0; i < n && s[i] && (longest || !found); i++) {
                unsigned char byte = (unsigned char)s[i];
                uint32_t u = unit_at(m, node ^= byte);

                if ((u & (1u << 31 | 0xff)) != byte)
                        break;
                node ^= offset_of(u);
                if (u >> 8 & 1 && (unit_at(m, node) & 0x7fffffff) < m->n_text) {
                        found = i + 1;
                        value = unit_at(m, node) & 0x7fffffff;
                }
        }
        if (found) {
                const char *end = memchr(m->text + value, 0, m->n_text - value);
                *with = m->text + value;
                *n_with = end ? (size_t)(end - *with) : m->n_text - value;
        }
        return found;
}

/* ---- Hugging Face's way ------------------------------------------------------------- */

/* A mark that utf8proc may not know yet is like an old one. */
static uint32_t known_mark(uint32_t cp) { return cp_joins(cp) ? 0x301 : cp; }

/* The end of the grapheme at i. */
static size_t grapheme(const char *s, size_t n, size_t i)
{
        utf8proc_int32_t state = 0;
        uint32_t a, b;
        size_t len = utf8_get(s + i, n - i, &a);

        if (!len)
                return i + 1;
        for (i += len; i < n; i += len, a = b)
                if (!(len = utf8_get(s + i, n - i, &b)) ||
                    utf8proc_grapheme_break_stateful((utf8proc_int32_t)known_mark(a),
                                                     (utf8proc_int32_t)known_mark(b), &state))
                        break;
        return i;
}

static bool replaced(const Charsmap *m, const char *s, size_t n, Buf *out)
{
        const char *with;
        size_t n_with;

        if (!charsmap_find(m, s, n, false, &with, &n_with))
                return false;
        buf_put(out, with, n_with);
        return true;
}

void charsmap_graphemes(const Charsmap *m, const char *s, size_t n, Buf *out)
{
        for (size_t i = 0, end; i < n; i = end) {
                end = grapheme(s, n, i);
                if (end - i < 6 && replaced(m, s + i, end - i, out))
                        continue;
                for (size_t len; i < end; i += len) {
                        uint32_t cp;
                        if (!(len = utf8_get(s + i, end - i, &cp)))
                                len = 1;
                        if (!replaced(m, s + i, len, out))
                                buf_put(out, s + i, len);
                }
        }
}
