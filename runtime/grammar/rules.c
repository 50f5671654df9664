/* rules.c: builds rules from code points, repetitions and references, and checks that a grammar is
 * sound. */
#include <stdlib.h>
#include <string.h>
#include "rules.h"

static bool fail(Build *b, const char *what, int most)
{
        if (!b->code)
                b->code = err_set(b->e, TGC_BAD_FILE, "the grammar is too large: more than %d %s",
                                  most, what);
        return false;
}

static bool room(Build *b, int rule)
{
        Rule *r = &b->rule[rule];
        if (b->code)
                return false;
        if (++b->n_elem > GR_MAX_ELEMS)
                return fail(b, "elements", GR_MAX_ELEMS);
        if (r->n + 1 < r->cap)
                return true;
        int cap = r->cap * 2 + 4;
        Elem *p = realloc(r->elem, (size_t)cap * sizeof *p);
        if (!p) {
                b->code = err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
                return false;
        }
        r->elem = p;
        r->cap = cap;
        return true;
}

void gr_begin(Build *b, Err *e)
{
        *b = (Build) { .e = e };
        gr_rule(b);
}

int gr_rule(Build *b)
{
        if (b->code)
                return 0;
        if (b->n >= GR_MAX_RULES) {
                fail(b, "rules", GR_MAX_RULES);
                return 0;
        }
        if (b->n == b->cap) {
                int cap = b->cap * 2 + 64;
                Rule *p = realloc(b->rule, (size_t)cap * sizeof *p);
                if (!p) {
                        b->code = err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
                        return 0;
                }
                b->rule = p;
                b->cap = cap;
        }
        b->rule[b->n] = (Rule) { 0 };
        return b->n++;
}

void gr_alt(Build *b, int rule)
{
        if (room(b, rule))
                b->rule[rule].elem[b->rule[rule].n++] = (Elem) { .kind = ELEM_ALT };
}

void gr_bytes(Build *b, int rule, int lo, int hi)
{
        if (room(b, rule))
                b->rule[rule].elem[b->rule[rule].n++] = (Elem) { ELEM_BYTES, (unsigned char)lo,
                                                                 (unsigned char)hi, 0 };
}

void gr_ref(Build *b, int rule, int ref)
{
        if (room(b, rule))
                b->rule[rule].elem[b->rule[rule].n++] = (Elem) { .kind = ELEM_REF, .ref = ref };
}

void gr_text(Build *b, int rule, const char *text, size_t n)
{
        for (size_t i = 0; i < n; i++)
                gr_bytes(b, rule, (unsigned char)text[i], (unsigned char)text[i]);
}

void gr_keys(Build *b, int rule, const KeySet *k)
{
        if (b->code)
                return;
        if (b->n_keys == b->cap_keys) {
                int cap = b->cap_keys * 2 + 16;
                KeySet *p = realloc(b->keys, (size_t)cap * sizeof *p);
                if (!p) {
                        b->code = err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
                        return;
                }
                b->keys = p;
                b->cap_keys = cap;
        }
        b->keys[b->n_keys] = *k;
        for (int kind = ELEM_KEYS; kind <= ELEM_NEXT; kind++)
                if (room(b, rule))
                        b->rule[rule].elem[b->rule[rule].n++] = (Elem) {
                                .kind = (unsigned char)kind, .ref = b->n_keys
                        };
        b->n_keys++;
}

/* ---- UTF-8 ---- */

int char_read(const char *p, size_t n, uint32_t *c)
{
        const unsigned char *s = (const unsigned char *)p;
        static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
        int len = !n          ? 0
                  : *s < 0x80 ? 1
                  : *s < 0xc0 ? 0
                  : *s < 0xe0 ? 2
                  : *s < 0xf0 ? 3
                  : *s < 0xf8 ? 4
                              : 0;
        if (!len || (size_t)len > n)
                return 0;
        *c = len == 1 ? *s : *s & (0xff >> (len + 1));
        for (int i = 1; i < len; i++) {
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
                *c = *c << 6 | (s[i] & 0x3f);
        }
        return *c < least[len] || *c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000) ? 0 : len;
}

