/* program.h: what all programs of one target share, and the writer of one. */
#ifndef TGC_CODEGEN_PROGRAM_H
#define TGC_CODEGEN_PROGRAM_H

#include "../codegen.h"

enum { MAX_KEEP = 64, MAX_STATE = 2048 };

typedef struct ParamPlace {
        const char *name;
        int64_t offset, count;
} ParamPlace; /* elements */

typedef struct Shared {
        Arena *arena;
        const ParamPlace *param;
        int n_params, *by_name; /* by_name: see param_place */
        int64_t n_train, n_decay, n_all;
        int64_t n_low; /* of them, the first: gradients in bf16 */
        int64_t batch;
        int64_t cache_rows; /* tokens that a paged cache has room for; 0: it has no pages */
        bool merge;         /* small launches of a training step, see schedule.c */
        int64_t act_bytes, kv_bytes, keep_bytes; /* arena sizes so far */
        struct {
                const char *name;
                int64_t offset, bytes;
        } keep[MAX_KEEP];
        int n_keep;
        struct {
                const char *name;
                int64_t offset;
        } state[MAX_STATE];
        int n_state;
        Text consts;      /* bytes of arena const */
        const char **map; /* tensor maps: the ends of their lines, by number */
        int n_map, cap_map, *by_line;
        unsigned cap_by_line;
} Shared;

/* after the last one is there; NULL: none */
const ParamPlace *param_place(Shared *sh, const char *name);
/* g is fused.  B, T: most sequences and tokens.  memory gets the plan as a table, products the
 * launches of products (products_run); both may be NULL. */
void program_emit(Module *m, Graph *g, Shared *sh, const char *name, int B, int T, Text *out,
                  Text *products, Text *memory);
void program_update(Module *m, Shared *sh, DType dt, Text *out);

#endif
