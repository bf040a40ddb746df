/* SPDX-License-Identifier: Apache-2.0 */
/* expert_load_file.h: expert_load.bin, how many tokens every expert got in every step: too many numbers for a line of
 * text (a model of 60 layers with 256 experts has 15,360 of them per step).
 *
 *   first line   JSON, padded with spaces to a multiple of 64 bytes:
 *                {"schema":"tutti.expert_load/1","layers":[1,2,3],"experts":8, "dtype":"bf16","record_bytes":56}
 *   then         one record per step, in order: step (int64), then picks[layers][experts] (bf16), all little-endian
 * bf16 has 8 bits: counts up to 256 are exact, larger ones to 0.4 %; the sum over a layer is tokens x top_k, less what
 * a capacity dropped. Records have one size, so resuming and reading any step are a seek.
 * Floor 9. Order: Local to the rank that reports.
 */
#ifndef TUTTI_WATCH_EXPERT_LOAD_FILE_H
#define TUTTI_WATCH_EXPERT_LOAD_FILE_H

#include <stdint.h>

#include "base/err.h"

struct expert_load;
/* Opens dir/expert_load.bin to go on with `step`: records of it and later ones are cut off. A file of another form is
 * moved aside. load: [layers], NULL where a layer has none. */
int expert_load_open(struct expert_load **l, const char *dir, int64_t step, const double *const *load, int layers,
                     int experts, struct err *e);
int expert_load_add(struct expert_load *l, int64_t step, const double *const *load, struct err *e);
int expert_load_close(struct expert_load *l, struct err *e);

#endif
