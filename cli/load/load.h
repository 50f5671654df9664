/* load.h: loads what a command works on: a PLAN or a MODEL, its tokenizer and its weights. */
#ifndef TGC_CLI_LOAD_H
#define TGC_CLI_LOAD_H

#include "../../runtime/chat/chat_source.h"
#include "../../runtime/tokenizer/tokenizer.h"
#include "../cli.h"
#include "build.h"

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

#endif
