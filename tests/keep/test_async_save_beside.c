/* SPDX-License-Identifier: Apache-2.0 */
/* suite: alone */
/* suite: long addresses */
/* Checkpoints that are written beside the steps: the bytes of those that all wait for, in every layout; steps go on
 * while a disk is slow; the next one waits or is left out; failures are told and tried again; what is planned is what
 * is allocated. write(2) is defined here, in front of the C library's. */
#include "runs.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "checkpoint/ckpt.h"
#include "site/site.h"
#include "state/snapshot.h"

static struct {
    char part[48];             /* of the path of what is slow, or cannot be written; "": nothing */
    atomic_int lines;          /* of metrics.jsonl so far */
    int until_lines;           /* writes of `part` wait for so many */
    atomic_int begun;          /* a write of `part` did */
    atomic_int waited, failed; /* writes that found fewer; writes that failed */
    atomic_int fail;           /* so many more fail */
    atomic_int after_ms;       /* the first write of `part` takes so much longer */
} disk;

static bool names(int fd, const char *part)
{
    char link[40], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return strstr(path, part) != NULL;
}

ssize_t write(int fd, const void *p, size_t n)
{
    if (fd > 2 && *disk.part && names(fd, disk.part)) {
        atomic_store(&disk.begun, 1);
        if (atomic_load(&disk.lines) < disk.until_lines) atomic_fetch_add(&disk.waited, 1);
        while (atomic_load(&disk.lines) < disk.until_lines) clock_sleep_s(1e-3);
        clock_sleep_s(atomic_exchange(&disk.after_ms, 0) * 1e-3);
        if (atomic_fetch_sub(&disk.fail, 1) > 0) {
            atomic_fetch_add(&disk.failed, 1);
            errno = ENOSPC;
            return -1;
        }
    }
    if (fd > 2 && *disk.part && names(fd, "metrics.jsonl")) {
        /* The line that is waited for comes when somebody waits: a machine may start the thread that writes late. */
        bool last = disk.until_lines > 1 && atomic_load(&disk.lines) == disk.until_lines - 1;
        while (last && !atomic_load(&disk.begun)) clock_sleep_s(1e-3);
        atomic_fetch_add(&disk.lines, 1);
    }
    return syscall(SYS_write, fd, p, n);
}

static void disk_is(const char *part, int until_lines, int fail)
{
    atomic_store(&disk.lines, 0);
    atomic_store(&disk.begun, 0);
    atomic_store(&disk.waited, 0);
    atomic_store(&disk.failed, 0);
    atomic_store(&disk.fail, fail);
    disk.until_lines = until_lines;
    snprintf(disk.part, sizeof disk.part, "%s", part);
}

static bool has_step(const struct folder *f, const char *name, int step)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/checkpoints/step-%08d/manifest.json", f->dir, name, step);
    return fs_exists(path);
}

static void train_n(const struct folder *f, const char *name, int ranks, const char *const *keys)
{
    struct trainer_result r;
    struct err e;
    if (train_ranks(f, name, ranks, keys, &r, &e)) fail_msg("%s: %s", name, e.text);
    assert_int_equal(r.steps, 8);
}

/* Every file with tensors of every checkpoint. */
static void same_boxes(const struct folder *f, const char *a, const char *b, int least)
{
    int found = 0;
    for (int step = 1; step <= 8; step++)
        for (int k = 0; k < 8; k++) {
            char file[128], path[256];
            snprintf(file, sizeof file, "checkpoints/step-%08d/boxes-%05d.safetensors", step, k);
            snprintf(path, sizeof path, "%s/%s/%s", f->dir, a, file);
            if (!fs_exists(path)) continue;
            same_file(f, a, b, file);
            found++;
        }
    if (found < least) fail_msg("%d files, wanted %d", found, least);
}

