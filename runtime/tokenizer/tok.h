/* tok.h: private to tok_*.c.
 *
 * Every format is read into one description and runs through the same stages:
 *
 *   text -> added tokens cut out -> normalise -> split into pieces -> merge -> ids
 *           tok_added.c             tok_norm.c   tok_split.c          tok_merge.c
 *
 * Each stage is a list of steps.  A list is short: files nest Sequences, which are
 * flattened on reading. */
#ifndef TGC_TOK_H
#define TGC_TOK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "../util/json.h"
#include "tokenizer.h"

#define TOK_MAX_STEPS 32   /* steps of one stage                   */
#define TOK_MAX_ADDED 1024 /* bytes of one added token             */
#define TOK_MAX_PREFIX 8   /* tokens a template puts before a text */

/* ---- tok_util.c: growing arrays and UTF-8 ------------------------------------ */

/* Bytes that grow.  After a failed allocation `bad` is set and puts do nothing, so
 * that one test at the end serves a whole function. */
typedef struct Buf {
        char *p;
        size_t n, cap;
        bool bad;
} Buf;
void buf_put(Buf *b, const void *p, size_t n);
void buf_room(Buf *b, size_t n); /* for n bytes more, and no more than that */
void buf_free(Buf *b);

typedef struct Ints {
        int *p;
        size_t n, cap;
        bool bad;
} Ints;
void ints_put(Ints *v, int x);
void ints_free(Ints *v);

int tok_no_memory(Err *e);

/* Code point at s (n > 0 bytes) into *cp; returns its length, 0 where the bytes
 * are not UTF-8 (overlong forms, surrogates and what is cut off included). */
size_t utf8_get(const char *s, size_t n, uint32_t *cp);
size_t utf8_put(char *s, uint32_t cp);              /* s has room for 4 */
size_t utf8_valid(const char *s, size_t n);         /* length of the valid start */
void utf8_lossy(const char *s, size_t n, Buf *out); /* with U+FFFD for what is not UTF-8 */

uint32_t byte_level_cp(unsigned char b);            /* GPT-2's printable stand-in for a byte */
int byte_level_byte(uint32_t cp);                   /* its inverse, or -1 */
bool base64_put(const char *s, size_t n, Buf *out); /* the bytes; false: not base64 */

/* ---- tok_class.c: characters as the reference sees them --------------------- */

typedef struct Range {
        uint32_t from, to;
} Range;
bool cp_in(const Range *r, size_t n, uint32_t cp); /* n sorted ranges */
extern const Range *const cp_punctuation, *const cp_digit, cp_space[];
extern const size_t n_cp_punctuation, n_cp_digit, n_cp_space;

bool cp_is_space(uint32_t cp);      /* Unicode White_Space       */
bool cp_is_word(uint32_t cp);       /* \w of the Rust regex crate */
bool cp_joins(uint32_t cp);         /* a young mark: no grapheme ends before it */
bool cp_is_accent(uint32_t cp);     /* what StripAccents removes */
bool cp_is_nonspacing(uint32_t cp); /* what BertNormalizer's strip_accents removes */
bool cp_is_unclean(uint32_t cp);    /* what its clean_text removes */
bool cp_is_han(uint32_t cp);        /* what it puts spaces around */
/* normalisers neither change nor reorder it, nor what is around it */
bool cp_is_inert(uint32_t cp);
/* what a regular expression sees: of the same class and length */
uint32_t cp_stand_in(uint32_t cp);
uint32_t cp_lower(uint32_t cp);

/* ---- tok_vocab.c: id <-> bytes ----------------------------------------------- */

typedef struct Vocab {
        Buf text;           /* all tokens, end to end                     */
        uint32_t *at, *len; /* (n) by id; at = VOCAB_NONE: no such token  */
        int n, cap;         /* largest id + 1                             */
        int count;          /* tokens                                     */
        size_t longest;     /* bytes                                      */
        int *slot;          /* hash -> id, -1 empty; n_slot a power of 2  */
        size_t n_slot;
        uint64_t seed; /* differs from run to run, so that a file cannot aim at one chain */
} Vocab;
#define VOCAB_NONE UINT32_MAX

enum { VOCAB_OK, VOCAB_SAME_TEXT, VOCAB_SAME_ID, VOCAB_BAD_ID, VOCAB_NO_MEMORY };
int vocab_put(Vocab *v, int id, const char *s, size_t n);
int vocab_find(const Vocab *v, const char *s, size_t n);   /* id or -1 */
const char *vocab_text(const Vocab *v, int id, size_t *n); /* NULL: no such id */
void vocab_free(Vocab *v);
int vocab_error(int status, const char *what, int id, const char *s, size_t n, Err *e);

