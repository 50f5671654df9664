/* prompts.h: the prompts of `tgc run`, as ids. */
#ifndef TGC_PROMPTS_H
#define TGC_PROMPTS_H

#include "../../runtime/util/json.h"
#include "../load/load.h"

typedef struct Prompt {
        int *ids, n;
        int adapter; /* of those that the plan has for sequences, from 1; 0: none */
} Prompt;

typedef struct Prompts {
        Prompt *prompt;
        int n;
} Prompts;

/* tok NULL: ids alone.  At least one, none of them empty; prompts_free also after an error. */
int prompts_read(Prompts *p, const Args *a, const Plan *plan, const Tokenizer *tok, int vocab,
                 Err *e);
/* The texts of a list; of an empty one, what begins anywhere. */
int prompts_of(Prompts *p, const OptionValue *texts, const Tokenizer *tok, Err *e);
int prompts_add(Prompts *p, int *ids, int n, Err *e); /* takes ids over */
void prompts_free(Prompts *p);

/* The lines of a file that are not empty, without their ends; from is FILE:LINE.  What f returns,
 * if it is not 0, ends it. */
typedef int OnLine(void *to, const char *from, const char *text, size_t n, Err *e);
int lines_each(const char *file, OnLine *f, void *to, Err *e);

/* ---- ids.c ---- */

/* Ids of a list under `key`; *out is malloc'd. */
int ids_of_list(Json ids, const char *key, int vocab, int **out, int *n, Err *e);

#endif
