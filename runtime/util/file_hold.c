/* file_hold.c: see file_hold.h.  A file is a row of pieces, so that no byte moves when it grows. */
#include <stdlib.h>
#include <string.h>
#include "file.h"
#include "file_hold.h"

enum { FIRST_PIECE = 1 << 16, MOST_PIECE = 64 << 20 };

typedef struct Piece {
        char *data;
        size_t n, room;
} Piece;

struct HeldFile {
        char *path;
        Piece *piece;
        size_t n, room;
        bool dropped;
};

struct FileHold {
        HeldFile **file;
        int n;
        Piece *spare; /* of files that are on the disk */
        size_t n_spare, room_spare;
};

static _Thread_local FileHold *current;

static void give_back(FileHold *h, Piece p)
{
        if (h->n_spare == h->room_spare) {
                const size_t more = 2 * h->room_spare + 8;
                Piece *list = realloc(h->spare, more * sizeof *list);
                if (!list) {
                        free(p.data);
                        return;
                }
                h->spare = list;
                h->room_spare = more;
        }
        h->spare[h->n_spare++] = (Piece) { p.data, 0, p.room };
}

static void empty(FileHold *h, HeldFile *f)
{
        while (f->n)
                give_back(h, f->piece[--f->n]);
        f->dropped = true;
}

static void forget_files(FileHold *h)
{
        for (int i = 0; i < h->n; i++) {
                empty(h, h->file[i]);
                free(h->file[i]->piece);
                free(h->file[i]->path);
                free(h->file[i]);
        }
        h->n = 0;
}

int file_hold_begin(FileHold **h, Err *e)
{
        if (!*h && !(*h = calloc(1, sizeof **h)))
                return err_set(e, TGC_NO_MEMORY, "no memory to hold files");
        forget_files(*h);
        current = *h;
        return TGC_OK;
}

void file_hold_end(void) { current = NULL; }

bool file_holding(void) { return current; }

int file_hold_count(const FileHold *h) { return h->n; }

void file_hold_free(FileHold *h)
{
        if (!h)
                return;
        forget_files(h);
        for (size_t i = 0; i < h->n_spare; i++)
                free(h->spare[i].data);
        free(h->spare);
        free(h->file);
        free(h);
}

int held_open(HeldFile **out, const char *path, Err *e)
{
        FileHold *h = current;
        HeldFile *f = calloc(1, sizeof *f),
                 **list = realloc(h->file, ((size_t)h->n + 1) * sizeof *list);
        if (list)
                h->file = list;
        if (!f || !list || !(f->path = strdup(path))) {
                free(f);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", path);
        }
        h->file[h->n++] = *out = f;
        return TGC_OK;
}

/* Room for one byte at least, in the last piece. */
static int grow(HeldFile *f)
{
        FileHold *h = current;
        const size_t last = f->n ? f->piece[f->n - 1].room : FIRST_PIECE / 2,
                     room = last < MOST_PIECE ? 2 * last : last;
        if (f->n == f->room) {
                const size_t more = 2 * f->room + 8;
                Piece *p = realloc(f->piece, more * sizeof *p);
                if (!p)
                        return TGC_NO_MEMORY;
                f->piece = p;
                f->room = more;
        }
        Piece p = h->n_spare ? h->spare[--h->n_spare] : (Piece) { malloc(room), 0, room };
        if (!p.data)
                return TGC_NO_MEMORY;
        f->piece[f->n++] = p;
        return TGC_OK;
}

int held_write(HeldFile *f, const void *data, size_t size, Err *e)
{
        const char *from = data;
        while (size) {
                Piece *p = f->n ? &f->piece[f->n - 1] : NULL;
                if (!p || p->n == p->room) {
                        if (grow(f))
                                return err_set(e, TGC_NO_MEMORY, "%s: no memory to hold it",
                                               f->path);
                        continue;
                }
                const size_t k = size < p->room - p->n ? size : p->room - p->n;
                memcpy(p->data + p->n, from, k);
                p->n += k;
                from += k;
                size -= k;
        }
        return TGC_OK;
}

void held_patch(HeldFile *f, uint64_t at, const void *data, size_t size)
{
        const char *from = data;
        for (size_t i = 0; i < f->n && size; at -= f->piece[i++].n) {
                Piece *p = &f->piece[i];
                if (at >= p->n)
                        continue;
                const size_t k = size < p->n - at ? size : p->n - (size_t)at;
                memcpy(p->data + at, from, k);
                at += k;
                from += k;
                size -= k;
        }
}

void held_drop(HeldFile *f) { empty(current, f); }

int file_hold_write(FileHold *h, int i, Err *e)
{
        HeldFile *f = h->file[i];
        FileOut *out;
        int code = f->dropped ? TGC_OK : file_out_open(&out, f->path, e);
        if (code || f->dropped)
                return code;
        for (size_t k = 0; k < f->n && !code; k++)
                code = file_out_write(out, f->piece[k].data, f->piece[k].n, e);
        if (code)
                file_out_abort(out);
        else
                code = file_out_commit(out, e);
        empty(h, f);
        return code;
}
