/* SPDX-License-Identifier: Apache-2.0 */
/* check.h: what every test of this room includes: cmocka, and scratch.h. */
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
#include "scratch.h"

#define assert_contains(text, part)                                                                                    \
    do {                                                                                                               \
        if (!strstr(text, part)) fail_msg("'%s' does not contain '%s'", (const char *)(text), part);                   \
    } while (0)

#endif
