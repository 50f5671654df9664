/* plan.h: the plan file and the two texts inside it that the runtime obeys.
 *
 * A plan is one file: 64-byte header (magic "tgcplan\n", format version, byte
 * order mark, number of sections, XXH3-64 of the section table), the section
 * table (name[32], offset, size, XXH3-64), then sections, each aligned to 4096
 * bytes so that weights can be mapped.  Sections:
 *
 *      manifest        text, below: the model as the user knows it
 *      program.cuda    text, below: arenas, kernels, launches (cuda and emulate)
 *      program.cpu     the same for the C back end
 *      source.cuda     one CUDA translation unit per kernel entry group, see below
 *      source.cpu      C source
 *      headers.cuda    the kernel headers the sources include, a pack (below)
 *      headers.cpu
 *      cubin.sm_XX     compiled kernels, a pack named by unit, optional
 *      object.cpu      shared objects, a pack named by processor (host_cpu_key), optional; both end
 *                      with a file "sources", the key of what they were made of (bind.c)
 *      ir              the graphs as text, for `tgc dump`
 *      products        text, below: products of matrices and their tiles, for `tgc tune`
 *      launches        text, below: what each launch is made of, for `tgc dump --html`
 *      choices         the tiles that `tgc tune` chose (codegen/forms/tile_choice.c has the
 *                      grammar), optional
 *      model           JSON: the Lua files that the graph was made by, and their parameters, for
 *                      `tgc dump --html` and `tgc export` (compiler/read/source.c), optional
 *      tokenizer       tokenizer_pack's blob, optional
 *      chat            chat templates and special tokens as text (runtime/chat/chat_source.h),
 *                      optional
 *      file.NAME       of a Hugging Face folder, as it is, for `tgc export`: config.json,
 *                      tokenizer.json ...; optional
 *      consts          raw bytes of arena `const`
 *      weights         raw bytes of arena `w` (all parameters, element offsets as in the manifest)
 *
 * source.* holds units, each opened by a line `//@ unit NAME [compile MS]`.  MS is an estimate; the
 * longest units are compiled first.  Kernels of one unit are compiled together, units in parallel.
 *
 * MANIFEST, line by line (words separated by one space; strings without spaces):
 *
 *      tgc 1
 *      model NAME                      family or file name
 *      dtype f32|bf16|f16              storage of weights and activations
 *      mode infer|train|both
 *      vocab V
 *      cache f32|bf16|f16|fp8          storage of cached keys and values; absent: as dtype
 *      ctx S                           most tokens the cache holds / the longest training window
 *      batch B                         most sequences
 *      chunk T                         most tokens of one prefill call
 *      act8 1                          a CPU rounds what meets weights in blocks to 8 bits
 *      act_fp8 N                       what meets weights of fp8 is rounded to e4m3, N columns to a
 *                                      scale; 1: a token has one; absent: it is not
 *      tf32 1                          f32: a GPU multiplies tf32; absent: float32
 *      fast 1                          a sequence's bits on a GPU depend on how many others there
 *                                      are
 *      pages N                         of a paged cache, one of them nobody's; absent: it has none
 *      window W                        most tokens that any layer of it looks back; absent: all
 *      narrow_pages N                  the same of its second pool, whose layers look back less
 *                                      (rt.h)
 *      narrow_window W
 *      hidden C                        an encoder: it has program embed alone, whose vectors are so
 *                                      wide
 *      documents ID                    token that begins a document (io documents); absent: none
 *                                      does
 *      params N_TRAIN N_DECAY N_ALL    elements: trainable ones first, of them those with weight
 *                                      decay first
 *      param NAME DxDxD OFFSET trainable|frozen [BLOCKS] INIT [ARG...]     offset in elements
 *                BLOCKS: a type of ir/storage.def, of which whole blocks lie there, row by row (a
 *                frozen one of two axes or more; dtype stands before it)
 *                                      INIT: normal STD | uniform LO HI | zeros | ones | value X
 *      rates NAME RATE DECAY           of a parameter: its learning rate by the run's, its weight
 *                                      decay; 0: the run's
 *      adapters N                      each sequence has one of N adapters or none; inputs
 *                                      `adapters` of programs (f32 B*T*N: 1 where a token has it,
 *                                      else 0) say which, lines `meta adapter I NAME`, I from 1,
 *                                      what they are called
 *      matrix FIRST ROWS COLS LD       optimizer muon: a matrix that it trains, of trainable
 *                                      elements
 *      map ...                         checkpoint names, see weight_map.h
 *      meta KEY VALUE                  for people and exporters; ignored here
 *
 * PROGRAM, per target:
 *
 *      tgc-program 2
 *      arena NAME BYTES                w weights, p float32 master weights, lo gsum (below), g
 *                                      gradients, m v moments, const tables, kv cache, act
 *                                      activations and io
 *                                      host: what moves to and fro of act
 *      kernel NAME unit UNIT threads N smem BYTES args N flops F bytes Y title TEXT-TO-END-OF-LINE
 *      map N bf16|f16|tf32 ARENA+OFFSET ROWS COLS LD [box ROWS BYTES]  tensor map N of that matrix;
 *                                      maps are numbered from 0, in order.  sm_90a's copy engine
 *                                      moves boxes of it: ROWS rows of BYTES bytes (32, 64, 128);
 *                                      without `box`, rows of 128 bytes, as many as these are
 *                                      elements.  Other GPUs get zeros.  tf32: float32 in memory,
 *                                      rounded to tf32 on the way
 *      form ARCH KERNEL threads N smem N persistent | cluster N        its launch on ARCH (sm_90a),
 *                                      whose text has a branch for it: blocks that stay, at most
 *                                      one a multiprocessor; or clusters of N, which divides their
 *                                      number
 *      pdl KERNEL                      it waits for the launch before it by itself (PTX's
 *                                      griddepcontrol.wait in every block) and so may start before
 *                                      that one has ended
 *      program NAME B b T t            most sequences and tokens; shapes beyond are refused
 *      io NAME DTYPE ARENA+OFFSET SHAPE        a buffer the host reads or writes: SHAPE like B*T or
 *                                              B*320
 *      zero ARENA+OFFSET BYTES         cleared once, when the program is loaded
 *      cache ARENA+OFFSET BYTES PAGES [narrow] a layer's keys or values as pages of so many bytes;
 *                                      narrow: of the second pool (rt.h)
 *      run KERNEL grid EXPR [ARCH EXPR] args REF...    REF: rt | ARENA+OFFSET | map:N; every
 *                                                      argument is an
 *                                      address, but a tensor map is given by value, in all runs of
 *                                      KERNEL or in none. ARCH: the grid there, for kernels with
 *                                      such a form
 *      move out|in act+OFFSET host+OFFSET BYTES BEGIN END              a copy to arena host (pinned
 *                                      memory of the host), or from it, beside the runs: it begins
 *                                      before run BEGIN and is done before run END
 *      end
 *
 * EXPR is a product of factors, each an integer, B, T, ceil(PRODUCT/INT), or a sum of products in
 * parentheses: `ceil(B*T/64)*12`, `12*(ceil(T/64)+B)`.  Grid 0 means nothing to do.  On `cpu` grid
 * is absent from meaning: the entry point loops over its own tiles.
 *
 * Program names: prefill (logits of the last token), prefill_long (the same for more tokens than
 * that takes, may be absent), decode (T=1), decode4... (other batch sizes), mixed (prefill and
 * decode in one call, may be absent; `sampled` (B) names the tokens that logits and next are
 * of), score (logits of every token), step (forward, backward: gradients into g), update (clip,
 * AdamW), eval (loss only), add_grads. Of an encoder: embed, B = 1, whose T tokens are texts one
 * after the other, each a document.
 * With an arena ema (float32, of the trainable parameters) update also makes their average
 * (rt->ema_weight), and ema_swap exchanges the two.
 * Instead of p there may be lo, 2 bytes for each trainable parameter: the bits of its float32
 * master weight are those of the bf16 in w, times 65536, plus lo as a signed number; w is the
 * nearest bf16, ties away from zero. Gradients are float32, but where there is an arena gsum, which
 * has 4 bytes for each of the first n parameters: theirs are bf16 in g.  When a step has several
 * micro-steps (else kernels get a null address for gsum), add_grads runs after each of them and
 * adds these gradients up in gsum, in float32, where update then reads them. io names: ids targets
 * (i32 B*T), documents (i32 B*T*2: where that of each token of its row begins and ends, 0 <= begin
 * <= t < end <= T), hidden (B*T*C, of embed), logits (f32 B*V or B*T*V), next (i32 B), slots and
 * drawn (i32: rt.h's slots of all sequences of the plan, and RtDrawn's, RT_DRAWN of each), loss
 * aux_loss (f32 1), nll (f32 B*T), grad_norm (f32 1), bad (i32 1: was the update skipped?).  A
 * session refuses a program that names others, or an input of another size.  ids and next may be
 * one buffer; else the runtime copies next to ids between decode steps.  The decode program moves
 * pos on the device; prefill and score leave it to the host.  loss, aux_loss and ce are means over
 * the call's own counted targets, not yet weighted by rt->share, gradients are.
 *
 * PRODUCTS, of program.cuda:
 *
 *      tgc-products 1
 *      compiled dtype D opt L infer 0|1 train 0|1 batch B ctx S chunk T block T recompute 0|1|2
 *              [tf32 1] [cache D] [act8 1] [act_fp8 N] [fast 1] [offload 1]
 *                                                      on one line; chunk 0: chosen
 *      product KEY has TILE/PARTS [TILE/PARTS] or TILE/PARTS...        the kernels' tile and parts
 *                                                                      of K, elsewhere
 *                                      [and on sm_90a]; what may be as fast, best first.  Tiles
 *                                      that sm_90a has alone begin with S
 *      run PROGRAM N KEY               its launch number N, from 0, is of such a product (KEYs that
 *                                      have no line of their own share launches with others)
 *
 * LAUNCHES, of both targets:
 *
 *      tgc-launches 1
 *      program cuda|cpu NAME
 *      launch KERNEL                   in order, one for each `run` of that program
 *      piece GROUP THREADS FLOPS BYTES GRID TITLE      a launch has several where small ones were
 *                                                      merged; GROUP:
 *                                      nodes marked !GROUP in `ir`, 0: none
 *      read|write KIND BYTES NAME      a buffer of that piece; KIND: value parameter gradient cache
 *                                      constant scratch kept arena
 *
 * Entry points:  CUDA  extern "C" __global__ void k3(const Rt *rt, T *a1, const __grid_constant__
 * TmaMap a2, ...)
 *                C     void k3(const Rt *rt, void *const *arg)       arg[0] is the first REF (rt
 *                                                                    itself)
 * In both, `args N` counts rt, which is always first.  The C unit is called
 * with one thread and forks its own OpenMP team.  Beside k3 there is k3_part, one thread's share of
 * it, and in the object tgc_replay, which runs a list of those (kernels/cpu/cpu_team.h). */