static void test_same_bytes(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *key[3];
    } rows[] = {
        {1, {"precision.recipe=bf16", "optimizer.name=adamw"}},
        {2, {"parallel.zero=3", "precision.recipe=bf16", "optimizer.name=muon"}},
        {2, {"parallel.dp_replicate=2", "precision.recipe=fp8-delayed"}},
        {4, {"parallel.zero=1", "parallel.pp=2", "optimizer.moments=8bit"}},
        {2, {"parallel.servers=1", "memory.offload=[]"}},
        {1, {"memory.offload=[optimizer,master]", "precision.recipe=bf16"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct folder f;
        folder_open(&f);
        const char *x = rows[i].key[0], *y = rows[i].key[1] ? rows[i].key[1] : x,
                   *z = rows[i].key[2] ? rows[i].key[2] : x;
        train_n(&f, "now", rows[i].ranks, KEYS("checkpoint.every=3", x, y, z));
        train_n(&f, "beside", rows[i].ranks, KEYS("checkpoint.every=3", "checkpoint.async=true", x, y, z));
        same_boxes(&f, "now", "beside", 3);
        folder_close(&f);
    }
}

/* Step 2's file waits for the line of step `until`. */
static void test_busy(void **state)
{
    (void)state;
    for (int skip = 0; skip < 2; skip++)
        for (int ranks = 1; ranks <= 2; ranks++) {
            struct folder f;
            folder_open(&f);
            train_n(&f, "now", ranks, KEYS("checkpoint.every=2", "checkpoint.keep=0", "parallel.zero=1"));
            disk_is(ranks == 1 ? "step-00000002/boxes-00000.s" : "step-00000002/boxes-00001.s", skip ? 5 : 3, 0);
            train_n(&f, "run", ranks,
                    KEYS("checkpoint.every=2", "checkpoint.keep=0", "checkpoint.async=true", "parallel.zero=1",
                         skip ? "checkpoint.busy=skip" : "checkpoint.busy=wait"));
            int waited = atomic_load(&disk.waited);
            disk_is("", 0, 0);
            assert_true(waited > 0); /* steps went on while it was written */
            for (int step = 2; step <= 8; step += 2)
                if (has_step(&f, "run", step) != !(skip && step == 4) && !(skip && step == 6))
                    fail_msg("skip %d: step %d", skip, step);
            same_boxes(&f, "run", "now", 2 * ranks); /* of that step, however many updates passed meanwhile */
            folder_close(&f);
        }
}

/* What an evaluation finds best is never left out: its save waits for the one under way. */
static void test_the_best_waits(void **state)
{
    (void)state;
    struct folder f;
    char valid[128];
    folder_open(&f);
    snprintf(valid, sizeof valid, "data.valid=%s", f.text);
    disk_is("step-00000002/boxes-00000.s", 5, 0); /* two steps, a validation, two steps */
    atomic_store(&disk.after_ms, 300);
    train_n(&f, "run", 1,
            KEYS("checkpoint.every=2", "checkpoint.keep=0", "checkpoint.async=true", "checkpoint.busy=skip",
                 "checkpoint.best=eval_loss", "run.eval_every=2", "run.eval_batches=1", valid));
    int waited = atomic_load(&disk.waited);
    disk_is("", 0, 0);
    assert_true(waited > 0);
    struct json *line[64];
    size_t n_text;
    char *text = read_file(&f, "run", "metrics.jsonl", &n_text);
    assert_contains(text, "\"step\":4,\"valid_loss\"");
    xfree(text);
    int n = read_metrics(&f, "run", line, 64), best = 0;
    for (int i = 0; i < n; i++) {
        int step = (int)json_int(json_get(line[i], "step"), -1);
        if (json_bool(json_get(line[i], "best"), false)) {
            if (!has_step(&f, "run", step)) fail_msg("step %d is the best so far, and was not saved", step);
            best++;
        }
        json_free(line[i]);
    }
    assert_true(best > 2);
    folder_close(&f);
}

/* What was the best when its save began, and could not be written, is no best: the checkpoints behind it do not name
 * it.
 */
static void test_the_best_is_not_saved(void **state)
{
    (void)state;
    struct folder f;
    char valid[128];
    size_t bytes;
    struct json *manifest;
    struct err e;
    folder_open(&f);
    snprintf(valid, sizeof valid, "data.valid=%s", f.text);
    disk_is("step-00000004/boxes-00000.s", 0, 1);
    train_n(&f, "run", 1,
            KEYS("checkpoint.every=1", "checkpoint.keep=0", "checkpoint.async=true", "checkpoint.retry_s=0",
                 "checkpoint.best=eval_loss", "run.eval_every=4", "run.eval_batches=1", valid));
    int failed = atomic_load(&disk.failed);
    disk_is("", 0, 0);
    assert_int_equal(failed, 1);
    assert_true(!has_step(&f, "run", 4) && has_step(&f, "run", 5));
    for (int step = 5; step <= 8; step += 3) {
        char file[80];
        snprintf(file, sizeof file, "checkpoints/step-%08d/manifest.json", step);
        char *text = read_file(&f, "run", file, &bytes);
        if (json_parse(&manifest, text, bytes, file, &e)) fail_msg("%s", e.text);
        const struct json *best = json_get(json_get(manifest, "extra"), "best");
        int64_t named = best ? json_int(json_get(best, "step"), -1) : -1;
        if (named != (step == 5 ? -1 : 8)) fail_msg("step %d names %lld as the best", step, (long long)named);
        json_free(manifest);
        xfree(text);
    }
    folder_close(&f);
}

/* A disk that is full for a while: told, tried again with the state of then, and the last steps are saved. */
static void test_full(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
#define BESIDE "checkpoint.every=2", "checkpoint.keep=1", "checkpoint.retry_s=0", "checkpoint.async=true"
    train_n(&f, "want", 1, KEYS("checkpoint.every=2"));
    for (int ranks = 1; ranks <= 2; ranks++) {
        disk_is(ranks == 1 ? "boxes-00000" : "boxes-00001", 0, 3);
        train_n(&f, ranks == 1 ? "one" : "two", ranks, KEYS(BESIDE, "parallel.zero=1"));
        int failed = atomic_load(&disk.failed);
        disk_is("", 0, 0);
        assert_int_equal(failed, 3);
    }
    same_file(&f, "want", "one", "checkpoints/step-00000008/boxes-00000.safetensors");
    disk_is("boxes-", 0, 1000);
    int rc = train(&f, "never", KEYS(BESIDE, "checkpoint.retries=2", "run.steps=100"), &r, &e);
    int failed = atomic_load(&disk.failed);
    disk_is("", 0, 0);
    assert_int_equal(rc, ERR_IO);
    assert_int_equal(failed, 3);
    assert_contains(e.text, "No space left on device");
    assert_contains(e.text, "that was try 3, the last");
    assert_contains(e.text, "no earlier one was published");
    folder_close(&f);
}

/* The publishing fails: manifest.json finds no room. */
static void test_publishing_fails(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    disk_is("step-00000002/manifest", 0, 1);
    train_n(&f, "run", 2, KEYS(BESIDE, "parallel.zero=1"));
    int failed = atomic_load(&disk.failed);
    disk_is("", 0, 0);
    assert_int_equal(failed, 1);
    assert_true(!has_step(&f, "run", 2) && has_step(&f, "run", 8));
    folder_close(&f);
}

/* A run that goes wrong behind a save ends with the checkpoint that was being written. */
static void test_not_finite_while_saving(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *name = ranks == 1 ? "one" : "two";
        train_n(&f, name, ranks, KEYS("checkpoint.every=0"));
        disk_is("step-00000009/boxes", 1, 0);
        int rc = train_ranks(&f, name, ranks,
                             KEYS("checkpoint.every=9", "checkpoint.async=true", "run.steps=40", "optimizer.lr=6000",
                                  "optimizer.clip=0", "optimizer.schedule.warmup_steps=0", "run.compare_every=0"),
                             &r, &e);
        disk_is("", 0, 0);
        if (rc != ERR_NUMERIC) fail_msg("code %d: %s", rc, e.text);
        assert_contains(e.text, "is of step 9");
        assert_true(has_step(&f, name, 9));
    }
    folder_close(&f);
}

