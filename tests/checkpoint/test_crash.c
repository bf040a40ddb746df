/* SPDX-License-Identifier: Apache-2.0 */
/* suite: alone */
/* Saving while the disk fails or the process dies: at any moment, the last published checkpoint is there, whole.
 *
 * The system calls that change a file system are defined here, in front of the C library's, so that the n-th one
 * can be made to fail or to be the last thing the process does; n runs from the first to the last call of a save. */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    int64_t at;  /* calls so far */
    int64_t n;   /* the call that goes wrong; 0: none */
    int die;     /* it is the process's last */
    int no_swap; /* a file system that cannot exchange two names */
} fault;

static int goes_wrong(void)
{
    if (++fault.at != fault.n) return 0;
    if (fault.die) _exit(9);
    errno = ENOSPC;
    return 1;
}

ssize_t write(int fd, const void *p, size_t n)
{
    if (fd <= 2) return syscall(SYS_write, fd, p, n);
    if (fault.at + 1 == fault.n && fault.die) syscall(SYS_write, fd, p, n / 2); /* dies in the middle of it */
    return goes_wrong() ? -1 : syscall(SYS_write, fd, p, n);
}

int fsync(int fd) { return goes_wrong() ? -1 : (int)syscall(SYS_fsync, fd); }

int rename(const char *from, const char *to)
{
    return goes_wrong() ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int fd, const char *from, int fd2, const char *to, unsigned flags)
{
    if (fault.no_swap) {
        errno = EINVAL;
        return -1;
    }
    return goes_wrong() ? -1 : (int)syscall(SYS_renameat2, fd, from, fd2, to, flags);
}

int symlink(const char *to, const char *path)
{
    return goes_wrong() ? -1 : (int)syscall(SYS_symlinkat, to, AT_FDCWD, path);
}

int mkdir(const char *path, mode_t mode) { return goes_wrong() ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode); }

int unlink(const char *path) { return goes_wrong() ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0); }

int rmdir(const char *path) { return goes_wrong() ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR); }

static void fault_set(int64_t n, int die)
{
    fault.at = 0;
    fault.n = n;
    fault.die = die;
}

static void wait_for(pid_t child, int *status)
{
    while (waitpid(child, status, 0) < 0 && errno == EINTR) continue;
}

static int leftovers(const char *root)
{
    struct err e;
    char **names;
    int n, found = 0;
    assert_ok(fs_list(root, &names, &n, &e));
    for (int i = 0; i < n; i++) found += names[i][0] == '.';
    fs_list_free(names, n);
    return found;
}

/* The newest checkpoint is step `step`, or the one after it, and what it holds is what was saved as that step. */
static int64_t newest_is_whole(const char *root, int64_t step)
{
    struct err e;
    char *path;
    struct ckpt *c;
    assert_ok(ckpt_find_latest(root, &path, &e));
    assert_non_null(path);
    assert_ok(ckpt_open(&c, path, &e));
    int64_t found = ckpt_step(c);
    ckpt_close(c);
    if (found != step && found != step + 1)
        fail_msg("newest is step %lld, not %lld", (long long)found, (long long)step);
    state_check(path, (int)found);
    xfree(path);
    return found;
}

/* keep = 1: the save also removes the one before it, so that every kind of call is met. */
static void every_failing_call(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new();
    int64_t n = 1, step = 1, n_failed = 0;
    assert_ok(state_save(root, step, (int)step, 1, &e));
    for (;; n++) {
        fault_set(n, 0);
        int rc = state_save(root, step + 1, (int)step + 1, 1, &e);
        int64_t calls = fault.at;
        fault_set(0, 0);
        if (rc < 0) {
            n_failed++;
            assert_int_equal(rc, ERR_IO);
            char last[64];
            snprintf(last, sizeof last, "is intact: %s", root);
            if (!strstr(e.text, last) || !strstr(e.text, "free")) fail_msg("call %lld: %s", (long long)n, e.text);
        }
        int64_t found = newest_is_whole(root, step);
        if (rc == OK) assert_int_equal(found, step + 1);
        step = found;
        assert_ok(ckpt_clean(root, &e));
        assert_int_equal(leftovers(root), 0);
        if (n > calls) break;
    }
    assert_true(n > 20 && n_failed > 10); /* the loop met the calls it is meant to meet */
    scratch_free(root);
}

