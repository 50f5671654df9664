/* match_state.c: the states of a matcher (match_impl.h), each made once, and their transitions by a
 * byte. */
#include <stdlib.h>
#include <string.h>
#include "match_impl.h"

bool match_grow(Matcher *m, void *array, int *cap, int need, size_t each)
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

bool match_table_grow(Matcher *m, Table *t, uint32_t (*hash)(const Matcher *, int))
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
        const Stack *s = &m->stack[i];
        return mix(mix(mix(mix(1, (uint32_t)s->parent), (uint32_t)s->elem), (uint32_t)s->set),
                   (uint32_t)(s->set >> 32));
}

/* -1: too deep, or no memory */
int match_push(Matcher *m, int parent, int elem, uint64_t set)
{
        const int depth = m->stack[parent].depth + 1;
        elem = m->g->same[elem];
        if (depth > GR_MAX_DEPTH || m->n_stack >= 2 * MAX_STACKS ||
            !match_table_grow(m, &m->stacks, hash_stack) ||
            !match_grow(m, &m->stack, &m->cap_stack, m->n_stack + 1, sizeof *m->stack))
                return -1;
        m->stack[m->n_stack] = (Stack) { parent, elem, depth, set };
        uint32_t h = hash_stack(m, m->n_stack) & (uint32_t)(m->stacks.cap - 1);
        for (; m->stacks.slot[h]; h = (h + 1) & (uint32_t)(m->stacks.cap - 1)) {
                const Stack *s = &m->stack[m->stacks.slot[h] - 1];
                if (s->parent == parent && s->elem == elem && s->set == set)
                        return m->stacks.slot[h] - 1;
        }
        m->stacks.slot[h] = ++m->n_stack;
        m->stacks.n++;
        return m->n_stack - 1;
}

/* ---- states ---- */

static uint32_t hash_place(Place p) { return mix(mix(7, (uint32_t)p.elem), (uint32_t)p.stack); }

/* A place to look at; each once.  Places that read no byte are resolved by close_places. */
void match_add_place(Matcher *m, int elem, int stack)
{
        elem = m->g->same[elem];
        if ((m->n_place + 1) * 2 > m->seen_cap) {
                int cap = m->seen_cap ? m->seen_cap * 2 : 256;
                uint64_t *seen = calloc((size_t)cap, sizeof *seen);
                if (!seen || m->n_place >= GR_MAX_PLACES) {
                        free(seen);
                        m->no_memory = true; /* or too many places */
                        return;
                }
                for (int i = 0; i < m->n_place; i++) {
                        uint32_t h = hash_place(m->place[i]) & (uint32_t)(cap - 1);
                        while (seen[h])
                                h = (h + 1) & (uint32_t)(cap - 1);
                        seen[h] = m->seen_as | (uint32_t)(i + 1);
                }
                free(m->seen);
                m->seen = seen;
                m->seen_cap = cap;
        }
        const Place new = { elem, stack };
        uint32_t h = hash_place(new) & (uint32_t)(m->seen_cap - 1);
        for (; m->seen[h] > m->seen_as; h = (h + 1) & (uint32_t)(m->seen_cap - 1)) {
                const Place *p = &m->place[(uint32_t)m->seen[h] - 1];
                if (p->elem == elem && p->stack == stack)
                        return;
        }
        if (!match_grow(m, &m->place, &m->cap_place, m->n_place + 1, sizeof *m->place))
                return;
        m->place[m->n_place++] = new;
        m->seen[h] = m->seen_as | (uint32_t)m->n_place;
}

/* What was seen before has a smaller number in seen_as. */
void match_begin(Matcher *m)
{
        m->seen_as += (uint64_t)1 << 32;
        m->n_place = 0;
        m->complete = false;
}

/* The alternatives of a rule, from its first element on. */
static void add_rule(Matcher *m, int first, int stack)
{
        for (int k = first; stack >= 0; k++) {
                match_add_place(m, k, stack);
                while (!match_ends(&m->g->elem[k]))
                        k++;
                if (m->g->elem[k].kind == ELEM_END)
                        break;
        }
}