int char_write(uint32_t c, char *to)
{
        int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (int i = n - 1; i > 0; i--, c >>= 6)
                to[i] = (char)(0x80 | (c & 0x3f));
        to[0] = (char)(n == 1 ? c : (0xf00 >> n & 0xff) | c);
        return n;
}

/* Code points of one length of UTF-8: split until first and last byte sequences are a product of
 * ranges. */
static void add_range(Build *b, int rule, uint32_t lo, uint32_t hi, bool *first)
{
        char x[4], y[4];
        int n = char_write(lo, x);
        char_write(hi, y);
        for (int i = 1; i < n; i++) {
                uint32_t m = (1u << 6 * i) - 1;
                if ((lo & ~m) == (hi & ~m))
                        continue;
                if (lo & m) {
                        add_range(b, rule, lo, lo | m, first);
                        add_range(b, rule, (lo | m) + 1, hi, first);
                        return;
                }
                if ((hi & m) != m) {
                        add_range(b, rule, lo, (hi & ~m) - 1, first);
                        add_range(b, rule, hi & ~m, hi, first);
                        return;
                }
        }
        if (!*first)
                gr_alt(b, rule);
        *first = false;
        for (int i = 0; i < n; i++)
                gr_bytes(b, rule, (unsigned char)x[i], (unsigned char)y[i]);
}

static void add_code_points(Build *b, int rule, uint32_t lo, uint32_t hi, bool *first)
{
        static const uint32_t edge[] = { 0, 0x80, 0x800, 0xd800, 0xe000, 0x10000, 0x110000 };
        for (int i = 0; i < 6; i++) {
                uint32_t from = lo > edge[i] ? lo : edge[i],
                         to = hi < edge[i + 1] - 1 ? hi : edge[i + 1] - 1;
                if (i != 3 && from <= to)
                        add_range(b, rule, from, to, first);
        }
}

static int by_low(const void *x, const void *y)
{
        const CharRange *a = x, *b = y;
        return a->lo < b->lo ? -1 : a->lo > b->lo;
}

int gr_class(Build *b, const CharRange *r, int n, bool negated)
{
        int rule = gr_rule(b);
        bool first = true;
        CharRange *s = malloc(((size_t)n + 1) * sizeof *s);
        uint32_t next = 0;
        if (!s) {
                b->code = err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
                return rule;
        }
        if (n)
                memcpy(s, r, (size_t)n * sizeof *s);
        qsort(s, (size_t)n, sizeof *s, by_low);
        for (int i = 0; i < n && !b->code; i++) {
                uint32_t lo = s[i].lo > next ? s[i].lo : next;
                if (negated && s[i].lo > next)
                        add_code_points(b, rule, next, s[i].lo - 1, &first);
                else if (!negated && lo <= s[i].hi)
                        add_code_points(b, rule, lo, s[i].hi, &first);
                next = s[i].hi + 1 > next ? s[i].hi + 1 : next;
        }
        if (negated && next <= 0x10ffff)
                add_code_points(b, rule, next, 0x10ffff, &first);
        free(s);
        if (first) /* nothing: bytes that no text has */
                gr_bytes(b, rule, 0xff, 0xff);
        return rule;
}

int gr_repeat(Build *b, int what, int min, int max)
{
        int rule = gr_rule(b), rest = -1;
        for (int i = 0; i < min && !b->code; i++)
                gr_ref(b, rule, what);
        if (max < 0 && what == b->any_char && b->any_chars) {
                rest = b->any_chars; /* same.c finds no rules equal that refer to themselves */
        } else if (max < 0) {
                rest = gr_rule(b);
                gr_ref(b, rest, what);
                gr_ref(b, rest, rest);
                gr_alt(b, rest);
                if (what && what == b->any_char)
                        b->any_chars = rest;
        }
        for (int i = min; i < max && !b->code; i++) { /* the innermost first */
                int more = gr_rule(b);
                gr_ref(b, more, what);
                if (rest >= 0)
                        gr_ref(b, more, rest);
                gr_alt(b, more);
                rest = more;
        }
        if (rest >= 0)
                gr_ref(b, rule, rest);
        return rule;
}

