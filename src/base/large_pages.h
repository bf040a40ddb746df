/* SPDX-License-Identifier: Apache-2.0 */
/* large_pages.h: tables of megabytes that are soon full, in pages of 2 MiB: waiting for thousands of small ones takes
 * longer than to fill them. Includes: libc only. Order: Local.
 */
#ifndef TUTTI_BASE_LARGE_PAGES_H
#define TUTTI_BASE_LARGE_PAGES_H

#include <stddef.h>

/* The same p, of xmalloc or xcalloc and not yet written; what is below 4 MiB stays as it is. */
void *in_large_pages(void *p, size_t bytes);

#endif
