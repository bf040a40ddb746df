/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps pread pwrite */
/* A disk that is slower than a step can hide: its rate and what steps wait for it are told, once, and what waits is in
 * the metrics; where nothing waits on a disk nothing is said. And one that fails while what waits there is saved. The
 * linker puts this file before pread and pwrite. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runs.h"

#include "base/clock.h"

static atomic_int slow;            /* calls take so many microseconds more */
static atomic_int reads, bad_read; /* of files without a name: how many; which of them fails, from 1; 0: none */

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
ssize_t __real_pwrite(int fd, const void *p, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at);

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    if (slow) clock_sleep_s(1e-6 * slow);
    struct stat s;
    bool nameless = !fstat(fd, &s) && !s.st_nlink;
    if (nameless && atomic_fetch_add(&reads, 1) + 1 == bad_read) {
        errno = EIO;
        return -1;
    }
    return __real_pread(fd, p, n, at);
}

ssize_t __wrap_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (slow) clock_sleep_s(1e-6 * slow);
    return __real_pwrite(fd, p, n, at);
}

/* What a run writes to stderr. */
static char *told(const struct folder *f, const char *name, const char *const *keys)
{
    char path[256];
    size_t n;
    int own = dup(2), fd;
    struct trainer_result r;
    struct err e;
    snprintf(path, sizeof path, "%s/%s.log", f->dir, name);
    fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    assert_true(own >= 0 && fd >= 0 && dup2(fd, 2) == 2);
    int rc = train_ranks(f, name, 2, keys, &r, &e);
    assert_true(dup2(own, 2) == 2);
    close(own);
    close(fd);
    if (rc) fail_msg("%s: %s", name, e.text);
    snprintf(path, sizeof path, "%s.log", name);
    char *text;
    char whole[300];
    snprintf(whole, sizeof whole, "%s/%s", f->dir, path);
    if (fs_read_all(whole, 1 << 20, &text, &n, &e)) fail_msg("%s", e.text);
    return text;
}

static int times(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

static void test_told(void **state)
{
    (void)state;
    static const char *const to[] = {"memory.offload_to=host", "memory.offload_to=."};
    struct folder f;
    folder_open(&f);
    for (int disk = 0; disk < 2; disk++) {
        slow = disk ? 2000 : 0;
        char *log = told(&f, disk ? "disk" : "host",
                         KEYS("memory.offload=[optimizer,params]", to[disk], "parallel.zero=1", "checkpoint.every=0"));
        slow = 0;
        if (times(log, "steps wait ") != disk || times(log, " is slow: ") != disk) fail_msg("%s", log);
        struct json *line[8];
        double waited = 0;
        assert_int_equal(read_metrics(&f, disk ? "disk" : "host", line, 8), 8);
        for (int i = 0; i < 8; i++) {
            waited += json_real(json_get(line[i], "offload_wait_s"), 0);
            json_free(line[i]);
        }
        assert_true(disk ? waited > 8 * 2e-3 : waited == 0);
        xfree(log);
    }
    folder_close(&f);
}

/* A save that finds its disk gone is not tried again: what it would save is lost. */
static void test_lost(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    folder_open(&f);
    const char *const keys[] = {"memory.offload=[optimizer,master]", "memory.offload_to=.", "checkpoint.every=0",
                                "checkpoint.retry_s=0.01",           "run.steps=2",         NULL};
    reads = bad_read = 0;
    if (train(&f, "good", keys, &r, &e)) fail_msg("%s", e.text);
    bad_read = reads; /* by then the steps are done */
    reads = 0;
    assert_int_equal(train(&f, "bad", keys, &r, &e), ERR_IO);
    bad_read = 0;
    assert_contains(e.text, "memory.offload_to: .: cannot read");
    assert_null(strstr(e.text, "checkpoint.retries"));
    assert_int_equal(r.steps, 2);
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_told), cmocka_unit_test(test_lost)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
