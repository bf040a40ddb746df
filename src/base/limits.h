/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h: how much memory, and how many threads, the system lets this process have; for errors and for refusing in
 * time. Includes: base only. Order: Local.
 */
#ifndef TUTTI_BASE_LIMITS_H
#define TUTTI_BASE_LIMITS_H

#include <stdbool.h>
#include <stddef.h>

struct limit {
    size_t bytes;   /* what can still be had */
    char what[160]; /* whose figure that is, such as "the memory limit of cgroup /job (docker run --memory, systemd
                       MemoryMax)" */
};

/* The tightest of: what Linux could hand out without swapping, the memory limits of our cgroup and those above it
 * (files that it can drop count as free), ulimit -v and -d. False where the system tells none of them. */
bool limit_memory(struct limit *out);
/* The same from the files under `root` ("": the system's), for tests; ulimits are this process's. */
bool limit_memory_in(const char *root, struct limit *out);

/* Of what is mapped and was not touched: ulimits, which counted it when it was mapped, are left out. */
bool limit_pages(struct limit *out);

/* What is left of ulimit -v and -d, which mmap obeys at once; false where there is none. */
bool limit_addresses(struct limit *out);

/* "ulimit -u is 100, the cgroup's pids.max 4096": the limits that stop a thread from starting. */
void limit_threads_text(char out[160]);

#endif
