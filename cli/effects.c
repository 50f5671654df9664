/* effects.c: makes an option that would change nothing a usage error (effects.def). */
#include <stdlib.h>
#include <string.h>
#include "../runtime/util/file.h"
#include "load/load.h"
#include "load/gguf_model.h"
#include "quantize/mixtures.h"

/* What the command line says of the work, before any of it. */
typedef struct Given {
        const Args *a;
        ModelKind kind;
        int mode;           /* BUILD_*: what the command compiles, or runs */
        const char *device; /* as --device says; NULL: it is chosen */
} Given;

static bool flag(const Given *g, OptionId o) { return opt_flag(g->a, o); }
static bool has(const Given *g, OptionId o) { return opt_str(g->a, o) != NULL; }
static bool starts(const char *s, const char *head) { return s && !strncmp(s, head, strlen(head)); }

/* ---- what an option needs ---- */

static bool always(const Given *g)
{
        (void)g;
        return true;
}
static bool model(const Given *g) { return g->kind != MODEL_PLAN; }
/* A run's folder names its model. */
static bool model_or_run(const Given *g) { return model(g) || file_is_dir(g->a->pos[0]); }
static bool compiled(const Given *g) { return g->kind == MODEL_PLAN; }
static bool runs_lua(const Given *g) { return g->kind != MODEL_JSON; }
static bool has_config(const Given *g)
{
        return g->kind == MODEL_HF || g->kind == MODEL_LLAMA2C || g->kind == MODEL_GGUF;
}
static bool trains(const Given *g) { return g->mode & BUILD_TRAIN; }
static bool trains_or_keeps(const Given *g) { return trains(g) || !opt_int(g->a, O_RECOMPUTE); }
static bool infers(const Given *g) { return g->mode & BUILD_INFER; }
static bool infers_or_model(const Given *g) { return infers(g) || model(g); }

static bool several(const Given *g)
{
        return infers(g) && !trains(g) && (opt_int(g->a, O_BATCH) > 1 || has(g, O_SEQUENCES));
}
static bool together(const Given *g)
{
        return opt_int(g->a, O_PARALLEL) > 1 || g->a->v[O_PROMPT].n > 1 || has(g, O_PROMPTS);
}

static bool one_text(const Given *g) { return !together(g); }
static bool drafts(const Given *g) { return opt_set(g->a, O_DRAFT); }

/* Training alone has one length, and --block-size is the better name for it. */
static bool infers_or_sets_window(const Given *g)
{
        return infers(g) || !opt_int(g->a, O_BLOCK) ||
               opt_int(g->a, O_BLOCK) == opt_int(g->a, O_CTX);
}

static bool random_weights(const Given *g)
{
        return has(g, O_WEIGHTS) ? !strcmp(opt_str(g->a, O_WEIGHTS), "random")
                                 : g->kind == MODEL_LUA || g->kind == MODEL_JSON ||
                                           g->a->cmd == CMD_CHECK || g->a->cmd == CMD_DUMP;
}
static bool from_gguf(const Given *g)
{
        return has(g, O_WEIGHTS) ? strcmp(opt_str(g->a, O_WEIGHTS), "random") != 0
                                 : g->kind == MODEL_GGUF;
}
static bool from_blocks(const Given *g)
{
        return from_gguf(g) || (!has(g, O_WEIGHTS) && path_has_blocks(g->a->pos[0]));
}
static bool has_blocks(const Given *g)
{
        return opt_int(g->a, O_WEIGHT_TYPE) > 1 ? random_weights(g) : from_blocks(g);
}
/* Of GGUF files and int4 errors are weighed. */
static bool makes_mixture(const Given *g)
{
        return !file_is_dir(g->a->pos[0]) || !opt_str(g->a, O_TYPE) ||
               mixture_find(opt_str(g->a, O_TYPE)) >= 0;
}
static bool chooses_scales(const Given *g)
{
        return makes_mixture(g) || starts(opt_str(g->a, O_TYPE), "int4");
}
static bool writes_gguf(const Given *g) { return has(g, O_GGUF); }
static bool writes_folder(const Given *g) { return !writes_gguf(g); }
static bool no_imatrix(const Given *g) { return !has(g, O_IMATRIX); }
static bool keeps_blocks(const Given *g)
{
        return has_blocks(g) && opt_int(g->a, O_WEIGHT_TYPE) != 1;
}
static bool trains_adapters(const Given *g)
{
        return !trains(g) || g->a->v[O_LORA].n || flag(g, O_RESUME) ||
               opt_int(g->a, O_WEIGHT_TYPE) == 1;
}