void match_return(Matcher *m, int stack)
{
        const Stack *s = &m->stack[stack];
        const int kind = m->g->elem[s->elem].kind;
        match_add_place(m, s->elem, kind == ELEM_MORE || kind == ELEM_NEXT ? stack : s->parent);
}

/* Others come behind those that must: a model that knows the schema by its masks alone would not
 * find these among all the names that there are. */
static bool others_come(const KeySet *k, uint64_t come)
{
        return k->other >= 0 && !(k->required & ~come);
}

/* Pairs of the set at elem (ELEM_KEYS) that have not come yet; behind: where all of them end. */
static void add_pairs(Matcher *m, int elem, int behind, uint64_t come)
{
        const KeySet *k = &m->g->keys[m->g->elem[elem].ref];
        for (int i = 0; i < k->n; i++)
                if (!(come >> i & 1))
                        add_rule(m, k->pair[i],
                                 match_push(m, behind, elem + 1, come | (uint64_t)1 << i));
        if (others_come(k, come))
                add_rule(m, k->other, match_push(m, behind, elem + 1, come));
}

/* A place at one of the three elements of a KeySet. */
static void close_keys(Matcher *m, Place p)
{
        const Elem *e = &m->g->elem[p.elem];
        const KeySet *k = &m->g->keys[e->ref];
        if (e->kind == ELEM_KEYS) {
                const int behind = match_push(m, p.stack, p.elem + 3, 0);
                if (!k->required && !k->some)
                        match_add_place(m, p.elem + 3, p.stack);
                if (behind >= 0)
                        add_rule(m, k->quote, match_push(m, behind, p.elem + 2, 0));
                return;
        }
        const uint64_t come = m->stack[p.stack].set;
        const int behind = m->stack[p.stack].parent;
        if (e->kind == ELEM_NEXT) {
                add_pairs(m, p.elem - 2, behind, come);
                return;
        }
        if (!(k->required & ~come))
                match_return(m, behind);
        if (others_come(k, come) || come != (k->n < 64 ? ((uint64_t)1 << k->n) - 1 : UINT64_MAX))
                add_rule(m, k->comma, match_push(m, behind, p.elem + 1, come));
}

