/* SPDX-License-Identifier: Apache-2.0 */
#include "watch/speed.h"

#include <math.h>

void speed_init(struct speed *s, double ceiling) { *s = (struct speed){.ceiling = ceiling}; }

static double share(const struct speed *s, double flops, double seconds)
{
    if (isnan(s->ceiling)) return NAN;
    double of = seconds > 0 && s->ceiling > 0 ? flops / seconds / s->ceiling : 0;
    return of < 1 ? of : 1; /* the last bit of a division */
}

double speed_step(struct speed *s, double flops, int64_t tokens, double step_s)
{
    if (step_s > 0 && flops / step_s > s->ceiling) {
        s->raised |= flops / step_s > 1.05 * s->ceiling;
        s->ceiling = flops / step_s;
    }
    s->all_s += step_s;
    s->all_tokens += tokens;
    s->s += step_s;
    s->flops += flops;
    s->tokens += tokens;
    return share(s, flops, step_s);
}

static double rate(const struct speed *s, int64_t tokens, double seconds)
{
    return isnan(s->ceiling) ? NAN : seconds > 0 ? (double)tokens / seconds : 0;
}

double speed_all(const struct speed *s) { return rate(s, s->all_tokens, s->all_s); }

void speed_mean(struct speed *s, double *tokens_per_s, double *mfu)
{
    *tokens_per_s = rate(s, s->tokens, s->s);
    *mfu = share(s, s->flops, s->s);
    s->s = s->flops = 0;
    s->tokens = 0;
}
