/* tok_train.c: learns a byte-level BPE from text.
 *
 * Text is split into words as GPT-2 splits it (special tokens are cut out whole), and each word
 * counts as often as it occurs.  Then, repeatedly, the most frequent pair of neighbours becomes a
 * token.  On a tie, the pair whose bytes are greatest wins; the left token is compared first.
 *
 * A pair stores its count and the words it may occur in.  A heap gives the most frequent pair.
 * Every pair with a count has an entry of at least that count.  An outdated entry is put back with
 * the current count. */
#include <stdio.h>
#include "tok.h"
#include "tok_regex.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

/* symbols at .. at + n of TokTrainer.sym */
typedef struct Word {
        uint32_t at, n;
        int64_t count;
} Word;

typedef struct PairCount {
        int left, right; /* left -1: empty */
        int64_t count;
        Ints words;    /* where it may stand */
        size_t pushed; /* by this merge, counted from 1 */
} PairCount;

typedef struct Entry {
        int64_t count;
        int left, right;
} Entry;

struct TokTrainer {
        int vocab_size, n_special;
        AddedSet special;
        Added *added; /* (n_special) */
        Pattern pattern;
        Vocab token; /* raw bytes, without the special tokens: id of a byte is the byte */
        Vocab name;  /* special tokens */

        Word *word;
        size_t n_word, cap_word;
        uint32_t *slot; /* words by their bytes: index + 1 */
        size_t n_slot;
        Buf text; /* of the words; sym's bytes while they are counted */
        Ints sym;
        uint64_t bytes; /* of text read */

        PairCount *pair;
        size_t n_pair, pair_slots;
        Entry *heap;
        size_t n_heap, heap_cap;
        Ints merges; /* left, right, left, right ... */
};

void tok_trainer_free(TokTrainer *t)
{
        if (!t)
                return;
        for (size_t i = 0; i < t->pair_slots; i++)
                ints_free(&t->pair[i].words);
        added_free(&t->special);
        pattern_free(&t->pattern);
        vocab_free(&t->token);
        vocab_free(&t->name);
        buf_free(&t->text);
        ints_free(&t->sym);
        ints_free(&t->merges);
        free(t->added);
        free(t->word);
        free(t->slot);
        free(t->pair);
        free(t->heap);
        free(t);
}

static int put_special(TokTrainer *t, const char *s, int id, Err *e)
{
        size_t n = strlen(s);
        uint32_t cp;
        int rc;

        if (!n || utf8_valid(s, n) != n)
                return err_set(e, TGC_USAGE, "a special token should be UTF-8 text, not '%.60s'",
                               s);
        if (utf8_get(s, n, &cp) == n && byte_level_byte(cp) >= 0)
                return err_set(e, TGC_USAGE,
                               "special token '%s' is the name of a byte in this vocabulary", s);
        if ((rc = vocab_put(&t->name, id, s, n)) != VOCAB_OK)
                return rc == VOCAB_SAME_TEXT
                               ? err_set(e, TGC_USAGE, "special token '%.60s' is given twice", s)
                               : tok_no_memory(e);
        t->added[id] = (Added) { .id = id, .special = true };
        return added_put(&t->special, s, n, id, e);
}

int tok_trainer_new(TokTrainer **out, int vocab_size, const char *const *special, int n_special,
                    Err *e)
{
        TokTrainer *t = *out = calloc(1, sizeof *t);
        int rc = TGC_OK;

        if (!t || !(t->added = calloc((size_t)n_special + 1, sizeof *t->added)))
                rc = tok_no_memory(e);
        else if (vocab_size < 256 + n_special || vocab_size > TOK_MAX_VOCAB)
                rc = err_set(e, TGC_USAGE,
                             "a vocabulary of %d; 256 bytes and %d special tokens are in it "
                             "anyway, so %d to %d are possible",
                             vocab_size, n_special, 256 + n_special, TOK_MAX_VOCAB);
        if (rc == TGC_OK) {
                t->vocab_size = vocab_size;
                t->n_special = n_special;
                rc = pattern_regex(&t->pattern, RE_GPT2, e);
        }
        for (int b = 0; b < 256 && rc == TGC_OK; b++)
                if (vocab_put(&t->token, b, (char[]) { (char)b }, 1) != VOCAB_OK)
                        rc = tok_no_memory(e);
        for (int i = 0; i < n_special && rc == TGC_OK; i++)
                rc = put_special(t, special[i], i, e);
        if (rc != TGC_OK) {
                tok_trainer_free(t);
                *out = NULL;
        }
        return rc;
}

