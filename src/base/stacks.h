/* SPDX-License-Identifier: Apache-2.0 */
/* stacks.h: where every thread of this process is: return addresses, taken by a signal that each thread gets.
 *
 * The signal is SIGURG, which nobody here uses otherwise, and which is ignored by default: one that comes too late, or
 * from elsewhere, harms nobody. Its handler takes the thread's own return addresses into a slot that is there already,
 * and does nothing else; the slot's address comes with the signal, so nothing global is written. A thread that does not
 * answer (the kernel waits for a disk, SIGURG is blocked) is listed without addresses.
 * A system call that a thread sleeps in may return early with EINTR, as after every signal.
 * Includes: base only. Order: Local; any thread, one process-wide `struct stacks`.
 */
#ifndef TUTTI_BASE_STACKS_H
#define TUTTI_BASE_STACKS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

enum { STACK_DEPTH = 64 };
struct stack {
    pid_t tid;
    char name[16];         /* of the thread: rank, step and action where it has them */
    char state;            /* R S D T Z as /proc has it, before it was asked; '?' unknown */
    char wait[32];         /* the kernel's function that it sleeps in, "" where the kernel does not tell */
    int n;                 /* addresses; 0: it did not answer */
    void *at[STACK_DEPTH]; /* innermost first; all but the first are return addresses */
};

struct stacks;
/* Installs the handler, and loads what the first unwinding would load. */
int stacks_open(struct stacks **s, struct err *e);
/* Threads are not asked any more. The slot of a thread that has never answered stays: it may still do so. */
void stacks_close(struct stacks *s);
/* All threads of this process, the caller's too, by tid; *n of them, the caller frees *out (xfree). Waits within_s at
 * most for those that do not answer. */
void stacks_take(struct stacks *s, double within_s, struct stack **out, int *n);
/* What /proc tells of the threads of a process, without addresses; ERR_IO: it cannot be seen. */
int stacks_look(pid_t pid, struct stack **out, int *n, struct err *e);
/* The process takes this signal: it blocks it and reads it, or has a handler. */
bool stacks_catches(pid_t pid, int signal);
/* "stopped", "waits for a disk or the network", ... for a letter of struct stack's state. */
const char *stacks_state(char state);

#endif
