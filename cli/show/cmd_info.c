/* cmd_info.c: tgc info */
#include <string.h>
#include "../../runtime/plan/manifest.h"
#include "../../runtime/util/line_reader.h"
#include "../../runtime/util/file.h"
#include "../../runtime/weights/ck_tensor.h"
#include "../../runtime/weights/quant_folder.h"
#include "../load/gguf_model.h"
#include "../load/open.h"

static const char *const program_section[] = { "program.cuda", "program.cpu" };

static int json_programs(cJSON *o, const Plan *p, Err *e)
{
        for (int i = 0; i < 2; i++) {
                const Section *s = plan_find(p, program_section[i]);
                Program g;
                int code = s ? program_parse(&g, s->data, s->size, s->name, e) : TGC_OK;
                if (code == TGC_NO_MEMORY)
                        return code;
                if (!s || code)
                        continue;
                cJSON *t = cJSON_AddObjectToObject(o, program_section[i]),
                      *arenas = cJSON_AddObjectToObject(t, "arena_bytes"),
                      *progs = cJSON_AddObjectToObject(t, "launches");
                cJSON_AddNumberToObject(t, "kernels", g.n_kernels);
                for (int k = 0; k < g.n_arenas; k++)
                        cJSON_AddNumberToObject(arenas, g.arena[k].name, (double)g.arena[k].size);
                for (int k = 0; k < g.n_progs; k++)
                        cJSON_AddNumberToObject(progs, g.prog[k].name, g.prog[k].n_run);
                program_free(&g);
        }
        return TGC_OK;
}

/* How many products have a tile that `tgc tune` chose, and where: "" if nowhere. */
static size_t tuned(const Plan *p, char gpu[128])
{
        const Section *s = plan_find(p, "choices");
        char head[256];
        *gpu = 0;
        if (!s)
                return 0;
        snprintf(head, sizeof head, "%.*s", (int)(s->size < 255 ? s->size : 255),
                 (const char *)s->data);
        sscanf(head, "tgc-choices 1\ngpu %127[^\n]", gpu);
        return text_count(s->data, s->size, "choose");
}

static int print_json(const Plan *p, const Manifest *m, const char *folder, cJSON *o, Err *e)
{
        const char *made = folder && file_is_dir(folder) ? folder_fp8_activations(folder) : NULL;
        cJSON *s = cJSON_AddObjectToObject(o, "section_bytes");
        char gpu[128];
        cJSON_AddStringToObject(o, "model", m->model);
        cJSON_AddStringToObject(o, "dtype", store_name(m->dtype));
        cJSON_AddStringToObject(o, "mode",
                                m->infer && m->train ? "both"
                                : m->train           ? "train"
                                                     : "infer");
        if (m->act_fp8) /* 1: all of a token's */
                cJSON_AddNumberToObject(o, "fp8_activations_columns_per_scale", m->act_fp8);
        if (made)
                cJSON_AddStringToObject(o, "made_for_fp8_activations", made);
        cJSON_AddNumberToObject(o, "vocab", m->vocab);
        cJSON_AddNumberToObject(o, "context", m->ctx);
        cJSON_AddNumberToObject(o, "batch", m->batch);
        cJSON_AddNumberToObject(o, "parameters", (double)manifest_elements(m));
        cJSON_AddNumberToObject(o, "trainable_parameters", (double)m->n_train);
        cJSON_AddNumberToObject(o, "tuned_products", (double)tuned(p, gpu));
        cJSON_AddStringToObject(o, "tuned_on", gpu);
        for (int i = 0; i < p->n_sections; i++)
                cJSON_AddNumberToObject(s, p->section[i].name, (double)p->section[i].size);
        return json_programs(o, p, e);
}

static int print_program(const Plan *p, const char *name, Err *e)
{
        const Section *s = plan_find(p, name);
        Program g;
        char size[32];
        int code = s ? program_parse(&g, s->data, s->size, s->name, e) : TGC_OK;
        if (!s || code)
                return code == TGC_NO_MEMORY ? code : TGC_OK;
        print("\n%s: %d kernels\n", name, g.n_kernels);
        for (int k = 0; k < g.n_progs; k++)
                print("  %-10s up to %d x %d tokens, %d launches\n", g.prog[k].name, g.prog[k].B,
                      g.prog[k].T, g.prog[k].n_run);
        for (int k = 0; k < g.n_arenas; k++)
                print("  %-10s %12s\n", g.arena[k].name,
                      text_bytes(size, sizeof size, (double)g.arena[k].size));
        program_free(&g);
        return TGC_OK;
}

/* in blocks  168 of Q4_1, 43 of Q6_K */
static void print_blocks(const Manifest *m)
{
        const char *head = "in blocks ";
        for (int type = 0; type < CK_N_DTYPES; type++) {
                int n = 0;
                for (int i = 0; i < m->n_params; i++)
                        n += m->param[i].blocks && m->param[i].blocks == type;
                if (n)
                        print("%s %d of %s", head, n, ck_dtype_name(type));
                head = n ? "," : head;
        }
        if (*head == ',')
                print("\n");
}

