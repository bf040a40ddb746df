/* SPDX-License-Identifier: Apache-2.0 */
/* Levels of folding, and an order in which axes go from one to the next until the product of what is drawn fits: axes
 * of data first, since their ranks differ least. */
#include "explain/layout_fold.h"

#include "base/err.h"
#include "base/mem.h"

enum level { ALL, FIRST_TWO_AND_LAST, FIRST_AND_LAST, FIRST, ENDS_ONLY, FIRST_ONLY };

/* The last two levels fold what is unlike, too: there are too many kinds to draw. */
static bool drawn_at(const struct fold_axis *a, enum level l, int c)
{
    bool unlike = c > 0 && a->unlike[c], first = c == 0, last = c == a->size - 1;
    switch (l) {
    case ALL: return true;
    case FIRST_TWO_AND_LAST: return first || c == 1 || last || unlike;
    case FIRST_AND_LAST: return first || last || unlike;
    case FIRST: return first || unlike;
    case ENDS_ONLY: return first || last;
    default: return first;
    }
}

static int count(const struct fold_axis *a, enum level l)
{
    int n = 0;
    for (int c = 0; c < a->size; c++) n += drawn_at(a, l, c);
    return n;
}

static bool fits(const struct fold_axis *axes, const enum level *level, int n, int room)
{
    long long product = 1;
    for (int i = 0; i < n && product <= room; i++) product *= count(&axes[i], level[i]);
    return product <= room;
}

static void choose(enum level *level, const struct fold_axis *axes, int n, int room)
{
    static const struct {
        bool data;
        enum level to;
    } steps[] = {{true, FIRST_TWO_AND_LAST}, {true, FIRST_AND_LAST}, {false, FIRST_TWO_AND_LAST}, {true, FIRST},
                 {false, FIRST_AND_LAST},    {false, FIRST},         {true, ENDS_ONLY},           {false, ENDS_ONLY},
                 {true, FIRST_ONLY},         {false, FIRST_ONLY}};
    for (int i = 0; i < n; i++) level[i] = ALL;
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++)
        for (int i = 0; i < n; i++)
            if (axes[i].data == steps[k].data && !fits(axes, level, n, room) &&
                count(&axes[i], steps[k].to) < count(&axes[i], level[i]))
                level[i] = steps[k].to;
}

static void push(struct layout_fold *f, struct fold_item item)
{
    GROW(f->item, f->n, f->room, 1);
    f->item[f->n++] = item;
    f->drawn += item.axis < 0;
}

/* Coordinates [from, to) of an axis are folded. */
static void push_band(struct layout_fold *f, const struct fold_axis *axes, int i, int base, int from, int to)
{
    bool alike = true;
    for (int c = from; c < to; c++) alike = alike && !axes[i].unlike[c];
    push(f, (struct fold_item){.first = base + from * axes[i].stride,
                               .last = base + to * axes[i].stride - 1,
                               .axis = i,
                               .groups = to - from,
                               .alike = alike});
}

static void walk(struct layout_fold *f, const struct fold_axis *axes, const enum level *level, int n, int i, int base)
{
    if (i == n) {
        push(f, (struct fold_item){.first = base, .last = base, .axis = -1, .groups = 1, .alike = true});
        return;
    }
    for (int c = 0, next; c < axes[i].size; c = next) {
        walk(f, axes, level, n, i + 1, base + c * axes[i].stride);
        for (next = c + 1; next < axes[i].size && !drawn_at(&axes[i], level[i], next); next++) continue;
        if (next > c + 1) push_band(f, axes, i, base, c + 1, next);
    }
}

void fold_add(struct layout_fold *f, const struct fold_axis *axes, int n_axes, int first, int room)
{
    enum level level[FOLD_AXES];
    CHECK(n_axes <= FOLD_AXES, "%d axes", n_axes);
    choose(level, axes, n_axes, room);
    walk(f, axes, level, n_axes, 0, first);
}

void fold_free(struct layout_fold *f)
{
    xfree(f->item);
    *f = (struct layout_fold){0};
}
