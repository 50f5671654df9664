/* grammar.h: grammars, and which tokens may come next in a text that follows one.
 *
 * A Grammar is a set of rules over bytes.  It comes from GBNF, llama.cpp's notation (gbnf.c), or
 * from a JSON schema (schema.c); both use the builder.  A Matcher follows one text as it grows.  It
 * holds the set of places in the rules where the text may be, as stacks of a pushdown automaton.
 * These sets are states.  States, their transitions and their masks are kept once met, so that most
 * tokens cost a look-up.
 *
 * Grammars and schemas may be hostile: sizes, depths and states have limits, and what is not
 * supported is refused by name. */
#ifndef TGC_GRAMMAR_H
#define TGC_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../tokenizer/tokenizer.h"
#include "../util/err.h"

enum {
        GR_MAX_TEXT = 1 << 24,   /* bytes of a file                              */
        GR_MAX_ELEMS = 1 << 21,  /* elements of all rules                        */
        GR_MAX_RULES = 1 << 20,  /* rules                                        */
        GR_MAX_NEST = 200,       /* parentheses, schemas within schemas          */
        GR_MAX_REPEAT = 1 << 16, /* a number in {}                               */
        GR_MAX_DEPTH = 2000,     /* of a stack: what would nest deeper is masked */
        GR_MAX_PLACES = 1 << 14  /* places of one state                          */
};

typedef struct Grammar Grammar;

/* name: of the file, for messages `name:line:col: ...`, or `name: /path/in/schema: ...`. */
int grammar_gbnf(Grammar **g, const char *text, size_t n, const char *name, Err *e);
int grammar_schema(Grammar **g, const char *text, size_t n, const char *name, Err *e);
void grammar_free(Grammar *g);

/* ---- token_trie.c: the bytes of all tokens ---- */

typedef struct TokenTrie TokenTrie;

/* Of the first `vocab` tokens; special ones have no bytes.  eos: those that end a text. */
int token_trie_new(TokenTrie **t, const Tokenizer *tok, int vocab, Err *e);
/* bytes[i] has n[i] bytes; for tests */
int token_trie_of(TokenTrie **t, const char *const *bytes, const size_t *n, int vocab,
                  const int *eos, int n_eos, Err *e);
void token_trie_free(TokenTrie *t);

/* ---- match.c: a text in the making; borrows both ---- */

typedef struct Matcher Matcher;

int matcher_new(Matcher **m, const Grammar *g, const TokenTrie *t, Err *e); /* t may be NULL */
void matcher_free(Matcher *m);
void matcher_reset(Matcher *m);
/* May these bytes come next?  If not, the matcher stays. */
bool matcher_bytes(Matcher *m, const char *p, size_t n);
bool matcher_complete(const Matcher *m); /* the text may end here */
/* Bits, one a token, of what may come next; the matcher's until the next call.  NULL: no memory. */
const uint32_t *matcher_mask(Matcher *m);
bool matcher_some(Matcher *m); /* does the mask allow any token? */
/* false: it may not come; a token that ends a text may where the text is complete. */
bool matcher_token(Matcher *m, int token);

#endif
