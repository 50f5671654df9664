/* match_mask.c: makes the mask of tokens that may come next in a text (matcher_mask).
 *
 * What places take depends on their stacks only for tokens that leave them (xgrammar's
 * context-independent tokens).  So it is made once, as a base: of a place with an empty stack, or
 * of the places within one value of a KeySet, on the stack that they have in common.  A base is the
 * tokens that stay within, and the nodes of the trie at which the stacks end; there tokens are
 * walked on from where the stack continues, for the next few stacks once as well. */
#include <stdlib.h>
#include <string.h>
#include "match_impl.h"

static uint32_t hash_of(int parent, int elem)
{
        return mix(mix(3, (uint32_t)parent), (uint32_t)elem);
}

static uint32_t hash_base(const Matcher *m, int i)
{
        return hash_of(m->base[i].parent, m->base[i].elem);
}

/* The number of a base of this parent and element, -1: there is none yet; it goes to *slot. */
static int find_base(Matcher *m, int parent, int elem, uint32_t *slot)
{
        if (!match_table_grow(m, &m->bases, hash_base))
                return -1;
        const uint32_t mask = (uint32_t)(m->bases.cap - 1);
        uint32_t h = hash_of(parent, elem) & mask;
        for (; m->bases.slot[h]; h = (h + 1) & mask) {
                const Base *b = &m->base[m->bases.slot[h] - 1];
                if (b->parent == parent && b->elem == elem)
                        return m->bases.slot[h] - 1;
        }
        *slot = h;
        return -1;
}

/* m->more becomes a list of tokens, or, where they are many, a mask. */
static bool take_more(Matcher *m, Base *b)
{
        const size_t words = match_words(m);
        int n = 0, k = 0;
        for (size_t i = 0; i < words; i++)
                n += m->more[i] ? __builtin_popcount(m->more[i]) : 0;
        if ((size_t)n > words / 8) {
                uint32_t *fresh = calloc(words + 1, sizeof *fresh);
                b->bits = fresh ? m->more : NULL;
                m->more = fresh ? fresh : m->more;
                m->mask_bytes += words * 4;
                return fresh;
        }
        if (n && !(b->token = malloc((size_t)n * sizeof *b->token)))
                return false;
        for (size_t i = 0; i < words && n; i++)
                for (uint32_t *x = &m->more[i]; *x; *x &= *x - 1)
                        b->token[k++] = (int)i * 32 + __builtin_ctz(*x);
        b->n_token = n;
        return true;
}

static int keep_base(Matcher *m, Base b)
{
        const bool kept = take_more(m, &b) &&
                          match_grow(m, &m->base, &m->cap_base, m->n_base + 1, sizeof *m->base);
        if (!kept) {
                m->no_memory = true;
                free(b.leave);
                return -1;
        }
        m->mask_bytes += sizeof b + ((size_t)b.n_token + (size_t)b.n_leave) * sizeof(int);
        m->base[m->n_base] = b;
        return m->n_base++;
}

/* Of a state whose stacks end where a token may leave it. */
static int base_of_state(Matcher *m, int state)
{
        if (m->state[state].base)
                return m->state[state].base - 1;
        Base b = { .parent = -1, .elem = -1 };
        int cap = 0;
        match_walk_all(m, state, &(Walk) { m->more, &b, &cap });
        const int at = keep_base(m, b);
        m->state[state].base = at + 1;
        return at;
}

static int base_of_elem(Matcher *m, int elem)
{
        uint32_t slot = 0;
        int at = find_base(m, -1, elem, &slot);
        if (at >= 0 || m->no_memory)
                return at;
        match_begin(m);
        match_add_place(m, elem, 0);
        const int s = match_make_state(m);
        if (s < 0)
                return -1;
        Base b = { .parent = -1, .elem = elem };
        int cap = 0;
        match_walk_all(m, s, &(Walk) { m->more, &b, &cap });
        if ((at = keep_base(m, b)) >= 0) {
                m->bases.slot[slot] = at + 1;
                m->bases.n++;
        }
        return at;
}

/* The base of what more is taken where the stacks of `parent` go on at elem. */
static int base_behind(Matcher *m, int parent, int elem)
{
        uint32_t slot = 0;
        int at = find_base(m, parent, elem, &slot);
        if (at >= 0 || m->no_memory)
                return at;
        Base b = { .parent = parent, .elem = elem };
        int cap = 0;
        match_begin(m);
        match_add_place(m, elem, 0);
        match_walk_leaves(m, parent, match_make_state(m), &(Walk) { m->more, &b, &cap });
        if ((at = keep_base(m, b)) >= 0) {
                m->bases.slot[slot] = at + 1;
                m->bases.n++;
        }
        return at;
}

static void take_base(Matcher *m, int base, uint32_t *bits)
{
        const Base *b = &m->base[base];
        for (size_t i = 0; b->bits && i < match_words(m); i++)
                bits[i] |= b->bits[i];
        match_take(b->token, 0, b->n_token, bits);
}

/* ---- a state's places ---- */

