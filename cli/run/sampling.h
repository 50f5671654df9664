/* sampling.h: how `tgc run` samples (sampling.c). */
#ifndef TGC_CLI_SAMPLING_H
#define TGC_CLI_SAMPLING_H

#include "../../runtime/grammar/grammar.h"
#include "../load/open.h"

/* s, and what it points to. */
typedef struct SamplingOptions {
        Sampling s;
        TgcBias *bias;
        uint32_t *bits;
        int *breakers;
} SamplingOptions;

/* tok may be NULL.  sampling_free also after a failure. */
int sampling_read(SamplingOptions *o, const Args *a, const Tokenizer *tok, int vocab, uint64_t seed,
                  Err *e);
void sampling_free(SamplingOptions *o);

/* ---- grammar.c ---- */

typedef struct GrammarUse {
        Grammar *grammar; /* NULL: none */
        TokenTrie *trie;
        Matcher **spare; /* of texts that have ended: they keep what they have learned */
        int n_spare, cap_spare;
} GrammarUse;

/* A text in the making; zeroed but for `use`. */
typedef struct GrammarText {
        GrammarUse *use;
        Matcher *matcher;
        bool goes_on; /* the next call of session_decode goes on behind the token `last` */
        int last;
} GrammarText;

/* grammar_end also after a failure */
int grammar_begin(GrammarUse *u, const Args *a, const Tokenizer *tok, int vocab, Err *e);
void grammar_end(GrammarUse *u);
void grammar_text_end(GrammarText *t);
/* Sampling.mask of a GrammarText */
const uint32_t *grammar_mask(void *user, int sequence, int token);

/* {"content": [...]} of n tokens; tok may be NULL */
cJSON *logprobs_json(const Tokenizer *tok, const RtDrawn *d, int n);

#endif
