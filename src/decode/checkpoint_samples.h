/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_samples.h: what the model writes while it learns: the newest published checkpoint goes on with
 * run.sample_prompt (run.sample_every) or with the prompts of run.samples (at evaluations), on rank 0, as `tutti
 * generate` would. So it works in every layout, and what is shown is what was saved. It costs rank 0 a second copy of
 * the weights while it writes; the other ranks wait in their next step. Floor 8. Order: Local.
 */
#ifndef TUTTI_DECODE_CHECKPOINT_SAMPLES_H
#define TUTTI_DECODE_CHECKPOINT_SAMPLES_H

#include "config/config.h"

/* Writes a text for each of n prompts with the checkpoint of `step`, shows them in the log and adds {"step", "prompt",
 * "text"} to run.dir/samples.jsonl. */
int checkpoint_samples_write(const struct config *c, const char *checkpoint, int64_t step, const char *const *prompts,
                             int n, struct err *e);

#endif
