/* SPDX-License-Identifier: Apache-2.0 */
/* config_preference.h: what train.objective: dpo and reward ask of other keys. Floor 7. Order: Same(config). */
#ifndef TUTTI_CONFIG_CONFIG_PREFERENCE_H
#define TUTTI_CONFIG_CONFIG_PREFERENCE_H

#include "config/config.h"

/* Before the model is checked: with train.objective: reward it has a score. */
void config_resolve_score(struct config *c, const struct conf *f);
/* Before the data's own keys are resolved: fills in data.pack and batch.micro where they are left out. */
int config_resolve_preference(struct config *c, const struct conf *f, struct err *e);

#endif
