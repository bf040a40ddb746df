/* SPDX-License-Identifier: Apache-2.0 */
/* image.h: a picture in memory: rows from the top, in them pixels from the left, of a pixel 1 byte (gray) or 3 (red,
 * green, blue): u8 [height, width, channels]. Floor 1: base. Order: Local.
 *
 * What a file may hold besides is handled like this, by every decoder: 16 bits keep their upper 8; a palette becomes
 * its colours; transparency is left out, what was below it shows; CMYK becomes red, green, blue without a colour
 * profile; and colour profiles are not applied. That is what PIL's convert("RGB") does.
 */
#ifndef TUTTI_MEDIA_IMAGE_H
#define TUTTI_MEDIA_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { IMAGE_SIDE_MAX = 65535 }; /* pixels: no decoder here makes more */

struct image {
    int64_t width, height;
    int channels; /* 1 or 3 */
    unsigned char *p;
};
/* Allocated, not initialised. ERR_CORRUPT: a size of 0 or beyond IMAGE_SIDE_MAX, or more than max_pixels of them, which
 * is asked before anything is allocated: a file of a few bytes may say that it holds a billion. */
int image_new(struct image *m, int64_t width, int64_t height, int channels, int64_t max_pixels, struct err *e);
void image_free(struct image *m);
size_t image_bytes(const struct image *m);

/* Colour from gray, or gray from colour: ITU-R BT.601's luma in 16 bits of fixed point. */
void image_to_channels(struct image *m, int channels);
/* As a camera held it (exif.h): 1 leaves it, 2 to 8 turn or mirror it. */
void image_orient(struct image *m, int orientation);

#endif
