/* token_trie.c: all tokens of a vocabulary, by their bytes. */
#include <stdlib.h>
#include <string.h>
#include "token_trie.h"

enum {
        MAX_TOKEN_BYTES = 1024, /* longer ones never come */
        MANY = 2048             /* plain tokens of which a mask is kept */
};

typedef struct Sorted {
        const char *p;
        size_t n;
        int token;
} Sorted;

static int by_bytes(const void *x, const void *y)
{
        const Sorted *a = x, *b = y;
        int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
        return c ? c : a->n != b->n ? (a->n < b->n ? -1 : 1) : a->token - b->token;
}

static void add_nodes(TokenTrie *t, const Sorted *s, int n)
{
        int path[MAX_TOKEN_BYTES + 1], depth = 0; /* nodes of the last token */
        for (int i = 0; i < n; i++) {
                int same = 0;
                while (i && same < depth && same < (int)s[i].n && s[i].p[same] == s[i - 1].p[same])
                        same++;
                while (depth > same)
                        t->node[path[depth--]].end = t->n_node;
                for (; depth < (int)s[i].n; t->n_node++) {
                        t->node[t->n_node] = (TrieNode) { .tokens = i,
                                                          .depth = (short)(depth + 1),
                                                          .byte = (unsigned char)s[i].p[depth] };
                        path[++depth] = t->n_node;
                }
                t->order[i] = s[i].token;
                t->deepest = depth > t->deepest ? depth : t->deepest;
        }
        while (depth > 0)
                t->node[path[depth--]].end = t->n_node;
        t->node[t->n_node].tokens = n;
}

const struct PlainForm plain_form[N_PLAIN_FORMS] = {
        { 1, { 0x20 }, { 0x21 } },
        { 1, { 0x23 }, { 0x5b } },
        { 1, { 0x5d }, { 0x7f } },
        { 2, { 0xc2, 0x80 }, { 0xdf, 0xbf } },
        { 3, { 0xe0, 0xa0, 0x80 }, { 0xe0, 0xbf, 0xbf } },
        { 3, { 0xe1, 0x80, 0x80 }, { 0xec, 0xbf, 0xbf } },
        { 3, { 0xed, 0x80, 0x80 }, { 0xed, 0x9f, 0xbf } }, /* no surrogates */
        { 3, { 0xee, 0x80, 0x80 }, { 0xef, 0xbf, 0xbf } },
        { 4, { 0xf0, 0x90, 0x80, 0x80 }, { 0xf0, 0xbf, 0xbf, 0xbf } },
        { 4, { 0xf1, 0x80, 0x80, 0x80 }, { 0xf3, 0xbf, 0xbf, 0xbf } },
        { 4, { 0xf4, 0x80, 0x80, 0x80 }, { 0xf4, 0x8f, 0xbf, 0xbf } },
};

/* The most plain characters of a token at or below node i, whose byte is byte k of a character of
 * that form. */
static int plain_at(const TokenTrie *t, int i, const struct PlainForm *f, int k)
{
        const TrieNode *n = &t->node[i];
        int most = 0;
        if (n->byte < f->lo[k] || n->byte > f->hi[k])
                return NOT_PLAIN;
        if (k == f->n - 1)
                return n->plain == NOT_PLAIN ? NOT_PLAIN : n->plain + 1;
        if (n->tokens != t->node[i + 1].tokens) /* one ends within the character */
                return NOT_PLAIN;
        for (int c = i + 1; c < n->end; c = t->node[c].end) {
                const int of = plain_at(t, c, f, k + 1);
                if (of == NOT_PLAIN)
                        return NOT_PLAIN;
                most = of > most ? of : most;
        }
        return most;
}

