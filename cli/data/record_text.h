/* record_text.h: the interface between records.c, which reads JSONL, and record_text.c, which makes
 * ids from its texts. */
#ifndef TGC_RECORD_TEXT_H
#define TGC_RECORD_TEXT_H

#include "data.h"

enum { MOST_ANSWERS = 4096 };

enum { PROMPT, COMPLETION, MESSAGES, TEXT, CHOSEN, REJECTED, N_FIELDS };

typedef struct Reader {
        const RecordsHow *how;
        Records *r;
        char key[N_FIELDS][64];
        char where[300]; /* NAME:LINE */
        const char *name;
        int n_spans;
        size_t span[2 * MOST_ANSWERS]; /* bytes of the text that are answers */
} Reader;

/* Each adds a record to x->r; x->n_spans is 0 before.  Errors begin with x->where. */
int record_add_messages(Reader *x, Json list, Json tools, Err *e);
int record_add_pair(Reader *x, Json prompt, Json answer, Err *e);
int record_add_text(Reader *x, Json text, Err *e);
int record_add_prompt(Reader *x, Json prompt, Err *e); /* its answer is to be made */

#endif
