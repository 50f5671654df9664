/* match_impl.h: private to the matcher (match*.c): its states, and how they are made.
 *
 * A place is an element that reads a byte, and a stack that says where to continue when its rule
 * ends.  A state is a set of places.  Stacks are shared: a stack is a node with its parent's
 * number.  Equal stacks have equal numbers, and so have equal states. */
#ifndef TGC_MATCH_IMPL_H
#define TGC_MATCH_IMPL_H

#include "rules.h"
#include "token_trie.h"

enum {
        MAX_STATES = 1 << 14, /* then all are forgotten but the current one */
        MAX_STACKS = 1 << 20,
        MASK_BYTES = 64 << 20, /* of masks kept */
        ANY_NUMBER = 127       /* of plain characters, in State.plain */
};

typedef struct Place {
        int elem, stack;
} Place;

typedef struct Stack {
        int parent, elem, depth; /* where to go on; 0 is the empty stack */
} Stack;

/* What a place with an empty stack takes. */
typedef struct Base {
        int elem;
        uint32_t *bits;
        int *leave, n_leave; /* nodes of the trie */
} Base;

typedef struct State {
        Place *place;
        int n;
        bool complete;
        int *next; /* (256): a state, -1: none, -2: not known yet; NULL: no transition is known */
        int *after,
                n_after; /* states that a plain character leads to (plain_after); -1: not known */
        signed char plain[2]; /* free_plain; -1: not known */
        uint32_t *mask;
} State;

/* Numbers by a hash of what they stand for. */
typedef struct Table {
        int *slot, cap, n;
} Table;

struct Matcher {
        const Grammar *g;
        const TokenTrie *t;
        Stack *stack;
        int n_stack, cap_stack;
        State *state;
        int n_state, cap_state;
        Base *base;
        int n_base, cap_base;
        int *base_of; /* (elements): 1 + a base */
        Table stacks, states;
        size_t mask_bytes;
        int at; /* the current state */
        bool no_memory;
        /* while a state is made */
        Place *place;
        int n_place, cap_place;
        bool complete;
        int *seen, seen_cap;   /* places by hash: 1 + index */
        int *path;             /* (deepest + 1): states along the trie */
        const int **path_next; /* and their `next` */
};

/* Of a mask, in 32 bits. */
static inline size_t match_words(const Matcher *m) { return ((size_t)m->t->vocab + 31) / 32; }

static inline bool match_ends(const Elem *e) { return e->kind == ELEM_END || e->kind == ELEM_ALT; }

/* match_state.c.  What finds no memory sets m->no_memory. */
bool match_grow(Matcher *m, void *array, int *cap, int need, size_t each);
void match_begin(Matcher *m);                             /* of the next state */
void match_add_place(Matcher *m, int elem, int stack);    /* once, also where it is there already */
int match_make_state(Matcher *m);                         /* of these places; -1: no memory */
int match_step(Matcher *m, int from, unsigned char byte); /* a state, -1: none */
void match_forget(Matcher *m);                            /* all but the current state */
void match_free_states(Matcher *m);                       /* and the masks */

#endif
