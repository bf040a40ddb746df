/* SPDX-License-Identifier: Apache-2.0 */
/* A loss that jumps, or is not finite: the run goes back to its newest checkpoint and leaves the batch out, with the
 * bits of a run that was told by hand to leave it out, in memory or on disk, and also when it is killed between the
 * decision and what follows from it. The linker puts this file before the step (--wrap), where it makes losses. */
#include <stdatomic.h>

#include "child.h"
#include "engine/engine.h"
#include "kernel/cpu/tile_rate.h"
#include "run/runs.h"
#include "run/skips.h"
#include "sanitized.h"

enum { BAD = 6 }; /* the step whose loss jumps, from 1 */

static struct {
    double add;  /* to the loss of step BAD */
    bool always; /* of every step from it on */
    int kill;    /* the nth time that a decision was written */
    int signal;  /* that comes then; 0: none */
    atomic_int decisions;
} plan;

bool __real_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);
bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);
bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r)
{
    bool bad = plan.always ? step + 1 >= BAD : step + 1 == BAD;
    if (bad && isnan(plan.add)) {
        engine_gradients(g, b, step, r);
        r->loss = NAN;
        return false;
    }
    bool finite = __real_engine_step(g, b, step, lr, r);
    if (bad) r->loss += plan.add;
    return finite;
}

int __real_skips_write(const char *dir, const struct skips_note *n, struct err *e);
int __wrap_skips_write(const char *dir, const struct skips_note *n, struct err *e);
int __wrap_skips_write(const char *dir, const struct skips_note *n, struct err *e)
{
    int rc = __real_skips_write(dir, n, e);
    if (plan.signal) kill(getpid(), plan.signal);
    if (plan.kill && atomic_fetch_add(&plan.decisions, 1) + 1 == plan.kill) raise(SIGKILL);
    return rc;
}

double __wrap_tile_rate_registers(const struct tile_ops *o, struct team *t);
double __wrap_tile_rate_registers(const struct tile_ops *o, struct team *t)
{
    (void)o;
    (void)t;
    return 1e12;
}

#define USUAL                                                                                                          \
    "model.layers=1", "checkpoint.incremental=false", "run.steps=9", "run.spike_window=3", "run.spike_deviations=8"
#define SPIKE USUAL, "run.on_spike=rewind"
#define NAN_BACK USUAL, "run.on_nan=rewind"

static struct trainer_result run(const struct folder *f, const char *name, int ranks, const char *const *keys)
{
    struct trainer_result r;
    struct err e;
    if (train_ranks(f, name, ranks, keys, &r, &e)) fail_msg("%s: %s", name, e.text);
    return r;
}

static void same_end(const struct folder *f, const char *a, const char *b, int ranks)
{
    for (int w = 0; w < ranks; w++) {
        char file[80];
        snprintf(file, sizeof file, "checkpoints/step-00000009/boxes-%05d.safetensors", w);
        same_file(f, a, b, file);
    }
}

/* Each step once, in order; the one that was left out says so, and the losses are those of the other run. */
static void same_losses(const struct folder *f, const char *a, const char *b)
{
    struct json *x[64], *y[64];
    int n = read_metrics(f, a, x, 64), m = read_metrics(f, b, y, 64);
    assert_int_equal(n, m);
    for (int i = 0; i < n; i++) {
        assert_int_equal(json_int(json_get(x[i], "step"), -1), i + 1);
        double p = json_real(json_get(x[i], "loss"), -1), q = json_real(json_get(y[i], "loss"), -1);
        if (i + 1 == BAD) {
            assert_int_equal(json_int(json_get(x[i], "skipped"), -1), 1);
            assert_string_equal(json_string(json_get(x[i], "skip_cause"), NULL, ""), "batch");
        } else {
            assert_true(p == q);
        }
        json_free(x[i]);
        json_free(y[i]);
    }
}

static void memory_key(const struct folder *f, char out[160])
{
    snprintf(out, 160, "checkpoint.memory_dir=%s/memory", f->dir);
}

