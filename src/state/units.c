/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting the table. Dim 0 is the outermost, so a piece is a contiguous run: it can be reduced, stepped and gathered
 * without packing. Rejected: flat buckets over parameter boundaries (a checkpoint could not say what a rank holds as
 * one box per tensor). */
#include "state/units.h"

#include <string.h>

#include "base/mem.h"
#include "layout/region.h"

static struct piece piece_of(const struct units *u, const struct param *p)
{
    if (!u->shared || !p->held) return (struct piece){.n = p->held};
    struct layout l = param_stepped(p);
    if (!layout_holds(&l, u->table->rank)) return (struct piece){0}; /* another rank owns it */
    struct region box = layout_box(&l, u->table->rank);
    int64_t row = param_row_numel(p);
    return (struct piece){.lo = (box.lo[0] - p->lo[0]) * row, .n = (box.hi[0] - box.lo[0]) * row};
}

/* Ranks that share out a parameter. */
static int sharers(const struct units *u, const struct param *p)
{
    struct layout l = param_stepped(p);
    return u->shared ? l.place[l.n_places - 1].on.size : 1;
}

void units_init(struct units *u, const struct param_table *t, bool shared)
{
    *u = (struct units){.table = t, .shared = shared, .n_ranks = 1, .n_expert_ranks = 1};
    u->unit = xcalloc((size_t)t->n + 1, sizeof *u->unit);
    u->of_param = xcalloc((size_t)t->n + 1, sizeof *u->of_param);
    u->piece = xcalloc((size_t)t->n + 1, sizeof *u->piece);
    for (int i = 0; i < t->n; i++) {
        const struct param *p = &t->p[i];
        if (i == 0 || p->layer != t->p[i - 1].layer || p->expert != t->p[i - 1].expert ||
            p->frozen != t->p[i - 1].frozen)
            u->unit[u->n++] =
                (struct unit){.first = i, .offset = p->offset, .shard_offset = u->shard_numel, .frozen = p->frozen};
        struct unit *x = &u->unit[u->n - 1];
        struct piece *q = &u->piece[i];
        *q = piece_of(u, p);
        *(p->expert ? &u->n_expert_ranks : &u->n_ranks) = sharers(u, p);
        q->offset = u->shard_numel;
        u->of_param[i] = u->n - 1;
        u->shard_numel += q->n;
        x->n++;
        x->packed |= p->packed;
        x->numel += p->held;
        x->shard_numel += q->n;
        if (x->numel > u->largest_unit) u->largest_unit = x->numel;
        if (!p->frozen && x->numel > u->largest_moved) u->largest_moved = x->numel;
        if (!p->frozen && x->shard_numel > u->largest_moved_shard) u->largest_moved_shard = x->shard_numel;
    }
}

void units_fini(struct units *u)
{
    xfree(u->unit);
    xfree(u->of_param);
    xfree(u->piece);
    memset(u, 0, sizeof *u);
}

void units_counts(const struct units *u, int param, int64_t *out)
{
    const struct param *p = &u->table->p[param];
    struct layout l = param_stepped(p);
    int64_t row = param_row_numel(p);
    out[0] = p->held;
    if (!u->shared) return;
    if (!p->held || p->owner) {
        memset(out, 0, sizeof *out * to_size(sharers(u, p)));
        if (p->owner) out[p->owner - 1] = p->held;
        return;
    }
    for (int n = layout_last_cut(&l, u->table->rank, out); n-- > 0;) out[n] *= row;
}
