/* SPDX-License-Identifier: Apache-2.0 */
/* large_pages.c: a wish to the system: where it does not grant it only speed changes. */
#include "base/large_pages.h"

#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 4096, FROM = 4 << 20 };

void *in_large_pages(void *p, size_t bytes)
{
    uintptr_t from = ((uintptr_t)p + PAGE - 1) / PAGE * PAGE, to = ((uintptr_t)p + bytes) / PAGE * PAGE;
    if (bytes >= FROM) (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
    return p;
}
