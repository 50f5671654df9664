/* tok_unigram.c: Unigram: splits a text into its most likely pieces.
 *
 * Viterbi over the bytes of the text: best[i] is the best score of text[0 .. i), with its last
 * piece.  A trie gives the pieces that start at a place.  A character that no piece covers scores
 * 10 below the worst piece; a run of such characters is one unknown token.
 *
 * Hugging Face sums in double.  sentencepiece sums in float and gives a user-defined piece the
 * score 0 (0.2.3 does; older versions gave it a bonus by its length). */
#include <math.h>
#include "tok.h"

#define UNKNOWN_PENALTY 10

/* ---- the trie: (node, byte) -> node in one hash table ---------------------------- */

enum { MAX_NODES = 1 << 24 }; /* a key is a node and a byte in 32 bits */

static TrieEdge *edge_at(const Trie *t, uint32_t node, unsigned char byte)
{
        uint32_t key = node << 8 | byte;
        size_t i = (size_t)((key ^ t->seed) * 0x9e3779b97f4a7c15u >> 32) & (t->n_slot - 1);

        while (t->edge[i].node && t->edge[i].key != key)
                i = (i + 1) & (t->n_slot - 1);
        return &t->edge[i];
}

static bool more_edges(Trie *t)
{
        Trie old = *t;

        if (t->n_node + 1 <= t->n_slot / 4 * 3)
                return true;
        t->n_slot = old.n_slot ? 2 * old.n_slot : 1024;
        if (!(t->edge = calloc(t->n_slot, sizeof *t->edge))) {
                *t = old;
                return false;
        }
        if (!t->seed)
                t->seed = (uint64_t)(uintptr_t)t->edge * 0xff51afd7ed558ccdu;
        for (size_t i = 0; i < old.n_slot; i++)
                if (old.edge[i].node)
                        *edge_at(t, old.edge[i].key >> 8,
                                 (unsigned char)old.edge[i].key) = old.edge[i];
        free(old.edge);
        return true;
}

/* Node 0 is the root; id_of[node] is the piece that ends there, or -1. */
static int trie_put(Trie *t, const char *s, size_t n, int id, Err *e)
{
        uint32_t node = 0;

        for (size_t i = 0; i < n; i++) {
                TrieEdge *edge;

                if (!more_edges(t))
                        return tok_no_memory(e);
                edge = edge_at(t, node, (unsigned char)s[i]);
                if (!edge->node) {
                        if (!t->id_of.n)
                                ints_put(&t->id_of, -1);
                        if (t->n_node + 2 >= MAX_NODES)
                                return err_set(e, TGC_BAD_FILE,
                                               "tokenizer: the pieces are too long together");
                        *edge = (TrieEdge) { node << 8 | (unsigned char)s[i],
                                             (uint32_t)++t->n_node };
                        ints_put(&t->id_of, -1);
                }
                node = edge->node;
        }
        if (t->id_of.bad)
                return tok_no_memory(e);
        if (node)
                t->id_of.p[node] = id;
        return TGC_OK;
}

/* ---- the model -------------------------------------------------------------------- */

int unigram_put(Unigram *u, int id, const char *s, size_t n, double score, int kind, Err *e)
{
        bool found = kind == TOK_NORMAL || kind == TOK_USER_DEFINED;

        if (!isfinite(score))
                return err_set(e, TGC_BAD_FILE,
                               "tokenizer: the score of piece %d '%.*s' is not a number", id,
                               n > 60 ? 60 : (int)n, s);
        if (id >= u->n) {
                int cap = u->n ? u->n : 1024;
                double *p;
                while (cap <= id)
                        cap *= 2;
                if (!(p = realloc(u->score, (size_t)cap * sizeof *p)))
                        return tok_no_memory(e);
                for (int i = u->n; i < cap; i++)
                        p[i] = 0;
                u->score = p;
                u->n = cap;
        }
        u->score[id] = kind == TOK_USER_DEFINED ? 0 : score;
        if (kind == TOK_NORMAL && !(u->any && u->worst < score)) {
                u->worst = score;
                u->any = true;
        }
        return found || !u->single ? trie_put(&u->trie, s, n, id, e) : TGC_OK;
}

