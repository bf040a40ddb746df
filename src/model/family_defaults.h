/* SPDX-License-Identifier: Apache-2.0 */
/* family_defaults.h: what a family has where a config says nothing: its rows of DEFAULT in families.def.
 * Floor 1. Order: Local. */
#ifndef TUTTI_MODEL_FAMILY_DEFAULTS_H
#define TUTTI_MODEL_FAMILY_DEFAULTS_H

#include "model/numbers.h"

/* Whether a person or a model's weights said a number. */
typedef bool number_said_fn(const void *ctx, const char *path);
/* Every number of the family's rows that nobody said. */
void family_defaults(struct model_config *c, number_said_fn *said, const void *ctx);
/* The value in a row, as YAML text; NULL: the family has no other default there than the number's own. */
const char *family_default(enum model_family f, const char *path);

#endif