/* After so many seconds: rank 0's clock decides for all. */
static void test_by_time(void **state)
{
    (void)state;
    for (int beside = 0; beside < 2; beside++) {
        struct folder f;
        folder_open(&f);
        train_n(&f, "run", 2,
                KEYS("checkpoint.every=0", "checkpoint.every_s=1e-9", "checkpoint.keep=0",
                     beside ? "checkpoint.async=true" : "checkpoint.async=false"));
        int n = 0;
        for (int step = 1; step <= 8; step++) n += has_step(&f, "run", step);
        if (n < (beside ? 2 : 8)) fail_msg("%d checkpoints", n);
        assert_true(has_step(&f, "run", 8));
        train_n(&f, "none", 1, KEYS("checkpoint.every=0", "checkpoint.every_s=1e6", "checkpoint.keep=0"));
        for (int step = 1; step <= 8; step++) assert_int_equal(has_step(&f, "none", step), step == 8);
        folder_close(&f);
    }
}

/* What is planned is what is allocated, of every rank; a rank that writes nothing has no room. */
struct among {
    const struct config *c;
    const char *keys;
};

static int compare_rank(struct comm *world, void *arg, struct err *e)
{
    const struct among *x = arg;
    const struct comm_config link = config_comm(x->c);
    struct site works, paper = {0};
    int rc = site_open(&works, &(struct site_config){.config = x->c, .world = world}, e);
    if (rc) return rc;
    rc = site_open(&paper,
                   &(struct site_config){.config = x->c,
                                         .kind = SITE_COUNTS,
                                         .rank = comm_rank(world),
                                         .n = comm_size(world),
                                         .link = &link},
                   e);
    for (int c = 0; c < MEM_N && !rc; c++)
        if (works.dev->ledger.at_peak[c] != paper.dev->ledger.at_peak[c])
            rc = err_set(e, ERR_REQUEST, "%s: rank %d, %s: planned %zu, allocated %zu", x->keys, comm_rank(world),
                         mem_cat_name((enum mem_cat)c), paper.dev->ledger.at_peak[c], works.dev->ledger.at_peak[c]);
    size_t room = works.dev->ledger.now[MEM_HOST];
    if (!rc && (room > 0) != works.ranks.writes)
        rc = err_set(e, ERR_REQUEST, "%s: rank %d: %zu bytes", x->keys, comm_rank(world), room);
    if (!rc && works.ranks.writes) { /* taken and given back: the same, and nothing else */
        struct engine *g = works.engine;
        void *other = mem_pages_new(room + 1);
        engine_init(g);
        rc = snapshot_take(&g->snapshot, &g->store, g->stream, g->snapshot_room.p, e);
        memset(other, 0, room);
        snapshot_give(&g->snapshot, &g->store, g->stream, g->snapshot_room.p);
        if (!rc) rc = snapshot_take(&g->snapshot, &g->store, g->stream, other, e);
        if (!rc && memcmp(other, g->snapshot_room.p, room))
            rc = err_set(e, ERR_REQUEST, "%s: came back changed", x->keys);
        mem_pages_free(other, room + 1);
    }
    if (paper.dev) site_close(&paper);
    rc = comm_agree(world, rc, e);
    site_close(&works);
    return rc;
}

