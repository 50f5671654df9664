/* pipeline.h: private to the pipeline.
 *
 *   pipeline.c       the table of passes, and the road from a model to programs
 *   specs.c          which programs a plan has, and their sizes
 *   specialise.c     a program's own copy of the forward graph
 *   sampled_rows.c   its logits, of some of its tokens
 *   manifest.c       where parameters lie; the plan's manifest
 *   program_text.c   lines of a program's text that no kernel makes */
#ifndef TGC_PIPELINE_H
#define TGC_PIPELINE_H

#include "compiler.h"
#include "../codegen/forms/forms.h"

enum {
        STEP = 1,
        EVAL = 2,
        PREFILL = 4,
        DECODE = 8,
        SCORE = 16,
        EMBED = 64,
        SUMS = 128,
        MIXED = 256
};                            /* kinds of programs; */
enum { GPU = 32, CPU = 512 }; /* with it: for GPUs alone, for CPUs */
/* SUMS has the outputs sum.N alone. */
enum { TRAINS = STEP | EVAL, CACHED = PREFILL | DECODE | SCORE | MIXED };

typedef struct Spec {
        const char *name;
        unsigned kind;
        int B, T;               /* most; */
        Sizes fixed;            /* sizes that are known; 0: run time */
        const char *outputs[4]; /* kept outputs */
} Spec;

/* ---- specs.c ---- */

/* The programs that these options ask for; spec has room for MOST_SPECS.  Refuses what the model
 * cannot do. */
enum { MOST_SPECS = 24 };
int specs_of(const Model *m, const CompileOptions *o, int ctx, int chunk, int block, Spec *spec);
int context_of(const Model *m, const CompileOptions *o); /* tokens of the longest sequence */
int prefill_tokens(const Model *m, const CompileOptions *o, int ctx); /* tokens of a prefill call */
int window_tokens(const Model *m, const CompileOptions *o); /* tokens of a training window */
/* Tokens that a cache of pages has room for; 0: one sequence's cache has no pages. */
int64_t cache_rows(const CompileOptions *o, int ctx);
/* Those of the second pool of layers that look back less than *window, the most of all layers (0:
 * all tokens).  0: there is none, since all layers look back as far, or it would not be smaller. */
int64_t narrow_rows(const Model *m, const CompileOptions *o, int ctx, int64_t *window,
                    int64_t *narrow);

/* ---- sampled_rows.c ---- */

/* The logits become those of the tokens that the new input `sampled` (B) names, (B,V), and what
 * they alone need is computed for these tokens alone. */
void sampled_rows(Graph *g, int B, Arena *tmp);

/* ---- specialise.c ---- */

bool has_input(const Graph *g, const char *name);
/* Known sizes become constants, outputs and inputs that the program has not go. */
void specialise(Graph *g, const Spec *s, Arena *tmp);
/* prefill: the caches are its results.  decode: a sampler after the logits.  mixed: the same, of
 * the tokens that the input `sampled` (B) names. */
void finish_outputs(Graph *g, const Spec *s, Arena *tmp);

/* ---- manifest.c ---- */

/* Where each parameter lies.  step: the training step's graph, or NULL.  dt: the arena's type. */
/* ---- muon.c ---- */

void muon_mark(const Graph *g, bool *muon);     /* muon[r]: a parameter that Muon trains */
void muon_matrices(const Model *m, Shared *sh); /* after lay_out */

void lay_out(const Graph *g, const Graph *step, DType dt, Shared *sh);
void manifest_text(const Model *m, const CompileOptions *o, Shared *sh, int ctx, int chunk,
                   Text *t);

/* ---- program_text.c ---- */

void arenas_text(const Shared *sh, DType dt, bool train, int target, Text *t);
/* For people: what the cache of keys and values takes. */
void blocks_text(const Graph *g, const Shared *sh, DType dt, Text *t); /* of weights */
void cache_text(const Shared *sh, Text *t);
/* What `tgc tune` needs: how this was compiled, products with their tiles, and their launches. */
void tune_text(const CompileOptions *o, Module *m, int ctx, int block, const Text *launched,
               Compiled *out);

#endif
