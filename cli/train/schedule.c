/* schedule.c: the learning rate of a step.  It rises linearly over the warm-up steps.  Then it is
 * constant, or falls to min_lr at decay_steps and stays there.  It falls along half a cosine, along
 * a line, or (WSD: warm-up, stable, decay) along a line over the last `cooldown` steps. */
#include <math.h>
#include "state.h"

double schedule_lr(const Schedule *s, int64_t step)
{
        static const double PI = 3.14159265358979323846;
        int64_t begin = s->warmup; /* of the fall */
        if (step < s->warmup)
                return s->lr * (double)(step + 1) / (double)s->warmup;
        if (!s->decay || s->kind == SCHEDULE_CONSTANT)
                return s->lr;
        if (step >= s->decay_steps)
                return s->min_lr;
        if (s->kind == SCHEDULE_WSD && s->decay_steps - s->cooldown > begin)
                begin = s->decay_steps - s->cooldown;
        if (step < begin)
                return s->lr;
        double part = (double)(step - begin) / (double)(s->decay_steps - begin);
        double left = s->kind == SCHEDULE_COSINE ? 0.5 * (1 + cos(PI * part)) : 1 - part;
        return s->min_lr + left * (s->lr - s->min_lr);
}
