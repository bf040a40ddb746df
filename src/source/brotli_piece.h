/* SPDX-License-Identifier: Apache-2.0 */
/* brotli_piece.h: a piece packed by Brotli, by its library. Includes: libc. Order: Local. */
#ifndef TUTTI_SOURCE_BROTLI_PIECE_H
#define TUTTI_SOURCE_BROTLI_PIECE_H

#include <stddef.h>

/* Into exactly n_out bytes: NULL, or what is wrong. */
const char *brotli_piece(const void *p, size_t n, void *out, size_t n_out);

#endif
