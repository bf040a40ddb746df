/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset_weights.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "remote/remote.h"

enum { STAIRS = 256, MOST_NODES = 1 << 24 };

/* A source's weight at a step, which may lie between two. */
static double weight_at(const struct dataset_source *s, bool ramps, double step)
{
    if (!s->n_points) return s->weight;
    int i = 0;
    while (i + 1 < s->n_points && (double)s->points[i + 1].step <= step) i++;
    const struct dataset_point *p = &s->points[i];
    if (!ramps || step <= (double)p->step || i + 1 == s->n_points) return p->weight;
    double part = (step - (double)p->step) / (double)(p[1].step - p->step);
    return p->weight + part * (p[1].weight - p->weight);
}

/* path: what may be said of the source's. */
static int check_points(const struct dataset_source *s, const char *path, struct err *e)
{
    bool used = false;
    for (int i = 0; i < s->n_points; i++) {
        const struct dataset_point *p = &s->points[i];
        if (!(p->weight >= 0) || !isfinite(p->weight))
            return err_set(e, ERR_REQUEST, "%s: weight %g from step %lld; wanted a number >= 0", path, p->weight,
                           (long long)p->step);
        if (p->step < 0 || (i && p->step <= p[-1].step))
            return err_set(e, ERR_REQUEST, "%s: a weight from step %lld %s; steps rise from 0", path,
                           (long long)p->step, i ? "after one from a later step, or the same" : "on");
        used |= p->weight > 0;
    }
    if (used) return OK;
    return err_set(e, ERR_REQUEST, "%s: its weight is 0 at all steps, so it would never be used; leave it out", path);
}

static int check_weight(const struct dataset_source *s, const char *path, struct err *e)
{
    if (s->n_points) return check_points(s, path, e);
    if (s->weight > 0 && isfinite(s->weight)) return OK;
    return err_set(e, ERR_REQUEST, "%s: weight %g; wanted a number above 0", path, s->weight);
}

int weights_check(const struct dataset_options *o, struct err *e)
{
    int code = OK;
    for (int i = 0; i < o->n_sources && !code; i++) {
        const struct dataset_source *s = &o->sources[i];
        char *path = remote_hidden(s->path);
        code = check_weight(s, path, e);
        xfree(path);
        CHECK(code || !s->n_points || o->global_batch > 0, "weights by step, and no size of a step");
    }
    return code;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Steps at which the weights change, the first 0, rising, and how many; room for one per point and one more. */
static int steps_of(const struct dataset_options *o, int64_t *steps)
{
    int n = 1, kept = 1;
    steps[0] = 0;
    for (int i = 0; i < o->n_sources; i++)
        for (int p = 0; p < o->sources[i].n_points; p++) steps[n++] = o->sources[i].points[p].step;
    qsort(steps, (size_t)n, sizeof *steps, by_value);
    for (int i = 1; i < n; i++)
        if (steps[i] > steps[kept - 1]) steps[kept++] = steps[i];
    return kept;
}

static bool same_at(const struct dataset_options *o, int64_t a, int64_t b)
{
    for (int i = 0; i < o->n_sources; i++)
        if (weight_at(&o->sources[i], o->ramps, (double)a) != weight_at(&o->sources[i], o->ramps, (double)b))
            return false;
    return true;
}

struct phases {
    int64_t *from; /* groups */
    double *weights;
    int64_t n, from_room, weights_n, weights_room;
};

/* What is too light for the fixed point of a blend would be left out in silence. */
static int check_light(const struct dataset_options *o, const double *weights, double sum, int64_t step, struct err *e)
{
    int i = 0;
    while (i < o->n_sources && (weights[i] == 0 || weights[i] / sum >= BLEND_LEAST)) i++;
    if (i == o->n_sources) return OK;
    char *path = remote_hidden(o->sources[i].path);
    int code = err_set(e, ERR_REQUEST,
                       "%s: weight %g of %g at step %lld: less than one sample in %.0g would be of it; choose a "
                       "heavier one, or leave it out",
                       path, weights[i], sum, (long long)step, 1 / BLEND_LEAST);
    xfree(path);
    return code;
}

/* Steps [lo, hi) with the weights of their middle; hi -1: all steps from lo on. */
static int add_phase(struct phases *x, const struct dataset_options *o, int64_t lo, int64_t hi, struct err *e)
{
    double middle = hi < 0 ? (double)lo : ((double)lo + (double)hi - 1) / 2, sum = 0;
    int64_t per_step = o->global_batch ? o->global_batch * (o->parts ? o->parts : 1) / (o->group ? o->group : 1) : 1;
    if (lo > INT64_MAX / 4 / per_step)
        return err_set(e, ERR_REQUEST, "a weight from step %lld on: no run has so many", (long long)lo);
    GROW(x->from, x->n, x->from_room, 1);
    x->from[x->n++] = lo * per_step;
    GROW(x->weights, x->weights_n, x->weights_room, o->n_sources);
    for (int i = 0; i < o->n_sources; i++)
        sum += x->weights[x->weights_n++] = weight_at(&o->sources[i], o->ramps, middle);
    if (x->weights_n > MOST_NODES)
        return err_set(e, ERR_REQUEST, "weights of %d sources change at more than %lld steps; name fewer points",
                       o->n_sources, (long long)x->n);
    if (!(sum > 0) || !isfinite(sum))
        return err_set(e, ERR_REQUEST,
                       "the weights of the data add up to %g at step %lld; give one of them a weight above 0 there",
                       sum, (long long)lo);
    return check_light(o, &x->weights[x->weights_n - o->n_sources], sum, lo, e);
}

int weights_blend(struct blend *b, const struct dataset_options *o, struct err *e)
{
    int n = 1, code = OK;
    for (int i = 0; i < o->n_sources; i++) n += o->sources[i].n_points;
    int64_t *steps = xmalloc((size_t)n * sizeof *steps);
    struct phases x = {0};
    n = steps_of(o, steps);
    for (int i = 0; i < n && !code; i++) {
        int64_t lo = steps[i], all = i + 1 < n ? steps[i + 1] - lo : 0, stairs = 1;
        if (all && o->ramps && !same_at(o, lo, steps[i + 1])) stairs = all < STAIRS ? all : STAIRS;
        for (int64_t k = 0; k < stairs && !code; k++)
            code = add_phase(&x, o, lo + (int64_t)((__int128)all * k / stairs),
                             !all || stairs == 1 ? -1 : lo + (int64_t)((__int128)all * (k + 1) / stairs), e);
    }
    if (!code) blend_init(b, x.weights, o->n_sources, x.from, to_int(x.n));
    xfree(x.from);
    xfree(x.weights);
    xfree(steps);
    return code;
}
