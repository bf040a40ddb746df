/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps engine_new tile_rate_registers */
/* Runs in which every step, or some, is computed a second time by other ranks. Nothing changes where nothing goes
 * wrong, in any layout and recipe; one bit that flips in an activation, in a gradient or in a copy of a weight, in
 * either pass, ends the run with step, tensor and rank: of three ranks the one that is wrong, of two as well when it
 * was wrong once only. The linker puts this file before engine_new, so that a test sees every result of the program as
 * it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/engine.h"
#include "told_rate.h"
#include "train/trainer.h"
#include "sanitized.h"
#include "scratch.h"

enum { STEPS = 4, STEP = 2, RANKS = 8 };

enum kind { NOTHING, ACTIVATION, GRADIENT, WEIGHT_GRADIENT, WEIGHT };
static const char *const kinds[] = {"nothing", "activation", "gradient", "weight gradient", "weight"};

static struct {
    enum kind kind;
    int rank, nth, seen; /* the nth time that the result is made in STEP */
    bool always;         /* and every time after it */
    int done;
    char of[64];               /* tensor */
    unsigned char bits[RANKS]; /* per rank: it flips these in every product of layer 1, in STEP, each time; 0: none */
} plan;

int __real_engine_new(struct engine **out, const struct engine_config *c, struct device *d, struct err *e);
int __wrap_engine_new(struct engine **out, const struct engine_config *c, struct device *d, struct err *e);

static void flip(const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    const struct node *d = &p->tape->nodes[i->node];
    const struct view *v = NULL;
    if (c->op != OP_LINEAR || d->layer != 1) return;
    if (plan.kind == ACTIVATION && c->phase == KERNEL_FWD) v = &c->out[0];
    if (plan.kind == GRADIENT && c->phase == KERNEL_BWD_IN) v = &c->din[0];
    if (plan.kind == WEIGHT_GRADIENT && c->phase == KERNEL_BWD_W) v = &c->din[1];
    if (plan.kind == WEIGHT && c->phase == KERNEL_FWD) v = &c->in[1];
    if (!v || !v->p) return;
    const char *name = plan.kind == ACTIVATION ? tape_tensor(p->tape, d->out[0])->name
                                               : tape_tensor(p->tape, d->in[plan.kind != GRADIENT])->name;
    if (!plan.of[0]) snprintf(plan.of, sizeof plan.of, "%s", name); /* the first that is made: one tensor is counted */
    if (strcmp(plan.of, name)) return;
    int nth = plan.seen++;
    if (nth < plan.nth || (nth > plan.nth && !plan.always)) return;
    plan.done++;
    ((unsigned char *)device_here(v->p))[1] ^= 1u << 3;
}

static void watch(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    const struct engine *g = ctx;
    if (!c->step || c->step->step != STEP) return;
    if (plan.kind && g->cfg.rank == plan.rank) flip(p, c, i);
    if (plan.bits[g->cfg.rank] && c->op == OP_LINEAR && c->phase == KERNEL_FWD && p->tape->nodes[i->node].layer == 1)
        ((unsigned char *)device_here(c->out[0].p))[1] ^= plan.bits[g->cfg.rank];
}

int __wrap_engine_new(struct engine **out, const struct engine_config *c, struct device *d, struct err *e)
{
    int rc = __real_engine_new(out, c, d, e);
    if (rc || d->counts_only) return rc;
    (*out)->watch = watch;
    (*out)->watch_ctx = *out;
    return OK;
}

static int train(const char *dir, const char *const *more, int n_more, int ranks, struct trainer_result *r,
                 struct err *e)
{
    static const char *const fixed[] = {"model.layers=2",          "model.hidden=32",
                                        "model.heads=4",           "model.ffn=44",
                                        "model.seq_len=24",        "batch.global=9",
                                        "batch.micro=1",           "run.steps=4",
                                        "checkpoint.every=0",      "run.threads=1",
                                        "comm.timeout_s=60",       "run.tensorboard=false",
                                        "checkpoint.resume=never", "run.compare_every=0"};
    char keys[32][320], *list[32];
    int n = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) snprintf(keys[n++], sizeof keys[0], "%s", fixed[i]);
    snprintf(keys[n++], sizeof keys[0], "data.train=%s/text.txt", dir);
    snprintf(keys[n++], sizeof keys[0], "run.dir=%s/run", dir);
    for (int i = 0; i < n_more && more[i]; i++) snprintf(keys[n++], sizeof keys[0], "%s", more[i]);
    for (int i = 0; i < n; i++) list[i] = keys[i];
    *e = (struct err){0};
    plan.seen = plan.done = 0;
    plan.of[0] = 0;
    return trainer_run(NULL, list, n, ranks, r, e);
}

