/* schema_values.c: strings, numbers and lists of values. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "schema.h"

/* ---- strings ---- */

#define BY_4 "(0[48]|[2468][048]|[13579][26])"
#define DAY_OF_31 "(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
#define DAY_OF_30 "(0[469]|11)-(0[1-9]|[12][0-9]|30)"
#define DAY_OF_28 "02-(0[1-9]|1[0-9]|2[0-8])"
#define LEAP_YEAR "([0-9]{2}" BY_4 "|(00|" BY_4 ")00)"
#define DATE "([0-9]{4}-(" DAY_OF_31 "|" DAY_OF_30 "|" DAY_OF_28 ")|" LEAP_YEAR "-02-29)"
#define TIME                                                        \
        "([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\\.[0-9]+)?" \
        "(Z|z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define H4 "[0-9a-fA-F]{1,4}"
#define URI_CHARS "([A-Za-z0-9._~:/?#@!$&'()*+,;=\\[\\]-]|%[0-9A-Fa-f]{2})"

/* NULL: the format is one of JSON Schema's that is not supported */
static const struct {
        const char *name, *pattern;
} formats[] = {
        { "date", "^" DATE "$" },
        { "time", "^" TIME "$" },
        { "date-time", "^" DATE "[Tt]" TIME "$" },
        { "email", "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" LABEL
                   "(\\." LABEL ")*$" },
        { "hostname", "^" LABEL "(\\." LABEL ")*$" },
        { "ipv4", "^" OCTET "(\\." OCTET "){3}$" },
        { "ipv6", "^((" H4 ":){7}" H4 "|(" H4 ":){1,7}:|(" H4 ":){1,6}:" H4 "|(" H4 ":){1,5}(:" H4
                  "){1,2}|(" H4 ":){1,4}(:" H4 "){1,3}|(" H4 ":){1,3}(:" H4 "){1,4}|(" H4
                  ":){1,2}(:" H4 "){1,5}|" H4 ":(:" H4 "){1,6}|:(:" H4 "){1,7}|::)$" },
        { "uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$" },
        { "uri", "^[A-Za-z][A-Za-z0-9+.-]*:" URI_CHARS "*$" },
        { "uri-reference", NULL },
        { "uri-template", NULL },
        { "iri", NULL },
        { "iri-reference", NULL },
        { "idn-email", NULL },
        { "idn-hostname", NULL },
        { "json-pointer", NULL },
        { "relative-json-pointer", NULL },
        { "regex", NULL },
        { "duration", NULL },
};

/* A whole number from 0 on, of a keyword; the caller takes the largest or the smallest. */
static int count_of(Schema *s, const cJSON *k)
{
        if (!cJSON_IsNumber(k) || k->valuedouble < 0 || k->valuedouble != floor(k->valuedouble)) {
                schema_refuse(s, k, "keyword %s is not a whole number", k->string);
                return 0;
        }
        return k->valuedouble > 1 << 30 ? 1 << 30 : (int)k->valuedouble;
}

static void lengths_of(Schema *s, const All *all, const char *least, const char *most, int *min,
                       int *max)
{
        const cJSON *k;
        int i = 0;
        *min = 0, *max = -1;
        while ((k = all_next(all, least, &i))) {
                int n = count_of(s, k);
                *min = n > *min ? n : *min;
        }
        i = 0;
        while ((k = all_next(all, most, &i))) {
                int n = count_of(s, k);
                *max = *max < 0 || n < *max ? n : *max;
        }
}

/* The one pattern or format; *at: where it stands.  NULL: none. */
static const char *pattern_of(Schema *s, const All *all, const cJSON **at)
{
        const char *pattern = NULL;
        const cJSON *k;
        int i = 0;
        *at = NULL;
        while ((k = all_next(all, "pattern", &i)) && !s->b.code) {
                if (!cJSON_IsString(k))
                        schema_refuse(s, k, "keyword pattern is not a string");
                else if (pattern && strcmp(pattern, k->valuestring))
                        schema_refuse(s, k,
                                      "keyword pattern: a second one for the same string is not "
                                      "supported");
                else
                        pattern = k->valuestring, *at = k;
        }
        i = 0;
        while ((k = all_next(all, "format", &i)) && !s->b.code)
                for (size_t f = 0; cJSON_IsString(k) && f < sizeof formats / sizeof *formats; f++) {
                        if (strcmp(k->valuestring, formats[f].name))
                                continue;
                        if (!formats[f].pattern)
                                schema_refuse(s, k, "format %s is not supported", formats[f].name);
                        else if (pattern && pattern != formats[f].pattern)
                                schema_refuse(s, k,
                                              "format %s beside pattern, or another format, is not "
                                              "supported",
                                              formats[f].name);
                        else
                                pattern = formats[f].pattern, *at = k;
                }
        return pattern;
}

