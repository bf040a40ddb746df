/* SPDX-License-Identifier: Apache-2.0 */
/* err.h: three kinds of trouble, three mechanisms.
 *
 *   our bug              CHECK(cond, "..."): always on; prints thread (rank, step, action), place, text; aborts
 *   the world            a negative enum err_code is returned and a struct err carries the text
 *   numerical events     data in the step's report; never handled here
 *
 * Includes: libc only. Order: every function here is Local.
 */
#ifndef TUTTI_BASE_ERR_H
#define TUTTI_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

enum err_code {
    OK = 0,
    ERR_REQUEST = -1, /* the request was wrong: usage, config, input file; exit status 2 */
    ERR_IO = -2,      /* a file, disk or device failed while running; exit status 1 */
    ERR_MEMORY = -3,  /* memory could not be had; exit status 1 */
    ERR_NUMERIC = -4, /* NaN or Inf where training cannot go on; exit status 1 */
    ERR_STOPPED = -5, /* a signal or another rank asked to stop */
    ERR_CORRUPT = -6, /* an input or checkpoint file contradicts itself; exit status 2 */
    ERR_SIGNAL = -7,  /* a signal asked to stop before anything was done; exit status 128 + its number */
    ERR_LOST = -8,    /* a rank is no more; exit status 1, or the others go on (comm/crew.h) */
};

/* What happened, in words a user can act on. Filled by the first failing function; later layers may prefix. */
struct err {
    enum err_code code;
    char text[1000]; /* what, where (file:line), wanted versus got, what to do next */
};

/* Sets *e (e may be NULL) and returns code, so that `return err_set(e, ERR_IO, ...)` reads well. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the text already there; returns e->code. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* err_set with strerror(errno_value) appended. */
int err_errno(struct err *e, enum err_code code, int errno_value, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The process's exit status for a code: 0, 1 or 2. */
int err_exit_status(int code);

/* A bug in tutti. The thread's name carries rank, step and action (thread_name_set in thread.h). */
__attribute__((noreturn)) void bug(const char *file, int line, const char *cond, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define CHECK(cond, ...)                                                                                               \
    do {                                                                                                               \
        if (__builtin_expect(!(cond), 0)) bug(__FILE__, __LINE__, #cond, __VA_ARGS__);                                 \
    } while (0)

#endif
