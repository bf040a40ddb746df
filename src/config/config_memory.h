/* SPDX-License-Identifier: Apache-2.0 */
/* config_memory.h: what the keys of `memory` mean together: names of what is computed again, and the limit.
 * Floor 7. Order: Local.
 */
#ifndef TUTTI_CONFIG_CONFIG_MEMORY_H
#define TUTTI_CONFIG_CONFIG_MEMORY_H

#include "config/config.h"

/* Sets memory.chosen and memory.limit_bytes; ERR_REQUEST names the key, the word and what there is. */
int config_resolve_memory(struct config *c, const struct conf *f, struct err *e);
bool config_recompute_auto(const struct config *c);

#endif
