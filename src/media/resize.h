/* SPDX-License-Identifier: Apache-2.0 */
/* resize.h: a picture in another size, antialiased: where it shrinks, the filter widens with it, so that every pixel
 * counts. The result is PIL's Image.resize (and so torchvision's on pictures) to the bit: weights in 22 bits of fixed
 * point, columns first, rounded to 8 bits, then rows. Floor 1: base. Order: Local.
 *
 * Cost: width' * height * taps + width' * height' * taps products, with taps = about support * scale each way.
 */
#ifndef TUTTI_MEDIA_RESIZE_H
#define TUTTI_MEDIA_RESIZE_H

#include "media/image.h"

enum resize_filter { RESIZE_BICUBIC, RESIZE_BILINEAR }; /* Keys' cubic with a = -0.5; a triangle */
#define RESIZE_FILTERS "bicubic|bilinear"

/* A rectangle of whole pixels. */
struct image_box {
    int64_t x, y, width, height;
};
/* The whole in width x height pixels, of which `part` alone is made: no more of the picture than that takes is touched,
 * and memory does not grow with width and height. */
void image_resize_part(struct image *out, const struct image *from, int64_t width, int64_t height,
                       struct image_box part, enum resize_filter filter);
/* What lies in the box alone, as if it had been cut out before, in width x height pixels. */
void image_resize(struct image *out, const struct image *from, struct image_box box, int64_t width, int64_t height,
                  enum resize_filter filter);

#endif
