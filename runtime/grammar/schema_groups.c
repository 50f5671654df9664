/* schema_groups.c: arrays and objects. */
#include <stdlib.h>
#include <string.h>
#include "schema.h"

/* ---- arrays ---- */

/* What item i must satisfy; past: any item behind all that are listed. */
static void item_schemas(Schema *s, const All *all, int i, bool past, All *out)
{
        *out = (All) { 0 };
        for (int k = 0; k < all->n && !s->b.code; k++) {
                const cJSON *x = all->of[k], *list = member(x, "prefixItems"),
                            *items = member(x, "items"), *rest = items;
                if (cJSON_IsArray(items)) {
                        list = items;
                        rest = member(x, "additionalItems");
                }
                const cJSON *one = cJSON_IsArray(list) && !past ? cJSON_GetArrayItem(list, i)
                                                                : NULL;
                if (one || rest)
                        all_add(s, out, one ? one : rest, 0);
        }
}

int array_rule(Schema *s, const All *all)
{
        Build *b = &s->b;
        const cJSON *k;
        int i = 0, min = 0, max = -1, listed = 0;
        for (int key = 0; key < 2; key++, i = 0)
                while ((k = all_next(all, key ? "maxItems" : "minItems", &i))) {
                        if (!cJSON_IsNumber(k) || k->valuedouble < 0 ||
                            k->valuedouble > GR_MAX_REPEAT) {
                                schema_refuse(s, k,
                                              "keyword %s is not a whole number from 0 to "
                                              "%d",
                                              k->string, GR_MAX_REPEAT);
                                return NONE;
                        }
                        int n = (int)k->valuedouble;
                        if (!key)
                                min = n > min ? n : min;
                        else
                                max = max < 0 || n < max ? n : max;
                }
        for (i = 0; i < all->n; i++) {
                const cJSON *p = member(all->of[i], "prefixItems"),
                            *q = member(all->of[i], "items");
                int n = cJSON_IsArray(p) ? cJSON_GetArraySize(p) : 0,
                    m = cJSON_IsArray(q) ? cJSON_GetArraySize(q) : 0;
                listed = n > listed ? n : listed;
                listed = m > listed ? m : listed;
        }
        if (max >= 0 && listed > max)
                listed = max;
        All each;
        item_schemas(s, all, 0, true, &each);
        int more = (max < 0 || listed < max) && !s->b.code ? schema_rule(s, &each) : NONE;
        all_free(&each);
        /* what may follow the first `listed` items: "," item, again and again */
        int tail = gr_rule(b);
        const int least = min > listed ? min - listed : 0;
        if (more == NONE && least)
                return NONE;
        if (more != NONE) {
                int next = gr_rule(b);
                gr_text(b, next, ",", 1);
                gr_ref(b, next, schema_blank(s));
                gr_ref(b, next, more);
                gr_ref(b, next, schema_blank(s));
                if (listed) {
                        gr_ref(b, tail, gr_repeat(b, next, least, max < 0 ? -1 : max - listed));
                } else { /* the first of them has no comma */
                        gr_ref(b, tail, more);
                        gr_ref(b, tail, schema_blank(s));
                        gr_ref(b, tail,
                               gr_repeat(b, next, least ? least - 1 : 0, max < 0 ? -1 : max - 1));
                        if (!least)
                                gr_alt(b, tail);
                }
        }
        for (i = listed - 1; i >= 0 && !b->code; i--) {
                All here;
                item_schemas(s, all, i, false, &here);
                int item = schema_rule(s, &here), from = gr_rule(b);
                all_free(&here);
                if (item == NONE && i < min)
                        return NONE;
                if (item != NONE) {
                        if (i)
                                gr_text(b, from, ",", 1);
                        gr_ref(b, from, schema_blank(s));
                        gr_ref(b, from, item);
                        gr_ref(b, from, schema_blank(s));
                        gr_ref(b, from, tail);
                        if (i >= min)
                                gr_alt(b, from);
                }
                tail = from;
        }
        int rule = gr_rule(b);
        gr_text(b, rule, "[", 1);
        gr_ref(b, rule, schema_blank(s));
        gr_ref(b, rule, tail);
        gr_text(b, rule, "]", 1);
        return rule;
}

/* ---- objects ---- */

typedef struct Key {
        const char *name;
        bool required;
        int rule; /* of its value, or NONE */
} Key;

typedef struct Keys {
        Key *key;
        int n, cap;
} Keys;

static Key *key_named(Schema *s, Keys *all, const char *name)
{
        for (int i = 0; i < all->n; i++)
                if (!strcmp(all->key[i].name, name))
                        return &all->key[i];
        if (all->n == all->cap) {
                int cap = all->cap * 2 + 16;
                Key *k = realloc(all->key, (size_t)cap * sizeof *k);
                if (!k) {
                        s->b.code = err_set(s->b.e, TGC_NO_MEMORY, "no memory for a schema");
                        return NULL;
                }
                all->key = k;
                all->cap = cap;
        }
        all->key[all->n] = (Key) { .name = name, .rule = NONE };
        return &all->key[all->n++];
}

