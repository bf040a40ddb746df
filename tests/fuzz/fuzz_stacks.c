/* SPDX-License-Identifier: Apache-2.0 */
/* Files of stacks of whatever bytes, one after the other: each rank is in one group. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "watch/hang_groups.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hang_ranks *r = hang_ranks_new();
    struct str out = {0};
    char *text = xcalloc(size + 1, 1);
    if (size) memcpy(text, data, size);
    hang_ranks_add(r, text);
    hang_ranks_add(r, text + size / 2); /* half a file */
    hang_ranks_print(r, &out);
    CHECK(str_starts(str_text(&out), "0 ranks") == !strstr(str_text(&out), "\nrank"), "%s", str_text(&out));
    str_free(&out);
    xfree(text);
    hang_ranks_free(r);
    return 0;
}
