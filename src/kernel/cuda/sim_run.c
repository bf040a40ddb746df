/* SPDX-License-Identifier: Apache-2.0 */
/* What the fibers need of the house: how a launch is asked for, and how a fault is told. */
#include "kernel/cuda/sim_run.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kernel/ref/accumulate.h"

const char *const sim_way_names[SIM_WAYS] = {"forward", "backward", "random", "greedy"};

/* Of a thread of the host that launches. */
static _Thread_local struct {
    bool has_order;
    struct sim_order order; /* instead of the environment's */
    struct sim_counts counts;
    const struct accumulate_way *way; /* of the launch that is; NULL: as an fp32 sum */
} mine;

void sim_order_set(const struct sim_order *o)
{
    mine.has_order = o != NULL;
    if (o) mine.order = *o;
}

struct sim_counts sim_counted(void) { return mine.counts; }

static struct sim_order asked_for(void)
{
    const char *word = getenv("TUTTI_SIM_ORDER");
    struct sim_order o = {SIM_FORWARD, 1};
    if (!word || !*word) return o;
    size_t n = strcspn(word, ":");
    for (o.way = 0; o.way < SIM_WAYS; o.way++)
        if (strlen(sim_way_names[o.way]) == n && !strncmp(word, sim_way_names[o.way], n)) break;
    CHECK(o.way < SIM_WAYS, "TUTTI_SIM_ORDER: wanted forward, backward, random or greedy, and :SEED, got '%s'", word);
    if (word[n]) o.seed = strtoull(word + n + 1, NULL, 10);
    return o;
}

void sim_fault(const char *text)
{
    CHECK(false, "%s", text);
    abort();
}

/* ---- the dial ---- */
static const struct accumulate_way *dial(void)
{
    const char *word = getenv("TUTTI_SIM_PRODUCTS");
    if (!word || !*word) return NULL;
    for (int i = 0; i < ACCUMULATE_WAYS; i++)
        if (!strcmp(word, accumulate_ways[i].name)) return &accumulate_ways[i];
    CHECK(false, "TUTTI_SIM_PRODUCTS: there is no way '%s' (kernel/ref/accumulate.h)", word);
    return NULL;
}

float sim_products(const float *a, const float *b, int n, int lowest, float c)
{
    const struct accumulate_way *way = mine.way;
    if (!way) {
        for (int i = 0; i < n; i++) c += a[i] * b[i];
        return c;
    }
    struct accumulate_term x[ACCUMULATE_MOST_K], y[ACCUMULATE_MOST_K];
    for (int at = 0; at < n; at += way->wide.k) {
        int m = n - at < way->wide.k ? n - at : way->wide.k;
        for (int i = 0; i < m; i++) {
            x[i] = accumulate_term(a[at + i], lowest);
            y[i] = accumulate_term(b[at + i], lowest);
        }
        c = accumulate_step(&way->wide, x, y, m, c);
    }
    return c;
}

void sim_run(const struct gpu_launch *l)
{
    if (!l->grid[0] || !l->grid[1] || !l->grid[2]) return;
    mine.way = dial();
    sim_fibers(l, mine.has_order ? mine.order : asked_for(), &mine.counts);
}
