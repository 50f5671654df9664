/* pack.c: reads and writes named files inside one section, and the units of a source section. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan.h"

static const char FILE_MARK[] = "//@ file ", UNIT_MARK[] = "//@ unit ";

/* A name becomes a path in a temporary folder: no way out of it. */
static int name_ok(const char *s, size_t n)
{
        if (n == 0 || n >= sizeof((PackFile *)0)->name || *s == '.')
                return 0;
        for (size_t i = 0; i < n; i++)
                if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
                      (s[i] >= '0' && s[i] <= '9') || s[i] == '.' || s[i] == '_' || s[i] == '-' ||
                      s[i] == '+'))
                        return 0;
        return 1;
}

/* Drivers and loaders take images where they lie: aligned. */
enum { ALIGN = 64 };

static size_t align_up(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* Room for n files and `bytes` of text including their zeros. */
static int pack_alloc(Pack *k, size_t n, size_t bytes, const char *what, Err *e)
{
        k->file = calloc(n + 1, sizeof *k->file);
        k->text = aligned_alloc(ALIGN, align_up(bytes + 1) + (n + 1) * ALIGN);
        if (k->file && k->text)
                return TGC_OK;
        pack_free(k);
        return err_set(e, TGC_NO_MEMORY, "%s: no memory for its files", what);
}

static int pack_put(Pack *k, size_t *used, const char *name, size_t name_len, const char *data,
                    size_t size, const char *what, Err *e)
{
        PackFile *f = &k->file[k->n];
        if (!name_ok(name, name_len))
                return err_set(e, TGC_BAD_FILE, "%s: bad file name '%.*s'", what,
                               (int)(name_len < 60 ? name_len : 60), name);
        memcpy(f->name, name, name_len);
        for (int i = 0; i < k->n; i++)
                if (!strcmp(k->file[i].name, f->name))
                        return err_set(e, TGC_BAD_FILE, "%s: %s occurs twice", what, f->name);
        *used = align_up(*used);
        f->data = k->text + *used;
        f->size = size;
        if (size)
                memcpy(k->text + *used, data, size);
        k->text[*used + size] = 0;
        *used += size + 1;
        k->n++;
        return TGC_OK;
}

static size_t count_lines_starting(const char *p, const char *end, const char *mark)
{
        size_t n = 0, len = strlen(mark);
        while (p && p < end) {
                n += (size_t)(end - p) >= len && !memcmp(p, mark, len);
                p = memchr(p, '\n', (size_t)(end - p));
                p = p ? p + 1 : 0;
        }
        return n;
}

int pack_read(Pack *k, const void *data, size_t size, const char *what, Err *e)
{
        enum { LEN = sizeof FILE_MARK - 1 };
        const char *p = data, *end = p + size;
        size_t n = count_lines_starting(p, end, FILE_MARK), used = 0;
        int code;

        *k = (Pack) { 0 };
        if ((code = pack_alloc(k, n, size, what,
                               e))) /* each file's mark line is longer than its zero */
                return code;
        while (p < end) {
                const char *eol = memchr(p, '\n', (size_t)(end - p));
                const char *name = p + LEN, *space;
                size_t bytes = 0;
                if (!eol || eol - p < LEN || memcmp(p, FILE_MARK, LEN) ||
                    !(space = memchr(name, ' ', (size_t)(eol - name))) || space + 1 == eol)
                        goto malformed;
                for (const char *c = space + 1; c < eol; c++) {
                        if (*c < '0' || *c > '9' || bytes > size)
                                goto malformed;
                        bytes = bytes * 10 + (size_t)(*c - '0');
                }
                p = eol + 1;
                if (bytes >= (size_t)(end - p) || p[bytes] != '\n')
                        goto malformed;
                if ((code = pack_put(k, &used, name, (size_t)(space - name), p, bytes, what, e)))
                        goto fail;
                p += bytes + 1;
        }
        return TGC_OK;
malformed:
        code = err_set(e, TGC_BAD_FILE, "%s: malformed at byte %zu", what,
                       (size_t)(p - (const char *)data));
fail:
        pack_free(k);
        return code;
}

/* Behind a unit's name perhaps ` compile N`; *stop: the end of the line, then of the name. */
static int unit_ms(const char *name, const char **stop)
{
        static const char mark[] = " compile ";
        const char *space = memchr(name, ' ', (size_t)(*stop - name));
        int ms = 0;
        if (!space || (size_t)(*stop - space) < sizeof mark || *stop - space > 16 ||
            memcmp(space, mark, sizeof mark - 1))
                return 0;
        for (const char *c = space + sizeof mark - 1; c < *stop; c++) {
                if (*c < '0' || *c > '9')
                        return 0;
                ms = ms * 10 + (*c - '0');
        }
        *stop = space;
        return ms;
}

int pack_units(Pack *k, const void *data, size_t size, const char *what, Err *e)
{
        enum { LEN = sizeof UNIT_MARK - 1 };
        const char *p = data, *end = p + size;
        size_t n = count_lines_starting(p, end, UNIT_MARK), used = 0;
        int code;

        *k = (Pack) { 0 };
        if (n == 0 || memchr(data, 0, size))
                return err_set(e, TGC_BAD_FILE, "%s: %s", what,
                               n ? "a zero byte in the text" : "no `//@ unit` line");
        if ((code = pack_alloc(k, n, size, what, e)))
                return code;
        while (p && p < end && ((size_t)(end - p) < LEN || memcmp(p, UNIT_MARK, LEN))) {
                /* what stands before the first unit is comment */
                p = memchr(p, '\n', (size_t)(end - p));
                p = p ? p + 1 : 0;
        }
        while (p && p < end) {
                const char *eol = memchr(p, '\n', (size_t)(end - p)), *name = p + LEN;
                const char *text = eol ? eol + 1 : end, *next = text;
                while (next < end && ((size_t)(end - next) < LEN || memcmp(next, UNIT_MARK, LEN))) {
                        next = memchr(next, '\n', (size_t)(end - next));
                        next = next ? next + 1 : end;
                }
                const char *stop = eol ? eol : end;
                int ms = unit_ms(name, &stop);
                code = pack_put(k, &used, name, (size_t)(stop - name), text, (size_t)(next - text),
                                what, e);
                if (!code)
                        k->file[k->n - 1].compile_ms = ms;
                if (code) {
                        pack_free(k);
                        return code;
                }
                p = next;
        }
        return TGC_OK;
}

void pack_join(Pack *k, int together)
{
        int n = 0;
        for (int i = 0; i < k->n; i++) {
                PackFile *g = &k->file[n - 1], *f = &k->file[i];
                if (i % together == 0) {
                        k->file[n++] = *f;
                        continue;
                }
                memset(k->text + (g->data - k->text) + g->size, '\n',
                       (size_t)(f->data - g->data) - g->size);
                g->size = (size_t)(f->data - g->data) + f->size;
        }
        k->n = n;
}

int pack_write(const PackFile *file, int n, void **blob, size_t *size, Err *e)
{
        size_t need = 1;
        *blob = 0;
        for (int i = 0; i < n; i++) {
                if (!name_ok(file[i].name, strnlen(file[i].name, sizeof file[i].name)))
                        return err_set(e, TGC_FAIL, "bad file name '%.60s'", file[i].name);
                need += file[i].size + strlen(file[i].name) + 48;
        }
        char *out = malloc(need), *p = out;
        if (!out)
                return err_set(e, TGC_NO_MEMORY, "no memory to pack %d files", n);
        for (int i = 0; i < n; i++) {
                p += sprintf(p, "%s%s %zu\n", FILE_MARK, file[i].name, file[i].size);
                memcpy(p, file[i].data, file[i].size);
                p += file[i].size;
                *p++ = '\n';
        }
        *blob = out;
        *size = (size_t)(p - out);
        return TGC_OK;
}

void pack_free(Pack *k)
{
        free(k->file);
        free(k->text);
        *k = (Pack) { 0 };
}
