/* SPDX-License-Identifier: Apache-2.0 */
/* What memory.recompute: auto takes, as a run would, and what it had to choose from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

static int measure(void *ctx, const struct config *c, struct choose_cost *out, struct err *e)
{
    struct plan p;
    *out = (struct choose_cost){0};
    int rc = plan_make_watched(&p, c, ctx, e);
    if (rc) return rc;
    for (int i = 0; i < p.n_roles; i++) {
        out->bytes = fmax(out->bytes, (double)p.role[i].peak_bytes);
        out->work = fmax(out->work, p.role[i].again);
        out->flops = fmax(out->flops, p.role[i].flops);
    }
    plan_free(&p);
    return OK;
}

int plan_choose(struct config *c, struct chosen *out, const struct plan_watch *w, struct err *e)
{
    struct chosen here;
    return choose_recompute(c, measure, (void *)(uintptr_t)w, out ? out : &here, e);
}

/* Those that need most bytes first. */
static int by_bytes(const void *a, const void *b)
{
    const struct choice *const *x = a, *const *y = b;
    if ((*x)->cost.bytes != (*y)->cost.bytes) return (*x)->cost.bytes < (*y)->cost.bytes ? 1 : -1;
    return (*x > *y) - (*x < *y);
}

void plan_print_chosen(const struct chosen *x, const struct config *c, struct str *out)
{
    const struct choice *row[CHOOSE_MOST];
    char a[32], b[32], text[CHOOSE_TEXT];
    int n = 0;
    if (!x->n) return;
    for (int i = 0; i < x->n; i++) /* groups that the model does not have save nothing */
        if (!i || x->tried[i].cost.bytes < x->tried[0].cost.bytes) row[n++] = &x->tried[i];
    qsort(row, (size_t)n, sizeof *row, by_bytes);
    str_printf(out, "\ncomputed again, chosen for memory.limit %s:\n", str_bytes(a, c->memory.limit_bytes));
    str_printf(out, "  %-62s %10s %10s %9s\n", "", "bytes", "saves", "FLOPs");
    for (int i = 0; i < n; i++) {
        const struct choose_cost *k = &row[i]->cost, *none = &x->tried[0].cost;
        str_printf(out, "%c %-62.62s %10s %10s %+8.1f%%\n", row[i] == &x->tried[x->taken] ? '*' : ' ',
                   choose_text(&row[i]->r, text), str_bytes(a, k->bytes), str_bytes(b, none->bytes - k->bytes),
                   100 * (k->flops / none->flops - 1));
    }
}
