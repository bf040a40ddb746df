/* SPDX-License-Identifier: Apache-2.0 */
/* config_precision.h: what precision.master, precision.loss_scale and numerics.accumulate mean beside the recipe
 * (config_recipe.h). Floor 7. Order: Same(config). */
#ifndef TUTTI_CONFIG_CONFIG_PRECISION_H
#define TUTTI_CONFIG_CONFIG_PRECISION_H

#include "config/config.h"

int config_check_precision(const struct config *c, const struct conf *f, struct err *e);
/* Products that are added up as tensor cores do it. */
int config_check_accumulate(const struct config *c, const struct conf *f, struct err *e);
struct loss_scale_config config_loss_scale(const struct config *c); /* of fp16; else none */

#endif
