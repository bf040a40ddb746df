/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h: an empty directory of a test's own, gone with all that is in it. */
#ifndef TUTTI_TESTS_SCRATCH_H
#define TUTTI_TESTS_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/mem.h"

static inline char *scratch_new(void)
{
    char *path = xstrdup("/tmp/tutti-test-XXXXXX");
    if (!mkdtemp(path)) fail_msg("no directory %s", path);
    return path;
}

/* Deletes it, and frees the name. */
static inline void scratch_free(char *path)
{
    struct err e = {0};
    if (fs_remove_tree(path, &e)) fail_msg("%s", e.text);
    xfree(path);
}

#endif
