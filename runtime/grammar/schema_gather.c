/* schema_gather.c: collects the schemas that a value must satisfy: those named by $ref and allOf
 * join the list.  Unsupported keywords are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schema.h"

enum { MAX_SCHEMAS = 400 };

void all_add(Schema *s, All *a, const cJSON *schema, int done)
{
        for (int i = 0; i < a->n; i++)
                if (a->of[i] == schema) {
                        a->done[i] |= (char)done;
                        return;
                }
        if (a->n >= MAX_SCHEMAS) {
                schema_refuse(s, schema, "more than %d schemas for one value", MAX_SCHEMAS);
                return;
        }
        if (a->n == a->cap) {
                int cap = a->cap * 2 + 8;
                const cJSON **of = realloc(a->of, (size_t)cap * sizeof *of);
                a->of = of ? of : a->of;
                char *d = of ? realloc(a->done, (size_t)cap) : NULL;
                a->done = d ? d : a->done;
                if (!d) {
                        s->b.code = err_set(s->b.e, TGC_NO_MEMORY, "no memory for a schema");
                        return;
                }
                a->cap = cap;
        }
        a->of[a->n] = schema;
        a->done[a->n++] = (char)done;
}

void all_free(All *a)
{
        free(a->of);
        free(a->done);
        *a = (All) { 0 };
}

void all_copy(Schema *s, All *to, const All *from)
{
        *to = (All) { 0 };
        for (int i = 0; i < from->n; i++)
                all_add(s, to, from->of[i], from->done[i]);
}

const cJSON *all_next(const All *a, const char *key, int *i)
{
        for (; *i < a->n; ++*i) {
                const cJSON *k = member(a->of[*i], key);
                if (k) {
                        ++*i;
                        return k;
                }
        }
        return NULL;
}

bool all_has(const All *a, const char *key)
{
        int i = 0;
        return all_next(a, key, &i) != NULL;
}

/* ---- references ---- */

const cJSON *schema_resolve(Schema *s, const cJSON *ref)
{
        const cJSON *at = s->root;
        const char *p = cJSON_IsString(ref) ? ref->valuestring : "";
        if (*p != '#' || (p[1] && p[1] != '/')) {
                schema_refuse(s, ref,
                              "$ref %.100s: only references within the schema (#/...) are followed",
                              p);
                return NULL;
        }
        for (p++; *p && at;) {
                char key[256];
                size_t n = 0;
                for (p++; *p && *p != '/' && n + 1 < sizeof key; p++) {
                        unsigned c = (unsigned char)*p;
                        if (c == '~' && (p[1] == '0' || p[1] == '1'))
                                c = *++p == '0' ? '~' : '/';
                        else if (c == '%' && p[1] && p[2] && sscanf(p + 1, "%2x", &c) == 1)
                                p += 2;
                        key[n++] = (char)c;
                }
                key[n] = 0;
                if (*p && *p != '/')
                        at = NULL;
                else
                        at = at->type == cJSON_Array ? cJSON_GetArrayItem(at, atoi(key))
                                                     : member(at, key);
        }
        if (!at)
                schema_refuse(s, ref, "$ref %.100s points to nothing", ref->valuestring);
        return at;
}

/* What assertions there are that are not compiled. */
static const char *const refused[] = { "not",
                                       "if",
                                       "then",
                                       "else",
                                       "dependentRequired",
                                       "dependentSchemas",
                                       "dependencies",
                                       "contains",
                                       "minContains",
                                       "maxContains",
                                       "propertyNames",
                                       "unevaluatedProperties",
                                       "unevaluatedItems",
                                       "$dynamicRef",
                                       "$recursiveRef",
                                       "extends",
                                       "disallow",
                                       "divisibleBy" };

/* Keywords that say nothing: {} or true. */
static bool is_true(const cJSON *k) { return cJSON_IsTrue(k) || (cJSON_IsObject(k) && !k->child); }