#ifndef TGC_PLAN_H
#define TGC_PLAN_H

#include <stddef.h>
#include <stdint.h>
#include "../util/err.h"

/* ---- container (plan.c) ---- */

enum { PLAN_MAX_SECTIONS = 4096, PLAN_ALIGN = 4096 };

/* owned: data was copied by plan_add and is freed by plan_close. */
typedef struct Section {
        char name[32];
        const void *data;
        size_t size;
        int owned;
} Section;

typedef struct Plan {
        Section *section;
        int n_sections;
        void *map; /* the mapped file, or NULL for a plan in memory */
        size_t map_size;
} Plan;

/* Map a plan and verify every section's hash, large ones in several threads.
 * Unknown sections are kept and ignored.  On failure *p is empty. */
int plan_open(Plan *p, const char *path, Err *e);
/* The same with the file read into memory: whatever happens to it later changes nothing. 
 * plan_drop_copy gives the memory of a section back that such a plan no longer needs. */
int plan_open_copy(Plan *p, const char *path, Err *e);
void plan_drop_copy(Plan *p, const char *name);
/* The same over bytes the caller keeps alive until plan_close. */
int plan_open_memory(Plan *p, const void *data, size_t size, Err *e);
const Section *plan_find(const Plan *p, const char *name); /* NULL: absent */
/* Add a section to a plan that starts as `Plan p = {0}`, replacing one of that
 * name.  data is copied unless it is "weights" (kept by reference). */