/* ---- tok_merge.c: byte pair merging ------------------------------------------ */

typedef struct Pair {
        uint64_t key;
        int rank, id;
} Pair; /* key 0: empty */

/* Which neighbours join, and in what order (lowest rank, then leftmost).
 * By pair: a table of (left id, right id), as in a merges list.
 * By text: any two whose bytes together are a token; rank_of[id] orders them, < 0
 * never joins.  Ranks from a score (llama2.c) or the id itself (tiktoken). */
typedef struct Merges {
        Pair *pair;
        size_t n_pair, n_slot;
        uint64_t seed;
        bool by_text;
        int *rank_of;
        /* bit a * 256 + b: bytes a b stand side by side in a merged token */
        unsigned char meet[256 * 256 / 8];
} Merges;

/* a later one wins; TGC_OK or TGC_NO_MEMORY */
int merges_put(Merges *m, int left, int right, int rank, int id);

/* By text: ranks from scores, the best first, equal ones equal (tok_llama2c.c).  s is put in
 * another order. */
typedef struct Scored {
        float score;
        int id;
} Scored;
#define NO_MERGE (-1e10f) /* no score of a merge; run.c looks for one above this */
int merges_by_score(Merges *m, Scored *s, int n, Err *e);
void merges_seal(Merges *m, const Vocab *v); /* when all are there: work out `meet` */
void merges_free(Merges *m);

typedef struct Sym {
        int id;
        uint32_t at, len, prev, next;
} Sym; /* len 0: merged away */
typedef struct Cand {
        int rank, id;
        uint32_t at, len;
} Cand;
typedef struct MergeWork {
        Sym *sym;
        Cand *heap;
        size_t n, cap, n_heap, heap_cap;
        bool bad;
} MergeWork;

void work_put(MergeWork *w, int id, uint32_t at, uint32_t len); /* append a symbol; len > 0 */
/* Merge the symbols of w, which cover text, and append what is left to ids. */
void work_merge(MergeWork *w, const Merges *m, const Vocab *v, const char *text, Ints *ids);
void work_free(MergeWork *w);

/* ---- tok_wordpiece.c, tok_unigram.c: other models than BPE ----------------------- */

enum { MODEL_BPE, MODEL_WORDPIECE, MODEL_WORDS, MODEL_UNIGRAM };

typedef struct TrieEdge {
        uint32_t key, node; /* node 0: empty */
} TrieEdge;
typedef struct Trie {
        TrieEdge *edge;
        size_t n_slot, n_node;
        uint64_t seed;
        Ints id_of;
} Trie;
typedef struct Unigram {
        Trie trie;
        double *score; /* (n) by id */
        int n;
        double worst; /* of the scores */
        bool any;     /* there is a piece */
        bool single;  /* adds up as sentencepiece does, in float */
} Unigram;
/* A piece of one of tokenizer.h's kinds, TOK_NORMAL in Hugging Face's files. */
int unigram_put(Unigram *u, int id, const char *s, size_t n, double score, int kind, Err *e);
void unigram_free(Unigram *u);

/* The best way to a place: its score, where its last piece starts, and that piece. */
typedef struct Best {
        double score;
        uint32_t from;
        int id;
} Best;
enum { UNKNOWN_PIECE = -1, NO_PIECE = -2 };
typedef struct BestWork {
        Best *best;
        size_t cap;
        Ints ends;
} BestWork;

/* ---- tok_charsmap.c: sentencepiece's character map -------------------------------- */

/* uint32 size of a double-array trie, the trie, then replacements with a NUL behind each. */
typedef struct Charsmap {
        const char *unit, *text; /* n_unit x uint32, n_text bytes */
        size_t n_unit, n_text;
} Charsmap;
int charsmap_open(Charsmap *m, const char *p, size_t n, Err *e); /* p must last */
/* How much of s the longest entry (else the shortest) takes; 0: none.  Then *with replaces it. */
size_t charsmap_find(const Charsmap *m, const char *s, size_t n, bool longest, const char **with,
                     size_t *n_with);
/* Hugging Face's Precompiled: by graphemes, which an entry for their beginning replaces whole. */
void charsmap_graphemes(const Charsmap *m, const char *s, size_t n, Buf *out);

/* ---- tok_scan.c: well-known patterns by hand ------------------------------------- */

typedef struct Known Known;
const Known *known_pattern(const char *regex); /* NULL: not known; else it matches everywhere */
/* The end of the match that begins at i < n, in valid UTF-8. */
size_t known_scan(const Known *k, const char *s, size_t n, size_t i);

