/* match_mask.c: makes the mask of tokens that may come next in a text (matcher_mask).
 *
 * The mask of a place depends on its stack only for tokens that leave its rule (xgrammar's
 * context-independent tokens).  So it is made once, for the place with an empty stack: a bit for
 * each token that stays within or ends with the rule, and the nodes of the trie at which the rule
 * ends.  For a place with a stack, the tokens below these nodes are walked from where the stack
 * continues. */
#include <stdlib.h>
#include <string.h>
#include "match_impl.h"

enum { FEW_PLACES = 2 }; /* more are walked together */

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
                few_add(to, match_step(m, from, (unsigned char)byte));
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
                        s = match_step(m, m->path[n->depth - 1], n->byte);
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
                if (leaves && match_grow(m, &w->leave->leave, w->cap, w->leave->n_leave + 1,
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
        if (!match_grow(m, &m->base, &m->cap_base, m->n_base + 1, sizeof *m->base))
                return NULL;
        Base b = { .elem = elem, .bits = calloc(match_words(m), 4) };
        int cap = 0;
        match_begin(m);
        match_add_place(m, elem, 0);
        int s = match_make_state(m);
        if (!b.bits || s < 0) {
                free(b.bits);
                m->no_memory = true;
                return NULL;
        }
        m->mask_bytes += match_words(m) * 4;
        walk_all(m, s, &(Walk) { b.bits, &b, &cap });
        m->base[m->n_base] = b;
        m->base_of[elem] = ++m->n_base;
        return &m->base[m->n_base - 1];
}

static void mask_of_place(Matcher *m, Place p, uint32_t *bits)
{
        const Base *b = base_for(m, p.elem);
        for (size_t i = 0; b && i < match_words(m); i++)
                bits[i] |= b->bits[i];
        if (!b || !p.stack || !b->n_leave)
                return;
        match_begin(m);
        match_add_place(m, m->stack[p.stack].elem, m->stack[p.stack].parent);
        int rest = match_make_state(m);
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
