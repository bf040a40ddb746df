/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps flock */
/* Files: publishing is all or nothing at every byte, locks exclude, errors name the path and the remedy. */
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/str.h"

static char *put(const char *dir, const char *name, const void *p, size_t n)
{
    struct err e = {0};
    char *path = fs_join(dir, name);
    assert_int_equal(fs_write_atomic(path, p, n, &e), OK);
    return path;
}

static void assert_holds(const char *path, const char *want)
{
    struct err e = {0};
    char *got;
    size_t n;
    assert_int_equal(fs_read_all(path, 1 << 20, &got, &n, &e), OK);
    assert_int_equal(n, strlen(want));
    assert_string_equal(got, want);
    xfree(got);
}

static void reads_what_was_written(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put(dir, "a.txt", "hello", 5);
    assert_holds(path, "hello");
    assert_int_equal(fs_size(path), 5);
    struct fs_file f;
    struct err e = {0};
    char bytes[8] = "";
    assert_int_equal(fs_file_open(&f, path, &e), OK);
    assert_int_equal(f.bytes, 5);
    assert_int_equal(fs_file_read(&f, 1, 4, bytes, &e), OK);
    assert_string_equal(bytes, "ello");
    assert_int_equal(fs_file_read(&f, 5, 0, bytes, &e), OK);
    fs_file_close(&f);
    char *empty = put(dir, "empty", "", 0);
    assert_int_equal(fs_file_open(&f, empty, &e), OK);
    assert_int_equal(f.bytes, 0);
    fs_file_close(&f);
    assert_holds(empty, "");
    assert_true(fs_exists(path) && !fs_is_dir(path) && fs_is_dir(dir));
    char **names;
    int n;
    assert_int_equal(fs_list(dir, &names, &n, &e), OK);
    assert_int_equal(n, 2); /* nothing temporary is left; sorted */
    assert_string_equal(names[0], "a.txt");
    assert_string_equal(names[1], "empty");
    fs_list_free(names, n);
    xfree(path);
    xfree(empty);
    scratch_free(dir);
}

static void refuses_what_cannot_be_read(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put(dir, "big", "0123456789", 10), *none = fs_join(dir, "none");
    char *pipe_path = fs_join(dir, "pipe");
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    struct err e = {0};
    char *got;
    size_t n;
    assert_int_equal(fs_read_all(path, 9, &got, &n, &e), ERR_REQUEST);
    assert_contains(e.text, "big: has 10 bytes; at most 9");
    assert_null(got);
    assert_int_equal(fs_read_all(none, 9, &got, &n, &e), ERR_REQUEST);
    assert_contains(e.text, "none: no such file");
    assert_int_equal(fs_read_all(dir, 9, &got, &n, &e), ERR_REQUEST);
    assert_contains(e.text, "is a directory");
    assert_int_equal(fs_read_all(pipe_path, 9, &got, &n, &e), ERR_REQUEST); /* and does not wait for a writer */
    assert_contains(e.text, "not a regular file");
    struct fs_file f;
    assert_int_equal(fs_file_open(&f, none, &e), ERR_REQUEST);
    fs_file_close(&f); /* of one that never was */
    assert_int_equal(fs_size(none), -1);
    char **names;
    int k;
    assert_int_equal(fs_list(none, &names, &k, &e), ERR_REQUEST);
    xfree(path);
    xfree(none);
    xfree(pipe_path);
    scratch_free(dir);
}

/* A file that rests is the same one when it is read again, or there is an error; and one that shrinks says where it
 * ends. */
static void open_files_stay_what_they_are(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put(dir, "a", "0123456789", 10), bytes[8] = "";
    struct fs_file f;
    struct err e = {0};
    assert_int_equal(fs_file_open(&f, path, &e), OK);
    fs_file_rest(&f);
    assert_int_equal(fs_file_reopen(&f, &e), OK);
    assert_int_equal(fs_file_read(&f, 8, 2, bytes, &e), OK);
    assert_string_equal(bytes, "89");
    assert_int_equal(fs_file_read(&f, 8, 3, bytes, &e), ERR_IO);
    assert_contains(e.text, "a: ends at or before byte 10: wanted 3 bytes at offset 8, got 2");
    fs_file_rest(&f);
    xfree(put(dir, "a", "0123456789", 10)); /* another file of that name */
    assert_int_equal(fs_file_reopen(&f, &e), ERR_IO);
    assert_contains(e.text, "a: is not the file it was");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fs_file_reopen(&f, &e), ERR_REQUEST);
    fs_file_close(&f);
    xfree(path);
    scratch_free(dir);
}