int plan_add(Plan *p, const char *name, const void *data, size_t size, Err *e);
void plan_remove(Plan *p, const char *name);
int plan_write(const Plan *p, const char *path, Err *e); /* atomic; same sections, same bytes */
void plan_close(Plan *p);

/* ---- packs and units (pack.c) ----
 * A pack is a list of named files in one section (headers.*, cubin.*, object.cpu):
 * `//@ file NAME SIZE`, newline, SIZE bytes, newline, and so on. */

typedef struct PackFile {
        char name[96];
        const char *data;
        size_t size;
        int compile_ms; /* of units: an estimate, 0 if none is given */
} PackFile;

typedef struct Pack {
        PackFile *file;
        int n;
        char *text;
} Pack;

/* Both copy: data is 64-byte aligned and ends with a zero byte that size does not
 * count, names are plain (no slash, no leading dot).  what names the section in messages. */
int pack_read(Pack *k, const void *data, size_t size, const char *what, Err *e);
/* source.*: one PackFile per `//@ unit NAME [compile MS]`, text without that line. */
int pack_units(Pack *k, const void *data, size_t size, const char *what, Err *e);
/* Write a pack; *blob is malloc'd. */
int pack_write(const PackFile *file, int n, void **blob, size_t *size, Err *e);
/* Every `together` neighbours as one, in place: only for what pack_units has read. */
void pack_join(Pack *k, int together);
void pack_free(Pack *k);

/* ---- bind.c: packs of compiled code ----
 * target: whose source and headers they are of; flag: what else decides the bits,
 * NULL-terminated. */
int code_pack(const Plan *p, const char *target, const char *const *flag, const PackFile *file,
              int n, void **blob, size_t *size, Err *e);
/* TGC_BAD_FILE: damaged, or made of other sources. */
int code_unpack(Pack *k, const Plan *p, const Section *s, const char *target,
                const char *const *flag, Err *e);

#endif
