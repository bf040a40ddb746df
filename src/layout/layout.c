/* SPDX-License-Identifier: Apache-2.0 */
/* From letters to boxes. A rank's box starts as the whole tensor; each sharded axis, in order, keeps the piece of its
 * coordinate. That is all of it: replication, strided groups, several axes on one dim and remainders need no case of
 * their own.
 *
 * Rejected: padding pieces to equal sizes (a vocabulary of 50257 would get a logical size that depends on the number
 * of ranks, and checkpoints with it), and flat ranges over concatenated tensors (a flat range is not a box).
 */
#include "layout/layout.h"

#include <string.h>

struct layout layout_on(const struct mesh *m, enum mesh_view v, struct shape shape, enum spmd t)
{
    enum axis axes[MESH_VIEW_MAX];
    struct layout l = {.shape = shape, .n_ranks = m->n_ranks};
    CHECK(!spmd_is_shard(t), "a tensor cannot be sharded over every axis at once");
    l.n_places = mesh_view_axes(v, axes);
    for (int i = 0; i < l.n_places; i++) l.place[i] = (struct layout_place){.on = mesh_axis(m, axes[i]), .type = t};
    return l;
}

static bool is_whole(struct mesh_axis a) { return a.size == a.of; }

static int find_whole(const struct layout *l, enum axis a)
{
    for (int i = 0; i < l->n_places; i++)
        if (l->place[i].on.axis == a && is_whole(l->place[i].on)) return i;
    return -1;
}

static void remove_place(struct layout *l, int i)
{
    memmove(&l->place[i], &l->place[i + 1], (size_t)(--l->n_places - i) * sizeof l->place[0]);
}

static int64_t unit_of(const struct layout_place *p) { return p->unit ? p->unit : 1; }

/* All that is cut is whole units, at whatever piece of an earlier cut of the dim. */
static bool units_fit(const struct layout *l, int i)
{
    int64_t unit = unit_of(&l->place[i]);
    if (unit == 1 || !spmd_is_shard(l->place[i].type)) return true;
    for (int k = 0; k < i; k++)
        if (l->place[k].type == l->place[i].type && unit_of(&l->place[k]) % unit) return false;
    return l->shape.n[l->place[i].type - SPMD_S0] % unit == 0;
}

struct layout layout_with_unit(struct layout l, enum axis a, enum spmd t, int64_t unit)
{
    CHECK(spmd_is_shard(t) && unit > 0, "%s in units of %lld", spmd_name(t), (long long)unit);
    l = layout_with(l, a, t);
    l.place[l.n_places - 1].unit = unit;
    CHECK(units_fit(&l, l.n_places - 1), "%s: units of %lld do not fit", axis_name(a), (long long)unit);
    return l;
}

struct layout layout_with(struct layout l, enum axis a, enum spmd t)
{
    int i = find_whole(&l, a);
    CHECK(i >= 0, "%s is not a whole axis of this layout", axis_name(a));
    CHECK(!spmd_is_shard(t) || (int)(t - SPMD_S0) < l.shape.nd, "%s over %s of a tensor of %d dims", spmd_name(t),
          axis_name(a), l.shape.nd);
    struct mesh_axis on = l.place[i].on;
    if (!spmd_is_shard(t)) {
        l.place[i].type = t;
        return l;
    }
    remove_place(&l, i);
    l.place[l.n_places++] = (struct layout_place){.on = on, .type = t};
    return l;
}

struct layout layout_with_factor(struct layout l, enum axis a, int n_outer, enum spmd outer, enum spmd inner)
{
    int i = find_whole(&l, a);
    CHECK(i >= 0, "%s is not a whole axis of this layout", axis_name(a));
    CHECK(l.n_places < LAYOUT_MAX_PLACES, "a layout of more than %d axes and factors", LAYOUT_MAX_PLACES);
    struct mesh_axis hi, lo;
    mesh_axis_factor(l.place[i].on, n_outer, &hi, &lo);
    remove_place(&l, i);
    l.place[l.n_places++] = (struct layout_place){.on = hi, .type = outer};
    l.place[l.n_places++] = (struct layout_place){.on = lo, .type = inner};
    return l;
}

