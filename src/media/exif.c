/* SPDX-License-Identifier: Apache-2.0 */
#include "media/exif.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, ENTRY = 12 };

struct tiff {
    const unsigned char *p;
    size_t n;
    bool big;
};

/* 0 beyond the end. */
static uint32_t read_at(const struct tiff *t, uint64_t at, int bytes)
{
    uint32_t v = 0;
    if (at + (uint64_t)bytes > t->n) return 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)t->p[at + (uint64_t)i] << 8 * (t->big ? bytes - 1 - i : i);
    return v;
}

int exif_orientation(const void *block, size_t n)
{
    const unsigned char *p = block;
    if (n >= 6 && !memcmp(p, "Exif\0\0", 6)) p += 6, n -= 6;
    struct tiff t = {p, n, n >= 2 && p[0] == 'M'};
    if (n < 8 || (memcmp(p, "II", 2) && memcmp(p, "MM", 2)) || read_at(&t, 2, 2) != 42) return 1;
    uint64_t folder = read_at(&t, 4, 4);
    uint32_t entries = read_at(&t, folder, 2);
    for (uint32_t i = 0; i < entries; i++) {
        uint64_t at = folder + 2 + (uint64_t)i * ENTRY;
        if (at + ENTRY > n) break;
        if (read_at(&t, at, 2) != TAG_ORIENTATION) continue;
        uint32_t value = read_at(&t, at + 8, 2);
        return read_at(&t, at + 2, 2) == TYPE_SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
