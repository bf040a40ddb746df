/* SPDX-License-Identifier: Apache-2.0 */
#include "source/lz4_piece.h"

#include <limits.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdint.h>

static bool block(const void *p, size_t n, void *out, size_t n_out)
{
    if (n > INT_MAX || n_out > INT_MAX) return false;
    return LZ4_decompress_safe(p, out, (int)n, (int)n_out) == (int)n_out;
}

const char *lz4_piece(const void *p, size_t n, void *out, size_t n_out)
{
    return block(p, n, out, n_out) ? NULL : "its LZ4 data are damaged, or not as long as they should be";
}

static uint32_t size_at(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool blocks(const unsigned char *p, size_t n, unsigned char *out, size_t n_out)
{
    enum { SIZES = 8 };
    while (n_out) {
        if (n < SIZES) return false;
        size_t unpacked = size_at(p), packed = size_at(p + 4);
        if (packed > n - SIZES || unpacked > n_out || !unpacked || !block(p + SIZES, packed, out, unpacked))
            return false;
        p += SIZES + packed;
        n -= SIZES + packed;
        out += unpacked;
        n_out -= unpacked;
    }
    return n == 0;
}

const char *lz4_hadoop_piece(const void *p, size_t n, void *out, size_t n_out)
{
    return blocks(p, n, out, n_out) ? NULL : lz4_piece(p, n, out, n_out);
}