/* ---- tok_pattern.c: what a file calls a pattern ------------------------------- */

/* A literal string, any one character of a set, or a regular expression. */
typedef struct Pattern {
        char *literal;
        size_t n;
        const Range *set;   /* static; n ranges */
        const Known *known; /* a regular expression that is scanned by hand */
        void *code;         /* pcre2_code_8 */
} Pattern;

int pattern_literal(Pattern *p, const char *s, size_t n, Err *e);
int pattern_regex(Pattern *p, const char *regex, Err *e);
void pattern_set(Pattern *p, const Range *set, size_t n);
void pattern_free(Pattern *p);

/* A scan over one text after another.  scan_next: 1 and the next match [*from, *to),
 * 0 at the end, -1 and *e where a limit is hit.  Bytes that are not UTF-8 match no
 * regular expression and no set. */
typedef struct Scan {
        const Pattern *p;
        const char *text, *seen; /* seen: what a regular expression gets, with stand-ins */
        Buf swapped;             /* seen, where it differs */
        size_t n, pos, last, run, run_end; /* run: the valid stretch searched now */
        void *data, *limits;               /* pcre2_match_data_8, pcre2_match_context_8 */
} Scan;
int scan_open(Scan *s, const Pattern *p, Err *e);
void scan_text(Scan *s, const char *text, size_t n);
int scan_next(Scan *s, size_t *from, size_t *to, Err *e);
void scan_close(Scan *s);

/* text with every match replaced, appended to out */
int pattern_replace(const Pattern *p, const char *text, size_t n, const char *with, size_t n_with,
                    Buf *out, Err *e);

/* ---- tok_norm.c ---------------------------------------------------------------- */

enum {
        NORM_UNICODE,
        NORM_LOWER,
        NORM_NO_MARKS,      /* StripAccents           */
        NORM_NO_NONSPACING, /* Bert's strip_accents   */
        NORM_CLEAN,         /* Bert's clean_text      */
        NORM_HAN,           /* Bert's spaces around Chinese characters */
        NORM_NMT,
        NORM_BYTES,
        NORM_STRIP,
        NORM_PREPEND,
        NORM_REPLACE,
        NORM_CHARSMAP, /* Precompiled            */
        NORM_SENTENCE  /* sentencepiece's own    */
};
typedef struct Norm {
        int op;
        int form;         /* UNICODE: utf8proc options                      */
        bool left, right; /* STRIP                                          */
        char *with;       /* PREPEND, REPLACE                               */
        size_t n_with;
        Pattern pattern;             /* REPLACE                                        */
        Charsmap map;                /* CHARSMAP (in `with`), SENTENCE (in the blob)   */
        bool prefix, squeeze;        /* SENTENCE: a space in front; none twice, none at the ends */
        const struct AddedSet *user; /* SENTENCE: stay as they are              */
} Norm;
/* *at_start (NULL: not asked) becomes false where the text loses its first character. */
int normalize(const Norm *step, int n_step, const char *text, size_t n, Buf *out, bool *at_start,
              Err *e);
void norm_free(Norm *s);

/* ---- tok_split.c --------------------------------------------------------------- */

enum { SPLIT_PATTERN, SPLIT_PREFIX, SPLIT_REPLACE, SPLIT_BYTES };
enum { CUT_REMOVED, CUT_ISOLATED, CUT_WITH_PREVIOUS, CUT_WITH_NEXT, CUT_CONTIGUOUS };
enum { PREFIX_ALWAYS, PREFIX_FIRST, PREFIX_NEVER };
typedef struct Split {
        int op;
        Pattern pattern; /* PATTERN, and what REPLACE replaces              */
        int cut;         /* PATTERN: where a match goes                     */
        bool invert;     /* PATTERN: matches and gaps change places         */
        int when;        /* PREFIX                                          */
        char with[8];    /* PREFIX, REPLACE: one character                  */
} Split;

/* Pieces of one text, in order: piece i is s[at.p[2 i]] .. s[at.p[2 i + 1]], not empty. */
typedef struct Pieces {
        const char *s; /* the text given, or text.p */
        Buf text;      /* what steps made of it     */
        Ints at;
        bool from_start; /* the first one begins where the user's text begins */
} Pieces;
/* at_start: text begins where the user's text begins.  text must outlive the pieces, which are
 * emptied first. */
int split_text(const Split *step, int n_step, const char *text, size_t n, bool at_start,
               Pieces *out, Err *e);
