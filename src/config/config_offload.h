/* SPDX-License-Identifier: Apache-2.0 */
/* config_offload.h: what the keys memory.offload and memory.offload_to mean together.
 * Floor 7. Order: Local.
 */
#ifndef TUTTI_CONFIG_CONFIG_OFFLOAD_H
#define TUTTI_CONFIG_CONFIG_OFFLOAD_H

#include "config/config.h"

/* Words of the list, in bits of memory.away. */
enum { AWAY_ACTIVATIONS = 1, AWAY_OPTIMIZER = 2, AWAY_MASTER = 4, AWAY_PARAMS = 8 };

/* Refuses what is asked for and cannot be had; sets memory.away (of auto: nothing yet) and memory.may. */
int config_resolve_offload(struct config *c, const struct conf *f, struct err *e);
/* The folder of the tier; NULL: what is offloaded waits in the host's memory, or nothing does. */
const char *config_offload_dir(const struct config *c);
/* memory.offload: auto, or a folder was given beside memory.recompute: auto and nothing said of what waits there. */
bool config_offload_auto(const struct config *c);
struct away_rule config_away(const struct config *c);
struct offload config_offload(const struct config *c);
/* "activations, optimizer": what is offloaded. */
void config_offload_text(const struct config *c, struct str *out);

#endif