/* ---- counting words --------------------------------------------------------------- */

static bool more_word_slots(TokTrainer *t)
{
        size_t n = t->n_slot ? 2 * t->n_slot : 4096;
        uint32_t *slot;

        if (t->n_word + 1 <= t->n_slot / 2)
                return true;
        if (!(slot = calloc(n, sizeof *slot)))
                return false;
        for (size_t i = 0; i < t->n_word; i++) {
                const Word *w = &t->word[i];
                size_t k = (size_t)XXH3_64bits(t->text.p + w->at, w->n) & (n - 1);
                while (slot[k])
                        k = (k + 1) & (n - 1);
                slot[k] = (uint32_t)i + 1;
        }
        free(t->slot);
        t->slot = slot;
        t->n_slot = n;
        return true;
}

static bool count_word(TokTrainer *t, const char *s, size_t n)
{
        size_t k;

        if (!n)
                return true;
        if (!more_word_slots(t) || t->text.n + n > INT32_MAX)
                return false;
        for (k = (size_t)XXH3_64bits(s, n) & (t->n_slot - 1); t->slot[k];
             k = (k + 1) & (t->n_slot - 1)) {
                Word *w = &t->word[t->slot[k] - 1];
                if (w->n == n && !memcmp(t->text.p + w->at, s, n)) {
                        w->count++;
                        return true;
                }
        }
        if (t->n_word == t->cap_word) {
                size_t cap = t->cap_word ? 2 * t->cap_word : 1024;
                Word *p = realloc(t->word, cap * sizeof *p);
                if (!p)
                        return false;
                t->word = p;
                t->cap_word = cap;
        }
        t->word[t->n_word] = (Word) { (uint32_t)t->text.n, (uint32_t)n, 1 };
        buf_put(&t->text, s, n);
        t->slot[k] = (uint32_t)++t->n_word;
        return !t->text.bad;
}

/* A stretch between special tokens. */
static int count_stretch(TokTrainer *t, Scan *scan, const char *s, size_t n, Err *e)
{
        size_t at = 0, from, to;
        int more;

        scan_text(scan, s, n);
        do {
                if ((more = scan_next(scan, &from, &to, e)) < 0)
                        return e ? e->code : TGC_FAIL;
                if (!more)
                        from = to = n;
                if (!count_word(t, s + at, from - at) || !count_word(t, s + from, to - from))
                        return tok_no_memory(e);
                at = to;
        } while (more);
        return TGC_OK;
}

int tok_trainer_add(TokTrainer *t, const char *text, size_t n, Err *e)
{
        size_t pos = 0, done = 0, from, to;
        int which, rc;
        Scan scan;

        if ((rc = scan_open(&scan, &t->pattern, e)) != TGC_OK)
                return rc;
        while (rc == TGC_OK &&
               added_next(&t->special, t->added, text, n, &pos, &from, &to, &which)) {
                rc = count_stretch(t, &scan, text + done, from - done, e);
                done = to;
        }
        if (rc == TGC_OK)
                rc = count_stretch(t, &scan, text + done, n - done, e);
        scan_close(&scan);
        t->bytes += n;
        return rc;
}

/* ---- pairs and their heap ------------------------------------------------------------ */

static PairCount *find_pair(const TokTrainer *t, int left, int right)
{
        uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
        size_t i = (size_t)(h ^ h >> 32) & (t->pair_slots - 1);

        while (t->pair[i].left >= 0 && (t->pair[i].left != left || t->pair[i].right != right))
                i = (i + 1) & (t->pair_slots - 1);
        return &t->pair[i];
}

