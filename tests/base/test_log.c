/* SPDX-License-Identifier: Apache-2.0 */
/* Logs: LOG picks the level, lines of many threads never mix, a pipe sees no escape sequences. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mem.h"

/* What a child with LOG=level writes to stderr; xfree it. */
static char *stderr_of(void (*body)(void), const char *level)
{
    char path[] = "/tmp/tutti-test-log-XXXXXX";
    int fd = mkostemp(path, O_APPEND);
    assert_true(fd >= 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, STDERR_FILENO);
        setenv("LOG", level, 1);
        body();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    close(fd);
    char *text;
    size_t n;
    struct err e = {0};
    assert_int_equal(fs_read_all(path, 1 << 20, &text, &n, &e), OK);
    unlink(path);
    return text;
}

static void every_level(void)
{
    log_error("e%d", 1);
    log_warn("w");
    log_info("i");
    log_debug("d");
    log_status("step %d", 7);
    log_status_end();
}

static void level_decides(void **state)
{
    (void)state;
    static const struct {
        const char *level, *want;
    } rows[] = {
        {"error", "error: e1\n"},
        {"warn", "error: e1\nwarning: w\n"},
        {"info", "error: e1\nwarning: w\ni\nstep 7\n"},
        {"DEBUG", "error: e1\nwarning: w\ni\ndebug: d\nstep 7\n"},
        {"nonsense", "error: e1\nwarning: w\ni\nstep 7\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *got = stderr_of(every_level, rows[i].level);
        assert_string_equal(got, rows[i].want);
        xfree(got);
    }
}

static void *chatter(void *arg)
{
    for (int i = 0; i < 200; i++) log_info("<%s>", (const char *)arg);
    return NULL;
}

static void four_talk(void)
{
    static const char *const voices[] = {"soprano", "alto", "tenor", "bass"};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, chatter, (void *)(uintptr_t)voices[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

static void lines_stay_whole(void **state)
{
    (void)state;
    char *got = stderr_of(four_talk, "info");
    int n = 0;
    for (char *line = strtok(got, "\n"); line; line = strtok(NULL, "\n"), n++)
        assert_true(!strcmp(line, "<soprano>") || !strcmp(line, "<alto>") || !strcmp(line, "<tenor>") ||
                    !strcmp(line, "<bass>"));
    assert_int_equal(n, 800);
    xfree(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(level_decides), /* first: the parent has not logged, so each child reads LOG afresh */
        cmocka_unit_test(lines_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
