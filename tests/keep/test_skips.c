/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* suite: wraps engine_step skips_write ckpt_save_rank tile_rate_registers signals_open */
/* A loss that jumps, or is not finite: the run goes back to its newest checkpoint and leaves the batch out, with the
 * bits of a run that was told by hand to leave it out, in memory or on disk, and also when it is killed between the
 * decision and what follows from it. The linker puts this file before the step (--wrap), where it makes losses. */
#include <stdatomic.h>

#include "base/clock.h"
#include "checkpoint/ckpt.h"
#include "child.h"
#include "engine/engine.h"
#include "runs.h"
#include "told_rate.h"
#include "keep/skips.h"
#include "train/signals.h"
#include "sanitized.h"

enum { BAD = 6 }; /* the step whose loss jumps, from 1 */

static struct {
    double add;      /* to the loss of step BAD */
    bool always;     /* of every step from it on */
    int64_t again;   /* another step whose loss jumps; 0: none */
    int64_t dies_at; /* the process is killed before this step, from 1; 0: never */
    int kill;        /* the nth time that a decision was written */
    int signal;      /* that comes then; 0: none */
    int64_t slow;    /* files of this step are written once step BAD was begun; 0: as fast as they are */
    atomic_int decisions;
    atomic_int began;   /* step BAD was */
    atomic_llong next;  /* the first step that is computed after a decision, from 1; 0: none yet */
    atomic_int expects; /* a decision was written, and `next` is to be known */
} plan;

bool __real_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);
bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);
bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r)
{
    bool bad = plan.always ? step + 1 >= BAD : step + 1 == BAD || step + 1 == plan.again;
    if (plan.dies_at && step + 1 == plan.dies_at) raise(SIGKILL);
    if (step + 1 == BAD) atomic_store(&plan.began, 1);
    if (atomic_exchange(&plan.expects, 0)) atomic_store(&plan.next, step + 1);
    if (bad && isnan(plan.add)) {
        engine_gradients(g, b, step, r);
        r->loss = NAN;
        return false;
    }
    bool finite = __real_engine_step(g, b, step, lr, r);
    if (bad) r->loss += plan.add;
    return finite;
}

static struct signals *signals; /* of the run that is */

int __real_signals_open(struct signals **s, struct err *e);
int __wrap_signals_open(struct signals **s, struct err *e);
int __wrap_signals_open(struct signals **s, struct err *e)
{
    int rc = __real_signals_open(s, e);
    signals = rc ? NULL : *s;
    return rc;
}

int __real_skips_write(const char *dir, const struct skips_note *n, struct err *e);
int __wrap_skips_write(const char *dir, const struct skips_note *n, struct err *e);
int __wrap_skips_write(const char *dir, const struct skips_note *n, struct err *e)
{
    int rc = __real_skips_write(dir, n, e);
    atomic_store(&plan.expects, 1);
    if (plan.signal) kill(getpid(), plan.signal);
    while (plan.signal && !signals_stop_wanted(signals)) clock_sleep_s(1e-3); /* until the watcher was on a core */
    if (plan.kill && atomic_fetch_add(&plan.decisions, 1) + 1 == plan.kill) raise(SIGKILL);
    return rc;
}

int __real_ckpt_save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n,
                          struct err *e);
int __wrap_ckpt_save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n,
                          struct err *e);
int __wrap_ckpt_save_rank(const char *root, int64_t step, int rank, const struct ckpt_tensor *t, int64_t n,
                          struct err *e)
{
    bool slow = plan.slow && step == plan.slow;
    while (slow && !atomic_load(&plan.began)) clock_sleep_s(1e-3);
    return __real_ckpt_save_rank(root, step, rank, t, n, e);
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
    same_boxes_of(f, a, b, 9, ranks);
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

/* The last decision of a run: the step that it went back to. */
static int64_t went_back_to(const struct folder *f, const char *name)
{
    size_t n;
    struct err e;
    struct json *v;
    char *text = read_file(f, name, SKIPS_NAME, &n), *last = text;
    for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) last = p;
    if (json_parse(&v, last, strcspn(last, "\n"), SKIPS_NAME, &e)) fail_msg("%s", e.text);
    int64_t step = json_int(json_get(v, "back_to"), -2);
    json_free(v);
    xfree(text);
    return step;
}

