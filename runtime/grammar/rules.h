/* rules.h: the rules of a grammar, and the builder that makes them.
 *
 * A rule is a list of alternatives.  An alternative is a list of elements, ended by ELEM_END.  An
 * element is a range of bytes or a reference to a rule. */
#ifndef TGC_GRAMMAR_RULES_H
#define TGC_GRAMMAR_RULES_H

#include "grammar.h"

/* ELEM_KEYS, ELEM_MORE and ELEM_NEXT stand side by side: before a KeySet, behind one of its pairs,
 * and behind the quote that begins a key. */
enum { ELEM_END, ELEM_ALT, ELEM_BYTES, ELEM_REF, ELEM_KEYS, ELEM_MORE, ELEM_NEXT };

typedef struct Elem {
        unsigned char kind, lo, hi;
        int ref; /* ELEM_REF: a rule; in a Grammar: its first element.  ELEM_KEYS ...: a KeySet */
} Elem;

/* Pairs of an object in any order, without the quote that begins them: each once at most, `other`
 * again and again.  `quote` stands before the first, `comma` before the others, with a quote.
 * Which of them have come is a set of bits beside the stack (match_state.c): as rules they would be
 * one for each of 2^n sets. */
enum { MAX_KEYS = 64 };

typedef struct KeySet {
        int pair[MAX_KEYS], n, other; /* rules, other -1: none; in a Grammar: elements */
        int quote, comma;
        uint64_t required;
        bool some; /* one pair at least */
} KeySet;

struct Grammar {
        Elem *elem;
        int n, root; /* root: the first element of the first rule */
        KeySet *keys;
        int n_keys;
        int *same; /* (n): of the elements that go on alike, one (same.c) */
};

typedef struct Rule {
        Elem *elem;
        int n, cap;
} Rule;

/* The first failure stays in code; then nothing more is built. */
typedef struct Build {
        Rule *rule;
        int n, cap, n_elem;
        KeySet *keys;
        int n_keys, cap_keys;
        int code;
        Err *e;
        int any_char, any_chars, digit; /* rules that are often wanted; 0: not made yet */
} Build;

typedef struct CharRange {
        uint32_t lo, hi; /* code points */
} CharRange;

void gr_begin(Build *b, Err *e); /* rule 0 is the root, to be filled */
/* A failure of the user's text is set through this, or b->code is set where it happened. */
int gr_rule(Build *b);
void gr_alt(Build *b, int rule);
void gr_bytes(Build *b, int rule, int lo, int hi);
void gr_ref(Build *b, int rule, int ref);
void gr_text(Build *b, int rule, const char *text, size_t n);
void gr_keys(Build *b, int rule, const KeySet *k); /* `quote` and `comma` begin with a byte */
/* Any of these code points, in UTF-8; not: any other. */
int gr_class(Build *b, const CharRange *r, int n, bool negated);
/* what, from min to max times; max -1: any */
int gr_repeat(Build *b, int what, int min, int max);
/* Frees b in any case.  Left recursion and rules that never end are refused; name_of says the
 * user's name of a rule, or NULL. */
int gr_end(Build *b, Grammar **g, const char *file, const char *(*name_of)(void *, int),
           void *user);
void gr_free(Build *b);
int gr_same(Grammar *g); /* fills `same`; TGC_NO_MEMORY, without a message */

/* regex.c: a rule for the strings that an ECMA 262 pattern finds something in, as they stand
 * between the quotes of JSON.  NULL in *wrong, or what of the pattern is not supported. */
typedef struct Lengths {
        int min, max; /* characters; max -1: any number */
} Lengths;
int gr_regex(Build *b, const char *pattern, Lengths *len, const char **wrong);
/* chars.c: rules for characters as JSON strings hold them: themselves, or escaped. */
int gr_json_class(Build *b, const CharRange *r, int n, bool negated);
void gr_json_text(Build *b, int rule, const char *text, size_t n);

/* UTF-8 */
int char_read(const char *p, size_t n, uint32_t *c); /* bytes, 0: it is none */
int char_write(uint32_t c, char *to);

#endif