static bool sets_vocab(const Given *g)
{
        return starts(opt_str(g->a, O_TOKENIZER), "char") || (has(g, O_DOCUMENTS) && trains(g));
}

static bool reads_text(const Given *g)
{
        return !has(g, O_IDS) || (model(g) && starts(opt_str(g->a, O_TOKENIZER), "char"));
}

static bool one_program(const Given *g) { return !has(g, O_SEQUENCES); }
static bool scores_text(const Given *g) { return !has(g, O_REQUESTS); }

static bool no_base(const Given *g) { return !has(g, O_KL) && !has(g, O_SAVE_BASE); }
static bool no_saving(const Given *g) { return !has(g, O_SAVE_BASE); }

static bool on_cpu(const Given *g) { return !g->device || strcmp(g->device, "cuda"); }
static bool rounds_to_fp8(const Given *g) { return opt_int(g->a, O_ACT) == 2; }
static bool on_cpu_or_fp8(const Given *g) { return on_cpu(g) || rounds_to_fp8(g); }
static bool infers_or_int8(const Given *g) { return !trains(g) || !rounds_to_fp8(g); }
static bool no_lora_or_int8(const Given *g) { return !g->a->v[O_LORA].n || !rounds_to_fp8(g); }
static bool on_gpu(const Given *g)
{
        return !g->device || !strcmp(g->device, "cuda") || !strcmp(g->device, "auto");
}

static bool for_gpu(const Given *g)
{
        const OptionValue *t = &g->a->v[O_TARGET];
        bool gpu = !t->n;
        for (int i = 0; i < t->n; i++)
                gpu |= strcmp(t->list[i], "cpu") != 0;
        return gpu && (!g->device || strcmp(g->device, "cpu"));
}

/* --offload none is what happens anyway. */
static bool gpu_or_none(const Given *g) { return for_gpu(g) || !opt_int(g->a, O_OFFLOAD); }
static bool trains_or_none(const Given *g) { return trains(g) || !opt_int(g->a, O_OFFLOAD); }
/* A plan was compiled with its activations where they are. */
static bool model_or_states(const Given *g) { return model(g) || !offloads_activations(g->a); }
static bool activations_or_none(const Given *g)
{
        return offloads_activations(g->a) || !opt_int(g->a, O_OFFLOAD);
}

static bool trained_adapters(const Given *g)
{
        for (int i = 0; i < g->a->v[O_LORA].n; i++) {
                const char *s = g->a->v[O_LORA].list[i];
                if (strchr(s, '=') && !file_is_dir(s))
                        return false;
        }
        return true;
}