/* ---- soundness ---- */

typedef struct Check {
        Build *b;
        char *nullable, *ends; /* (rules) */
        int *mark;             /* 0 not seen, 1 on the way, 2 done */
} Check;

static bool keys_may_be_none(const KeySet *k) { return !k->required && !k->some; }

static bool keys_end(const Check *c, const KeySet *k)
{
        bool one = k->other >= 0 && c->ends[k->other];
        for (int i = 0; i < k->n; i++) {
                one |= c->ends[k->pair[i]];
                if (k->required >> i & 1 && !c->ends[k->pair[i]])
                        return false;
        }
        return one || !k->some;
}

/* Fixed points: which rules match nothing at all, and which match something finite. */
static void find_facts(Check *c)
{
        for (bool more = true; more;) {
                more = false;
                for (int r = c->b->n - 1; r >= 0; r--) {
                        const Rule *x = &c->b->rule[r];
                        bool nothing = true, ends = true;
                        for (int i = 0; i <= x->n; i++) {
                                const Elem *e = i < x->n ? &x->elem[i] : NULL;
                                if (e && e->kind == ELEM_BYTES) {
                                        nothing = false;
                                } else if (e && e->kind == ELEM_REF) {
                                        nothing = nothing && c->nullable[e->ref];
                                        ends = ends && c->ends[e->ref];
                                } else if (e && e->kind == ELEM_KEYS) {
                                        const KeySet *k = &c->b->keys[e->ref];
                                        nothing = nothing && keys_may_be_none(k);
                                        ends = ends && keys_end(c, k);
                                } else if (e && e->kind > ELEM_KEYS) {
                                        continue;
                                } else {
                                        more |= (nothing && !c->nullable[r]) ||
                                                (ends && !c->ends[r]);
                                        c->nullable[r] |= nothing;
                                        c->ends[r] |= ends;
                                        nothing = ends = true;
                                }
                        }
                }
        }
}

/* A rule that reaches itself before any byte, other than as the last element behind others that may
 * be empty, makes stacks grow without reading: refused.  Depth-first with an explicit stack. */
typedef struct Step {
        int rule, at;
        bool start, bad; /* at the alternative's start; the edge to here was of the bad kind */
} Step;

static int find_recursion(Check *c)
{
        Step *s = malloc(((size_t)c->b->n + 1) * sizeof *s);
        int found = -1, n = 0;
        if (!s)
                return -2;
        for (int r = 0; r < c->b->n && found < 0; r++) {
                if (c->mark[r])
                        continue;
                s[n++] = (Step) { r, 0, true, false };
                c->mark[r] = 1;
                while (n && found < 0) {
                        Step *t = &s[n - 1];
                        const Rule *x = &c->b->rule[t->rule];
                        if (t->at >= x->n) {
                                c->mark[t->rule] = 2;
                                n--;
                                continue;
                        }
                        const Elem *e = &x->elem[t->at++];
                        if (e->kind == ELEM_ALT) {
                                t->start = true;
                        } else if (e->kind >= ELEM_KEYS && keys_may_be_none(&c->b->keys[e->ref])) {
                                t->start = false;
                        } else if (e->kind != ELEM_REF) {
                                while (t->at < x->n && x->elem[t->at].kind != ELEM_ALT)
                                        t->at++;
                        } else {
                                bool last = t->at >= x->n || x->elem[t->at].kind == ELEM_ALT,
                                     bad = t->start || !last;
                                t->start = false;
                                if (!c->nullable[e->ref])
                                        while (t->at < x->n && x->elem[t->at].kind != ELEM_ALT)
                                                t->at++;
                                if (c->mark[e->ref] == 1) {
                                        for (int k = n - 1; k >= 0 && s[k].rule != e->ref; k--)
                                                bad |= s[k].bad;
                                        if (bad)
                                                found = e->ref;
                                } else if (!c->mark[e->ref]) {
                                        c->mark[e->ref] = 1;
                                        s[n++] = (Step) { e->ref, 0, true, bad };
                                }
                        }
                }
        }
        free(s);
        return found;
}

