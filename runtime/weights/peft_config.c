/* peft_config.c: reads PEFT's LoraConfig: which linears have an adapter, its rank, its strength. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "peft_config.h"
#include <ctype.h>
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../util/c_locale.h"
#include "../util/file.h"
#include "../util/json.h"

enum { MOST_BYTES = 1 << 20, MOST_PATTERNS = 4096, MOST_REGEX = 4096, MOST_RANK = 1 << 16 };

/* A name or a regular expression, and what it stands for. */
typedef struct Pattern {
        const char *name; /* NULL: code */
        pcre2_code *code;
        double value;
        bool met; /* a module had it */
} Pattern;

typedef struct Patterns {
        Pattern *p;
        int n;
} Patterns;

struct PeftConfig {
        cJSON *json;
        char *name; /* for messages */
        int r;
        double alpha, dropout;
        bool rslora, all_linear;
        Patterns target, exclude, ranks, alphas, layers_pattern;
        const cJSON *layers; /* a number or a list; NULL: all */
        char failed[256];
};

/* ---- keys ---- */

typedef enum {
        USED,
        IGNORED, /* says nothing of what the tensors mean */
        UNSET,   /* refused unless null, false, empty */
} KeyUse;

static const struct {
        const char *key;
        KeyUse use;
        const char *what;
} keys[] = {
        { "peft_type", USED, "" },
        { "task_type", USED, "" },
        { "r", USED, "" },
        { "lora_alpha", USED, "" },
        { "lora_dropout", USED, "" },
        { "use_rslora", USED, "" },
        { "target_modules", USED, "" },
        { "exclude_modules", USED, "" },
        { "rank_pattern", USED, "" },
        { "alpha_pattern", USED, "" },
        { "layers_to_transform", USED, "" },
        { "layers_pattern", USED, "" },
        { "bias", USED, "" },
        { "init_lora_weights", USED, "" },
        { "base_model_name_or_path", IGNORED, "" },
        { "revision", IGNORED, "" },
        { "inference_mode", IGNORED, "" },
        { "auto_mapping", IGNORED, "" },
        { "peft_version", IGNORED, "" },
        { "runtime_config", IGNORED, "" },
        { "megatron_core", IGNORED, "" },     /* of megatron_config */
        { "qalora_group_size", IGNORED, "" }, /* of use_qalora */
        /* the base's tensor is (inputs, outputs): the model's own map says so, too */
        { "fan_in_fan_out", IGNORED, "" },
        { "ensure_weight_tying", IGNORED, "" }, /* of modules_to_save */
        { "eva_config", IGNORED, "" },          /* of how it began */
        { "lora_ga_config", UNSET, "it changes the base model" },
        { "use_dora", UNSET, "DoRA's magnitudes are not supported" },
        { "lora_bias", UNSET, "biases of B are not supported" },
        { "modules_to_save", UNSET, "whole modules beside the adapter are not supported" },
        { "layer_replication", UNSET, "layers used twice are not supported" },
        { "megatron_config", UNSET, "Megatron's layers are not supported" },
        { "trainable_token_indices", UNSET, "rows of the embedding are not supported" },
        { "loftq_config", UNSET, "it changes the base model" },
        { "corda_config", UNSET, "it changes the base model" },
        { "target_parameters", UNSET, "adapters of experts are not supported" },
        { "alora_invocation_tokens", UNSET, "adapters that begin at a token are not supported" },
        { "use_qalora", UNSET, "QA-LoRA is not supported" },
};

static bool is_unset(const cJSON *v)
{
        return cJSON_IsNull(v) || cJSON_IsFalse(v) || (cJSON_IsArray(v) && !v->child) ||
               (cJSON_IsObject(v) && !v->child);
}

static int refuse(const PeftConfig *c, const cJSON *v, const char *why, Err *e)
{
        char *text = cJSON_PrintUnformatted(v);
        int code = err_set(e, TGC_BAD_FILE, "%s: %s %.60s: %s", c->name, v->string,
                           text ? text : "?", why);
        cJSON_free(text);
        return code;
}