static bool shifts(const Given *g) { return flag(g, O_CONTEXT_SHIFT); }
static bool plain(const Given *g) { return !flag(g, O_JSON); }
static bool as_object(const Given *g) { return flag(g, O_JSON); }
static bool merges(const Given *g) { return flag(g, O_MERGE); }
static bool talks(const Given *g) { return !flag(g, O_QUIET); }
/* A state has no frozen weights. */
static bool begins_or_freezes(const Given *g)
{
        return !flag(g, O_RESUME) || g->a->v[O_TRAIN_ONLY].n || g->a->v[O_GROUP].n ||
               g->a->v[O_LORA].n;
}
static bool has_objective(const Given *g) { return g->a->v[O_OBJECTIVE].n || flag(g, O_RESUME); }
static bool random_windows(const Given *g) { return !has(g, O_BATCH_OFFSETS); }
static bool no_val_data(const Given *g) { return !g->a->v[O_VAL_DATA].n; }
/* As data_sources.c knows them; a weight may stand behind the name. */
static bool names_records(const OptionValue *v)
{
        for (int i = 0; i < v->n; i++)
                if (strstr(v->list[i], ".json"))
                        return true;
        return false;
}
static bool learns_records(const Given *g)
{
        return names_records(&g->a->v[O_TRAIN_DATA]) || names_records(&g->a->v[O_VAL_DATA]) ||
               flag(g, O_RESUME);
}
/* Of a run that is resumed the state says the rest. */
static bool decays(const Given *g)
{
        return opt_set(g->a, O_DECAY_LR) ? flag(g, O_DECAY_LR)
                                         : random_windows(g) || flag(g, O_RESUME);
}
static bool sixteen_bits(const Given *g)
{
        return strcmp(opt_str(g->a, O_DTYPE), "f32") != 0 || flag(g, O_RESUME);
}
static bool cools_down(const Given *g)
{
        return !strcmp(opt_str(g->a, O_LR_SCHEDULE), "wsd") || flag(g, O_RESUME);
}
static bool has_lora(const Given *g) { return g->a->v[O_LORA].n > 0; }
static bool from_lines(const Given *g) { return has(g, O_PROMPTS); }
static bool averages(const Given *g) { return opt_num(g->a, O_EMA) > 0 || flag(g, O_RESUME); }
static bool scale_moves(const Given *g) { return !(opt_num(g->a, O_LOSS_SCALE) > 0); }
static bool splits(const Given *g)
{
        return !no_val_data(g) ||
               (random_windows(g) && (opt_num(g->a, O_VAL_FRACTION) > 0 || flag(g, O_RESUME)));
}
static bool validates(const Given *g)
{
        return splits(g) && (opt_int(g->a, O_EVAL_ITERS) > 0 || flag(g, O_RESUME));
}
static bool validates_or_not(const Given *g) { return splits(g) || !opt_int(g->a, O_EVAL_ITERS); }
/* The rest of what nanoGPT's --eval_only stands beside is obeyed: it is added to a line that
 * trains. */
static bool takes_steps(const Given *g) { return !flag(g, O_EVAL_ONLY); }
static bool samples_text(const Given *g)
{
        return opt_int(g->a, O_SAMPLE_INTERVAL) > 0 || flag(g, O_RESUME);
}
static bool has_eval_prompts(const Given *g) { return has(g, O_EVAL_PROMPT) || flag(g, O_RESUME); }
static bool fused(const Given *g) { return flag(g, O_D_FUSED); }
static bool graph(const Given *g) { return flag(g, O_D_GRAPH); }
static bool page(const Given *g) { return has(g, O_D_HTML); }
static bool measures(const Given *g) { return flag(g, O_D_MEASURED); }
static bool sources(const Given *g) { return flag(g, O_D_CUDA) || flag(g, O_D_C); }
static bool describes(const Given *g)
{
        return g->a->n_pos && (!strcmp(g->a->pos[0], "lua") || !strcmp(g->a->pos[0], "models"));
}
static bool no_conversation(const Given *g) { return !has(g, O_MESSAGES); }
static bool converses(const Given *g) { return has(g, O_MESSAGES); }
static bool encodes(const Given *g) { return !flag(g, O_TO_TEXT); }

/* ---- the table ---- */

static const char PLAN[] = "PLAN";

static const struct {
        OptionId option;
        unsigned commands;
        bool (*needs)(const Given *g);
        const char *why;
} effect[] = {
#define EFFECT(option, commands, needs, why) { O_##option, commands, needs, why },
#include "effects.def"
#undef EFFECT
};
enum { N_EFFECTS = sizeof effect / sizeof *effect };

