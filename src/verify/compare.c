/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over the parameters for each kind of number. */
#include "verify/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static double norm_of(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * x[i];
    return sqrt(s);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(s);
}

static void worse(struct difference *d, double error, const char *what, const char *name)
{
    if (!isnan(error) && !(error > d->error)) return;
    if (isnan(d->error)) return;
    d->error = error;
    snprintf(d->what, sizeof d->what, "%s of %s", what, name);
}

/* Something is rounded to fewer bits than fp32. */
static bool chance(double bound) { return bound > 1e-3; }

/* The part of an error along something, to - from (NULL: zeros), beside what chance makes of it (compare.h); both
 * relative to `scale`. */
struct leaning {
    const float *got, *want, *to, *from;
    int64_t n;
    double scale, bound, chances; /* bounds.h */
};
static double lean_of(const struct leaning *l)
{
    double along = 0, d2 = 0, d4 = 0, r = fmax(distance(l->got, l->want, l->n) / l->scale, l->bound / 4);
    for (int64_t i = 0; i < l->n; i++) {
        double d = (double)l->to[i] - (l->from ? (double)l->from[i] : 0);
        along += ((double)l->got[i] - (double)l->want[i]) * d;
        d2 += d * d;
        d4 += d * d * d * d;
    }
    if (!(d4 > 0)) return 0;
    double n = fmin(d2 * d2 / d4, l->chances);
    return fabs(along) / sqrt(d2) / l->scale / (r * r + LEAN_MOST * r / sqrt(n));
}

/* Gradients that are rounding, or may be: Adam makes full steps of those. */
static bool is_rounding(const struct param *p, double own, double global, bool rough)
{
    return own <= 1e-6 * global || (rough && p->init == INIT_ZEROS);
}

static double relative(double got, double want) { return fabs(got - want) / fmax(fabs(want), 1e-30); }

/* An array and where it began; NULL: at zeros. */
struct moved {
    const char *title;
    const float *want, *got, *from;
    double stored; /* half a unit in the last place of what it is kept in, for all steps together */
};

static double moved_by(const float *x, const float *from, int64_t n)
{
    return from ? distance(x, from, n) : norm_of(x, n);
}

/* How far parameter i moved, or a hundredth of how far as many numbers of `all` did on average. */
static double move_of(const struct param_table *p, int i, const float *x, const float *from, double all)
{
    int64_t o = p->p[i].offset, n = p->p[i].numel;
    double share = 1e-2 * all * sqrt((double)n / (double)p->numel), own = moved_by(x + o, from ? from + o : NULL, n);
    return fmax(fmax(own, share), 1e-30);
}

static void compare_moved(struct differences *d, const struct param_table *p, const struct moved *m,
                          const struct outcome *want, bool rough)
{
    double global = norm_of(want->grad, p->numel), all = moved_by(m->want, m->from, p->numel);
    for (int i = 0; i < p->n; i++) {
        int64_t o = p->p[i].offset, n = p->p[i].numel;
        double off = distance(m->got + o, m->want + o, n) - m->stored * norm_of(m->want + o, n);
        if (is_rounding(&p->p[i], norm_of(want->grad + o, n), global, rough)) continue;
        if (!(off <= 0)) worse(&d->step, off / move_of(p, i, m->want, m->from, all), m->title, p->p[i].name);
    }
}

/* Steps are too long or too short by chance alone, and lean on the weights as little, which decay multiplies. */
static void compare_leaning(struct differences *d, const struct param_table *p, const struct outcome *want,
                            const struct outcome *got, const struct bounds *b)
{
    double global = norm_of(want->grad, p->numel), all = moved_by(want->value, want->began, p->numel);
    if (!chance(b->step)) return;
    for (int i = 0; i < p->n; i++) {
        int64_t o = p->p[i].offset, n = p->p[i].numel;
        double scale = move_of(p, i, want->value, want->began, all);
        const float *x = got->value + o, *y = want->value + o, *z = want->began + o;
        const struct leaning own = {x, y, y, z, n, scale, b->step, b->chances},
                             weights = {x, y, z, NULL, n, scale, b->step, b->chances};
        if (is_rounding(&p->p[i], norm_of(want->grad + o, n), global, bounds_rough(b))) continue;
        worse(&d->lean, lean_of(&own), "lean of step", p->p[i].name);
        worse(&d->lean, lean_of(&weights), "lean towards weights", p->p[i].name);
    }
}

/* What steps made: values, the arrays that have a number for each element, the average. */
static void compare_steps(struct differences *d, const struct param_table *p, const struct outcome *want,
                          const struct outcome *got, bool rough, int n_steps)
{
    struct moved m = {"step", want->value, got->value, want->began, n_steps * want->stored};
    compare_moved(d, p, &m, want, rough);
    for (int k = 0; k < want->moments; k++) {
        const struct array_row *r = &want->row[k];
        int64_t at = (1 + k) * want->numel;
        if (r->block != ARRAY_ELEMENT || (r->dtype != DT_F32 && r->dtype != DT_BF16))
            continue; /* codes: the next step */
        m = (struct moved){r->name, want->value + at, got->value + at, r->averages ? want->began : NULL,
                           n_steps * (r->dtype == DT_BF16 ? 0x1p-8 : 0x1p-23)};
        compare_moved(d, p, &m, want, rough);
    }
}

