/* SPDX-License-Identifier: Apache-2.0 */
/* memckpt_impl.h: what the files of memckpt.h share. Floor 8. */
#ifndef TUTTI_KEEP_MEMCKPT_IMPL_H
#define TUTTI_KEEP_MEMCKPT_IMPL_H

#include "keep/memckpt.h"

#define MEMCKPT_RUN "run.id" /* the attachment that says whose it is */

/* A decision of all ranks. Collective(world). */
int memckpt_together(struct memckpt *m, int rc, struct err *e);
/* The directories of this host are there, and nobody else's. Local. */
int memckpt_own(const struct memckpt *m, struct err *e);
/* Sends what this rank wrote for that step to its partner (writes: it wrote something), and writes what it gets. A
 * failure is this rank's alone. Collective(world). */
int memckpt_send(struct memckpt *m, int64_t step, const struct ranks *r, struct err *e);

#endif
