/* SPDX-License-Identifier: Apache-2.0 */
/* Learning-rate schedules as a pure function of the step. WSD: warm-up, stable, linear decay over the last
 * decay_steps (Hu et al., "MiniCPM", 2024). */
#include <math.h>

#include "optim/optim.h"

static double between(double from, double to, double x) { return from + (to - from) * x; }

double lr_at(const struct lr_config *c, int64_t step)
{
    if (step < c->warmup_steps) return c->lr * (double)(step + 1) / (double)c->warmup_steps;
    double span = (double)(c->steps - c->warmup_steps - 1);
    double x = span > 0 ? (double)(step - c->warmup_steps) / span : 1.0;
    if (x > 1) x = 1;
    switch (c->kind) {
    case LR_CONSTANT: return c->lr;
    case LR_LINEAR: return between(c->lr, c->min_lr, x);
    case LR_COSINE: return c->min_lr + 0.5 * (c->lr - c->min_lr) * (1 + cos(acos(-1.0) * x));
    case LR_WSD: {
        int64_t from = c->steps - c->decay_steps;
        if (step < from || c->decay_steps <= 0) return c->lr;
        double d = c->decay_steps > 1 ? (double)(step - from) / (double)(c->decay_steps - 1) : 1.0;
        return between(c->lr, c->min_lr, d > 1 ? 1 : d);
    }
    }
    return c->lr;
}
