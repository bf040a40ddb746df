/* SPDX-License-Identifier: Apache-2.0 */
/* lz4_piece.h: a piece packed by LZ4, by its library. Includes: libc. Order: Local. */
#ifndef TUTTI_SOURCE_LZ4_PIECE_H
#define TUTTI_SOURCE_LZ4_PIECE_H

#include <stddef.h>

/* A block of LZ4, without a frame, into exactly n_out bytes: NULL, or what is wrong. */
const char *lz4_piece(const void *p, size_t n, void *out, size_t n_out);
/* The same as Hadoop packs it: blocks, each behind its two sizes (of 4 bytes, the largest first). Some writers called a
 * block without sizes so, too, and it is taken. */
const char *lz4_hadoop_piece(const void *p, size_t n, void *out, size_t n_out);

#endif
