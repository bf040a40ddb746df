/* SPDX-License-Identifier: Apache-2.0 */
/* check.h: what every test of this room includes: cmocka, and a directory of its own under /tmp. */
#ifndef TUTTI_TESTS_BASE_CHECK_H
#define TUTTI_TESTS_BASE_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"

/* An empty directory; directory_remove deletes it with everything inside and frees the name. */
static inline char *directory_new(void)
{
    char *path = strdup("/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void directory_remove(char *path)
{
    struct err e = {0};
    assert_int_equal(fs_remove_tree(path, &e), OK);
    free(path);
}

#define assert_contains(text, part)                                                                                    \
    do {                                                                                                               \
        if (!strstr(text, part)) fail_msg("'%s' does not contain '%s'", (const char *)(text), part);                   \
    } while (0)

#endif