struct layout layout_with_joined(struct layout l, enum axis a, enum axis b, enum spmd t)
{
    int i = find_whole(&l, a), k = find_whole(&l, b);
    CHECK(i >= 0 && k >= 0, "%s and %s are not whole axes of this layout", axis_name(a), axis_name(b));
    struct mesh_axis on = mesh_axis_join(l.place[i].on, l.place[k].on);
    remove_place(&l, i > k ? i : k);
    remove_place(&l, i > k ? k : i);
    l.place[l.n_places++] = (struct layout_place){.on = on, .type = t};
    return l;
}

struct layout layout_hold_at(struct layout l, enum axis a, int coord)
{
    int i = find_whole(&l, a);
    CHECK(i >= 0 && coord >= 0 && coord < l.place[i].on.size, "coordinate %d of %s", coord, axis_name(a));
    CHECK(l.place[i].type == SPMD_I || l.place[i].type == SPMD_R, "held by one of %s, over which it is %s",
          axis_name(a), spmd_name(l.place[i].type));
    l.place[i].owner = coord + 1;
    return l;
}

struct layout layout_hold_on(struct layout l, const int *pp, int n)
{
    int i = find_whole(&l, AXIS_PP);
    CHECK(i >= 0, "only a whole pp axis can be restricted");
    CHECK(n > 0 && n <= LAYOUT_MAX_ONLY, "%d explicit holders; choose 1 to %d", n, LAYOUT_MAX_ONLY);
    l.n_only = n;
    for (int k = 0; k < n; k++) {
        CHECK(pp[k] >= 0 && pp[k] < l.place[i].on.size && (k == 0 || pp[k] > pp[k - 1]),
              "explicit holders must ascend and lie on pp");
        l.only[k] = pp[k];
    }
    return l;
}

static bool axis_same(struct mesh_axis a, struct mesh_axis b)
{
    return a.axis == b.axis && a.size == b.size && a.stride == b.stride && a.div == b.div;
}

static bool place_same(const struct layout_place *a, const struct layout_place *b)
{
    return a->type == b->type && a->owner == b->owner && unit_of(a) == unit_of(b);
}

/* Axes that split nothing may stand anywhere: equality is the same letters on the same axes and, among the sharded
 * ones, the same order. */
bool layout_equal(const struct layout *a, const struct layout *b)
{
    if (!shape_equal(&a->shape, &b->shape) || a->n_ranks != b->n_ranks || a->n_places != b->n_places ||
        a->n_only != b->n_only || memcmp(a->only, b->only, (size_t)a->n_only * sizeof a->only[0]))
        return false;
    for (int i = 0; i < a->n_places; i++) {
        int j = 0;
        while (j < b->n_places && !axis_same(a->place[i].on, b->place[j].on)) j++;
        if (j == b->n_places || !place_same(&a->place[i], &b->place[j])) return false;
    }
    for (int i = 0, j = 0; i < a->n_places; i++) {
        if (!spmd_is_shard(a->place[i].type)) continue;
        while (!spmd_is_shard(b->place[j].type)) j++;
        if (!axis_same(a->place[i].on, b->place[j++].on)) return false;
    }
    return true;
}

