/* SPDX-License-Identifier: Apache-2.0 */
/* err.c: filling a struct err, and stopping on a bug.
 *
 * An error's text is built where the facts are known, in one fixed buffer that travels up by pointer: no
 * allocation, so running out of memory can be reported too. A text that does not fit is cut and ends in "...".
 * A bug writes one line with a single write(2), so that lines of several ranks do not mix, and aborts: a core
 * file or a debugger then shows the state as it was. Unwinding was rejected: after a broken invariant no code
 * of ours can be trusted to clean up.
 */
#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

/* Marks a text that was cut, so that nobody takes a half sentence for the whole. */
static void mark_cut(char *text, size_t room, int wanted)
{
    if (wanted >= 0 && (size_t)wanted >= room) memcpy(text + room - 4, "...", 4);
}

/* Others take a text for the sign that there was an error, and people have nothing else to go by. */
static void never_empty(struct err *e)
{
    if (!e->text[0])
        snprintf(e->text, sizeof e->text, "error %d without a reason, which is a fault of tutti's: please report it",
                 (int)e->code);
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (!e) return code;
    va_list args;
    va_start(args, fmt);
    e->code = code;
    mark_cut(e->text, sizeof e->text, vsnprintf(e->text, sizeof e->text, fmt, args));
    va_end(args);
    never_empty(e);
    return code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    if (!e) return ERR_IO;
    char prefix[500];
    va_list args;
    never_empty(e);
    va_start(args, fmt);
    mark_cut(prefix, sizeof prefix, vsnprintf(prefix, sizeof prefix, fmt, args));
    va_end(args);

    size_t old = strlen(e->text), add = strlen(prefix) + 2, keep = sizeof e->text - 1 - add;
    if (old > keep) {
        old = keep;
        memcpy(e->text + old - 3, "...", 3);
    }
    memmove(e->text + add, e->text, old);
    memcpy(e->text, prefix, add - 2);
    memcpy(e->text + add - 2, ": ", 2);
    e->text[add + old] = 0;
    return e->code;
}

int err_errno(struct err *e, enum err_code code, int errno_value, const char *fmt, ...)
{
    if (!e) return code;
    va_list args;
    va_start(args, fmt);
    e->code = code;
    int n = vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    mark_cut(e->text, sizeof e->text, n);
    if (n < 0 || (size_t)n >= sizeof e->text) return code;

    char reason[128];
    const char *why = strerror_r(errno_value, reason, sizeof reason);
    size_t room = sizeof e->text - (size_t)n;
    int added = snprintf(e->text + n, room, ": %s", why);
    mark_cut(e->text, sizeof e->text, n + added);
    return code;
}

int err_exit_status(int code)
{
    if (code == OK) return 0;
    return code == ERR_REQUEST || code == ERR_CORRUPT ? 2 : 1;
}

void bug(const char *file, int line, const char *cond, const char *fmt, ...)
{
    char name[16], text[1200], message[800];
    thread_name_get(name);
    va_list args;
    va_start(args, fmt);
    mark_cut(message, sizeof message, vsnprintf(message, sizeof message, fmt, args));
    va_end(args);
    int n = snprintf(text, sizeof text, "BUG (%s) %s:%d: CHECK(%.200s) failed: %s\n", name, file, line, cond, message);
    size_t bytes = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    ssize_t written = write(STDERR_FILENO, text, bytes);
    (void)written; /* nowhere left to complain */
    abort();
}
