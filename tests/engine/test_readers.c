/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* suite: wraps pread */
/* Ranks that hold the same read it once: a checkpoint that is resumed by many ranks is read about once, whoever wrote
 * it, and goes on with the numbers that one rank goes on with. The linker puts this file between the program and pread,
 * which counts. */
#include "runs.h"

#include "checkpoint/safetensors.h"

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
    int by; /* ranks that wrote it, with tp of as many */
};

static const struct way ways[] = {
    {"dp8", {NULL}, 8, {NULL}, 1},
    {"dp2, two replicas, zero 3", {NULL}, 4, {"parallel.dp_replicate=2", "parallel.zero=3"}, 1},
    {"tp2 dp2 sequence", {NULL}, 4, {"parallel.tp=2", "parallel.sequence_parallel=true"}, 1},
    {"dp4 zero 2, written by tp2", {NULL}, 4, {"parallel.zero=2"}, 2},
    {"tp2 pp2, written by tp2", {NULL}, 4, {"parallel.tp=2", "parallel.pp=2"}, 2},
    {"tied pp2 dp2 bf16", {"model.tie_embeddings=true"}, 4, {"parallel.pp=2", "precision.recipe=bf16"}, 1},
    {"experts dp4 ep2", {MIXTRAL}, 4, {"parallel.ep=2"}, 1},
    {"two servers", {NULL}, 4, {"parallel.servers=2"}, 1},
    {"wide tp2 dp2", {WIDE}, 4, {"parallel.tp=2"}, 1},
};

/* keys: of the layout, none with NULL. */
static int go(const struct folder *f, const char *name, const struct way *w, int ranks, const char *const *keys,
              bool on, struct trainer_result *r, struct err *e)
{
    const char *all[MAX_KEYS];
    int n = 0;
    char dir[160];
    for (int i = 0; i < 6 && w->model[i]; i++) all[n++] = w->model[i];
    for (int i = 0; i < 8 && keys && keys[i]; i++) all[n++] = keys[i];
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

/* *headers: what whoever opens all files reads besides. */
static int64_t bytes_of(const struct folder *f, int64_t *headers)
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
        struct safetensors *s;
        size_t header;
        if (strstr(names[i], "boxes-") && !stat(file, &st)) {
            sum += st.st_size;
            assert_int_equal(safetensors_open(&s, file, &e), OK);
            safetensors_header(s, 0, &header);
            *headers += (int64_t)header;
            safetensors_close(s);
        }
        xfree(file);
    }
    fs_list_free(names, n);
    return sum;
}

/* Every byte of every tensor is read by one rank, whatever the layouts of who wrote it and who reads it; headers by
 * each rank that opens the file. */
static void test_read_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const struct way *w = &ways[i];
        struct folder f;
        struct trainer_result one, many, r;
        struct err e;
        char tp[32];
        const char *writers[] = {tp, NULL};
        folder_open(&f);
        snprintf(tp, sizeof tp, "parallel.tp=%d", w->by);
        if (go(&f, "first", w, w->by, writers, false, &r, &e)) fail_msg("%s: %s", w->name, e.text);
        if (go(&f, "one", w, 1, NULL, true, &one, &e)) fail_msg("%s: %s", w->name, e.text);
        bytes_read = 0;
        if (go(&f, "many", w, w->ranks, w->keys, true, &many, &e)) fail_msg("%s: %s", w->name, e.text);
        int64_t read = bytes_read, headers = 0, stored = bytes_of(&f, &headers), tensors = stored - headers;
        print_message("  %-32s %d ranks: %lld bytes of tensors and %lld of headers, %lld read\n", w->name, w->ranks,
                      (long long)tensors, (long long)headers, (long long)read);
        assert_true(tensors > 0 && read >= tensors + headers && read <= tensors + w->ranks * headers);
        assert_true(fabs(many.loss / one.loss - 1) < (strstr(w->name, "bf16") ? 1e-2 : 1e-4));
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
    if (go(&f, "first", w, 1, NULL, false, &r, &e)) fail_msg("%s", e.text);
    int refused = 0;
    for (int at = 1; at < 200; at += 9) {
        failing = at;
        int rc = go(&f, "many", w, w->ranks, w->keys, true, &r, &e);
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