static int check_keys(const PeftConfig *c, Err *e)
{
        for (const cJSON *v = c->json->child; v; v = v->next) {
                size_t i = 0;
                while (i < sizeof keys / sizeof *keys && strcmp(keys[i].key, v->string))
                        i++;
                if (i == sizeof keys / sizeof *keys) {
                        if (!is_unset(v))
                                return refuse(c, v, "what the key means is not known", e);
                } else if (keys[i].use == UNSET && !is_unset(v)) {
                        return refuse(c, v, keys[i].what, e);
                }
        }
        return TGC_OK;
}

static const cJSON *get(const PeftConfig *c, const char *key)
{
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(c->json, key);
        return v && !cJSON_IsNull(v) ? v : NULL;
}

static int wants(const PeftConfig *c, const cJSON *v, const char *what, Err *e)
{
        char why[100];
        snprintf(why, sizeof why, "%s is wanted", what);
        return refuse(c, v, why, e);
}

/* ---- patterns ---- */

static int pattern_add(PeftConfig *c, Patterns *to, const char *text, bool regex,
                       const char *before, const char *after, double value, Err *e)
{
        char whole[MOST_REGEX + 32];
        int code, n = snprintf(whole, sizeof whole, "%s%s%s", before, text, after);
        PCRE2_SIZE at;
        if (n >= (int)sizeof whole)
                return err_set(e, TGC_BAD_FILE, "%s: '%.60s...' is too long a name", c->name, text);
        if (to->n == MOST_PATTERNS)
                return err_set(e, TGC_BAD_FILE, "%s: more than %d patterns", c->name,
                               MOST_PATTERNS);
        Pattern *p = realloc(to->p, (size_t)(to->n + 1) * sizeof *p);
        if (!p)
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", c->name);
        to->p = p;
        p += to->n;
        *p = (Pattern) { .name = regex ? NULL : text, .value = value };
        if (regex && !(p->code = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED,
                                               PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL))) {
                char why[128] = "";
                pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
                return err_set(e, TGC_BAD_FILE, "%s: the regular expression '%.100s': %s", c->name,
                               text, why);
        }
        to->n++;
        return TGC_OK;
}

static bool matches(PeftConfig *c, const Pattern *p, const char *module, char *index)
{
        pcre2_match_data *m = pcre2_match_data_create_from_pattern(p->code, NULL);
        pcre2_match_context *limits = pcre2_match_context_create(NULL);
        int n = PCRE2_ERROR_NOMEMORY;
        if (m && limits) {
                pcre2_set_match_limit(limits, 1000000);
                n = pcre2_match(p->code, (PCRE2_SPTR)module, strlen(module), 0, PCRE2_ANCHORED, m,
                                limits);
        }
        if (n < 0 && n != PCRE2_ERROR_NOMATCH) {
                char why[128] = "";
                pcre2_get_error_message(n, (PCRE2_UCHAR *)why, sizeof why);
                snprintf(c->failed, sizeof c->failed, "a pattern with %.60s: %.100s", module, why);
        }
        if (n > 1 && index) {
                const PCRE2_SIZE *at = pcre2_get_ovector_pointer(m);
                snprintf(index, 16, "%.*s", (int)(at[3] - at[2]), module + at[2]);
        }
        if (m)
                pcre2_match_data_free(m);
        if (limits)
                pcre2_match_context_free(limits);
        return n > 0;
}

/* The whole of a module's path, or its end after a dot. */
static bool is_end_of(const char *name, const char *module)
{
        const size_t n = strlen(name), k = strlen(module);
        return n <= k && !strcmp(module + k - n, name) && (n == k || module[k - n - 1] == '.');
}

static const Pattern *find(PeftConfig *c, const Patterns *in, const char *module)
{
        const Pattern *first = NULL;
        for (int i = 0; i < in->n; i++)
                if (in->p[i].name ? is_end_of(in->p[i].name, module)
                                  : !first && matches(c, &in->p[i], module, NULL)) {
                        in->p[i].met = true;
                        first = first ? first : &in->p[i];
                }
        return first;
}

