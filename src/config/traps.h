/* SPDX-License-Identifier: Apache-2.0 */
/* traps.h: what a config says that can be done and is hardly meant: keys without effect, text that is validated on and
 * trained on, a learning rate that is never reached. Said before the first step; nothing is changed.
 * Floor 7. Order: Local; one rank says it.
 */
#ifndef TUTTI_CONFIG_TRAPS_H
#define TUTTI_CONFIG_TRAPS_H

#include "config/config.h"

/* samples: of the training text. */
void traps_say(const struct config *c, const struct conf *f, int64_t samples);
/* What would end the run later, when work would be lost with it: ERR_REQUEST. */
int traps_check(const struct config *c, const struct conf *f, struct err *e);

#endif
