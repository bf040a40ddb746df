/* SPDX-License-Identifier: Apache-2.0 */
/* covering.h: rows in which every two levels of unlike factors meet at least once: a covering array of strength two,
 * made greedily (Cohen, Dalal, Fredman and Patton 1997, "The AETG System"), where some levels may not meet.
 *
 * Whoever calls says which rows may be, of rows whose other factors are at their base level too, so a pair is asked for
 * alone first: when it may not be even there, it is a refused pair, and is told apart; else every row that has it
 * begins as that pair and takes what else covers most and may be. So each pair is in a row or refused, whatever three
 * levels together do.
 *
 * Pairs are taken in an order drawn by a seed: the first rows of another seed are another part of the same whole. */
#ifndef TUTTI_TESTS_COVERING_H
#define TUTTI_TESTS_COVERING_H

#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

enum { COVERING_MOST = 16 };
struct covering_factor {
    int levels, base;
};
struct covering {
    const struct covering_factor *factor;
    int n;
    uint64_t seed;
    bool (*may)(void *ctx, const int *row);
    /* Pair of levels that may not meet: of factor f the level row[f], of g row[g]; all others are at their base. */
    void (*refused)(void *ctx, const int *row, int f, int g);
    void *ctx;
    /* Inside. */
    int first[COVERING_MOST + 1]; /* of a factor its first level among all */
    int all, n_pairs, next;
    unsigned char *met; /* [all][all]: 1 in a row, 2 refused */
    int (*pair)[4];     /* f, level, g, level; in the drawn order */
};

static inline unsigned char *covering_met(struct covering *c, int f, int a, int g, int b)
{
    return &c->met[(c->first[f] + a) * c->all + c->first[g] + b];
}

static inline void covering_open(struct covering *c)
{
    CHECK(c->n <= COVERING_MOST, "%d factors", c->n);
    c->all = c->n_pairs = c->next = 0;
    for (int f = 0; f < c->n; f++) {
        c->first[f] = c->all;
        c->all += c->factor[f].levels;
        for (int g = 0; g < f; g++) c->n_pairs += c->factor[f].levels * c->factor[g].levels;
    }
    c->met = xcalloc((size_t)c->all * (size_t)c->all, 1);
    c->pair = xcalloc((size_t)c->n_pairs, sizeof *c->pair);
    int n = 0;
    for (int f = 0; f < c->n; f++)
        for (int g = 0; g < f; g++)
            for (int a = 0; a < c->factor[f].levels; a++)
                for (int b = 0; b < c->factor[g].levels; b++, n++)
                    memcpy(c->pair[n], (int[]){f, a, g, b}, sizeof *c->pair);
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(rng_u64(c->seed, 1, (uint64_t)i) % (uint64_t)(i + 1)), t[4];
        memcpy(t, c->pair[i], sizeof t);
        memcpy(c->pair[i], c->pair[k], sizeof t);
        memcpy(c->pair[k], t, sizeof t);
    }
}

static inline void covering_close(struct covering *c)
{
    xfree(c->met);
    xfree(c->pair);
}

/* How many pairs level `a` of f would cover beside what is set. */
static inline int covering_gain(struct covering *c, const int *row, const bool *set, int f, int a)
{
    int n = 0;
    for (int g = 0; g < c->n; g++) n += g != f && set[g] && !*covering_met(c, f, a, g, row[g]);
    return n;
}

/* Whether it meets none that it may not. */
static inline bool covering_alone(struct covering *c, const int *row, const bool *set, int f, int a)
{
    for (int g = 0; g < c->n; g++)
        if (g != f && set[g] && *covering_met(c, f, a, g, row[g]) == 2) return false;
    return true;
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
            int a = (i + at) % levels, gain = tried[a] ? 0 : covering_gain(c, row, set, f, a);
            if (gain > most && covering_alone(c, row, set, f, a)) best = a, most = gain;
        }
        if (best < 0) break;
        tried[best] = true;
        row[f] = best;
        if (c->may(c->ctx, row)) break;
        row[f] = c->factor[f].base;
    }
    set[f] = true;
}

static inline void covering_mark(struct covering *c, const int *row, unsigned char as)
{
    for (int f = 0; f < c->n; f++)
        for (int g = 0; g < c->n; g++)
            if (f != g) *covering_met(c, f, row[f], g, row[g]) = as;
}

/* The next row; false: every pair has met or is refused. */
static inline bool covering_next(struct covering *c, int *row)
{
    for (; c->next < c->n_pairs; c->next++) {
        const int *p = c->pair[c->next];
        bool set[COVERING_MOST] = {false};
        if (*covering_met(c, p[0], p[1], p[2], p[3])) continue;
        for (int f = 0; f < c->n; f++) row[f] = c->factor[f].base;
        row[p[0]] = p[1];
        row[p[2]] = p[3];
        if (!c->may(c->ctx, row)) {
            *covering_met(c, p[0], p[1], p[2], p[3]) = *covering_met(c, p[2], p[3], p[0], p[1]) = 2;
            c->refused(c->ctx, row, p[0], p[2]);
            continue;
        }
        set[p[0]] = set[p[2]] = true;
        int from = (int)(rng_u64(c->seed, 2, (uint64_t)c->next) % (uint64_t)c->n);
        for (int i = 0; i < c->n; i++) {
            int f = (from + i) % c->n;
            if (!set[f]) covering_fill(c, row, set, f, c->next);
        }
        covering_mark(c, row, 1);
        return true;
    }
    return false;
}

#endif