/* What meets weights of fp8 becomes that, too; or could, of a folder (or NULL) that was made for
 * it. */
static void print_activations(const Manifest *m, const char *folder)
{
        const char *made = folder && file_is_dir(folder) ? folder_fp8_activations(folder) : NULL;
        if (m->act_fp8 == 1)
                print("activations fp8 where weights are, a scale a token\n");
        else if (m->act_fp8)
                print("activations fp8 where weights are, a scale each %d columns of a token\n",
                      m->act_fp8);
        else if (made)
                print("made for   activations in fp8 with %s scales, which stay as they are here: "
                      "--weight-type keep --act fp8 rounds them, with scales of each token\n",
                      made);
}

static int print_text(const Plan *p, const Manifest *m, const char *folder, Err *e)
{
        char n[32], t[32], gpu[128];
        size_t n_tuned = tuned(p, gpu);
        print("model      %s, %s\n", m->model,
              m->tf32 ? "f32 (tf32 products)" : store_name(m->dtype));
        print("mode       %s\n", m->infer && m->train ? "inference and training"
                                 : m->train           ? "training"
                                                      : "inference");
        print("parameters %s in %d tensors, %s trainable\n",
              text_count_si(n, sizeof n, (double)manifest_elements(m)), m->n_params,
              text_count_si(t, sizeof t, (double)m->n_train));
        print_blocks(m);
        print_activations(m, folder);
        print("vocabulary %d\ncontext    %d\nbatch      %d\n", m->vocab, m->ctx, m->batch);
        if (m->fast)
                print("fast       on GPUs the bits of a sequence depend on how many there are\n");
        if (n_tuned)
                print("tuned      %zu product%s, on %s\n", n_tuned, n_tuned == 1 ? "" : "s",
                      *gpu ? gpu : "?");
        for (int i = 0; i < 2; i++) {
                int code = print_program(p, program_section[i], e);
                if (code)
                        return code;
        }
        print("\nsections:\n");
        for (int i = 0; i < p->n_sections; i++)
                print("  %-16s %12s\n", p->section[i].name,
                      text_bytes(n, sizeof n, (double)p->section[i].size));
        return TGC_OK;
}

/* The plan, or what the model becomes; o: as JSON. */
static int print_model(const Args *a, const LoadHow *how, cJSON *o, Err *e)
{
        Loaded l;
        Manifest m;
        int code = load(&l, a, how, e);
        if (code)
                return code;
        const Section *s = plan_find(&l.plan, "manifest");
        code = s ? manifest_parse(&m, s->data, s->size, e)
                 : err_set(e, TGC_BAD_FILE, "%s: the plan has no manifest: compile the model again",
                           a->pos[0]);
        if (!code) {
                code = o ? print_json(&l.plan, &m, a->pos[0], o, e)
                         : print_text(&l.plan, &m, a->pos[0], e);
                manifest_free(&m);
        }
        loaded_free(&l);
        return code;
}

/* A GGUF file of another kind (an importance matrix, an adapter) becomes no model, so nothing that
 * would change the model has an effect. */
static int check_no_model(const Args *a, const char *type, Err *e)
{
        for (int i = 0; i < N_OPTIONS; i++)
                if (opt_set(a, (OptionId)i) && !strcmp(option_info[i].group, "Model"))
                        return err_set(e, TGC_USAGE,
                                       "info: --%s has no effect: %s is no model, its general.type "
                                       "is '%s'",
                                       option_info[i].name, a->pos[0], type);
        return TGC_OK;
}

static int print_all(const Args *a, cJSON *o, Err *e)
{
        char path[4400], type[GGUF_MOST_TYPE] = "";
        ModelKind kind;
        int code = model_kind(a->pos[0], &kind, path, sizeof path, e);
        const bool gguf = !code && kind == MODEL_GGUF;
        if (gguf)
                code = gguf_print(path, o, type, e);
        if (!code && *type)
                return check_no_model(a, type, e);
        if (gguf && !code && !o)
                print("\nas a model:\n");
        return code ? code
                    : print_model(a,
                                  &(LoadHow) { .any_weights = true,
                                               .no_weights = gguf && !opt_str(a, O_WEIGHTS) },
                                  o, e);
}

/* Of a GGUF file first what is in it, which can be said of models that tgc does not know too. */
int cmd_info(const Args *a, Err *e)
{
        cJSON *o = opt_flag(a, O_JSON) ? cJSON_CreateObject() : NULL;
        int code = print_all(a, o, e);
        if (!code && o) {
                code = json_print(o, e);
                o = NULL;
        }
        cJSON_Delete(o);
        return code;
}