/* The child may write n bytes to any one file; the rest fails as a full disk does. */
static int publish_with_room_for(size_t n, const char *path, const char *text)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {.rlim_cur = n, .rlim_max = n};
        setrlimit(RLIMIT_FSIZE, &limit);
        struct err e = {0};
        int code = fs_write_atomic(path, text, strlen(text), &e);
        _exit(code == OK ? 0 : code == ERR_IO && strstr(e.text, path) ? 1 : 2);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put(dir, "latest", "old", 3);
    const char *text = "a new version";
    for (size_t n = 0; n <= strlen(text); n++) {
        bool fits = n == strlen(text);
        assert_int_equal(publish_with_room_for(n, path, text), fits ? 0 : 1);
        assert_holds(path, fits ? text : "old");
        struct err e = {0};
        char **names;
        int k;
        assert_int_equal(fs_list(dir, &names, &k, &e), OK);
        assert_int_equal(k, 1); /* no temporary is left behind */
        fs_list_free(names, k);
    }
    xfree(path);
    scratch_free(dir);
}

/* Fail each call to the system in turn: the error comes out by close at the latest, and sticks. */
static void a_writer_reports_any_failed_write(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "big");
    size_t n = (size_t)3 << 20;
    char *block = xcalloc(n, 1);
    int64_t fail_at = 1;
    for (bool failed = true; failed; fail_at++) {
        struct fs_writer *w;
        struct err e = {0}, late = {0};
        assert_int_equal(fs_writer_open(&w, path, &e), OK);
        fs_writer_fail_at(w, fail_at);
        int code = OK;
        for (int i = 0; i < 40; i++) {
            int now = fs_writer_write(w, block, i % 10 == 9 ? n : 100000, &e);
            assert_true(code == OK || now == code);
            code = now;
        }
        assert_int_equal(fs_writer_offset(w), 36 * 100000 + 4 * (int64_t)n);
        int closed = fs_writer_close(w, false, &late);
        failed = closed != OK;
        if (failed) {
            assert_int_equal(closed, ERR_IO);
            assert_contains(late.text, "free some space");
            assert_contains(late.text, path);
        } else {
            assert_int_equal(fs_size(path), 36 * 100000 + 4 * (int64_t)n);
        }
    }
    assert_true(fail_at > 5); /* the loop did fail several different calls */
    struct fs_writer *w;
    struct err e = {0};
    assert_int_equal(fs_writer_open(&w, "/dev/full", &e), OK); /* and a device that really is full */
    assert_int_equal(fs_writer_write(w, "x", 1, &e), OK);
    assert_int_equal(fs_writer_close(w, false, &e), ERR_IO);
    xfree(block);
    xfree(path);
    scratch_free(dir);
}

static void a_writer_goes_on(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "file"), *text;
    struct fs_writer *w;
    struct err e = {0};
    size_t n;
    assert_int_equal(fs_writer_go_on(&w, path, 0, &e), ERR_IO); /* there is none */
    assert_int_equal(fs_write_atomic(path, "0123456789", 10, &e), OK);
    assert_int_equal(fs_writer_go_on(&w, path, 11, &e), ERR_IO); /* it is shorter */
    assert_int_equal(fs_writer_go_on(&w, path, 4, &e), OK);
    assert_int_equal(fs_writer_write(w, "ab", 2, &e), OK);
    assert_int_equal(fs_writer_flush(w, &e), OK);
    assert_int_equal(fs_size(path), 6);
    assert_int_equal(fs_writer_offset(w), 6);
    assert_int_equal(fs_writer_close(w, true, &e), OK);
    assert_int_equal(fs_read_all(path, 100, &text, &n, &e), OK);
    assert_string_equal(text, "0123ab");
    xfree(text);
    xfree(path);
    scratch_free(dir);
}

