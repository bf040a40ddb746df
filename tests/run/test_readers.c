/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that hold the same read it once: a checkpoint that is resumed by many ranks is read about once, whoever wrote
 * it, and goes on with the numbers that one rank goes on with. The linker puts this file between the program and pread,
 * which counts. */
#include "run/runs.h"

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);

static _Atomic int64_t bytes_read;
static _Atomic int failing; /* this call on a checkpoint's file fails; 0: none */

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t k = readlink(link, path, sizeof path - 1);
    path[k < 0 ? 0 : k] = 0;
    if (!strstr(path, "/first/checkpoints/step-00000002/boxes-")) return __real_pread(fd, p, n, at);
    if (failing && atomic_fetch_sub(&failing, 1) == 1) {
        errno = EIO;
        return -1;
    }
    ssize_t got = __real_pread(fd, p, n, at);
    if (got > 0) bytes_read += got;
    return got;
}

#define MIXTRAL "model.family=mixtral", "model.moe.experts=4", "model.ffn=20"
#define WIDE "model.vocab=16384", "model.hidden=128", "model.ffn=64" /* tables of 8 MiB: two ranks read them */

struct way {
    const char *name;
    const char *model[6];
    int ranks;
    const char *keys[8];
    double times; /* the checkpoint's bytes were read at most so often */
};

/* Headers are read by every rank that opens a file; a chunk (4 MiB, or a small box) by every rank that needs some of
 * it, such as both that hold pieces of it, so pieces of small tensors are read twice. */
static const struct way ways[] = {
    {"dp8", {NULL}, 8, {NULL}, 1.3},
    {"dp2, two replicas, zero 3", {NULL}, 4, {"parallel.dp_replicate=2", "parallel.zero=3"}, 2.3},
    {"tp2 dp2 sequence", {NULL}, 4, {"parallel.tp=2", "parallel.sequence_parallel=true"}, 2.3},
    {"tied pp2 dp2 bf16", {"model.tie_embeddings=true"}, 4, {"parallel.pp=2", "precision.recipe=bf16"}, 1.3},
    {"experts dp4 ep2", {MIXTRAL}, 4, {"parallel.ep=2"}, 1.3},
    {"wide dp4", {WIDE}, 4, {NULL}, 1.1},
};

static int go(const struct folder *f, const char *name, const struct way *w, int ranks, bool on,
              struct trainer_result *r, struct err *e)
{
    const char *all[MAX_KEYS];
    int n = 0;
    char dir[160];
    for (int i = 0; i < 6 && w->model[i]; i++) all[n++] = w->model[i];
    for (int i = 0; i < 8 && ranks > 1 && w->keys[i]; i++) all[n++] = w->keys[i];
    snprintf(dir, sizeof dir, "checkpoint.resume=%s/first/checkpoints", f->dir);
    all[n++] = on ? dir : "checkpoint.resume=never";
    all[n++] = on ? "run.steps=3" : "run.steps=2";
    all[n++] = "checkpoint.every=2";
    all[n++] = "batch.global=8";
    all[n++] = "batch.micro=1";
    all[n++] = "run.compare_every=1";
    all[n++] = "comm.timeout_s=60";
    all[n] = NULL;
    return train_ranks(f, name, ranks, all, r, e);
}

static int64_t bytes_of(const struct folder *f)
{
    char path[160], **names;
    int n;
    int64_t sum = 0;
    struct err e;
    struct stat st;
    snprintf(path, sizeof path, "%s/first/checkpoints/step-00000002", f->dir);
    if (fs_list(path, &names, &n, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) {
        char *file = fs_join(path, names[i]);
        if (strstr(names[i], "boxes-") && !stat(file, &st)) sum += st.st_size;
        xfree(file);
    }
    fs_list_free(names, n);
    return sum;
}

static void test_read_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct folder f;
        struct trainer_result one, many, r;
        struct err e;
        folder_open(&f);
        if (go(&f, "first", &ways[i], 1, false, &r, &e)) fail_msg("%s: %s", ways[i].name, e.text);
        if (go(&f, "one", &ways[i], 1, true, &one, &e)) fail_msg("%s: %s", ways[i].name, e.text);
        bytes_read = 0;
        if (go(&f, "many", &ways[i], ways[i].ranks, true, &many, &e)) fail_msg("%s: %s", ways[i].name, e.text);
        int64_t stored = bytes_of(&f);
        print_message("  %-32s %d ranks: %lld bytes stored, %lld read, %.2f times\n", ways[i].name, ways[i].ranks,
                      (long long)stored, (long long)bytes_read, (double)bytes_read / (double)stored);
        assert_true(stored > 0 && bytes_read >= stored && (double)bytes_read <= ways[i].times * (double)stored);
        assert_true(fabs(many.loss / one.loss - 1) < (strstr(ways[i].name, "bf16") ? 1e-2 : 1e-4));
        folder_close(&f);
    }
}

/* A read that fails on one of the ranks: all of them end with its words, and nothing was stepped. */
static void test_one_read_fails(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    const struct way *w = &ways[0];
    folder_open(&f);
    if (go(&f, "first", w, 1, false, &r, &e)) fail_msg("%s", e.text);
    int refused = 0;
    for (int at = 1; at < 200; at += 9) {
        failing = at;
        int rc = go(&f, "many", w, w->ranks, true, &r, &e);
        if (failing > 0 && !rc) break; /* there are not so many calls */
        failing = 0;
        if (rc != ERR_IO || !strstr(e.text, "boxes-")) fail_msg("call %d: %d %s", at, rc, e.text);
        refused++;
    }
    failing = 0;
    assert_true(refused > 2);
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read_once), cmocka_unit_test(test_one_read_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
