/* schedule.c: the learning rate.  Linear rise over warmup steps, then constant, or
 * a cosine that reaches min_lr at decay_steps and stays there. */
#include <math.h>
#include "work.h"

double schedule_lr(const Schedule *s, int64_t step)
{
        static const double PI = 3.14159265358979323846;
        if (step < s->warmup)
                return s->lr * (double)(step + 1) / (double)s->warmup;
        if (!s->decay)
                return s->lr;
        if (step >= s->decay_steps)
                return s->min_lr;
        double part = (double)(step - s->warmup) / (double)(s->decay_steps - s->warmup);
        return s->min_lr + 0.5 * (1 + cos(PI * part)) * (s->lr - s->min_lr);
}
