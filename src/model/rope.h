/* SPDX-License-Identifier: Apache-2.0 */
/* rope.h: what scaling makes of a frequency of rotary positions. Floor 1: numbers.h. Order: Local. */
#ifndef TUTTI_MODEL_ROPE_H
#define TUTTI_MODEL_ROPE_H

#include "model/numbers.h"

/* Llama 3.1's: long wavelengths are stretched by `factor`, short ones kept, a smooth ramp between (Grattafiori et al.
 * 2024; the published reference settings). Linear: all are stretched. Other kinds: as it is. Radians per position. */
double rope_stretched(const struct rope_scaling_config *r, double frequency);

#endif
