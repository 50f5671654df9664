/* embed_text.h: prepares texts for an encoder: ids, and the settings of the plan's section
 * `embedding`.  session_embed_tokens (session.h) makes the vectors. */
#ifndef TGC_EMBED_TEXT_H
#define TGC_EMBED_TEXT_H

#include "../tokenizer/tokenizer.h"
#include "../weights/sentence.h"
#include "session.h"

/* What the plan's section `embedding` says; without one, the mean. */
int embed_settings(Sentence *s, const Plan *p, Err *e);

/* The ids of a text: the prompt, the text, and what the tokenizer puts around them.  Beyond `most`
 * tokens (and the settings' own limit) the text loses its end, *cut tokens.  *ids is malloc'ed. */
int embed_encode(const Tokenizer *tok, const Sentence *s, int most, const char *text, size_t n,
                 int **ids, int *n_ids, int *cut, Err *e);

#endif