/* Nodes below a node come behind it. */
static void mark_plain(TokenTrie *t)
{
        for (int i = t->n_node - 1; i >= 0; i--) {
                int most = 0;
                for (int c = i + 1; c < t->node[i].end && most != NOT_PLAIN; c = t->node[c].end) {
                        int k = 0;
                        while (k + 1 < N_PLAIN_FORMS && t->node[c].byte > plain_form[k].hi[0])
                                k++;
                        const int of = plain_at(t, c, &plain_form[k], 0);
                        most = of == NOT_PLAIN ? NOT_PLAIN : of > most ? of : most;
                }
                t->node[i].plain = (signed char)(most > TOK_PLAIN ? NOT_PLAIN : most);
        }
}

/* ---- plain tokens, and the rest ---- */

/* What comes behind a character's first k bytes, of form f; -1: no plain character begins so. */
typedef struct Partial {
        int form, k;
} Partial;

static Partial read_byte(Partial p, unsigned char byte)
{
        if (p.form < 0)
                return p;
        if (!p.k)
                while (p.form + 1 < N_PLAIN_FORMS && byte > plain_form[p.form].hi[0])
                        p.form++;
        const struct PlainForm *f = &plain_form[p.form];
        if (byte < f->lo[p.k] || byte > f->hi[p.k])
                return (Partial) { -1, 0 };
        return p.k + 1 < f->n ? (Partial) { p.form, p.k + 1 } : (Partial) { 0, 0 };
}

/* Its characters, or NOT_PLAIN. */
static int plain_chars(const TokenTrie *t, int token)
{
        Partial p = { 0, 0 };
        int n = 0;
        for (size_t i = t->at[token]; i < t->at[token + 1]; i++) {
                p = read_byte(p, (unsigned char)t->bytes[i]);
                n += p.form >= 0 && !p.k;
        }
        return p.form < 0 || p.k || n > TOK_PLAIN ? NOT_PLAIN : n;
}

/* node.most and whole_at.  chars: of each token of `order`, or NOT_PLAIN; most and above are
 * scratch, of each node: the characters of its longest plain token, and those up to it. */
static void count_plain(TokenTrie *t, const int *chars, int *most, short *above)
{
        Partial path[MAX_TOKEN_BYTES + 1] = { { 0, 0 } };
        int before[MAX_TOKEN_BYTES + 1] = { 0 }, n_whole = 0;
        for (int i = 0, k = 0; i <= t->n_node; i++) {
                TrieNode *n = &t->node[i];
                for (; k < n->tokens; k++)
                        if (chars[k] != NOT_PLAIN)
                                t->whole[n_whole++] = t->order[k];
                t->whole_at[i] = n_whole;
                if (i == t->n_node)
                        break;
                path[n->depth] = read_byte(path[n->depth - 1], n->byte);
                const Partial p = path[n->depth];
                before[n->depth] = before[n->depth - 1] + (p.form >= 0 && !p.k);
                n->most = p.form >= 0 && !p.k ? 0 : NOT_PLAIN;
                above[i] = (short)before[n->depth];
        }
        /* what stands below a node comes behind it */
        for (int i = t->n_node - 1; i >= 0; i--) {
                TrieNode *n = &t->node[i];
                most[i] = NOT_PLAIN;
                for (int k = n->tokens; k < t->node[i + 1].tokens; k++)
                        most[i] = chars[k] > most[i] ? chars[k] : most[i];
                for (int c = i + 1; c < n->end; c = t->node[c].end)
                        most[i] = most[c] > most[i] ? most[c] : most[i];
                t->most = most[i] > t->most ? most[i] : t->most;
                if (n->most != NOT_PLAIN)
                        n->most = (signed char)(most[i] == NOT_PLAIN ? NOT_PLAIN
                                                                     : most[i] - above[i]);
        }
}

