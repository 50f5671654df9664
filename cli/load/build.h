/* build.h: a model file compiled to a plan: the compiler's side of the command line (build.c). */
#ifndef TGC_CLI_BUILD_H
#define TGC_CLI_BUILD_H

#include <stdbool.h>
#include <stdint.h>
#include "../../ir/optimizer.h"
#include "../../runtime/plan/plan.h"
#include "../../runtime/util/err.h"

enum { BUILD_INFER = 1, BUILD_TRAIN = 2 };

typedef enum { MODEL_PLAN, MODEL_LUA, MODEL_JSON, MODEL_HF, MODEL_LLAMA2C, MODEL_GGUF } ModelKind;

enum { CHECK_SAYS = 400 };

typedef struct BuildOptions {
        ModelKind kind;
        const char *model;
        const char *own;    /* the user's Lua file for a folder, or NULL */
        const char *config; /* of a GGUF file: its configuration (gguf_model.h) */
        bool quiet;         /* what the model prints is not shown */
        const char *dtype;  /* f32 bf16 f16 */
        const char *cache;  /* the same, of keys and values; NULL: dtype */
        const char **define;
        int n_define;
        int mode; /* BUILD_* */
        /* Where both modes are asked for and the model cannot generate text, it is compiled for
         * training alone and this says why.  NULL: that is an error. */
        Err *no_infer;
        int opt, batch, ctx, chunk, block;
        int64_t cache_tokens; /* that several sequences have together; 0: batch * ctx */
        bool ctx_at_least;  /* ctx may be rounded up, so that kernels are compiled once for many */
        bool block_at_most; /* block is the context's where that is shorter */
        int recompute;      /* a word's number of --recompute */
        bool offload;       /* --offload activations */
        bool cuda, cpu, tf32, fast, act_int8, time_passes;
        int act_fp8; /* CompileOptions.act_fp8; 1 becomes what the kept blocks have */
        Optimizer optimizer;
        Masters masters;
        bool ema;         /* an average of the weights is kept */
        bool switch_lora; /* each sequence says which adapter it has */
        const char *print_after;
        const char *choices; /* text of tiles (codegen/forms/tile_choice.c), or NULL */
        const char *choices_name;
        /* NULL: no quick check; else room for CHECK_SAYS, what it has to say (quick_check.c) */
        char *check;
        /* token that begins one, -1: the runtime is told where they lie; NULL: a row of training
         * tokens is one */
        const int *documents;
        const char **train, **group; /* patterns of what is trained (select_params.c) */
        int n_train, n_group;
        double lr; /* the run's, which rates of groups are relative to; 0: there is no run */
        const char **lora; /* adapters (lora.h) */
        int n_lora;
        const char *keep;      /* weights whose blocks stay as they are; NULL: all are decoded */
        bool sums;             /* a plan that measures what linears are given (calibrate.c) */
        const char *mixture;   /* types of random blocks (mixtures.def); NULL: there are none */
        double lua_seconds;    /* ReadOptions.seconds */
        const char *objective; /* --objective; NULL: the model's own loss */
        int sequences;         /* CompileOptions.sequences */
        const char *reference; /* CompileOptions.reference */
        /* of a char tokenizer: the model's, unless -D says otherwise; 0: its own */
        int vocab;
} BuildOptions;

/* A family's, or a file that comes with tgc: those are tested. */
bool model_is_ours(ModelKind kind, const char *path);
bool model_is_ours_by(const char *name, const char *text);
bool model_is_within(const char *name); /* gpt, gpt.lua: of a model that comes with tgc */
/* Read and compile: adds every section but tokenizer, weights and machine code. */
int build_plan(Plan *p, const BuildOptions *o, Err *e);
/* The plan `from`, compiled again from what it holds itself with other choices (NULL: none), into
 * *to, an empty one. Its weights are from's, which outlives it; compiled code for GPUs stays
 * behind. */
int plan_again(Plan *to, const Plan *from, const char *choices, Err *e);

/* The same with `from` as data only: nothing that is executed or describes execution is taken from
 * it, but its graph, how it was compiled, its choices of tiles, tokenizer and weights, which lie as
 * from's manifest says. */
int plan_rebuild(Plan *to, const Plan *from, Err *e);

#endif
