/* SPDX-License-Identifier: Apache-2.0 */
/* config_recipe.h: what precision.recipe and precision.layers say together, and which layouts have the scales of one
 * rank. Floor 7. Order: Same(config). */
#ifndef TUTTI_CONFIG_CONFIG_RECIPE_H
#define TUTTI_CONFIG_CONFIG_RECIPE_H

#include "config/config.h"

/* After degrees, batch and schedule are known. Layouts in which a block would be cut are refused, with the nearest
 * degree that fits. */
int config_resolve_recipe(const struct config *c, const struct conf *f, struct err *e);
/* The layout alone: for who tries layouts. */
int config_check_recipe(const struct config *c, struct err *e);
struct recipe_config config_recipe(const struct config *c);
bool config_quantises(const struct config *c); /* some products may have fewer bits */

#endif