void pieces_free(Pieces *p);
void split_free(Split *s);
void put_byte_level(const char *text, size_t n, Buf *out); /* as byte-level characters */

/* ---- tok_added.c: tokens found in the text before anything else ---------------- */

typedef struct Added {
        int id;
        bool lstrip, rstrip, single_word, normalized, special;
} Added;
/* index, 0: none; added + 1 */
typedef struct AddedNode {
        int child, next, added;
        unsigned char byte;
} AddedNode;
typedef struct AddedSet {
        AddedNode *node; /* a trie; node[0] is the root */
        int n, cap;
} AddedSet;
int added_put(AddedSet *s, const char *text, size_t n, int which, Err *e);
/* The next token in text from pos: true, its place (white space taken along
 * included) and which.  *pos moves behind it. */
bool added_next(const AddedSet *s, const Added *added, const char *text, size_t n, size_t *pos,
                size_t *from, size_t *to, int *which);
/* The length of the longest token at the start of text; 0: none. */
size_t added_at(const AddedSet *s, const char *text, size_t n);
void added_free(AddedSet *s);

/* ---- tok_decode.c --------------------------------------------------------------- */

enum {
        DECODE_BYTES,
        DECODE_WORDPIECE, /* with: the prefix of pieces that go on */
        DECODE_CLEAN_UP,
        DECODE_FALLBACK,
        DECODE_METASPACE,
        DECODE_REPLACE,
        DECODE_STRIP,
        DECODE_FUSE,
        DECODE_JOIN
};
typedef struct Decode {
        int op;
        Pattern pattern; /* REPLACE                                         */
        char *with; /* REPLACE: content; METASPACE, STRIP: one character; JOIN: between tokens */
        size_t n_with;
        /* METASPACE: the first token loses its marks; STRIP: only that one loses `start` */
        bool drop_first;
        int start, stop; /* STRIP: how many                                 */
} Decode;
void decode_free(Decode *d);

/* ---- all of it ------------------------------------------------------------------ */

struct Tokenizer {
        int kind;
        char *blob; /* as given to tokenizer_new, with a NUL behind it */
        size_t n_blob;
        /* the model's vocabulary; encode gives no id from here on; 0: not known */
        int limit;
        int bos, adds_bos;
        int eos[TOK_MAX_EOS], n_eos;
        int prefix[TOK_MAX_PREFIX], n_prefix; /* what adding BOS adds */

        Vocab vocab;
        Added *added; /* (n_added) */
        int n_added;
        AddedSet raw, normal;   /* found before and after normalising */
        AddedSet user;          /* sentencepiece's normaliser leaves these alone */
        unsigned char *special; /* (vocab.n) 1: prints nothing                  */
        int n_control;          /* ids below this are special too               */

        Norm norm[TOK_MAX_STEPS];
        Split split[TOK_MAX_STEPS];
        Decode decode[TOK_MAX_STEPS];
        int n_norm, n_split, n_decode;
        /* the last split, SPLIT_BYTES, was taken off: pieces become bytes one by one */
        bool to_bytes;

        int model; /* MODEL_...                                      */
        Merges merges;
        Unigram unigram;
        const char *word_start, *word_next; /* WORDPIECE: prefixes, of 63 bytes at most */
        char prefix_text[64];               /* what word_next may point to */
        int max_chars;
        int suffix[TOK_MAX_PREFIX], n_suffix; /* what a template puts behind a text */
        int unk;                              /* for a character outside; -1: it is left out  */
        bool fuse_unk, byte_fallback, ignore_merges;
        int byte_id[256]; /* byte_fallback: -1 where there is none        */

        Buf stream; /* decoded tokens, end to end                   */
        /* (vocab.n + 1) where each lies, after another token and as first */
        uint32_t *mid, *first;
        uint32_t *mid_len, *first_len;
        unsigned char *is_byte; /* (vocab.n + 1) 1: a byte by fallback          */
        const Decode *strip;    /* off the whole text; NULL: nothing            */

        const char *charsmap; /* in the blob; n_charsmap bytes                */
        size_t n_charsmap;
};

/* Readers: fill a zeroed t from t->blob.  On failure the caller frees t. */
int read_char(Tokenizer *t, Err *e);     /* tok_char.c    */
int read_llama2c(Tokenizer *t, Err *e);  /* tok_llama2c.c */
int read_hf(Tokenizer *t, Err *e);       /* tok_json.c    */
int read_gpt2(Tokenizer *t, Err *e);     /* tok_ranks.c   */
int read_tiktoken(Tokenizer *t, Err *e); /* tok_ranks.c   */
int read_spm(Tokenizer *t, Err *e);      /* tok_spm.c     */
int read_parts(Tokenizer *t, Err *e);    /* tok_parts.c   */
int read_bert(Tokenizer *t, Err *e);     /* tok_bert.c    */

