/* SPDX-License-Identifier: Apache-2.0 */
/* changes.h: what differs between this run's config and that of the checkpoint it goes on from.
 *
 * A run that stops and goes on is promised to be what it would have been without the stop. Keys that only say where and
 * how fast (layout, memory, messages, files) keep that promise in any value. Keys that change the training from here on
 * (learning rate, number of steps) are the user's to change: each is said in a line. Keys that break the order of
 * samples or the state (data, batch, sequence length, seeds, the model's formulas, the kind of optimizer) are refused,
 * unless checkpoint.allow_changes names them. Floor 7. Order: Local to rank 0.
 */
#ifndef TUTTI_CONFIG_CHANGES_H
#define TUTTI_CONFIG_CHANGES_H

#include "checkpoint/ckpt.h"
#include "config/config.h"

/* What a checkpoint keeps of the data beside its config: paths may change, tokens not. */
struct changes_data {
    uint64_t train; /* dataset_fingerprint */
    uint64_t ends;  /* dataset_ends_fingerprint; 0: documents are joined */
    bool known;     /* false: this rank reads no data */
};
void changes_put_data(const struct changes_data *d, struct json_out *o); /* a member "data" of the checkpoint's extra */

/* What follows where a key differs. */
enum changes_effect { CHANGES_SILENT, CHANGES_SAID, CHANGES_REFUSED };
int changes_effect(const char *key); /* -1: no rule says, which is so for no key of config_rows (a test walks them) */

/* Says every difference in a line; ERR_REQUEST names those that are refused, both values, and the key that allows them.
 * A checkpoint without a config (imported) has nothing to compare. */
int changes_check(const struct ckpt *ckpt, const struct config *c, const struct changes_data *d, struct err *e);
/* Whether what fp8-delayed's scales follow from is in the checkpoint of a run that goes on: no key can allow that it is
 * missing. Before anything compares tensors. */
int changes_histories(const struct ckpt *ckpt, const struct config *c, struct err *e);
/* Whether checkpoint.allow_changes names keys that there are: ERR_REQUEST otherwise. */
int changes_allowed_check(const struct config *c, const struct conf *f, struct err *e);

#endif