bool effects_known(OptionId o, CommandId cmd)
{
        for (int i = 0; i < N_EFFECTS; i++)
                if (effect[i].option == o && effect[i].commands >> cmd & 1)
                        return true;
        return false;
}

/* As the manifest says; a plan that cannot be read is the command's to refuse. */
static int plan_mode(const char *path)
{
        char word[32] = "";
        Plan p = { 0 };
        if (!plan_open(&p, path, NULL))
                manifest_word(&p, "mode", word, sizeof word);
        plan_close(&p);
        return !strcmp(word, "infer")   ? BUILD_INFER
               : !strcmp(word, "train") ? BUILD_TRAIN
                                        : BUILD_INFER | BUILD_TRAIN;
}

static int mode_of_command(const Args *a, ModelKind kind, const char *path)
{
        static const int by_word[] = { BUILD_INFER, BUILD_TRAIN, BUILD_INFER | BUILD_TRAIN };
        switch (a->cmd) {
        case CMD_RUN:
        case CMD_CHAT:
        case CMD_EVAL:
        case CMD_EMBED:
        case CMD_EXPORT: return BUILD_INFER;
        case CMD_BENCH: return opt_flag(a, O_B_TRAIN) ? BUILD_TRAIN : BUILD_INFER;
        case CMD_TRAIN: return BUILD_INFER | BUILD_TRAIN;
        case CMD_CHECK:
                if (kind == MODEL_PLAN && (opt_set(a, O_GREEDY) || opt_set(a, O_TOKENS)))
                        return plan_mode(path);
                if (opt_int(a, O_WEIGHT_TYPE) > 1)
                        return BUILD_INFER;
                return BUILD_INFER | BUILD_TRAIN;
        default:
                if (opt_set(a, O_MODE))
                        return by_word[opt_int(a, O_MODE)];
                return kind == MODEL_LUA || kind == MODEL_JSON ? BUILD_INFER | BUILD_TRAIN
                                                               : BUILD_INFER;
        }
}

/* --no-tf32 asks for what happens anyway. */
static bool asks_for_nothing(const Args *a, OptionId o)
{
        const OptionInfo *x = &option_info[o];
        return x->kind == OPT_FLAG && x->dflt && a->v[o].i == (*x->dflt == '1');
}

int effects_check(const Args *a, Err *e)
{
        const char *name = command_info[a->cmd].name;
        char path[4400] = "";
        Given g = { .a = a,
                    .kind = MODEL_LUA,
                    .device = ((ON_DEVICE | ON_DUMP) >> a->cmd & 1) ? opt_str(a, O_DEVICE) : NULL };
        if ((((ON_MODEL | ON_EXPORT) >> a->cmd) & 1) &&
            model_kind(a->pos[0], &g.kind, path, sizeof path, NULL))
                return TGC_OK; /* the command says what is wrong */
        if ((ON_MODEL >> a->cmd & 1) && g.kind == MODEL_LUA && !file_exists(a->pos[0]) &&
            !model_is_within(a->pos[0]))
                return TGC_OK; /* nor is there a model of that name */
        g.mode = mode_of_command(a, g.kind, path);
        for (int i = 0; i < N_EFFECTS; i++) {
                const OptionId o = effect[i].option;
                if (!(effect[i].commands >> a->cmd & 1) || !opt_set(a, o) ||
                    asks_for_nothing(a, o) || effect[i].needs(&g))
                        continue;
                if (!strcmp(effect[i].why, PLAN))
                        return err_set(
                                e, TGC_USAGE,
                                "%s: --%s has no effect: %s is compiled already; give --%s with "
                                "the model that it was made of",
                                name, option_info[o].name, a->pos[0], option_info[o].name);
                return err_set(e, TGC_USAGE, "%s: --%s has no effect: %s", name,
                               option_info[o].name, effect[i].why);
        }
        return TGC_OK;
}
