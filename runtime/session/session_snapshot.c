/* session_snapshot.c: copies one step's parameters and states to the host's memory, so that files
 * can be written while the next steps run.
 *
 * A snapshot is a Session whose arenas lie in the host's memory.  It shares manifest and program
 * with the original.  It can only be read (session_param_get, session_part_read). */
#include <stdlib.h>
#include <string.h>
#include "session_impl.h"

/* Bytes [from, to) of an arena that a snapshot has. */
typedef struct Span {
        uint64_t from, to;
} Span;

static Span span_of(const Session *s, int a, SnapshotWhat what)
{
        const ArenaDef *def = &s->p.arena[a];
        const uint64_t learnt = s->m.n_train * store_size(s->m.dtype);
        const bool masters = program_arena(&s->p, "p") >= 0; /* which are read in place of w */
        if (!s->arena[a].mem)
                return (Span) { 0, 0 };
        if (is_state_arena(def->name))
                return (Span) { 0, def->size };
        if (strcmp(def->name, "w"))
                return (Span) { 0, 0 };
        return (Span) { masters && what != SNAPSHOT_STORAGE ? learnt : 0,
                        what == SNAPSHOT_STATE ? learnt : def->size };
}

uint64_t session_snapshot_bytes(const Session *s, SnapshotWhat what)
{
        uint64_t n = 0;
        for (int i = 0; i < s->p.n_arenas; i++) {
                const Span x = span_of(s, i, what);
                n += x.to - x.from;
        }
        return n;
}

static int create(const Session *s, Session **out, Err *e)
{
        Session *c = malloc(sizeof *c);
        int code = c ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for a snapshot");
        if (code)
                return code;
        *c = *s;
        c->prog = NULL;
        c->arena = calloc((size_t)s->p.n_arenas + 1, sizeof *c->arena);
        c->d = NULL;
        code = c->arena ? dev_open(&c->d, DEV_CPU, NULL, e)
                        : err_set(e, TGC_NO_MEMORY, "no memory for a snapshot");
        if (code)
                session_snapshot_free(c);
        else
                *out = c;
        return code;
}

int session_snapshot(Session *s, SnapshotWhat what, Session **copy, Err *e)
{
        int code = *copy ? TGC_OK : create(s, copy, e);
        for (int i = 0; i < s->p.n_arenas && !code; i++) {
                const Span x = span_of(s, i, what);
                void **mem = &(*copy)->arena[i].mem;
                if (x.to > x.from && !*mem)
                        code = dev_alloc((*copy)->d, s->p.arena[i].size, mem, e);
                if (!code && x.to > x.from)
                        code = dev_download(s->d, (char *)*mem + x.from,
                                            (char *)s->arena[i].mem + x.from, x.to - x.from, e);
        }
        return code;
}

void session_snapshot_free(Session *c)
{
        if (!c)
                return;
        for (int i = 0; c->arena && i < c->p.n_arenas; i++)
                if (c->d)
                        dev_free(c->d, c->arena[i].mem, c->p.arena[i].size);
        dev_close(c->d);
        free(c->arena);
        free(c);
}