/* target_modules, exclude_modules: a list of names, or one regular expression for the whole
 * path. */
static int take_names(PeftConfig *c, const char *key, Patterns *to, Err *e)
{
        const cJSON *v = get(c, key), *x;
        int code = TGC_OK;
        if (!v)
                return TGC_OK;
        if (cJSON_IsString(v))
                return !strcmp(v->valuestring, "all-linear") && to == &c->target
                               ? (c->all_linear = true, TGC_OK)
                               : pattern_add(c, to, v->valuestring, true, "(?:", ")\\z", 0, e);
        if (!cJSON_IsArray(v))
                return wants(c, v, "a list of names or a regular expression", e);
        cJSON_ArrayForEach(x, v)
        {
                if (!cJSON_IsString(x) || !*x->valuestring)
                        return wants(c, v, "a list of names", e);
                if (!code)
                        code = pattern_add(c, to, x->valuestring, false, "", "", 0, e);
        }
        return code;
}

/* {NAME OR REGEX: number} */
static int take_values(PeftConfig *c, const char *key, Patterns *to, double most, Err *e)
{
        const cJSON *v = get(c, key), *x;
        int code = TGC_OK;
        if (v && !cJSON_IsObject(v))
                return wants(c, v, "an object of numbers", e);
        cJSON_ArrayForEach(x, v)
        {
                if (!cJSON_IsNumber(x) || !(x->valuedouble > 0) || x->valuedouble > most)
                        return wants(c, v, "an object of positive numbers", e);
                if (!code)
                        code = pattern_add(c, to, x->string, true, "(?:.*\\.)?(?:", ")$",
                                           x->valuedouble, e);
        }
        return code;
}

static int take_layers(PeftConfig *c, Err *e)
{
        const cJSON *v = get(c, "layers_to_transform"), *p = get(c, "layers_pattern"), *x;
        if (!v || (cJSON_IsArray(v) && !v->child))
                return TGC_OK;
        if (!cJSON_IsArray(v) && !cJSON_IsNumber(v))
                return wants(c, v, "a layer's number or a list of them", e);
        cJSON_ArrayForEach(x, v) if (!cJSON_IsNumber(x)) return wants(
                c, v, "a layer's number or a list of them", e);
        if (c->all_linear || cJSON_IsString(get(c, "target_modules")))
                return refuse(c, v, "it goes with a list of target_modules alone", e);
        c->layers = v;
        if (!p || (cJSON_IsArray(p) && !p->child) || (cJSON_IsString(p) && !*p->valuestring))
                return pattern_add(c, &c->layers_pattern, "", true, ".*?\\.[^.]*\\.(\\d+)\\.", "",
                                   0, e);
        if (cJSON_IsString(p))
                return pattern_add(c, &c->layers_pattern, p->valuestring, true,
                                   "(?:^|.*?\\.)(?:", ")\\.(\\d+)\\.", 0, e);
        int code = TGC_OK;
        cJSON_ArrayForEach(x, p)
        {
                if (!cJSON_IsString(x))
                        return wants(c, p, "a name or a list of names", e);
                if (!code)
                        code = pattern_add(c, &c->layers_pattern, x->valuestring, true,
                                           "(?:^|.*?\\.)(?:", ")\\.(\\d+)\\.", 0, e);
        }
        return code;
}

static bool in_layers(PeftConfig *c, const char *module)
{
        char index[16] = "";
        const cJSON *x;
        if (!c->layers)
                return true;
        for (int i = 0; i < c->layers_pattern.n; i++)
                if (matches(c, &c->layers_pattern.p[i], module, index))
                        break;
        if (!*index)
                return false;
        const double layer = atoi(index);
        if (cJSON_IsNumber(c->layers))
                return c->layers->valuedouble == layer;
        cJSON_ArrayForEach(x, c->layers) if (x->valuedouble == layer) return true;
        return false;
}

/* ---- reading ---- */

