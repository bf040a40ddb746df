/* SPDX-License-Identifier: Apache-2.0 */
/* drawn.h: a number that another commit has another one of, for tests that try a part of a whole. TUTTI_GRID_SEED gives
 * it instead. */
#ifndef TUTTI_TESTS_DRAWN_H
#define TUTTI_TESTS_DRAWN_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static inline uint64_t drawn_seed(void)
{
    char line[64] = "";
    const char *given = getenv("TUTTI_GRID_SEED");
    FILE *p = given ? NULL : popen("git -C '" TEST_DIR "' rev-parse HEAD 2>/dev/null", "r");
    if (given) snprintf(line, sizeof line, "%.60s", given);
    else if (p && !fgets(line, sizeof line, p)) line[0] = 0;
    if (p) pclose(p);
    line[strcspn(line, "\n")] = 0;
    fprintf(stderr, "drawn by '%s'\n", line);
    return hash64(line, strlen(line));
}

#endif