int layout_check(const struct layout *l, struct err *e)
{
    char shape[128], axis[48];
    int64_t product = 1, numel, bytes;
    if (shape_measure(&l->shape, 8, &numel, &bytes))
        return err_set(e, ERR_REQUEST, "%s: sizes must be 0 or more and fit in 63 bits", shape_print(shape, &l->shape));
    if (l->n_ranks < 1 || l->n_places < 1 || l->n_places > LAYOUT_MAX_PLACES || l->n_only < 0 ||
        l->n_only > LAYOUT_MAX_ONLY)
        return err_set(e, ERR_REQUEST, "%s: %d axes, %d explicit holders on %d ranks", shape_print(shape, &l->shape),
                       l->n_places, l->n_only, l->n_ranks);
    for (int i = 0; i < l->n_places; i++) {
        struct mesh_axis a = l->place[i].on;
        mesh_axis_print(axis, a);
        if (a.size < 1 || a.stride < 1)
            return err_set(e, ERR_REQUEST, "%s: size %d, stride %d", axis, a.size, a.stride);
        if ((unsigned)l->place[i].type >= SPMD_N) return err_set(e, ERR_REQUEST, "%s: no such type", axis);
        int dim = (int)l->place[i].type - SPMD_S0;
        if (spmd_is_shard(l->place[i].type) && dim >= l->shape.nd)
            return err_set(e, ERR_REQUEST, "%s:S%d: %s has no dim %d; choose S0 to S%d", axis, dim,
                           shape_print(shape, &l->shape), dim, l->shape.nd - 1);
        if (l->place[i].unit < 0 || !units_fit(l, i))
            return err_set(e, ERR_REQUEST, "%s:S%d of %s in units of %lld: they leave a rest; choose a divisor", axis,
                           dim, shape_print(shape, &l->shape), (long long)l->place[i].unit);
        bool copies = l->place[i].type == SPMD_I || l->place[i].type == SPMD_R;
        if (l->place[i].owner < 0 || l->place[i].owner > a.size || (l->place[i].owner && !copies))
            return err_set(e, ERR_REQUEST,
                           "%s: held by coordinate %d alone: wanted one of 0 to %d, on an axis at I or R", axis,
                           l->place[i].owner - 1, a.size - 1);
        if (__builtin_mul_overflow(product, a.size, &product)) product = -1;
    }
    /* Each stride must be reached by multiplying up from the innermost axis: then coordinates determine ranks. */
    int64_t stride = 1;
    for (int found = 1; stride < l->n_ranks && found;) {
        found = 0;
        for (int i = 0; i < l->n_places && !found; i++)
            if (l->place[i].on.stride == stride && l->place[i].on.size > 1) {
                stride *= l->place[i].on.size;
                found = 1;
            }
    }
    if (product != l->n_ranks || stride != l->n_ranks)
        return err_set(e, ERR_REQUEST, "the axes make %lld ranks out of %d: some axis is missing or there twice",
                       (long long)product, l->n_ranks);
    for (int k = 0; k < l->n_only; k++) {
        int i = find_whole(l, AXIS_PP);
        if (i < 0 || l->only[k] < 0 || l->only[k] >= l->place[i].on.size || (k && l->only[k] <= l->only[k - 1]))
            return err_set(e, ERR_REQUEST, "holder pp %d: holders must ascend and lie on pp", l->only[k]);
    }
    return OK;
}

enum spmd layout_type(const struct layout *l, enum axis a)
{
    int i = find_whole(l, a);
    return i < 0 ? SPMD_I : l->place[i].type;
}

struct spmd_type layout_spmd(const struct layout *l)
{
    struct spmd_type t = spmd_all(SPMD_I);
    for (int i = 0; i < l->n_places; i++) {
        enum axis a = l->place[i].on.axis;
        if (is_whole(l->place[i].on) || spmd_is_shard(l->place[i].type) || !spmd_is_shard((enum spmd)t.on[a]))
            t = spmd_with(t, a, l->place[i].type);
    }
    return t;
}

bool layout_has(const struct layout *l, enum spmd t)
{
    for (int i = 0; i < l->n_places; i++)
        if (l->place[i].type == t) return true;
    return false;
}

/* Where rank stands on this axis among those that hold the tensor, and out of how many; -1: it holds nothing. */
static int place_index(const struct layout *l, int i, int rank, int *size)
{
    struct mesh_axis a = l->place[i].on;
    int coord = mesh_axis_coord(a, rank);
    *size = a.size;
    if (l->place[i].owner) {
        *size = 1;
        return coord == l->place[i].owner - 1 ? 0 : -1;
    }
    if (a.axis != AXIS_PP || !l->n_only) return coord;
    *size = l->n_only;
    for (int k = 0; k < l->n_only; k++)
        if (l->only[k] == coord) return k;
    return -1;
}