static int any_characters(Schema *s, int min, int max)
{
        if (!s->b.any_char)
                s->b.any_char = gr_json_class(&s->b, NULL, 0, true);
        return gr_repeat(&s->b, s->b.any_char, min, max);
}

int string_rule(Schema *s, const All *all)
{
        const cJSON *at;
        const char *pattern = pattern_of(s, all, &at), *wrong = NULL;
        int min, max, inner;
        lengths_of(s, all, "minLength", "maxLength", &min, &max);
        if (max >= 0 && max < min)
                return NONE;
        if (min > GR_MAX_REPEAT || max > GR_MAX_REPEAT) {
                int i = 0;
                schema_refuse(s, all_next(all, max > GR_MAX_REPEAT ? "maxLength" : "minLength", &i),
                              "strings of more than %d characters are not counted", GR_MAX_REPEAT);
                return NONE;
        }
        if (s->b.code)
                return NONE;
        if (pattern) {
                Lengths len;
                inner = gr_regex(&s->b, pattern, &len, &wrong);
                if (wrong)
                        schema_refuse(s, at, "the pattern %.80s: %s is not supported", pattern,
                                      wrong);
                else if (len.min < min || (max >= 0 && (len.max < 0 || len.max > max)))
                        schema_refuse(
                                s, at,
                                "%s of other lengths than minLength and maxLength allow is not "
                                "supported",
                                at->string);
        } else {
                inner = any_characters(s, min, max);
        }
        int rule = gr_rule(&s->b);
        gr_text(&s->b, rule, "\"", 1);
        gr_ref(&s->b, rule, inner);
        gr_text(&s->b, rule, "\"", 1);
        return rule;
}

/* ---- numbers ---- */

static int digit(Schema *s)
{
        static const CharRange d = { '0', '9' };
        if (!s->b.digit)
                s->b.digit = gr_class(&s->b, &d, 1, false);
        return s->b.digit;
}

static bool all_are(const char *p, int n, char c)
{
        for (int i = 0; i < n; i++)
                if (p[i] != c)
                        return false;
        return true;
}

/* Numbers of n digits from lo to hi. */
static int digits_between(Schema *s, const char *lo, const char *hi, int n)
{
        Build *b = &s->b;
        int rule = gr_rule(b);
        if (!n)
                return rule;
        if (all_are(lo, n, '0') && all_are(hi, n, '9')) {
                gr_ref(b, rule, gr_repeat(b, digit(s), n, n));
                return rule;
        }
        if (*lo == *hi) {
                gr_text(b, rule, lo, 1);
                gr_ref(b, rule, digits_between(s, lo + 1, hi + 1, n - 1));
                return rule;
        }
        char zeros[24], nines[24];
        memset(zeros, '0', sizeof zeros);
        memset(nines, '9', sizeof nines);
        gr_text(b, rule, lo, 1);
        gr_ref(b, rule, digits_between(s, lo + 1, nines, n - 1));
        if (*lo + 1 < *hi) {
                gr_alt(b, rule);
                gr_bytes(b, rule, *lo + 1, *hi - 1);
                gr_ref(b, rule, gr_repeat(b, digit(s), n - 1, n - 1));
        }
        gr_alt(b, rule);
        gr_text(b, rule, hi, 1);
        gr_ref(b, rule, digits_between(s, zeros, hi + 1, n - 1));
        return rule;
}

