/* SPDX-License-Identifier: Apache-2.0 */
/* config_run.h: what the keys of run and checkpoint ask of others. Floor 7. Order: Same(config). */
#ifndef TUTTI_CONFIG_CONFIG_RUN_H
#define TUTTI_CONFIG_CONFIG_RUN_H

#include "config/config.h"

/* Refuses what cannot go on beside the steps, with the key to change. All else is resolved. */
int config_check_run(const struct config *c, const struct conf *f, struct err *e);

#endif