static void memory_key(const struct folder *f, char out[160])
{
    snprintf(out, 160, "checkpoint.memory_dir=%s/room", f->dir);
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

/* Of what is in memory and what is on disk the newer one is gone back to, whichever of the two it is: the state is the
 * same in the end from any of them, so what is compared is the step that is computed next, and what was written down.
 */
static void goes_back_to_the_newest(void **state)
{
    struct folder *f = *state;
    static const struct {
        const char *memory_every, *every;
        int64_t newest, next;
    } rows[] = {
        {"checkpoint.memory_every=2", "checkpoint.every=5", 5, BAD + 1},
        {"checkpoint.memory_every=5", "checkpoint.every=4", 5, BAD + 1},
        {"checkpoint.memory_every=4", "checkpoint.every=3", 4, 5},
        {"checkpoint.memory_every=3", "checkpoint.every=4", 4, 5},
    };
    char memory[160];
    memory_key(f, memory);
    plan.add = 1000;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int ranks = 1 + (int)i / 2;
        atomic_store(&plan.next, 0);
        run(f, "newest", ranks, KEYS(SPIKE, memory, rows[i].memory_every, rows[i].every));
        if (atomic_load(&plan.next) != rows[i].next || went_back_to(f, "newest") != rows[i].newest)
            fail_msg("%s, %s: it wrote that it went back to step %lld, and computed step %lld next",
                     rows[i].memory_every, rows[i].every, (long long)went_back_to(f, "newest"),
                     (long long)atomic_load(&plan.next));
        forget_run(f, "newest");
    }
    plan.add = 0;
}

/* A checkpoint that is still being written when the loss jumps is the newest one: it is waited for. */
static void goes_back_to_what_is_being_written(void **state)
{
    struct folder *f = *state;
    plan.add = 1000;
    for (int ranks = 1; ranks <= 2; ranks++) {
        plan.slow = 5;
        atomic_store(&plan.began, 0);
        atomic_store(&plan.next, 0);
        run(f, "slow", ranks, KEYS(SPIKE, "checkpoint.every=5", "checkpoint.async=true", "parallel.zero=1"));
        plan.slow = 0;
        assert_int_equal(went_back_to(f, "slow"), 5);
        assert_int_equal(atomic_load(&plan.next), BAD + 1);
        forget_run(f, "slow");
    }
    plan.add = 0;
}

/* What another run of the same run.dir left out, this one computes: one that begins anew, and one that goes on from a
 * checkpoint elsewhere. */
