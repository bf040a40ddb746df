/* SPDX-License-Identifier: Apache-2.0 */
/* Counting is done where QUANTISE has just run: its operand and its result are there until the next instruction. Cost
 * of a look: two passes over every operand, and a message of six numbers per operand and matrix. */
#include "engine/telemetry.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "layout/region.h"

enum { SUMS = 5 }; /* of struct rounded_counts, at its beginning; then the largest */

static int64_t numbers(const struct engine *g) { return (int64_t)g->params.n * RECIPE_OPERANDS; }

int telemetry_new(struct engine *g, struct err *e)
{
    struct telemetry *t = &g->telemetry;
    size_t bytes = to_size(numbers(g)) * sizeof *t->counts;
    if (!g->cfg.precision.look_every || !g->cfg.training || !g->recipes.of_slot) return OK;
    if (!g->dev->counts_only) t->counts = xcalloc(1, bytes);
    return buffer_new(&t->on_device, g->dev, MEM_DATA, bytes, e);
}

void telemetry_free(struct engine *g)
{
    xfree(g->telemetry.counts);
    buffer_free(&g->telemetry.on_device);
}

bool telemetry_due(const struct engine *g, int64_t step)
{
    return g->telemetry.counts && (step + 1) % g->cfg.precision.look_every == 0;
}

bool telemetry_begin(struct engine *g, int64_t step)
{
    if (!telemetry_due(g, step)) return false;
    device_zero(g->stream, &g->telemetry.on_device, 0, g->telemetry.on_device.bytes);
    return true;
}

static int64_t experts_here(const struct engine *g)
{
    const struct par *p = &g->cfg.par;
    int64_t lo, hi;
    region_split(g->cfg.model.moe.experts, p->rank[AXIS_EP], p->size[AXIS_EP], &lo, &hi);
    return hi - lo;
}

void telemetry_look(struct engine *g, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    const struct node *d = &p->tape->nodes[i->node];
    bool experts = c->op == OP_QUANTISE_PARTS && d->op == OP_GROUPED;
    if (i->again || i->refill || (!experts && (c->op != OP_QUANTISE || d->op != OP_LINEAR))) return;
    int slot = tape_tensor(p->tape, tape_tensor(p->tape, d->in[1])->root)->slot;
    const struct recipe_rule *r = &g->recipes.rule;
    int64_t at = r->number(r->ctx, slot) + i->operand, apart = 0, n = experts ? experts_here(g) : 1;
    if (experts) apart = r->params(r->ctx, slot) / n * RECIPE_OPERANDS;
    struct kernel_call there = *c; /* rows of sequences that exist */
    if (i->rows.each)
        there.in[0].n[0] = there.out[0].n[0] = token_rows_there(i->rows, c->in[0].n[0], g->cfg.micro, c->step->blank);
    struct rounded_counts *counts = g->telemetry.on_device.p;
    struct kernel_call counting = rounded_call(&there, counts ? counts + at : NULL, n, apart);
    if (there.in[0].n[0]) kernel_enqueue(g->stream, &counting);
}

void telemetry_agree(struct engine *g)
{
    int64_t n = numbers(g);
    struct rounded_counts *x = g->telemetry.counts;
    struct comm *w = g->cfg.world;
    if (g->telemetry.on_device.p) {
        device_to_host(g->stream, x, &g->telemetry.on_device, 0, g->telemetry.on_device.bytes);
        stream_sync(g->stream);
    }
    if (!w) return;
    double *sum = xcalloc(to_size(n * SUMS), sizeof *sum);
    float *most = xcalloc(to_size(n), sizeof *most);
    for (int64_t i = 0; i < n; i++) {
        memcpy(sum + i * SUMS, &x[i], SUMS * sizeof *sum);
        most[i] = (float)x[i].amax;
    }
    comm_wait(w, comm_all_reduce(w, sum, sum, n * SUMS, DT_F64, COMM_SUM, "what was rounded"));
    comm_wait(w, comm_all_reduce(w, most, most, n, DT_F32, COMM_MAX, "the largest that was rounded"));
    for (int64_t i = 0; i < n; i++) {
        memcpy(&x[i], sum + i * SUMS, SUMS * sizeof *sum);
        x[i].amax = (double)most[i];
    }
    xfree(sum);
    xfree(most);
}

/* Experts' products by what they are called together. */
static const struct {
    const char *end, *name;
} of_experts[] = {{".gate.weight", "moe.experts.*.gate.weight"}, {".down.weight", "moe.experts.*.down.weight"}};

/* "layers.3.attn.q.weight" is attn.q.weight's. */
static const char *product_of(const char *name)
{
    const char *at = strncmp(name, "layers.", 7) ? NULL : strchr(name + 7, '.');
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts && strstr(name, ".moe.experts."); i++) {
        size_t k = strlen(of_experts[i].end);
        if (n > k && !strcmp(name + n - k, of_experts[i].end)) return of_experts[i].name;
    }
    return at ? at + 1 : name;
}

static void figures(struct telemetry_row *r, const struct rounded_counts *x)
{
    r->amax = x->amax;
    r->saturated = x->saturated / x->elements;
    r->flushed = x->flushed / x->elements;
    r->error = x->squares > 0 ? sqrt(x->moved / x->squares) : 0;
}

/* The row that operand k is counted in: a product's own, or that of all experts of its layer. */
static int row_of(const struct engine *g, const struct telemetry_row *rows, int n, int64_t k)
{
    const struct param *p = &g->params.p[k / RECIPE_OPERANDS];
    const char *product = product_of(p->name),
               *operand = recipe_operand_name((enum recipe_operand)(k % RECIPE_OPERANDS));
    for (int i = n - 1; i >= 0 && strchr(product, '*') && rows[i].layer == p->layer; i--)
        if (rows[i].product == product && rows[i].operand == operand) return i;
    return n;
}

int telemetry_rows(const struct engine *g, struct telemetry_row **rows)
{
    int n = 0;
    *rows = xcalloc(to_size(numbers(g)) + 1, sizeof **rows);
    struct rounded_counts *sum = xcalloc(to_size(numbers(g)) + 1, sizeof *sum);
    for (int64_t k = 0; g->telemetry.counts && k < numbers(g); k++) {
        const struct rounded_counts *x = &g->telemetry.counts[k];
        const struct param *p = &g->params.p[k / RECIPE_OPERANDS];
        if (!(x->elements > 0)) continue;
        int at = row_of(g, *rows, n, k);
        struct telemetry_row *r = &(*rows)[at], one = {0};
        if (at == n)
            (*rows)[n++] = (struct telemetry_row){
                .product = product_of(p->name),
                .operand = recipe_operand_name((enum recipe_operand)(k % RECIPE_OPERANDS)),
                .param = (int)(k / RECIPE_OPERANDS),
                .layer = p->layer,
            };
        figures(&one, x);
        if (one.saturated > r->worst_saturated) r->worst_saturated = one.saturated;
        if (one.error > r->worst_error) r->worst_error = one.error;
        rounded_add(&sum[at], x);
        figures(r, &sum[at]);
    }
    xfree(sum);
    return n;
}
