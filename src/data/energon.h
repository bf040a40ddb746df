/* SPDX-License-Identifier: Apache-2.0 */
/* energon.h: the folder of a Megatron-Energon dataset, read as it is: tar shards, and beside them .nv-meta/ with
 *
 *   dataset.yaml    what a sample is (sample_type, or __class__ of older versions) and which member or JSON value each
 * of its fields comes from (field_map: {image: jpg, label: cls}) split.yaml      (or split.json) the shards of each
 * part, train, val and test, in braces too; what is left out of them: whole shards, or SHARD/NUMBER, one sample
 *   .info.json      (or .info.yaml) how many samples each shard has, which is compared
 *
 * What is code there (sample_loader) is refused by name. Includes: base, source/brace.h. Order: Local.
 */
#ifndef TUTTI_DATA_ENERGON_H
#define TUTTI_DATA_ENERGON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

struct energon_shard {
    char *path;
    int64_t samples;   /* as .info says; -1: it does not */
    int64_t *excluded; /* [n_excluded] numbers of samples in it */
    int64_t n_excluded, room;
};
struct energon {
    struct energon_shard *shards;
    int64_t n, room;
    const char *type;          /* "ImageClassificationSample" */
    const char *image, *label; /* of field_map; NULL: there is no such field */
    struct arena *arena;
};

bool energon_is(const char *path); /* a folder with .nv-meta/dataset.yaml */
/* The shards of one part ("train", "val"). ERR_REQUEST, ERR_CORRUPT with file and line. energon_free in any case. */
int energon_read(struct energon *g, const char *folder, const char *part, struct err *e);
void energon_free(struct energon *g);

#endif