static bool more_pair_slots(TokTrainer *t)
{
        PairCount *old = t->pair;
        size_t n = t->pair_slots;

        if (t->n_pair + 1 <= n / 2)
                return true;
        t->pair_slots = n ? 2 * n : 4096;
        if (!(t->pair = malloc(t->pair_slots * sizeof *t->pair))) {
                t->pair = old;
                t->pair_slots = n;
                return false;
        }
        for (size_t i = 0; i < t->pair_slots; i++)
                t->pair[i] = (PairCount) { .left = -1 };
        for (size_t i = 0; i < n; i++)
                if (old[i].left >= 0)
                        *find_pair(t, old[i].left, old[i].right) = old[i];
        free(old);
        return true;
}

/* Whether a comes out of the heap before b. */
static bool before(const TokTrainer *t, Entry a, Entry b)
{
        const Vocab *v = &t->token;
        int ids[2][2] = { { a.left, b.left }, { a.right, b.right } };

        if (a.count != b.count)
                return a.count > b.count;
        for (int i = 0; i < 2; i++) {
                int x = ids[i][0], y = ids[i][1];
                uint32_t n = v->len[x] < v->len[y] ? v->len[x] : v->len[y];
                int order = x == y ? 0 : memcmp(v->text.p + v->at[x], v->text.p + v->at[y], n);
                if (order || v->len[x] != v->len[y])
                        return order ? order > 0 : v->len[x] > v->len[y];
        }
        return false;
}

