/* SPDX-License-Identifier: Apache-2.0 */
/* remake.h: a checkpoint made from checkpoints: the same state in other files (reshard), and the mean of the weights
 * of several (average).
 *
 * What is read is compared with its checksums on the way. Memory is bounded whatever the model's size: pieces of
 * 8 MiB per checkpoint and the manifests. `out` becomes a directory of checkpoints with one in it, step-N; it must be
 * new, or hold nothing but what an unfinished call left there.
 *   fails   ERR_REQUEST (out is not empty; checkpoints of other models), ERR_CORRUPT, ERR_IO; nothing is published then
 * Order: Local.
 */
#ifndef TUTTI_HUB_REMAKE_H
#define TUTTI_HUB_REMAKE_H

#include "checkpoint/ckpt.h"
#include "hub/weights.h"

enum { REMAKE_FILES_MOST = 65536 };

/* All of `from`, a checkpoint of tutti, into n_files of about the same size: tensors in their order, cut between rows
 * of their first dimension. Step, tokens, seed, attachments and what the run said of itself are taken over. */
int remake_reshard(struct weights *from, const char *out, int n_files, struct err *e);

/* Of each parameter the sum of share[k] times its value in w[k] (in double, rounded once), as group "param" in the last
 * one's type there and "master" where it has one; attachments, step and tokens are the last one's. Moments and what
 * else training goes on from have no mean and are left out. Shares are as given: who wants a mean gives shares whose
 * sum is 1. The last one is a tutti checkpoint. */
int remake_average(struct weights *const *w, const double *share, int n, const char *out, struct err *e);

#endif
