/* SPDX-License-Identifier: Apache-2.0 */
#include "learn/policy.h"

#include <math.h>

static double deviation(const double *x, int64_t n, double *mean)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    return n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
}

static bool all_alike(const double *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (x[i] < x[0] || x[i] > x[0]) return false;
    return true;
}

void policy_advantages(const struct policy_rules *r, const double *reward, int64_t n, int64_t group, double *advantage)
{
    for (int64_t g = 0; g < n; g += group) {
        double mean, std = deviation(reward + g, group, &mean);
        bool same = all_alike(reward + g, group); /* the mean of equal numbers need not be that number */
        for (int64_t i = g; i < g + group; i++)
            advantage[i] = same ? 0 : (reward[i] - mean) / (r->plain_advantage ? 1 : std + 1e-4);
    }
}

double policy_token(const struct policy_rules *r, const struct policy_token *t, struct policy_sums *s)
{
    double ratio = exp(t->old - t->now), a = t->advantage, kl = 0, factor = 0;
    double held = ratio < 1 - r->low ? 1 - r->low : ratio > 1 + r->high ? 1 + r->high : ratio;
    bool clipped = ratio * a > held * a;
    if (!clipped) factor = ratio * a;
    if (r->beta > 0) {
        double d = t->now - t->ref;
        kl = expm1(d) - d;
        factor += r->beta * expm1(d);
    }
    s->loss += t->weight * (-(clipped ? held : ratio) * a + r->beta * kl);
    s->kl += kl;
    s->tokens++;
    s->clipped += clipped;
    return t->weight * factor;
}