static void averages(void **state)
{
    (void)state;
    struct skips s = {0};
    static const double losses[] = {4, 2, 5};
    for (int i = 0; i < 3; i++) {
        assert_false(skips_jumped(&s, 1e9, 1, 3));
        skips_learn(&s, losses[i], 3);
    }
    assert_true(s.mean == 4 && s.var == 1.5); /* of two their mean, then half of what is new */
    assert_true(skips_jumped(&s, 12, 6, 3));
    assert_false(skips_jumped(&s, 11, 6, 3));
    assert_false(skips_jumped(&s, -100, 6, 3)); /* lower is better */
    assert_false(skips_jumped(&s, 10, 6, 0));
    struct skips same = {0}; /* losses that never differ: rounding is no jump */
    for (int i = 0; i < 5; i++) skips_learn(&same, 2, 3);
    assert_false(skips_jumped(&same, 2 * (1 + 5e-3), 6, 3));
    assert_true(skips_jumped(&same, 2 * (1 + 7e-3), 6, 3));
    skips_learn(&s, NAN, 3);
    assert_int_equal(s.seen, 3);
    skips_add(&s, 7);
    skips_add(&s, 3);
    skips_add(&s, 7);
    assert_int_equal(s.n, 2);
    assert_true(s.step[0] == 3 && skips_has(&s, 7) && !skips_has(&s, 5));
    /* Through a manifest and back, to the bit. */
    struct str text = {0};
    struct json_out o = {.s = &text};
    json_begin_object(&o, NULL);
    skips_put(&s, &o);
    json_end_object(&o);
    struct json *v;
    struct err e;
    struct skips back = {0};
    assert_int_equal(json_parse(&v, str_text(&text), text.n, "extra", &e), OK);
    assert_int_equal(skips_take(&back, v, "extra", &e), OK);
    assert_true(back.n == 2 && back.seen == 3 && back.mean == s.mean && back.var == s.var);
    json_free(v);
    skips_free(&back);
    static const char *const bad[] = {"{\"skipped_steps\":[0]}", "{\"skipped_steps\":[\"x\"]}",
                                      "{\"loss_average\":{\"seen\":1,\"mean\":1}}",
                                      "{\"loss_average\":{\"seen\":1,\"mean\":1,\"variance\":-1}}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(json_parse(&v, bad[i], strlen(bad[i]), "extra", &e), OK);
        assert_int_equal(skips_take(&back, v, "extra", &e), ERR_CORRUPT);
        json_free(v);
        skips_free(&back);
    }
    str_free(&text);
    skips_free(&s);
}

static void goes_back_and_leaves_it_out(void **state)
{
    struct folder *f = *state;
    static const char *const layouts[][3] = {{"parallel.dp_shard=1", "parallel.zero=0", "batch.micro=2"},
                                             {"parallel.dp_shard=2", "parallel.zero=2", "batch.micro=2"},
                                             {"parallel.pp=2", "parallel.schedule=1f1b", "batch.micro=1"}};
    char memory[160];
    memory_key(f, memory);
    for (int k = 0; k<3; k += CASE_STRIDE> 1 ? 2 : 1) {
        int ranks = k ? 2 : 1, writers = ranks;
        const char *const *l = layouts[k];
        plan.add = 0;
        run(f, "by_hand", ranks, KEYS(SPIKE, "run.skip=[6]", "checkpoint.every=0", l[0], l[1], l[2]));
        plan.add = 1000; /* in memory, of every second step */
        run(f, "memory", ranks,
            KEYS(SPIKE, memory, "checkpoint.memory_every=2", "checkpoint.every=0", l[0], l[1], l[2]));
        same_end(f, "by_hand", "memory", writers);
        same_losses(f, "memory", "by_hand");
        /* on disk; and not finite */
        run(f, "disk", ranks, KEYS(SPIKE, "checkpoint.every=4", l[0], l[1], l[2]));
        same_end(f, "by_hand", "disk", writers);
        plan.add = NAN;
        run(f, "nan", ranks, KEYS(NAN_BACK, "run.on_spike=rewind", "checkpoint.every=3", l[0], l[1], l[2]));
        same_end(f, "by_hand", "nan", writers);
        same_losses(f, "nan", "by_hand");
        plan.add = 0;
        static const char *const names[] = {"by_hand", "memory", "disk", "nan"};
        for (int i = 0; i < 4; i++) {
            struct err e;
            char *path = fs_join(f->dir, names[i]);
            assert_int_equal(fs_remove_tree(path, &e), OK);
            xfree(path);
        }
    }
}

static int body(void *arg)
{
    struct trainer_result r;
    struct err e;
    return train_ranks(arg, "killed", 1, KEYS(SPIKE, "checkpoint.every=4"), &r, &e) ? 1 : 0;
}

