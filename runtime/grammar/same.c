/* same.c: finds elements of a grammar that continue alike.
 *
 * Two elements are the same if all that follows up to the end of their alternatives is the same.
 * Two rules are the same if their alternatives are.  A matcher that keeps one of each meets fewer
 * states.  For example, what stands behind the first byte of a character is the same after every
 * prefix of a property's name. */
#include <stdlib.h>
#include <string.h>
#include "rules.h"

enum { ROUNDS = 8 }; /* rules of equal rules become equal in the next one */

typedef struct Slots {
        int *slot; /* 1 + an element */
        uint32_t mask;
} Slots;

static uint32_t mix(uint32_t h, uint32_t x)
{
        h = (h ^ x) * 0x9e3779b1u;
        return h ^ h >> 15;
}

static bool ends(const Elem *e) { return e->kind == ELEM_END || e->kind == ELEM_ALT; }

/* Of each element, from the last to the first; all ends are the last one. */
static void same_elements(Grammar *g, Slots t)
{
        memset(t.slot, 0, ((size_t)t.mask + 1) * sizeof *t.slot);
        for (int i = g->n - 1; i >= 0; i--) {
                const Elem *e = &g->elem[i];
                if (ends(e)) {
                        g->same[i] = g->n - 1;
                        continue;
                }
                uint32_t h = mix(mix(e->kind, (uint32_t)e->lo << 8 | e->hi), (uint32_t)e->ref);
                h = mix(h, (uint32_t)g->same[i + 1]) & t.mask;
                for (; t.slot[h]; h = (h + 1) & t.mask) {
                        const int k = t.slot[h] - 1;
                        const Elem *x = &g->elem[k];
                        if (x->kind == e->kind && x->lo == e->lo && x->hi == e->hi &&
                            x->ref == e->ref && g->same[k + 1] == g->same[i + 1])
                                break;
                }
                if (!t.slot[h])
                        t.slot[h] = i + 1;
                g->same[i] = t.slot[h] - 1;
        }
}

/* The next alternative of a rule, or -1. */
static int next_alternative(const Grammar *g, int i)
{
        while (!ends(&g->elem[i]))
                i++;
        return g->elem[i].kind == ELEM_ALT ? i + 1 : -1;
}

static bool same_rule(const Grammar *g, int a, int b)
{
        while (a >= 0 && b >= 0 && g->same[a] == g->same[b]) {
                a = next_alternative(g, a);
                b = next_alternative(g, b);
        }
        return a < 0 && b < 0;
}

/* References to equal rules become references to one of them.  rule: of each first element, the
 * one. */
static bool same_rules(Grammar *g, Slots t, int *rule)
{
        bool changed = false;
        memset(t.slot, 0, ((size_t)t.mask + 1) * sizeof *t.slot);
        for (int i = 0; i < g->n; i++) {
                uint32_t h = 1;
                for (int k = i; k >= 0; k = next_alternative(g, k))
                        h = mix(h, (uint32_t)g->same[k]);
                for (h &= t.mask; t.slot[h] && !same_rule(g, t.slot[h] - 1, i);)
                        h = (h + 1) & t.mask;
                if (!t.slot[h])
                        t.slot[h] = i + 1;
                rule[i] = t.slot[h] - 1;
                while (g->elem[i].kind != ELEM_END)
                        i++;
        }
        for (int i = 0; i < g->n; i++)
                if (g->elem[i].kind == ELEM_REF && rule[g->elem[i].ref] != g->elem[i].ref) {
                        g->elem[i].ref = rule[g->elem[i].ref];
                        changed = true;
                }
        for (int i = 0; i < g->n_keys; i++) { /* what they say is not compared */
                KeySet *k = &g->keys[i];
                for (int j = 0; j < k->n; j++)
                        k->pair[j] = rule[k->pair[j]];
                k->quote = rule[k->quote];
                k->comma = rule[k->comma];
                k->other = k->other < 0 ? -1 : rule[k->other];
        }
        return changed;
}

int gr_same(Grammar *g)
{
        Slots t = { NULL, 15 };
        while ((int64_t)t.mask < 2 * (int64_t)g->n)
                t.mask = 2 * t.mask + 1;
        t.slot = malloc(((size_t)t.mask + 1) * sizeof *t.slot);
        int *rule = malloc((size_t)g->n * sizeof *rule);
        g->same = malloc((size_t)g->n * sizeof *g->same);
        const bool room = t.slot && rule && g->same;
        if (room) {
                same_elements(g, t);
                for (int i = 0; i < ROUNDS && same_rules(g, t, rule); i++)
                        same_elements(g, t);
        }
        free(t.slot);
        free(rule);
        return room ? TGC_OK : TGC_NO_MEMORY;
}
