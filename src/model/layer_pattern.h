/* SPDX-License-Identifier: Apache-2.0 */
/* layer_pattern.h: which layers of a model have something, as a short text that is repeated until all layers are
 * covered: x, the layer has it; o, it has not; a number before a letter, so many of them. Of Gemma 3's layers five look
 * near and the sixth looks at all: "5xo". A model's first dense layer before sparse ones, of 27: "o26x".
 *
 * The empty text means all. The text is the value: it is printed, compared and read as it stands. Floor 1. Order:
 * Local.
 */
#ifndef TUTTI_MODEL_LAYER_PATTERN_H
#define TUTTI_MODEL_LAYER_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

enum { LAYER_PATTERN_BYTES = 128 };
struct layer_pattern {
    char text[LAYER_PATTERN_BYTES]; /* zeros behind the end, so that equal patterns are equal bytes */
};

/* NULL: it is one; else what is wanted of it, for an error. */
const char *layer_pattern_wanted(const char *text);
bool layer_pattern_has(const struct layer_pattern *p, int64_t layer);
/* Of layers [0, n). */
int64_t layer_pattern_count(const struct layer_pattern *p, int64_t n);
/* The shortest text for n layers; false: it does not fit, and *p is all. */
bool layer_pattern_of(const bool *has, int64_t n, struct layer_pattern *p);

#endif
