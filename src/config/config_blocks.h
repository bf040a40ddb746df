/* SPDX-License-Identifier: Apache-2.0 */
/* config_blocks.h: whether the layout of a config cuts through blocks of an optimizer's moments. Floor 7. */
#ifndef TUTTI_CONFIG_CONFIG_BLOCKS_H
#define TUTTI_CONFIG_CONFIG_BLOCKS_H

#include "base/err.h"

struct config;
/* Of a resolved config; the reason and the nearest block that fits. Order: Same(config). */
int config_check_blocks(const struct config *c, struct err *e);

#endif
