/* ids.c: reads token ids written as text, and standard input. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/file.h"
#include "../run/prompts.h"

enum { MAX_INPUT = 1 << 30 };

static int grow(int **ids, int n, int *cap, const char *name, Err *e)
{
        if (n < *cap)
                return TGC_OK;
        *cap = *cap ? *cap * 2 : 256;
        int *p = realloc(*ids, (size_t)*cap * sizeof *p);
        if (!p)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for %d ids", name, *cap);
        *ids = p;
        return TGC_OK;
}

/* NAME:LINE:COLUMN of a byte. */
static const char *place_of(const char *text, size_t at, const char *name, char out[400])
{
        size_t line = 1, col = 1;
        for (size_t i = 0; i < at; i++) {
                line += text[i] == '\n';
                col = text[i] == '\n' ? 1 : col + 1;
        }
        snprintf(out, 400, "%.340s:%zu:%zu", name, line, col);
        return out;
}

int ids_parse(const char *text, size_t n, int vocab, const char *name, int **ids, int *n_ids,
              Err *e)
{
        char place[400];
        int cap = 0, code = TGC_OK;
        *ids = NULL;
        *n_ids = 0;
        for (size_t i = text_mark(text, n); i < n && !code;) {
                bool minus = text[i] == '-' && i + 1 < n && isdigit((unsigned char)text[i + 1]);
                if (!minus && !isdigit((unsigned char)text[i])) {
                        if (isalpha((unsigned char)text[i]) || text[i] == '.')
                                code = err_set(e, TGC_BAD_FILE,
                                               "%s: '%c' is not allowed in a list of ids",
                                               place_of(text, i, name, place), text[i]);
                        i++;
                        continue;
                }
                long long v = 0;
                const size_t at = i;
                i += minus;
                while (i < n && isdigit((unsigned char)text[i])) {
                        v = v < 1 << 30 ? v * 10 + (text[i] - '0') : v;
                        i++;
                }
                if (minus || v >= vocab)
                        code = err_set(e, TGC_BAD_FILE,
                                       "%s: id %s%lld is outside the vocabulary, 0 to %d",
                                       place_of(text, at, name, place), minus ? "-" : "", v,
                                       vocab - 1);
                else if (!(code = grow(ids, *n_ids, &cap, name, e)))
                        (*ids)[(*n_ids)++] = (int)v;
        }
        if (!code && !*n_ids)
                code = err_set(e, TGC_BAD_FILE, "%s: no ids in it", name);
        if (code) {
                free(*ids);
                *ids = NULL;
                *n_ids = 0;
        }
        return code;
}

int ids_of_list(Json ids, const char *key, int vocab, int **out, int *n, Err *e)
{
        char place[JSON_MOST_PLACE];
        int k = 0, *list = malloc(json_count(ids) * sizeof *list + 1);
        if (!list)
                return err_set(e, TGC_NO_MEMORY, "no memory for %zu ids", json_count(ids));
        for (JsonEach x = json_each(ids); json_next(&x); k++) {
                const double v = json_number(x.value);
                if (!(v >= 0 && v < vocab && v == (int)v)) {
                        free(list);
                        return err_set(e, TGC_BAD_FILE,
                                       "%s: %s[%d] is no token of a vocabulary of %d",
                                       json_place(x.value, place), key, k, vocab);
                }
                list[k] = (int)v;
        }
        *out = list;
        *n = k;
        return TGC_OK;
}

int read_stdin(char **text, size_t *n, Err *e)
{
        size_t cap = 1 << 16, got;
        *n = 0;
        *text = malloc(cap);
        while (*text && (got = fread(*text + *n, 1, cap - *n - 1, stdin)) > 0) {
                *n += got;
                if (*n > MAX_INPUT) {
                        free(*text);
                        *text = NULL;
                        return err_set(e, TGC_BAD_FILE, "standard input: more than %d bytes",
                                       MAX_INPUT);
                }
                if (cap - *n < 2) {
                        char *p = realloc(*text, cap *= 2);
                        if (!p)
                                free(*text);
                        *text = p;
                }
        }
        if (!*text)
                return err_set(e, TGC_NO_MEMORY, "standard input: no memory");
        (*text)[*n] = 0;
        if (ferror(stdin)) {
                free(*text);
                *text = NULL;
                return err_set(e, TGC_IO, "standard input: %s", strerror(errno));
        }
        const int code = text_is_utf8(*text, *n, "standard input", e);
        if (code) {
                free(*text);
                *text = NULL;
        }
        return code;
}

size_t drop_mark(char *text, size_t n, const char *from, const Progress *talk)
{
        const size_t mark = text_mark(text, n);
        if (!mark)
                return n;
        memmove(text, text + mark, n - mark + 1); /* with the NUL behind it */
        if (talk)
                say(talk, "%s: begins with a byte order mark (U+FEFF), which is left out\n", from);
        return n - mark;
}
