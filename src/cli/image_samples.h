/* SPDX-License-Identifier: Apache-2.0 */
/* image_samples.h: samples that are pictures, for `tutti data inspect` and `tutti data ledger`, where a config's model
 * sees. Order: Local. */
#ifndef TUTTI_CLI_IMAGE_SAMPLES_H
#define TUTTI_CLI_IMAGE_SAMPLES_H

#include "cli/inspect_samples.h"
#include "config/config.h"
#include "data/dataset.h"

/* What each sample is: its shard, key, size and class; with --html a page that shows what the model sees of it. */
int image_samples_inspect(const struct inspect_request *q, const struct config *c, const struct dataset *d,
                          struct err *e);
/* Where each sample of a step (counted from 1) comes from. left_out: as data_tell_left_out. */
int image_samples_ledger(const struct config *c, const struct dataset *d, int64_t step, const char *left_out, bool json,
                         struct err *e);

#endif
