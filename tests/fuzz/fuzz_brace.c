/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_brace.c: any letters as a name with braces: names without any, or words why not. */
#include <string.h>

#include "base/mem.h"
#include "source/brace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > 24) return 0; /* so that a million names is rare */
    char *pattern = xstrndup((const char *)data, n), **names;
    int64_t n_names;
    struct err e = {0};
    int code = brace_expand(pattern, &names, &n_names, &e);
    CHECK(code ? !n_names && *e.text : n_names > 0, "neither names nor an error");
    for (int64_t i = 0; i < n_names; i++) CHECK(!strchr(names[i], '{'), "braces are left: %s", names[i]);
    brace_free(names, n_names);
    xfree(pattern);
    return 0;
}
