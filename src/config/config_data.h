/* SPDX-License-Identifier: Apache-2.0 */
/* config_data.h: what the keys of data mean together. Floor 7. Order: Local.
 */
#ifndef TUTTI_CONFIG_CONFIG_DATA_H
#define TUTTI_CONFIG_CONFIG_DATA_H

#include "config/config.h"

/* Packed documents have positions of their own, no first token that is trained, and side by side none sees another:
 * where data.pack says so, these keys are set, and refused where they say otherwise. Refuses groups that no batch is
 * made of, and weights with which a source is never used. */
int config_resolve_data(struct config *c, const struct conf *f, struct err *e);

/* The share of data.train that data.valid holds out (5%); 0: it names text of its own, or nothing. */
double config_held(const struct config *c);

#endif
