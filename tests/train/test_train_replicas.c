/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* suite: wraps engine_step */
/* A training run in which a bit flips in one replica's weight: it ends at the next comparison, or at the latest before
 * a checkpoint, with rank, tensor and step; nothing of it is published; started again it goes on from the checkpoint
 * before and ends with the bits of a run that nothing happened to. The program is the trainer as it is; the linker puts
 * this file between it and engine_step (--wrap). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/engine.h"
#include "train/trainer.h"
#include "scratch.h"

enum { CULPRIT = 2, AFTER = 5, STEPS = 11 };

static struct {
    bool on;
} plan;

bool __real_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);
bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);

bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r)
{
    bool ok = __real_engine_step(g, b, step, lr, r);
    if (plan.on && g->cfg.rank == CULPRIT && step == AFTER) /* the bit of 2^-2 of a weight: +-25 % */
        ((uint32_t *)device_here(store_param_ptr(&g->store, param_find(&g->params, "layers.0.mlp.up.weight"))))[3] ^=
            1U << 21;
    return ok;
}

static int train(const char *dir, const char *const *more, int n_more, int ranks, struct trainer_result *r,
                 struct err *e)
{
    static const char *const fixed[] = {"model.layers=1",       "model.hidden=32",    "model.heads=4",
                                        "model.ffn=44",         "model.seq_len=24",   "batch.global=6",
                                        "batch.micro=1",        "run.steps=11",       "checkpoint.every=4",
                                        "run.threads=1",        "comm.timeout_s=100", "run.tensorboard=false",
                                        "precision.recipe=fp32"};
    char keys[24][320], *list[24];
    int n = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) snprintf(keys[n++], sizeof keys[0], "%s", fixed[i]);
    snprintf(keys[n++], sizeof keys[0], "data.train=%s/text.txt", dir);
    snprintf(keys[n++], sizeof keys[0], "run.dir=%s/run", dir);
    for (int i = 0; i < n_more; i++) snprintf(keys[n++], sizeof keys[0], "%s", more[i]);
    for (int i = 0; i < n; i++) list[i] = keys[i];
    *e = (struct err){0};
    return trainer_run(NULL, list, n, ranks, r, e);
}

static void with_text(const char *dir)
{
    struct str text = {0};
    struct err e = {0};
    char path[64];
    for (int i = 0; i < 200; i++)
        str_printf(&text, "%d. The quick brown fox jumps over %d lazy dogs, and they sleep.\n", i, i * 7 % 9);
    snprintf(path, sizeof path, "%s/text.txt", dir);
    if (fs_write_atomic(path, text.p, text.n, &e)) fail_msg("%s", e.text);
    str_free(&text);
}

static void check_files(const char *dir, int found_at)
{
    char path[256], want[160], *text;
    size_t n;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/run/checkpoints/step-00000008", dir);
    assert_false(fs_exists(path)); /* whatever was written of it was not published */
    snprintf(path, sizeof path, "%s/run/checkpoints/step-00000004", dir);
    assert_true(fs_exists(path));
    snprintf(path, sizeof path, "%s/run/checkpoints/latest", dir);
    char link[64] = "";
    if (readlink(path, link, sizeof link - 1) < 0 || !strstr(link, "step-00000004")) fail_msg("latest is %s", link);
    snprintf(path, sizeof path, "%s/run/metrics.jsonl", dir);
    if (fs_read_all(path, 1 << 20, &text, &n, &e)) fail_msg("%s", e.text);
    snprintf(want, sizeof want,
             "{\"step\":%d,\"replicas_differ\":{\"tensor\":\"layers.0.mlp.up.weight\",\"element\":\"[0, "
             "3]\",\"ranks\":[2]}}\n",
             found_at);
    size_t w = strlen(want);
    char *squeezed = text; /* whatever blanks JSON is written with */
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' || (i && text[i - 1] == ',' && i + 1 < n && text[i + 1] >= '0' && text[i + 1] <= '9'))
            squeezed[k++] = text[i];
    if (k < w || strncmp(squeezed + k - w, want, w))
        fail_msg("metrics.jsonl ends in %.*s, wanted %s", (int)(k < 200 ? k : 200), squeezed + (k < 200 ? 0 : k - 200),
                 want);
    xfree(text);
}

/* zero 0 on three ranks, so that there is a majority. */
static void test_found_and_not_saved(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        int at; /* step at which it is found */
    } rows[] = {{"run.compare_every=7", 7},
                {"run.compare_every=1", 6},
                {"run.compare_every=0", 8},
                {"run.compare_every=100", 8}};
    struct trainer_result r, want;
    struct err e;
    char *clean = scratch_new();
    with_text(clean);
    plan.on = false;
    if (train(clean, NULL, 0, 3, &want, &e)) fail_msg("%s", e.text);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = scratch_new(), start[160];
        with_text(dir);
        plan.on = true;
        int rc = train(dir, &rows[i].key, 1, 3, &r, &e);
        snprintf(start, sizeof start, "step %d: ranks that must hold the same numbers do not: rank 2 has ", rows[i].at);
        const char *at = strstr(e.text, start); /* "rank 0: " may come before it */
        if (rc != ERR_NUMERIC || !at || !strstr(at, " in [0, 3] of layers.0.mlp.up.weight, ranks 0, 1 ") ||
            !strstr(at, "the last checkpoint, of step 4,"))
            fail_msg("%s: %d '%s', wanted '%s'", rows[i].key, rc, e.text, start);
        check_files(dir, rows[i].at);
        plan.on = false;
        if (train(dir, &rows[i].key, 1, 3, &r, &e)) fail_msg("again: %s", e.text);
        assert_int_equal(r.first_step, 4);
        assert_true(r.loss == want.loss);
        scratch_free(dir);
    }
    scratch_free(clean);
}

/* Replicas that differ by design are let go their ways; layouts in which much is held twice train to the end. */
static void test_no_false_alarm(void **state)
{
    (void)state;
    static const struct {
        const char *keys[4];
        int n, ranks;
    } rows[] = {
        {{"parallel.servers=1", "parallel.server_mode=async", "parallel.staleness=2"}, 3, 4},
        {{"parallel.servers=1"}, 1, 3},
        {{"parallel.zero=1", "model.dropout=0.2"}, 2, 3},
        {{"parallel.zero=3", "parallel.dp_replicate=2", "precision.recipe=bf16"}, 3, 4},
        {{"parallel.tp=2", "parallel.sequence_parallel=true"}, 2, 4},
        {{"model.tie_embeddings=true", "parallel.pp=2", "model.layers=2"}, 3, 4},
    };
    plan.on = false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = scratch_new();
        struct trainer_result r;
        struct err e;
        const char *keys[5];
        memcpy(keys, rows[i].keys, sizeof rows[i].keys);
        keys[rows[i].n] = "run.compare_every=1";
        with_text(dir);
        if (train(dir, keys, rows[i].n + 1, rows[i].ranks, &r, &e)) fail_msg("%s: %s", keys[0], e.text);
        assert_int_equal(r.steps, STEPS);
        scratch_free(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found_and_not_saved),
                                       cmocka_unit_test(test_no_false_alarm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