static void test_planned(void **state)
{
    (void)state;
    static const char *const layout[] = {"parallel.zero=0", "parallel.zero=3", "parallel.pp=2", "parallel.tp=2",
                                         "parallel.dp_replicate=2"};
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        char *keys[] = {"model.layers=2",        "model.hidden=32",
                        "model.heads=4",         "model.ffn=44",
                        "model.seq_len=16",      "batch.global=4",
                        "batch.micro=1",         "run.threads=1",
                        "checkpoint.async=true", (char *)(uintptr_t)layout[i]};
        struct config c;
        struct conf *f;
        struct err e;
        struct arena *arena = arena_new();
        if (config_load(&c, &f, arena, NULL, keys, sizeof keys / sizeof *keys, &e)) fail_msg("%s", e.text);
        c.model.vocab = 300;
        if (config_resolve(&c, f, 300, 2, &e)) fail_msg("%s", e.text);
        if (comm_run_local(2, NULL, compare_rank, &(struct among){&c, layout[i]}, &e)) fail_msg("%s", e.text);
        arena_free(arena);
    }
}

int main(void)
{
    setenv("LOG", "error", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),     cmocka_unit_test(test_busy),
        cmocka_unit_test(test_the_best_waits), cmocka_unit_test(test_the_best_is_not_saved),
        cmocka_unit_test(test_full),           cmocka_unit_test(test_publishing_fails),
        cmocka_unit_test(test_by_time),        cmocka_unit_test(test_not_finite_while_saving),
        cmocka_unit_test(test_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