int tok_pre(Tokenizer *t, const char *name, Err *e); /* tok_pre.c: cut as GGUF's `pre` says */
/* tok_sentence.c: model, normaliser and decoder of a vocabulary of sentencepiece's, whose pieces
 * are in t->vocab. */
typedef struct Sentence {
        bool unigram; /* else BPE */
        bool prefix, squeeze;
        const float *score;        /* (vocab.n) */
        const unsigned char *kind; /* (vocab.n) or NULL: all TOK_NORMAL */
        Charsmap map;
        bool find_control; /* control pieces are found in the text, as Hugging Face does */
} Sentence;
int tok_sentence(Tokenizer *t, const Sentence *s, Err *e);

/* tok_char.c */
int encode_chars(const Tokenizer *t, const char *text, size_t n, Ints *ids, Err *e);
/* tok_wordpiece.c, tok_unigram.c: one piece; memory that is out sets ids->bad */
void encode_wordpiece(const Tokenizer *t, const char *s, size_t n, Buf *b, Ints *ids);
void encode_word(const Tokenizer *t, const char *s, size_t n, Ints *ids);
void encode_unigram(const Tokenizer *t, const char *s, size_t n, BestWork *w, Ints *ids);
/* tok_encode.c */
int encode_text(const Tokenizer *t, const char *text, size_t n, Ints *ids, Err *e);

/* tok_build.c: what readers share.
 * tok_add: a token that is looked for in the text, put in the vocabulary where it is new.
 * tok_note: a, noted only, for a token that is special or found by a reader's own means.
 * tok_merge: the pair a b of a merges list; the three must be tokens. */
int tok_note(Tokenizer *t, Added a, Err *e);
int tok_add(Tokenizer *t, const char *s, size_t n, Added a, Err *e);
int tok_merge(Tokenizer *t, const char *a, size_t n_a, const char *b, size_t n_b, int rank, Err *e);

int tok_bert_decode(Tokenizer *t, int op, const char *with, Err *e); /* tok_bert.c */
/* Append to t->norm: a step, which is taken over; BertNormalizer's steps. */
int tok_norm(Tokenizer *t, Norm n, Err *e);
int tok_bert_norm(Tokenizer *t, bool clean, bool han, bool strip_accents, bool lower, Err *e);
/* Append NFC, NFD, NFKC or NFKD to t->norm. */
int tok_norm_form(Tokenizer *t, const char *form, Err *e);

/* Append a step to t->split. */
int tok_split_regex(Tokenizer *t, const char *regex, int cut, bool invert, Err *e);
int tok_split_literal(Tokenizer *t, const char *text, size_t n, int cut, bool invert, Err *e);
int tok_split_set(Tokenizer *t, const Range *set, size_t n, int cut, Err *e);
int tok_split_prefix(Tokenizer *t, const char *with, int when, Err *e);
int tok_split_replace(Tokenizer *t, const char *what, const char *with, Err *e);
int tok_split_bytes(Tokenizer *t, Err *e);
int tok_bert_split(Tokenizer *t, Err *e); /* BertPreTokenizer */

/* tok_pre.c: the patterns of a name, up to six, NULL behind the last. */
const char *const *tok_pre_regex(const char *name, bool *whole, bool *nfc);

/* tok_to_parts.c: both give the same ids for texts that are hard to split. */
bool tok_cuts_alike(const Tokenizer *a, const Tokenizer *b);

/* tok_train.c: JSON that is written. */
void tok_put_json(Buf *out, const char *s, size_t n); /* a string */
void tok_put_text(Buf *out, const char *s);
void tok_put_id(Buf *out, int id);

/* The vocabulary is an object of token: id. */
int tok_json_vocab(Tokenizer *t, Json vocab, Err *e);

int fallback_byte(const char *s, size_t n); /* tok_decode.c: "<0xE2>" is a byte; -1: not one */
int decode_table(Tokenizer *t, Err *e);     /* tok_decode.c: fill stream, mid, first, is_byte */

/* tokenizer.c: tokenizer_new with the model's vocabulary.  tok_take takes the bytes over, whatever
 * comes of it. */
int tok_new(Tokenizer **out, int kind, int limit, const void *blob, size_t n, Err *e);
int tok_take(Tokenizer **out, int kind, int limit, Buf *blob, Err *e);

#endif
