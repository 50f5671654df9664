/* plan.c: the plan file as a container.
 *
 *      0   magic "tgcplan\n"
 *      8   u32 format version, u32 byte order mark, u32 number of sections, u32 0
 *      24  u64 XXH3-64 of the section table, u64 size of the file, 24 bytes 0
 *      64  the table: name[32], u64 offset, u64 size, u64 hash
 *
 * Sections follow in table order, each at the next multiple of 4096, the gaps
 * zero, the file ending with the last byte of the last one: nothing in the file
 * escapes the checks.  A section's hash is XXH3-64 over the XXH3-64s of its
 * 16 MiB pieces, so that weights are hashed by all cores. */
#include "plan.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>
#include "../util/file.h"
#include "../util/parallel.h"

#define MAGIC "tgcplan\n"
enum { VERSION = 1, BYTE_ORDER_MARK = 0x01020304, PIECE = 16 << 20 };

typedef struct Header {
        char magic[8];
        uint32_t version, order, n_sections, zero;
        uint64_t table_hash, file_size;
        char reserved[24];
} Header;

typedef struct Entry {
        char name[32];
        uint64_t offset, size, hash;
} Entry;

_Static_assert(sizeof(Header) == 64 && sizeof(Entry) == 56, "the file's layout has no padding");

/* ---- hashing ---- */

typedef struct Piece {
        const char *data;
        size_t size;
        uint64_t *hash;
} Piece;

static void hash_piece(void *ctx, int i)
{
        Piece *p = (Piece *)ctx + i;
        *p->hash = XXH3_64bits(p->data, p->size);
}

static size_t n_pieces(size_t size) { return size / PIECE + (size % PIECE != 0); }

/* Hash all sections at once; out has one word per section. */
static int hash_sections(const Section *s, int n, uint64_t *out, Err *e)
{
        size_t total = 0, k = 0, bytes = 0;
        for (int i = 0; i < n; i++) {
                total += n_pieces(s[i].size);
                bytes += s[i].size;
        }
        Piece *piece = malloc((total + 1) * sizeof *piece);
        uint64_t *hash = malloc((total + 1) * sizeof *hash);
        if (!piece || !hash || total > INT32_MAX) {
                free(piece);
                free(hash);
                return err_set(e, TGC_NO_MEMORY, "no memory to hash the plan's sections");
        }
        for (int i = 0; i < n; i++)
                for (size_t at = 0; at < s[i].size; at += PIECE, k++) {
                        size_t left = s[i].size - at;
                        piece[k] = (Piece) { (const char *)s[i].data + at,
                                             left < PIECE ? left : PIECE, hash + k };
                }
        parallel_for((int)total, bytes > PIECE ? 16 : 1, hash_piece, piece);
        k = 0;
        for (int i = 0; i < n; i++) {
                out[i] = XXH3_64bits(hash + k, n_pieces(s[i].size) * sizeof *hash);
                k += n_pieces(s[i].size);
        }
        free(piece);
        free(hash);
        return TGC_OK;
}

/* ---- reading ---- */

static bool all_zero(const char *p, size_t n)
{
        while (n--)
                if (*p++)
                        return false;
        return true;
}

static uint64_t align_up(uint64_t x) { return (x + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN; }

static bool name_ok(const char name[32])
{
        size_t n = strnlen(name, 32);
        if (n == 0 || n == 32 || !all_zero(name + n, 32 - n))
                return false;
        for (size_t i = 0; i < n; i++)
                if (name[i] <= ' ' || name[i] > '~')
                        return false;
        return true;
}

static int check_header(const Header *h, size_t size, const char *what, Err *e)
{
        if (memcmp(h->magic, MAGIC, 8))
                return err_set(e, TGC_BAD_FILE, "%s: not a plan file", what);
        if (h->order != BYTE_ORDER_MARK)
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: written on a machine of another byte order; compile it again here",
                        what);
        if (h->version != VERSION)
                return err_set(e, TGC_BAD_FILE,
                               "%s: plan format %u, this tgc reads %u; compile the model again",
                               what, (unsigned)h->version, (unsigned)VERSION);
        if (h->file_size != size)
                return err_set(
                        e, TGC_BAD_FILE,
                        "%s: %llu bytes long, its header says %llu; the file is cut or damaged",
                        what, (unsigned long long)size, (unsigned long long)h->file_size);
        if (h->zero || !all_zero(h->reserved, sizeof h->reserved))
                return err_set(e, TGC_BAD_FILE,
                               "%s: reserved header bytes are set; "
                               "the file is damaged or needs a newer program",
                               what);
        if (h->n_sections > PLAN_MAX_SECTIONS || h->n_sections > (size - sizeof *h) / sizeof(Entry))
                return err_set(e, TGC_BAD_FILE, "%s: %u sections do not fit in the file", what,
                               (unsigned)h->n_sections);
        return TGC_OK;
}

