/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels do with the addresses of an untouchable device (device.h) before they touch a byte: each operand is translated in a
 * copy of the call, and one that is host memory is our bug. A table of flat operations for each family that exists, because a flat
 * operation has no context that could say which it wraps. */
#include "kernel/kernel.h"

static void *entered(const void *p, const char *what)
{
    CHECK(!p || device_faults(p), "%s was given host memory", what);
    return device_here(p);
}

static void enter_views(struct view *v, int n, const char *what)
{
    for (int i = 0; i < n; i++) v[i].p = entered(v[i].p, what);
}

struct kernel_call kernel_entered(const struct kernel_call *c)
{
    struct kernel_call here = *c;
    const char *name = op_row(c->op)->name;
    enter_views(here.in, KERNEL_MAX_IN, name);
    enter_views(here.out, KERNEL_MAX_OUT, name);
    enter_views(here.dout, KERNEL_MAX_OUT, name);
    enter_views(here.din, KERNEL_MAX_IN, name);
    enter_views(here.acc, KERNEL_MAX_IN, name);
    here.scratch = entered(c->scratch, name);
    return here;
}

static void adamw_entered(const struct flat_ops *f, struct team *team, const struct adamw_args *a)
{
    struct adamw_args b = *a;
    b.master = entered(a->master, "adamw");
    b.m = entered(a->m, "adamw");
    b.v = entered(a->v, "adamw");
    b.grad = entered(a->grad, "adamw");
    b.param = entered(a->param, "adamw");
    f->adamw(team, &b);
}

static void sgd_entered(const struct flat_ops *f, struct team *team, const struct sgd_args *a)
{
    struct sgd_args b = *a;
    b.master = entered(a->master, "sgd");
    b.m = entered(a->m, "sgd");
    b.grad = entered(a->grad, "sgd");
    b.param = entered(a->param, "sgd");
    f->sgd(team, &b);
}

#define ENTERED(family)                                                                                              \
    static void adamw_##family(struct team *team, const struct adamw_args *a) { adamw_entered(&flat_ops_##family, team, a); } \
    static void sgd_##family(struct team *team, const struct sgd_args *a) { sgd_entered(&flat_ops_##family, team, a); }      \
    static double sum_squares_##family(struct team *team, const float *x, int64_t n)                                 \
    {                                                                                                                \
        return flat_ops_##family.sum_squares(team, entered(x, "sum of squares"), n);                                 \
    }                                                                                                                \
    static int64_t find_nonfinite_##family(struct team *team, const void *x, enum dtype t, int64_t n)                \
    {                                                                                                                \
        return flat_ops_##family.find_nonfinite(team, entered(x, "find_nonfinite"), t, n);                           \
    }                                                                                                                \
    static void cast_##family(struct team *team, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n) \
    {                                                                                                                \
        flat_ops_##family.cast(team, entered(dst, "cast"), to, entered(src, "cast"), from, n);                       \
    }                                                                                                                \
    static void sum_into_##family(struct team *team, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add) \
    {                                                                                                                \
        flat_ops_##family.sum_into(team, entered(to, "sum_into"), t, entered(from, "sum_into"), f, n, add);          \
    }                                                                                                                \
    static void sum_tree_##family(struct team *team, float *to, const float *part, int n_parts, int64_t n)           \
    {                                                                                                                \
        flat_ops_##family.sum_tree(team, entered(to, "sum_tree"), entered(part, "sum_tree"), n_parts, n);            \
    }                                                                                                                \
    static void sum_parts_##family(struct team *team, void *to, enum dtype t, const void *part, int n_parts, int64_t n) \
    {                                                                                                                \
        flat_ops_##family.sum_parts(team, entered(to, "sum_parts"), t, entered(part, "sum_parts"), n_parts, n);      \
    }                                                                                                                \
    static void squares_##family(struct team *team, const float *x, int64_t n, int64_t word[FLAT_SQUARES_WORDS])     \
    {                                                                                                                \
        flat_ops_##family.squares(team, entered(x, "squares"), n, word);                                             \
    }                                                                                                                \
    static const struct flat_ops entered_##family = {#family, adamw_##family, sgd_##family, sum_squares_##family,     \
                                                     find_nonfinite_##family, cast_##family, sum_into_##family,      \
                                                     sum_tree_##family, sum_parts_##family, squares_##family};
ENTERED(ref)
ENTERED(cpu)

const struct flat_ops *flat_ops_entered(const struct flat_ops *f)
{
    return f == &flat_ops_ref ? &entered_ref : &entered_cpu;
}