/* Whole numbers from lo to hi, 0 <= lo; hi INFINITY: any. */
static int whole_between(Schema *s, double lo, double hi)
{
        Build *b = &s->b;
        char x[32], y[32], least[32], most[32];
        int rule = gr_rule(b);
        bool first = true;
        if (lo > hi)
                return NONE;
        lo += 0., hi += 0.; /* -0 */
        int n = snprintf(x, sizeof x, "%.0f", lo), m = n;
        if (hi < INFINITY)
                m = snprintf(y, sizeof y, "%.0f", hi);
        for (int k = n; k <= m; k++) { /* by the number of digits */
                memset(least, '0', sizeof least);
                memset(most, '9', sizeof most);
                *least = k > 1 ? '1' : '0';
                if (!first)
                        gr_alt(b, rule);
                first = false;
                gr_ref(b, rule,
                       digits_between(s, k == n ? x : least, k == m && hi < INFINITY ? y : most,
                                      k));
        }
        if (hi == INFINITY) { /* and more digits */
                gr_alt(b, rule);
                gr_bytes(b, rule, '1', '9');
                gr_ref(b, rule, gr_repeat(b, digit(s), n, -1));
        }
        return rule;
}

static double bound(Schema *s, const cJSON *k)
{
        if (!cJSON_IsNumber(k)) {
                schema_refuse(s, k, "keyword %s is not a number", k->string);
                return 0;
        }
        return k->valuedouble;
}

bool number_bounds(Schema *s, const All *all, double *lo, double *hi, bool *open_lo, bool *open_hi)
{
        *lo = -INFINITY, *hi = INFINITY, *open_lo = *open_hi = false;
        for (int i = 0; i < all->n; i++) {
                static const char *const key[] = { "minimum", "maximum", "exclusiveMinimum",
                                                   "exclusiveMaximum" };
                const cJSON *k[4];
                for (int j = 0; j < 4; j++)
                        k[j] = member(all->of[i], key[j]);
                for (int j = 0; j < 4; j++) {
                        if (!k[j] || cJSON_IsBool(k[j])) /* draft 4: of minimum and maximum */
                                continue;
                        double v = bound(s, k[j]);
                        bool open = j > 1 || cJSON_IsTrue(k[j + 2]);
                        if (j % 2 == 0 && (v > *lo || (v == *lo && open)))
                                *lo = v, *open_lo = open;
                        if (j % 2 == 1 && (v < *hi || (v == *hi && open)))
                                *hi = v, *open_hi = open;
                }
        }
        return !s->b.code;
}

static bool is_whole(double x) { return isinf(x) || x == floor(x); }

/* Digits behind a point; zeros: only these; some: not only these. */
static int fraction(Schema *s, bool zeros, bool some)
{
        static const CharRange zero = { '0', '0' }, other = { '1', '9' };
        Build *b = &s->b;
        int rule = gr_rule(b);
        gr_text(b, rule, ".", 1);
        if (zeros) {
                gr_ref(b, rule, gr_repeat(b, gr_class(b, &zero, 1, false), 1, -1));
        } else if (some) {
                gr_ref(b, rule, gr_repeat(b, gr_class(b, &zero, 1, false), 0, -1));
                gr_ref(b, rule, gr_class(b, &other, 1, false));
                gr_ref(b, rule, gr_repeat(b, digit(s), 0, -1));
        } else {
                gr_ref(b, rule, gr_repeat(b, digit(s), 1, -1));
        }
        return some ? rule : gr_repeat(b, rule, 0, 1);
}

static void add_number(Schema *s, int rule, bool *first, const char *sign, int whole, int rest)
{
        if (whole == NONE)
                return;
        if (!*first)
                gr_alt(&s->b, rule);
        *first = false;
        gr_text(&s->b, rule, sign, strlen(sign));
        gr_ref(&s->b, rule, whole);
        if (rest != NONE)
                gr_ref(&s->b, rule, rest);
}

/* Numbers of a sign whose magnitude lies between lo and hi, whole and 0 <= lo. */
static void add_magnitudes(Schema *s, int rule, bool *first, const char *sign, double lo, double hi,
                           bool open_lo, bool open_hi, bool integer)
{
        if (lo > hi || (lo == hi && (open_lo || open_hi)))
                return;
        if (integer) {
                add_number(s, rule, first, sign, whole_between(s, lo + open_lo, hi - open_hi),
                           NONE);
                return;
        }
        if (lo == hi) {
                add_number(s, rule, first, sign, whole_between(s, lo, lo),
                           fraction(s, true, false));
                return;
        }
        if (open_lo)
                add_number(s, rule, first, sign, whole_between(s, lo, lo),
                           fraction(s, false, true));
        add_number(s, rule, first, sign, whole_between(s, lo + open_lo, hi - 1),
                   fraction(s, false, false));
        if (hi < INFINITY && !open_hi)
                add_number(s, rule, first, sign, whole_between(s, hi, hi),
                           fraction(s, true, false));
}

