/* tok_merge.c: byte pair merging in O(n log n).
 *
 * Symbols are a doubly linked list in an array.  A heap holds the pairs that could merge, lowest
 * rank first, then leftmost.  A merge leaves stale pairs in the heap.  A pair that comes up is
 * stale if its length has changed: a symbol only grows, so the pair at `at` has the length it had
 * when it was added exactly if both its halves are unchanged.
 *
 * A long text is cut first: if the bytes on both sides of a place never stand together in a merged
 * token, no merge crosses it.  Most ends of words are such places, and a heap for one word stays in
 * the cache. */
#include "tok.h"

/* ---- the table of pairs ------------------------------------------------------- */

static uint64_t pair_key(int left, int right)
{
        return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

static Pair *pair_slot(const Merges *m, uint64_t key)
{
        uint64_t h = (key ^ m->seed) * 0x9e3779b97f4a7c15u;
        size_t i;

        h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
        for (i = (size_t)(h >> 32) & (m->n_slot - 1); m->pair[i].key && m->pair[i].key != key;)
                i = (i + 1) & (m->n_slot - 1);
        return &m->pair[i];
}

static bool more_pairs(Merges *m)
{
        Merges old = *m;

        if (m->n_pair + 1 <= m->n_slot / 4 * 3)
                return true;
        m->n_slot = old.n_slot ? 2 * old.n_slot : 1024;
        if (!(m->pair = calloc(m->n_slot, sizeof *m->pair))) {
                *m = old;
                return false;
        }
        if (!m->seed)
                m->seed = (uint64_t)(uintptr_t)m->pair * 0xff51afd7ed558ccdu;
        for (size_t i = 0; i < old.n_slot; i++)
                if (old.pair[i].key)
                        *pair_slot(m, old.pair[i].key) = old.pair[i];
        free(old.pair);
        return true;
}

int merges_put(Merges *m, int left, int right, int rank, int id)
{
        uint64_t key = pair_key(left, right);
        Pair *p;

        if (!more_pairs(m))
                return TGC_NO_MEMORY;
        p = pair_slot(m, key);
        m->n_pair += !p->key;
        *p = (Pair) { key, rank, id };
        return TGC_OK;
}

void merges_free(Merges *m)
{
        free(m->pair);
        free(m->rank_of);
        *m = (Merges) { 0 };
}

static void note_meetings(Merges *m, const Vocab *v, int id)
{
        const char *s = v->text.p + v->at[id];

        for (uint32_t i = 1; i < v->len[id]; i++) {
                unsigned bit = (unsigned)(unsigned char)s[i - 1] << 8 | (unsigned char)s[i];
                m->meet[bit >> 3] |= (unsigned char)(1 << (bit & 7));
        }
}

void merges_seal(Merges *m, const Vocab *v)
{
        for (int id = 0; m->by_text && id < v->n; id++)
                if (v->at[id] != VOCAB_NONE && m->rank_of[id] >= 0)
                        note_meetings(m, v, id);
        for (size_t i = 0; i < m->n_slot; i++)
                if (m->pair[i].key)
                        note_meetings(m, v, m->pair[i].id);
}

/* ---- the heap ------------------------------------------------------------------ */

static bool before(Cand a, Cand b) { return a.rank != b.rank ? a.rank < b.rank : a.at < b.at; }

static void sift_down(Cand *h, size_t n, size_t i)
{
        Cand c = h[i];
        size_t k;

        while ((k = 2 * i + 1) < n) {
                if (k + 1 < n && before(h[k + 1], h[k]))
                        k++;
                if (!before(h[k], c))
                        break;
                h[i] = h[k];
                i = k;
        }
        h[i] = c;
}

static void sift_up(Cand *h, size_t i)
{
        Cand c = h[i];

        for (; i && before(c, h[(i - 1) / 2]); i = (i - 1) / 2)
                h[i] = h[(i - 1) / 2];
        h[i] = c;
}

/* ---- merging ------------------------------------------------------------------- */

#define NO_SYM UINT32_MAX
#define SHORT 24 /* symbols; up to here looking through them beats a heap */

void work_put(MergeWork *w, int id, uint32_t at, uint32_t len)
{
        if (w->n == w->cap) {
                size_t cap = w->cap ? 2 * w->cap : 64;
                Sym *p = w->bad ? NULL : realloc(w->sym, cap * sizeof *p);
                if (!p) {
                        w->bad = true;
                        return;
                }
                w->sym = p;
                w->cap = cap;
        }
        w->sym[w->n] = (Sym) { id, at, len, (uint32_t)w->n - 1, (uint32_t)w->n + 1 };
        w->n++;
}

/* What a and b, side by side, merge to; rank -1: they do not. */
static Cand merged(const Sym *a, const Sym *b, const Merges *m, const Vocab *v, const char *text)
{
        Cand c = { -1, -1, 0, a->len + b->len };

        if (m->by_text) {
                if ((c.id = vocab_find(v, text + a->at, c.len)) >= 0)
                        c.rank = m->rank_of[c.id];
        } else if (m->n_pair) {
                const Pair *p = pair_slot(m, pair_key(a->id, b->id));
                if (p->key) {
                        c.rank = p->rank;
                        c.id = p->id;
                }
        }
        return c;
}

/* Add symbol i and its right neighbour to the end of the heap, if they merge. */
static bool candidate(MergeWork *w, uint32_t i, const Merges *m, const Vocab *v, const char *text)
{
        const Sym *a = &w->sym[i];
        Cand c;

        if (a->next == NO_SYM)
                return false;
        c = merged(a, &w->sym[a->next], m, v, text);
        c.at = i;
        if (c.rank < 0)
                return false;
        w->heap[w->n_heap++] = c;
        return true;
}

/* Whether symbols i and i + 1, not merged yet, could end up in one token. */
static bool could_meet(const MergeWork *w, size_t i, const Merges *m, const Vocab *v,
                       const char *text)
{
        const Sym *a = &w->sym[i], *b = a + 1;
        unsigned left, right, bit;

        if (m->by_text) {
                left = (unsigned char)text[a->at + a->len - 1];
                right = (unsigned char)text[b->at];
        } else {
                if (!v->len[a->id] || !v->len[b->id])
                        return true;
                left = (unsigned char)v->text.p[v->at[a->id] + v->len[a->id] - 1];
                right = (unsigned char)v->text.p[v->at[b->id]];
        }
        bit = left << 8 | right;
        return m->meet[bit >> 3] >> (bit & 7) & 1;
}

/* Room for the pairs of n symbols: each but the last has one at first, and a merge
 * takes one out for at most two put in. */
static bool heap_room(MergeWork *w, size_t n)
{
        Cand *p;

        if (2 * n <= w->heap_cap)
                return true;
        if (!(p = realloc(w->heap, 4 * n * sizeof *p)))
                return false;
        w->heap = p;
        w->heap_cap = 4 * n;
        return true;
}

/* Merge within symbols from .. to - 1, whose list is cut off from the rest. */
static void merge_run(MergeWork *w, size_t from, size_t to, const Merges *m, const Vocab *v,
                      const char *text)
{
        w->n_heap = 0;
        for (size_t i = from; i < to; i++)
                candidate(w, (uint32_t)i, m, v, text);
        for (size_t i = w->n_heap / 2; i-- > 0;)
                sift_down(w->heap, w->n_heap, i);

        while (w->n_heap) {
                Cand c = w->heap[0];
                Sym *a = &w->sym[c.at], *b;

                w->heap[0] = w->heap[--w->n_heap];
                if (w->n_heap)
                        sift_down(w->heap, w->n_heap, 0);
                if (!a->len || a->next == NO_SYM)
                        continue;
                b = &w->sym[a->next];
                if (a->len + b->len != c.len)
                        continue;
                a->id = c.id;
                a->len = c.len;
                a->next = b->next;
                b->len = 0;
                if (a->next != NO_SYM)
                        w->sym[a->next].prev = c.at;
                if (candidate(w, c.at, m, v, text))
                        sift_up(w->heap, w->n_heap - 1);
                if (a->prev != NO_SYM && candidate(w, a->prev, m, v, text))
                        sift_up(w->heap, w->n_heap - 1);
        }
}

/* The same for few symbols: look through all pairs for the next merge; no list, no heap. */
static void merge_short(Sym *sym, size_t n, const Merges *m, const Vocab *v, const char *text,
                        Ints *ids)
{
        Cand pair[SHORT]; /* of symbols i and i + 1 */
        size_t best;

        for (size_t i = 0; i + 1 < n; i++)
                pair[i] = merged(&sym[i], &sym[i + 1], m, v, text);
        for (;;) {
                best = n;
                for (size_t i = 0; i + 1 < n; i++)
                        if (pair[i].rank >= 0 && (best == n || pair[i].rank < pair[best].rank))
                                best = i;
                if (best == n)
                        break;
                sym[best].id = pair[best].id;
                sym[best].len = pair[best].len;
                n--;
                memmove(sym + best + 1, sym + best + 2, (n - best - 1) * sizeof *sym);
                memmove(pair + best, pair + best + 1, (n - best - 1) * sizeof *pair);
                if (best + 1 < n)
                        pair[best] = merged(&sym[best], &sym[best + 1], m, v, text);
                if (best)
                        pair[best - 1] = merged(&sym[best - 1], &sym[best], m, v, text);
        }
        for (size_t i = 0; i < n; i++)
                ints_put(ids, sym[i].id);
}

void work_merge(MergeWork *w, const Merges *m, const Vocab *v, const char *text, Ints *ids)
{
        for (size_t from = 0, to; from < w->n && !w->bad; from = to) {
                for (to = from + 1; to < w->n && could_meet(w, to - 1, m, v, text);)
                        to++;
                if (to - from <= SHORT) {
                        merge_short(w->sym + from, to - from, m, v, text, ids);
                        continue;
                }
                if (!heap_room(w, to - from)) {
                        w->bad = true;
                        return;
                }
                w->sym[from].prev = w->sym[to - 1].next = NO_SYM;
                merge_run(w, from, to, m, v, text);
                for (size_t i = from; i != NO_SYM; i = w->sym[i].next)
                        ints_put(ids, w->sym[i].id);
        }
        w->n = 0;
}

void work_free(MergeWork *w)
{
        free(w->sym);
        free(w->heap);
        *w = (MergeWork) { 0 };
}
