/* token_trie.c: all tokens of a vocabulary, by their bytes. */
#include <stdlib.h>
#include <string.h>
#include "token_trie.h"

enum { MAX_TOKEN_BYTES = 1024 }; /* longer ones never come */

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
                                                          .depth = depth + 1,
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

/* The most plain characters of a token at or below node i, whose byte is byte k of a character of that
 * form. */
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
                t->node[i].plain = (short)most;
        }
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
        return TGC_OK;
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
        free(t->bytes);
        free(t->at);
        free(t);
}
