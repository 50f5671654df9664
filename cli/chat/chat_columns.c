/* chat_columns.c: prints two answers side by side. */
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>
#include "chat.h"

int terminal_width(void)
{
        struct winsize w;
        return isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) ? w.ws_col : 0;
}

/* A character's bytes, and the columns that it takes; UTF-8. */
static size_t character(const char *s, size_t n, int *columns)
{
        utf8proc_int32_t c;
        utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &c);
        *columns = k > 0 && c >= ' ' ? utf8proc_charwidth(c) : 1;
        return k > 0 ? (size_t)k : 1;
}

/* The next row of a text: its bytes, of which `skip` more are not shown. */
static size_t row(const char *s, size_t n, int width, int *used, size_t *skip)
{
        size_t i = 0, space = 0, k;
        int w, at_space = 0;
        *used = 0;
        *skip = 0;
        while (i < n && s[i] != '\n') {
                k = character(s + i, n - i, &w);
                if (*used + w > width) {
                        if (!space)
                                return i;
                        *used = at_space;
                        *skip = 1;
                        return space;
                }
                if (s[i] == ' ') {
                        space = i;
                        at_space = *used;
                }
                *used += w;
                i += k;
        }
        *skip = i < n;
        return i;
}

void put_columns(const char *const title[2], const char *const text[2], int width)
{
        const int each = (width - 3) / 2;
        const char *at[2] = { title[0], title[1] };
        for (int pass = 0; pass < 2; pass++) {
                size_t left[2] = { strlen(at[0]), strlen(at[1]) };
                while (left[0] || left[1]) {
                        for (int c = 0; c < 2; c++) {
                                int used;
                                size_t skip, n = row(at[c], left[c], each, &used, &skip);
                                put_generated(at[c], n);
                                printf("%*s", c ? 0 : each - used, "");
                                fputs(c ? "\n" : " | ", stdout);
                                at[c] += n + skip;
                                left[c] -= n + skip;
                        }
                }
                at[0] = text[0];
                at[1] = text[1];
                if (!pass)
                        printf("%.*s\n", 0, "");
        }
}
