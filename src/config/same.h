/* SPDX-License-Identifier: Apache-2.0 */
/* same.h: processes of a launcher read their own copy of the config, maybe on hosts of their own. What decides about
 * numbers or about who calls what must be the same everywhere: else ranks wait for each other, or train in unlike
 * precision and nobody sees it. Paths of data, threads and kernels may differ: what is read is compared later
 * (train/job.c), and the rest changes no result. Floor 7.
 */
#ifndef TUTTI_CONFIG_SAME_H
#define TUTTI_CONFIG_SAME_H

#include "comm/comm.h"
#include "config/config.h"

/* ERR_REQUEST names the lowest rank whose resolved config is not rank 0's, the key, and both values. Collective(world),
 * and the same answer on every rank. */
int same_config(struct comm *world, const struct config *c, const struct conf *f, struct err *e);

#endif