static int number(PeftConfig *c, const char *key, double dflt, double lo, double hi, double *to,
                  Err *e)
{
        const cJSON *v = get(c, key);
        char what[80];
        *to = v ? v->valuedouble : dflt;
        snprintf(what, sizeof what, "a number from %g to %g", lo, hi);
        return v && (!cJSON_IsNumber(v) || !(*to >= lo && *to <= hi)) ? wants(c, v, what, e)
                                                                      : TGC_OK;
}

static int check_words(const PeftConfig *c, Err *e)
{
        const cJSON *type = get(c, "peft_type"), *task = get(c, "task_type"),
                    *bias = get(c, "bias"), *init = get(c, "init_lora_weights"),
                    *rs = get(c, "use_rslora");
        if (!type)
                return err_set(e, TGC_BAD_FILE, "%s: no peft_type: is it an adapter's?", c->name);
        if (!cJSON_IsString(type) || strcmp(type->valuestring, "LORA"))
                return refuse(c, type, "only LORA is supported", e);
        if (task && (!cJSON_IsString(task) || strcmp(task->valuestring, "CAUSAL_LM")))
                return refuse(c, task, "only CAUSAL_LM is supported", e);
        if (bias && (!cJSON_IsString(bias) || strcmp(bias->valuestring, "none")))
                return refuse(c, bias, "biases that are trained are not supported", e);
        if (rs && !cJSON_IsBool(rs))
                return wants(c, rs, "true or false", e);
        if (init && !cJSON_IsBool(init) &&
            (!cJSON_IsString(init) ||
             (strcmp(init->valuestring, "gaussian") && strcmp(init->valuestring, "eva") &&
              strcmp(init->valuestring, "orthogonal"))))
                return refuse(c, init, "it changes the base model, which is not there", e);
        return TGC_OK;
}

static int take(PeftConfig *c, Err *e)
{
        double r = 8;
        int code = check_keys(c, e);
        if (code || (code = check_words(c, e)) || (code = number(c, "r", 8, 1, MOST_RANK, &r, e)) ||
            (code = number(c, "lora_alpha", 8, 1e-9, 1e9, &c->alpha, e)) ||
            (code = number(c, "lora_dropout", 0, 0, 0.999, &c->dropout, e)))
                return code;
        if (r != floor(r))
                return wants(c, get(c, "r"), "a whole number", e);
        c->r = (int)r;
        c->rslora = cJSON_IsTrue(get(c, "use_rslora"));
        if ((code = take_names(c, "target_modules", &c->target, e)) ||
            (code = take_names(c, "exclude_modules", &c->exclude, e)) ||
            (code = take_values(c, "rank_pattern", &c->ranks, MOST_RANK, e)) ||
            (code = take_values(c, "alpha_pattern", &c->alphas, 1e9, e)) ||
            (code = take_layers(c, e)))
                return code;
        if (!c->target.n && !c->all_linear)
                return err_set(e, TGC_BAD_FILE, "%s: target_modules names no module", c->name);
        return TGC_OK;
}

static int adopt(PeftConfig **out, cJSON *json, const char *name, Err *e)
{
        PeftConfig *c = calloc(1, sizeof *c);
        int code;
        if (!c || !(c->name = strdup(name))) {
                free(c);
                cJSON_Delete(json);
                return err_set(e, TGC_NO_MEMORY, "%s: no memory", name);
        }
        c->json = json;
        code = cJSON_IsObject(json) ? take(c, e)
                                    : err_set(e, TGC_BAD_FILE, "%s: must be a JSON object", name);
        if (code)
                peft_config_free(c);
        else
                *out = c;
        return code;
}

int peft_config_parse(PeftConfig **out, const char *text, size_t n, const char *name, Err *e)
{
        cJSON *json;
        int code = json_parse(&json, text, n, name, e);
        *out = NULL;
        return code ? code : adopt(out, json, name, e);
}

int peft_config_read(PeftConfig **out, const char *dir, Err *e)
{
        char *path = file_join(dir, "adapter_config.json");
        cJSON *json;
        *out = NULL;
        int code = path ? json_read(&json, path, MOST_BYTES, e)
                        : err_set(e, TGC_NO_MEMORY, "%s: no memory", dir);
        if (!code)
                code = adopt(out, json, path, e);
        free(path);
        return code;
}

