/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting the table. Dim 0 is the outermost, so a piece is a contiguous run: it can be reduced, stepped and gathered
 * without packing. Rejected: flat buckets over parameter boundaries (a checkpoint could not say what a rank holds as one
 * box per tensor). */
#include "state/units.h"

#include <string.h>

#include "base/mem.h"
#include "layout/region.h"

static struct piece piece_of(const struct units *u, const struct param *p, int rank)
{
    int n_ranks = p->expert ? u->n_expert_ranks : u->n_ranks;
    int64_t lo, hi, row = param_row_numel(p);
    region_split(p->held ? p->ln[0] : 0, rank, n_ranks, &lo, &hi);
    return (struct piece){.lo = lo * row, .n = (hi - lo) * row};
}

void units_init(struct units *u, const struct param_table *t, int rank, int n_ranks)
{
    units_init_experts(u, t, rank, n_ranks, 0, 1);
}

void units_init_experts(struct units *u, const struct param_table *t, int rank, int n_ranks, int expert_rank,
                        int n_expert_ranks)
{
    *u = (struct units){.table = t, .rank = rank, .n_ranks = n_ranks, .expert_rank = expert_rank, .n_expert_ranks = n_expert_ranks};
    u->unit = xcalloc((size_t)t->n + 1, sizeof *u->unit);
    u->of_param = xcalloc((size_t)t->n + 1, sizeof *u->of_param);
    u->piece = xcalloc((size_t)t->n + 1, sizeof *u->piece);
    for (int i = 0; i < t->n; i++) {
        const struct param *p = &t->p[i];
        if (i == 0 || p->layer != t->p[i - 1].layer || p->expert != t->p[i - 1].expert)
            u->unit[u->n++] = (struct unit){.first = i, .offset = p->offset, .shard_offset = u->shard_numel};
        struct unit *x = &u->unit[u->n - 1];
        struct piece *q = &u->piece[i];
        *q = piece_of(u, p, p->expert ? expert_rank : rank);
        q->offset = u->shard_numel;
        u->of_param[i] = u->n - 1;
        u->shard_numel += q->n;
        x->n++;
        x->numel += p->held;
        x->shard_numel += q->n;
        if (x->numel > u->largest_unit) u->largest_unit = x->numel;
        if (x->shard_numel > u->largest_unit_shard) u->largest_unit_shard = x->shard_numel;
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
    for (int r = 0; r < (p->expert ? u->n_expert_ranks : u->n_ranks); r++) out[r] = piece_of(u, p, r).n;
}
