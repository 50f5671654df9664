/* tok_util.c: growing arrays, UTF-8, and byte-level characters for the tokenizers. */
#include "tok.h"
#include <utf8proc.h>

/* Room for n more elements of the given size; false, and the array as it was, when there is
 * none. */
static bool grow(void **p, size_t *cap, size_t n, size_t more, size_t size)
{
        size_t want = *cap ? *cap : 64;
        void *q;

        if (more <= *cap - n)
                return true;
        if (more > SIZE_MAX / 4 / size - n)
                return false;
        while (want < n + more)
                want *= 2;
        if (!(q = realloc(*p, want * size)))
                return false;
        *p = q;
        *cap = want;
        return true;
}

void buf_put(Buf *b, const void *p, size_t n)
{
        if (b->bad || !n)
                return;
        if (!grow((void **)&b->p, &b->cap, b->n, n, 1)) {
                b->bad = true;
                return;
        }
        memcpy(b->p + b->n, p, n);
        b->n += n;
}

void buf_room(Buf *b, size_t n)
{
        char *p;

        if (b->bad || n <= b->cap - b->n)
                return;
        if (!(p = realloc(b->p, b->n + n))) {
                b->bad = true;
                return;
        }
        b->p = p;
        b->cap = b->n + n;
}

void buf_free(Buf *b)
{
        free(b->p);
        *b = (Buf) { 0 };
}

void ints_put(Ints *v, int x)
{
        if (v->bad)
                return;
        if (!grow((void **)&v->p, &v->cap, v->n, 1, sizeof *v->p)) {
                v->bad = true;
                return;
        }
        v->p[v->n++] = x;
}

void ints_free(Ints *v)
{
        free(v->p);
        *v = (Ints) { 0 };
}

int tok_no_memory(Err *e) { return err_set(e, TGC_NO_MEMORY, "tokenizer: out of memory"); }

size_t utf8_get(const char *s, size_t n, uint32_t *cp)
{
        utf8proc_int32_t c;
        utf8proc_ssize_t len = utf8proc_iterate((const utf8proc_uint8_t *)s,
                                                n > 4 ? 4 : (utf8proc_ssize_t)n, &c);

        if (len <= 0)
                return 0;
        *cp = (uint32_t)c;
        return (size_t)len;
}

size_t utf8_put(char *s, uint32_t cp)
{
        return (size_t)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)s);
}

size_t utf8_valid(const char *s, size_t n)
{
        size_t i = 0, len;
        uint64_t eight;
        uint32_t cp;

        while (i < n) {
                if (n - i >= 8 && (memcpy(&eight, s + i, 8), !(eight & 0x8080808080808080u))) {
                        i += 8;
                        continue;
                }
                if ((unsigned char)s[i] < 0x80) {
                        i++;
                        continue;
                }
                if (!(len = utf8_get(s + i, n - i, &cp)))
                        break;
                i += len;
        }
        return i;
}

/* One U+FFFD for as many bytes as begin a character and do not end it, as Unicode
 * recommends and Rust does; a byte that begins none is one by itself. */
void utf8_lossy(const char *s, size_t n, Buf *out)
{
        for (size_t i = 0, k; i < n; i += k) {
                size_t valid = utf8_valid(s + i, n - i);
                unsigned char c;

                buf_put(out, s + i, valid);
                if ((i += valid) == n)
                        return;
                c = (unsigned char)s[i];
                size_t most = c >= 0xf0 && c < 0xf5 ? 3 : c >= 0xe0 && c < 0xf0 ? 2 : 1;
                for (k = 1; k < most && i + k < n; k++) {
                        unsigned char lo = 0x80, hi = 0xbf, d = (unsigned char)s[i + k];
                        if (k == 1) {
                                lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : lo;
                                hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : hi;
                        }
                        if (d < lo || d > hi)
                                break;
                }
                buf_put(out, "\xef\xbf\xbd", 3);
        }
}

/* Printable Latin-1 stands for itself; the 33 + 34 + 1 other bytes follow from U+0100 in order. */
uint32_t byte_level_cp(unsigned char b)
{
        if (b < 33)
                return 256u + b;
        if (b < 127)
                return b;
        if (b < 161)
                return 256u + 33 + (b - 127u);
        return b == 173 ? 256 + 33 + 34 : b;
}

int byte_level_byte(uint32_t cp)
{
        if (cp < 256)
                return byte_level_cp((unsigned char)cp) == cp ? (int)cp : -1;
        if (cp < 256 + 33)
                return (int)cp - 256;
        if (cp < 256 + 33 + 34)
                return (int)cp - 256 - 33 + 127;
        return cp == 256 + 33 + 34 ? 173 : -1;
}

bool base64_put(const char *s, size_t n, Buf *out)
{
        static const char digits[] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        unsigned bits = 0, have = 0;

        if (!n || n % 4)
                return false;
        for (size_t i = 0; i < n; i++) {
                const char *d = s[i] ? strchr(digits, s[i]) : NULL;

                if (s[i] == '=' && i + 2 >= n && (i + 1 == n || s[i + 1] == '='))
                        break;
                if (!d)
                        return false;
                bits = (bits << 6 | (unsigned)(d - digits)) & 0xffff;
                if ((have += 6) >= 8) {
                        have -= 8;
                        buf_put(out, (char[]) { (char)(bits >> have) }, 1);
                }
        }
        return true;
}
