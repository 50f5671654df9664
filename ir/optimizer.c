/* optimizer.c: computes the rules of optimizers.def in double. */
#include "optimizer.h"
#include <math.h>
#include <string.h>

const OptimizerInfo optimizer_info[N_OPTIMIZERS] = {
#define OPTIMIZER(id, name, states, kernel, rule, beta1, beta2, eps, text) \
        { name, states, #kernel, #rule, beta1, beta2, eps, text },
#include "optimizers.def"
#undef OPTIMIZER
};

Optimizer optimizer_find(const char *name)
{
        int i = 0;
        while (i < N_OPTIMIZERS && strcmp(optimizer_info[i].name, name))
                i++;
        return (Optimizer)i;
}

void optimizer_step(Optimizer o, const OptimizerStep *c, double *p, double g, double *s,
                    bool decays)
{
        const double keep = decays ? 1 - c->lr * c->weight_decay : 1;
        double u;
        switch (o) {
        case OPTIMIZER_ADAMW8BIT: /* before its states are rounded */
        case OPTIMIZER_ADAMW:
        case OPTIMIZER_MUON: /* what is no matrix */
                s[0] += (1 - c->beta1) * (g - s[0]);
                s[1] = c->beta2 * s[1] + (1 - c->beta2) * g * g;
                *p = keep * *p - c->lr / c->bias1 * s[0] / (sqrt(s[1]) / sqrt(c->bias2) + c->eps);
                break;
        case OPTIMIZER_LION:
                u = c->beta1 * s[0] + (1 - c->beta1) * g;
                *p = keep * *p - c->lr * (u > 0 ? 1 : u < 0 ? -1 : 0);
                s[0] = c->beta2 * s[0] + (1 - c->beta2) * g;
                break;
        case OPTIMIZER_SGD:
                s[0] = c->beta1 * s[0] + g + (decays ? c->weight_decay * *p : 0);
                *p -= c->lr * s[0];
                break;
        default: break;
        }
}