static void killed_after_the_decision(void **state)
{
    struct folder *f = *state;
    plan.add = 0;
    run(f, "by_hand", 1, KEYS(SPIKE, "run.skip=[6]", "checkpoint.every=4"));
    plan.add = 1000;
    plan.kill = 1;
    assert_int_equal(child_end(body, f), -SIGKILL);
    plan.kill = 0;
    plan.add = 0; /* nothing jumps any more: only what was written keeps the batch out */
    struct trainer_result r = run(f, "killed", 1, KEYS(SPIKE, "checkpoint.every=4"));
    assert_int_equal(r.first_step, 4);
    same_end(f, "by_hand", "killed", 1);
    /* A line of which the end is missing decides nothing; one that is none is refused. */
    char path[200];
    struct err e;
    snprintf(path, sizeof path, "%s/killed/%s", f->dir, SKIPS_NAME);
    assert_int_equal(fs_write_atomic(path, "{\"step\":-3}\n", 12, &e), OK);
    assert_int_equal(train_ranks(f, "killed", 1, KEYS(SPIKE, "run.steps=10"), &r, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.text, "skips.jsonl:1"));
    assert_int_equal(fs_write_atomic(path, "{\"step\":1", 9, &e), OK);
    r = run(f, "killed", 1, KEYS(SPIKE, "run.steps=10"));
    assert_int_equal(r.steps, 10);
}

/* A signal between the decision and the first step of the run that was opened again: the data, the engine and the state
 * are there or not, nothing is saved of them, and the same command goes on as decided. */
static void signalled_while_it_goes_back(void **state)
{
    struct folder *f = *state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct trainer_result r;
        struct err e;
        char name[24], want[24];
        snprintf(name, sizeof name, "signalled%d", ranks);
        snprintf(want, sizeof want, "wanted%d", ranks);
        plan.add = 0;
        run(f, want, ranks, KEYS(SPIKE, "run.skip=[6]", "checkpoint.every=4"));
        plan.add = 1000;
        plan.signal = SIGTERM;
        int rc = train_ranks(f, name, ranks, KEYS(SPIKE, "checkpoint.every=4"), &r, &e);
        plan.signal = 0;
        plan.add = 0;
        if (rc != ERR_SIGNAL || !strstr(e.text, "opened again")) fail_msg("%d: %s", rc, e.text);
        assert_int_equal(r.signal, SIGTERM);
        r = run(f, name, ranks, KEYS(SPIKE, "checkpoint.every=4"));
        assert_int_equal(r.first_step, 4);
        same_end(f, want, name, ranks);
    }
}

static void stops_where_it_is_told_to(void **state)
{
    struct folder *f = *state;
    struct trainer_result r;
    struct err e;
    plan.add = 1000;
    assert_int_equal(train_ranks(f, "stop", 1, KEYS(USUAL, "run.on_spike=stop", "checkpoint.every=4"), &r, &e),
                     ERR_NUMERIC);
    if (!strstr(e.text, "step 6: loss 100") || !strstr(e.text, "the newest checkpoint is of step 4"))
        fail_msg("%s", e.text);
    run(f, "ignored", 1, KEYS(USUAL, "checkpoint.every=4"));
    /* Nothing to go back to; and as often as it may. */
    assert_int_equal(train_ranks(f, "nothing", 1, KEYS(SPIKE, "checkpoint.every=0"), &r, &e), ERR_NUMERIC);
    if (!strstr(e.text, "checkpoint.memory_every")) fail_msg("%s", e.text);
    plan.always = true;
    plan.add = NAN;
    assert_int_equal(train_ranks(f, "often", 1,
                                 KEYS(NAN_BACK, "run.rewinds=2", "run.skip=[2, 2]", "checkpoint.every=4"), &r, &e),
                     ERR_NUMERIC);
    if (!strstr(e.text, "step 8: ") || !strstr(e.text, "2 steps were left out")) fail_msg("%s", e.text);
    plan.always = false;
    plan.add = 0;
    assert_int_equal(train_ranks(f, "server", 2, KEYS(SPIKE, "parallel.servers=1"), &r, &e), ERR_REQUEST);
    if (!strstr(e.text, "run.on_spike")) fail_msg("%s", e.text);
}

static int set_up(void **state)
{
    static struct folder f;
    char path[160];
    folder_open(&f);
    snprintf(path, sizeof path, "%s/memory", f.dir);
    *state = &f;
    return mkdir(path, 0700);
}

static int tear_down(void **state)
{
    folder_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages),
        cmocka_unit_test(goes_back_and_leaves_it_out),
        cmocka_unit_test(killed_after_the_decision),
        cmocka_unit_test(signalled_while_it_goes_back),
        cmocka_unit_test(stops_where_it_is_told_to),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
