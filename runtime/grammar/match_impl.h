/* match_impl.h: private to the matcher (match*.c): its states, and how they are made.
 *
 * A place is an element that reads a byte, and a stack that says where to continue when its rule
 * ends; within a KeySet also which pairs have come.  A state is a set of places.  Stacks are
 * shared: a stack is a node with its parent's number.  Equal stacks have equal numbers, and so have
 * equal states. */
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
        uint64_t set;            /* of ELEM_MORE and ELEM_NEXT: pairs that have come */
} Stack;

/* What a state takes before its stacks end; or, of a parent, what more it takes where they go on at
 * elem. */
typedef struct Base {
        int parent, elem;    /* a base; -1: of a state, or of a place at elem with an empty stack */
        uint32_t *bits;      /* or, of few tokens, NULL: */
        int *token, n_token; /* these */
        int *leave, n_leave; /* nodes of the trie where the stacks end */
} Base;

typedef struct State {
        Place *place;
        int n;
        bool complete;
        int *next; /* (256): a state, -1: none, -2: not known yet; NULL: no transition is known */
        int *after,
                n_after; /* states that a plain character leads to (plain_after); -1: not known */
        signed char plain[2]; /* free_plain; -1: not known */
        int base;             /* 1 + its own */
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
        Table stacks, states, bases;
        size_t mask_bytes;
        int at; /* the current state */
        bool no_memory;
        /* while a state is made */
        Place *place;
        int n_place, cap_place;
        bool complete;
        uint64_t *seen, seen_as; /* places by hash: seen_as, and 1 + index */
        int seen_cap;
        struct Group *group; /* places of a state by the KeySets that they are in */
        int cap_group;
        uint32_t *more;        /* a mask, empty but while it is used */
        int *path;             /* (deepest + 1): states along the trie */
        const int **path_next; /* and their `next` */
};

/* Of a mask, in 32 bits. */
static inline size_t match_words(const Matcher *m) { return ((size_t)m->t->vocab + 31) / 32; }

static inline uint32_t mix(uint32_t h, uint32_t x)
{
        h = (h ^ x) * 0x9e3779b1u;
        return h ^ h >> 15;
}

static inline bool match_ends(const Elem *e) { return e->kind == ELEM_END || e->kind == ELEM_ALT; }

/* match_state.c.  What finds no memory sets m->no_memory. */
bool match_grow(Matcher *m, void *array, int *cap, int need, size_t each);
bool match_table_grow(Matcher *m, Table *t, uint32_t (*hash)(const Matcher *, int));
int match_push(Matcher *m, int parent, int elem, uint64_t set); /* -1: too deep, or no memory */
void match_begin(Matcher *m);                                   /* of the next state */
void match_add_place(Matcher *m, int elem, int stack);    /* once, also where it is there already */
void match_return(Matcher *m, int stack);                 /* a place: where this stack goes on */
int match_make_state(Matcher *m);                         /* of these places; -1: no memory */
int match_step(Matcher *m, int from, unsigned char byte); /* a state, -1: none */
void match_forget(Matcher *m);                            /* all but the current state */
void match_free_states(Matcher *m);                       /* and the masks */

/* match_walk.c */
/* Where a walk notes what it finds. */
typedef struct Walk {
        uint32_t *bits;
        Base *leave; /* nodes at which the state is complete, or NULL */
        int *cap;
} Walk;

void match_take(const int *order, int from, int to, uint32_t *bits); /* these of order */
void match_walk_all(Matcher *m, int state, const Walk *w);
/* What the tokens that leave a base may be where `rest` is next; w->leave: of those that leave that
 * as well. */
void match_walk_leaves(Matcher *m, int base, int rest, const Walk *w);

#endif
