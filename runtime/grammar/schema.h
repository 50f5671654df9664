/* schema.h: private to the compiler of JSON schemas, schema*.c.  A function that makes a rule
 * returns its number, or NONE if no value satisfies it.  schema_refuse reports why a schema is
 * refused. */
#ifndef TGC_GRAMMAR_SCHEMA_H
#define TGC_GRAMMAR_SCHEMA_H

#include "../util/json.h"
#include "rules.h"

enum { NONE = -1 }; /* in place of a rule: no value satisfies it */

enum {
        T_NULL = 1,
        T_BOOL = 2,
        T_INT = 4,
        T_NUMBER = 8,
        T_STRING = 16,
        T_ARRAY = 32,
        T_OBJECT = 64,
        T_ALL = 127
};

/* Schemas that a value must satisfy all. */
typedef struct All {
        const cJSON **of;
        char *done; /* 1: anyOf, 2: oneOf of it is chosen */
        int n, cap;
} All;

typedef struct Memo {
        All all;
        int rule;
} Memo;

typedef struct Schema {
        Build b;
        const cJSON *root;
        const char *file;
        Memo *memo;
        int n_memo, cap_memo, depth;
        int ws;         /* a rule; 0: not made yet */
        bool ref_alone; /* draft 3 to 7: keywords beside a $ref say nothing */
} Schema;

static inline const cJSON *member(const cJSON *x, const char *key)
{
        return cJSON_GetObjectItemCaseSensitive(x, key);
}

/* schema.c.  A refusal names the keyword with its path. */
void schema_refuse(Schema *s, const cJSON *at, const char *fmt, ...);
int schema_rule(Schema *s, const All *all); /* or NONE */
int schema_blank(Schema *s);
/* Does a string match a pattern, anywhere? -1: refused, at `at` */
int pattern_finds(Schema *s, const cJSON *at, const char *pattern, const char *text);

/* schema_gather.c */
void all_add(Schema *s, All *a, const cJSON *schema, int done);
void all_copy(Schema *s, All *to, const All *from);
void all_free(All *a);
/* The first of them that has the keyword, from *i on; NULL: none. */
const cJSON *all_next(const All *a, const char *key, int *i);
bool all_has(const All *a, const char *key);
/* Adds what $ref and allOf name.  false: one of them is the schema false. */
bool all_gather(Schema *s, All *a);
int all_types(Schema *s, const All *a); /* T_... that their keywords `type` allow */
const cJSON *schema_resolve(Schema *s, const cJSON *ref); /* what a $ref names; NULL: refused */

/* schema_one_of.c.  Refuses a list of which two may hold at once. */
void check_one_of(Schema *s, const cJSON *list);

/* schema_values.c */
int string_rule(Schema *s, const All *all);
int number_rule(Schema *s, const All *all, bool integer);
bool in_list_of(const cJSON *list, const cJSON *value);
int enum_rule(Schema *s, const All *all, int types);
bool number_bounds(Schema *s, const All *all, double *lo, double *hi, bool *open_lo, bool *open_hi);

/* schema_groups.c */
int array_rule(Schema *s, const All *all);
int object_rule(Schema *s, const All *all);

#endif