static int open_checked(Plan *p, const char *data, size_t size, const char *what, Err *e)
{
        Header h;
        int code;

        if (size < sizeof h)
                return err_set(e, TGC_BAD_FILE,
                               "%s: not a plan file: %zu bytes, the header alone has 64", what,
                               size);
        memcpy(&h, data, sizeof h);
        if ((code = check_header(&h, size, what, e)))
                return code;
        size_t table = h.n_sections * sizeof(Entry);
        if (XXH3_64bits(data + sizeof h, table) != h.table_hash)
                return err_set(e, TGC_BAD_FILE, "%s: the section table is damaged", what);

        p->section = calloc(h.n_sections + 1, sizeof *p->section);
        uint64_t *want = calloc(h.n_sections + 1, 2 * sizeof *want), *got = want + h.n_sections + 1;
        if (!p->section || !want) {
                free(want);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory for the section table", what);
        }
        uint64_t end = sizeof h + table;
        for (uint32_t i = 0; i < h.n_sections; i++) {
                Entry t;
                memcpy(&t, data + sizeof h + i * sizeof t, sizeof t);
                if (!name_ok(t.name)) {
                        code = err_set(e, TGC_BAD_FILE, "%s: section %u has a malformed name", what,
                                       (unsigned)i);
                        break;
                }
                if (plan_find(p, t.name)) {
                        code = err_set(e, TGC_BAD_FILE, "%s: two sections named %s", what, t.name);
                        break;
                }
                if (t.offset != align_up(end) || t.offset > size || t.size > size - t.offset) {
                        code = err_set(e, TGC_BAD_FILE, "%s: section %s lies outside the file",
                                       what, t.name);
                        break;
                }
                if (!all_zero(data + end, t.offset - end)) {
                        code = err_set(e, TGC_BAD_FILE, "%s: bytes before section %s are damaged",
                                       what, t.name);
                        break;
                }
                Section *s = &p->section[p->n_sections++];
                memcpy(s->name, t.name, sizeof s->name);
                s->data = data + t.offset;
                s->size = t.size;
                want[i] = t.hash;
                end = t.offset + t.size;
        }
        if (!code && end != size)
                code = err_set(e, TGC_BAD_FILE, "%s: %llu bytes after the last section", what,
                               (unsigned long long)(size - end));
        if (!code)
                code = hash_sections(p->section, p->n_sections, got, e);
        for (int i = 0; !code && i < p->n_sections; i++)
                if (got[i] != want[i])
                        code = err_set(e, TGC_BAD_FILE,
                                       "%s: section %s is damaged (its checksum differs)", what,
                                       p->section[i].name);
        free(want);
        return code;
}

int plan_open_memory(Plan *p, const void *data, size_t size, Err *e)
{
        *p = (Plan) { 0 };
        int code = open_checked(p, data, size, "plan", e);
        if (code)
                plan_close(p);
        return code;
}

static int open_file(Plan *p, const char *path, int (*read)(FileMap *m, const char *path, Err *e),
                     Err *e)
{
        FileMap m = { 0 };
        *p = (Plan) { 0 };
        int code = read(&m, path, e);
        if (code)
                return code;
        p->map = (void *)m.data;
        p->map_size = m.size;
        code = open_checked(p, m.data, m.size, path, e);
        if (code)
                plan_close(p);
        return code;
}

int plan_open(Plan *p, const char *path, Err *e) { return open_file(p, path, file_map, e); }

int plan_open_copy(Plan *p, const char *path, Err *e) { return open_file(p, path, file_copy, e); }

const Section *plan_find(const Plan *p, const char *name)
{
        for (int i = 0; i < p->n_sections; i++)
                if (!strcmp(p->section[i].name, name))
                        return &p->section[i];
        return 0;
}

void plan_close(Plan *p)
{
        for (int i = 0; i < p->n_sections; i++)
                if (p->section[i].owned)
                        free((void *)p->section[i].data);
        free(p->section);
        FileMap m = { p->map, p->map_size };
        if (p->map)
                file_unmap(&m);
        *p = (Plan) { 0 };
}