bool layout_holds(const struct layout *l, int rank)
{
    int size;
    for (int i = 0; i < l->n_places; i++)
        if (place_index(l, i, rank, &size) < 0) return false;
    return true;
}

/* Piece `index` of `size` of r, along the dim that p cuts. */
static void cut(struct region *r, const struct layout_place *p, int index, int size)
{
    int d = (int)p->type - SPMD_S0;
    int64_t lo, hi, unit = unit_of(p);
    CHECK((r->hi[d] - r->lo[d]) % unit == 0, "dim %d: %lld in units of %lld", d, (long long)(r->hi[d] - r->lo[d]),
          (long long)unit);
    region_split((r->hi[d] - r->lo[d]) / unit, index, size, &lo, &hi);
    r->hi[d] = r->lo[d] + hi * unit;
    r->lo[d] += lo * unit;
}

struct region layout_box(const struct layout *l, int rank)
{
    struct region r = region_whole(&l->shape);
    CHECK(rank >= 0 && rank < l->n_ranks, "rank %d of %d", rank, l->n_ranks);
    for (int i = 0; i < l->n_places; i++) {
        int size, index = place_index(l, i, rank, &size);
        CHECK(index >= 0, "rank %d holds no part of this tensor", rank);
        if (!spmd_is_shard(l->place[i].type)) continue;
        cut(&r, &l->place[i], index, size);
    }
    return r;
}

int layout_last_cut(const struct layout *l, int rank, int64_t *out)
{
    struct layout before = *l;
    const struct layout_place *p = &l->place[--before.n_places];
    CHECK(spmd_is_shard(p->type) && p->on.axis != AXIS_PP, "%s is not a cut", axis_name(p->on.axis));
    if (!out) return p->on.size;
    struct region r = layout_box(&before, rank);
    for (int i = 0; i < p->on.size; i++) {
        struct region part = r;
        cut(&part, p, i, p->on.size);
        out[i] = part.hi[p->type - SPMD_S0] - part.lo[p->type - SPMD_S0];
    }
    return p->on.size;
}

bool layout_is_first(const struct layout *l, int rank)
{
    for (int i = 0; i < l->n_places; i++) {
        int size, index = place_index(l, i, rank, &size);
        bool copies = l->place[i].type == SPMD_R || l->place[i].type == SPMD_I;
        if (index < 0 || (copies && index > 0)) return false;
    }
    return true;
}

int layout_holders(const struct layout *l, const struct region *box, int *out)
{
    int n = 0;
    for (int r = 0; r < l->n_ranks; r++) {
        if (!layout_holds(l, r)) continue;
        struct region held = layout_box(l, r);
        if (!region_contains(&held, box)) continue;
        if (out) out[n] = r;
        n++;
    }
    return n;
}

int layout_n_terms(const struct layout *l)
{
    int n = 1;
    for (int i = 0, size; i < l->n_places; i++) {
        place_index(l, i, 0, &size);
        if (l->place[i].type == SPMD_P) n *= size;
    }
    return n;
}

void layout_print_places(const struct layout *l, struct str *out)
{
    char text[48];
    int printed = 0;
    for (int i = 0; i < l->n_places; i++) {
        const struct layout_place *p = &l->place[i];
        bool restricted = p->on.axis == AXIS_PP && l->n_only;
        if (p->type == SPMD_I && !restricted && !p->owner) continue;
        str_printf(out, "%s%s", printed++ ? " " : "", mesh_axis_print(text, p->on));
        for (int k = 0; restricted && k < l->n_only; k++)
            str_printf(out, "%c%d%s", k ? ',' : '{', l->only[k], k + 1 == l->n_only ? "}" : "");
        if (p->owner) str_printf(out, "{%d}", p->owner - 1);
        str_printf(out, ":%s", spmd_name(p->type));
        if (unit_of(p) > 1) str_printf(out, "*%lld", (long long)p->unit);
    }
}

void layout_print(const struct layout *l, struct str *out)
{
    char text[128];
    struct str places = {0};
    layout_print_places(l, &places);
    str_printf(out, "%s%s%s", shape_print(text, &l->shape), places.n ? " " : "", str_text(&places));
    str_free(&places);
}