static bool heap_push(TokTrainer *t, Entry c)
{
        size_t i = t->n_heap;

        if (t->n_heap == t->heap_cap) {
                size_t cap = t->heap_cap ? 2 * t->heap_cap : 4096;
                Entry *p = realloc(t->heap, cap * sizeof *p);
                if (!p)
                        return false;
                t->heap = p;
                t->heap_cap = cap;
        }
        t->n_heap++;
        for (; i && before(t, c, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
                t->heap[i] = t->heap[(i - 1) / 2];
        t->heap[i] = c;
        return true;
}

static Entry heap_pop(TokTrainer *t)
{
        Entry top = t->heap[0], last = t->heap[--t->n_heap];
        size_t i = 0, k;

        while ((k = 2 * i + 1) < t->n_heap) {
                if (k + 1 < t->n_heap && before(t, t->heap[k + 1], t->heap[k]))
                        k++;
                if (!before(t, t->heap[k], last))
                        break;
                t->heap[i] = t->heap[k];
                i = k;
        }
        if (t->n_heap)
                t->heap[i] = last;
        return top;
}

/* The neighbours of a word count `by` times more; a pair that is new to it remembers it. */
static bool count_pairs(TokTrainer *t, uint32_t w, int64_t by, int fresh)
{
        const int *s = t->sym.p + t->word[w].at;

        for (uint32_t i = 0; i + 1 < t->word[w].n; i++) {
                PairCount *p;

                if (!more_pair_slots(t))
                        return false;
                p = find_pair(t, s[i], s[i + 1]);
                if (p->left < 0) {
                        *p = (PairCount) { .left = s[i], .right = s[i + 1] };
                        t->n_pair++;
                }
                p->count += by;
                if (by < 0 || (fresh >= 0 && s[i] != fresh && s[i + 1] != fresh))
                        continue;
                if (!p->words.n || p->words.p[p->words.n - 1] != (int)w)
                        ints_put(&p->words, (int)w);
                if (p->words.bad)
                        return false;
        }
        return true;
}

/* Every pair of a word with the new token gets an entry; so does what counts more than before. */
static bool push_pairs(TokTrainer *t, uint32_t w, int fresh)
{
        const int *s = t->sym.p + t->word[w].at;

        for (uint32_t i = 0; i + 1 < t->word[w].n; i++)
                if (s[i] == fresh || s[i + 1] == fresh) {
                        PairCount *p = find_pair(t, s[i], s[i + 1]);
                        if (p->pushed == t->merges.n)
                                continue;
                        p->pushed = t->merges.n;
                        if (!heap_push(t, (Entry) { p->count, s[i], s[i + 1] }))
                                return false;
                }
        return true;
}

/* ---- learning ------------------------------------------------------------------------- */

static void join(TokTrainer *t, uint32_t w, int left, int right, int token)
{
        int *s = t->sym.p + t->word[w].at;
        uint32_t n = 0;

        for (uint32_t i = 0; i < t->word[w].n; n++)
                if (i + 1 < t->word[w].n && s[i] == left && s[i + 1] == right) {
                        s[n] = token;
                        i += 2;
                } else {
                        s[n] = s[i++];
                }
        t->word[w].n = n;
}

/* The id of left and right together, a new one unless other halves made it before. */
static int token_of(TokTrainer *t, int left, int right, Err *e, int *rc)
{
        const Vocab *v = &t->token;
        Buf b = { 0 };
        int id = -1;

        buf_put(&b, v->text.p + v->at[left], v->len[left]);
        buf_put(&b, v->text.p + v->at[right], v->len[right]);
        if (!b.bad && (id = vocab_find(v, b.p, b.n)) < 0 &&
            vocab_put(&t->token, v->n, b.p, b.n) == VOCAB_OK)
                id = t->token.n - 1;
        buf_free(&b);
        *rc = id < 0 ? tok_no_memory(e) : TGC_OK;
        return id;
}

static int merge_pair(TokTrainer *t, Entry c, Err *e)
{
        int rc, token = token_of(t, c.left, c.right, e, &rc);
        Ints words;

        if (rc != TGC_OK)
                return rc;
        ints_put(&t->merges, c.left);
        ints_put(&t->merges, c.right);
        words = find_pair(t, c.left, c.right)->words;
        find_pair(t, c.left, c.right)->words = (Ints) { 0 };
        for (size_t i = 0; i < words.n && rc == TGC_OK; i++) {
                uint32_t w = (uint32_t)words.p[i];
                int64_t count = t->word[w].count;
                if (!count_pairs(t, w, -count, token))
                        rc = tok_no_memory(e);
                join(t, w, c.left, c.right, token);
                if (rc == TGC_OK && !count_pairs(t, w, count, token))
                        rc = tok_no_memory(e);
        }
        for (size_t i = 0; i < words.n && rc == TGC_OK; i++)
                if (!push_pairs(t, (uint32_t)words.p[i], token))
                        rc = tok_no_memory(e);
        ints_free(&words);
        return rc == TGC_OK && t->merges.bad ? tok_no_memory(e) : rc;
}

static int learn(TokTrainer *t, Err *e)
{
        int rc = TGC_OK;

        for (size_t i = 0; i < t->text.n; i++)
                ints_put(&t->sym, (unsigned char)t->text.p[i]);
        if (t->sym.bad)
                return tok_no_memory(e);
        buf_free(&t->text);
        for (size_t w = 0; w < t->n_word; w++)
                if (!count_pairs(t, (uint32_t)w, t->word[w].count, -1))
                        return tok_no_memory(e);
        for (size_t i = 0; i < t->pair_slots; i++)
                if (t->pair[i].left >= 0 &&
                    !heap_push(t, (Entry) { t->pair[i].count, t->pair[i].left, t->pair[i].right }))
                        return tok_no_memory(e);
        while (rc == TGC_OK && t->n_heap && t->token.n + t->n_special < t->vocab_size) {
                Entry c = heap_pop(t);
                int64_t count = find_pair(t, c.left, c.right)->count;

                if (!count)
                        continue;
                if (count != c.count) {
                        c.count = count;
                        rc = heap_push(t, c) ? TGC_OK : tok_no_memory(e);
                        continue;
                }
                rc = merge_pair(t, c, e);
        }
        return rc;
}

/* ---- writing ---------------------------------------------------------------------------- */

void tok_put_json(Buf *out, const char *s, size_t n)
{
        char hex[8];

        buf_put(out, "\"", 1);
        for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)s[i];
                if (c == '"' || c == '\\')
                        buf_put(out, "\\", 1);
                if (c >= 0x20)
                        buf_put(out, s + i, 1);
                else
                        buf_put(out, hex, (size_t)snprintf(hex, sizeof hex, "\\u%04x", c));
        }
        buf_put(out, "\"", 1);
}

