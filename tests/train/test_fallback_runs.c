/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Layers that fall back in whole runs: metrics say it, and a run that was interrupted, before or after, in the same
 * layout or another, computes the same layers in bf16 from the same step on. */
#include "runs.h"

#define BAD_LOOKS                                                                                                      \
    "precision.recipe=fp8-delayed", "precision.telemetry=2", "precision.fallback.after=2",                             \
        "precision.fallback.error=0", "optimizer.schedule.name=constant", "checkpoint.every=1", "checkpoint.keep=20"

enum { STEPS = 8, FALLS = 4 };

/* Losses by step, and from which step on layers are told to have fallen back (0: never). */
static int losses(const struct folder *f, const char *name, double loss[STEPS + 1])
{
    struct json *line[64];
    int n = read_metrics(f, name, line, 64), from = 0;
    for (int s = 0; s <= STEPS; s++) loss[s] = -1;
    for (int i = 0; i < n; i++) {
        int64_t s = json_int(json_get(line[i], "step"), -1);
        const struct json *fell = json_get(line[i], "fallen_back");
        assert_true(s >= 1 && s <= STEPS);
        loss[s] = json_real(json_get(line[i], "loss"), -1);
        if (fell && !from) from = (int)s;
        assert_true(!fell == !from);
        if (fell) assert_true(json_size(fell) == 2 && json_int(json_at(fell, 1), -1) == 1);
        json_free(line[i]);
    }
    return from;
}

static void go_on(const struct folder *f, const char *name, int ranks, const char *const *keys)
{
    struct trainer_result r;
    struct err e;
    if (train_ranks(f, name, ranks, keys, &r, &e)) fail_msg("%s: %s", name, e.text);
    assert_int_equal(r.steps, STEPS);
    assert_true(r.first_step > 0);
}

static void test_resumed(void **state)
{
    (void)state;
    struct folder f;
    double whole[STEPS + 1], other[STEPS + 1];
    folder_open(&f);
    train_ok(&f, "whole", KEYS(BAD_LOOKS));
    assert_int_equal(losses(&f, "whole", whole), FALLS);
    train_ok(&f, "never", KEYS(BAD_LOOKS, "precision.fallback.after=0"));
    assert_int_equal(losses(&f, "never", other), 0);
    for (int s = 1; s <= STEPS; s++) assert_true((whole[s] == other[s]) == (s <= FALLS));
    for (int at = FALLS - 1; at <= FALLS + 1; at += 2) { /* with a bad look behind it, and with all of them */
        char name[16], steps[32];
        snprintf(steps, sizeof steps, "run.steps=%d", at);
        snprintf(name, sizeof name, "same-%d", at);
        train_ok(&f, name, KEYS(BAD_LOOKS, steps));
        go_on(&f, name, 1, KEYS(BAD_LOOKS));
        assert_int_equal(losses(&f, name, other), FALLS);
        for (int s = 1; s <= STEPS; s++)
            if (whole[s] != other[s]) fail_msg("%s: step %d: %.9g, not %.9g", name, s, other[s], whole[s]);
        snprintf(name, sizeof name, "stages-%d", at);
        train_ok(&f, name, KEYS(BAD_LOOKS, steps));
        go_on(&f, name, 2, KEYS(BAD_LOOKS, "parallel.pp=2"));
        assert_int_equal(losses(&f, name, other), FALLS);
        for (int s = 1; s <= STEPS; s++)
            if (fabs(whole[s] - other[s]) > 1e-5) fail_msg("%s: step %d: %.9g, not %.9g", name, s, other[s], whole[s]);
    }
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resumed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