static char *with_text(void)
{
    struct str text = {0};
    struct err e = {0};
    char *dir = scratch_new(), path[256];
    for (int i = 0; i < 200; i++)
        str_printf(&text, "%d. The quick brown fox jumps over %d lazy dogs, and they sleep.\n", i, i * 7 % 9);
    snprintf(path, sizeof path, "%s/text.txt", dir);
    if (fs_write_atomic(path, text.p, text.n, &e)) fail_msg("%s", e.text);
    str_free(&text);
    return dir;
}

/* ---- nothing goes wrong ---- */
static void test_no_false_alarm(void **state)
{
    (void)state;
    static const struct {
        const char *keys[5];
        int ranks;
    } rows[] = {
        {{"parallel.zero=0", "model.dropout=0.2"}, 3},
        {{"parallel.zero=3", "precision.recipe=bf16"}, 2},
        {{"parallel.zero=2", "precision.recipe=fp8-delayed"}, 4},
        {{"parallel.zero=1", "parallel.dp_replicate=2", "precision.recipe=fp16"}, 4},
        {{"parallel.tp=2", "parallel.sequence_parallel=true", "precision.recipe=bf16"}, 4},
        {{"parallel.pp=2", "parallel.schedule=zbh1", "model.tie_embeddings=true"}, 4},
        {{"parallel.cp=2", "memory.recompute=full"}, 4},
        {{"model.family=mixtral", "model.moe.experts=4", "model.moe.top_k=2", "parallel.ep=2", "precision.recipe=bf16"},
         4},
        {{"model.family=mixtral", "model.moe.experts=4", "model.moe.top_k=2", "parallel.ep=2", "parallel.pp=2"}, 8},
        {{"numerics.exact_order=true", "batch.global=8"}, 2},
        {{"precision.recipe=bf16", "precision.grad=bf16", "comm.grad=bf16"}, 3},
    };
    char *dir = with_text();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i += CASE_STRIDE) {
        struct trainer_result plain, seen;
        struct err e;
        const char *keys[6];
        int n = 0;
        plan.kind = NOTHING;
        while (n < 5 && rows[i].keys[n]) keys[n] = rows[i].keys[n], n++;
        if (train(dir, keys, n, rows[i].ranks, &plain, &e)) fail_msg("%s: %s", keys[0], e.text);
        keys[n] = "run.replay_every=1";
        if (train(dir, keys, n + 1, rows[i].ranks, &seen, &e)) fail_msg("%s %s, seen: %s", keys[0], keys[1], e.text);
        assert_int_equal(seen.steps, STEPS);
        if (seen.loss != plain.loss) fail_msg("%s %s: loss %.17g, seen %.17g", keys[0], keys[1], plain.loss, seen.loss);
    }
    scratch_free(dir);
}

/* ---- one bit ---- */
static char *last_line(const char *dir)
{
    char path[256], *text;
    size_t n;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/run/metrics.jsonl", dir);
    if (fs_read_all(path, 1 << 20, &text, &n, &e)) fail_msg("%s", e.text);
    char *last = text;
    for (char *at = text; (at = strchr(at, '\n')) && at[1]; at++) last = at + 1;
    last = xstrdup(last);
    xfree(text);
    return last;
}

static void check_file(const char *dir, int wrong)
{
    char want[160], *last = last_line(dir);
    snprintf(want, sizeof want, "\"ranks\":[%d]", wrong < 0 ? 1 : wrong);
    bool named = strstr(last, want) || (wrong < 0 && strstr(last, "\"ranks\":[0,1]")); /* < 0: it may be told or not */
    bool there = strstr(last, "\"replay_differs\"") && strstr(last, "\"step\"") && named;
    if (!there) fail_msg("the last line is %s", last);
    xfree(last);
}

static void test_one_bit(void **state)
{
    (void)state;
    char *dir = with_text();
    int cases = 0;
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int kind = ACTIVATION; kind <= WEIGHT; kind++)
            for (int pass = 0; pass < 2; pass++, cases++) {
                struct trainer_result r;
                struct err e;
                char want[64], other[64];
                const char *keys[] = {"run.replay_every=3", ranks == 2 ? "batch.global=8" : "batch.global=9", NULL};
                int each = ranks == 2 ? 4 : 3; /* microbatches of a rank: so often a result is made in a pass */
                if (cases % CASE_STRIDE) continue;
                plan.kind = (enum kind)kind;
                plan.rank = 1;
                plan.nth = pass ? each : 1;
                plan.always = false;
                int rc = train(dir, keys, 2, ranks, &r, &e);
                assert_int_equal(plan.done, 1);
                snprintf(want, sizeof want, "step %d: rank 1 computed other bits than rank", STEP + 1);
                snprintf(other, sizeof other, "step %d: ranks 0 and 1 computed other bits", STEP + 1);
                bool told = kind == WEIGHT && ranks == 2 ? strstr(e.text, want) || strstr(e.text, other)
                                                         : strstr(e.text, want) != NULL;
                if (rc != ERR_NUMERIC || !told || !strstr(e.text, "layer 1"))
                    fail_msg("%d ranks, %s of %s, pass %d: %d '%s'", ranks, kinds[kind], plan.of, pass, rc, e.text);
                const char *third = pass ? "rank 2, asked as well, has what rank 0 has" /* of rank 1's own part */
                                         : "rank 0, asked as well, has what rank 2 has";
                if (kind != WEIGHT && ranks == 3 && !strstr(e.text, third)) fail_msg("no '%s': '%s'", third, e.text);
                if (kind != WEIGHT && !strstr(e.text, plan.of))
                    fail_msg("%s of %s: '%s'", kinds[kind], plan.of, e.text);
                check_file(dir, kind == WEIGHT && ranks == 2 ? -1 : 1);
            }
    scratch_free(dir);
}

