/* SPDX-License-Identifier: Apache-2.0 */
/* What memory.recompute: auto (and memory.offload: auto) takes, as a run would, and what it had to choose from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_offload.h"
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
        out->moved = fmax(out->moved, p.role[i].moved);
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

/* Candidates with one set away. */
static void print_rows(const struct chosen *x, unsigned away, bool moves, struct str *out)
{
    const struct choice *row[CHOOSE_MOST];
    char a[32], b[32], m[32], text[CHOOSE_TEXT];
    int n = 0, first = 0;
    while (x->tried[first].away != away) first++;
    for (int i = first; i < x->n; i++) /* groups that the model does not have save nothing */
        if (x->tried[i].away == away && (i == first || x->tried[i].cost.bytes < x->tried[first].cost.bytes))
            row[n++] = &x->tried[i];
    qsort(row, (size_t)n, sizeof *row, by_bytes);
    for (int i = 0; i < n; i++) {
        const struct choose_cost *k = &row[i]->cost, *none = &x->tried[0].cost;
        str_printf(out, "%c %-*.*s %*s %*s %+8.1f%%", row[i] == &x->tried[x->taken] ? '*' : ' ', moves ? 57 : 62,
                   moves ? 57 : 62, choose_text(&row[i]->r, text), moves ? 9 : 10, str_bytes(a, k->bytes),
                   moves ? 9 : 10, str_bytes(b, none->bytes - k->bytes), 100 * (k->flops / none->flops - 1));
        if (moves) str_printf(out, " %10s", str_bytes(m, k->moved));
        str_putc(out, '\n');
    }
}

void plan_print_chosen(const struct chosen *x, const struct config *c, struct str *out)
{
    char a[32];
    bool moves = config_offload_auto(c);
    if (!x->n) return;
    str_printf(out, "\ncomputed again%s, chosen for memory.limit %s:\n", moves ? " and offloaded" : "",
               str_bytes(a, c->memory.limit_bytes));
    str_printf(out, "  %-*s %*s %*s %9s", moves ? 57 : 62, "", moves ? 9 : 10, "bytes", moves ? 9 : 10, "saves",
               "FLOPs");
    str_puts(out, moves ? " moved/step\n" : "\n");
    for (int i = 0; i < x->n; i++) {
        struct config set = *c;
        if (i && x->tried[i].away == x->tried[i - 1].away) continue;
        set.memory.away = x->tried[i].away;
        if (moves) {
            str_puts(out, set.memory.away ? "on disk: " : "on disk: nothing");
            config_offload_text(&set, out);
            str_putc(out, '\n');
        }
        print_rows(x, x->tried[i].away, moves, out);
    }
}
