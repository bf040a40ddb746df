/* SPDX-License-Identifier: Apache-2.0 */
/* What memory.recompute: auto takes, as a run would, and what it had to choose from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/config_memory.h"
#include "config/config_offload.h"
#include "engine/build.h"
#include "plan/plan.h"

/* The schedule of the run, with the work of the plan's stages. */
static int measure_step(const struct config *c, const struct plan *p, double *out, struct err *e)
{
    struct engine_config ec = config_engine(c);
    struct schedule *s;
    int rc = build_plan(&s, &ec.pipeline, to_int(c->parallel.pp), to_int(ec.n_microbatches), e);
    if (!rc) *out = choose_step(s, p->stage);
    schedule_free(s);
    return rc;
}

static int measure(void *ctx, const struct config *c, struct choose_cost *out, struct err *e)
{
    struct plan p;
    *out = (struct choose_cost){0};
    int rc = plan_make_watched(&p, c, ctx, e);
    if (rc) return rc;
    rc = measure_step(c, &p, &out->step, e);
    for (int i = 0; i < p.n_roles; i++) {
        out->bytes = fmax(out->bytes, (double)p.role[i].peak_bytes);
        out->work = fmax(out->work, p.role[i].waits);
        out->flops = fmax(out->flops, p.role[i].flops);
        out->moved = fmax(out->moved, p.role[i].moved);
        out->sent = fmax(out->sent, p.role[i].sent);
    }
    plan_free(&p);
    return rc;
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

/* Columns of the table, and how wide the words before them are. */
struct table {
    const struct chosen *x;
    const struct config *c;
    bool sends, moves; /* zero levels, and what is on disk, were chosen, too */
    bool steps;        /* ranks wait for each other: FLOPs do not say how long a step is */
    int words;
};

static bool together(const struct choice *a, const struct choice *b)
{
    return a->away == b->away && a->zero == b->zero;
}

static void print_row(const struct table *t, const struct choice *row, struct str *out)
{
    const struct choose_cost *k = &row->cost, *none = &t->x->tried[0].cost;
    char a[32], b[32], m[32], text[CHOOSE_TEXT];
    char mark = row == &t->x->tried[t->x->taken] ? '*' : ' ';
    choose_text(&row->r, text);
    if ((int)strlen(text) > t->words) { /* a line of its own */
        str_printf(out, "%c %s\n", mark, text);
        mark = ' ';
        text[0] = 0;
    }
    str_printf(out, "%c %-*s %9s %9s %+8.1f%%", mark, t->words, text, str_bytes(a, k->bytes),
               str_bytes(b, none->bytes - k->bytes), 100 * (k->flops / none->flops - 1));
    if (t->steps) str_printf(out, " %+7.1f%%", 100 * (k->step / none->step - 1));
    if (t->sends) str_printf(out, " %9s", str_bytes(m, k->sent));
    if (t->moves) str_printf(out, " %10s", str_bytes(m, k->moved));
    str_putc(out, '\n');
}

/* Candidates of one zero level with one set away. */
static void print_rows(const struct table *t, int first, struct str *out)
{
    const struct chosen *x = t->x;
    const struct choice *row[CHOOSE_MOST];
    int n = 0;
    for (int i = first; i < x->n; i++) /* groups that the model does not have save nothing */
        if (together(&x->tried[i], &x->tried[first]) &&
            (i == first || i == x->taken || x->tried[i].cost.bytes < x->tried[first].cost.bytes))
            row[n++] = &x->tried[i];
    qsort(row, (size_t)n, sizeof *row, by_bytes);
    for (int i = 0; i < n; i++) print_row(t, row[i], out);
}

static void print_heading(const struct table *t, const struct choice *of, struct str *out)
{
    struct config set = *t->c;
    set.memory.away = of->away;
    if (t->sends) str_printf(out, "zero %d%s", of->zero, t->moves ? ", " : "");
    if (t->moves) str_puts(out, set.memory.away ? "on disk: " : "on disk: nothing");
    if (t->moves) config_offload_text(&set, out);
    if (t->sends || t->moves) str_putc(out, '\n');
}

void plan_print_chosen(const struct chosen *x, const struct config *c, struct str *out)
{
    char a[32];
    struct table t = {.x = x,
                      .c = c,
                      .sends = config_zero_auto(c),
                      .moves = config_offload_auto(c),
                      .steps = c->parallel.pp > 1};
    t.words = 68 - (t.sends ? 10 : 0) - (t.moves ? 11 : 0) - (t.steps ? 9 : 0);
    if (!x->n) return;
    str_printf(out, "\ncomputed again%s%s, chosen for memory.limit %s:\n",
               t.sends && t.moves ? ", offloaded"
               : t.moves          ? " and offloaded"
                                  : "",
               t.sends ? " and shared out" : "", str_bytes(a, c->memory.limit_bytes));
    str_printf(out, "  %-*s %9s %9s %9s", t.words, "", "bytes", "saves", "FLOPs");
    str_printf(out, "%s%s%s\n", t.steps ? "     step" : "", t.sends ? " sent/step" : "", t.moves ? " moved/step" : "");
    for (int i = 0; i < x->n; i++) {
        int before = 0;
        while (before < i && !together(&x->tried[before], &x->tried[i])) before++;
        if (before < i) continue;
        print_heading(&t, &x->tried[i], out);
        print_rows(&t, i, out);
    }
}
