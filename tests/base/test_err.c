/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: texts are cut and marked, prefixes go in front, a bug names thread, place and condition and aborts. */
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/thread.h"

static void sets_and_prefixes(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(err_set(&e, ERR_IO, "disk %d", 3), ERR_IO);
    assert_int_equal(err_prefix(&e, "rank %d", 7), ERR_IO);
    assert_string_equal(e.text, "rank 7: disk 3");
    assert_int_equal(err_errno(&e, ERR_REQUEST, ENOENT, "x.txt"), ERR_REQUEST);
    assert_string_equal(e.text, "x.txt: No such file or directory");
    assert_int_equal(err_set(NULL, ERR_MEMORY, "nobody listens"), ERR_MEMORY);
}

static void texts_are_never_empty(void **state)
{
    (void)state;
    struct err e = {0};
    assert_int_equal(err_set(&e, ERR_NUMERIC, "%s", ""), ERR_NUMERIC);
    assert_contains(e.text, "error -4 without a reason");
    e = (struct err){.code = ERR_IO};
    assert_int_equal(err_prefix(&e, "rank 7"), ERR_IO);
    assert_contains(e.text, "rank 7: error -2 without a reason");
    assert_int_equal(err_set(&e, ERR_IO, "disk"), ERR_IO);
    assert_string_equal(e.text, "disk");
}

static void long_texts_are_cut_and_say_so(void **state)
{
    (void)state;
    char big[3000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    struct err e = {0};
    err_set(&e, ERR_IO, "%s", big);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    assert_string_equal(e.text + sizeof e.text - 4, "...");
    err_prefix(&e, "front");
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    assert_memory_equal(e.text, "front: xxx", 10);
    assert_string_equal(e.text + sizeof e.text - 4, "...");
    err_prefix(&e, "%s", big);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    err_errno(&e, ERR_IO, ENOSPC, "%s", big);
    assert_int_equal(strlen(e.text), sizeof e.text - 1);
    for (int room = 1; room < 40; room++) { /* the reason fits less and less */
        err_errno(&e, ERR_IO, ENOSPC, "%.*s", (int)sizeof e.text - room, big);
        assert_true(strlen(e.text) < sizeof e.text);
    }
}

static void exit_status_tells_request_from_failure(void **state)
{
    (void)state;
    assert_int_equal(err_exit_status(OK), 0);
    assert_int_equal(err_exit_status(ERR_REQUEST), 2);
    assert_int_equal(err_exit_status(ERR_CORRUPT), 2);
    assert_int_equal(err_exit_status(ERR_IO), 1);
    assert_int_equal(err_exit_status(ERR_NUMERIC), 1);
}

static void a_bug_names_itself_and_aborts(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        thread_name_set("r%d s%d F%d", 3, 120, 2);
        int tp = 3;
        CHECK(tp == 2, "tp is %d", tp);
        _exit(0);
    }
    close(ends[1]);
    char text[500] = "";
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(n > 0);
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_contains(text, "BUG (r3 s120 F2) ");
    assert_contains(text, "test_err.c:");
    assert_contains(text, "CHECK(tp == 2) failed: tp is 3\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_and_prefixes),
        cmocka_unit_test(texts_are_never_empty),
        cmocka_unit_test(long_texts_are_cut_and_say_so),
        cmocka_unit_test(exit_status_tells_request_from_failure),
        cmocka_unit_test(a_bug_names_itself_and_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
