/* SPDX-License-Identifier: Apache-2.0 */
/* config_memory.h: what the keys of `memory` mean together: names of what is computed again, the limit, and what
 * else is chosen to stay below it.
 * Floor 7. Order: Local.
 */
#ifndef TUTTI_CONFIG_CONFIG_MEMORY_H
#define TUTTI_CONFIG_CONFIG_MEMORY_H

#include "config/config.h"

/* Sets memory.chosen and memory.limit_bytes; ERR_REQUEST names the key, the word and what there is. */
int config_resolve_memory(struct config *c, const struct conf *f, struct err *e);
bool config_recompute_auto(const struct config *c);
/* After all else: sets parallel.may_zero. With memory.recompute: auto a zero level that nobody gave is chosen, too, of
 * those that would be accepted where they are asked for. */
void config_resolve_zero(struct config *c, const struct conf *f);
/* The zero level is chosen (site/choose.h). */
bool config_zero_auto(const struct config *c);

#endif
