/* SPDX-License-Identifier: Apache-2.0 */
/* image_scan.h: the samples of one shard, one after the other; for image_index_make.c. Includes: base, media, source.
 * Order: Local. */
#ifndef TUTTI_DATA_IMAGE_SCAN_H
#define TUTTI_DATA_IMAGE_SCAN_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "source/blob.h"

struct image_scan_options {
    const char *image; /* extensions, "jpg,png"; NULL: of any picture */
    const char *label; /* image_index.h */
    int64_t classes;
    bool no_image, no_label; /* is not looked for: samples that get it from another archive */
};
struct image_found {
    const char *key; /* until the next call */
    int64_t header, offset, bytes;
    int32_t label;
};

struct image_scan;
/* The blob stays the caller's. ERR_REQUEST: it is packed, or no tar archive. */
int image_scan_open(struct image_scan **s, struct blob *blob, const struct image_scan_options *o, struct err *e);
void image_scan_close(struct image_scan *s); /* NULL is fine */
/* 1; 0 at the end; < 0. ERR_CORRUPT and image_scan_goes_on: the sample is bad, the next may be right. Samples are
 * counted, bad ones too. */
int image_scan_next(struct image_scan *s, struct image_found *f, struct err *e);
bool image_scan_goes_on(const struct image_scan *s);
const char *image_scan_key(const struct image_scan *s); /* of the last sample, also of a bad one; until the next call */
#endif
