/* schema.c: translates a JSON schema into rules, draft 4 to 2020-12.
 *
 * A value must satisfy a list of schemas (All).  $ref and allOf add to the list; anyOf and oneOf
 * become alternatives; then the keywords of all members meet in one rule for each type.  Properties
 * come in the order of the schema, others after them.  oneOf is accepted if no two of its branches
 * can both hold.  An unsupported keyword is refused with its path.  Names that are no keywords are
 * ignored. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schema.h"

enum { MAX_RULES_MADE = 20000, MAX_SCHEMAS = 400 };

/* ---- messages ---- */

/* The path of `what` below `at`, written at the end of p. */
static bool find_path(const cJSON *at, const cJSON *what, char *p, size_t room, int depth)
{
        int i = 0;
        if (at == what)
                return true;
        if (depth > GR_MAX_NEST)
                return false;
        for (const cJSON *c = at->child; c; c = c->next, i++) {
                int n = at->type == cJSON_Array ? snprintf(p, room, "/%d", i)
                                                : snprintf(p, room, "/%.60s", c->string);
                if ((size_t)n < room && find_path(c, what, p + n, room - (size_t)n, depth + 1))
                        return true;
        }
        *p = 0;
        return false;
}

void schema_refuse(Schema *s, const cJSON *at, const char *fmt, ...)
{
        char path[400] = "", what[300];
        va_list a;
        if (s->b.code)
                return;
        va_start(a, fmt);
        vsnprintf(what, sizeof what, fmt, a);
        va_end(a);
        if (at)
                find_path(s->root, at, path, sizeof path, 0);
        s->b.code = err_set(s->b.e, TGC_BAD_FILE, "%s: %s: %s", s->file, *path ? path : "/", what);
}

/* ---- lists of schemas ---- */

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

static void all_copy(Schema *s, All *to, const All *from)
{
        *to = (All) { 0 };
        for (int i = 0; i < from->n; i++)
                all_add(s, to, from->of[i], from->done[i]);
}

const cJSON *all_next(const All *a, const char *key, int *i)
{
        for (; *i < a->n; ++*i) {
                const cJSON *k = cJSON_GetObjectItemCaseSensitive(a->of[*i], key);
                if (k) {
                        ++*i;
                        return k;
                }
        }
        return NULL;
}

static bool all_has(const All *a, const char *key)
{
        int i = 0;
        return all_next(a, key, &i) != NULL;
}

/* ---- references ---- */

static const cJSON *resolve(Schema *s, const cJSON *ref)
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
                                                     : cJSON_GetObjectItemCaseSensitive(at, key);
        }
        if (!at)
                schema_refuse(s, ref, "$ref %.100s: there is nothing", ref->valuestring);
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
                              !cJSON_GetObjectItemCaseSensitive(x, "if")) &&
                            !(!strncmp(name, "depend", 6) && cJSON_IsObject(k) && !k->child))
                                schema_refuse(s, k, "keyword %s is not supported", name);
                if (!strcmp(name, "required") && !cJSON_IsArray(k))
                        schema_refuse(s, k, "keyword required is not a list");
                if (!strcmp(name, "uniqueItems") && cJSON_IsTrue(k)) {
                        const cJSON *most = cJSON_GetObjectItemCaseSensitive(x, "maxItems");
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
        for (int hops = 0; x && cJSON_IsObject(x) && !s->b.code &&
                           (ref = cJSON_GetObjectItemCaseSensitive(x, "$ref"));
             hops++) {
                if (hops == GR_MAX_NEST)
                        schema_refuse(s, ref, "$ref leads back to itself");
                x = resolve(s, ref);
        }
        return x;
}

static bool old_draft(const cJSON *root)
{
        static const char *const old[] = { "draft-03", "draft-04", "draft-05", "draft-06",
                                           "draft-07" };
        const cJSON *k = cJSON_GetObjectItemCaseSensitive(root, "$schema");
        for (size_t i = 0; cJSON_IsString(k) && i < sizeof old / sizeof *old; i++)
                if (strstr(k->valuestring, old[i]))
                        return true;
        return false;
}