/* ---- a line of the command line ---- */

static int line_number(cJSON *o, const char *key, const char *typed, const char *value, Err *e)
{
        char *end;
        const double x = c_strtod(value, &end);
        if (end == value || *end)
                return err_set(e, TGC_USAGE, "--lora %s=%.40s: a number is wanted", typed, value);
        return cJSON_AddNumberToObject(o, key, x) ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory");
}

/* The value of targets runs to the next KEY=: names between commas, or an expression that may hold
 * some itself. */
static int line_targets(cJSON *o, char *value, Err *e)
{
        bool ok = true;
        if (!strcmp(value, "all-linear") || strpbrk(value, "*+?()[]{}|^$\\")) {
                ok = cJSON_AddStringToObject(o, "target_modules", value) != NULL;
        } else {
                cJSON *list = cJSON_AddArrayToObject(o, "target_modules");
                for (char *s = strtok(value, ","); s && ok; s = strtok(NULL, ","))
                        ok = list && cJSON_AddItemToArray(list, cJSON_CreateString(s));
        }
        return ok ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory");
}

/* What is typed, and PEFT's names; the first three are numbers. */
static const struct {
        const char *typed, *key;
} pair[] = { { "r", "r" },
             { "alpha", "lora_alpha" },
             { "dropout", "lora_dropout" },
             { "targets", "target_modules" },
             { "rslora", "use_rslora" } };

static const char *json_key(const char *typed)
{
        for (int i = 0; i < 5; i++)
                if (!strcmp(typed, pair[i].typed))
                        return pair[i].key;
        return "";
}

static int line_pair(cJSON *o, char *key, char *value, Err *e)
{
        if (cJSON_GetObjectItemCaseSensitive(o, json_key(key)))
                return err_set(e, TGC_USAGE, "--lora: %.40s stands there twice", key);
        for (int i = 0; i < 3; i++)
                if (!strcmp(key, pair[i].typed))
                        return line_number(o, pair[i].key, key, value, e);
        if (!strcmp(key, "targets"))
                return line_targets(o, value, e);
        if (!strcmp(key, "rslora") && (!strcmp(value, "1") || !strcmp(value, "true")))
                return cJSON_AddTrueToObject(o, "use_rslora")
                               ? TGC_OK
                               : err_set(e, TGC_NO_MEMORY, "no memory");
        return err_set(e, TGC_USAGE,
                       "--lora %.40s=%.60s: there are r, alpha, dropout, targets and rslora=1", key,
                       value);
}

/* Where the next "WORD=" begins, behind a comma; else the end. */
static char *next_pair(char *s)
{
        for (; *s; s++) {
                size_t n = *s == ',' ? 1 + strspn(s + 1, "abcdefghijklmnopqrstuvwxyz") : 0;
                if (n > 1 && s[n] == '=')
                        return s;
        }
        return s;
}

int peft_config_line(PeftConfig **out, const char *line, Err *e)
{
        char *text = strdup(line), *s = text;
        cJSON *o = cJSON_CreateObject();
        int code = text && o ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory");
        *out = NULL;
        if (!code && !json_utf8_ok(line, strlen(line)))
                code = err_set(e, TGC_USAGE, "--lora: it is no UTF-8");
        while (!code && *s) {
                char *end = next_pair(s), *eq = strchr(s, '=');
                if (!eq || eq > end) {
                        code = err_set(e, TGC_USAGE,
                                       "--lora %.80s: r=16,alpha=16,dropout=0.1,targets=all-linear "
                                       "is wanted, or the folder of an adapter",
                                       line);
                        break;
                }
                const bool last = !*end;
                *eq = *end = 0;
                code = line_pair(o, s, eq + 1, e);
                s = last ? end : end + 1;
        }
        free(text);
        if (!code && !cJSON_GetObjectItem(o, "r"))
                cJSON_AddNumberToObject(o, "r", 16);
        if (!code && !cJSON_GetObjectItem(o, "lora_alpha"))
                cJSON_AddNumberToObject(o, "lora_alpha", cJSON_GetObjectItem(o, "r")->valuedouble);
        if (!code && !cJSON_GetObjectItem(o, "target_modules"))
                cJSON_AddStringToObject(o, "target_modules", "all-linear");
        if (!code)
                cJSON_AddStringToObject(o, "peft_type", "LORA");
        if (code) {
                cJSON_Delete(o);
                return code;
        }
        code = adopt(out, o, "--lora", e);
        return code == TGC_BAD_FILE ? TGC_USAGE : code;
}

