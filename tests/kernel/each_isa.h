/* SPDX-License-Identifier: Apache-2.0 */
/* each_isa.h: a program once per instruction set, so that one machine tests them all. */
#ifndef TUTTI_TESTS_KERNEL_EACH_ISA_H
#define TUTTI_TESTS_KERNEL_EACH_ISA_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel/cpuid.h"

/* One child per instruction set that this machine has; with TUTTI_ISA given, that one only. */
static inline int run_for_each_isa(int (*run_group)(void))
{
    if (getenv("TUTTI_ISA")) return run_group();
    int failed = 0;
    for (int isa = ISA_REF; isa < ISA_N; isa++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            setenv("TUTTI_ISA", isa_name((enum isa)isa), 1);
            if (cpu_isa() != (enum isa)isa) _exit(0); /* not on this machine */
            int rc = run_group();
            fflush(NULL);
            _exit(rc != 0);
        }
        int status = 0;
        failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    return failed != 0;
}

#endif
