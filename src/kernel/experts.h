/* SPDX-License-Identifier: Apache-2.0 */
/* experts.h: which row a token's copy for an expert gets: PERMUTE's order, written once for all families.
 *
 * Rows of one expert lie together, by token, which none has twice: so the order is a function of the picks alone, and
 * where ranks share out tokens in order, an expert's rows of one follow those of the other as they do on one rank. Two
 * passes over the picks on one thread: a nanosecond per pick beside the rows that are then moved.
 *
 * With a capacity the first pass goes over the picks of whole sequences, also of tokens that are other ranks', chunk by
 * chunk in the order of places: so every rank drops what one rank alone would drop.
 * Includes kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_EXPERTS_H
#define TUTTI_KERNEL_EXPERTS_H

#include <string.h>

#include "kernel/kernel.h"
#include "layout/sequence.h"

static inline int32_t *ints_row(const struct view *v, int64_t t) { return (int32_t *)v->p + t * v->stride; }

/* Sequences that are counted apart. */
static inline int64_t permute_sequences(const struct kernel_call *c)
{
    const struct permute_attrs *m = at_permute(&c->at);
    return m->capacity ? m->tokens.batch : 1;
}

/* By sequence and expert: how many picks so far. */
static inline size_t permute_taken(const struct kernel_call *c)
{
    return (size_t)at_permute(&c->at)->experts * (size_t)permute_sequences(c);
}

static inline size_t permute_scratch_bytes(const struct kernel_call *c)
{
    return (permute_taken(c) + (size_t)at_permute(&c->at)->experts) * sizeof(int64_t);
}

/* Picks that lie together: rows [first, first + n) of the first sequence, `apart` further on of the next. */
struct permute_chunk {
    int64_t first, n, apart;
};

/* The i-th chunk of a sequence: the head of a part, or, from the middle on, its tail. */
static inline struct permute_chunk permute_chunk_of(const struct kernel_call *c, int i)
{
    const struct permute_attrs *m = at_permute(&c->at);
    int n = m->parts, part = i < n ? i : 2 * n - 1 - i;
    int64_t lo, hi, head_lo, head_hi, seq = m->tokens.seq;
    if (!m->capacity || n <= 1) return (struct permute_chunk){0, c->in[1].n[0] / permute_sequences(c), seq};
    context_chunk(seq, n, part, i >= n, &lo, &hi);
    context_chunk(seq, n, part, false, &head_lo, &head_hi);
    return (struct permute_chunk){m->tokens.batch * context_rows(seq, n, 0, part) + (i >= n ? head_hi - head_lo : 0),
                                  hi - lo, context_rows(seq, n, part, 1)};
}

/* Of x's row t: which stretch it is in. */
static inline int64_t permute_stretch(const struct permute_attrs *m, int64_t t)
{
    if (!m->order.sequences) return 0;
    return 2 * ((m->at + t) / m->rows) + ((m->at + t) % m->rows >= m->head);
}

/* Whether x's row t is of a sequence that exists. Others have no copies: they would take room at experts, and count
 * where experts' rows are looked at. m->rows 0: nobody said how rows lie in sequences, and all of them exist. */
static inline bool permute_exists(const struct kernel_call *c, int64_t t)
{
    const struct permute_attrs *m = at_permute(&c->at);
    if (!c->step || !c->step->blank || !m->rows) return true;
    return (m->at + t) / m->rows < m->tokens.batch - c->step->blank;
}

/* Choice j of picks [lo, hi), of which those from `first` on are of row_Tk: a row (0 for now), or -1 when the expert
 * has had its number. */
static inline void permute_take(const struct kernel_call *c, int j, int64_t lo, int64_t hi, int64_t first,
                                int64_t *taken_E)
{
    const struct permute_attrs *m = at_permute(&c->at);
    const struct view *pick = &c->in[1], *row = &c->out[1];
    int32_t *rows_E = (int32_t *)c->out[2].p;
    for (int64_t t = lo; t < hi; t++) {
        int32_t e = ints_row(pick, t)[j];
        CHECK(e >= 0 && e < m->experts, "token %lld goes to expert %d of %d", (long long)t, (int)e, m->experts);
        bool takes = !m->capacity || taken_E[e] < m->capacity;
        taken_E[e] += takes;
        if (t < first || t >= first + row->n[0]) continue;
        takes = takes && permute_exists(c, t - first);
        rows_E[e * source_stretches(&m->order) + permute_stretch(m, t - first)] += takes;
        ints_row(row, t - first)[j] = takes ? 0 : -1;
    }
}

/* Fills row_Tk and rows_E; returns the rows in use. */
static inline int64_t permute_deal(const struct kernel_call *c)
{
    const struct permute_attrs *m = at_permute(&c->at);
    const struct view *pick = &c->in[1], *row = &c->out[1];
    int64_t *taken = (int64_t *)c->scratch, *next = taken + permute_taken(c), first = m->capacity ? m->tokens.first : 0,
            used = 0;
    int32_t *rows_E = (int32_t *)c->out[2].p;
    int chunks = m->capacity && m->parts > 1 ? 2 * m->parts : 1, stretches = source_stretches(&m->order);
    memset(taken, 0, permute_scratch_bytes(c));
    memset(rows_E, 0, (size_t)m->experts * (size_t)stretches * sizeof *rows_E);
    for (int j = 0; j < m->top_k; j++)
        for (int i = 0; i < chunks; i++) {
            struct permute_chunk k = permute_chunk_of(c, i);
            for (int64_t s = 0; s < permute_sequences(c); s++, k.first += k.apart)
                permute_take(c, j, k.first, k.first + k.n, first, taken + s * m->experts);
        }
    for (int e = 0; e < m->experts; e++) {
        next[e] = used;
        for (int s = 0; s < stretches; s++) used += rows_E[e * stretches + s];
    }
    for (int64_t t = 0; t < row->n[0]; t++)
        for (int j = 0; j < m->top_k; j++)
            if (ints_row(row, t)[j] == 0) ints_row(row, t)[j] = (int32_t)next[ints_row(pick, first + t)[j]]++;
    return used;
}

#endif
