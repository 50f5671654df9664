/* optimizer.h: the rules of optimizers.def, and what each computes, in double. */
#ifndef TGC_OPTIMIZER_H
#define TGC_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define OPTIMIZER(id, name, states, kernel, rule, beta1, beta2, eps, text) OPTIMIZER_##id,
#include "optimizers.def"
#undef OPTIMIZER
        N_OPTIMIZERS
} Optimizer;

/* What training keeps of parameters of 16 bits: float32 beside them, or nothing, so that each step
 * rounds them, to nearest or by chance. */
typedef enum { MASTERS_F32, MASTERS_NONE, MASTERS_STOCHASTIC } Masters;

enum { MAX_OPTIMIZER_STATES = 2 };

typedef struct OptimizerInfo {
        const char *name;
        int states;
        const char *kernel, *rule;
        double beta1, beta2, eps; /* defaults; below 0: none */
        const char *text;
} OptimizerInfo;

extern const OptimizerInfo optimizer_info[N_OPTIMIZERS];

Optimizer optimizer_find(const char *name); /* N_OPTIMIZERS: there is none of that name */

/* States of 8 bits are of blocks of so many elements, which no two parameters share; those of
 * parameters of fewer than OPTIMIZER_SMALL elements are float32, block after block. */
enum { OPTIMIZER_BLOCK = 256, OPTIMIZER_SMALL = 4096 };

/* What one step's elements share.  bias1, bias2: 1 - beta^(step + 1). */
typedef struct OptimizerStep {
        double lr, beta1, beta2, eps, weight_decay, bias1, bias2;
} OptimizerStep;

/* One element: parameter p, clipped gradient g, states s; decays: it has weight decay. */
void optimizer_step(Optimizer o, const OptimizerStep *c, double *p, double g, double *s,
                    bool decays);

/* Muon's step of a matrix whose rows are ld apart: p, gradients g, momentum m. */
enum { MUON_STEPS = 5 };
void muon_step(const OptimizerStep *c, double *p, const double *g, double *m, int64_t rows,
               int64_t cols, int64_t ld, bool decays);

#endif
