/* SPDX-License-Identifier: Apache-2.0 */
/* covering.h: rows in which every two levels of unlike factors meet at least once, or every three: a covering array of
 * that strength, made greedily (Cohen, Dalal, Fredman and Patton 1997, "The AETG System"), where some levels may not
 * meet.
 *
 * Whoever calls says which rows may be, of rows whose other factors are at their base level too, so a tuple of levels
 * is asked for alone first: when it may not be even there, it is a refused tuple, and is told apart; else every row
 * that has it begins as that tuple and takes what else covers most and may be. So each tuple is in a row or refused,
 * whatever more levels together do.
 *
 * Tuples are taken in an order drawn by a seed: the first rows of another seed are another part of the same whole. */
#ifndef TUTTI_TESTS_COVERING_H
#define TUTTI_TESTS_COVERING_H

#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { COVERING_MOST = 16, COVERING_STRENGTH = 3, COVERING_SETS = 560 /* of three of 16 */ };
struct covering_factor {
    int levels, base;
};
/* Factors that meet, and where their tuples begin in met; two where the strength is two. */
struct covering_set {
    int factor[COVERING_STRENGTH], first;
};
struct covering_tuple {
    int set, level[COVERING_STRENGTH];
};
struct covering {
    const struct covering_factor *factor;
    int n, strength; /* 2 or 3 */
    uint64_t seed;
    bool (*may)(void *ctx, const int *row);
    /* A tuple that may not be: of factors factor[0 .. strength - 1] the levels in row; all others are at their base. */
    void (*refused)(void *ctx, const int *row, const int *factor);
    void *ctx;
    /* Inside. */
    struct covering_set set[COVERING_SETS];
    int n_sets, n_tuples, next;
    unsigned char *met;           /* of each tuple: 1 in a row, 2 refused */
    struct covering_tuple *tuple; /* in the drawn order */
};

/* What a set's levels in the row are in met. */
static inline unsigned char *covering_met(const struct covering *c, const struct covering_set *s, const int *row)
{
    int at = 0;
    for (int i = 0; i < c->strength; i++) at = at * c->factor[s->factor[i]].levels + row[s->factor[i]];
    return &c->met[s->first + at];
}

static inline int covering_add_set(struct covering *c, int f, int g, int h)
{
    int tuples = c->factor[f].levels * c->factor[g].levels * (h < 0 ? 1 : c->factor[h].levels);
    CHECK(c->n_sets < COVERING_SETS, "%d sets", c->n_sets);
    c->set[c->n_sets++] = (struct covering_set){{f, g, h}, c->n_tuples};
    return c->n_tuples += tuples;
}

/* The tuples of a set, in order. */
static inline void covering_list(struct covering *c, int set)
{
    const struct covering_set *s = &c->set[set];
    int end = set + 1 < c->n_sets ? c->set[set + 1].first : c->n_tuples;
    for (int k = s->first; k < end; k++) {
        struct covering_tuple *t = &c->tuple[k];
        t->set = set;
        for (int i = c->strength - 1, rest = k - s->first; i >= 0; i--) {
            t->level[i] = rest % c->factor[s->factor[i]].levels;
            rest /= c->factor[s->factor[i]].levels;
        }
    }
}

static inline void covering_open(struct covering *c)
{
    CHECK(c->n <= COVERING_MOST && (c->strength == 2 || c->strength == 3), "%d factors, strength %d", c->n,
          c->strength);
    c->n_sets = c->n_tuples = c->next = 0;
    for (int f = 0; f < c->n; f++)
        for (int g = 0; g < f; g++)
            for (int h = 0; h < (c->strength == 3 ? g : 1); h++) covering_add_set(c, f, g, c->strength == 3 ? h : -1);
    c->met = xcalloc((size_t)c->n_tuples, 1);
    c->tuple = xcalloc((size_t)c->n_tuples, sizeof *c->tuple);
    for (int s = 0; s < c->n_sets; s++) covering_list(c, s);
    for (int i = c->n_tuples - 1; i > 0; i--) {
        int k = (int)(rng_u64(c->seed, 1, (uint64_t)i) % (uint64_t)(i + 1));
        struct covering_tuple t = c->tuple[i];
        c->tuple[i] = c->tuple[k];
        c->tuple[k] = t;
    }
}

static inline void covering_close(struct covering *c)
{
    xfree(c->met);
    xfree(c->tuple);
}

/* Whether the set has f and else only what is set. */
static inline bool covering_closes(const struct covering *c, const struct covering_set *s, const bool *set, int f)
{
    bool has = false, all = true;
    for (int i = 0; i < c->strength; i++) {
        has |= s->factor[i] == f;
        all &= s->factor[i] == f || set[s->factor[i]];
    }
    return has && all;
}

/* How many tuples the row's level of f would cover beside what is set; -1: it would meet one that it may not. */
static inline int covering_gain(const struct covering *c, const int *row, const bool *set, int f)
{
    int n = 0;
    for (int s = 0; s < c->n_sets; s++) {
        if (!covering_closes(c, &c->set[s], set, f)) continue;
        unsigned char is = *covering_met(c, &c->set[s], row);
        if (is == 2) return -1;
        n += !is;
    }
    return n;
}

/* Sets factor f to the level that covers most and may be, or leaves it at its base. */
static inline void covering_fill(struct covering *c, int *row, bool *set, int f, int at)
{
    enum { TRIES = 4 };
    bool tried[256] = {false};
    int levels = c->factor[f].levels;
    CHECK(levels <= 256, "%d levels", levels);
    for (int t = 0; t < TRIES; t++) {
        int best = -1, most = 0;
        for (int i = 0; i < levels; i++) {
            row[f] = (i + at) % levels;
            int gain = tried[row[f]] ? 0 : covering_gain(c, row, set, f);
            if (gain > most) best = row[f], most = gain;
        }
        row[f] = c->factor[f].base;
        if (best < 0) break;
        tried[best] = true;
        row[f] = best;
        if (c->may(c->ctx, row)) break;
        row[f] = c->factor[f].base;
    }
    set[f] = true;
}

/* The next row; false: every tuple has met or is refused. */
static inline bool covering_next(struct covering *c, int *row)
{
    for (; c->next < c->n_tuples; c->next++) {
        const struct covering_tuple *t = &c->tuple[c->next];
        const struct covering_set *s = &c->set[t->set];
        bool set[COVERING_MOST] = {false};
        for (int f = 0; f < c->n; f++) row[f] = c->factor[f].base;
        for (int i = 0; i < c->strength; i++) row[s->factor[i]] = t->level[i];
        if (*covering_met(c, s, row)) continue;
        if (!c->may(c->ctx, row)) {
            *covering_met(c, s, row) = 2;
            c->refused(c->ctx, row, s->factor);
            continue;
        }
        for (int i = 0; i < c->strength; i++) set[s->factor[i]] = true;
        int from = (int)(rng_u64(c->seed, 2, (uint64_t)c->next) % (uint64_t)c->n);
        for (int i = 0; i < c->n; i++) {
            int f = (from + i) % c->n;
            if (!set[f]) covering_fill(c, row, set, f, c->next);
        }
        for (int i = 0; i < c->n_sets; i++) *covering_met(c, &c->set[i], row) = 1;
        return true;
    }
    return false;
}

#endif