/* The trie of the tokens that are not plain; n of them stand in `order` before each token. */
static int make_rest(TokenTrie *t, const int *before, Err *e)
{
        int n = 0;
        for (int i = 0; i < t->n_node; i++)
                n += before[t->node[i].tokens] != before[t->node[t->node[i].end].tokens];
        t->rest = malloc(((size_t)n + 1) * sizeof *t->rest);
        t->rest_node = malloc(((size_t)n + 1) * sizeof *t->rest_node);
        if (!t->rest || !t->rest_node)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d tokens", t->vocab);
        for (int i = 0; i <= t->n_node; i++) {
                const TrieNode *x = &t->node[i];
                t->rest_at[i] = t->n_rest;
                if (i < t->n_node && before[x->tokens] != before[t->node[x->end].tokens]) {
                        t->rest_node[t->n_rest] = i;
                        t->rest[t->n_rest] = *x;
                        t->rest[t->n_rest++].tokens = before[x->tokens];
                }
        }
        for (int i = 0; i < t->n_rest; i++)
                t->rest[i].end = t->rest_at[t->rest[i].end];
        t->rest[t->n_rest] = (TrieNode) { .tokens = before[t->node[t->n_node].tokens] };
        return TGC_OK;
}

static int plain_below(const TokenTrie *t, int i)
{
        return t->whole_at[t->node[i].end] - t->whole_at[i];
}

static int make_masks(TokenTrie *t, Err *e)
{
        const size_t words = ((size_t)t->vocab + 31) / 32;
        int n = 0;
        for (int i = 0; i < t->n_node; i++)
                n += plain_below(t, i) >= MANY;
        t->many = malloc(((size_t)n + 1) * sizeof *t->many);
        t->mask = calloc(((size_t)n + 1) * words + 1, sizeof *t->mask);
        if (!t->many || !t->mask)
                return err_set(e, TGC_NO_MEMORY, "no memory for %d tokens", t->vocab);
        for (int i = 0; i <= t->n_node; i++) {
                const bool all = i == t->n_node;
                if (!all && plain_below(t, i) < MANY)
                        continue;
                uint32_t *bits = t->mask + (size_t)t->n_many * words;
                for (int k = all ? 0 : t->whole_at[i]; k < t->whole_at[all ? i : t->node[i].end];
                     k++)
                        bits[t->whole[k] / 32] |= 1u << t->whole[k] % 32;
                if (!all)
                        t->many[t->n_many++] = i;
        }
        return TGC_OK;
}

/* n: tokens in `order` */
static int part(TokenTrie *t, int n, Err *e)
{
        const size_t N = (size_t)t->n_node + 1;
        int code = TGC_OK, *chars = malloc(((size_t)n + 1) * sizeof *chars),
            *before = malloc(((size_t)n + 1) * sizeof *before), *most = malloc(N * sizeof *most);
        short *above = malloc(N * sizeof *above);
        t->whole = malloc(((size_t)n + 1) * sizeof *t->whole);
        t->rest_order = malloc(((size_t)n + 1) * sizeof *t->rest_order);
        t->whole_at = malloc(N * sizeof *t->whole_at);
        t->rest_at = malloc(N * sizeof *t->rest_at);
        if (!chars || !before || !most || !above || !t->whole || !t->rest_order || !t->whole_at ||
            !t->rest_at) {
                code = err_set(e, TGC_NO_MEMORY, "no memory for %d tokens", t->vocab);
        } else {
                int n_rest = 0;
                for (int k = 0; k < n; k++) {
                        before[k] = n_rest;
                        chars[k] = plain_chars(t, t->order[k]);
                        if (chars[k] == NOT_PLAIN)
                                t->rest_order[n_rest++] = t->order[k];
                }
                before[n] = n_rest;
                count_plain(t, chars, most, above);
                code = make_rest(t, before, e);
        }
        free(most);
        free(above);
        free(chars);
        free(before);
        return code ? code : make_masks(t, e);
}

static int by_number(const void *x, const void *y)
{
        const int *a = x, *b = y;
        return (*a > *b) - (*a < *b);
}

void token_trie_plain(const TokenTrie *t, int i, uint32_t *bits)
{
        const size_t words = ((size_t)t->vocab + 31) / 32;
        const int *many = NULL;
        if (i >= 0 && plain_below(t, i) < MANY) {
                for (int k = t->whole_at[i]; k < t->whole_at[t->node[i].end]; k++)
                        bits[t->whole[k] / 32] |= 1u << t->whole[k] % 32;
                return;
        }
        if (i >= 0)
                many = bsearch(&i, t->many, (size_t)t->n_many, sizeof i, by_number);
        const uint32_t *mask = t->mask +
                               (many ? (size_t)(many - t->many) : (size_t)t->n_many) * words;
        for (size_t k = 0; k < words; k++)
                bits[k] |= mask[k];
}

