/* SPDX-License-Identifier: Apache-2.0 */
/* config_optim.h: what the keys of optimizer mean together. Floor 7. Order: Same(config). */
#ifndef TUTTI_CONFIG_CONFIG_OPTIM_H
#define TUTTI_CONFIG_CONFIG_OPTIM_H

#include "config/config.h"

/* Refuses what the optimizer cannot do; the layout is resolved. */
int config_check_optim(const struct config *c, const struct conf *f, struct err *e);
/* Ends of the learning rate's schedule that nobody gave, and that are beyond the rest of it. */
int config_resolve_lr(struct config *c, const struct conf *f, struct err *e);

/* Of a learning rate that nobody named: what it is and why, for a line; NULL: it is given. Of a resolved config. */
const char *config_lr_usual(const struct config *c, const struct conf *f, char out[128]);

#endif