static void of_another_run(void **state)
{
    struct folder *f = *state;
    static const char line[] = "{\"step\":3}\n";
    struct err e;
    char path[200], from[200];
    plan.add = 0;
    run(f, "elsewhere", 1, KEYS(USUAL, "run.steps=2"));
    snprintf(from, sizeof from, "checkpoint.resume=%s/elsewhere/checkpoints/step-00000002", f->dir);
    snprintf(path, sizeof path, "%s/dir/%s", f->dir, SKIPS_NAME);
    for (int i = 0; i < 3; i++) {
        const char *how = i == 0 ? "checkpoint.resume=auto" : i == 1 ? "checkpoint.resume=never" : from;
        struct json *v[64];
        if (i) run(f, "dir", 1, KEYS(USUAL, "run.steps=4"));
        else {
            char *dir = fs_join(f->dir, "dir");
            assert_int_equal(fs_mkdirs(dir, &e), OK);
            xfree(dir);
        }
        assert_int_equal(fs_write_atomic(path, line, sizeof line - 1, &e), OK);
        run(f, "dir", 1, KEYS(USUAL, how));
        if (fs_exists(path)) fail_msg("%s: another run's %s stayed", how, SKIPS_NAME);
        int n = read_metrics(f, "dir", v, 64), computed = 0;
        for (int k = 0; k < n; k++) {
            computed += json_int(json_get(v[k], "step"), -1) == 3 && json_int(json_get(v[k], "skipped"), 0) == 0;
            json_free(v[k]);
        }
        if (computed != 1) fail_msg("%s: step 3 was computed %d times", how, computed);
        forget_run(f, "dir");
    }
    /* Its own are kept by one that goes on from its own checkpoint. */
    run(f, "dir", 1, KEYS(USUAL, "run.steps=2", "checkpoint.every=2"));
    assert_int_equal(fs_write_atomic(path, line, sizeof line - 1, &e), OK);
    run(f, "dir", 1, KEYS(USUAL));
    assert_true(fs_exists(path));
    struct json *v[64];
    int n = read_metrics(f, "dir", v, 64), left_out = 0;
    for (int k = 0; k < n; k++) {
        left_out += json_int(json_get(v[k], "step"), -1) == 3 && json_int(json_get(v[k], "skipped"), 0) == 1;
        json_free(v[k]);
    }
    assert_int_equal(left_out, 1);
    forget_run(f, "dir");
}

static int killed_with_memory(void *arg)
{
    struct trainer_result r;
    struct err e;
    char memory[160];
    memory_key(arg, memory);
    return train_ranks(arg, "carried", 1,
                       KEYS(SPIKE, memory, "checkpoint.memory_every=2", "checkpoint.every=0", "run.skip=[2]"), &r, &e)
               ? 1
               : 0;
}

/* What is in memory has the averages, so that a loss that jumps soon after is seen, and the steps that were left out.
 */
static void memory_carries_them(void **state)
{
    struct folder *f = *state;
    struct json *v[64];
    char memory[160];
    memory_key(f, memory);
    plan.add = 1000;
    plan.again = 8; /* after two steps that count: a window of three is only full with those before */
    run(f, "averages", 1, KEYS(SPIKE, memory, "checkpoint.memory_every=4", "checkpoint.every=0"));
    plan.again = 0;
    int n = read_metrics(f, "averages", v, 64), left_out = 0;
    for (int i = 0; i < n; i++) {
        left_out += json_int(json_get(v[i], "skipped"), 0) == 1;
        json_free(v[i]);
    }
    assert_int_equal(left_out, 2);
    plan.add = 0;
    plan.dies_at = 5; /* 4 is in memory */
    assert_int_equal(child_end(killed_with_memory, f), -SIGKILL);
    plan.dies_at = 0;
    struct trainer_result r =
        run(f, "carried", 1, KEYS(SPIKE, memory, "checkpoint.memory_every=2", "checkpoint.every=0"));
    assert_int_equal(r.first_step, 4);
    size_t bytes;
    char *text = read_file(f, "carried", "checkpoints/step-00000009/manifest.json", &bytes);
    struct json *manifest;
    struct err e;
    struct skips s = {0};
    if (json_parse(&manifest, text, bytes, "manifest", &e)) fail_msg("%s", e.text);
    if (skips_take(&s, json_get(manifest, "extra"), "manifest", &e)) fail_msg("%s", e.text);
    if (s.n != 1 || s.step[0] != 2 || s.seen != 8)
        fail_msg("%lld left out, %lld seen", (long long)s.n, (long long)s.seen);
    skips_free(&s);
    json_free(manifest);
    xfree(text);
    forget_run(f, "averages");
    forget_run(f, "carried");
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
    snprintf(path, sizeof path, "%s/room", f.dir);
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
        cmocka_unit_test(goes_back_to_the_newest),
        cmocka_unit_test(goes_back_to_what_is_being_written),
        cmocka_unit_test(of_another_run),
        cmocka_unit_test(memory_carries_them),
        cmocka_unit_test(stops_where_it_is_told_to),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
