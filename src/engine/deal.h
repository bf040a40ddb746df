/* SPDX-License-Identifier: Apache-2.0 */
/* deal.h: sharing out layers over the stages of a pipeline, so that the dearest stage is as cheap as can be. On paper.
 *
 * A stage is a stretch of layers. The first stage also pays for the embedding and the last for the head; they have a
 * purpose without a layer and may be left with none. A stage between them without a layer would only pass on what it
 * gets, and is not legal.
 *
 * Among all legal ways the one is chosen whose dearest stage is cheapest; of these the one with the least sum of
 * squares (as even as can be); of these the one whose last stages have fewest layers. All of it exact, in whole
 * numbers. Floor 6. Order: Same(arguments).
 */
#ifndef TUTTI_ENGINE_DEAL_H
#define TUTTI_ENGINE_DEAL_H

#include <stdbool.h>
#include <stdint.h>

#define DEAL_MOST ((int64_t)1 << 30) /* costs add up to at most this: a sum of squares fits into 64 bits */

/* The least number of layers of a stage: 0 at the ends, 1 between them. */
int deal_least(int stage, int n_stages);
/* Whether there is any legal way. */
bool deal_possible(int n_layers, int n_stages);
/* n[n_stages]: how many layers each stage takes. cost[n_layers] of the layers, `first` and `last` of what the two ends
 * do besides; none negative. CHECKs deal_possible and DEAL_MOST. */
void deal_layers(int64_t *n, int n_stages, const int64_t *cost, int n_layers, int64_t first, int64_t last);

#endif
