/* SPDX-License-Identifier: Apache-2.0 */
/* config/config_feed.h: how data comes to a rank: data.workers, data.prefetch, data.remote. Floor 7. Order:
 * Same(config). */
#ifndef TUTTI_CONFIG_CONFIG_FEED_H
#define TUTTI_CONFIG_CONFIG_FEED_H

#include "config/config.h"
#include "remote/remote.h"

/* Reads data.remote.cache_limit; refuses what is no size, or too small to keep anything, and workers without a batch.
 */
int config_resolve_feed(struct config *c, const struct conf *f, struct err *e);
/* Borrows texts of c; who can be interrupted adds give_up. */
struct remote_options config_remote(const struct config *c);
/* What a rank keeps in the host's memory of objects behind the addresses of data.train and data.valid, at most; 0:
 * there are no addresses. */
int64_t config_remote_bytes(const struct config *c);

#endif
