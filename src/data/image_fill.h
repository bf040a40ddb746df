/* SPDX-License-Identifier: Apache-2.0 */
/* image_fill.h: a sample of an index as what a model takes: its picture's values and its class. Includes: base, media,
 * image_index.h. Order: Local; any number of threads. */
#ifndef TUTTI_DATA_IMAGE_FILL_H
#define TUTTI_DATA_IMAGE_FILL_H

#include "data/image_index.h"
#include "media/view.h"

struct image_rule {
    struct view_rule view; /* size 0: samples are texts */
    struct media_limits limits;
    int64_t classes;
    const char *part; /* of datasets of Megatron-Energon: "train", "val" */
};
static inline int64_t image_rule_pixels(const struct image_rule *r)
{
    return r->view.channels * r->view.size * r->view.size;
}
/* The `order`-th sample that is trained on (it decides the view, with the seed) is sample i: pixels fp32
 * [image_rule_pixels], *label. Errors name shard, sample and byte. */
int image_fill(struct image_index *x, const struct image_rule *r, int64_t i, uint64_t seed, uint64_t order,
               float *pixels, int32_t *label, struct err *e);
/* The same as a picture, for people; about: what the file holds. */
struct image_about {
    int64_t width, height; /* turned upright */
    int channels;
    int64_t bytes;
    const char *format;
};
int image_view(struct image_index *x, const struct image_rule *r, int64_t i, uint64_t seed, uint64_t order,
               struct image *out, struct image_about *about, struct err *e);

#endif
