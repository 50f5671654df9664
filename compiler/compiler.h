/* compiler.h: compiles a model into the text and sources of a plan.
 *
 * Functions are grouped by the file that defines them. */
#ifndef TGC_COMPILER_H
#define TGC_COMPILER_H

#include "../ir/ir.h"
#include "read/objective.h"

/* ---- model.c: what a reader returns ---- */

/* One line of the map from checkpoint names to parameters (weight_map.h has the
 * grammar).  The target's first axis is kept apart, so that merging parameters
 * can move it. */
typedef struct MapLine {
        const char *param;
        int64_t begin, end, step; /* rows of param; end 0: all of it */
        const char *deeper;       /* further brackets, "" if none */
        const char *rest; /* "= NAME: shape | transforms", from the '=' on; "=? ..." if optional */
        bool optional;
} MapLine;

/* A parameter of a Lua model, as it was when the graph was made. */
typedef struct ModelParam {
        const char *name;
        enum { PARAM_BOOLEAN, PARAM_INTEGER, PARAM_REAL, PARAM_WORD } kind;
        double number;
        const char *word;
} ModelParam;

/* A Lua file that was read for a model. */
typedef struct ModelSource {
        const char *name; /* as nodes' lines name it (loc_name) */
        const char *text;
        size_t n;
        bool ours; /* it comes with tgc */
} ModelSource;

typedef struct Model {
        Arena *arena;
        /* forward: inputs ids, targets; outputs logits, loss [, aux_loss, ce], or of an encoder
         * hidden */
        Graph *graph;
        const char *name;
        MapLine *map;
        int n_map, cap_map;
        const char **ignore; /* globs of checkpoint tensors that may go unused */
        int n_ignore;
        int64_t vocab, ctx;
        int64_t width;     /* of an encoder's output hidden; 0: it is none */
        int64_t positions; /* that its tables have rows for; 0: any number (check_tables) */
        int64_t documents; /* the token that begins one, or -1: a row of tokens is one */
        const char *meta;  /* lines "meta KEY VALUE\n" */
        /* of a Lua model: where its graph came from (write_source) */
        ModelParam *params;
        int n_params;
        ModelSource *source;
        int n_source, cap_source, main_source; /* the model's own file */
} Model;

Model *model_new(const char *name);
void model_free(Model *m);
void model_map(Model *m, MapLine line); /* strings are copied */
void model_ignore(Model *m, const char *glob);
/* all of these, as runtime/weights/weight_map.h has them */
void model_map_text(const Model *m, Text *t);
/* Checks inputs and outputs; adds a line for every parameter without one.  file: of the whole;
 * NULL: where its first node is. */
void model_finish(Model *m, const char *file);

/* ---- read/: a Model from a file; error_at on mistakes ---- */

typedef struct ReadOptions {
        const char *const *define; /* -D key=value */
        int n_define;
        /* where `require` finds blocks.lua and the families; NULL: embedded */
        const char *models_dir;
        /* of CPU time that a Lua model may take to be read; 0: 5, below 0: any */
        double seconds;
        /* gets what a Lua model printed, once; NULL: nobody */
        void (*said)(void *to, const char *text, size_t n, bool more);
        void *said_to;
} ReadOptions;

/* The files of models/, as the Makefile embeds them; ends with name NULL. */
typedef struct ModelFile {
        const char *name;
        const char *text;
        size_t n;
} ModelFile;
extern const ModelFile model_files[];

/* path may also be the bare name of an embedded model: gpt, gpt.lua. */
Model *read_lua(const char *path, const ReadOptions *o);
/* The model that models/families.lua names for `family`, for config.json's model_type, or for its
 * architecture; `family` may be NULL.  config_json: {...}, Hugging Face's or, for family llama2c,
 * the header's seven numbers (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len)
 * and `shared`. */
Model *read_lua_family(const char *family, const char *config_json, const ReadOptions *o);
/* The same with a model of the user's own: its function `config` gets the configuration. */
Model *read_lua_config(const char *path, const char *family, const char *config_json,
                       const ReadOptions *o);
/* What gguf_json (runtime/weights/gguf.h) says of a file, by models/gguf.lua: a config.json for the
 * above, and the map from its tensors to those of a folder (weight_map_compose).  own: the model is
 * the user's, so an architecture that is not known leaves both empty. */
void read_gguf(const char *meta_json, bool own, Text *config, Text *names);
/* The other way: of {"config": config.json, "tensors": {NAME: {"shape": [N,K]}}} what a GGUF file
 * says, {"keys": [[NAME, "u32", VALUE] ...], "extra": {NAME: [NUMBER ...]}, "sizes": {...}}, and
 * the map that read_gguf would make of that file's tensors. */