static bool says_nothing(const cJSON *k)
{
        return !k || cJSON_IsTrue(k) || (cJSON_IsObject(k) && !k->child);
}

/* What the value of a key must satisfy; name NULL: of a key that is in no `properties`, and that
 * `pattern` finds (NULL: no pattern). */
static void value_schemas(Schema *s, const All *all, const char *name, const cJSON *pattern,
                          All *out)
{
        *out = (All) { 0 };
        for (int i = 0; i < all->n && !s->b.code; i++) {
                const cJSON *x = all->of[i],
                            *one = name ? member(member(x, "properties"), name) : NULL,
                            *patterns = member(x, "patternProperties"),
                            *rest = member(x, "additionalProperties");
                bool found = one != NULL;
                if (one)
                        all_add(s, out, one, 0);
                for (const cJSON *p = patterns ? patterns->child : NULL; p && !s->b.code;
                     p = p->next)
                        if (name ? pattern_finds(s, p, p->string, name) == 1
                                 : pattern && !strcmp(p->string, pattern->string)) {
                                all_add(s, out, p, 0);
                                found = true;
                        }
                if (!found && rest)
                        all_add(s, out, rest, 0);
        }
}

/* The rest of keys that are none of sorted names [from, to), which begin with the same n bytes;
 * with the closing quote. */
static int by_name(const void *x, const void *y)
{
        const char *const *a = x, *const *b = y;
        return strcmp(*a, *b);
}

static int other_keys(Schema *s, const char **name, int from, int to, size_t n, int depth)
{
        Build *b = &s->b;
        CharRange taken[256];
        int rule = gr_rule(b), n_taken = 0;
        if (depth > 2000) {
                schema_refuse(s, NULL, "a property's name is too long");
                return rule;
        }
        bool ends = false; /* one of the names ends here */
        for (int i = from; i < to && !b->code;) {
                uint32_t c;
                size_t left = strlen(name[i] + n);
                if (!left) {
                        ends = true;
                        i++;
                        continue;
                }
                int len = char_read(name[i] + n, left, &c), k = i;
                if (!len || n_taken == 256) {
                        schema_refuse(s, NULL,
                                      "too many properties begin with the same characters");
                        return rule;
                }
                while (k < to && !strncmp(name[k] + n, name[i] + n, (size_t)len))
                        k++;
                gr_ref(b, rule, gr_json_class(b, &(CharRange) { c, c }, 1, false));
                gr_ref(b, rule, other_keys(s, name, i, k, n + (size_t)len, depth + 1));
                gr_alt(b, rule);
                taken[n_taken++] = (CharRange) { c, c };
                i = k;
        }
        if (!b->any_char)
                b->any_char = gr_json_class(b, NULL, 0, true);
        gr_ref(b, rule, gr_json_class(b, taken, n_taken, true));
        gr_ref(b, rule, gr_repeat(b, b->any_char, 0, -1));
        gr_text(b, rule, "\"", 1);
        if (!ends) {
                gr_alt(b, rule);
                gr_text(b, rule, "\"", 1);
        }
        return rule;
}

static void add_value(Schema *s, int rule, int value)
{
        Build *b = &s->b;
        gr_ref(b, rule, schema_blank(s));
        gr_text(b, rule, ":", 1);
        gr_ref(b, rule, schema_blank(s));
        gr_ref(b, rule, value);
        gr_ref(b, rule, schema_blank(s));
}

static int pair(Schema *s, int key, int value)
{
        int rule = gr_rule(&s->b);
        gr_ref(&s->b, rule, key);
        add_value(s, rule, value);
        return rule;
}

