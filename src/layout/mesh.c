/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as a grid: two mixed-radix number systems over the same integers. All questions are a division and a
 * remainder; nothing is stored per rank, so a mesh of a million ranks costs the same as a mesh of one.
 */
#include "layout/mesh.h"

#include <stdio.h>

static const enum axis dense_axes[] = {AXIS_PP, AXIS_DP_REPLICATE, AXIS_DP_SHARD, AXIS_CP, AXIS_TP};
static const enum axis expert_axes[] = {AXIS_PP, AXIS_EDP, AXIS_EP, AXIS_ETP};

int mesh_view_axes(enum mesh_view v, enum axis out[MESH_VIEW_MAX])
{
    const enum axis *axes = v == MESH_DENSE ? dense_axes : expert_axes;
    int n = v == MESH_DENSE ? 5 : 4;
    for (int i = 0; i < n; i++) out[i] = axes[i];
    return n;
}

/* Legal sizes of axis `open` when the others stay: divisors of n_ranks / others, or that quotient itself when
 * nothing else can take up the rest. Appends up to the two nearest below and above `size`. */
static void suggest(struct str *t, enum axis open, int size, int64_t rest, bool exact)
{
    int64_t below = 0, above = 0;
    for (int64_t v = 1; v <= rest; v++) {
        if (rest % v || (exact && v != rest)) continue;
        if (v <= size) below = v;
        if (v > size && !above) above = v;
    }
    if (!below && !above) return;
    str_printf(t, "%s%s ", t->n ? ", or " : "", axis_name(open));
    if (below) str_printf(t, "%lld", (long long)below);
    if (above) str_printf(t, "%s%lld", below ? " or " : "", (long long)above);
}

/* One view's axes while its sizes are settled. */
struct filling {
    enum axis axes[MESH_VIEW_MAX];
    int n, open;     /* open: which is -1; -1: none */
    int64_t product; /* of the given sizes; MANY stands for anything larger than a legal number of ranks */
};
#define MANY (1 << 24)

static int read_sizes(struct mesh *m, struct filling *f, enum mesh_view v, const int degrees[AXIS_N], struct err *e)
{
    f->n = mesh_view_axes(v, f->axes);
    f->open = -1;
    f->product = 1;
    for (int i = 0; i < f->n; i++) {
        enum axis a = f->axes[i];
        int size = v == MESH_EXPERT && a == AXIS_PP ? m->size[AXIS_PP] : degrees[a]; /* pp: the dense view's */
        if (size == 0 || size < -1)
            return err_set(e, ERR_REQUEST, "%s: wanted a size of 1 or more, or -1 for what is left; got %d",
                           axis_name(a), size);
        if (size == -1 && f->open >= 0)
            return err_set(e, ERR_REQUEST, "%s and %s are both -1; only one can be what is left: give one a size",
                           axis_name(f->axes[f->open]), axis_name(a));
        if (size == -1) f->open = i;
        else f->product = f->product * size < MANY ? f->product * size : MANY;
        m->size[a] = size;
    }
    return OK;
}

static int refuse_product(const struct mesh *m, const struct filling *f, struct err *e)
{
    struct str given = {0}, fix = {0};
    for (int i = 0; i < f->n; i++) {
        enum axis a = f->axes[i];
        int size = m->size[a];
        if (size != 1) str_printf(&given, "%s%s ", given.n ? " x " : "", axis_name(a));
        if (size > 1) str_printf(&given, "%d", size);
        if (i == f->open) str_puts(&given, "(what is left)");
        int64_t others = i == f->open ? 0 : f->product / size;
        if (others > 0 && (size > 1 || f->open < 0) && m->n_ranks % others == 0 && f->product < MANY)
            suggest(&fix, a, size, m->n_ranks / others, f->open < 0);
    }
    int rc = err_set(e, ERR_REQUEST, "%s = %lld ranks%s, but there %s %d; choose %s", given.n ? str_text(&given) : "1",
                     (long long)f->product, f->open < 0 ? "" : " or a multiple", m->n_ranks == 1 ? "is" : "are",
                     m->n_ranks, fix.n ? str_text(&fix) : "sizes whose product divides it");
    str_free(&given);
    str_free(&fix);
    return rc;
}

/* Fills in -1, proves the product, numbers the strides from the innermost axis out. */
static int fill_view(struct mesh *m, enum mesh_view v, const int degrees[AXIS_N], struct err *e)
{
    struct filling f;
    int rc = read_sizes(m, &f, v, degrees, e);
    if (rc) return rc;
    if (m->n_ranks % f.product || (f.open < 0 && f.product != m->n_ranks)) return refuse_product(m, &f, e);
    if (f.open >= 0) m->size[f.axes[f.open]] = (int)(m->n_ranks / f.product);
    for (int i = f.n - 1, stride = 1; i >= 0; stride *= m->size[f.axes[i--]]) m->stride[f.axes[i]] = stride;
    return OK;
}