static int check(Build *b, const char *file, const char *(*name_of)(void *, int), void *user)
{
        size_t n = (size_t)b->n;
        Check c = { b, calloc(n, 1), calloc(n, 1), calloc(n, sizeof(int)) };
        int code = TGC_OK;
        if (!c.nullable || !c.ends || !c.mark) {
                code = err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
        } else {
                find_facts(&c);
                int r = find_recursion(&c);
                const char *name = r >= 0 && name_of ? name_of(user, r) : NULL;
                if (r == -2)
                        code = err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
                else if (r >= 0)
                        code = err_set(b->e, TGC_BAD_FILE,
                                       "%s: left recursion: rule %s begins with itself; write the "
                                       "repetition with * or +",
                                       file, name ? name : "of a group");
                for (int i = 0; i < b->n && !code; i++)
                        if (!c.ends[i]) {
                                name = name_of ? name_of(user, i) : NULL;
                                code = err_set(b->e, TGC_BAD_FILE,
                                               "%s: %s never ends: each alternative needs it again",
                                               file, name ? name : "a group");
                        }
        }
        free(c.nullable);
        free(c.ends);
        free(c.mark);
        return code;
}

static int flatten(Build *b, Grammar **out)
{
        size_t n = 0;
        int *start = malloc((size_t)b->n * sizeof *start);
        Grammar *g = calloc(1, sizeof *g);
        for (int r = 0; r < b->n && start; r++) {
                start[r] = (int)n;
                n += (size_t)b->rule[r].n + 1;
        }
        if (g) {
                g->elem = malloc(n * sizeof *g->elem);
                g->keys = malloc(((size_t)b->n_keys + 1) * sizeof *g->keys);
        }
        if (!start || !g || !g->elem || !g->keys) {
                free(start);
                grammar_free(g);
                return err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
        }
        for (int r = 0; r < b->n; r++) {
                for (int i = 0; i < b->rule[r].n; i++) {
                        Elem e = b->rule[r].elem[i];
                        if (e.kind == ELEM_REF)
                                e.ref = start[e.ref];
                        g->elem[g->n++] = e;
                }
                g->elem[g->n++] = (Elem) { .kind = ELEM_END };
        }
        for (int i = 0; i < b->n_keys; i++) {
                KeySet *k = &g->keys[g->n_keys++];
                *k = b->keys[i];
                for (int j = 0; j < k->n; j++)
                        k->pair[j] = start[k->pair[j]];
                k->quote = start[k->quote];
                k->comma = start[k->comma];
                k->other = k->other < 0 ? -1 : start[k->other];
        }
        free(start);
        if (gr_same(g)) {
                grammar_free(g);
                return err_set(b->e, TGC_NO_MEMORY, "no memory for a grammar");
        }
        *out = g;
        return TGC_OK;
}

int gr_end(Build *b, Grammar **g, const char *file, const char *(*name_of)(void *, int), void *user)
{
        int code = b->code ? b->code : check(b, file, name_of, user);
        if (!code)
                code = flatten(b, g);
        gr_free(b);
        return code;
}

void gr_free(Build *b)
{
        for (int r = 0; r < b->n; r++)
                free(b->rule[r].elem);
        free(b->rule);
        free(b->keys);
        b->rule = NULL;
        b->keys = NULL;
        b->n = b->n_keys = 0;
}

void grammar_free(Grammar *g)
{
        if (g) {
                free(g->elem);
                free(g->keys);
                free(g->same);
        }
        free(g);
}