/* What every rank of a layout that ran does, and ranks that hold the same have. */
static void compare_course(struct differences *d, const struct param_table *p, const struct outcome *want,
                           const struct outcome *got, int n_steps)
{
    char *out = d->missing;
    const size_t n = sizeof d->missing;
    bool apart = memcmp(got->began, want->began, to_size(p->numel) * sizeof(float)) != 0;
    if (apart) snprintf(out, n, "it began with other values than one rank");
    for (int s = n_steps - 1; s >= 0; s--)
        if (got->skipped[s] != want->skipped[s])
            snprintf(out, n, "step %d was %s, and by one rank not", s + 1, got->skipped[s] ? "left out" : "taken");
    if (got->eval_tokens != want->eval_tokens)
        snprintf(out, n, "evaluated over %lld tokens, and by one rank over %lld", (long long)got->eval_tokens,
                 (long long)want->eval_tokens);
    if (got->differ) snprintf(out, n, "replicas: %.140s", got->replicas);
    if (got->ran < n_steps) snprintf(out, n, "it made %d steps of %d", got->ran, n_steps);
}

void outcomes_compare(struct differences *d, const struct param_table *p, const struct outcome *want,
                      const struct outcome *got, const struct bounds *b, int n_steps)
{
    double global = norm_of(want->grad, p->numel);
    bool rough = bounds_rough(b);
    *d = (struct differences){.lean.bound = 1,
                              .gradient.bound = b->gradient,
                              .value.bound = b->value,
                              .step.bound = b->step};
    for (int i = 0; i < p->n; i++) {
        int64_t o = p->p[i].offset, n = p->p[i].numel;
        double own = norm_of(want->grad + o, n), values = norm_of(want->value + o, n);
        double scale = fmax(fmax(own, 1e-2 * global), 1e-30);
        worse(&d->gradient, distance(got->grad + o, want->grad + o, n) / scale, "gradient", p->p[i].name);
        const struct leaning along = {got->grad + o, want->grad + o, want->grad + o, NULL, n,
                                      scale,         b->gradient,    b->chances};
        if (chance(b->gradient)) worse(&d->lean, lean_of(&along), "lean of gradient", p->p[i].name);
        if (!is_rounding(&p->p[i], own, global, rough))
            worse(&d->value, distance(got->value + o, want->value + o, n) / fmax(values, 1e-30), "value", p->p[i].name);
    }
    const struct leaning along = {got->grad, want->grad,          want->grad,  NULL,
                                  p->numel,  fmax(global, 1e-30), b->gradient, b->chances};
    if (chance(b->gradient)) worse(&d->lean, lean_of(&along), "lean of gradient", "all");
    compare_steps(d, p, want, got, rough, n_steps);
    compare_leaning(d, p, want, got, b);
    compare_course(d, p, want, got, n_steps);
    size_t bytes = to_size(p->numel) * sizeof(float), losses = (size_t)n_steps * sizeof(double);
    d->same_bits = !memcmp(got->grad, want->grad, bytes) && !memcmp(got->value, want->value, bytes) &&
                   !memcmp(got->loss, want->loss, losses);
    d->bits = hash64(got->grad, bytes) * 31 + hash64(got->value, bytes) * 7 + hash64(got->loss, losses);
    for (int s = 0; s < n_steps; s++) {
        if (want->skipped[s]) continue; /* not finite, in every layout */
        d->loss = larger(d->loss, relative(got->loss[s], want->loss[s]));
        d->norm = larger(d->norm, relative(got->norm[s], want->norm[s]));
    }
    d->eval = relative(got->eval_loss, want->eval_loss);
}

double outcomes_compare_next(const struct param_table *p, const struct outcome *want, const struct outcome *got,
                             const struct bounds *b, int n_steps)
{
    double global = norm_of(want->grad, p->numel), worst = relative(got->loss[n_steps], want->loss[n_steps]);
    if (got->skipped[n_steps] != want->skipped[n_steps] || got->ran <= n_steps) return INFINITY;
    for (int i = 0; i < p->n; i++) {
        int64_t o = p->p[i].offset, n = p->p[i].numel;
        if (is_rounding(&p->p[i], norm_of(want->grad + o, n), global, bounds_rough(b))) continue;
        worst = larger(worst, distance(got->next + o, want->next + o, n) / fmax(norm_of(want->next + o, n), 1e-30));
    }
    return worst;
}

const struct difference *differences_worst(const struct differences *d)
{
    double gradient = d->gradient.error / d->gradient.bound;
    return isnan(gradient) || gradient > d->value.error / d->value.bound ? &d->gradient : &d->value;
}

bool differences_within(const struct differences *d, const struct bounds *b)
{
    return !d->missing[0] && d->gradient.error <= b->gradient && d->value.error <= b->value && d->lean.error <= 1 &&
           d->step.error <= b->step && d->loss <= b->totals && d->norm <= b->totals && d->eval <= b->totals;
}
