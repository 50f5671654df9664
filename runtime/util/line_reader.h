/* line_reader.h: the line-and-word reader behind the plan's two texts. */
#ifndef TGC_WORDS_H
#define TGC_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"

/* A private copy of the text, cut into lines and words as it is read. */
typedef struct Words {
        char *line, *rest;              /* the current line; what follows it */
        char *at;                       /* unread part of the current line */
        int   n;                        /* its number, from 1 */
        const char *what;               /* names the text in messages */
        Err  *e;
        int   code;                     /* first failure */
} Words;

bool  words_line(Words *w);             /* next line that is not empty; false at the end */
char *words_next(Words *w);             /* next word, or NULL */
char *words_tail(Words *w);             /* the rest of the line, perhaps "" */
/* Record a failure `what:LINE: ...` (the first one stays) and return its code. */
int   words_fail(Words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

char *words_need(Words *w, const char *name);                   /* a word, or fails with ""; never NULL */
bool  words_keyword(Words *w, const char *word);                /* exactly this word, or fails */
bool  words_optional(Words *w, const char *word);               /* taken if it is this word */
uint64_t words_int(Words *w, const char *name, uint64_t max);   /* a decimal number up to max, or fails with 0 */
double   words_real(Words *w, const char *name);                /* a finite number, or fails with 0 */
void     words_end(Words *w);                                   /* nothing may be left on the line */

bool text_int(const char *s, uint64_t max, uint64_t *value);    /* the whole of s is a decimal number up to max */
size_t text_count(const char *text, size_t size, const char *word);    /* lines whose first word it is */

#endif
