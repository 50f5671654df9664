/* continuations.h: the prompts and continuations of `tgc eval --continuations`. */
#ifndef TGC_CONTINUATIONS_H
#define TGC_CONTINUATIONS_H

#include "../load/open.h"

typedef struct Continuation {
        int *ids, n;
        int from; /* the continuation's first token, at least 1 */
        int cut;  /* tokens of the prompt that did not fit the context, from its beginning */
} Continuation;

typedef struct Continuations {
        Continuation *list;
        int n, cap;
} Continuations;

/* Of n bytes of text, an object each line.  name: of the file, for messages; tok may be NULL. 
 * continuations_free also after an error. */
int continuations_read(Continuations *c, const char *text, size_t n, const char *name,
                       const Tokenizer *tok, int vocab, int ctx, Err *e);
void continuations_free(Continuations *c);

int eval_continuations(const Args *a, const Loaded *l, int vocab, Err *e);

#endif