/* Follow references and ends until every place reads a byte; those stay, the first n of place. */
static void close_places(Matcher *m)
{
        const Elem *elem = m->g->elem;
        int n = 0;
        for (int i = 0; i < m->n_place; i++) {
                const Place p = m->place[i];
                const Elem *e = &elem[p.elem];
                if (match_ends(e)) {
                        if (p.stack)
                                match_return(m, p.stack);
                        else
                                m->complete = true;
                } else if (e->kind == ELEM_REF) {
                        add_rule(m, e->ref,
                                 match_ends(e + 1) ? p.stack
                                                   : match_push(m, p.stack, p.elem + 1, 0));
                } else if (e->kind >= ELEM_KEYS) {
                        close_keys(m, p);
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

/* Few, or in order already, as they mostly are. */
static void sort_places(Place *p, int n)
{
        enum { FEW = 24 };
        int i = 1;
        while (i < n && by_place(&p[i - 1], &p[i]) <= 0)
                i++;
        if (i < n && n > FEW) {
                qsort(p, (size_t)n, sizeof *p, by_place);
                return;
        }
        for (; i < n; i++) {
                const Place x = p[i];
                int k = i;
                for (; k && by_place(&p[k - 1], &x) > 0; k--)
                        p[k] = p[k - 1];
                p[k] = x;
        }
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
int match_make_state(Matcher *m)
{
        close_places(m);
        if ((!m->n_place && !m->complete) || m->no_memory ||
            !match_table_grow(m, &m->states, hash_state))
                return -1;
        sort_places(m->place, m->n_place);
        uint32_t h = hash_places(m->place, m->n_place, m->complete) & (uint32_t)(m->states.cap - 1);
        size_t bytes = (size_t)m->n_place * sizeof *m->place;
        for (; m->states.slot[h]; h = (h + 1) & (uint32_t)(m->states.cap - 1)) {
                const State *s = &m->state[m->states.slot[h] - 1];
                if (s->n == m->n_place && s->complete == m->complete &&
                    (!bytes || !memcmp(s->place, m->place, bytes)))
                        return m->states.slot[h] - 1;
        }
        if (!match_grow(m, &m->state, &m->cap_state, m->n_state + 1, sizeof *m->state))
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

int match_step(Matcher *m, int from, unsigned char byte)
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
        match_begin(m);
        for (int i = 0; i < s->n; i++) {
                const Elem *e = &m->g->elem[s->place[i].elem];
                if (e->lo <= byte && byte <= e->hi)
                        match_add_place(m, s->place[i].elem + 1, s->place[i].stack);
                if (e->lo <= byte)
                        lo = e->lo > lo ? e->lo : lo;
                else
                        hi = e->lo - 1 < hi ? e->lo - 1 : hi;
                if (e->hi < byte)
                        lo = e->hi + 1 > lo ? e->hi + 1 : lo;
                else
                        hi = e->hi < hi ? e->hi : hi;
        }
        int to = m->n_place ? match_make_state(m) : -1;
        for (int i = lo; i <= hi; i++)
                m->state[from].next[i] = to; /* states may have moved */
        return to;
}

/* ---- what is kept ---- */

void match_free_states(Matcher *m)
{
        for (int i = 0; i < m->n_state; i++) {
                free(m->state[i].place);
                free(m->state[i].next);
                free(m->state[i].after);
                free(m->state[i].mask);
        }
        for (int i = 0; i < m->n_base; i++) {
                free(m->base[i].bits);
                free(m->base[i].token);
                free(m->base[i].leave);
        }
        m->n_state = m->n_base = 0;
}

/* Forget all but the current state. */
void match_forget(Matcher *m)
{
        int n = m->state[m->at].n;
        int *kept = malloc(((size_t)n * (3 * GR_MAX_DEPTH + 2) + 1) * sizeof *kept);
        size_t used = 0;
        if (!kept)
                return; /* it grows on */
        for (int i = 0; i < n; i++) {
                const Place *p = &m->state[m->at].place[i];
                size_t at = used++;
                kept[used++] = p->elem;
                kept[at] = 0;
                for (int s = p->stack; s; s = m->stack[s].parent, kept[at]++) {
                        kept[used++] = m->stack[s].elem;
                        kept[used++] = (int)(uint32_t)m->stack[s].set;
                        kept[used++] = (int)(m->stack[s].set >> 32);
                }
        }
        const bool complete = m->state[m->at].complete;
        match_free_states(m);
        m->mask_bytes = 0;
        m->n_stack = 1;
        Table *const table[] = { &m->stacks, &m->states, &m->bases };
        for (int i = 0; i < 3; i++) {
                Table *t = table[i];
                if (t->slot)
                        memset(t->slot, 0, (size_t)t->cap * sizeof *t->slot);
                t->n = 0;
        }
        match_begin(m);
        for (size_t i = 0; i < used;) {
                int depth = kept[i], elem = kept[i + 1], stack = 0;
                for (int k = depth - 1; k >= 0 && stack >= 0; k--) {
                        const int *x = &kept[i + 2 + 3 * (size_t)k];
                        stack = match_push(m, stack, *x,
                                           (uint32_t)x[1] | (uint64_t)(uint32_t)x[2] << 32);
                }
                if (stack >= 0)
                        match_add_place(m, elem, stack);
                i += 2 + 3 * (size_t)depth;
        }
        m->complete = complete;
        free(kept);
        /* close_places would add to `complete`; these places all read bytes */
        m->at = match_make_state(m);
        if (m->at < 0)
                m->no_memory = true;
}