void tok_put_text(Buf *out, const char *s) { buf_put(out, s, strlen(s)); }

void tok_put_id(Buf *out, int id)
{
        char s[16];
        buf_put(out, s, (size_t)snprintf(s, sizeof s, "%d", id));
}

/* A token's bytes as byte-level characters. */
static void put_token(const TokTrainer *t, int token, Buf *b, Buf *out)
{
        b->n = 0;
        put_byte_level(t->token.text.p + t->token.at[token], t->token.len[token], b);
        out->bad |= b->bad;
        tok_put_json(out, b->p, b->n);
}

/* Special tokens first, then the bytes in the order of their characters, then what was learned. */
static void put_vocab(const TokTrainer *t, Buf *b, Buf *out)
{
        int id = 0;

        for (; id < t->n_special; id++) {
                size_t n;
                const char *s = vocab_text(&t->name, id, &n);
                tok_put_text(out, id ? "," : "");
                tok_put_json(out, s, n);
                tok_put_text(out, ":");
                tok_put_id(out, id);
        }
        for (uint32_t cp = 0; cp < 0x180; cp++)
                if (byte_level_byte(cp) >= 0) {
                        tok_put_text(out, id ? "," : "");
                        put_token(t, byte_level_byte(cp), b, out);
                        tok_put_text(out, ":");
                        tok_put_id(out, id++);
                }
        for (int token = 256; token < t->token.n; token++) {
                tok_put_text(out, ",");
                put_token(t, token, b, out);
                tok_put_text(out, ":");
                tok_put_id(out, id++);
        }
}

/* A special token must not be what a token of bytes is called. */
static int check_names(const TokTrainer *t, Buf *b, Err *e)
{
        for (int token = 256; token < t->token.n; token++) {
                b->n = 0;
                put_byte_level(t->token.text.p + t->token.at[token], t->token.len[token], b);
                if (!b->bad && vocab_find(&t->name, b->p, b->n) >= 0)
                        return err_set(e, TGC_USAGE,
                                       "special token '%.*s' is the name of bytes that were "
                                       "learned as a token",
                                       b->n > 60 ? 60 : (int)b->n, b->p);
        }
        return TGC_OK;
}

static int write_json(const TokTrainer *t, Buf *out, Err *e)
{
        Buf b = { 0 };
        int rc = check_names(t, &b, e);

        if (rc != TGC_OK) {
                buf_free(&b);
                return rc;
        }

        tok_put_text(
                out,
                "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
        for (int id = 0; id < t->n_special; id++) {
                size_t n;
                const char *s = vocab_text(&t->name, id, &n);
                tok_put_text(out, id ? ",{\"id\":" : "{\"id\":");
                tok_put_id(out, id);
                tok_put_text(out, ",\"content\":");
                tok_put_json(out, s, n);
                tok_put_text(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                                  "\"normalized\":false,\"special\":true}");
        }
        tok_put_text(out, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                          "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
                          "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\","
                          "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
                          "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                          "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                          "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"
                          "\"vocab\":{");
        put_vocab(t, &b, out);
        tok_put_text(out, "},\"merges\":[");
        for (size_t i = 0; i < t->merges.n; i += 2) {
                tok_put_text(out, i ? ",[" : "[");
                put_token(t, t->merges.p[i], &b, out);
                tok_put_text(out, ",");
                put_token(t, t->merges.p[i + 1], &b, out);
                tok_put_text(out, "]");
        }
        tok_put_text(out, "]}}\n");
        buf_free(&b);
        return out->bad ? tok_no_memory(e) : TGC_OK;
}

int tok_trainer_run(TokTrainer *t, char **json, size_t *n, TokTrained *what, Err *e)
{
        Buf out = { 0 };
        size_t words = t->n_word;
        int rc = learn(t, e);

        if (rc == TGC_OK)
                rc = write_json(t, &out, e);
        if (rc != TGC_OK) {
                buf_free(&out);
                return rc;
        }
        *what = (TokTrained) { t->bytes, words, t->token.n + t->n_special, (int)t->merges.n / 2 };
        *json = out.p;
        *n = out.n;
        return TGC_OK;
}
