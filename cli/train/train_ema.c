/* train_ema.c: --ema: an average of the weights.  Validation uses it, and the run's output is made
 * of it; --ema_use restricts it to one of the two.
 *
 * After step 1 the average is the weights themselves, as in torch.optim.swa_utils.AveragedModel.  A
 * step that changed nothing is not counted.  The average lies in the arena `ema`.  While it is in
 * use it is exchanged with the weights, which loses no bit of either. */
#include <stdlib.h>
#include "train.h"

/* in the order of --ema_use */
enum { USE_BOTH, USE_EVAL, USE_EXPORT };

double ema_weight(const Train *t, int64_t step)
{
        const double decay = opt_num(t->a, O_EMA);
        return decay <= 0 ? 0 : step == 0 ? 1 : 1 - decay;
}

bool ema_for(const Train *t, EmaUse what)
{
        const int use = opt_int(t->a, O_EMA_USE);
        return opt_num(t->a, O_EMA) > 0 &&
               (use == USE_BOTH || (use == USE_EVAL) == (what == EMA_EVAL));
}

int ema_swap(Train *t, EmaUse what, Err *e)
{
        return ema_for(t, what) ? session_run(t->s, "ema_swap", 1, 1, e) : TGC_OK;
}

/* Before the first step it is the weights. */
int ema_open(Train *t, Err *e)
{
        const Manifest *m = session_manifest(t->s);
        int code = TGC_OK;
        if (opt_num(t->a, O_EMA) <= 0)
                return TGC_OK;
        if (!session_has_part(t->s, PART_EMA))
                return err_set(e, TGC_USAGE,
                               "--ema has no effect: %s keeps no average of its weights, as it was "
                               "compiled without; train the model itself with --ema",
                               t->a->pos[0]);
        for (int i = 0; i < m->n_params && !code && !opt_flag(t->a, O_RESUME); i++) {
                const Param *p = &m->param[i];
                float *x = p->trainable ? malloc(p->count * sizeof *x) : NULL;
                if (!p->trainable)
                        continue;
                code = x ? session_param_get(t->s, i, x, e)
                         : err_set(e, TGC_NO_MEMORY, "no memory for the average of %.60s", p->name);
                if (!code)
                        code = session_part_write(t->s, PART_EMA, i, x, e);
                free(x);
        }
        return code;
}
