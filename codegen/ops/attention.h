/* attention.h: shared by the files that emit attention's kernels: attention_problem.c describes
 * what is computed, attention.c emits forward, attention_backward.c backward. */
#ifndef TGC_OPS_ATTENTION_H
#define TGC_OPS_ATTENTION_H

#include "ops.h"

/* ---- attention_problem.c ---- */

/* A row of attention_tiles.def. */
typedef struct AttRow {
        const char *name, *kind, *cls;
        int maxd, bm, bn, sub, cols, threads, minb;
} AttRow;
extern const AttRow att_row[];
int att_row_for(const char *kind, const char *cls, int D); /* or -1 */
int att_smem(int row, int D);
const char *att_tile_text(Emit *e, int row);

/* A tensor's text, its strides, and to how many elements it is aligned. */
typedef struct Operand {
        const char *arg, *b, *t, *h;
        int64_t align;
        DType dt;
} Operand;
Operand att_operand(Emit *e, Build *b, Ref r);

typedef struct Att {
        Emit *e;
        const Group *gr;
        const Node *n;
        int64_t H, K, D;
        bool cached, grad, mma;
        bool paged, ragged; /* as Emit says, of cached keys and values */
        bool mixed; /* AttBase's: ragged, the sequences behind those that decode; else these */
        int pool;   /* of their pages */
        bool fp8;   /* they are of 8 bits; dt: what attention computes with */
        int vec;
        DType dt;
        const char *cls; /* of attention_tiles.def, as AttPath says */
} Att;
Att att_of(Emit *e, const Group *gr);
/* \1_att and `in`; lse: its C text, for C alone. */
void att_describe(Att *t, Build *b, const char *lse);
double att_flops(Att *t, double products);
double att_bytes(Att *t, int64_t q_like, int64_t kv_like);
void att_cpu_loop(Build *b, const char *tiles, const char *heads, const char *task);
/* Short sequences of float32, whose kernels are attention_short.cuh's. */
bool att_is_short(Att *t);
int att_short_bytes(int64_t D, bool grad);
Grid att_short_grid(Att *t);

/* ---- attention_backward.c ---- */

void att_backward(Emit *e, const Group *gr);

#endif
