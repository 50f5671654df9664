/* sentence.h: how an encoder's token vectors become one vector for a text: pooling, normalisation,
 * length, prompt.
 *
 * Read from a folder that sentence-transformers wrote.  modules.json names a Transformer, a Pooling
 * and perhaps a Normalize, and the folders with their settings.  Beside it lie
 * sentence_bert_config.json (max_seq_length) and config_sentence_transformers.json (prompts).  A
 * folder without modules.json gets that package's defaults: the mean, no normalisation.  Other
 * modules are refused by name.
 *
 * A plan keeps it in the section `embedding`, which is JSON:
 *
 *      {"pooling": "mean", "normalize": true, "max_tokens": 256, "prompt": "query: "} */
#ifndef TGC_SENTENCE_H
#define TGC_SENTENCE_H

#include <stdbool.h>
#include <stddef.h>
#include "../util/err.h"

/* Of the vectors of a text's tokens, the text's: in the order of pooling_name. */
typedef enum {
        POOL_MEAN,
        POOL_CLS, /* the first token's */
        POOL_MAX,
        POOL_LAST,
        POOL_MEAN_SQRT, /* their sum over the root of how many there are */
        N_POOLINGS
} Pooling;
extern const char *const pooling_name[N_POOLINGS];

typedef struct Sentence { /* zeroed: the mean of all tokens */
        Pooling pooling;
        bool unit;      /* of length 1 */
        int max_tokens; /* a longer text loses its end; 0: the context's size */
        char *prompt;   /* stands before each text; NULL: nothing */
} Sentence;

int sentence_folder(Sentence *s, const char *dir, Err *e);
/* sentence_write.c: those files; dir and dir/1_Pooling are there; width: of a vector */
int sentence_write(const Sentence *s, const char *dir, int width, Err *e);
/* The section.  *text is malloc'ed. */
int sentence_pack(const Sentence *s, char **text, size_t *n, Err *e);
int sentence_unpack(Sentence *s, const char *text, size_t n, Err *e);
void sentence_free(Sentence *s);

#endif