static void killed_at_every_call(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new();
    int64_t step = 1, n_killed = 0;
    assert_ok(state_save(root, step, (int)step, 1, &e));
    for (int64_t n = 1;; n++) {
        pid_t child = fork();
        if (child == 0) {
            fault_set(n, 1);
            _exit(state_save(root, step + 1, (int)step + 1, 1, &e) == OK ? 0 : 1);
        }
        int status;
        wait_for(child, &status);
        if (!WIFEXITED(status)) fail_msg("call %lld: signal %d", (long long)n, WTERMSIG(status));
        step = newest_is_whole(root, step);
        assert_ok(ckpt_clean(root, &e));
        assert_int_equal(leftovers(root), 0);
        if (WEXITSTATUS(status) == 0) break;
        assert_int_equal(WEXITSTATUS(status), 9);
        n_killed++;
    }
    assert_true(n_killed > 20);
    assert_ok(state_save(root, 500, 500, 1, &e));
    state_check(root, 500);
    scratch_free(root);
}

/* The same step saved again (a rewound run): killed anywhere, one of the two is there. */
static void replaced(int no_swap)
{
    struct err e;
    char *root = scratch_new();
    fault.no_swap = no_swap;
    for (int64_t n = 1;; n++) {
        assert_ok(fs_remove_tree(root, &e));
        assert_ok(state_save(root, 5, 1, 0, &e));
        pid_t child = fork();
        if (child == 0) {
            fault_set(n, 1);
            _exit(state_save(root, 5, 2, 0, &e) == OK ? 0 : 1);
        }
        int status;
        wait_for(child, &status);
        char *path;
        struct ckpt *c;
        double first;
        assert_ok(ckpt_recover(root, &e));
        assert_ok(ckpt_find_latest(root, &path, &e));
        assert_ok(ckpt_open(&c, path, &e));
        struct region corner = {.nd = 2, .lo = {0, 0}, .hi = {1, 1}};
        assert_ok(ckpt_read(c, 0, &corner, DT_F64, &first, &e));
        ckpt_close(c);
        state_check(path, first == known_value(0, 1, 0) ? 1 : 2);
        xfree(path);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            state_check(root, 2);
            break;
        }
    }
    fault.no_swap = 0;
    scratch_free(root);
}

static void replaced_at_every_call(void **state)
{
    (void)state;
    replaced(0);
}

static void replaced_without_a_swap(void **state)
{
    (void)state;
    replaced(1);
}

/* A limit that the kernel itself enforces, as a full disk would. */
static void files_may_not_grow(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new();
    assert_ok(state_save(root, 1, 1, 0, &e));
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {1500, 1500};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        int rc = state_save(root, 2, 2, 0, &e);
        int told = strstr(e.text, "boxes-00000.safetensors") && strstr(e.text, "is intact") && strstr(e.text, "step 2");
        _exit(rc == ERR_IO && told ? 0 : 1);
    }
    int status;
    wait_for(child, &status);
    assert_int_equal(status, 0);
    assert_int_equal(leftovers(root), 0);
    state_check(root, 1);
    scratch_free(root);
}

static void first_save_fails(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new();
    fault_set(4, 0); /* three directories exist or are made; this is the first write */
    assert_err(ERR_IO, "no earlier one was published", state_save(root, 1, 1, 0, &e));
    fault_set(0, 0);
    char *path;
    assert_ok(ckpt_find_latest(root, &path, &e));
    assert_null(path);
    scratch_free(root);
}

/* Two processes that (wrongly) save below one root: what is published is whole. */
static void two_writers(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new();
    pid_t child[2];
    for (int w = 0; w < 2; w++) {
        child[w] = fork();
        if (child[w]) continue;
        for (int64_t step = 10 + w; step < 30; step += 2)
            if (state_save(root, step, (int)step, 0, &e) < 0) _exit(1);
        _exit(0);
    }
    for (int w = 0; w < 2; w++) {
        int status;
        wait_for(child[w], &status);
        assert_int_equal(status, 0);
    }
    struct ckpt_listing *list;
    int n;
    assert_ok(ckpt_list(root, &list, &n, &e));
    assert_int_equal(n, 20);
    for (int i = 0; i < n; i++) state_check(list[i].path, (int)list[i].step);
    ckpt_list_free(list, n);
    scratch_free(root);
}

int main(void)
{
    setenv("LOG", "error", 1); /* warnings are what these tests provoke */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_call),
        cmocka_unit_test(killed_at_every_call),
        cmocka_unit_test(replaced_at_every_call),
        cmocka_unit_test(replaced_without_a_swap),
        cmocka_unit_test(files_may_not_grow),
        cmocka_unit_test(first_save_fails),
        cmocka_unit_test(two_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
