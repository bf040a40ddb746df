/* SPDX-License-Identifier: Apache-2.0 */
/* text_pictures.h: the pictures of a document that was made of a shard's sample (chat_tokenize.h): those of its members
 * that are images, in the archive's order, read when they are wanted. The token file says where the sample begins, so
 * nothing else is kept. Includes: base, media, source, tokenfile.h, image_fill.h. Order: Local; any number of threads.
 */
#ifndef TUTTI_DATA_TEXT_PICTURES_H
#define TUTTI_DATA_TEXT_PICTURES_H

#include "data/image_fill.h"
#include "data/tokenfile.h"

/* How texts have pictures: each is `patches` tokens of one id. */
struct text_pictures_rule {
    int64_t patches; /* 0: they have none */
    int64_t places;  /* rows that the model makes of a picture: its patches, behind */
    int64_t lead;    /* those that are none */
    int64_t most;    /* pictures of a sample */
    int32_t token;
};

/* Values of n pictures of a document, one behind the other: those of its sample, or of these its members with the
 * extensions `image` (sample_field.h; NULL: all that are images). order: decides the view, with seed.
 *   fails   ERR_CORRUPT with shard, sample and byte: a picture that cannot be decoded or is too large, more or fewer
 *           than n; ERR_IO */
int text_pictures_fill(const struct tokenfile *f, int64_t document, int64_t n, const char *image,
                       const struct image_rule *r, uint64_t seed, uint64_t order, float *pixels, struct err *e);

#endif