static void locks_exclude_and_name_the_holder(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "lock"), pid[32];
    struct fs_lock a, b;
    struct err e = {0};
    assert_int_equal(fs_lock_take(&a, path, &e), OK);
    assert_int_equal(fs_lock_take(&b, path, &e), ERR_REQUEST);
    snprintf(pid, sizeof pid, "process %d;", (int)getpid());
    assert_contains(e.text, pid);
    fs_lock_release(&b); /* harmless: it never was taken */
    fs_lock_release(&a);
    assert_int_equal(fs_lock_take(&b, path, &e), OK);
    fs_lock_release(&b);
    pid_t child = fork();
    if (child == 0) _exit(fs_lock_take(&a, path, NULL)); /* dies with the lock in hand */
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(fs_lock_take(&a, path, &e), OK);
    fs_lock_release(&a);
    xfree(path);
    scratch_free(dir);
}

/* What happens between the open and the lock of whoever comes then. */
static void (*between)(void);
int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
    void (*now)(void) = between;
    between = NULL;
    if (now) now();
    return __real_flock(fd, how);
}

static struct {
    struct fs_lock first, third;
    char *path;
    bool goes_on;
} crowd;

static void first_leaves(void)
{
    fs_lock_remove(&crowd.first, crowd.path);
    if (crowd.goes_on) assert_int_equal(fs_lock_take(&crowd.third, crowd.path, NULL), OK);
}

static void a_removed_lock_is_nobodys(void **state)
{
    (void)state;
    struct err e = {0};
    char *dir = scratch_new();
    crowd.path = fs_join(dir, "lock");
    for (int k = 0; k < 2; k++) {
        struct fs_lock second;
        crowd.goes_on = k == 1;
        assert_int_equal(fs_lock_take(&crowd.first, crowd.path, &e), OK);
        between = first_leaves; /* the second has opened the first's file */
        int code = fs_lock_take(&second, crowd.path, &e);
        assert_int_equal(code, crowd.goes_on ? ERR_REQUEST : OK);
        assert_true(second.busy == crowd.goes_on && fs_exists(crowd.path));
        fs_lock_remove(crowd.goes_on ? &crowd.third : &second, crowd.path);
        assert_false(fs_exists(crowd.path));
    }
    xfree(crowd.path);
    scratch_free(dir);
}

static void trees_are_made_and_removed(void **state)
{
    (void)state;
    char *dir = scratch_new(), *deep = fs_join(dir, "a//b/c/"), *top = fs_join(dir, "a");
    char *keep = put(dir, "keep", "x", 1), *link = fs_join(top, "link"), *under = fs_join(keep, "sub");
    struct err e = {0};
    assert_int_equal(fs_mkdirs(deep, &e), OK);
    assert_int_equal(fs_mkdirs(deep, &e), OK);
    assert_true(fs_is_dir(deep));
    assert_int_equal(symlink("../keep", link), 0);
    assert_int_equal(fs_mkdirs(under, &e), ERR_IO); /* a file is in the way */
    assert_contains(e.text, "keep");
    assert_int_equal(fs_remove_tree(top, &e), OK);
    assert_true(!fs_exists(top) && fs_exists(keep));
    assert_int_equal(fs_remove_tree(top, &e), OK);
    assert_int_equal(fs_rename(keep, top, &e), OK);
    assert_int_equal(fs_rename(keep, top, &e), ERR_IO);
    xfree(deep);
    xfree(top);
    xfree(keep);
    xfree(link);
    xfree(under);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(refuses_what_cannot_be_read),
        cmocka_unit_test(open_files_stay_what_they_are),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(a_writer_reports_any_failed_write),
        cmocka_unit_test(a_writer_goes_on),
        cmocka_unit_test(locks_exclude_and_name_the_holder),
        cmocka_unit_test(a_removed_lock_is_nobodys),
        cmocka_unit_test(trees_are_made_and_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
