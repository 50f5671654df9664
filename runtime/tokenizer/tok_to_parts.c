/* tok_to_parts.c: writes a tokenizer as the pieces that a GGUF file has.
 *
 * A GGUF file names how text is split (tok_pre.c); it does not hold the patterns.  So each name is
 * tried: the tokenizer that a reader would build from the parts must give the same ids for texts
 * that are hard to split, as in llama.cpp's converter.  For merges with byte fallback (Llama 2) the
 * parts have scores, by which any two neighbours join; a merge's rank is its score. */
#include <stdio.h>
#include "tok.h"

/* Contractions, digits, blanks, line ends, marks, scripts, accents apart, emoji with joiners. */
static const char *const probes[] = {
        "Hello, world! It's I'm you're WE'LL he'd THEY'VE don't O'Neil's 'tis",
        "1 12 123 1234 12345 123456 3.14159 1,000,000 0x1F 2026-11-25 \xd9\xa3\xd9\xa4\xd9\xa5 "
        "x2y3",
        " one  two   three    four     five      six\t\ttabs\t \t mixed ",
        "line\nline\n\nline\n\n\nline\r\nline\r\n\r\n \n  \n\t\nend\n",
        "  leading and trailing  ",
        "fn main() { if (a != b && c <= d) { x += y[0]->z; } } // end\n    return $1;",
        "http://www.example.com/a_b-c?d=e&f=g#h user@host.org #tag @name $5.00 50% (a) [b] {c}",
        "caf\xc3\xa9 na\xc3\xafve caf"
        "e\xcc\x81 \xc3\x85ngstr\xc3\xb6m Stra\xc3\x9f"
        "e \xc5\x93uvre",
        "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd0\xbc\xd0\xb8\xd1\x80! "
        "\xce\x93\xce\xb5\xce\xb9\xce\xac \xcf\x83\xce\xbf\xcf\x85 "
        "\xce\x9a\xcf\x8c\xcf\x83\xce\xbc\xce\xb5",
        "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82\xe6\x88\x91"
        "\xe7\x88\xb1 2024\xe5\xb9\xb4 \xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf"
        "\xe3\x82\xab\xe3\x82\xbf\xe3\x82\xab\xe3\x83\x8a \xec\x95\x88\xeb\x85\x95\xed\x95\x98"
        "\xec\x84\xb8\xec\x9a\x94",
        "\xd8\xa7\xd9\x84\xd8\xb3\xd9\x84\xd8\xa7\xd9\x85 \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xe0\xa4"
        "\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 \xe0\xb8\xaa\xe0\xb8\xa7"
        "\xe0\xb8\xb1\xe0\xb8\xaa\xe0\xb8\x94\xe0\xb8\xb5",
        "\xf0\x9f\x98\x80 "
        "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 "
        "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa \xe2\x9c\x85\xef\xb8\x8f \xe2\x82\xac 100 \xc2\xbd "
        "\xe2\x85\xa7 \xc2\xb2",
        "CamelCaseWord snake_case_word kebab-case-word ALLCAPS MixedCASEWord iPhone",
        "!!! ??? ... --- === *** ___ ~~~ ``` <<< >>> ;;; ,,, ::: \"quoted\" 'single' \xe2\x80\x9c"
        "curly\xe2\x80\x9d\xe2\x80\x94"
        "dash",
        "\xc2\xa0nbsp\xc2\xa0\xe3\x80\x80wide\xe2\x80\x83"
        "em\xe2\x80\x8bzero",
        "a b c d e f g h i j k l m n o p q r s t u v w x y z",
        " '\n 's\n!\n\n?\r\n",
        "word\n  indented\n    more\n\n  back",
        "\n",
        " ",
        "x",
        "   \n   ",
        "\t"
};
enum { N_PROBES = sizeof probes / sizeof *probes };

typedef struct Held {
        TokText *piece, *merge;
        float *score;
        int *kind;
        char *text; /* what no vocabulary has: merges, [PADn] */
        int n, n_merge;
} Held;