static void check_keywords(Schema *s, const cJSON *x)
{
        for (const cJSON *k = x->child; k && !s->b.code; k = k->next) {
                const char *name = k->string;
                for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
                        if (!strcmp(name, refused[i]) &&
                            !(is_true(k) && (!strcmp(name, "propertyNames") ||
                                             !strncmp(name, "unevaluated", 11))) &&
                            !((!strcmp(name, "then") || !strcmp(name, "else")) &&
                              !member(x, "if")) &&
                            !(!strncmp(name, "depend", 6) && cJSON_IsObject(k) && !k->child))
                                schema_refuse(s, k, "keyword %s is not supported", name);
                if (!strcmp(name, "required") && !cJSON_IsArray(k))
                        schema_refuse(s, k, "keyword required is not a list");
                if (!strcmp(name, "uniqueItems") && cJSON_IsTrue(k)) {
                        const cJSON *most = member(x, "maxItems");
                        if (!cJSON_IsNumber(most) || most->valuedouble > 1)
                                schema_refuse(s, k, "keyword uniqueItems is not supported");
                }
        }
}

/* The schema behind place `at`, and not at the end: properties come in the order in which they are
 * read, those of a $ref before those of what follows it.  The next place. */
static int add_behind(Schema *s, All *a, const cJSON *schema, int at)
{
        const int n = a->n;
        all_add(s, a, schema, 0);
        if (a->n == n) /* it is there already */
                return at;
        const char done = a->done[n];
        memmove(a->of + at + 2, a->of + at + 1, (size_t)(n - at - 1) * sizeof *a->of);
        memmove(a->done + at + 2, a->done + at + 1, (size_t)(n - at - 1));
        a->of[at + 1] = schema;
        a->done[at + 1] = done;
        return at + 1;
}

/* Up to draft 7 a $ref stands for the whole schema: keywords beside it say nothing. */
static const cJSON *whole_ref(Schema *s, const cJSON *x)
{
        const cJSON *ref;
        for (int hops = 0; x && cJSON_IsObject(x) && !s->b.code && (ref = member(x, "$ref"));
             hops++) {
                if (hops == GR_MAX_NEST)
                        schema_refuse(s, ref, "$ref leads back to itself");
                x = schema_resolve(s, ref);
        }
        return x;
}

bool all_gather(Schema *s, All *a)
{
        static const cJSON anything = { .type = cJSON_True };
        for (int i = 0; i < a->n && !s->b.code; i++) {
                if (s->ref_alone) {
                        const cJSON *to = whole_ref(s, a->of[i]);
                        for (int j = 0; j < a->n && to; j++)
                                if (j != i && a->of[j] == to)
                                        to = &anything; /* it is in the list */
                        if (!to)
                                break;
                        a->of[i] = to;
                }
                const cJSON *x = a->of[i], *k;
                if (cJSON_IsFalse(x))
                        return false;
                if (cJSON_IsTrue(x))
                        continue;
                if (!cJSON_IsObject(x)) {
                        schema_refuse(s, x, "a schema is an object, true or false");
                        break;
                }
                check_keywords(s, x);
                int at = i;
                if ((k = member(x, "$ref")) && !s->b.code) {
                        const cJSON *to = schema_resolve(s, k);
                        if (to)
                                at = add_behind(s, a, to, at);
                }
                if ((k = member(x, "allOf"))) {
                        if (!cJSON_IsArray(k))
                                schema_refuse(s, k, "keyword allOf is not a list");
                        for (const cJSON *c = k->child; c && !s->b.code; c = c->next)
                                at = add_behind(s, a, c, at);
                }
        }
        return true;
}

/* ---- types ---- */

static int type_named(const char *t)
{
        static const char *const name[] = { "null",   "boolean", "integer", "number",
                                            "string", "array",   "object" };
        for (int i = 0; i < 7; i++)
                if (t && !strcmp(t, name[i]))
                        return i == 3 ? T_NUMBER | T_INT : 1 << i;
        return 0;
}

int all_types(Schema *s, const All *a)
{
        int types = T_ALL, i = 0;
        for (const cJSON *k; (k = all_next(a, "type", &i));) {
                int these = 0;
                if (cJSON_IsArray(k)) {
                        for (const cJSON *c = k->child; c; c = c->next) {
                                int t = cJSON_IsString(c) ? type_named(c->valuestring) : 0;
                                if (!t)
                                        schema_refuse(s, c, "there is no such type");
                                these |= t;
                        }
                } else if (!(these = cJSON_IsString(k) ? type_named(k->valuestring) : 0)) {
                        schema_refuse(s, k, "there is no such type");
                }
                types &= these;
        }
        return types;
}
