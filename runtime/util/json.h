/* json.h: reads JSON from outside, strictly.
 *
 * Refused, with line and column: what RFC 8259 does not allow, text after the value, invalid
 * UTF-8, a key twice in one object, numbers that are not finite, nesting beyond 1000.
 *
 * Two ways to read.  json_open gives cursors into the text, for files of any size; it takes almost
 * no memory.  json_parse makes a cJSON tree, for small texts; it takes up to 40 times the text. */
#ifndef TGC_JSON_H
#define TGC_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include "err.h"

/* ---- json_check.c: json_open; json_text.c: cursors ----------------------------- */

typedef struct JsonSpan JsonSpan;
typedef struct JsonText {
        const char *text, *name;
        size_t n;
        JsonSpan *span; /* large lists and objects, by place */
        size_t n_span;
        bool one_line; /* a line of a file; name ends in its number */
} JsonText;

typedef struct Json {
        const char *at;
        const JsonText *in;
} Json; /* at NULL: not there */
typedef struct JsonBuf {
        char *p;
        size_t cap;
} JsonBuf; /* zeroed at first */

/* text must last as long as the cursors, *in must stay where it is; `name` (a path) begins every
 * message, and must last too.  nul: \u0000 may stand in strings.  After TGC_OK call json_close. */
int json_open(JsonText *in, Json *root, const char *text, size_t n, const char *name, bool nul,
              Err *e);
/* The same of one line of JSONL; name is FILE:LINE. */
int json_open_line(JsonText *in, Json *root, const char *text, size_t n, const char *name, bool nul,
                   Err *e);
void json_close(JsonText *in);

char json_type(Json v);                 /* { [ " 0 t f n by what it begins with; 0: not there */
Json json_get(Json o, const char *key); /* not there in anything but an object with that key */
bool json_is(Json v, const char *s);    /* a string equal to s */
size_t json_count(Json v);              /* of a list's or object's members */
double json_number(Json v);             /* NAN: not a number, or no memory; in any locale */

/* A string's n bytes: in the text, or in b where there are escapes, until b is used again.
 * NULL: not a string, or no memory.  No NUL stands behind them. */
const char *json_string(Json v, JsonBuf *b, size_t *n);
void json_buf_free(JsonBuf *b);

enum { JSON_MOST_PLACE = 400 };
/* NAME:LINE:COLUMN of a value or key, for messages; returns out. */
const char *json_place(Json v, char out[JSON_MOST_PLACE]);
/* Refuses an object's keys that are not in `known`, words with a space between them.  what: the
 * object, for the message. */
int json_only(Json o, const char *known, const char *what, Err *e);

/* for (JsonEach i = json_each(v); json_next(&i);) i.key, i.value; nothing to do in other values */
typedef struct JsonEach {
        const char *p;
        const JsonText *in;
        char shut;
        Json key, value;
} JsonEach;
JsonEach json_each(Json v);
bool json_next(JsonEach *i);

/* ---- json.c: trees ---------------------------------------------------------------- */

/* `name` (a path) begins every message.  Free with cJSON_Delete. */
int json_parse(cJSON **out, const char *text, size_t size, const char *name, Err *e);
int json_read(cJSON **out, const char *path, size_t max_bytes, Err *e);

bool json_utf8_ok(const char *s, size_t n);

#endif