/* Within a KeySet what is taken does not depend on the pairs that have come. */
static bool in_keys(const Matcher *m, int stack)
{
        const int kind = stack ? m->g->elem[m->stack[stack].elem].kind : ELEM_END;
        return kind == ELEM_MORE || kind == ELEM_NEXT;
}

typedef struct Group {
        Place place;
        int keys; /* the innermost stack of a KeySet, 0: none */
} Group;

static int by_keys(const void *x, const void *y)
{
        const Group *a = x, *b = y;
        return a->keys != b->keys ? (a->keys < b->keys ? -1 : 1)
               : a->place.elem != b->place.elem
                       ? (a->place.elem < b->place.elem ? -1 : 1)
                       : (a->place.stack > b->place.stack) - (a->place.stack < b->place.stack);
}

/* The deepest stack that all have in common. */
static int common_stack(const Matcher *m, const Group *g, int n)
{
        int a = g->place.stack;
        for (int i = 1; i < n; i++)
                for (int b = g[i].place.stack; a != b;) {
                        const int da = m->stack[a].depth, db = m->stack[b].depth;
                        a = da >= db ? m->stack[a].parent : a;
                        b = db >= da ? m->stack[b].parent : b;
                }
        return a;
}

/* stack, as it stands on `from`, on an empty one; -1: no memory */
static int stack_from(Matcher *m, int stack, int from)
{
        if (stack == from)
                return 0;
        const Stack s = m->stack[stack];
        const int parent = stack_from(m, s.parent, from);
        return parent < 0 ? -1 : match_push(m, parent, s.elem, s.set);
}

/* The base of places as they stand on `stack`, which they have in common; -1: no memory. */
static int base_of_group(Matcher *m, const Group *g, int n, int stack)
{
        if (n == 1 && g->place.stack == stack)
                return base_of_elem(m, g->place.elem);
        match_begin(m);
        for (int i = 0; i < n; i++) {
                const int s = stack_from(m, g[i].place.stack, stack);
                if (s >= 0)
                        match_add_place(m, g[i].place.elem, s);
        }
        const int s = match_make_state(m);
        return s < 0 ? -1 : base_of_state(m, s);
}

/* Where one character ends a rule, as in [a-z]{3}, nearly every token leaves it: what follows is
 * taken in. */
static void mask_of_group(Matcher *m, const Group *g, int n, uint32_t *bits)
{
        enum { MOST_BEHIND = 4, MANY_LEAVE = 400 };
        int stack = common_stack(m, g, n), base = base_of_group(m, g, n, stack);
        for (int i = 0; i < MOST_BEHIND && base >= 0 && m->base[base].n_leave > MANY_LEAVE &&
                        stack && !in_keys(m, stack);
             i++) {
                stack = m->stack[stack].parent;
                base = base_of_group(m, g, n, stack);
        }
        for (int i = 0; base >= 0; i++) {
                take_base(m, base, bits);
                if (!stack || !m->base[base].n_leave)
                        return;
                if (i == MOST_BEHIND || in_keys(m, stack))
                        break;
                base = base_behind(m, base, m->stack[stack].elem);
                stack = m->stack[stack].parent;
        }
        if (base < 0)
                return;
        match_begin(m);
        match_return(m, stack);
        match_walk_leaves(m, base, match_make_state(m), &(Walk) { bits, NULL, NULL });
}

static void mask_of_state(Matcher *m, int state, uint32_t *bits)
{
        const int n = m->state[state].n;
        if (!match_grow(m, &m->group, &m->cap_group, n, sizeof *m->group))
                return;
        for (int i = 0; i < n; i++) {
                const Place p = m->state[state].place[i];
                int keys = p.stack;
                while (keys && !in_keys(m, keys))
                        keys = m->stack[keys].parent;
                m->group[i] = (Group) { p, keys };
        }
        qsort(m->group, (size_t)n, sizeof *m->group, by_keys);
        for (int from = 0, to = 0; from < n && !m->no_memory; from = to) {
                while (to < n && m->group[to].keys == m->group[from].keys)
                        to++;
                mask_of_group(m, m->group + from, to - from, bits);
        }
}

const uint32_t *matcher_mask(Matcher *m)
{
        if (m->no_memory)
                return NULL;
        if (m->n_state > MAX_STATES || m->n_stack > MAX_STACKS || m->mask_bytes > MASK_BYTES)
                match_forget(m);
        if (m->no_memory)
                return NULL;
        if (m->state[m->at].mask)
                return m->state[m->at].mask;
        uint32_t *bits = calloc(match_words(m) + 1, 4);
        if (!bits)
                return NULL;
        mask_of_state(m, m->at, bits);
        for (int i = 0; i < m->t->n_eos && m->state[m->at].complete; i++)
                bits[m->t->eos[i] / 32] |= 1u << m->t->eos[i] % 32;
        if (m->no_memory) {
                free(bits);
                return NULL;
        }
        m->mask_bytes += match_words(m) * 4;
        return m->state[m->at].mask = bits;
}

bool matcher_some(Matcher *m)
{
        const uint32_t *bits = matcher_mask(m);
        for (size_t i = 0; bits && i < match_words(m); i++)
                if (bits[i])
                        return true;
        return false;
}
