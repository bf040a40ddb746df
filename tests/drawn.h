/* SPDX-License-Identifier: Apache-2.0 */
/* drawn.h: a number that another commit has another one of, for tests that try a part of a whole every day, and the
 * whole with TUTTI_WHOLE in the environment (scripts/test.sh --all). TUTTI_GRID_SEED gives the number instead. */
#ifndef TUTTI_TESTS_DRAWN_H
#define TUTTI_TESTS_DRAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static inline uint64_t drawn_seed(void)
{
    static uint64_t seed;
    if (seed) return seed;
    char line[64] = "";
    const char *given = getenv("TUTTI_GRID_SEED");
    FILE *p = given ? NULL : popen("git -C '" TEST_DIR "' rev-parse HEAD 2>/dev/null", "r");
    if (given) snprintf(line, sizeof line, "%.60s", given);
    else if (p && !fgets(line, sizeof line, p)) line[0] = 0;
    if (p) pclose(p);
    line[strcspn(line, "\n")] = 0;
    fprintf(stderr, "drawn by '%s'\n", line);
    return seed = hash64(line, strlen(line)) | 1;
}

static inline bool drawn_whole(void) { return getenv("TUTTI_WHOLE") != NULL; }

/* Whether entry i of a list is in the part, one of k, that is drawn; every one in the whole. */
static inline bool drawn_here(int64_t i, int k)
{
    return drawn_whole() || (uint64_t)i % (uint64_t)k == (drawn_seed() >> 8) % (uint64_t)k;
}

/* Half of a list, of which a sanitizer's build runs every stride-th entry (sanitized.h): those are few enough, and run
 * whatever is drawn. */
static inline bool drawn_half(size_t i, size_t stride) { return stride > 1 || drawn_here((int64_t)i, 2); }

/* How many of n entries drawn_here(i, k) takes; entry i is the (i / k)th of them. */
static inline int64_t drawn_number(int64_t n, int k)
{
    int64_t first = drawn_whole() ? 0 : (int64_t)((drawn_seed() >> 8) % (uint64_t)k), apart = drawn_whole() ? 1 : k;
    return (n - first + apart - 1) / apart;
}

#endif
