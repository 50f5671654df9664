/* match_walk.c: walks the trie of tokens along the states of a matcher: the tokens that a state
 * takes, and the nodes at which its stacks end.
 *
 * Where a state takes any plain characters (token_trie.h), as within JSON's strings, plain tokens
 * are taken by masks and only the rest is walked. */
#include <stdlib.h>
#include <string.h>
#include "match_impl.h"

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

void match_take(const int *order, int from, int to, uint32_t *bits)
{
        for (int k = from; k < to; k++)
                bits[order[k] / 32] |= 1u << order[k] % 32;
}

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
                        match_take(order, n->tokens, node[i + 1].tokens, w->bits);
                        i++;
                        continue;
                }
                m->path[n->depth] = s;
                m->path_next[n->depth] = m->state[s].next;
                const bool leaves = w->leave && m->state[s].complete;
                if (n->plain > 0 && !leaves && takes_plain(m, s, n->plain, w->leave)) {
                        match_take(order, n->tokens, node[n->end].tokens, w->bits);
                        i = n->end;
                        continue;
                }
                if (!rest && n->most > 0 && !leaves && walk_plain(m, s, i, n->most, w)) {
                        i = n->end;
                        continue;
                }
                match_take(order, n->tokens, node[i + 1].tokens, w->bits);
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

void match_walk_all(Matcher *m, int state, const Walk *w)
{
        if (w->leave && m->state[state].complete)
                walk(m, state, 0, m->t->n_node, 0, w, false);
        else if (!walk_plain(m, state, -1, m->t->most, w))
                walk(m, state, 0, m->t->n_node, 0, w, false);
}

void match_walk_leaves(Matcher *m, int base, int rest, const Walk *w)
{
        for (int i = 0; i < m->base[base].n_leave && rest >= 0; i++) {
                const int node = m->base[base].leave[i];
                const TrieNode *n = &m->t->node[node];
                if (w->leave && m->state[rest].complete) {
                        if (!match_grow(m, &w->leave->leave, w->cap, w->leave->n_leave + 1,
                                        sizeof *w->leave->leave))
                                return;
                        w->leave->leave[w->leave->n_leave++] = node;
                } else if (n->plain > 0 && takes_plain(m, rest, n->plain, w->leave)) {
                        match_take(m->t->order, n[1].tokens, m->t->node[n->end].tokens, w->bits);
                        continue;
                } else if (walk_plain(m, rest, node, n->most, w)) {
                        continue;
                }
                walk(m, rest, node + 1, n->end, n->depth, w, false);
        }
}
