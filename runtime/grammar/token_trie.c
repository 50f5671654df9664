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
