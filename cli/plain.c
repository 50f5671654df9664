/* plain.c: prints text from files so that it cannot drive a terminal.
 *
 * Names in a plan, a checkpoint or a path may hold escape sequences, control characters of Unicode,
 * or marks that turn a line's direction.  put_plain writes these, and bytes that are not UTF-8,
 * visibly: \x1b, \u009b. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../runtime/util/json.h"
#include "cli.h"

/* The character at s, of at most n bytes; its length, 0: no UTF-8. */
static size_t decode(const unsigned char *s, size_t n, unsigned *c)
{
        size_t k = *s < 0x80 ? 1 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : 4;
        if (k > n || !json_utf8_ok((const char *)s, k))
                return 0;
        *c = k == 1 ? *s : *s & (0xffu >> (k + 1));
        for (size_t i = 1; i < k; i++)
                *c = *c << 6 | (s[i] & 0x3f);
        return k;
}

static bool is_control(unsigned c)
{
        return (c < ' ' && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0);
}

static bool obeyed(unsigned c)
{
        return is_control(c) || c == 0x61c || c == 0x200e || c == 0x200f ||
               (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* k 0: a byte that is no UTF-8 */
typedef void Odd(FILE *f, const unsigned char *s, size_t k, unsigned c);

/* All of the text, what is odd by way of `odd`. */
static void put(FILE *f, const char *text, size_t n, bool (*is_odd)(unsigned c), Odd *odd)
{
        const unsigned char *s = (const unsigned char *)text;
        size_t from = 0;
        for (size_t i = 0, k; i < n; i += k ? k : 1) {
                unsigned c = 0;
                k = decode(s + i, n - i, &c);
                if (k && !is_odd(c))
                        continue;
                fwrite(s + from, 1, i - from, f);
                odd(f, s + i, k, c);
                from = i + (k ? k : 1);
        }
        fwrite(s + from, 1, n - from, f);
}

static void escape(FILE *f, const unsigned char *s, size_t k, unsigned c)
{
        if (k > 1)
                fprintf(f, "\\u%04x", c);
        else
                fprintf(f, "\\x%02x", *s);
}

static void leave_out(FILE *f, const unsigned char *s, size_t k, unsigned c)
{
        (void)s, (void)c;
        if (!k)
                fputs("\xef\xbf\xbd", f);
}

void put_plain(FILE *f, const char *text, size_t n) { put(f, text, n, obeyed, escape); }

/* The arguments that hold a line's end: what a message repeats of them stays in its line. */
static char **lines;
static int n_lines;

void plain_arguments(int argc, char **argv)
{
        lines = argv;
        n_lines = argc;
}

static size_t same_argument(const char *text)
{
        for (int i = 0; i < n_lines; i++) {
                const char *equals = strchr(lines[i], '=');
                if (!strchr(lines[i], '\n'))
                        continue;
                if (!strncmp(text, lines[i], strlen(lines[i])))
                        return strlen(lines[i]);
                if (*lines[i] == '-' && equals && equals[1] &&
                    !strncmp(text, equals + 1, strlen(equals + 1)))
                        return strlen(equals + 1);
        }
        return 0;
}

void put_message(FILE *f, const char *text)
{
        while (*text) {
                size_t n = 0, arg = 0, end;
                while (text[n] && !(arg = same_argument(text + n)))
                        n++;
                put_plain(f, text, n);
                for (text += n; arg; text += end, arg -= end) {
                        end = strcspn(text, "\n");
                        end = end < arg ? end : arg;
                        put_plain(f, text, end);
                        if (end < arg) {
                                fputs("\\x0a", f);
                                end++;
                        }
                }
        }
}

void put_generated(const char *text, size_t n)
{
        if (isatty(1))
                put(stdout, text, n, is_control, leave_out);
        else
                fwrite(text, 1, n, stdout);
}

void put_json(FILE *f, const char *text)
{
        for (const unsigned char *s = (const unsigned char *)text; *s; s++)
                if (*s == 127 || (*s == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0))
                        fprintf(f, "\\u%04x", *s == 127 ? 127u : *++s);
                else
                        fputc(*s, f);
}

/* Without memory the text is cut; false then. */
bool vprint_plain(FILE *f, const char *fmt, va_list ap)
{
        char some[1024], *text = NULL;
        va_list aq;
        va_copy(aq, ap);
        int n = vsnprintf(some, sizeof some, fmt, aq);
        va_end(aq);
        if (n >= (int)sizeof some && vasprintf(&text, fmt, ap) < 0)
                text = NULL;
        put_plain(f, text ? text : some, strlen(text ? text : some));
        const bool whole = text || n < (int)sizeof some;
        free(text);
        return whole;
}

bool print_lost;

void print(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        print_lost |= !vprint_plain(stdout, fmt, ap);
        va_end(ap);
}
