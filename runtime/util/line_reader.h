/* line_reader.h: the line-and-word reader behind the plan's two texts. */
#ifndef TGC_LINE_READER_H
#define TGC_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"

/* A private copy of the text, cut into lines and words as it is read. */
typedef struct LineReader {
        char *line, *rest; /* the current line; what follows it */
        char *at;          /* unread part of the current line */
        int n;             /* its number, from 1 */
        const char *what;  /* names the text in messages */
        Err *e;
        int code; /* first failure */
} LineReader;

bool line_next(LineReader *w);  /* next line that is not empty; false at the end */
char *line_word(LineReader *w); /* next word, or NULL */
char *line_rest(LineReader *w); /* the rest of the line, perhaps "" */
/* Record a failure `what:LINE: ...` (the first one stays) and return its code. */
int line_fail(LineReader *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

char *line_need(LineReader *w, const char *name);    /* a word, or fails with ""; never NULL */
bool line_keyword(LineReader *w, const char *word);  /* exactly this word, or fails */
bool line_optional(LineReader *w, const char *word); /* taken if it is this word */
/* a decimal number up to max, or fails with 0 */
uint64_t line_int(LineReader *w, const char *name, uint64_t max);
double line_real(LineReader *w, const char *name); /* a finite number, or fails with 0 */
void line_end(LineReader *w);                      /* nothing may be left on the line */

/* the whole of s is a decimal number up to max */
bool text_int(const char *s, uint64_t max, uint64_t *value);
bool text_ends(const char *s, const char *tail);
/* lines whose first word it is */
size_t text_count(const char *text, size_t size, const char *word);

#endif
