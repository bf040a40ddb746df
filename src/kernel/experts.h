/* experts.h: which row a token's copy for an expert gets: PERMUTE's order, written once for all families.
 *
 * Rows of one expert lie together, by choice and then by token, so the order is a function of the picks alone. Two passes
 * over the picks on one thread: a nanosecond per pick beside the rows that are then moved.
 * Includes kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_EXPERTS_H
#define TUTTI_KERNEL_EXPERTS_H

#include <string.h>

#include "kernel/kernel.h"

static inline int32_t *ints_row(const struct view *v, int64_t t) { return (int32_t *)v->p + t * v->stride; }

/* By sequence and expert: how many picks so far. */
static inline size_t permute_taken(const struct kernel_call *c)
{
    return (size_t)c->at.moe.experts * (size_t)(c->at.moe.capacity ? c->at.batch : 1);
}

static inline size_t permute_scratch_bytes(const struct kernel_call *c)
{
    return (permute_taken(c) + (size_t)c->at.moe.experts) * sizeof(int64_t);
}

/* Fills row_Tk and rows_E; returns the rows in use. */
static inline int64_t permute_deal(const struct kernel_call *c)
{
    const struct moe_attrs *m = &c->at.moe;
    const struct view *pick = &c->in[1], *row = &c->out[1];
    int64_t *taken = c->scratch, *next = taken + permute_taken(c), used = 0;
    int32_t *rows_E = c->out[2].p;
    memset(taken, 0, permute_scratch_bytes(c));
    memset(rows_E, 0, (size_t)m->experts * sizeof *rows_E);
    for (int j = 0; j < m->top_k; j++)
        for (int64_t t = 0; t < pick->n[0]; t++) {
            int32_t e = ints_row(pick, t)[j];
            CHECK(e >= 0 && e < m->experts, "token %lld goes to expert %d of %d", (long long)t, (int)e, m->experts);
            int64_t *have = &taken[(m->capacity ? t / c->at.seq * m->experts : 0) + e];
            bool takes = !m->capacity || *have < m->capacity;
            *have += takes;
            rows_E[e] += takes;
            ints_row(row, t)[j] = takes ? 0 : -1;
        }
    for (int e = 0; e < m->experts; e++) {
        next[e] = used;
        used += rows_E[e];
    }
    for (int j = 0; j < m->top_k; j++)
        for (int64_t t = 0; t < pick->n[0]; t++)
            if (ints_row(row, t)[j] == 0) ints_row(row, t)[j] = (int32_t)next[ints_row(pick, t)[j]]++;
    return used;
}

#endif