/* Pairs whose keys are none of the properties, behind their first quote; NONE: there are none. */
static int other_pairs(Schema *s, const All *all, const Keys *keys)
{
        Build *b = &s->b;
        const cJSON *p = NULL, *first = NULL;
        int n_patterns = 0, rule = NONE;
        bool closed = false;
        All value;
        for (int i = 0; i < all->n; i++) {
                const cJSON *list = member(all->of[i], "patternProperties");
                closed |= cJSON_IsFalse(member(all->of[i], "additionalProperties"));
                for (p = list ? list->child : NULL; p; p = p->next)
                        if (!(says_nothing(p) &&
                              says_nothing(member(all->of[i], "additionalProperties")))) {
                                first = first ? first : p;
                                n_patterns += !first || first == p ||
                                              strcmp(p->string, first->string) ||
                                              !cJSON_Compare(p, first, true);
                        }
        }
        if (n_patterns) {
                static const char *const whatever[] = { ".*", "^.*$", "^.*",  ".*$",
                                                        "",   "^",    "(.*)", "^(.*)$" };
                bool every = false;
                Lengths len;
                const char *wrong;
                for (size_t i = 0; i < sizeof whatever / sizeof *whatever; i++)
                        every |= n_patterns == 1 && !strcmp(first->string, whatever[i]);
                if (n_patterns > 1) {
                        schema_refuse(
                                s, first,
                                "several patternProperties for the same key are not supported");
                        return NONE;
                }
                if (!closed && !every) {
                        schema_refuse(
                                s, first,
                                "patternProperties without additionalProperties false are not "
                                "supported");
                        return NONE;
                }
                for (int i = 0; i < keys->n && !s->b.code; i++)
                        if (!every &&
                            pattern_finds(s, first, first->string, keys->key[i].name) == 1) {
                                schema_refuse(
                                        s, first,
                                        "patternProperties that finds the property %.60s as well "
                                        "is not supported",
                                        keys->key[i].name);
                                return NONE;
                        }
                value_schemas(s, all, NULL, first, &value);
                int v = s->b.code ? NONE : schema_rule(s, &value);
                all_free(&value);
                if (v == NONE || s->b.code)
                        return NONE;
                if (!every) {
                        int key = gr_rule(b), inner = gr_regex(b, first->string, &len, &wrong);
                        if (wrong) {
                                schema_refuse(s, first, "the pattern %.80s: %s is not supported",
                                              first->string, wrong);
                                return NONE;
                        }
                        gr_ref(b, key, inner);
                        gr_text(b, key, "\"", 1);
                        return pair(s, key, v);
                }
                rule = v;
        } else {
                value_schemas(s, all, NULL, NULL, &value);
                rule = s->b.code ? NONE : schema_rule(s, &value);
                all_free(&value);
        }
        if (rule == NONE || s->b.code)
                return NONE;
        const char **name = malloc(((size_t)keys->n + 1) * sizeof *name);
        if (!name) {
                b->code = err_set(b->e, TGC_NO_MEMORY, "no memory for a schema");
                return NONE;
        }
        for (int i = 0; i < keys->n; i++)
                name[i] = keys->key[i].name;
        qsort(name, (size_t)keys->n, sizeof *name, by_name);
        int key = gr_rule(b);
        gr_ref(b, key, other_keys(s, name, 0, keys->n, 0, 0));
        free(name);
        return pair(s, key, rule);
}

static void find_keys(Schema *s, const All *all, Keys *keys)
{
        for (int i = 0; i < all->n && !s->b.code; i++) {
                const cJSON *p = member(all->of[i], "properties");
                if (p && !cJSON_IsObject(p))
                        schema_refuse(s, p, "keyword properties is not an object");
                for (p = cJSON_IsObject(p) ? p->child : NULL; p && !s->b.code; p = p->next)
                        key_named(s, keys, p->string);
                const cJSON *patterns = member(all->of[i], "patternProperties");
                if (patterns && !cJSON_IsObject(patterns))
                        schema_refuse(s, patterns, "keyword patternProperties is not an object");
        }
        for (int i = 0; i < all->n && !s->b.code; i++) {
                const cJSON *r = member(all->of[i], "required");
                for (r = cJSON_IsArray(r) ? r->child : NULL; r && !s->b.code; r = r->next) {
                        if (!cJSON_IsString(r)) {
                                schema_refuse(s, r,
                                              "keyword required lists something that is not a "
                                              "string");
                                return;
                        }
                        Key *k = key_named(s, keys, r->valuestring);
                        if (k)
                                k->required = true;
                }
        }
        for (int i = 0; i < keys->n && !s->b.code; i++) {
                All value;
                value_schemas(s, all, keys->key[i].name, NULL, &value);
                int rule = s->b.code ? NONE : schema_rule(s, &value);
                keys->key[i].rule = rule;
                all_free(&value);
        }
}

/* How many properties there may be: *min, *max of the keywords; max -1: any number. */
static void property_counts(Schema *s, const All *all, int *min, int *max)
{
        const cJSON *k;
        *min = 0, *max = -1;
        for (int key = 0, i = 0; key < 2; key++, i = 0)
                while ((k = all_next(all, key ? "maxProperties" : "minProperties", &i))) {
                        if (!cJSON_IsNumber(k) || k->valuedouble < 0 ||
                            k->valuedouble > GR_MAX_REPEAT) {
                                schema_refuse(s, k,
                                              "keyword %s is not a whole number from 0 to "
                                              "%d",
                                              k->string, GR_MAX_REPEAT);
                                return;
                        }
                        int n = (int)k->valuedouble;
                        if (!key)
                                *min = n > *min ? n : *min;
                        else
                                *max = *max < 0 || n < *max ? n : *max;
                }
}

