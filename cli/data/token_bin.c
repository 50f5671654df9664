/* token_bin.c: reads files of ids, and streams that lie in several files.
 *
 * nanoGPT's .bin is uint16 without a header.  llm.c's begins with 256 int32: a magic number, a
 * version, the number of ids.  Its ids are uint16 (20240520, GPT-2's tokens) or uint32 (20240801,
 * Llama 3's).  All are little-endian.  Files are mapped, not copied.  Wider numbers without a
 * header look like uint16 of which every second one is 0; they are refused. */
#include <stdlib.h>
#include <string.h>
#include "data.h"

enum { HEADER = 1024, MAGIC_GPT2 = 20240520, MAGIC_LLAMA3 = 20240801 };

bool is_bin(const char *path)
{
        size_t n = strlen(path);
        return n > 4 && !strcmp(path + n - 4, ".bin");
}

static uint32_t u32(const unsigned char *b)
{
        return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static int with_header(TokenPart *p, const unsigned char *b, size_t size, const char *path, Err *e)
{
        const uint32_t magic = u32(b), version = u32(b + 4), n = u32(b + 8);
        if (version != (magic == MAGIC_GPT2 ? 1 : 7))
                return err_set(e, TGC_BAD_FILE, "%s: llm.c's header has version %u, %d is known",
                               path, version, magic == MAGIC_GPT2 ? 1 : 7);
        p->width = magic == MAGIC_LLAMA3 || size - HEADER == (size_t)n * 4 ? 4 : 2;
        if (size - HEADER != (size_t)n * (size_t)p->width)
                return err_set(e, TGC_BAD_FILE,
                               "%s: llm.c's header says %u tokens, and %zu bytes follow", path, n,
                               size - HEADER);
        p->data = b + HEADER;
        p->n = n;
        return TGC_OK;
}

/* Is every second uint16 of the beginning 0, and some other one not? */
static bool looks_wider(const unsigned char *b, size_t size)
{
        enum { LEAST = 64, MOST = 1 << 14 }; /* bytes: fewer say nothing, more are not needed */
        bool other = false;
        size = size < MOST ? size : MOST;
        for (size_t i = 0; i + 3 < size; i += 4) {
                if (b[i + 2] || b[i + 3])
                        return false;
                other |= b[i] || b[i + 1];
        }
        return other && size >= LEAST;
}

int token_bin_open(TokenPart *p, const char *path, Err *e)
{
        *p = (TokenPart) { 0 };
        int code = file_map(&p->map, path, e);
        if (code)
                return code;
        const unsigned char *b = p->map.data;
        const size_t size = p->map.size;
        if (size >= 4 && (u32(b) == MAGIC_GPT2 || u32(b) == MAGIC_LLAMA3)) {
                code = size < HEADER ? err_set(e, TGC_BAD_FILE,
                                               "%s: llm.c's header has %d bytes, and the file %zu",
                                               path, HEADER, size)
                                     : with_header(p, b, size, path, e);
        } else if (looks_wider(b, size)) {
                code = err_set(e, TGC_BAD_FILE,
                               "%s: every second uint16 is 0, as in a file of uint32 or int64; "
                               "without llm.c's header ids are uint16",
                               path);
        } else if (size % 2) {
                code = err_set(
                        e, TGC_BAD_FILE,
                        "%s: %zu bytes are neither a list of uint16 nor a file with llm.c's header",
                        path, size);
        } else {
                p->data = b;
                p->width = 2;
                p->n = (int64_t)(size / 2);
        }
        if (code)
                token_part_close(p);
        return code;
}

void token_part_close(TokenPart *p)
{
        file_unmap(&p->map);
        free(p->mem);
        *p = (TokenPart) { 0 };
}

int tokens_add(Tokens *t, TokenPart *p, Err *e)
{
        TokenPart *list = realloc(t->part, ((size_t)t->n_parts + 1) * sizeof *list);
        if (!list) {
                token_part_close(p);
                return err_set(e, TGC_NO_MEMORY, "no memory for a list of files");
        }
        t->part = list;
        t->n += p->n;
        list[t->n_parts++] = *p;
        *p = (TokenPart) { 0 };
        return TGC_OK;
}

void tokens_copy(const Tokens *t, int64_t at, int64_t n, int *to)
{
        for (int i = 0; i < t->n_parts && n; at -= t->part[i++].n) {
                const TokenPart *p = &t->part[i];
                if (at >= p->n)
                        continue;
                const int64_t k = n < p->n - at ? n : p->n - at;
                const unsigned char *b = (const unsigned char *)p->data + at * p->width;
                for (int64_t j = 0; j < k; j++, b += p->width)
                        *to++ = p->width == 2 ? b[0] | b[1] << 8 : (int)u32(b);
                n -= k;
                at = p->n; /* the next part's first */
        }
}

void tokens_free(Tokens *t)
{
        for (int i = 0; i < t->n_parts; i++)
                token_part_close(&t->part[i]);
        free(t->part);
        *t = (Tokens) { 0 };
}
