/* tok_json.h: private to tok_json*.c, the readers of tokenizer.json's parts.
 *
 * Each part is null or an object with a "type".  A type is a row of a table, with a function that
 * appends steps.  A type without a row is refused by name.  Failures are sticky: after the first,
 * `rc` is set and reading continues without effect, so that most readers need not check it. */
#ifndef TGC_TOK_JSON_H
#define TGC_TOK_JSON_H

#include "tok.h"

typedef struct Reader {
        Tokenizer *t;
        Err *e;
        int rc;
        bool in_bytes, fused, stripped; /* how far the decoders read so far have come */
        JsonBuf a, b;                   /* strings of the vocabulary, one after the other */
        char **kept;                    /* strings of the settings, until the end */
        size_t n_kept;
} Reader;
typedef struct Part {
        const char *type;
        void (*read)(Reader *r, Json o);
} Part;
/* list: a Sequence's own */
typedef struct Stage {
        const char *name, *list;
        const Part *part;
} Stage;

/* ---- tok_json.c: fields ---------------------------------------------------------- */

void __attribute__((format(printf, 2, 3))) hf_bad(Reader *r, const char *fmt, ...);
Json hf_get(Json o, const char *key); /* null is absent */

/* A string with a NUL behind it, until the reader is done; NULL: none, or no memory. */
const char *hf_keep(Reader *r, Json v, size_t *n);
const char *hf_type(Reader *r, Json o); /* never NULL, nor are the next three */
/* fallback NULL: the field must be there */
const char *hf_str(Reader *r, Json o, const char *key, const char *fallback, size_t *n);
const char *hf_name(Reader *r, Json o, const char *key, const char *fallback); /* without NULs */
const char *hf_char(Reader *r, Json o, const char *key);                       /* one character */

enum { MUST = -1 };
bool hf_bool(Reader *r, Json o, const char *key, int fallback); /* MUST: it must be there */
int hf_whole(Json v, int most);                                 /* 0 to most, or -1 */
int hf_count(Reader *r, Json o, const char *key, int most);

char *hf_copy(Reader *r, const char *s, size_t n); /* malloc'ed, with a NUL */
/* 'pattern', {"String": ...} or {"Regex": ...}: which, with its text; and as a Pattern */
const char *hf_pattern_text(Reader *r, Json o, bool *regex, size_t *n);
void hf_pattern(Reader *r, Json o, Pattern *p);
void hf_stage(Reader *r, const Stage *stage, Json o);

/* ---- the parts ------------------------------------------------------------------- */

extern const Stage hf_normalizer;    /* tok_json_norm.c   */
extern const Stage hf_pre_tokenizer; /* tok_json_split.c  */
extern const Stage hf_decoder;       /* tok_json_decode.c */
extern const Stage hf_post_processor;
void hf_model(Reader *r, Json o); /* tok_json_model.c  */
void hf_unk(Reader *r, Json o);   /* its unknown token, once all tokens are there */

/* When Metaspace puts its mark before a text (tok_json_split.c). */
int hf_scheme(Reader *r, Json o);
void hf_no_decoder(Reader *r, Json o); /* what Hugging Face does without one (tok_json_decode.c) */

#endif