void write_gguf(const char *folder_json, Text *keys, Text *names);
Model *read_json(const char *path);
/* text[n] is 0; name: for messages */
Model *read_json_text(const char *text, size_t n, const char *name);
void write_json(const Model *m, Text *out); /* what read_json reads back */

/* ---- read/objective.c: what a model is trained for, from a Lua file ---- */

/* spec: FILE.lua or the name of one that comes with tgc, and its parameters: grpo,samples=4.  The
 * model's loss becomes the objective's; it gets an output logp (B,T) where the runtime needs
 * one. */
void objective_apply(Model *m, const char *spec, const ReadOptions *o);

/* ---- read/source.c ---- */

/* A Lua model's files and parameters, as JSON (section `model` of runtime/plan/plan.h); nothing of
 * a JSON graph, or of files that are no UTF-8. */
void write_source(const Model *m, Text *out);

/* ---- read/describe.c: for people ---- */

void describe_language(Text *out, bool markdown); /* what a Lua model may say */
/* The models inside tgc with their parameters; name NULL: all.  False: there is none of that
 * name. */
bool describe_models(const char *name, Text *out, bool markdown);
bool describe_knows(Op op); /* language.def has a row for it */

/* ---- storage.c: parameters in blocks ---- */

/* may[r]: r is a parameter, and all that read it take rows of it, which may be in blocks */
void storage_mark(const Graph *g, bool *may);
/* why parameter n (may: of storage_mark) cannot be stored so; NULL: it can */
const char *storage_fault(const Node *n, Storage s, bool may);
/* error_at for one that is stored as it cannot be */
void check_storage(const Graph *g);

/* What the backward pass computes again (recompute.c); numbers of --recompute's words. */
typedef enum Recompute { RECOMPUTE_FREE, RECOMPUTE_CHEAP, RECOMPUTE_BLOCK } Recompute;

/* Of act_fp8. */
enum { ACT_TOKEN = 1 };

/* ---- passes/: one each, see the head of each file ---- */

void simplify(Graph *g, Arena *tmp);
void split_documents(Model *m, int64_t token); /* a token attends its own document alone ... */
void forget_documents(Graph *g, Arena *tmp);   /* ... but there is one where texts are generated */
void bound_texts(Graph *g); /* the same of texts side by side that are embedded */
void merge_linears(Model *m, Arena *tmp);
/* columns: of a scale; 0: a whole row has one.  error_code, where no weight is fp8. */
void round_acts(Graph *g, Arena *tmp, int columns);
void fuse_loss(Graph *g, Arena *tmp); /* last linear + cross-entropy */
void differentiate(Graph *g, Arena *tmp);
void fuse_loss_grad(Graph *g, Arena *tmp);
void fuse_norm_grad(Graph *g, Arena *tmp);
void keep_slope(Graph *g, Arena *tmp);
void few_experts(Graph *g, Arena *tmp);
void copy_norms(Graph *g, Arena *tmp);
void pad_heads(Graph *g, Arena *tmp); /* attention has one head width */
void cache_kv(Graph *g, Arena *tmp);
void precision(Graph *g, DType dt);
void cache_type(Graph *g, DType dt);    /* of what is cached */
void keep_parts(Graph *g, Arena *tmp);  /* parts of products instead of the whole */
void materialize(Graph *g, Arena *tmp); /* copies where a view cannot be addressed */
void recompute(Graph *g, Arena *tmp, Recompute how);
/* again[r]: the backward pass computes r again; seed: its first node */
void checkpoints(const Graph *g, Ref seed, Arena *tmp, bool *again);
/* why: what was refused and what kernels save, a line each; may be NULL */
void fuse(Graph *g, Arena *tmp, int level, bool same_bits, Text *why);
void order(Graph *g, Arena *tmp);

/* ---- passes/input_sums.c ---- */

/* Outputs sum.N of the model, for a plan whose only program is `sums`. */
void input_sums(Model *m, Text *lines);

/* ---- passes/lora.c ---- */

/* An adapter: low-rank products beside linears. */
typedef struct Lora {
        const char *tag; /* behind its parameters' names: "", ".1" of a second one ... */
        double dropout;
        /* The rank at a module, 0: none; *scale: of its result.  output: it makes the logits. */
        int (*rank)(void *ctx, const char *module, bool output, double *scale);
        void *ctx;
        /* of > 0: the result is multiplied by element `number` of the input `adapters` (B,T,of):
         * each token says which of so many adapters it has */
        int number, of;
} Lora;

typedef struct LoraFound {
        int n;       /* linears that got one */
        Loc experts; /* of linears of experts, which never do; file NULL: there are none */
} LoraFound;

