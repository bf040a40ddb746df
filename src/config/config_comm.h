/* SPDX-License-Identifier: Apache-2.0 */
/* config_comm.h: what the keys of comm mean beside a rank's cores, and parallel.tp_overlap. Floor 7. Order:
 * Same(config). */
#ifndef TUTTI_CONFIG_CONFIG_COMM_H
#define TUTTI_CONFIG_CONFIG_COMM_H

#include "config/config.h"

int config_check_overlap(const struct config *c, const struct conf *f, struct err *e);
int config_check_comm(const struct config *c, const struct conf *f, struct err *e);
/* How many pieces products and their messages over tp are cut into. */
struct pieces_rule config_pieces(const struct config *c);

#endif
