/* SPDX-License-Identifier: Apache-2.0 */
/* param_group.h: what an optimizer takes a parameter to be. Its group says it, not its dims: the filters of a
 * convolution have two and are vectors, whose numbers stand each for itself. Floors 0-2. Order: Local.
 */
#ifndef TUTTI_STATE_PARAM_GROUP_H
#define TUTTI_STATE_PARAM_GROUP_H

#include "state/param.h"

/* Whether parameters of a group have rows and columns to an optimizer; they have two dims then, which is checked. */
static inline bool param_group_is_matrices(enum param_group g) { return g != PARAM_VECTORS; }
/* Another group than the one that follows from dims and layer. */
void param_set_group(struct param *p, enum param_group g);

#endif
