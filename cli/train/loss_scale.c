/* loss_scale.c: scales the loss when gradients are f16.  Unscaled, small gradients would be 0 in 16
 * bits.  The scale grows until a gradient is infinite; that step is skipped. */
#include <math.h>
#include "state.h"

void loss_scale_step(LossScale *s, bool bad, int64_t window)
{
        s->skipped += bad;
        if (!window)
                return;
        if (bad) {
                s->scale *= 0.5;
                s->good = 0;
        } else if (++s->good == window) {
                s->scale *= isfinite(2 * s->scale) ? 2 : 1;
                s->good = 0;
        }
}
