/* SPDX-License-Identifier: Apache-2.0 */
/* child.h: how a function ends that may end its process: run in a child that says nothing and leaves no core file. */
#ifndef TUTTI_TESTS_CHILD_H
#define TUTTI_TESTS_CHILD_H

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_LOST = 250 }; /* there was no child, or it could not be set up */

/* What body returned (0 to 249), or minus the signal that ended it: -SIGABRT after a CHECK. */
static inline int child_end(int (*body)(void *arg), void *arg)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL); /* cmocka and sanitizers have theirs */
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(CHILD_LOST);
        _exit(body(arg));
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) return CHILD_LOST;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

#endif
