/* match.c: a text in the making against a grammar, byte by byte or token by token.
 *
 * A place is an element that reads a byte, and a stack of where to go on when its rule ends.  A
 * state is a set of places.  Stacks are shared: a stack is a node with its parent's number, equal
 * stacks have equal numbers, and so have equal states.
 *
 * The mask of a place does not depend on its stack but for the tokens that leave its rule
 * (xgrammar's context-independent tokens).  So it is made once for the place with an empty stack: a
 * bit for each token that stays within or ends with the rule, and the nodes of the trie at which
 * the rule ends.  For a place with a stack the tokens below these nodes are walked from where the
 * stack goes on. */
#include <stdlib.h>
#include <string.h>
#include "rules.h"
#include "token_trie.h"

enum {
        MAX_STATES = 1 << 14, /* then all are forgotten but the current one */
        MAX_STACKS = 1 << 20,
        MASK_BYTES = 64 << 20, /* of masks kept */
        FEW_PLACES = 2,        /* more are walked together */
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

static size_t words(const Matcher *m) { return ((size_t)m->t->vocab + 31) / 32; }

static uint32_t mix(uint32_t h, uint32_t x)
{
        h = (h ^ x) * 0x9e3779b1u;
        return h ^ h >> 15;
}

static bool grow(Matcher *m, void *array, int *cap, int need, size_t each)
{
        void *p;
        memcpy(&p, array, sizeof p);
        if (need <= *cap)
                return true;
        int more = *cap * 2 > need ? *cap * 2 : need + 16;
        void *x = realloc(p, (size_t)more * each);
        if (!x) {
                m->no_memory = true;
                return false;
        }
        memcpy(array, &x, sizeof x);
        *cap = more;
        return true;
}

/* ---- stacks ---- */

static bool table_grow(Matcher *m, Table *t, uint32_t (*hash)(const Matcher *, int))
{
        if (t->n * 2 < t->cap)
                return true;
        int cap = t->cap ? t->cap * 2 : 1024;
        int *slot = calloc((size_t)cap, sizeof *slot);
        if (!slot) {
                m->no_memory = true;
                return false;
        }
        for (int i = 0; i < t->cap; i++)
                if (t->slot[i]) {
                        uint32_t h = hash(m, t->slot[i] - 1) & (uint32_t)(cap - 1);
                        while (slot[h])
                                h = (h + 1) & (uint32_t)(cap - 1);
                        slot[h] = t->slot[i];
                }
        free(t->slot);
        t->slot = slot;
        t->cap = cap;
        return true;
}

static uint32_t hash_stack(const Matcher *m, int i)
{
        return mix(mix(1, (uint32_t)m->stack[i].parent), (uint32_t)m->stack[i].elem);
}

/* -1: too deep, or no memory */
static int push(Matcher *m, int parent, int elem)
{
        const int depth = m->stack[parent].depth + 1;
        elem = m->g->same[elem];
        if (depth > GR_MAX_DEPTH || m->n_stack >= 2 * MAX_STACKS ||
            !table_grow(m, &m->stacks, hash_stack))
                return -1;
        uint32_t h = mix(mix(1, (uint32_t)parent), (uint32_t)elem) & (uint32_t)(m->stacks.cap - 1);
        for (; m->stacks.slot[h]; h = (h + 1) & (uint32_t)(m->stacks.cap - 1)) {
                const Stack *s = &m->stack[m->stacks.slot[h] - 1];
                if (s->parent == parent && s->elem == elem)
                        return m->stacks.slot[h] - 1;
        }
        if (!grow(m, &m->stack, &m->cap_stack, m->n_stack + 1, sizeof *m->stack))
                return -1;
        m->stack[m->n_stack] = (Stack) { parent, elem, depth };
        m->stacks.slot[h] = ++m->n_stack;
        m->stacks.n++;
        return m->n_stack - 1;
}

/* ---- states ---- */

/* A place to look at; each once.  Places that read no byte are resolved by close_places. */
static void add_place(Matcher *m, int elem, int stack)
{
        elem = m->g->same[elem];
        if ((m->n_place + 1) * 2 > m->seen_cap) {
                int cap = m->seen_cap ? m->seen_cap * 2 : 256;
                int *seen = calloc((size_t)cap, sizeof *seen);
                if (!seen || m->n_place >= GR_MAX_PLACES) {
                        free(seen);
                        m->no_memory = true; /* or too many places */
                        return;
                }
                for (int i = 0; i < m->n_place; i++) {
                        uint32_t h = mix(mix(7, (uint32_t)m->place[i].elem),
                                         (uint32_t)m->place[i].stack);
                        for (h &= (uint32_t)(cap - 1); seen[h]; h = (h + 1) & (uint32_t)(cap - 1))
                                ;
                        seen[h] = i + 1;
                }
                free(m->seen);
                m->seen = seen;
                m->seen_cap = cap;
        }
        uint32_t h = mix(mix(7, (uint32_t)elem), (uint32_t)stack) & (uint32_t)(m->seen_cap - 1);
        for (; m->seen[h]; h = (h + 1) & (uint32_t)(m->seen_cap - 1)) {
                const Place *p = &m->place[m->seen[h] - 1];
                if (p->elem == elem && p->stack == stack)
                        return;
        }
        if (!grow(m, &m->place, &m->cap_place, m->n_place + 1, sizeof *m->place))
                return;
        m->place[m->n_place++] = (Place) { elem, stack };
        m->seen[h] = m->n_place;
}

static void begin_places(Matcher *m)
{
        if (m->seen)
                memset(m->seen, 0, (size_t)m->seen_cap * sizeof *m->seen);
        m->n_place = 0;
        m->complete = false;
}

static bool ends(const Elem *e) { return e->kind == ELEM_END || e->kind == ELEM_ALT; }

/* Follow references and ends until every place reads a byte; those stay, the first n of place. */
static void close_places(Matcher *m)
{
        const Elem *elem = m->g->elem;
        int n = 0;
        for (int i = 0; i < m->n_place; i++) {
                const Place p = m->place[i];
                const Elem *e = &elem[p.elem];
                if (ends(e)) {
                        if (p.stack)
                                add_place(m, m->stack[p.stack].elem, m->stack[p.stack].parent);
                        else
                                m->complete = true;
                } else if (e->kind == ELEM_REF) {
                        int stack = ends(e + 1) ? p.stack : push(m, p.stack, p.elem + 1);
                        for (int k = e->ref; stack >= 0; k++) {
                                add_place(m, k, stack);
                                while (!ends(&elem[k]))
                                        k++;
                                if (elem[k].kind == ELEM_END)
                                        break;
                        }
                }
        }
        for (int i = 0; i < m->n_place; i++)
                if (elem[m->place[i].elem].kind == ELEM_BYTES)
                        m->place[n++] = m->place[i];
        m->n_place = n;
}

static int by_place(const void *x, const void *y)
{
        const Place *a = x, *b = y;
        return a->elem != b->elem ? (a->elem < b->elem ? -1 : 1)
                                  : (a->stack > b->stack) - (a->stack < b->stack);
}

static uint32_t hash_places(const Place *p, int n, bool complete)
{
        uint32_t h = complete;
        for (int i = 0; i < n; i++)
                h = mix(mix(h, (uint32_t)p[i].elem), (uint32_t)p[i].stack);
        return h;
}

static uint32_t hash_state(const Matcher *m, int i)
{
        return hash_places(m->state[i].place, m->state[i].n, m->state[i].complete);
}

/* The state of the places that were added; -1: there are none. */
static int make_state(Matcher *m)
{
        close_places(m);
        if ((!m->n_place && !m->complete) || m->no_memory || !table_grow(m, &m->states, hash_state))
                return -1;
        qsort(m->place, (size_t)m->n_place, sizeof *m->place, by_place);
        uint32_t h = hash_places(m->place, m->n_place, m->complete) & (uint32_t)(m->states.cap - 1);
        size_t bytes = (size_t)m->n_place * sizeof *m->place;
        for (; m->states.slot[h]; h = (h + 1) & (uint32_t)(m->states.cap - 1)) {
                const State *s = &m->state[m->states.slot[h] - 1];
                if (s->n == m->n_place && s->complete == m->complete &&
                    (!bytes || !memcmp(s->place, m->place, bytes)))
                        return m->states.slot[h] - 1;
        }
        if (!grow(m, &m->state, &m->cap_state, m->n_state + 1, sizeof *m->state))
                return -1;
        Place *p = malloc(bytes + 1);
        if (!p) {
                m->no_memory = true;
                return -1;
        }
        if (bytes)
                memcpy(p, m->place, bytes);
        m->state[m->n_state] = (State) { .place = p,
                                         .n = m->n_place,
                                         .complete = m->complete,
                                         .n_after = -1,
                                         .plain = { -1, -1 } };
        m->states.slot[h] = ++m->n_state;
        m->states.n++;
        return m->n_state - 1;
}

static int step(Matcher *m, int from, unsigned char byte)
{
        State *s = &m->state[from];
        if (!s->next) {
                if (!(s->next = malloc(256 * sizeof *s->next))) {
                        m->no_memory = true;
                        return -1;
                }
                for (int i = 0; i < 256; i++)
                        s->next[i] = -2;
        }
        if (s->next[byte] != -2)
                return s->next[byte];
        /* the bytes around it that the same places read lead to the same state */
        int lo = 0, hi = 255;
        begin_places(m);
        for (int i = 0; i < s->n; i++) {
                const Elem *e = &m->g->elem[s->place[i].elem];
                if (e->lo <= byte && byte <= e->hi)
                        add_place(m, s->place[i].elem + 1, s->place[i].stack);
                if (e->lo <= byte)
                        lo = e->lo > lo ? e->lo : lo;
                else
                        hi = e->lo - 1 < hi ? e->lo - 1 : hi;
                if (e->hi < byte)
                        lo = e->hi + 1 > lo ? e->hi + 1 : lo;
                else
                        hi = e->hi < hi ? e->hi : hi;
        }
        int to = m->n_place ? make_state(m) : -1;
        for (int i = lo; i <= hi; i++)
                m->state[from].next[i] = to; /* states may have moved */
        return to;
}

/* ---- masks ---- */

/* Different states that one byte or character leads to. */
typedef struct Few {
        int state[16], n;
        bool fails; /* or to none, or to more */
} Few;

static void few_add(Few *f, int state)
{
        for (int i = 0; i < f->n; i++)
                if (f->state[i] == state)
                        return;
        if (state < 0 || f->n == (int)(sizeof f->state / sizeof *f->state))
                f->fails = true;
        else
                f->state[f->n++] = state;
}

/* Where bytes of [lo, hi] lead.  The places' ranges say which bytes are alike. */
static void few_next(Matcher *m, int from, int lo, int hi, Few *to)
{
        for (int byte = lo, next; byte <= hi && !to->fails; byte = next) {
                few_add(to, step(m, from, (unsigned char)byte));
                next = hi + 1;
                for (int i = 0; i < m->state[from].n; i++) {
                        const Elem *e = &m->g->elem[m->state[from].place[i].elem];
                        if (e->lo > byte && e->lo < next)
                                next = e->lo;
                        if (e->hi >= byte && e->hi + 1 < next)
                                next = e->hi + 1;
                }
        }
}

/* The states to which a plain character (token_trie.h) leads; their number, 0: some of them may not
 * come.  Within a JSON string of any length it is the state itself; where the length has a bound,
 * the next of a chain. */
static int plain_after(Matcher *m, int state)
{
        Few all = { .n = 0 };
        if (m->state[state].n_after >= 0)
                return m->state[state].n_after;
        for (int i = 0; i < N_PLAIN_FORMS && !all.fails; i++) {
                const struct PlainForm *f = &plain_form[i];
                Few at = { { state }, 1, false };
                for (int k = 0; k < f->n && !all.fails; k++) {
                        Few to = { .n = 0 };
                        for (int j = 0; j < at.n; j++)
                                few_next(m, at.state[j], f->lo[k], f->hi[k], &to);
                        all.fails |= to.fails;
                        for (int j = 0; j < to.n; j++) /* a rule of bytes, not of characters */
                                all.fails |= k + 1 < f->n && m->state[to.state[j]].complete;
                        at = to;
                }
                for (int j = 0; j < at.n && !all.fails; j++)
                        few_add(&all, at.state[j]);
        }
        State *s = &m->state[state];
        s->n_after = 0;
        if (!all.fails && all.n && (s->after = malloc((size_t)all.n * sizeof *s->after))) {
                memcpy(s->after, all.state, (size_t)all.n * sizeof *s->after);
                s->n_after = all.n;
        }
        return s->n_after;
}

/* How many plain characters may come next, whichever they are, up to TOK_PLAIN; inside: and the
 * rule ends nowhere on the way.  ANY_NUMBER: as many as one likes. */
static int free_plain(Matcher *m, int state, bool inside)
{
        enum { MOST = 24 };
        int met[MOST] = { state }, n = 1, level = 0;
        if (m->state[state].plain[inside] >= 0)
                return m->state[state].plain[inside];
        for (int from = 0, to = 1; from < to; level++, from = to, to = n) {
                bool good = level < TOK_PLAIN;
                for (int i = from; i < to && good; i++) {
                        const int k = plain_after(m, met[i]);
                        good = k > 0;
                        for (int j = 0; j < k && good; j++) {
                                const int s = m->state[met[i]].after[j];
                                int old = 0;
                                while (old < n && met[old] != s)
                                        old++;
                                good = old < MOST && !(inside && m->state[s].complete);
                                if (good && old == n)
                                        met[n++] = s;
                        }
                }
                if (!good)
                        return m->state[state].plain[inside] = (signed char)level;
        }
        return m->state[state].plain[inside] = ANY_NUMBER;
}

/* Does it take any n plain characters?  inside: and its rule ends nowhere on the way. */
static bool takes_plain(Matcher *m, int state, int n, bool inside)
{
        const int k = free_plain(m, state, inside);
        return k >= n || k == ANY_NUMBER;
}

static void take_tokens(const int *order, int from, int to, uint32_t *bits)
{
        for (int k = from; k < to; k++)
                bits[order[k] / 32] |= 1u << order[k] % 32;
}

/* Where a walk notes what it finds. */
typedef struct Walk {
        uint32_t *bits;
        Base *leave; /* nodes at which the state is complete, or NULL */
        int *cap;
} Walk;

static bool walk_plain(Matcher *m, int state, int i, int most, const Walk *w);

/* Tokens at and below nodes [from, to) that `state` takes, of which the nodes at `depth` + 1 read
 * the first byte.  rest: they are nodes of t->rest. */
static void walk(Matcher *m, int state, int from, int to, int depth, const Walk *w, bool rest)
{
        const TokenTrie *t = m->t;
        const TrieNode *node = rest ? t->rest : t->node;
        const int *order = rest ? t->rest_order : t->order;
        m->path[depth] = state;
        m->path_next[depth] = m->state[state].next;
        for (int i = from; i < to;) {
                const TrieNode *n = &node[i];
                const int *next = m->path_next[n->depth - 1];
                int s = next ? next[n->byte] : -2;
                if (s == -2) {
                        s = step(m, m->path[n->depth - 1], n->byte);
                        m->path_next[n->depth - 1] = m->state[m->path[n->depth - 1]].next;
                }
                if (s < 0) {
                        i = n->end;
                        continue;
                }
                if (n->end == i + 1) {
                        take_tokens(order, n->tokens, node[i + 1].tokens, w->bits);
                        i++;
                        continue;
                }
                m->path[n->depth] = s;
                m->path_next[n->depth] = m->state[s].next;
                const bool leaves = w->leave && m->state[s].complete;
                if (n->plain > 0 && !leaves && takes_plain(m, s, n->plain, w->leave)) {
                        take_tokens(order, n->tokens, node[n->end].tokens, w->bits);
                        i = n->end;
                        continue;
                }
                if (!rest && n->most > 0 && !leaves && walk_plain(m, s, i, n->most, w)) {
                        i = n->end;
                        continue;
                }
                take_tokens(order, n->tokens, node[i + 1].tokens, w->bits);
                if (leaves && grow(m, &w->leave->leave, w->cap, w->leave->n_leave + 1,
                                   sizeof *w->leave->leave))
                        w->leave->leave[w->leave->n_leave++] = rest ? t->rest_node[i] : i;
                i = m->state[s].n ? i + 1 : n->end;
        }
}

/* Where `state`, at node i or before all (-1), takes any plain characters: the plain tokens at and
 * below it, and of the rest what it takes. */
static bool walk_plain(Matcher *m, int state, int i, int most, const Walk *w)
{
        const TokenTrie *t = m->t;
        if (most <= 0 || !takes_plain(m, state, most, w->leave))
                return false;
        token_trie_plain(t, i, w->bits);
        if (i < 0) {
                walk(m, state, 0, t->n_rest, 0, w, true);
        } else { /* i is a node of the rest, too, where the next one is another there */
                const int from = t->rest_at[i + 1], to = t->rest_at[t->node[i].end];
                if (to > from)
                        walk(m, state, from, to, t->node[i].depth, w, true);
        }
        return true;
}

static void walk_all(Matcher *m, int state, const Walk *w)
{
        if (w->leave && m->state[state].complete)
                walk(m, state, 0, m->t->n_node, 0, w, false);
        else if (!walk_plain(m, state, -1, m->t->most, w))
                walk(m, state, 0, m->t->n_node, 0, w, false);
}

static const Base *base_for(Matcher *m, int elem)
{
        if (m->base_of[elem])
                return &m->base[m->base_of[elem] - 1];
        if (!grow(m, &m->base, &m->cap_base, m->n_base + 1, sizeof *m->base))
                return NULL;
        Base b = { .elem = elem, .bits = calloc(words(m), 4) };
        int cap = 0;
        begin_places(m);
        add_place(m, elem, 0);
        int s = make_state(m);
        if (!b.bits || s < 0) {
                free(b.bits);
                m->no_memory = true;
                return NULL;
        }
        m->mask_bytes += words(m) * 4;
        walk_all(m, s, &(Walk) { b.bits, &b, &cap });
        m->base[m->n_base] = b;
        m->base_of[elem] = ++m->n_base;
        return &m->base[m->n_base - 1];
}

static void mask_of_place(Matcher *m, Place p, uint32_t *bits)
{
        const Base *b = base_for(m, p.elem);
        for (size_t i = 0; b && i < words(m); i++)
                bits[i] |= b->bits[i];
        if (!b || !p.stack || !b->n_leave)
                return;
        begin_places(m);
        add_place(m, m->stack[p.stack].elem, m->stack[p.stack].parent);
        int rest = make_state(m);
        for (int i = 0; i < b->n_leave && rest >= 0; i++) {
                const int node = b->leave[i];
                const TrieNode *n = &m->t->node[node];
                const Walk w = { bits, NULL, NULL };
                if (n->plain > 0 && takes_plain(m, rest, n->plain, false))
                        take_tokens(m->t->order, n[1].tokens, m->t->node[n->end].tokens, bits);
                else if (!walk_plain(m, rest, node, n->most, &w))
                        walk(m, rest, node + 1, n->end, n->depth, &w, false);
        }
}

static void free_states(Matcher *m)
{
        for (int i = 0; i < m->n_state; i++) {
                free(m->state[i].place);
                free(m->state[i].next);
                free(m->state[i].after);
                free(m->state[i].mask);
        }
        for (int i = 0; i < m->n_base; i++) {
                free(m->base[i].bits);
                free(m->base[i].leave);
                m->base_of[m->base[i].elem] = 0;
        }
        m->n_state = m->n_base = 0;
}

/* Forget all but the current state. */
static void forget(Matcher *m)
{
        int n = m->state[m->at].n;
        int *kept = malloc(((size_t)n * (GR_MAX_DEPTH + 2) + 1) * sizeof *kept);
        size_t used = 0;
        if (!kept)
                return; /* it grows on */
        for (int i = 0; i < n; i++) {
                const Place *p = &m->state[m->at].place[i];
                size_t at = used++;
                kept[used++] = p->elem;
                kept[at] = 0;
                for (int s = p->stack; s; s = m->stack[s].parent, kept[at]++)
                        kept[used++] = m->stack[s].elem;
        }
        const bool complete = m->state[m->at].complete;
        free_states(m);
        m->mask_bytes = 0;
        m->n_stack = 1;
        for (int i = 0; i < 2; i++) {
                Table *t = i ? &m->states : &m->stacks;
                if (t->slot)
                        memset(t->slot, 0, (size_t)t->cap * sizeof *t->slot);
                t->n = 0;
        }
        begin_places(m);
        for (size_t i = 0; i < used;) {
                int depth = kept[i], elem = kept[i + 1], stack = 0;
                for (int k = depth - 1; k >= 0 && stack >= 0; k--)
                        stack = push(m, stack, kept[i + 2 + (size_t)k]);
                if (stack >= 0)
                        add_place(m, elem, stack);
                i += 2 + (size_t)depth;
        }
        m->complete = complete;
        free(kept);
        /* close_places would add to `complete`; these places all read bytes */
        m->at = make_state(m);
        if (m->at < 0)
                m->no_memory = true;
}

const uint32_t *matcher_mask(Matcher *m)
{
        if (m->no_memory)
                return NULL;
        if (m->n_state > MAX_STATES || m->n_stack > MAX_STACKS || m->mask_bytes > MASK_BYTES)
                forget(m);
        if (m->no_memory)
                return NULL;
        if (m->state[m->at].mask)
                return m->state[m->at].mask;
        uint32_t *bits = calloc(words(m) + 1, 4);
        if (!bits)
                return NULL;
        const int n = m->state[m->at].n;
        if (n > FEW_PLACES)
                walk_all(m, m->at, &(Walk) { bits, NULL, NULL });
        for (int i = 0; i < n && n <= FEW_PLACES; i++)
                mask_of_place(m, m->state[m->at].place[i], bits);
        for (int i = 0; i < m->t->n_eos && m->state[m->at].complete; i++)
                bits[m->t->eos[i] / 32] |= 1u << m->t->eos[i] % 32;
        if (m->no_memory) {
                free(bits);
                return NULL;
        }
        m->mask_bytes += words(m) * 4;
        return m->state[m->at].mask = bits;
}

bool matcher_some(Matcher *m)
{
        const uint32_t *bits = matcher_mask(m);
        for (size_t i = 0; bits && i < words(m); i++)
                if (bits[i])
                        return true;
        return false;
}

/* ---- a text ---- */

bool matcher_bytes(Matcher *m, const char *p, size_t n)
{
        int s = m->at;
        for (size_t i = 0; i < n && s >= 0; i++) {
                s = step(m, s, (unsigned char)p[i]);
                if (s >= 0 && (m->n_state > 2 * MAX_STATES || m->n_stack > MAX_STACKS)) {
                        m->at = s;
                        forget(m);
                        s = m->at;
                }
        }
        if (s >= 0)
                m->at = s;
        return s >= 0;
}

bool matcher_complete(const Matcher *m) { return m->at >= 0 && m->state[m->at].complete; }

bool matcher_token(Matcher *m, int token)
{
        for (int i = 0; i < m->t->n_eos; i++)
                if (m->t->eos[i] == token)
                        return matcher_complete(m);
        if (token < 0 || token >= m->t->vocab || m->t->at[token + 1] == m->t->at[token])
                return false;
        return matcher_bytes(m, m->t->bytes + m->t->at[token],
                             m->t->at[token + 1] - m->t->at[token]);
}

void matcher_reset(Matcher *m)
{
        begin_places(m);
        for (int k = m->g->root;; k++) {
                add_place(m, k, 0);
                while (!ends(&m->g->elem[k]))
                        k++;
                if (m->g->elem[k].kind == ELEM_END)
                        break;
        }
        m->at = make_state(m);
        m->no_memory |= m->at < 0;
}

int matcher_new(Matcher **out, const Grammar *g, const TokenTrie *t, Err *e)
{
        Matcher *m = calloc(1, sizeof *m);
        *out = NULL;
        if (m) {
                m->g = g;
                m->t = t;
                m->base_of = calloc((size_t)g->n + 1, sizeof *m->base_of);
                m->path = calloc(t ? (size_t)t->deepest + 1 : 1, sizeof *m->path);
                m->path_next = calloc(t ? (size_t)t->deepest + 1 : 1, sizeof *m->path_next);
                if (grow(m, &m->stack, &m->cap_stack, 16, sizeof *m->stack))
                        m->stack[m->n_stack++] = (Stack) { 0, 0, 0 };
        }
        if (!m || !m->base_of || !m->path || !m->path_next || m->no_memory ||
            (matcher_reset(m), m->no_memory)) {
                matcher_free(m);
                return err_set(e, TGC_NO_MEMORY, "no memory for a grammar");
        }
        *out = m;
        return TGC_OK;
}

void matcher_free(Matcher *m)
{
        if (!m)
                return;
        free_states(m);
        free(m->state);
        free(m->base);
        free(m->base_of);
        free(m->stack);
        free(m->stacks.slot);
        free(m->states.slot);
        free(m->place);
        free(m->seen);
        free(m->path);
        free(m->path_next);
        free(m);
}
