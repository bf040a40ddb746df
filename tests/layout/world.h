/* SPDX-License-Identifier: Apache-2.0 */
/* world.h: ranks as plain arrays in memory, so that routes can be executed and compared element for
 * element. Everything here is the slowest and most obvious way to do it. */
#ifndef TUTTI_TESTS_LAYOUT_WORLD_H
#define TUTTI_TESTS_LAYOUT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "layout/route.h"

#define WORLD_MAX_RANKS 16

/* Random numbers that a failing case can be repeated from. */
struct dice {
    uint64_t seed, at;
};
static inline int roll(struct dice *d, int n) { return (int)(rng_u64(d->seed, 1, d->at++) % (uint64_t)n); }

struct world {
    int n_ranks;
    struct region box[WORLD_MAX_RANKS];
    int64_t *data[WORLD_MAX_RANKS]; /* NULL: the rank holds nothing */
    int *arrivals[WORLD_MAX_RANKS]; /* per element */
};

static inline void world_new(struct world *w, const struct layout *l)
{
    memset(w, 0, sizeof *w);
    w->n_ranks = l->n_ranks;
    for (int r = 0; r < l->n_ranks; r++)
        if (layout_holds(l, r)) {
            w->box[r] = layout_box(l, r);
            size_t n = to_size(region_volume(&w->box[r])) + 1;
            w->data[r] = xcalloc(n, sizeof *w->data[r]);
            w->arrivals[r] = xcalloc(n, sizeof *w->arrivals[r]);
        }
}

static inline void world_free(struct world *w)
{
    for (int r = 0; r < w->n_ranks; r++) {
        xfree(w->data[r]);
        xfree(w->arrivals[r]);
    }
}

/* The flat global index of local element i of a box. */
static inline int64_t global_index(const struct shape *s, const struct region *box, int64_t i)
{
    int64_t at[SHAPE_MAX_DIMS] = {0}, flat = 0;
    for (int d = s->nd - 1; d >= 0; d--) {
        int64_t n = box->hi[d] - box->lo[d];
        at[d] = box->lo[d] + i % n;
        i /= n;
    }
    for (int d = 0; d < s->nd; d++) flat = flat * s->n[d] + at[d];
    return flat;
}

/* A number that tells apart ranks whose values differ: the coordinates on axes at P and V. */
static inline int64_t key_of(const struct layout *l, int rank, bool (*counts)(enum spmd))
{
    int64_t key = 0;
    for (int i = 0; i < l->n_places; i++)
        if (counts(l->place[i].type)) key += (int64_t)mesh_axis_coord(l->place[i].on, rank) * l->place[i].on.stride;
    return key;
}
static inline bool is_p_or_v(enum spmd t) { return t == SPMD_P || t == SPMD_V; }

static inline int64_t value_of(int64_t index, int64_t key)
{
    return (int64_t)(rng_u64(99, (uint64_t)key, (uint64_t)index) % 2000001) - 1000000;
}

/* Fills every rank with what the layout says: equal for copies, different over P and V. */
static inline void world_fill(struct world *w, const struct layout *l)
{
    for (int r = 0; r < l->n_ranks; r++)
        for (int64_t i = 0; w->data[r] && i < region_volume(&w->box[r]); i++)
            w->data[r][i] = value_of(global_index(&l->shape, &w->box[r], i), key_of(l, r, is_p_or_v));
}

static inline void world_route(struct world *to, const struct world *from, const struct route *r)
{
    for (int64_t i = 0; i < r->n; i++) {
        const struct route_msg *m = &r->msg[i];
        struct region_run run;
        assert_true(region_volume(&m->box) > 0);
        assert_non_null(from->data[m->src]);
        assert_non_null(to->data[m->dst]);
        for (bool more = region_run_first(&run, &m->box, &from->box[m->src], &to->box[m->dst]); more;
             more = region_run_next(&run))
            for (int64_t k = 0; k < run.n; k++) {
                int64_t *x = &to->data[m->dst][run.b + k];
                *x = (m->term ? *x : 0) + from->data[m->src][run.a + k];
                to->arrivals[m->dst][run.b + k]++;
            }
    }
}

/* What rank dst must hold at a global index after a route: the sum over the different values of `from`, of those on
 * the same coordinate of axes that stay P or V. */
static inline int64_t expected_value(const struct layout *from, const struct layout *to, int dst, int64_t index)
{
    int64_t seen[WORLD_MAX_RANKS], sum = 0;
    int n_seen = 0;
    for (int r = 0; r < from->n_ranks; r++) {
        if (!layout_holds(from, r)) continue;
        bool same_lane = true;
        for (int i = 0; i < from->n_places; i++) {
            struct layout_place p = from->place[i];
            bool kept = false;
            for (int j = 0; j < to->n_places; j++)
                kept |= is_p_or_v(p.type) && to->place[j].type == p.type && to->place[j].on.stride == p.on.stride &&
                        to->place[j].on.size == p.on.size && to->place[j].on.axis == p.on.axis;
            if (kept && mesh_axis_coord(p.on, r) != mesh_axis_coord(p.on, dst)) same_lane = false;
        }
        int64_t key = key_of(from, r, is_p_or_v);
        for (int k = 0; k < n_seen; k++)
            if (seen[k] == key) same_lane = false;
        if (!same_lane) continue;
        seen[n_seen++] = key;
        sum += value_of(index, key);
    }
    return sum;
}

#endif