int mesh_init(struct mesh *m, int n_ranks, const int degrees[AXIS_N], struct err *e)
{
    if (n_ranks < 1 || n_ranks > 1 << 20) return err_set(e, ERR_REQUEST, "%d ranks: choose 1 to %d", n_ranks, 1 << 20);
    *m = (struct mesh){.n_ranks = n_ranks};
    int rc = fill_view(m, MESH_DENSE, degrees, e);
    return rc ? rc : fill_view(m, MESH_EXPERT, degrees, e);
}

struct mesh mesh_single(void)
{
    struct mesh m = {.n_ranks = 1};
    for (int a = 0; a < AXIS_N; a++) m.size[a] = m.stride[a] = 1;
    return m;
}

int mesh_coord(const struct mesh *m, enum axis a, int rank) { return rank / m->stride[a] % m->size[a]; }

int mesh_rank(const struct mesh *m, enum mesh_view v, const int coord[AXIS_N])
{
    enum axis axes[MESH_VIEW_MAX];
    int n = mesh_view_axes(v, axes), rank = 0;
    for (int i = 0; i < n; i++) rank += coord[axes[i]] * m->stride[axes[i]];
    return rank;
}

struct mesh_axis mesh_axis(const struct mesh *m, enum axis a)
{
    return (struct mesh_axis){a, m->size[a], m->stride[a], m->size[a], 1};
}

int mesh_axis_coord(struct mesh_axis a, int rank) { return rank / a.stride % a.size; }

void mesh_axis_factor(struct mesh_axis a, int n_outer, struct mesh_axis *outer, struct mesh_axis *inner)
{
    CHECK(n_outer > 0 && a.size % n_outer == 0, "%s of size %d has no factor %d", axis_name(a.axis), a.size, n_outer);
    int n_inner = a.size / n_outer;
    *outer = (struct mesh_axis){a.axis, n_outer, a.stride * n_inner, a.of, a.div * n_inner};
    *inner = (struct mesh_axis){a.axis, n_inner, a.stride, a.of, a.div};
}

struct mesh_axis mesh_axis_join(struct mesh_axis outer, struct mesh_axis inner)
{
    if (inner.size == 1) return outer;
    if (outer.size == 1) return inner;
    CHECK(outer.stride == inner.stride * inner.size && outer.size == outer.of && inner.size == inner.of,
          "%s and %s are not neighbours", axis_name(outer.axis), axis_name(inner.axis));
    return (struct mesh_axis){outer.axis, outer.size * inner.size, inner.stride, outer.of, 1};
}

char *mesh_axis_print(char out[48], struct mesh_axis a)
{
    int n = snprintf(out, 48, "%s%s", axis_name(a.axis), a.size > a.of ? "+" : "");
    if (a.div > 1) n += snprintf(out + n, (size_t)(48 - n), "/%d", a.div);
    if (a.div * a.size < a.of) snprintf(out + n, (size_t)(48 - n), "%%%d", a.size);
    return out;
}

int mesh_group_at(const struct mesh_axis *axes, int n_axes, int rank, int i)
{
    for (int k = n_axes - 1; k >= 0; i /= axes[k--].size)
        rank += (i % axes[k].size - mesh_axis_coord(axes[k], rank)) * axes[k].stride;
    return rank;
}

int mesh_group(const struct mesh_axis *axes, int n_axes, int rank, int *out)
{
    int n = 1;
    for (int k = 0; k < n_axes; k++) n *= axes[k].size;
    for (int i = 0; out && i < n; i++) out[i] = mesh_group_at(axes, n_axes, rank, i);
    return n;
}

static void print_view(const struct mesh *m, enum mesh_view v, bool skip_pp, struct str *out)
{
    enum axis axes[MESH_VIEW_MAX];
    int n = mesh_view_axes(v, axes), printed = 0;
    for (int i = 0; i < n; i++)
        if (m->size[axes[i]] > 1 && !(skip_pp && axes[i] == AXIS_PP))
            str_printf(out, "%s%s %d", printed++ ? " x " : " ", axis_name(axes[i]), m->size[axes[i]]);
    if (!printed) str_puts(out, " all axes 1");
}

void mesh_print(const struct mesh *m, bool experts, struct str *out)
{
    str_printf(out, "%d rank%s:", m->n_ranks, m->n_ranks == 1 ? "" : "s");
    print_view(m, MESH_DENSE, false, out);
    if (!experts || (m->size[AXIS_EP] == 1 && m->size[AXIS_ETP] == 1)) return;
    str_puts(out, "; experts:");
    print_view(m, MESH_EXPERT, true, out);
}