static int by_rank(const void *a, const void *b)
{
        const Pair *x = a, *y = b;
        return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The merges, best first; malloc'd.  NULL: no memory. */
static Pair *sorted_pairs(const Merges *m)
{
        Pair *p = malloc((m->n_pair + 1) * sizeof *p);
        size_t n = 0;
        for (size_t i = 0; p && i < m->n_slot; i++)
                if (m->pair[i].key)
                        p[n++] = m->pair[i];
        if (p)
                qsort(p, n, sizeof *p, by_rank);
        return p;
}

/* Everything in one piece of memory, so that one free() gives it back. */
static Held *held_new(const Tokenizer *t, int n, const Pair *pair)
{
        size_t text = 24 * (size_t)n, k;
        for (size_t i = 0; i < t->merges.n_pair; i++) {
                vocab_text(&t->vocab, pair[i].id, &k);
                text += k + 1;
        }
        const size_t n_merge = t->merges.n_pair,
                     all = sizeof(Held) + ((size_t)n + n_merge) * sizeof(TokText) +
                           (size_t)n * (sizeof(float) + sizeof(int)) + text;
        Held *h = malloc(all);
        if (!h)
                return NULL;
        *h = (Held) { .n = n, .n_merge = (int)n_merge };
        h->piece = (TokText *)(void *)(h + 1);
        h->merge = h->piece + n;
        h->score = (float *)(void *)(h->merge + n_merge);
        h->kind = (int *)(void *)(h->score + n);
        h->text = (char *)(h->kind + n);
        return h;
}

static void put_pieces(Held *h, const Tokenizer *t, char **text)
{
        for (int id = 0; id < h->n; id++) {
                size_t n = 0;
                const char *s = id < t->vocab.n ? vocab_text(&t->vocab, id, &n) : NULL;
                h->kind[id] = s ? TOK_NORMAL : TOK_UNUSED;
                h->score[id] = 0;
                if (!s) {
                        s = *text;
                        n = (size_t)sprintf(*text, "[PAD%d]", id);
                        *text += n;
                }
                h->piece[id] = (TokText) { s, n };
        }
        for (int i = 0; i < t->n_added; i++)
                h->kind[t->added[i].id] = t->added[i].special ? TOK_CONTROL : TOK_USER_DEFINED;
}

static void put_merges(Held *h, const Tokenizer *t, const Pair *pair, char **text)
{
        for (int i = 0; i < h->n_merge; i++) {
                const uint64_t key = pair[i].key - 1;
                size_t a, b;
                const char *left = vocab_text(&t->vocab, (int)(key >> 32), &a),
                           *right = vocab_text(&t->vocab, (int)(uint32_t)key, &b);
                memcpy(*text, left, a);
                (*text)[a] = ' ';
                memcpy(*text + a + 1, right, b);
                h->merge[i] = (TokText) { *text, a + 1 + b };
                *text += a + 1 + b;
        }
}

/* Joined by score: the first merge that makes a token says when. */
static void put_scores(Held *h, const Tokenizer *t, const Pair *pair)
{
        const Merges *m = &t->merges;
        for (int id = 0; id < h->n; id++)
                h->score[id] = m->by_text && id < t->vocab.n && m->rank_of[id] >= 0
                                       ? -(float)m->rank_of[id]
                                       : -1e9f;
        for (int i = h->n_merge - 1; i >= 0; i--)
                h->score[pair[i].id] = -(float)pair[i].rank;
        for (int b = 0; b < 256; b++)
                if (t->byte_fallback && t->byte_id[b] >= 0)
                        h->kind[t->byte_id[b]] = TOK_BYTE;
        if (t->unk >= 0 && t->unk < h->n)
                h->kind[t->unk] = TOK_UNKNOWN;
}

bool tok_cuts_alike(const Tokenizer *a, const Tokenizer *b)
{
        bool same = true;
        for (int i = 0; i < N_PROBES && same; i++) {
                int *x = NULL, *y = NULL, n = 0, m = 0;
                Err e;
                const size_t k = strlen(probes[i]);
                same = !tokenizer_encode(a, probes[i], k, 0, &x, &n, &e) &&
                       !tokenizer_encode(b, probes[i], k, 0, &y, &m, &e) && n == m &&
                       !memcmp(x, y, (size_t)n * sizeof *x);
                free(x);
                free(y);
        }
        return same;
}

static bool same_pattern(const Pattern *a, const Pattern *b)
{
        return a->known == b->known && a->set == b->set && a->n == b->n && !a->code && !b->code &&
               (!a->literal || !b->literal ? a->literal == b->literal
                                           : !memcmp(a->literal, b->literal, a->n));
}

/* The same steps by the same well-known patterns: a vocabulary may be too small to tell two ways of
 * cutting apart. */
static bool steps_alike(const Tokenizer *a, const Tokenizer *b)
{
        bool same = a->n_split == b->n_split && a->n_norm == b->n_norm &&
                    a->ignore_merges == b->ignore_merges;
        for (int i = 0; same && i < a->n_split; i++)
                same = a->split[i].op == b->split[i].op && a->split[i].cut == b->split[i].cut &&
                       a->split[i].invert == b->split[i].invert &&
                       same_pattern(&a->split[i].pattern, &b->split[i].pattern);
        return same;
}

/* Would a reader's tokenizer cut as t does?  steps: in the same way. */
static int try_parts(const Tokenizer *t, const TokParts *p, bool steps, bool *same, Err *e)
{
        Tokenizer *made;
        Err why;
        const int rc = tok_from_parts(&made, p, &why);
        *same = !rc && (!steps || steps_alike(t, made)) && tok_cuts_alike(t, made);
        tokenizer_free(made);
        return rc == TGC_NO_MEMORY ? err_set(e, rc, "%s", why.msg) : TGC_OK;
}

static int byte_level(const Tokenizer *t, TokParts *p, bool *same, Err *e)
{
        int rc = TGC_OK;
        p->model = "gpt2";
        for (int steps = 1; steps >= 0; steps--)
                for (int i = 0; !rc && !*same && tok_pre_name(i); i++) {
                        p->pre = tok_pre_name(i);
                        rc = try_parts(t, p, steps, same, e);
                }
        return rc;
}

static int by_score(const Tokenizer *t, TokParts *p, bool *same, Err *e)
{
        int rc = TGC_OK;
        p->model = "llama";
        p->pre = "default";
        p->n_merge = 0;
        for (int prefix = 1; !rc && !*same && prefix >= 0; prefix--) {
                p->add_space_prefix = prefix;
                rc = try_parts(t, p, false, same, e);
        }
        return rc;
}

static bool is_byte_level(const Tokenizer *t)
{
        bool is = t->to_bytes;
        for (int i = 0; i < t->n_split; i++)
                is |= t->split[i].op == SPLIT_BYTES;
        return is;
}

int tok_to_parts(const Tokenizer *t, int n, TokParts *out, void **owned, Err *e)
{
        Pair *pair = sorted_pairs(&t->merges);
        Held *h = pair ? held_new(t, n < t->vocab.n ? t->vocab.n : n, pair) : NULL;
        bool same = false;
        int rc = h ? TGC_OK : tok_no_memory(e);
        *owned = h;
        if (!rc && t->model != MODEL_BPE)
                rc = err_set(
                        e, TGC_USAGE,
                        "tokenizer: a vocabulary of this kind has no place in a GGUF file that "
                        "tgc writes; BPE has");
        if (!rc) {
                char *text = h->text;
                TokParts p = TOK_PARTS_NONE;
                put_pieces(h, t, &text);
                put_merges(h, t, pair, &text);
                p.piece = h->piece;
                p.n_piece = h->n;
                p.kind = h->kind;
                p.merge = h->merge;
                p.n_merge = h->n_merge;
                p.bos = t->bos;
                p.unk = t->unk;
                memcpy(p.eos, t->eos, sizeof p.eos);
                p.n_eos = t->n_eos;
                p.add_bos = t->bos >= 0 && t->adds_bos;
                p.add_eos = t->n_suffix > 0 && t->n_eos > 0;
                if (is_byte_level(t)) {
                        rc = byte_level(t, &p, &same, e);
                } else {
                        put_scores(h, t, pair);
                        p.score = h->score;
                        rc = by_score(t, &p, &same, e);
                }
                *out = p;
        }
        free(pair);
        if (!rc && !same)
                rc = err_set(
                        e, TGC_USAGE,
                        "tokenizer: no way to cut text that GGUF files have a name for gives the "
                        "same ids as this vocabulary");
        if (rc) {
                free(h);
                *owned = NULL;
        }
        return rc;
}
