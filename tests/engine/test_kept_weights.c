/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* precision.keep_weights: what weights become is made once a step. The same bits with and without, in every recipe and
 * layout, with layers computed again, in rounds, and after a layer fell back; each weight is rounded once a step for
 * each orientation that its recipe has; and what is kept is on the ledger, to the byte, and in the plan. */
#include "toy.h"

#include "config/config.h"
#include "kernel/kernel.h"
#include "plan/plan.h"
#include "machine.h"
#include "site/site.h"
#include "sanitized.h"

#include <pthread.h>

enum { STEPS = 3, RANKS = 4 };
struct job {
    struct config c;
    int32_t *tokens;
    double loss[STEPS], norm[STEPS];
    size_t param_bytes[RANKS], kept_bytes[RANKS];
    int rounded; /* weights, in the last step */
    bool falls;  /* layer 0, after the first step */
    pthread_mutex_t lock;
};

static void look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct job *j = ctx;
    (void)p;
    if (c->step->step != STEPS - 1 || i->operand != OPERAND_W) return;
    if (c->op != OP_QUANTISE && c->op != OP_QUANTISE_PARTS) return;
    pthread_mutex_lock(&j->lock);
    j->rounded++;
    pthread_mutex_unlock(&j->lock);
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    int rc = site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    int me = world ? comm_rank(world) : 0;
    engine_init(g);
    g->watch = look;
    g->watch_ctx = j;
    struct engine_batch b = machine_part(&j->c, j->tokens, at.ranks.part);
    struct engine_report report;
    for (int s = 0; s < STEPS; s++) {
        engine_step(g, &b, s, 1e-2, &report);
        if (me == 0) j->loss[s] = report.loss, j->norm[s] = report.grad_norm;
        if (j->falls && g->fallback.n) g->fallback.fallen[0] = 1;
    }
    j->param_bytes[me] = g->dev->ledger.at_peak[MEM_PARAM];
    j->kept_bytes[me] = g->recipes.kept_bytes;
    rc = engine_status(g, e);
    if (world) rc = comm_agree(world, rc, e);
    site_close(&at);
    return rc;
}

static void run(struct job *j, struct arena *a, const char *keys, int ranks, bool falls)
{
    struct err e = {0};
    memset(j, 0, sizeof *j);
    j->falls = falls;
    pthread_mutex_init(&j->lock, NULL);
    j->tokens =
        machine_toy(&j->c, a, arena_printf(a, "batch.global=8 batch.micro=2 precision.telemetry=0 %s", keys), ranks);
    struct comm_config cc = config_comm(&j->c);
    int rc = ranks > 1 ? comm_run_local(ranks, &cc, rank_main, j, &e) : rank_main(NULL, j, &e);
    if (rc) fail_msg("'%s': %s", keys, e.text);
    pthread_mutex_destroy(&j->lock);
    xfree(j->tokens);
}

#define MOE                                                                                                            \
    "model.family=mixtral model.moe.experts=4 model.moe.top_k=2 model.heads=4 model.kv_heads=4 model.hidden=64 "       \
    "model.ffn=64 model.moe.ffn=64 "
static const struct {
    const char *keys;
    int ranks, microbatches; /* of a rank */
    int weights;             /* roundings in a step where they are kept, over all ranks; 0: not said */
    bool falls;
} ways[] = {
    {"precision.recipe=fp8-delayed", 1, 4, 2 * 4, false},
    {"precision.recipe=fp8-current precision.layers={\"layers.*\":fp8-current}", 1, 4, 2 * 4, false},
    {"precision.recipe=mxfp8", 1, 4, 2 * 2 * 4, false}, /* two orientations */
    {"precision.recipe=nvfp4 precision.layers={\"layers.*\":nvfp4}", 1, 4, 2 * 4, false},
    {"precision.recipe=fp8-block precision.block_scale=fp32", 1, 4, 2 * 4, false},
    {"precision.recipe=fp8-delayed memory.recompute=full", 1, 4, 2 * 4, false},
    {"precision.recipe=fp8-delayed", 1, 4, 4, true}, /* one layer is in bf16 by then */
    {"precision.recipe=fp8-delayed parallel.dp_shard=2 parallel.zero=3", 2, 2, 2 * 2 * 4, false},
    {"precision.recipe=fp8-current precision.layers={\"layers.*\":fp8-current} parallel.tp=2 parallel.dp_shard=1 "
     "model.heads=4 "
     "model.kv_heads=2 model.hidden=32",
     2, 4, 2 * 2 * 4, false},
    {"precision.recipe=fp8-delayed parallel.pp=2 parallel.dp_shard=1 parallel.schedule=zbh1", 2, 4, 2 * 4, false},
    {"precision.recipe=mxfp8 parallel.pp=2 parallel.dp_shard=1 parallel.schedule=1f1b memory.recompute=full", 2, 4,
     2 * 2 * 4, false},
    {MOE "precision.recipe=fp8-current precision.layers={\"layers.*\":fp8-current} parallel.ep=2", 2, 2, 2 * 2 * 4,
     false},
    {MOE "precision.recipe=fp8-delayed parallel.ep=2 moe.buffer=0.3 moe.buffer_least=3", 2, 2, 2 * 2 * 4, false},
};

static void test_same_bits(void **state)
{
    (void)state;
    struct job *with = xcalloc(1, sizeof *with), *without = xcalloc(1, sizeof *without);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i += CASE_STRIDE) {
        struct arena *a = arena_new();
        struct plan p;
        struct err e = {0};
        run(without, a, ways[i].keys, ways[i].ranks, ways[i].falls);
        run(with, a, arena_printf(a, "%s precision.keep_weights=true", ways[i].keys), ways[i].ranks, ways[i].falls);
        if (memcmp(with->loss, without->loss, sizeof with->loss) ||
            memcmp(with->norm, without->norm, sizeof with->norm))
            fail_msg("'%s': losses %.9g %.9g %.9g, without %.9g %.9g %.9g", ways[i].keys, with->loss[0], with->loss[1],
                     with->loss[2], without->loss[0], without->loss[1], without->loss[2]);
        if (with->rounded != ways[i].weights) fail_msg("'%s': %d weights are rounded", ways[i].keys, with->rounded);
        if (without->rounded < with->rounded * ways[i].microbatches)
            fail_msg("'%s': without, %d weights are rounded", ways[i].keys, without->rounded);
        if (plan_make(&p, &with->c, &e)) fail_msg("%s", e.text);
        bool planned = false;
        for (int r = 0; r < ways[i].ranks; r++) {
            assert_true(with->kept_bytes[r] > 0 && !without->kept_bytes[r]);
            assert_int_equal(with->param_bytes[r] - without->param_bytes[r], with->kept_bytes[r]);
            planned |= p.role[0].bytes[MEM_PARAM] == with->param_bytes[r];
        }
        assert_true(planned);
        plan_free(&p);
        arena_free(a);
    }
    xfree(with);
    xfree(without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
