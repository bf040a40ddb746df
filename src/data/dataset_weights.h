/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_weights.h: the sources' weights over the steps of a run → a blend; for dataset.c.
 *
 * Weights are constant from one step at which a source names a point to the next. With ramps they climb between points
 * in stairs of whole steps, at most 256 between two of all sources' points, and a stair has the weights of its middle:
 * so what a source has had at the end of a ramp is what a line would have given it, where the weights' sum stays the
 * same. Includes: base, dataset.h, sampler.h. Order: Local.
 */
#ifndef TUTTI_DATA_DATASET_WEIGHTS_H
#define TUTTI_DATA_DATASET_WEIGHTS_H

#include "data/dataset.h"
#include "data/sampler.h"

/* ERR_REQUEST names the source and the step: a weight that is negative, infinite, no number or 0 throughout, steps that
 * do not rise. Before any file is opened. */
int weights_check(const struct dataset_options *o, struct err *e);
/* Of checked options; k counts groups, or parts. ERR_REQUEST: a step at which all weights are 0, or one is less than
 * BLEND_LEAST of their sum. */
int weights_blend(struct blend *b, const struct dataset_options *o, struct err *e);

#endif
