/* SPDX-License-Identifier: Apache-2.0 */
/* config_params.h: what a config says of parameters by their names, or of how they are cut: adapters, what is frozen,
 * what is packed. Floor 7. Order: Same(config).
 */
#ifndef TUTTI_CONFIG_CONFIG_PARAMS_H
#define TUTTI_CONFIG_CONFIG_PARAMS_H

#include "config/config.h"

/* Of a config whose layout is resolved: names that fit nothing, matrices that cannot have what is asked for, blocks
 * that the layout cuts. */
int config_check_params(const struct config *c, const struct conf *f, struct err *e);

#endif
