/* schema.c: translates a JSON schema into rules, draft 4 to 2020-12.
 *
 * A value must satisfy a list of schemas (All).  $ref and allOf add to the list; anyOf and oneOf
 * become alternatives; then the keywords of all members meet in one rule for each type.  Properties
 * come in any order, more than MAX_KEYS in the schema's.  oneOf is accepted if no two branches can
 * both hold.  An unsupported keyword is refused with its path.  Names that are no keywords are
 * ignored. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schema.h"

enum { MAX_RULES_MADE = 20000 };

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
        if (!all_gather(s, a))
                return false;
        for (int i = 0; i < a->n && !s->b.code; i++)
                for (int k = 0; k < 2 && cJSON_IsObject(a->of[i]); k++) {
                        const cJSON *list = member(a->of[i], either[k]);
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
        int types = all_types(s, a);
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

static bool old_draft(const cJSON *root)
{
        static const char *const old[] = { "draft-03", "draft-04", "draft-05", "draft-06",
                                           "draft-07" };
        const cJSON *k = member(root, "$schema");
        for (size_t i = 0; cJSON_IsString(k) && i < sizeof old / sizeof *old; i++)
                if (strstr(k->valuestring, old[i]))
                        return true;
        return false;
}

int grammar_schema(Grammar **g, const char *text, size_t n, const char *name, Err *e)
{
        cJSON *root = NULL;
        *g = NULL;
        if (n > GR_MAX_TEXT)
                return err_set(e, TGC_BAD_FILE,
                               "%s: the schema has %zu bytes, the limit is "
                               "%d",
                               name, n, GR_MAX_TEXT);
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