int number_rule(Schema *s, const All *all, bool integer)
{
        double lo, hi;
        bool open_lo, open_hi, first = true;
        const cJSON *k;
        int i = 0, rule = gr_rule(&s->b);
        Build *b = &s->b;
        while ((k = all_next(all, "multipleOf", &i))) {
                double m = bound(s, k);
                if (m == 1)
                        integer = true;
                else if (!integer || m <= 0 || m > 1 || fmod(1, m) != 0)
                        schema_refuse(s, k, "keyword multipleOf is not supported, other than 1");
        }
        if (!number_bounds(s, all, &lo, &hi, &open_lo, &open_hi) || lo > hi)
                return NONE;
        if (integer) {
                if (!is_whole(lo))
                        lo = ceil(lo), open_lo = false;
                if (!is_whole(hi))
                        hi = floor(hi), open_hi = false;
        }
        if (!is_whole(lo) || !is_whole(hi) || (fabs(lo) > 9e15 && !isinf(lo)) ||
            (fabs(hi) > 9e15 && !isinf(hi))) {
                i = 0;
                const bool low = !is_whole(lo) || (fabs(lo) > 9e15 && !isinf(lo));
                k = all_next(all, low ? "minimum" : "maximum", &i);
                i = 0;
                k = k ? k : all_next(all, low ? "exclusiveMinimum" : "exclusiveMaximum", &i);
                schema_refuse(s, k,
                              "keyword %s %g is not supported: bounds are whole numbers, to 9e15",
                              low ? "minimum" : "maximum", low ? lo : hi);
                return NONE;
        }
        if (hi >= 0)
                add_magnitudes(s, rule, &first, "", lo > 0 ? lo : 0, hi, lo >= 0 && open_lo,
                               open_hi, integer);
        if (lo < 0)
                add_magnitudes(s, rule, &first, "-", hi < 0 ? -hi : 0, -lo, hi <= 0 && open_hi,
                               open_lo, integer);
        if (first)
                return NONE;
        if (isinf(lo) && isinf(hi) &&
            !integer) { /* with an exponent, where no bound depends on it */
                static const CharRange e[] = { { 'e', 'e' }, { 'E', 'E' } },
                                       sign[] = { { '+', '+' }, { '-', '-' } };
                int power = gr_rule(b), all_of = gr_rule(b);
                gr_ref(b, power, gr_class(b, e, 2, false));
                gr_ref(b, power, gr_repeat(b, gr_class(b, sign, 2, false), 0, 1));
                gr_ref(b, power, gr_repeat(b, digit(s), 1, -1));
                gr_ref(b, all_of, rule);
                gr_ref(b, all_of, gr_repeat(b, power, 0, 1));
                return all_of;
        }
        return rule;
}

/* ---- enum and const ---- */

static int type_of(const cJSON *v)
{
        if (cJSON_IsNumber(v))
                return v->valuedouble == floor(v->valuedouble) ? T_INT : T_NUMBER;
        return cJSON_IsNull(v)     ? T_NULL
               : cJSON_IsBool(v)   ? T_BOOL
               : cJSON_IsString(v) ? T_STRING
               : cJSON_IsArray(v)  ? T_ARRAY
                                   : T_OBJECT;
}