static void patterns_free(Patterns *p)
{
        for (int i = 0; i < p->n; i++)
                if (p->p[i].code)
                        pcre2_code_free(p->p[i].code);
        free(p->p);
}

void peft_config_free(PeftConfig *c)
{
        if (!c)
                return;
        Patterns *const all[] = { &c->target, &c->exclude, &c->ranks, &c->alphas,
                                  &c->layers_pattern };
        for (int i = 0; i < 5; i++)
                patterns_free(all[i]);
        cJSON_Delete(c->json);
        free(c->name);
        free(c);
}

/* ---- asking ---- */

double peft_config_dropout(const PeftConfig *c) { return c->dropout; }

bool peft_config_all_linear(const PeftConfig *c) { return c->all_linear; }

int peft_config_rank(PeftConfig *c, const char *module, bool output, double *scale)
{
        if (find(c, &c->exclude, module))
                return 0;
        if (c->all_linear ? output : !find(c, &c->target, module) || !in_layers(c, module))
                return 0;
        const Pattern *r = find(c, &c->ranks, module), *a = find(c, &c->alphas, module);
        const double rank = r ? floor(r->value) : c->r, alpha = a ? a->value : c->alpha;
        *scale = alpha / (c->rslora ? sqrt(rank) : rank);
        return (int)rank;
}

int peft_config_failed(const PeftConfig *c, Err *e)
{
        return *c->failed ? err_set(e, TGC_BAD_FILE, "%s: %s", c->name, c->failed) : TGC_OK;
}

const char *peft_config_unmet(const PeftConfig *c)
{
        for (int i = 0; i < c->target.n; i++)
                if (c->target.p[i].name && !c->target.p[i].met)
                        return c->target.p[i].name;
        return NULL;
}

/* ---- writing ---- */

char *peft_config_text(const PeftConfig *c, const char *base, bool lines)
{
        static const char *const defaults =
                "{\"alpha_pattern\":{},\"auto_mapping\":null,\"base_model_name_or_path\":null,"
                "\"bias\":\"none\",\"exclude_modules\":null,\"fan_in_fan_out\":false,"
                "\"inference_mode\":true,\"init_lora_weights\":true,\"layers_pattern\":null,"
                "\"layers_to_transform\":null,\"lora_alpha\":8,\"lora_dropout\":0.0,"
                "\"modules_to_save\":null,\"peft_type\":\"LORA\",\"r\":8,\"rank_pattern\":{},"
                "\"revision\":null,\"target_modules\":null,\"task_type\":\"CAUSAL_LM\","
                "\"use_dora\":false,\"use_rslora\":false}";
        cJSON *o = cJSON_Parse(defaults);
        char *text = NULL;
        bool ok = o != NULL;
        for (const cJSON *v = c->json->child; v && ok; v = v->next) {
                cJSON *copy = cJSON_Duplicate(v, true);
                ok = copy && (cJSON_GetObjectItemCaseSensitive(o, v->string)
                                      ? cJSON_ReplaceItemInObjectCaseSensitive(o, v->string, copy)
                                      : cJSON_AddItemToObject(o, v->string, copy));
        }
        if (ok && base)
                ok = cJSON_ReplaceItemInObjectCaseSensitive(o, "base_model_name_or_path",
                                                            cJSON_CreateString(base));
        if (ok)
                text = lines ? cJSON_Print(o) : cJSON_PrintUnformatted(o);
        cJSON_Delete(o);
        return text;
}
