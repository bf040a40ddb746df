/* SPDX-License-Identifier: Apache-2.0 */
/* exif.h: which way up a picture is, from the block of TIFF tags that cameras write (Exif 2.32, JEITA CP-3451).
 * Floor 1: base. Order: Local. */
#ifndef TUTTI_MEDIA_EXIF_H
#define TUTTI_MEDIA_EXIF_H

#include <stddef.h>

/* Of a block that begins with the byte order ("II" or "MM"), or with "Exif\0\0" before it: 1 to 8; 1 where it says
 * nothing, or nonsense: a picture is not lost for a bad tag. */
int exif_orientation(const void *p, size_t n);

#endif
