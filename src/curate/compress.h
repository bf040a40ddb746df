/* SPDX-License-Identifier: Apache-2.0 */
/* compress.h: bytes as one zstd frame (RFC 8878) with its checksum; frames after one another are one file. The library
 * is named here and in source/unpack.c only. Includes: base. Order: Local. */
#ifndef TUTTI_CURATE_COMPRESS_H
#define TUTTI_CURATE_COMPRESS_H

#include "base/err.h"
#include "base/str.h"

struct compressor; /* one thread's */
struct compressor *compressor_new(int level);
void compressor_free(struct compressor *c);
/* Adds the frame of p[0..n) to out. ERR_MEMORY, ERR_IO: what zstd says. */
int compressor_add(struct compressor *c, const void *p, size_t n, struct str *out, struct err *e);

#endif
