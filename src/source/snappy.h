/* SPDX-License-Identifier: Apache-2.0 */
/* snappy.h: a piece packed by Snappy, by its library. Includes: libc. Order: Local. */
#ifndef TUTTI_SOURCE_SNAPPY_H
#define TUTTI_SOURCE_SNAPPY_H

#include <stddef.h>

/* Into exactly n_out bytes: NULL, or what is wrong. */
const char *snappy_piece(const void *p, size_t n, void *out, size_t n_out);

#endif