void unigram_free(Unigram *u)
{
        free(u->score);
        free(u->trie.edge);
        ints_free(&u->trie.id_of);
        *u = (Unigram) { 0 };
}

/* ---- Viterbi ----------------------------------------------------------------------- */

/* A way to text[0 .. i) that is better than the one known is taken. */
static inline void offer(const Unigram *u, Best *to, double score, size_t from, int id)
{
        if (u->single)
                score = (float)score;
        if (to->id == NO_PIECE || score > to->score)
                *to = (Best) { score, (uint32_t)from, id };
}

static size_t char_len(const char *s, size_t n)
{
        uint32_t cp;
        size_t len = utf8_get(s, n, &cp);
        return len ? len : 1;
}

/* Fill best[1 .. n]. */
static void forward(const Unigram *u, const char *s, size_t n, Best *best)
{
        double unknown = u->single ? (float)((float)u->worst - (float)UNKNOWN_PENALTY)
                                   : u->worst - UNKNOWN_PENALTY;

        for (size_t i = 0; i <= n; i++)
                best[i] = (Best) { 0, 0, NO_PIECE };
        for (size_t i = 0, len; i < n; i += len) {
                double here = best[i].score;
                uint32_t node = 0;
                bool alone = false;

                len = char_len(s + i, n - i);
                for (size_t k = i; k < n && u->trie.n_slot;) {
                        const TrieEdge *edge = edge_at(&u->trie, node, (unsigned char)s[k++]);
                        int id;

                        if (!(node = edge->node))
                                break;
                        if ((id = u->trie.id_of.p[node]) < 0)
                                continue;
                        offer(u, &best[k], here + u->score[id], i, id);
                        alone |= k - i == len;
                }
                if (!alone)
                        offer(u, &best[i + len], here + unknown, i, UNKNOWN_PIECE);
        }
}

/* Unknown text s[from .. to): a piece of that text, bytes, or the unknown token. */
static void put_unknown(const Tokenizer *t, const char *s, size_t n, Ints *ids)
{
        size_t was = ids->n, i = 0;
        int id = vocab_find(&t->vocab, s, n);

        if (id >= 0 && !t->unigram.single) {
                ints_put(ids, id);
                return;
        }
        for (; t->byte_fallback && i < n; i++) {
                if (t->byte_id[(unsigned char)s[i]] < 0)
                        break;
                ints_put(ids, t->byte_id[(unsigned char)s[i]]);
        }
        if (i == n)
                return;
        ids->n = was;
        ints_put(ids, t->unk);
}

void encode_unigram(const Tokenizer *t, const char *s, size_t n, BestWork *w, Ints *ids)
{
        Best *best = w->best;

        if (n + 1 > w->cap) {
                if (n > INT32_MAX - 1 || !(best = realloc(w->best, (n + 1) * sizeof *best))) {
                        ids->bad = true;
                        return;
                }
                w->best = best;
                w->cap = n + 1;
        }
        forward(&t->unigram, s, n, best);
        w->ends.n = 0;
        for (size_t at = n; at; at = best[at].from)
                ints_put(&w->ends, (int)at);
        for (size_t i = w->ends.n; i-- > 0;) {
                size_t from = best[w->ends.p[i]].from;
                int id = best[w->ends.p[i]].id;

                if (id != UNKNOWN_PIECE && id != t->unk) {
                        ints_put(ids, id);
                        continue;
                }
                for (; i; i--) { /* as many unknown ones as follow */
                        id = best[w->ends.p[i - 1]].id;
                        if (id != UNKNOWN_PIECE && id != t->unk)
                                break;
                }
                put_unknown(t, s + from, (size_t)w->ends.p[i] - from, ids);
        }
        ids->bad |= w->ends.bad;
}
