/* SPDX-License-Identifier: Apache-2.0 */
/* flat_ops_cpu: the flat operations at the widest vectors this CPU has, chosen at each call; a call moves whole
 * arrays, so the choice costs nothing. Where there is no build for the CPU the reference does the work. */
#include "kernel/cpu/build.h"

static const struct flat_ops *chosen(void)
{
    const struct cpu_build *b = cpu_build();
    return b ? b->flat : &flat_ops_ref;
}

static void adamw_cpu(struct team *team, const struct adamw_args *a) { chosen()->adamw(team, a); }
static void sgd_cpu(struct team *team, const struct sgd_args *a) { chosen()->sgd(team, a); }
static void sum_squares_cpu(struct team *team, const float *x, int64_t n, double *sum)
{
    chosen()->sum_squares(team, x, n, sum);
}
static int64_t find_nonfinite_cpu(struct team *team, const void *x, enum dtype dtype, int64_t n)
{
    return chosen()->find_nonfinite(team, x, dtype, n);
}
static void cast_cpu(struct team *team, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n)
{
    chosen()->cast(team, dst, to, src, from, n);
}
static void sum_into_cpu(struct team *team, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add)
{
    chosen()->sum_into(team, to, t, from, f, n, add);
}
static void sum_tree_cpu(struct team *team, float *to, const float *part, int n_parts, int64_t n)
{
    chosen()->sum_tree(team, to, part, n_parts, n);
}
static void sum_parts_cpu(struct team *team, void *to, enum dtype t, const void *part, int n_parts, int64_t n)
{
    chosen()->sum_parts(team, to, t, part, n_parts, n);
}
static void squares_cpu(struct team *team, const float *x, int64_t n, int64_t word[FLAT_SQUARES_WORDS])
{
    chosen()->squares(team, x, n, word);
}
static void update_cpu(struct team *team, const struct update_args *a) { chosen()->update(team, a); }

const struct flat_ops flat_ops_cpu = {"cpu",     adamw_cpu,    sgd_cpu,      sum_squares_cpu, find_nonfinite_cpu,
                                      cast_cpu,  sum_into_cpu, sum_tree_cpu, sum_parts_cpu,   squares_cpu,
                                      update_cpu};
