/* SPDX-License-Identifier: Apache-2.0 */
/* megatron_format.h: what the bytes of PREFIX.idx are; for megatron.c and megatron_write.c. */
#ifndef TUTTI_DATA_MEGATRON_FORMAT_H
#define TUTTI_DATA_MEGATRON_FORMAT_H

#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "Megatron's files are read and written as they lie");

#define MEGATRON_MAGIC "MMIDIDX\0" /* nine bytes with the NUL of the literal */
enum { MEGATRON_VERSION = 1, MEGATRON_HEAD = 34, MEGATRON_CODES = 9 };

struct megatron_type {
    const char *name; /* NULL: no such code */
    int width;
    int64_t lo, hi; /* of ids; hi < lo: not a type of ids */
};
extern const struct megatron_type megatron_types[MEGATRON_CODES]; /* by code */

#endif
