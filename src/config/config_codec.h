/* SPDX-License-Identifier: Apache-2.0 */
/* config_codec.h: what comm.grad and comm.param mean beside what gradients and parameters are kept in, and what is
 * refused. Order: Same(config). Floor 7. */
#ifndef TUTTI_CONFIG_CONFIG_CODEC_H
#define TUTTI_CONFIG_CONFIG_CODEC_H

#include "config/config.h"

/* CODEC_KEPT also where that has the same bits. */
enum codec config_comm_grad(const struct config *c);
enum codec config_comm_param(const struct config *c);

/* Refuses what cannot be had, with the reason and the nearest that can. */
int config_resolve_codec(const struct config *c, const struct conf *f, struct err *e);
/* Whether c's layout can have its codecs: for who tries many layouts of a config. */
bool config_codec_fits(const struct config *c);

#endif