void lora(Model *m, const Lora *l, LoraFound *found, Arena *tmp);
Ref output_linear(const Graph *g); /* the product that makes the logits; 0: there is none */

/* ---- ranges.c: bounds of what a graph computes ---- */

typedef struct Range {
        double least, most;
        bool nan;           /* it may be no number */
        bool exact;         /* both ends are met: what lies beyond a table will be read */
        bool soft;          /* it may be stored in 16 bits */
        bool position, ids; /* made of these */
        int documents;      /* see documents_seen */
        Dim below;          /* of what depends on B and T: smaller than that; n 0: not known */
} Range;

typedef struct RangeFacts {
        int64_t vocab; /* of the input ids; 0: not known */
        int length;    /* positions of the longest sequence */
        DType dt;      /* of 16-bit storage */
} RangeFacts;

Range *ranges(const Graph *g, const RangeFacts *f, Arena *a); /* one per node */
/* 0 .. rows - 1; rows_least: fewest there can be */
bool range_below(const Range *r, Dim rows, double rows_least);

/* ---- tables.c, token_axis.c, pipeline.c ---- */

typedef struct CompileOptions {
        DType dtype;
        const DType *cache; /* of keys and values that are cached; NULL: dtype */
        int opt;            /* 0..3 */
        bool infer, train;
        int batch; /* sequences: inference and training */
        int ctx;   /* cache size; 0: the model's */
        /* that the cache of several sequences holds; 0: batch * ctx; below 0: that, but not more
         * than a context and 32768 */
        int64_t cache_tokens;
        bool ctx_at_least; /* a larger one will do */
        /* tokens of a prefill call; 0: chosen, and for GPUs more in a second program */
        int chunk;
        int block; /* training window T; 0: the model's ctx */
        /* Of a plan that trains: sequences that are sampled together from a cache of pages; 0:
         * one */
        int sequences;
        /* Nothing but the program `reference`, which gives this output (logits, logp) of training
         * windows; NULL: it is a plan like any */
        const char *reference;
        bool has_params; /* -D sets the model's sizes: messages may say so */
        bool cuda, cpu;  /* targets to write programs for */
        Recompute recompute;
        Optimizer optimizer; /* of the training programs */
        Masters masters;
        bool ema;      /* an average of the parameters is kept */
        bool offload;  /* CUDA: activations of a step rest in the host's memory */
        bool sums;     /* one program, `sums`, with the outputs of input_sums */
        bool act_int8; /* CPU: values that meet weights in blocks are rounded to 8 bits */
        /* Inference: what meets weights of fp8 is rounded to e4m3; columns of a scale, ACT_TOKEN: a
         * token has one; 0: it is not */
        int act_fp8;
        bool tf32; /* CUDA, dtype f32: products of tf32 */
        bool fast; /* a sequence's bits may depend on how many others there are */
        /* text of tiles that were measured (codegen/forms/tile_choice.c), or NULL */
        const char *choices;
        const char *choices_name; /* what messages call it */
        const char *print_after;  /* pass name, or NULL */
        bool time_passes;
} CompileOptions;

typedef struct Compiled {
        Text manifest;              /* plan.h has the grammar of these */
        Text program[2], source[2]; /* [0] cuda, [1] cpu */
        Text consts;                /* bytes of arena const */
        Text ir;                    /* all graphs, locations and groups included */
        Text products;              /* of CUDA's programs, for `tgc tune` */
        Text launches;              /* of all programs, for `tgc dump --html` */
        Text choices;               /* those of CompileOptions that products took */
        int n_choices, n_chosen;    /* how many there were; were taken */
        Text fused, why, memory;    /* for people */
        Text passes, times;         /* --print-after, --time-passes */
        int n_kernels[2];
} Compiled;

/* limits.c: sizes that kernels have no room for are refused. */
void check_limits(const Graph *g);
/* Indices stay within what they pick from: error_at where one will not, a clamp where that is not
 * known. */
void check_tables(Model *m, const CompileOptions *o, int ctx, int block);
/* Of a program's graph after all passes: that this still holds; else an internal error. */
void check_program_tables(const Graph *g, const Model *m, const CompileOptions *o, int ctx,
                          int block);
/* error_at where tokens meet outside of causal attention: what a cache holds is not enough for the
 * next one then. */
void check_token_axis(const Model *m);
void compile(Model *m, const CompileOptions *o, Compiled *out);
void compiled_free(Compiled *c);
/* The graph of `step` or `decode` after all passes, for other sizes; m as compile leaves it. */
Graph *compile_program(const Model *m, const CompileOptions *o, const char *program, int B, int T,
                       int S);

#endif