/* Wrong in the same way every time: of three the others outvote it, of two nobody can say. */
static void test_broken_for_good(void **state)
{
    (void)state;
    char *dir = with_text();
    for (int ranks = 2; ranks <= 3; ranks++) {
        struct trainer_result r;
        struct err e;
        const char *key = "run.replay_every=1";
        plan.kind = ACTIVATION;
        plan.rank = 1;
        plan.nth = 0;
        plan.always = true;
        assert_int_equal(train(dir, &key, 1, ranks, &r, &e), ERR_NUMERIC);
        const char *want = ranks == 2 ? "ranks 0 and 1 computed other bits" : "rank 1 computed other bits than rank";
        if (!strstr(e.text, want)) fail_msg("%d ranks: '%s'", ranks, e.text);
        if (ranks == 2 && !strstr(e.text, "cannot be told")) fail_msg("'%s'", e.text);
        if (ranks == 3 && !strstr(e.text, "asked as well")) fail_msg("'%s'", e.text);
        char path[256];
        snprintf(path, sizeof path, "%s/run/checkpoints/latest", dir);
        assert_false(fs_exists(path)); /* nothing of it was saved */
    }
    scratch_free(dir);
}

/* Three ranks with three results: nobody is outvoted, so nobody is accused, and the two that were compared first are
 * named. With tensor parallelism, parts are no ranks: the number that is said is the world's. */
static void test_whose_vote(void **state)
{
    (void)state;
    static const struct {
        const char *tp;
        int ranks;
        unsigned char bits[RANKS];
        const char *says, *listed;
    } rows[] = {
        {"parallel.tp=1",
         3,
         {0, 8, 16},
         "ranks 0 and 2 computed other bits of the same part of the batch (rank 0's)",
         "\"ranks\":[0,2]"},
        {"parallel.tp=1",
         3,
         {0, 0, 8},
         "rank 2 computed other bits than rank 0 of the same part of the batch (rank 0's)",
         "\"ranks\":[2]"},
        {"parallel.tp=1",
         3,
         {8, 0, 0},
         "rank 0 computed other bits than rank 2 of the same part of the batch (rank 0's)",
         "\"ranks\":[0]"},
        {"parallel.tp=2", 6, {0, 0, 0, 0, 8, 0}, "rank 4 computed other bits than rank 0", "\"ranks\":[4]"},
    };
    char *dir = with_text();
    plan.kind = NOTHING;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trainer_result r;
        struct err e;
        const char *keys[] = {"run.replay_every=1", rows[i].tp};
        memcpy(plan.bits, rows[i].bits, sizeof plan.bits);
        int rc = train(dir, keys, 2, rows[i].ranks, &r, &e);
        memset(plan.bits, 0, sizeof plan.bits);
        if (rc != ERR_NUMERIC || !strstr(e.text, rows[i].says)) fail_msg("%zu: %d '%s'", i, rc, e.text);
        if ((strstr(e.text, "cannot be told") != NULL) != (i == 0)) fail_msg("%zu: '%s'", i, e.text);
        char *last = last_line(dir);
        if (!strstr(last, rows[i].listed)) fail_msg("%zu: the last line is %s", i, last);
        xfree(last);
    }
    scratch_free(dir);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *keys[3];
        int n, ranks;
        const char *want;
    } rows[] = {{{"run.replay_every=1"}, 1, 1, "nobody who computes the same"},
                {{"run.replay_every=1", "parallel.tp=2"}, 2, 2, "two replicas"},
                {{"run.replay_every=1", "parallel.servers=1"}, 2, 3, "parameter server"}};
    char *dir = with_text();
    plan.kind = NOTHING;
    for (int i = 0; i < 3; i++) {
        struct trainer_result r;
        struct err e;
        assert_int_equal(train(dir, rows[i].keys, rows[i].n, rows[i].ranks, &r, &e), ERR_REQUEST);
        if (!strstr(e.text, rows[i].want) || !strstr(e.text, "run.replay_every")) fail_msg("%d: %s", i, e.text);
    }
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_false_alarm), cmocka_unit_test(test_one_bit),
                                       cmocka_unit_test(test_broken_for_good), cmocka_unit_test(test_whose_vote),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
