/* eval_score.h: --eval_score 'word=weight,...': scores an answer by the words in it. */
#ifndef TGC_EVAL_SCORE_H
#define TGC_EVAL_SCORE_H

#include <stdbool.h>
#include <stddef.h>
#include "../../runtime/util/err.h"

typedef struct EvalScore {
        char *text; /* the words' */
        struct EvalWord {
                const char *word;
                double weight;
        } * word;
        int n;
} EvalScore;

int eval_score_parse(EvalScore *s, const char *typed, Err *e); /* TGC_USAGE */
void eval_score_free(EvalScore *s);
/* Weights times how often each word is there, in small letters or large ones; of ASCII alone. */
double eval_score(const EvalScore *s, const char *text, size_t n);

#endif
