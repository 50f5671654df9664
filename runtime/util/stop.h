/* stop.h: how a caller asks a compilation to end, from a signal handler if need be.
 *
 * The runtime handles no signals.  While `working` is not zero, compilers run and temporary folders
 * exist.  Whoever sets `asked` then gets TGC_STOPPED within a second or so: the compilers are
 * killed and the folders removed.  While `working` is zero there is nothing to clean up. */
#ifndef TGC_STOP_H
#define TGC_STOP_H

#include <stdatomic.h>

typedef struct Stop {
        atomic_int working, asked;
} Stop;

/* s may be NULL: nobody asks.  Pairs may nest. */
static inline void stop_begin(Stop *s)
{
        if (s)
                atomic_fetch_add(&s->working, 1);
}

static inline void stop_end(Stop *s)
{
        if (s)
                atomic_fetch_sub(&s->working, 1);
}

static inline int stop_asked(Stop *s) { return s && atomic_load(&s->asked); }

#endif
