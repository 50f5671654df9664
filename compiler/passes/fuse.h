/* fuse.h: private to fuse*.c.
 *
 *   fuse.c        decides, kernel by kernel
 *   fuse_join.c   what may share a kernel: structure alone, no profit
 *   fuse_bytes.c  what a fusion saves
 *   fuse_why.c    what was refused, and what kernels save, for people */
#ifndef TGC_FUSE_H
#define TGC_FUSE_H

#include "../compiler.h"
#include "../../codegen/lower/lower.h"
#include "fuse_bytes.h"
#include "kernel_order.h"

enum { MAX_READS = 16, MAX_MEMBERS = 24 };

typedef struct Gr {
        Ref anchor; /* 0: map */
        int64_t n;  /* columns of a map's domain */
        Dim rows;
        int members;
} Gr;

/* A member's columns among those of its kernel.
 *
 *      span     step 0: all of them
 *      twice    log2 of how many the member has for each column of the kernel, or of the slice that
 *               it reads: 1 of what interleave makes, -1 of every second column
 *      odd      it reads a slice that begins or ends between two columns of a pair */
typedef struct Extent {
        Span span;
        int twice;
        bool odd;
} Extent;

typedef struct Fuse {
        Graph *g;
        Gr *gr;
        int n;
        Text *why;
        Arena *tmp;
        KernelOrder *order;
        Ref *original; /* see find_originals */
        FuseBytes *bytes;
        /* lines of `why`: places behind each one's first letter, by hash; 0: none */
        unsigned *said;
        unsigned n_said, cap_said;
        Ref *only_reader; /* -1: several */
        Extent *dom;      /* by node; of members */
} Fuse;

static inline Ref base_of(const Fuse *f, Ref r) { return f->order->base[r]; }

/* Does node r, or what its group reads, come after group `goal`? */
static inline bool depends(Fuse *f, Ref r, int goal) { return order_waits(f->order, r, goal); }

/* ---- fuse_join.c ---- */

/* Would member r with columns dom, or a member of kernel id, begin or end between two columns of a
 * pair, while some member takes them in pairs (rope, interleave, every second column)? */
bool cuts_pairs(const Fuse *f, int id, Ref r, Extent dom);

/* May member r join kernel id?  Gives a reason where not; else the columns r will have. */
const char *join(Fuse *f, Ref r, int id, Extent *dom);
/* Does member r have all columns of kernel id, one for one? */
bool has_all_columns(const Fuse *f, Ref r, int id);
bool fits(const Type *t, int64_t n); /* the trailing dimensions of t make up n columns exactly */
/* Does r see input `in` whole, element for element?  Not a slice of it, and not stretched. */
bool sees_whole(const Graph *g, Ref r, Ref in);

/* ---- fuse_why.c ---- */

void why_begin(Fuse *f); /* what other programs said is not said again */
/* Node r stays out of a kernel, which would have saved so many bytes. */
void refuse(Fuse *f, Ref r, int id, const char *reason);
void why_kernels(Fuse *f); /* what each kernel moves and saves */

#endif
