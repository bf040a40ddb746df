/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h: a rank's team of worker threads, thread names, atomically readable stop flags.
 *
 * A rank is one thread of control that owns a team. team_run hands the same function to every member (the
 * caller is member 0) and returns when all are done. Workers sleep when idle for longer than a short spin, so
 * that several ranks can share few cores.
 *
 * Invariants
 *   1. team_run is called by the owning thread only, never nested.
 *   2. Work is split by index, not by who comes first: results do not depend on timing.
 * Includes: base only. Order: Local.
 */
#ifndef TUTTI_BASE_THREAD_H
#define TUTTI_BASE_THREAD_H

#include <stdint.h>

#include "base/err.h"

struct team;
typedef void team_fn(void *arg, int member, int n_members);

/* n_threads >= 1, the caller included. ERR_MEMORY where the system starts no more threads, *out NULL. */
int team_start(struct team **out, int n_threads, struct err *e);
struct team *team_new(int n_threads); /* the same where a failure is nobody's to handle: it ends the process */
void team_free(struct team *t);
int team_size(const struct team *t);                   /* NULL counts as 1 */
void team_run(struct team *t, team_fn *fn, void *arg); /* t may be NULL: runs fn(arg, 0, 1) */
/* All members meet (only inside team_run, every member calls it). */
void team_barrier(struct team *t);

/* [lo, hi) of n items for member i of k: contiguous, sizes differ by at most one. */
static inline void team_split(int64_t n, int i, int k, int64_t *lo, int64_t *hi)
{
    *lo = n / k * i + (i < n % k ? i : n % k);
    *hi = *lo + n / k + (i < n % k);
}

/* Names show in top, gdb and in every CHECK: at most 15 characters, such as "r3 s120 F2". */
void thread_name_set(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void thread_name_get(char out[16]);
/* Cores this process may run on (affinity and cgroup quota respected). */
int thread_n_cores(void);
/* What the cgroup's quota alone allows, of all its processes together; INT32_MAX without one. Read once. */
int thread_quota_cores(void);

#endif
