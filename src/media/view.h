/* SPDX-License-Identifier: Apache-2.0 */
/* view.h: the view of a picture that a model gets: which box, in which size, mirrored or not, and the values that
 * follow. For training it is chosen by chance, of numbers that are a function of (seed, sample) alone (base/rng.h): who
 * prepares a sample, when and how often, changes nothing. For evaluation it is the middle. Floor 1: base. Order: Local.
 */
#ifndef TUTTI_MEDIA_VIEW_H
#define TUTTI_MEDIA_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "media/resize.h"

enum view_crop { CROP_RANDOM, CROP_CENTER };
#define VIEW_CROPS "random|center"
enum { VIEW_CHANNELS = 3 };

struct view_rule {
    int64_t size; /* pixels a side: the view is a square */
    int channels; /* 1 or 3 */
    enum view_crop crop;
    enum resize_filter filter;
    int64_t resize;                                 /* center: the shorter side first becomes this; at least size */
    double scale[2], ratio[2];                      /* random: the box's share of the area; its width over its height */
    double flip;                                    /* random: how often left and right are exchanged */
    double mean[VIEW_CHANNELS], std[VIEW_CHANNELS]; /* of values from 0 to 1 */
};

struct view_choice {
    struct image_box box;
    bool mirrored;
};
/* random: a box of a random share of the area and a random shape that lies inside, ten tries, else the largest middle
 * box of a legal shape (Szegedy et al. 2015, "Going Deeper with Convolutions", as torchvision has it); center: the
 * square in the middle that becomes `size` when the shorter side becomes `resize`. */
struct view_choice view_random(const struct view_rule *r, int64_t width, int64_t height, uint64_t seed,
                               uint64_t sample);
/* fp32 [channels, size, size]: (value / 255 - mean) / std. The picture's channels become the rule's. */
void view_values(const struct view_rule *r, struct image *m, uint64_t seed, uint64_t sample, float *out);
/* The same before it becomes numbers, for people. */
void view_image(const struct view_rule *r, struct image *m, uint64_t seed, uint64_t sample, struct image *out);

#endif