static void value_text(Schema *s, int rule, const cJSON *v, int depth)
{
        Build *b = &s->b;
        if (depth > GR_MAX_NEST) {
                schema_refuse(s, v, "values nest deeper than %d", GR_MAX_NEST);
        } else if (cJSON_IsString(v)) {
                gr_text(b, rule, "\"", 1);
                gr_json_text(b, rule, v->valuestring, strlen(v->valuestring));
                gr_text(b, rule, "\"", 1);
        } else if (cJSON_IsArray(v) || cJSON_IsObject(v)) {
                gr_text(b, rule, cJSON_IsArray(v) ? "[" : "{", 1);
                gr_ref(b, rule, schema_blank(s));
                for (const cJSON *c = v->child; c && !b->code; c = c->next) {
                        if (cJSON_IsObject(v)) {
                                gr_text(b, rule, "\"", 1);
                                gr_json_text(b, rule, c->string, strlen(c->string));
                                gr_text(b, rule, "\":", 2);
                                gr_ref(b, rule, schema_blank(s));
                        }
                        value_text(s, rule, c, depth + 1);
                        if (c->next)
                                gr_text(b, rule, ",", 1);
                        gr_ref(b, rule, schema_blank(s));
                }
                gr_text(b, rule, cJSON_IsArray(v) ? "]" : "}", 1);
        } else {
                char *text = cJSON_PrintUnformatted(v);
                if (text)
                        gr_text(b, rule, text, strlen(text));
                cJSON_free(text);
        }
}

static int characters(const char *p)
{
        int n = 0;
        for (; *p; p++)
                n += (*p & 0xc0) != 0x80;
        return n;
}

/* Does a value of an enum satisfy the other keywords? */
static bool fits(Schema *s, const All *all, const cJSON *v, int types)
{
        static const char *const others[] = { "items",
                                              "prefixItems",
                                              "properties",
                                              "patternProperties",
                                              "additionalProperties",
                                              "required",
                                              "minItems",
                                              "maxItems",
                                              "minProperties",
                                              "maxProperties",
                                              "multipleOf" };
        const cJSON *k;
        const int t = type_of(v);
        int i = 0, min, max;
        if (!(types & t))
                return false;
        while ((k = all_next(all, "enum", &i)))
                if (!in_list_of(k, v))
                        return false;
        i = 0;
        while ((k = all_next(all, "const", &i)))
                if (!cJSON_Compare(k, v, true))
                        return false;
        if (t == T_STRING) {
                lengths_of(s, all, "minLength", "maxLength", &min, &max);
                int n = characters(v->valuestring);
                if (n < min || (max >= 0 && n > max))
                        return false;
                const char *pattern = pattern_of(s, all, &k);
                if (pattern && !s->b.code && pattern_finds(s, k, pattern, v->valuestring) == 0)
                        return false;
        } else if (t & (T_INT | T_NUMBER)) {
                double lo, hi;
                bool open_lo, open_hi;
                number_bounds(s, all, &lo, &hi, &open_lo, &open_hi);
                if (v->valuedouble < lo || v->valuedouble > hi ||
                    (open_lo && v->valuedouble == lo) || (open_hi && v->valuedouble == hi))
                        return false;
        }
        for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
                const bool of_lists = o < 2 || o == 6 || o == 7, of_numbers = o == 10;
                i = 0;
                if ((t == T_OBJECT && !of_lists && !of_numbers) || (t == T_ARRAY && of_lists) ||
                    (t & (T_INT | T_NUMBER) && of_numbers))
                        if ((k = all_next(all, others[o], &i)))
                                schema_refuse(s, k,
                                              "keyword %s beside enum or const is not supported",
                                              others[o]);
        }
        return true;
}

bool in_list_of(const cJSON *list, const cJSON *value)
{
        for (const cJSON *c = list->child; c; c = c->next)
                if (cJSON_Compare(c, value, true))
                        return true;
        return false;
}

int enum_rule(Schema *s, const All *all, int types)
{
        const cJSON *k;
        int i = 0, rule = gr_rule(&s->b);
        bool first = true;
        k = all_next(all, "const", &i);
        i = 0;
        const cJSON *list = k ? NULL : all_next(all, "enum", &i);
        if (list && !cJSON_IsArray(list)) {
                schema_refuse(s, list, "keyword enum is not a list");
                return NONE;
        }
        for (const cJSON *v = k      ? k
                              : list ? list->child
                                     : NULL;
             v && !s->b.code; v = k ? NULL : v->next) {
                if (!fits(s, all, v, types) || s->b.code)
                        continue;
                if (!first)
                        gr_alt(&s->b, rule);
                first = false;
                value_text(s, rule, v, 0);
        }
        return first ? NONE : rule;
}
