/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy, the largest first. Loads are kept by class: matrices of one class have the same candidates, on ranks that do
 * the same otherwise. Cost: O(matrices x (log matrices + candidates)). */
#include "state/own.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct entry {
    double cost;
    int param;
};

/* Candidates are the coordinates of the last place of the layout in which it is stepped. */
struct class_load {
    int n_only, only[LAYOUT_MAX_ONLY], ep; /* the stage; the experts' place, 0 for all else */
    int n;
    double *load; /* [n] */
};
struct classes {
    struct class_load *of;
    int n, room;
};

double own_cost(const struct param *p)
{
    double m = (double)p->n[0], n = (double)p->n[1];
    return m * n * (m < n ? m : n);
}

static int falling(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->cost != y->cost ? (x->cost < y->cost) - (x->cost > y->cost) : x->param - y->param;
}

static struct class_load *class_of(struct classes *c, const struct param *p)
{
    const struct layout stepped = param_stepped(p);
    struct class_load x = {.n_only = p->layout.n_only, .n = stepped.place[stepped.n_places - 1].on.size};
    memcpy(x.only, p->layout.only, sizeof x.only);
    for (int i = 0; i < p->layout.n_places; i++)
        if (p->layout.place[i].on.axis == AXIS_EP) x.ep = p->layout.place[i].owner + 1;
    for (int i = 0; i < c->n; i++) {
        struct class_load *o = &c->of[i];
        if (o->n_only == x.n_only && o->ep == x.ep && o->n == x.n &&
            !memcmp(o->only, x.only, to_size(x.n_only) * sizeof *x.only))
            return o;
    }
    GROW(c->of, c->n, c->room, 1);
    x.load = xcalloc(to_size(x.n), sizeof *x.load);
    c->of[c->n] = x;
    return &c->of[c->n++];
}

void own_matrices(struct param_table *t, unsigned groups)
{
    struct entry *list = xcalloc(to_size(t->n) + 1, sizeof *list);
    struct classes classes = {0};
    int n = 0;
    for (int i = 0; groups && i < t->n; i++) {
        struct param *p = &t->p[i];
        p->owner = 0;
        if (!p->stepped || !(groups >> p->group & 1)) continue;
        CHECK(p->nd == 2, "%s is no matrix", p->name);
        list[n++] = (struct entry){own_cost(p), i};
    }
    qsort(list, to_size(n), sizeof *list, falling);
    for (int i = 0; i < n; i++) {
        struct param *p = &t->p[list[i].param];
        struct class_load *c = class_of(&classes, p);
        int least = 0;
        for (int k = 1; k < c->n; k++)
            if (c->load[k] < c->load[least]) least = k;
        c->load[least] += list[i].cost;
        p->owner = least + 1;
    }
    if (n) param_place(t, t->rank);
    for (int i = 0; i < classes.n; i++) xfree(classes.of[i].load);
    xfree(classes.of);
    xfree(list);
}
