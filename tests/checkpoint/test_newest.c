/* SPDX-License-Identifier: Apache-2.0 */
/* suite: alone */
/* Looking for the newest checkpoint while the disk or a permission fails: at no call does that lead to another
 * checkpoint, or to none. The system calls that look are defined here, in front of the C library's, so that the n-th
 * one can fail. */
#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    int64_t at, n; /* calls so far; the one that fails, 0: none */
    int why;
} fault;

static int goes_wrong(void)
{
    if (++fault.at != fault.n) return 0;
    errno = fault.why;
    return 1;
}

int open(const char *path, int flags, ...)
{
    return goes_wrong() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0666);
}

ssize_t read(int fd, void *p, size_t n) { return goes_wrong() ? -1 : syscall(SYS_read, fd, p, n); }

int stat(const char *restrict path, struct stat *restrict st)
{
    return goes_wrong() ? -1 : fstatat(AT_FDCWD, path, st, 0);
}

int access(const char *path, int mode) { return goes_wrong() ? -1 : (int)syscall(SYS_faccessat, AT_FDCWD, path, mode); }

ssize_t readlink(const char *restrict path, char *restrict to, size_t n)
{
    return goes_wrong() ? -1 : syscall(SYS_readlinkat, AT_FDCWD, path, to, n);
}

DIR *opendir(const char *path)
{
    if (goes_wrong()) return NULL;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return fd < 0 ? NULL : fdopendir(fd);
}

/* Finds and opens with every call failing in turn. Returns how many calls there are. */
static int64_t every_call(const char *root, int why)
{
    struct err e = {0};
    for (int64_t n = 1;; n++) {
        char *path = NULL, *nearest = NULL;
        fault.at = 0;
        fault.n = n;
        fault.why = why;
        int rc = ckpt_newest(root, &path, &nearest, &e);
        int64_t calls = fault.at;
        fault.n = 0;
        if (rc == OK && calls < n) {
            assert_string_equal(strrchr(path, '/'), "/step-00000003");
            xfree(path);
            return calls;
        }
        if (rc == OK)
            fail_msg("call %lld of %lld failed (%s), and %s was chosen", (long long)n, (long long)calls, strerror(why),
                     path);
        if (path || !strstr(e.text, root)) fail_msg("call %lld: %s", (long long)n, e.text);
        xfree(nearest);
    }
}

static void every_failing_call(void **state)
{
    (void)state;
    static const int why[] = {EIO, EACCES, ESTALE, EMFILE};
    struct err e = {0};
    char *run = scratch_new(), *root = fs_join(run, "checkpoints");
    for (int step = 1; step <= 3; step++) assert_ok(state_save(root, step, step, 0, &e));
    for (size_t i = 0; i < sizeof why / sizeof *why; i++)
        if (every_call(root, why[i]) < 15) fail_msg("the loop did not meet the calls it is meant to meet");

    /* a path that means the newest of a run: the same */
    for (int64_t n = 1;; n++) {
        struct ckpt *c;
        fault.at = 0;
        fault.n = n;
        fault.why = EIO;
        int rc = ckpt_open(&c, run, &e);
        int64_t calls = fault.at;
        fault.n = 0;
        if (rc == OK) {
            assert_int_equal(ckpt_step(c), 3);
            ckpt_close(c);
        } else if (!strstr(e.text, run)) fail_msg("call %lld: %s", (long long)n, e.text);
        if (calls < n) break;
    }
    xfree(root);
    scratch_free(run);
}

/* With keep = 1 a save removes the one before it, unless what it just wrote cannot be read: the newest good one never
 * goes. */
static void saving_while_reads_fail(void **state)
{
    (void)state;
    struct err e = {0};
    char *root = scratch_new(), *path;
    int64_t step = 1;
    assert_ok(state_save(root, step, (int)step, 1, &e));
    for (int64_t n = 1;; n++) {
        fault.at = 0;
        fault.n = n;
        fault.why = EIO;
        int rc = state_save(root, step + 1, (int)step + 1, 1, &e);
        int64_t calls = fault.at;
        fault.n = 0;
        assert_ok(ckpt_find_latest(root, &path, &e));
        int64_t found = strtoll(strrchr(path, '-') + 1, NULL, 10);
        /* published is also one whose directory could not be synced after it, which counts as a failure */
        if (found != step + 1 && (rc == OK || found != step))
            fail_msg("call %lld of %lld: code %d, and the newest is step %lld", (long long)n, (long long)calls, rc,
                     (long long)found);
        state_check(path, (int)found);
        xfree(path);
        step = found + 1; /* what stayed behind goes, so that the next round has as many calls */
        assert_ok(state_save(root, step, (int)step, 1, &e));
        if (calls < n) break;
    }
    assert_true(step > 10); /* most of these calls are no reason not to save */
    scratch_free(root);
}

int main(void)
{
    setenv("LOG", "error", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failing_call), cmocka_unit_test(saving_while_reads_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
