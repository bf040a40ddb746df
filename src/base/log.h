/* SPDX-License-Identifier: Apache-2.0 */
/* log.h: progress and logs, always to stderr. The sink is process-wide and locked: whole lines never mix.
 * Level from the environment variable LOG (error, warn, info, debug; default info), read at first use.
 * Order: Local; any thread.
 */
#ifndef TUTTI_BASE_LOG_H
#define TUTTI_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

/* From now on nothing below this level is said; returns what was said until now. For runs that are parts of another
 * command's work. */
enum log_level log_most(enum log_level most);

/* A line that is dropped rather than waited for: when nobody reads stderr, or another line has stuck in it for 0.2 s.
 * For threads that must not wait. */
void log_or_drop(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A status line that is overwritten in place on a terminal and printed as a plain line elsewhere.
 * log_status_end() keeps the last one and moves on. */
void log_status(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_status_end(void);
int log_is_terminal(void); /* stderr is a terminal and TERM is not dumb */

#endif