/* ---- writing ---- */

void plan_remove(Plan *p, const char *name)
{
        Section *s = (Section *)plan_find(p, name);
        if (!s)
                return;
        if (s->owned)
                free((void *)s->data);
        memmove(s, s + 1, (size_t)(p->section + p->n_sections - (s + 1)) * sizeof *s);
        p->n_sections--;
}

void plan_drop_copy(Plan *p, const char *name)
{
        const Section *s = plan_find(p, name);
        const uintptr_t page = PLAN_ALIGN;
        if (!s)
                return;
        uintptr_t at = ((uintptr_t)s->data + page - 1) / page * page,
                  end = ((uintptr_t)s->data + s->size) / page * page;
        if (!s->owned && at < end)
                madvise((void *)at, end - at, MADV_DONTNEED);
        plan_remove(p, name);
}

int plan_add(Plan *p, const char *name, const void *data, size_t size, Err *e)
{
        Section s = { .data = data, .size = size };
        size_t n = strlen(name);
        if (n < sizeof s.name)
                memcpy(s.name, name, n);
        if (n >= sizeof s.name || !name_ok(s.name))
                return err_set(e, TGC_FAIL, "section name %.40s: 1 to 31 printable characters",
                               name);
        if (strcmp(name, "weights")) {
                void *copy = malloc(size ? size : 1);
                if (!copy)
                        return err_set(e, TGC_NO_MEMORY, "no memory for section %s (%zu bytes)",
                                       name, size);
                if (size)
                        memcpy(copy, data, size);
                s.data = copy;
                s.owned = 1;
        }
        Section *old = (Section *)plan_find(p, name), *grown;
        if (old) {
                if (old->owned)
                        free((void *)old->data);
                *old = s;
                return TGC_OK;
        }
        if (!(grown = p->n_sections >= PLAN_MAX_SECTIONS
                              ? NULL
                              : realloc(p->section, (size_t)(p->n_sections + 1) * sizeof *grown))) {
                if (s.owned)
                        free((void *)s.data);
                return p->n_sections >= PLAN_MAX_SECTIONS
                               ? err_set(e, TGC_FAIL, "section %s is one too many", name)
                               : err_set(e, TGC_NO_MEMORY, "no memory for section %s", name);
        }
        p->section = grown;
        p->section[p->n_sections++] = s;
        return TGC_OK;
}

static int write_sections(const Plan *p, const Header *h, const Entry *table, FileOut *out, Err *e)
{
        static const char zeros[PLAN_ALIGN];
        int code = file_out_write(out, h, sizeof *h, e);
        if (!code)
                code = file_out_write(out, table, h->n_sections * sizeof *table, e);
        uint64_t at = sizeof *h + h->n_sections * sizeof *table;
        for (int i = 0; !code && i < p->n_sections; i++) {
                code = file_out_write(out, zeros, table[i].offset - at, e);
                if (!code)
                        code = file_out_write(out, p->section[i].data, p->section[i].size, e);
                at = table[i].offset + table[i].size;
        }
        return code;
}

int plan_write(const Plan *p, const char *path, Err *e)
{
        size_t n = (size_t)p->n_sections;
        Header h = { .magic = MAGIC,
                     .version = VERSION,
                     .order = BYTE_ORDER_MARK,
                     .n_sections = (uint32_t)n };
        Entry *table = calloc(n + 1, sizeof *table);
        uint64_t *hash = calloc(n + 1, sizeof *hash);
        int code = table && hash ? hash_sections(p->section, p->n_sections, hash, e)
                                 : err_set(e, TGC_NO_MEMORY, "no memory to write %s", path);
        if (!code) {
                uint64_t at = sizeof h + n * sizeof *table;
                for (size_t i = 0; i < n; i++) {
                        memcpy(table[i].name, p->section[i].name, sizeof table[i].name);
                        table[i].offset = align_up(at);
                        table[i].size = p->section[i].size;
                        table[i].hash = hash[i];
                        at = table[i].offset + table[i].size;
                }
                h.file_size = at;
                h.table_hash = XXH3_64bits(table, n * sizeof *table);
                FileOut *out = 0;
                code = file_out_open(&out, path, e);
                if (!code && (code = write_sections(p, &h, table, out, e)))
                        file_out_abort(out);
                else if (!code)
                        code = file_out_commit(out, e);
        }
        free(table);
        free(hash);
        return code;
}
