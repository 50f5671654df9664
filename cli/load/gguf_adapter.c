/* gguf_adapter.c: reads an adapter from a GGUF file (general.type adapter, adapter.type lora) for a
 * model from a GGUF file.  Gives its tensors the names that a PEFT folder would have, and that
 * folder's configuration.
 *
 * NAME.lora_a is A (r, inputs) and NAME.lora_b is B (outputs, r) of the tensor NAME.  Rows of B are
 * in the order of NAME's rows, as llama.cpp permutes q and k.  alpha is one number for all tensors;
 * each tensor has its own r. */
#include <stdlib.h>
#include <string.h>
#include "../../runtime/util/json.h"
#include "../../runtime/weights/gguf.h"
#include "gguf_model.h"
#include "lora.h"

static bool is_word(const GgufValue *v, const char *word)
{
        size_t n;
        const char *s = gguf_string(v, &n);
        return s && n == strlen(word) && !memcmp(s, word, n);
}

static int check(const Gguf *g, double *alpha, Err *e)
{
        const char *path = gguf_path(g);
        if (!is_word(gguf_find(g, "general.type"), "adapter"))
                return err_set(e, TGC_BAD_FILE, "--lora %s: general.type is not adapter", path);
        if (!is_word(gguf_find(g, "adapter.type"), "lora"))
                return err_set(e, TGC_BAD_FILE, "--lora %s: adapter.type is not lora", path);
        if (gguf_find(g, "adapter.alora.invocation_tokens"))
                return err_set(e, TGC_BAD_FILE,
                               "--lora %s: adapter.alora.invocation_tokens: adapters that begin at "
                               "a token are not supported",
                               path);
        if (!gguf_number(gguf_find(g, "adapter.lora.alpha"), alpha) || !(*alpha > 0))
                return err_set(e, TGC_BAD_FILE,
                               "--lora %s: adapter.lora.alpha must be a number above 0", path);
        return TGC_OK;
}

/* Steps that order rows are B's too; `t` is the base's alone. */
static void put_steps(FILE *f, const char *steps)
{
        for (const char *s = steps; (s = strchr(s, '|')); s++) {
                const size_t n = strcspn(s + 1, "|");
                if (strncmp(s, "| t", 3) || (s[3] && s[3] != ' '))
                        fprintf(f, " |%.*s", (int)n, s + 1);
        }
}

/* One line of the base's names, "map MODULE.weight = NAME.weight | steps": where the adapter has
 * such tensors, its lines, and a target with its rank. */
static bool take_line(const Gguf *g, const char *line, FILE *names, cJSON *targets, cJSON *ranks)
{
        char module[300], base[300], name[320];
        int used = 0;
        if (sscanf(line, "map %299s = %299s%n", module, base, &used) < 2)
                return true;
        char *tail = strlen(module) > 7 ? module + strlen(module) - 7 : NULL;
        if (!tail || strcmp(tail, ".weight"))
                return true;
        *tail = 0;
        snprintf(name, sizeof name, "%s.lora_b", base);
        const CkTensor *b = gguf_find_tensor(g, name);
        if (!b || b->rank != 2)
                return true;
        fprintf(names, "map base_model.model.%s.lora_A.weight = %s.lora_a\n", module, base);
        fprintf(names, "map base_model.model.%s.lora_B.weight = %s.lora_b", module, base);
        put_steps(names, line + used);
        fputc('\n', names);
        return cJSON_AddItemToArray(targets, cJSON_CreateString(module)) &&
               cJSON_AddNumberToObject(ranks, module, (double)b->dim[1]);
}

static int read_names(const Gguf *g, const char *base, char **names, cJSON *o, Err *e)
{
        GgufModel m;
        int code = gguf_model(&m, base, false, e);
        if (code)
                return code;
        cJSON *targets = cJSON_AddArrayToObject(o, "target_modules"),
              *ranks = cJSON_AddObjectToObject(o, "rank_pattern");
        size_t size;
        FILE *f = open_memstream(names, &size);
        bool ok = f && targets && ranks;
        for (char *line = m.names, *eol; ok && line && *line; line = eol + 1) {
                if (!(eol = strchr(line, '\n')))
                        break;
                *eol = 0;
                ok = take_line(g, line, f, targets, ranks);
        }
        ok = f && !fclose(f) && ok;
        gguf_model_free(&m);
        if (ok && !targets->child)
                return err_set(e, TGC_BAD_FILE,
                               "--lora %s: none of its tensors is of a linear of %s; is it of this "
                               "model?",
                               gguf_path(g), base);
        return ok ? TGC_OK : err_set(e, TGC_NO_MEMORY, "no memory for an adapter");
}

int gguf_adapter(PeftConfig **config, char **names, const char *path, const char *base, Err *e)
{
        Gguf *g;
        double alpha = 0;
        cJSON *o = cJSON_CreateObject();
        *config = NULL;
        *names = NULL;
        int code = o ? gguf_open(&g, path, e) : err_set(e, TGC_NO_MEMORY, "no memory");
        if (code) {
                cJSON_Delete(o);
                return code;
        }
        if (!(code = check(g, &alpha, e)) && (!base || !is_gguf(base)))
                code = err_set(e, TGC_USAGE,
                               "--lora %s: an adapter in a GGUF file goes with a model that is a "
                               "GGUF file; %s is none",
                               path, base ? base : "the model");
        if (!code)
                code = read_names(g, base, names, o, e);
        char *text = NULL;
        if (!code) {
                cJSON_AddStringToObject(o, "peft_type", "LORA");
                cJSON_AddNumberToObject(o, "lora_alpha", alpha);
                text = cJSON_PrintUnformatted(o);
                code = text ? peft_config_parse(config, text, strlen(text), path, e)
                            : err_set(e, TGC_NO_MEMORY, "no memory");
        }
        cJSON_free(text);
        cJSON_Delete(o);
        gguf_free(g);
        if (code) {
                free(*names);
                *names = NULL;
        }
        return code;
}
