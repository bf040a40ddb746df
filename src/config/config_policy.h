/* SPDX-License-Identifier: Apache-2.0 */
/* config_policy.h: what goes with learning by rewards (train.objective: grpo). Floor 7. Order: Local. */
#ifndef TUTTI_CONFIG_CONFIG_POLICY_H
#define TUTTI_CONFIG_CONFIG_POLICY_H

#include "config/config.h"

/* Sets what follows from it, and refuses what cannot be beside it. */
int config_resolve_policy(struct config *c, const struct conf *f, struct err *e);

#endif
