/* SPDX-License-Identifier: Apache-2.0 */
/* suite: alone */
/* suite: devices untouchable */
/* A disk that is full for a while, or for good, and a state that is not worth saving: training goes on and the save is
 * tried again; the last good checkpoint stays the newest whatever happens. write(2) is defined here, in front of the C
 * library's. */
#include "runs.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "checkpoint/ckpt.h"
#include "engine/health.h"

static struct {
    char part[40];     /* of the path of what cannot be written; "": none */
    atomic_llong fail; /* so many writes fail */
} disk;

static bool is_full(int fd)
{
    char link[40], path[512];
    if (!*disk.part) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return false;
    path[n] = 0;
    if (!strstr(path, disk.part)) return false;
    return atomic_fetch_sub(&disk.fail, 1) > 0;
}

ssize_t write(int fd, const void *p, size_t n)
{
    if (fd > 2 && is_full(fd)) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, fd, p, n);
}

static void disk_full(const char *part, long long fail)
{
    snprintf(disk.part, sizeof disk.part, "%s", part);
    atomic_store(&disk.fail, fail);
}

static bool has_step(const struct folder *f, const char *name, int step)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/checkpoints/step-%08d/manifest.json", f->dir, name, step);
    return fs_exists(path);
}

#define FEW "checkpoint.every=2", "checkpoint.keep=1", "checkpoint.retry_s=0"

/* Three tries fail: the run trains on, has all its steps and lines, and ends with the weights it would have had. */
static void test_full_for_a_while(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    train_ok(&f, "want", KEYS(FEW));
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *name = ranks == 1 ? "one" : "two";
        disk_full(ranks == 1 ? "boxes-00000" : "boxes-00001", 3);
        int rc = train_ranks(&f, name, ranks, KEYS(FEW, "parallel.zero=1"), &r, &e);
        long long left = atomic_load(&disk.fail);
        disk_full("", 0);
        if (rc) fail_msg("%s", e.text);
        assert_true(left <= 0); /* all three were met */
        assert_int_equal(r.steps, 8);
        assert_true(has_step(&f, name, 8));
        struct json *line[64];
        int n = read_metrics(&f, name, line, 64);
        assert_int_equal(n, 8);
        for (int i = 0; i < n; i++) json_free(line[i]);
    }
    same_file(&f, "want", "one", "checkpoints/step-00000008/boxes-00000.safetensors");
    folder_close(&f);
}

/* At the end of a run there is nothing to do but wait. */
static void test_full_at_the_end(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    disk_full("checkpoints/", 20);
    int rc = train(&f, "run", KEYS("checkpoint.every=0", "checkpoint.retry_s=0.01", "checkpoint.retries=1000"), &r, &e);
    long long left = atomic_load(&disk.fail);
    disk_full("", 0);
    if (rc) fail_msg("%s", e.text);
    assert_true(left <= 0); /* all were met, and waited for */
    assert_true(has_step(&f, "run", 8));
    folder_close(&f);
}

/* Full for good: the run ends with the reason, after as many tries as the key says, and the checkpoint before is
 * whole. */
static void test_full_for_good(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    train_ok(&f, "run", KEYS(FEW, "run.steps=2"));
    disk_full("boxes-", 1000);
    assert_int_equal(train(&f, "run", KEYS(FEW, "checkpoint.retries=4", "run.steps=100"), &r, &e), ERR_IO);
    long long met = 1000 - atomic_load(&disk.fail);
    disk_full("", 0);
    assert_int_equal(met, 5);
    assert_contains(e.text, "No space left on device");
    assert_contains(e.text, "that was try 5, the last");
    assert_contains(e.text, "is intact: ");
    assert_contains(e.text, "step-00000002");
    assert_int_equal(train_ok(&f, "run", KEYS(FEW)).first_step, 2);
    folder_close(&f);
}

/* Lines that find no room wait and follow. */
static void test_metrics_wait_for_room(void **state)
{
    (void)state;
    struct folder f;
    struct json *line[64];
    folder_open(&f);
    disk_full("metrics.jsonl", 5);
    train_ok(&f, "run", NULL);
    disk_full("", 0);
    int n = read_metrics(&f, "run", line, 64);
    assert_int_equal(n, 8);
    for (int i = 0; i < n; i++) {
        assert_int_equal(json_int(json_get(line[i], "step"), -1), i + 1);
        json_free(line[i]);
    }
    folder_close(&f);
}

/* A step whose loss and norm are finite, and whose weights are absurd: not published, and the good checkpoint stays
 * with keep=1. */
static void test_diverged(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    train_ok(&f, "run", KEYS("checkpoint.every=1", "checkpoint.keep=1", "run.steps=3"));
    for (int ranks = 1; ranks <= 2; ranks++) {
        int rc = train_ranks(&f, "run", ranks,
                             KEYS("checkpoint.every=1", "checkpoint.keep=1", "optimizer.lr=1.0e+6", "parallel.zero=1",
                                  "optimizer.schedule.warmup_steps=0"),
                             &r, &e);
        if (rc != ERR_NUMERIC) fail_msg("code %d: %s", rc, e.text);
        assert_contains(e.text, "step 4 was not saved");
        assert_contains(e.text, "have diverged");
        assert_contains(e.text, "the last one is of step 3");
        assert_contains(e.text, "optimizer.lr");
        assert_true(has_step(&f, "run", 3) && !has_step(&f, "run", 4));
    }
    assert_int_equal(train_ok(&f, "run", KEYS("run.steps=4")).first_step, 3);
    folder_close(&f);
}

/* One bad number anywhere in weights or moments is found and named. */
static void test_health(void **state)
{
    (void)state;
    struct engine_config c = toy_config(MODEL_LLAMA, DT_BF16);
    struct toy t;
    struct err e;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    toy_open(&t, &c);
    assert_int_equal(health_check(t.g, &e), OK);
    for (int what = 0; what < 3; what++)
        for (int i = 0; i < t.g->params.n; i++) {
            float *p = device_here(store_piece_ptr(&t.g->store, i, what ? STORE_ROWS + what - 1 : STORE_MASTER));
            int64_t n = t.g->store.units.piece[i].n, at = (i * 37 + what * 11) % n;
            float was = p[at];
            p[at] = bad[(i + what) % 3];
            if (health_check(t.g, &e) != ERR_NUMERIC) fail_msg("%s, %d: not seen", t.g->params.p[i].name, what);
            assert_contains(e.text, t.g->params.p[i].name);
            assert_contains(e.text, "not finite");
            p[at] = what ? 1e9f : 30;
            if (health_check(t.g, &e)) fail_msg("%s", e.text); /* one large number is no reason */
            p[at] = was;
        }
    float *p = device_here(store_piece_ptr(&t.g->store, 0, STORE_MASTER));
    for (int64_t i = 0; i < t.g->store.units.piece[0].n; i++) p[i] = i & 1 ? 2e4f : -2e4f;
    assert_int_equal(health_check(t.g, &e), ERR_NUMERIC);
    assert_contains(e.text, "diverged");
    toy_close(&t);
}

int main(void)
{
    setenv("LOG", "error", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_for_a_while), cmocka_unit_test(test_full_at_the_end),
        cmocka_unit_test(test_full_for_good),    cmocka_unit_test(test_metrics_wait_for_room),
        cmocka_unit_test(test_diverged),         cmocka_unit_test(test_health),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
