/* SPDX-License-Identifier: Apache-2.0 */
/* host.h: collectives between processes of one host: in one pass over the buffers themselves where every rank's lie in
 * blocks (blocks.h), else copied through stages (staged.h).
 *
 * Order: Collective(group) in effect; every function returns at once.
 */
#ifndef TUTTI_COMM_HOST_H
#define TUTTI_COMM_HOST_H

#include "comm/impl.h"

bool host_prepare(struct comm *c, struct op *o); /* before the meeting; false: try again */
bool host_work(struct comm *c, struct op *o);    /* true: finished */
/* A rank holds up this one: it went through fewer steps, or is at work in the buffers. */
bool host_behind(struct comm *c, int rank);

#endif
