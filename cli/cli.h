/* cli.h: what the commands share.  Functions are grouped by the file that defines them.  Data goes
 * to stdout, messages to stderr. */
#ifndef TGC_CLI_H
#define TGC_CLI_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "option.h"
#include "../ir/optimizer.h"
#include "../runtime/util/err.h"
#include "../runtime/plan/plan.h"
#include "../runtime/util/stop.h"
#include "../runtime/tokenizer/tokenizer.h"
#include "../runtime/chat/chat_source.h"

/* ---- progress.c: talk ---- */

typedef struct Progress {
        bool quiet, color, tty;
} Progress;
Progress progress_new(const Args *a); /* NO_COLOR, TGC_LOG=quiet, --quiet */
void say(const Progress *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void say_error(const char *msg); /* "tgc: error: MSG", or the message's own place first */
/* A line that is written over by the next one; on a terminal only. */
void progress_bar(const Progress *s, double part, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
void progress_bar_end(const Progress *s);
double clock_s(void);
const char *text_bytes(char *buf, size_t cap, double bytes); /* "1.50 GB" */
const char *text_count_si(char *buf, size_t cap, double n);  /* "124.4M" */
int out_done(Err *e); /* flush stdout; TGC_IO when it could not take all */

/* ---- plain.c: text from files, for people ---- */

/* What a terminal would obey is written as \x1b or \u009b, so is what is no UTF-8. */
void put_plain(FILE *f, const char *text, size_t n);
/* A message: what it repeats of the arguments stays in its line, as \x0a. */
void put_message(FILE *f, const char *text);
void plain_arguments(int argc, char **argv);
bool vprint_plain(FILE *f, const char *fmt, va_list ap); /* false: cut, no memory */
void json_start(void);                                   /* open.c; before any JSON is made */
/* What a model says, to stdout: as it is, but to a terminal without control characters. */
void put_generated(const char *text, size_t n);
void put_json(FILE *f, const char *text); /* JSON, its control characters as \u009b */
extern bool print_lost; /* some of it was not written: there was no memory (out_done) */
/* printf, through put_plain */
void print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- signals.c ---- */

/* Without signals_defer a signal ends the process at once.  With it the first one
 * is kept for signal_seen, the second ends.  While a compiler runs the first one
 * stops that, so that no temporary folder stays. */
void signals_install(void);
void signals_defer(void);
/* While on, Ctrl-C without signals_defer does nothing. */
void signals_prompt(bool on);
int signals_prompt_fd(void); /* readable after a Ctrl-C at the prompt */
void signals_forget(void);   /* as before signals_defer: what was seen is dealt with */
/* From signals_save on SIGUSR1 is kept: was there one since the last look? */
void signals_save(void);
bool signal_save_seen(void);
int signal_seen(void);    /* 0, SIGINT, SIGTERM or SIGHUP */
Stop *signals_stop(void); /* for what compiles; its TGC_STOPPED means 128 + signal_seen() */

/* How the terminal was is kept; what ends the process gives it back so. */
void terminal_keep(void);
void terminal_give_back(void);

/* ---- utf8.c ---- */

/* Bytes of s that may be printed now: all but a sequence at the end that further
 * bytes could complete. */
size_t utf8_ready(const char *s, size_t n);

/* ---- build.c: the compiler's side ---- */

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

/* ---- version.c, which the Makefile writes ---- */

extern const char build_commit[], build_compiler[]; /* "8346fc5b1e", "gcc 12.2.0" */

/* ---- help_models.c ---- */

/* what: "lua" or "models", of these `name` or, NULL, all. */
int help_models(const char *what, const char *name, bool markdown, Err *e);

/* ---- effects.c ---- */

/* TGC_USAGE where an option that was given would change nothing */
int effects_check(const Args *a, Err *e);
bool effects_known(OptionId o, CommandId cmd); /* effects.def has a line for it */

/* ---- outputs.c ---- */

/* TGC_USAGE where an output is a file that the command reads */
int outputs_check(const Args *a, Err *e);
/* Refuses a given --out_dir that is a file, where something is written to it. */
int out_dir_check(const Args *a, Err *e);
/* Do both stand for one file or folder that is there? */
bool paths_same(const char *a, const char *b);

/* ---- load.c: PLAN or MODEL to a plan in memory ---- */

typedef struct Loaded {
        Plan plan;
        Plan given;     /* --rebuild: the one that plan was made of, and has its weights */
        void *weights;  /* owned, when they were imported here */
        char *own;      /* of a folder: the model that its config.json names, or NULL */
        Tokenizer *tok; /* NULL: none */
        ModelKind kind;
        double seconds; /* to read and compile */
} Loaded;

typedef struct LoadHow {
        int mode;            /* BUILD_* wanted when it must be compiled; 0: by the kind of model */
        Tokenizer *tok;      /* already made, or NULL; taken over */
        const char *weights; /* instead of --weights */
        bool no_weights;
        /* what is asked does not depend on them: a folder without is fine */
        bool any_weights;
        bool sums;             /* BuildOptions.sums */
        bool bounds;           /* of training rows: BuildOptions.documents of -1 */
        int sequences;         /* BuildOptions' */
        const char *reference; /* BuildOptions' */
} LoadHow;

/* A folder's weights: TGC_OK with *there set, or not set where it has none at all; TGC_BAD_FILE
 * where it has them in a form that tgc does not read.  way_out: the option that does without. */
int folder_weights(const char *dir, const char *way_out, bool *there, Err *e);
/* A file of a folder that training left, of the state's step (state.c). */
int run_file(const char *dir, const char *name, char **path, Err *e);
/* real: the path to open */
int model_kind(const char *path, ModelKind *kind, char *real, size_t cap, Err *e);
bool is_plan(const char *path);
int load(Loaded *l, const Args *a, const LoadHow *how, Err *e);
void loaded_free(Loaded *l);
/* spec as --tokenizer; NULL: what lies beside the model, *tok NULL if nothing does. */
int tokenizer_for(Tokenizer **tok, const char *spec, const char *model, ModelKind kind, int vocab,
                  Err *e);
int tokenizer_from_text(Tokenizer **tok, const char *text, size_t n, Err *e); /* char */
int plan_add_tokenizer(Plan *p, const Tokenizer *tok, Err *e);
/* first line "KEY rest"; 0: absent */
int manifest_word(const Plan *p, const char *key, char *out, size_t cap);

/* ---- model_source.c: the model that a graph was made by ---- */

struct cJSON;
/* A plan's section `model`, checked; NULL where it has none.  Free with cJSON_Delete. */
int model_source(const Plan *p, struct cJSON **source, Err *e);
const char *model_source_find(const struct cJSON *source, const char *name); /* its text, or NULL */
/* Into dir: the model's file, whose name it gives, and a config.json that names it; *name "" where
 * another config.json is there, which stays. */
int model_source_write(const Plan *p, const char *dir, const char *dtype, char name[200], Err *e);

/* The model that the config.json of a folder names beside it; NULL: it is of a family.  Caller
 * frees. */
int folder_model(const char *dir, char **path, Err *e);

/* ---- param_source.c ---- */

typedef char Place[80];
struct WeightParam;
/* Gives n parameters the lines of the model that make them ("gpt.lua:44"), where these are known;
 * what it returns holds them, and is freed by the caller. */
Place *param_places(const Plan *plan, struct WeightParam *p, int n);

/* ---- weights.c: the runtime's side of checkpoints ---- */

/* Fill the section `weights` from a checkpoint; *mem is to be freed after the plan. */
int weights_import(Plan *p, const char *path, void **mem, const Progress *say, Err *e);
/* The other way, as safetensors; dtype NULL: the plan's.  shard 0: path is a file; else a folder,
 * which gets *n_files of at most so many bytes. */
int weights_export(const Plan *p, const char *path, const char *dtype, uint64_t shard, int *n_files,
                   Err *e);
/* The text of the map inside a manifest; caller frees. */
char *manifest_map(const Plan *p);
/* The manifest's map, or `text`, of a checkpoint's tensors under that checkpoint's own names
 * (GGUF); NULL: none.  The caller frees both, names last. */
struct WeightMap;
struct Checkpoint;
int weight_map_for(const char *text, const struct Checkpoint *from, struct WeightMap **map,
                   struct WeightMap **names, Err *e);
int plan_weight_map(const Plan *p, const struct Checkpoint *from, struct WeightMap **map,
                    struct WeightMap **names, Err *e);

/* ---- targets.c: machine code and headers ---- */

int plan_add_headers(Plan *p, Err *e);
int plan_add_target(Plan *p, const char *target, Err *e); /* cpu, sm_XX: compiled code */

/* ---- ids.c ---- */

/* All integers in a text, whatever stands between them; refuses ids outside 0..vocab-1.
 * *ids is malloc'd. */
int ids_parse(const char *text, size_t n, int vocab, const char *name, int **ids, int *n_ids,
              Err *e);
int read_stdin(char **text, size_t *n, Err *e);
/* Leaves out a byte order mark that begins a text of n bytes, and says so of `from`; returns what
 * is left of n.  talk may be NULL. */
size_t drop_mark(char *text, size_t n, const char *from, const Progress *talk);

/* ---- commands ---- */
#define COMMAND(id, name, ...) int cmd_##name(const Args *a, Err *e);
#include "commands.def"
#undef COMMAND

int tgc_main(int argc, char **argv); /* tgc.c */

#endif