/* Follow $ref and allOf.  false: one of them is the schema false. */
static bool gather(Schema *s, All *a)
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
                if ((k = cJSON_GetObjectItemCaseSensitive(x, "$ref")) && !s->b.code) {
                        const cJSON *to = resolve(s, k);
                        if (to)
                                at = add_behind(s, a, to, at);
                }
                if ((k = cJSON_GetObjectItemCaseSensitive(x, "allOf"))) {
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

static int types_of(Schema *s, const All *a)
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

/* ---- oneOf ---- */

static const cJSON *member(const cJSON *x, const char *key, const char *sub)
{
        const cJSON *k = cJSON_GetObjectItemCaseSensitive(x, key);
        return sub ? cJSON_GetObjectItemCaseSensitive(k, sub) : k;
}

static bool requires(const cJSON *x, const char *name)
{
        const cJSON *k = member(x, "required", NULL);
        for (const cJSON *c = cJSON_IsArray(k) ? k->child : NULL; c; c = c->next)
                if (cJSON_IsString(c) && !strcmp(c->valuestring, name))
                        return true;
        return false;
}

bool in_list_of(const cJSON *list, const cJSON *value)
{
        for (const cJSON *c = list->child; c; c = c->next)
                if (cJSON_Compare(c, value, true))
                        return true;
        return false;
}

/* No value satisfies both, as far as is seen. */
static bool disjoint(Schema *s, const cJSON *x, const cJSON *y, int depth)
{
        for (const cJSON *k; (k = member(x, "$ref", NULL)) && depth < 20; depth++)
                if (!(x = resolve(s, k)))
                        return false;
        for (const cJSON *k; (k = member(y, "$ref", NULL)) && depth < 20; depth++)
                if (!(y = resolve(s, k)))
                        return false;
        if (!cJSON_IsObject(x) || !cJSON_IsObject(y) || depth > 12)
                return cJSON_IsFalse(x) || cJSON_IsFalse(y);
        All a = { &x, (char[]) { 0 }, 1, 1 }, b = { &y, (char[]) { 0 }, 1, 1 };
        int both = types_of(s, &a) & types_of(s, &b);
        if (!both)
                return true;
        const cJSON *values[2][2] = { { member(x, "enum", NULL), member(x, "const", NULL) },
                                      { member(y, "enum", NULL), member(y, "const", NULL) } };
        bool common = false,
             known = (values[0][0] || values[0][1]) && (values[1][0] || values[1][1]);
        for (const cJSON *c = values[0][1]   ? values[0][1]
                              : values[0][0] ? values[0][0]->child
                                             : NULL;
             c && known && !common; c = values[0][1] ? NULL : c->next)
                common = values[1][1] ? cJSON_Compare(c, values[1][1], true)
                                      : in_list_of(values[1][0], c);
        if (known && !common)
                return true;
        if (!(both & ~(T_INT | T_NUMBER))) {
                double lo[2], hi[2];
                bool open[4];
                if (number_bounds(s, &a, &lo[0], &hi[0], &open[0], &open[1]) &&
                    number_bounds(s, &b, &lo[1], &hi[1], &open[2], &open[3]))
                        return hi[0] < lo[1] || hi[1] < lo[0] ||
                               (hi[0] == lo[1] && (open[1] || open[2])) ||
                               (hi[1] == lo[0] && (open[3] || open[0]));
        }
        for (const cJSON *c = member(x, "allOf", NULL) ? member(x, "allOf", NULL)->child : NULL; c;
             c = c->next)
                if (disjoint(s, c, y, depth + 1))
                        return true;
        if (both != T_OBJECT)
                return false;
        for (int swap = 0; swap < 2; swap++, both = T_OBJECT) {
                const cJSON *p = swap ? y : x, *q = swap ? x : y,
                            *props = member(p, "properties", NULL);
                for (const cJSON *c = props ? props->child : NULL; c; c = c->next) {
                        const cJSON *d = member(q, "properties", c->string);
                        if (d && (requires(p, c->string) || requires(q, c->string)) &&
                            requires(p, c->string) && requires(q, c->string) &&
                            disjoint(s, c, d, depth + 1))
                                return true;
                }
                /* p needs what q does not allow */
                const cJSON *need = member(p, "required", NULL);
                for (const cJSON *c = cJSON_IsArray(need) ? need->child : NULL; c; c = c->next)
                        if (cJSON_IsString(c) &&
                            cJSON_IsFalse(member(q, "additionalProperties", NULL)) &&
                            !member(q, "patternProperties", NULL) &&
                            !member(q, "properties", c->valuestring))
                                return true;
        }
        return false;
}

static void check_one_of(Schema *s, const cJSON *k)
{
        for (const cJSON *x = k->child; x && !s->b.code; x = x->next)
                for (const cJSON *y = x->next; y && !s->b.code; y = y->next)
                        if (!disjoint(s, x, y, 0))
                                schema_refuse(
                                        s, k,
                                        "keyword oneOf: two of its schemas may hold at once, and "
                                        "that is not excluded; anyOf, or a property with const "
                                        "values in each, is supported");
}

/* ---- rules ---- */

static int known_rule(const Schema *s, const All *a)
{
        for (int i = 0; i < s->n_memo; i++) {
                const All *m = &s->memo[i].all;
                if (m->n == a->n &&
                    (!m->n || (!memcmp(m->of, a->of, (size_t)a->n * sizeof *a->of) &&
                               !memcmp(m->done, a->done, (size_t)a->n))))
                        return s->memo[i].rule;
        }
        return -2;
}

int schema_blank(Schema *s)
{
        Build *b = &s->b;
        if (!s->ws) {
                static const CharRange blank[] = { { ' ', ' ' }, { '\t', '\t' } };
                s->ws = gr_rule(b);
                gr_alt(b, s->ws);
                gr_text(b, s->ws, " ", 1);
                gr_alt(b, s->ws);
                gr_text(b, s->ws, "\n", 1);
                gr_ref(b, s->ws, gr_repeat(b, gr_class(b, blank, 2, false), 0, 40));
        }
        return s->ws;
}

/* An alternative that is a reference; a rule that has none yet takes it as its first. */
static void add(Schema *s, int rule, int ref, bool *first)
{
        if (ref == NONE)
                return;
        if (!*first)
                gr_alt(&s->b, rule);
        *first = false;
        gr_ref(&s->b, rule, ref);
}

static void text_rule(Schema *s, int rule, const char *text, bool *first)
{
        int r = gr_rule(&s->b);
        gr_text(&s->b, r, text, strlen(text));
        add(s, rule, r, first);
}

/* Into `rule`; false: nothing satisfies them. */
static bool fill(Schema *s, All *a, int rule)
{
        static const char *const either[] = { "anyOf", "oneOf" };
        bool first = true;
        if (!gather(s, a))
                return false;
        for (int i = 0; i < a->n && !s->b.code; i++)
                for (int k = 0; k < 2 && cJSON_IsObject(a->of[i]); k++) {
                        const cJSON *list = cJSON_GetObjectItemCaseSensitive(a->of[i], either[k]);
                        if (!list || a->done[i] & 1 << k)
                                continue;
                        if (!cJSON_IsArray(list)) {
                                schema_refuse(s, list, "keyword %s is not a list", either[k]);
                                return false;
                        }
                        if (k == 1)
                                check_one_of(s, list);
                        for (const cJSON *c = list->child; c && !s->b.code; c = c->next) {
                                All with;
                                all_copy(s, &with, a);
                                if (!s->b.code) {
                                        with.done[i] |= (char)(1 << k);
                                        all_add(s, &with, c, 0);
                                }
                                if (!s->b.code)
                                        add(s, rule, schema_rule(s, &with), &first);
                                all_free(&with);
                        }
                        return !first;
                }
        int types = types_of(s, a);
        if (all_has(a, "enum") || all_has(a, "const")) {
                add(s, rule, enum_rule(s, a, types), &first);
                return !first;
        }
        if (types & T_NULL)
                text_rule(s, rule, "null", &first);
        if (types & T_BOOL) {
                text_rule(s, rule, "true", &first);
                text_rule(s, rule, "false", &first);
        }
        if (types & (T_INT | T_NUMBER))
                add(s, rule, number_rule(s, a, !(types & T_NUMBER)), &first);
        if (types & T_STRING)
                add(s, rule, string_rule(s, a), &first);
        if (types & T_ARRAY)
                add(s, rule, array_rule(s, a), &first);
        if (types & T_OBJECT)
                add(s, rule, object_rule(s, a), &first);
        return !first;
}

int schema_rule(Schema *s, const All *all)
{
        All a;
        int rule = known_rule(s, all);
        if (rule != -2)
                return rule;
        if (s->n_memo >= MAX_RULES_MADE || s->depth >= GR_MAX_NEST) {
                schema_refuse(s, all->n ? all->of[all->n - 1] : NULL,
                              s->depth >= GR_MAX_NEST ? "schemas nest deeper than %d"
                                                      : "it unfolds into more than %d schemas",
                              s->depth >= GR_MAX_NEST ? GR_MAX_NEST : MAX_RULES_MADE);
                return NONE;
        }
        rule = gr_rule(&s->b);
        if (s->n_memo == s->cap_memo) {
                int cap = s->cap_memo * 2 + 64;
                Memo *m = realloc(s->memo, (size_t)cap * sizeof *m);
                if (!m) {
                        s->b.code = err_set(s->b.e, TGC_NO_MEMORY, "no memory for a schema");
                        return NONE;
                }
                s->memo = m;
                s->cap_memo = cap;
        }
        const int at = s->n_memo++;
        s->memo[at].rule = rule;
        all_copy(s, &s->memo[at].all, all);
        all_copy(s, &a, all);
        s->depth++;
        bool some = !s->b.code && fill(s, &a, rule);
        s->depth--;
        all_free(&a);
        if (!some) { /* who has begun to use it finds nothing there */
                gr_bytes(&s->b, rule, 0xff, 0xff);
                s->memo[at].rule = NONE;
        }
        return s->memo[at].rule;
}

int pattern_finds(Schema *s, const cJSON *at, const char *pattern, const char *text)
{
        Build b;
        Err e = { 0, "" };
        Grammar *g = NULL;
        Matcher *m = NULL;
        Lengths len;
        const char *wrong;
        int found = -1;
        gr_begin(&b, &e);
        int all = gr_regex(&b, pattern, &len, &wrong);
        gr_ref(&b, 0, all);
        if (wrong) {
                gr_free(&b);
                schema_refuse(s, at, "the pattern %.80s: %s is not supported", pattern, wrong);
                return -1;
        }
        /* as JSON strings have it */
        cJSON *string = cJSON_CreateString(text);
        char *json = string ? cJSON_PrintUnformatted(string) : NULL;
        if (json && !gr_end(&b, &g, s->file, NULL, NULL) && !matcher_new(&m, g, NULL, &e)) {
                size_t n = strlen(json);
                found = matcher_bytes(m, json + 1, n - 2) && matcher_complete(m);
        } else {
                schema_refuse(s, at, "the pattern %.80s: %.150s", pattern, e.msg);
        }
        cJSON_free(json);
        cJSON_Delete(string);
        matcher_free(m);
        grammar_free(g);
        gr_free(&b);
        return found;
}

int grammar_schema(Grammar **g, const char *text, size_t n, const char *name, Err *e)
{
        cJSON *root = NULL;
        *g = NULL;
        if (n > GR_MAX_TEXT)
                return err_set(e, TGC_BAD_FILE, "%s: %zu bytes of schema; at most %d", name, n,
                               GR_MAX_TEXT);
        int code = json_parse(&root, text, n, name, e);
        if (code)
                return code;
        Schema s = { .root = root, .file = name, .ref_alone = old_draft(root) };
        All all = { 0 };
        gr_begin(&s.b, e);
        all_add(&s, &all, root, 0);
        int rule = s.b.code ? NONE : schema_rule(&s, &all);
        if (rule == NONE)
                schema_refuse(&s, NULL, "no value satisfies the schema");
        if (!s.b.code) {
                gr_ref(&s.b, 0, rule);
                gr_ref(&s.b, 0, schema_blank(&s));
        }
        code = gr_end(&s.b, g, name, NULL, NULL);
        for (int i = 0; i < s.n_memo; i++)
                all_free(&s.memo[i].all);
        free(s.memo);
        all_free(&all);
        cJSON_Delete(root);
        return code;
}