/* A node's own tokens are those up to the next node's first. */
static int build(TokenTrie *t, Err *e)
{
        Sorted *s = malloc(((size_t)t->vocab + 1) * sizeof *s);
        size_t bytes = 0;
        int n = 0;
        for (int i = 0; s && i < t->vocab; i++) {
                size_t len = t->at[i + 1] - t->at[i];
                if (len && len <= MAX_TOKEN_BYTES)
                        s[n++] = (Sorted) { t->bytes + t->at[i], len, i }, bytes += len;
        }
        t->node = malloc((bytes + 1) * sizeof *t->node);
        t->order = malloc(((size_t)n + 1) * sizeof *t->order);
        if (!s || !t->node || !t->order) {
                free(s);
                return err_set(e, TGC_NO_MEMORY, "no memory for %d tokens", t->vocab);
        }
        qsort(s, (size_t)n, sizeof *s, by_bytes);
        add_nodes(t, s, n);
        mark_plain(t);
        free(s);
        TrieNode *less = realloc(t->node, ((size_t)t->n_node + 1) * sizeof *less);
        t->node = less ? less : t->node;
        return part(t, n, e);
}

int token_trie_of(TokenTrie **out, const char *const *bytes, const size_t *n, int vocab,
                  const int *eos, int n_eos, Err *e)
{
        TokenTrie *t = calloc(1, sizeof *t);
        size_t total = 0;
        int code = TGC_OK;
        *out = NULL;
        for (int i = 0; i < vocab; i++)
                total += n[i];
        if (t) {
                t->vocab = vocab;
                t->at = calloc((size_t)vocab + 1, sizeof *t->at);
                t->bytes = malloc(total + 1);
        }
        if (!t || !t->at || !t->bytes) {
                token_trie_free(t);
                return err_set(e, TGC_NO_MEMORY, "no memory for %d tokens", vocab);
        }
        for (int i = 0; i < vocab; i++) {
                if (n[i])
                        memcpy(t->bytes + t->at[i], bytes[i], n[i]);
                t->at[i + 1] = t->at[i] + n[i];
        }
        for (int i = 0; i < n_eos && i < TOK_MAX_EOS; i++)
                if (eos[i] >= 0 && eos[i] < vocab)
                        t->eos[t->n_eos++] = eos[i];
        if ((code = build(t, e)))
                token_trie_free(t);
        else
                *out = t;
        return code;
}

int token_trie_new(TokenTrie **t, const Tokenizer *tok, int vocab, Err *e)
{
        const int *eos, n_eos = tokenizer_eos(tok, &eos);
        const char **bytes = calloc((size_t)vocab + 1, sizeof *bytes);
        size_t *n = calloc((size_t)vocab + 1, sizeof *n);
        int code = bytes && n ? TGC_OK
                              : err_set(e, TGC_NO_MEMORY, "no memory for %d tokens", vocab);
        for (int i = 0; i < vocab && !code; i++) {
                TokStream middle = { 1, 1 };
                bool ends = false;
                for (int k = 0; k < n_eos; k++)
                        ends |= eos[k] == i;
                if (!ends && i < tokenizer_vocab(tok))
                        bytes[i] = tokenizer_next(tok, &middle, i, &n[i]);
        }
        if (!code)
                code = token_trie_of(t, bytes, n, vocab, eos, n_eos, e);
        free(bytes);
        free(n);
        return code;
}

void token_trie_free(TokenTrie *t)
{
        if (!t)
                return;
        free(t->node);
        free(t->order);
        free(t->rest);
        free(t->rest_node);
        free(t->rest_at);
        free(t->whole_at);
        free(t->rest_order);
        free(t->whole);
        free(t->many);
        free(t->mask);
        free(t->bytes);
        free(t->at);
        free(t);
}