/* "," pair, again and again */
static int comma(Schema *s, int pair)
{
        int rule = gr_rule(&s->b);
        gr_text(&s->b, rule, ",", 1);
        gr_ref(&s->b, rule, schema_blank(s));
        gr_ref(&s->b, rule, pair);
        return rule;
}

/* quote: with the one that begins the key */
static int named_pair(Schema *s, const Key *k, bool quote)
{
        Build *b = &s->b;
        int name = gr_rule(b); /* no rule that its value stands behind: tokens do not leave it */
        if (quote)
                gr_text(b, name, "\"", 1);
        gr_json_text(b, name, k->name, strlen(k->name));
        gr_text(b, name, "\"", 1);
        add_value(s, name, k->rule);
        return name;
}

/* The object, with up to MAX_KEYS properties in any order. */
static int any_order(Schema *s, const Keys *keys, int other, bool some)
{
        Build *b = &s->b;
        KeySet set = { .other = other, .some = some, .quote = gr_rule(b), .comma = gr_rule(b) };
        int rule = gr_rule(b);
        gr_text(b, set.quote, "\"", 1);
        gr_text(b, set.comma, ",", 1);
        gr_ref(b, set.comma, schema_blank(s));
        gr_text(b, set.comma, "\"", 1);
        for (int i = 0; i < keys->n && !b->code; i++)
                if (keys->key[i].rule != NONE) {
                        set.required |= (uint64_t)keys->key[i].required << set.n;
                        set.pair[set.n++] = named_pair(s, &keys->key[i], false);
                }
        gr_text(b, rule, "{", 1);
        gr_ref(b, rule, schema_blank(s));
        gr_keys(b, rule, &set);
        gr_text(b, rule, "}", 1);
        return rule;
}

int object_rule(Schema *s, const All *all)
{
        Build *b = &s->b;
        Keys keys = { 0 };
        int min, max, needed = 0, possible = 0, rule = NONE;
        find_keys(s, all, &keys);
        property_counts(s, all, &min, &max);
        int other = s->b.code ? NONE : other_pairs(s, all, &keys);
        if (s->b.code)
                goto out;
        for (int i = 0; i < keys.n; i++) {
                if (keys.key[i].required && keys.key[i].rule == NONE)
                        goto out;
                needed += keys.key[i].required;
                possible += keys.key[i].rule != NONE;
        }
        if (other == NONE && possible < min)
                goto out;
        const bool counted = min > needed + (needed == 0 && min == 1) ||
                             (max >= 0 && (other != NONE || possible > max));
        int first, after = gr_rule(b); /* before a pair: the first of all, or behind another */
        if (counted && possible) {
                int i = 0;
                const cJSON *k = all_next(all, min > needed ? "minProperties" : "maxProperties",
                                          &i);
                schema_refuse(s, k, "keyword %s beside optional properties is not supported",
                              min > needed ? "minProperties" : "maxProperties");
                goto out;
        }
        if (possible && possible <= MAX_KEYS) {
                rule = any_order(s, &keys, other, min > 0);
                goto out;
        }
        if (other != NONE) {
                const int quoted = gr_rule(b);
                gr_text(b, quoted, "\"", 1);
                gr_ref(b, quoted, other);
                other = quoted;
        }
        first = gr_rule(b);
        if (other != NONE && (max < 0 || max > 0)) {
                gr_ref(b, first, other);
                gr_ref(b, first,
                       gr_repeat(b, comma(s, other), counted && min > 1 ? min - 1 : 0,
                                 max < 0 || !counted ? -1 : max - 1));
                if (!min)
                        gr_alt(b, first);
                gr_ref(b, after, gr_repeat(b, comma(s, other), 0, -1));
        } else if (min) {
                gr_bytes(b, first, 0xff, 0xff); /* a pair must come, and none is left */
        }
        for (int i = keys.n - 1; i >= 0 && !b->code; i--) {
                const Key *k = &keys.key[i];
                if (k->rule == NONE)
                        continue;
                int first_here = gr_rule(b), after_here = gr_rule(b), p = named_pair(s, k, true);
                gr_ref(b, first_here, p);
                gr_ref(b, first_here, after);
                gr_ref(b, after_here, comma(s, p));
                gr_ref(b, after_here, after);
                if (!k->required) {
                        gr_alt(b, first_here);
                        gr_ref(b, first_here, first);
                        gr_alt(b, after_here);
                        gr_ref(b, after_here, after);
                }
                first = first_here;
                after = after_here;
        }
        rule = gr_rule(b);
        gr_text(b, rule, "{", 1);
        gr_ref(b, rule, schema_blank(s));
        gr_ref(b, rule, first);
        gr_text(b, rule, "}", 1);
out:
        free(keys.key);
        return rule;
}
