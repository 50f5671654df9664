/* json.h: cJSON with the checks that files from outside need.
 *
 * json_parse refuses what cJSON lets pass: text after the value, invalid UTF-8,
 * NUL inside strings, a key twice in one object, numbers that are not finite.
 * The getters report a missing or mistyped field by name. */
#ifndef TGC_JSON_H
#define TGC_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"

/* `name` (a path) begins every message.  Free with cJSON_Delete. */
int json_parse(cJSON **out, const char *text, size_t size, const char *name, Err *e);
int json_read(cJSON **out, const char *path, size_t max_bytes, Err *e);

/* Field `key` of object `o`; TGC_BAD_FILE when absent or of another kind. */
int json_get_str(const cJSON *o, const char *key, const char **out, const char *name, Err *e);
int json_get_int(const cJSON *o, const char *key, int64_t min, int64_t max, int64_t *out, const char *name, Err *e);
int json_get_num(const cJSON *o, const char *key, double *out, const char *name, Err *e);
int json_get_bool(const cJSON *o, const char *key, bool *out, const char *name, Err *e);
int json_get_object(const cJSON *o, const char *key, const cJSON **out, const char *name, Err *e);

bool json_utf8_ok(const char *s, size_t n);

#endif
