/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices late */
/* Numbers that break on one rank of several: all ranks leave the step out, and say the same words, which name the rank,
 * the tensor, and how it broke; also where gradients and parameters travel in fewer bits, and where it is a loss alone
 * that is not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "machine.h"
#include "site/site.h"

#define TENSOR "layers.1.mlp.up.weight"
enum { MOST = 4 };
struct row {
    const char *keys;
    int ranks, culprit;
    bool nan; /* a NaN in what the culprit steps; else weights of the culprit's own copy whose products overflow */
    const char *says; /* its parts, split at | */
};

static const struct row rows[] = {
    {"", 2, 1, true, "the parameter " TENSOR ", element |, on rank 1"},
    {"", 3, 2, false, "(operation linear, forward, layer 1), element |, on rank 2"},
    {"comm.grad=int8", 3, 1, true, "the parameter " TENSOR ", element |, on rank 1"},
    {"comm.grad=int8", 3, 1, false, "(operation linear, forward, layer 1), element |, on rank 1"},
    {"comm.grad=fp8-e5m2 parallel.reduce=step", 2, 1, false,
     "(operation linear, forward, layer 1), element |, on rank 1"},
    {"comm.grad=fp8 comm.param=int8 precision.recipe=bf16 parallel.zero=1", 3, 2, true,
     "the parameter " TENSOR ", element |, on rank 2"},
    {"comm.grad=bf16 comm.param=fp8 precision.recipe=bf16 parallel.zero=3 parallel.dp_replicate=2", 4, 3, true,
     "the parameter " TENSOR ", element |, on rank 3"},
};

struct job {
    const struct row *row;
    struct config c;
    int32_t *tokens;
    char said[MOST][256];
};

static void break_it(const struct row *row, struct engine *g)
{
    int w = param_find(&g->params, TENSOR);
    struct array_span held = store_held(&g->store, w, STORE_MASTER);
    float *v = xcalloc(to_size(held.n), sizeof *v);
    assert_true(held.n > 40);
    store_read(&g->store, g->stream, w, STORE_MASTER, v);
    if (row->nan) v[37] = NAN;
    else
        for (int64_t i = 0; i < held.n; i++) v[i] = 2e38f;
    store_write(&g->store, &g->kernels, g->stream, w, STORE_MASTER, v);
    xfree(v);
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    struct engine_report r;
    int rc = site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine_batch b = machine_part(&j->c, j->tokens, at.ranks.part);
    engine_init(at.engine);
    if (!engine_step(at.engine, &b, 0, 1e-2, &r)) rc = err_set(e, ERR_NUMERIC, "whole weights are left out");
    if (at.ranks.rank == j->row->culprit) break_it(j->row, at.engine);
    if (engine_step(at.engine, &b, 1, 1e-2, &r)) rc = err_set(e, ERR_NUMERIC, "the step was taken");
    engine_blame(at.engine, &b, 1, j->said[at.ranks.rank], sizeof j->said[0]);
    rc = comm_agree(world, rc, e);
    site_close(&at);
    return rc;
}

static void check_said(const struct job *j)
{
    char parts[256], *save;
    snprintf(parts, sizeof parts, "%s", j->row->says);
    for (char *part = strtok_r(parts, "|", &save); part; part = strtok_r(NULL, "|", &save))
        if (!strstr(j->said[0], part)) fail_msg("'%s': '%s', wanted '%s'", j->row->keys, j->said[0], part);
    for (int r = 1; r < j->row->ranks; r++) assert_string_equal(j->said[r], j->said[0]);
}

static void test_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena *a = arena_new();
        struct job j = {.row = &rows[i]};
        struct err e = {0};
        j.tokens =
            machine_toy(&j.c, a, arena_printf(a, "batch.global=6 batch.micro=1 %s", rows[i].keys), rows[i].ranks);
        struct comm_config cc = config_comm(&j.c);
        if (comm_run_local(rows[i].ranks, &cc, rank_main, &j, &e)) fail_msg("'%s': %s", rows[i].keys, e.text);
        check_said(&j);
        xfree(j.tokens);
        arena_free(a);
    }
}

/* ---- a loss that is not finite where all gradients are ---- */
static void spoil_loss(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    static const double infinite = INFINITY;
    struct engine *g = ctx;
    (void)p, (void)i;
    if (c->op == OP_RMSNORM && c->phase == KERNEL_FWD)
        device_from_host(g->stream, &g->stat, 0, &infinite, sizeof infinite);
}

/* What this rank steps: the rest is on its way from others. */
static uint64_t stepped_here(struct engine *g)
{
    struct hash64 h;
    hash64_init(&h);
    for (int i = 0; i < g->params.n; i++) {
        struct array_span held = store_held(&g->store, i, STORE_MASTER);
        float *v = xcalloc(to_size(held.n) + 1, sizeof *v);
        store_read(&g->store, g->stream, i, STORE_MASTER, v);
        hash64_add(&h, v, to_size(held.n) * sizeof *v);
        xfree(v);
    }
    return hash64_value(&h);
}

static int loss_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    struct engine_report r;
    int rc = site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    struct engine_batch b = machine_part(&j->c, j->tokens, at.ranks.part);
    engine_init(g);
    if (!engine_step(g, &b, 0, 1e-2, &r)) rc = err_set(e, ERR_NUMERIC, "whole numbers are left out");
    uint64_t before = stepped_here(g);
    if (at.ranks.rank == j->row->culprit) g->watch = spoil_loss, g->watch_ctx = g;
    if (engine_step(g, &b, 1, 1e-2, &r)) rc = err_set(e, ERR_NUMERIC, "the step was taken");
    if (!isfinite(r.grad_norm)) rc = err_set(e, ERR_NUMERIC, "its norm is %g", r.grad_norm);
    if (stepped_here(g) != before) rc = err_set(e, ERR_NUMERIC, "weights of rank %d are others", at.ranks.rank);
    rc = comm_agree(world, rc, e);
    site_close(&at);
    return rc;
}

/* Whichever rank has it, none steps: over replicas, whose gradients and norm are the same, and where it is one of ranks
 * that have the same loss by right (tp), too. */
static void test_a_loss_alone(void **state)
{
    (void)state;
    static const struct row losses[] = {
        {.keys = "", .ranks = 2, .culprit = 1},
        {.keys = "parallel.dp_replicate=2", .ranks = 2, .culprit = 0},
        {.keys = "parallel.dp_replicate=2 parallel.zero=2", .ranks = 4, .culprit = 3},
        {.keys = "parallel.dp_replicate=2 numerics.exact_order=true", .ranks = 2, .culprit = 1},
        {.keys = "parallel.zero=3 numerics.exact_order=true", .ranks = 4, .culprit = 2},
        {.keys = "parallel.pp=2", .ranks = 2, .culprit = 1},
        {.keys = "parallel.tp=2", .ranks = 4, .culprit = 2},
    };
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        struct arena *a = arena_new();
        struct job j = {.row = &losses[i]};
        struct err e = {0};
        const char *keys = arena_printf(a, "batch.global=12 batch.micro=1 %s", losses[i].keys);
        j.tokens = machine_toy(&j.c, a, keys, losses[i].ranks);
        struct comm_config cc = config_comm(&j.c);
        if (comm_run_local(losses[i].ranks, &cc, loss_main, &j, &e)) fail_msg("'%s': %s", losses[i].keys, e.text);
        xfree(j.tokens);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_named), cmocka_unit_test(test_a_loss_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
