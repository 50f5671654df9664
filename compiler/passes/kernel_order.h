/* kernel_order.h: private to fuse.c: which kernel waits for which, while nodes join kernels. */
#ifndef TGC_KERNEL_ORDER_H
#define TGC_KERNEL_ORDER_H

#include "../../ir/ir.h"

/* A kernel by its number (Node.group), or a node that is in none yet. */
typedef struct KernelOrder {
        Graph *g;
        Ref *base; /* value_base of each node */
        /* who reads a node; who reads it, or what it is the base of */
        Readers readers, base_readers;
        Ref *first, *next;   /* members of a kernel, a list; 0 ends it */
        Ref *least;          /* the first node of a kernel */
        Ref *before, *after; /* accum: of the same parameter, that before it, behind it */
        /* place of each unit in an order in which nobody waits for a later one; unit there, or 0 */
        int *ord, *at;
        int *up, *down, *kernel_down; /* see order_waits */
        int *mark, stamp, *stack;
        long steps; /* units looked at so far */
} KernelOrder;

KernelOrder *order_new(Graph *g, Arena *a);
/* Does node r, or what its kernel reads, come after kernel `goal`? */
bool order_waits(KernelOrder *o, Ref r, int goal);
/* The same of a node that is in none. */
bool order_waits_node(KernelOrder *o, Ref r, Ref goal);
/* r, which is in none, becomes a member of kernel id */
void order_enter(KernelOrder *o, Ref r, int id);
/* all members of `from` become those of `to` */
void order_merge(KernelOrder *o, int from, int to);

#endif
