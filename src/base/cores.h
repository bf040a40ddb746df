/* SPDX-License-Identifier: Apache-2.0 */
/* cores.h: sets of cores, as the system numbers them: what a process may run on, and whether two of them get in each
 * other's way. Includes: base only. Order: Local.
 */
#ifndef TUTTI_BASE_CORES_H
#define TUTTI_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define CORES_MOST 16384

struct cores {
    uint64_t word[CORES_MOST / 64]; /* bit i % 64 of word i / 64 is core i */
};

/* What a process may run on (0: this thread). False, and empty, where the system does not say. */
bool cores_of(int pid, struct cores *c);
/* The calling thread runs on these from now on, and so do threads that it starts. False: the system refuses (errno). */
bool cores_bind(const struct cores *c);
bool cores_has(const struct cores *c, int core);
void cores_add(struct cores *c, int core); /* 0 <= core < CORES_MOST */
int cores_count(const struct cores *c);
void cores_join(struct cores *into, const struct cores *c);
/* Cores in both. */
int cores_common(const struct cores *a, const struct cores *b, struct cores *both); /* both may be NULL */
/* "0-3,8"; "none" where there is none. */
void cores_print(const struct cores *c, struct str *out);

#endif
