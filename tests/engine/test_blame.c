/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices late */
/* Numbers that break on one rank of several: all ranks leave the step out, and say the same words, which name the rank,
 * the tensor, and how it broke; also where gradients and parameters travel in fewer bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
