/* SPDX-License-Identifier: Apache-2.0 */
/* The door to a device's bytes: what is enqueued on a stream, with addresses of its device. On an untouchable device (device.h) each
 * operand is translated in a copy of the call, and one that is host memory is our bug. A cpu stream runs it at once. */
#include "kernel/kernel.h"

void kernel_on(struct stream *s, const struct kernel_table *t)
{
    CHECK(t->dry == s->dev->counts_only, "kernels that %s on a device that %s", t->dry ? "count" : "run", s->dev->counts_only ? "counts" : "runs");
    s->kernels = t;
}

static void *entered(const struct stream *s, const void *p, const char *what)
{
    CHECK(!p || device_faults(p) == s->dev->untouchable, "%s was given an address of %s, on a device that %s", what,
          s->dev->untouchable ? "the host" : "a device", s->dev->untouchable ? "cannot be touched" : "can");
    return device_here(p);
}

static void enter_views(const struct stream *s, struct view *v, int n, const char *what)
{
    for (int i = 0; i < n; i++) v[i].p = entered(s, v[i].p, what);
}

static struct kernel_call entered_call(const struct stream *s, const struct kernel_call *c)
{
    struct kernel_call here = *c;
    const char *name = op_row(c->op)->name;
    enter_views(s, here.in, KERNEL_MAX_IN, name);
    enter_views(s, here.out, KERNEL_MAX_OUT, name);
    enter_views(s, here.dout, KERNEL_MAX_OUT, name);
    enter_views(s, here.din, KERNEL_MAX_IN, name);
    enter_views(s, here.acc, KERNEL_MAX_IN, name);
    here.scratch = entered(s, c->scratch, name);
    return here;
}

void kernel_enqueue(struct stream *s, struct kernel_call *c)
{
    c->team = s->team;
    if (!s->dev->untouchable) {
        kernel_run(s->kernels, c);
        return;
    }
    struct kernel_call here = entered_call(s, c);
    kernel_run(s->kernels, &here);
}

/* ---- flat operations ---- */
void flat_adamw(struct stream *s, const struct adamw_args *a)
{
    struct adamw_args b = *a;
    if (s->dev->counts_only) return;
    b.master = entered(s, a->master, "adamw");
    b.m = entered(s, a->m, "adamw");
    b.v = entered(s, a->v, "adamw");
    b.grad = entered(s, a->grad, "adamw");
    b.param = entered(s, a->param, "adamw");
    s->kernels->flat->adamw(s->team, &b);
}

void flat_sgd(struct stream *s, const struct sgd_args *a)
{
    struct sgd_args b = *a;
    if (s->dev->counts_only) return;
    b.master = entered(s, a->master, "sgd");
    b.m = entered(s, a->m, "sgd");
    b.grad = entered(s, a->grad, "sgd");
    b.param = entered(s, a->param, "sgd");
    s->kernels->flat->sgd(s->team, &b);
}

void flat_sum_squares(struct stream *s, const float *x, int64_t n, double *sum)
{
    if (s->dev->counts_only) return;
    s->kernels->flat->sum_squares(s->team, entered(s, x, "sum of squares"), n, entered(s, sum, "sum of squares"));
}

double flat_sum_squares_now(struct stream *s, const float *x, int64_t n)
{
    double sum = 0;
    if (s->dev->counts_only) return 0;
    stream_sync(s);
    s->kernels->flat->sum_squares(s->team, entered(s, x, "sum of squares"), n, &sum);
    return sum;
}

int64_t flat_find_nonfinite(struct stream *s, const void *x, enum dtype dtype, int64_t n)
{
    if (s->dev->counts_only) return -1;
    stream_sync(s);
    return s->kernels->flat->find_nonfinite(s->team, entered(s, x, "find_nonfinite"), dtype, n);
}

void flat_cast(struct stream *s, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n)
{
    if (s->dev->counts_only) return;
    s->kernels->flat->cast(s->team, entered(s, dst, "cast"), to, entered(s, src, "cast"), from, n);
}

void flat_sum_into(struct stream *s, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add)
{
    if (s->dev->counts_only) return;
    s->kernels->flat->sum_into(s->team, entered(s, to, "sum"), t, entered(s, from, "sum"), f, n, add);
}

void flat_sum_tree(struct stream *s, float *to, const float *part, int n_parts, int64_t n)
{
    if (s->dev->counts_only) return;
    s->kernels->flat->sum_tree(s->team, entered(s, to, "sum of a tree"), entered(s, part, "sum of a tree"), n_parts, n);
}

void flat_sum_parts(struct stream *s, void *to, enum dtype t, const void *part, int n_parts, int64_t n)
{
    if (s->dev->counts_only) return;
    s->kernels->flat->sum_parts(s->team, entered(s, to, "sum of parts"), t, entered(s, part, "sum of parts"), n_parts, n);
}

void flat_squares(struct stream *s, const float *x, int64_t n, int64_t *word)
{
    if (s->dev->counts_only) return;
    s->kernels->flat->squares(s->team, entered(s, x, "squares"), n, entered(s, word, "squares"));
}
