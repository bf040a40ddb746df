/* SPDX-License-Identifier: Apache-2.0 */
/* energon.h: the folder of a Megatron-Energon dataset, read as it is: tar shards, and beside them .nv-meta/ with
 *
 *   dataset.yaml    what a sample is (sample_type, or __class__ of older versions) and which member or JSON value each
 *                   of its fields comes from (field_map: {image: jpg, label: cls})
 *   split.yaml      (or split.json) the shards of each part, train, val and test, in braces too; what is left out of
 *                   them: whole shards, or SHARD/KEY, one sample
 *   .info.json      (or .info.yaml) how many samples each shard has, which is compared
 *
 * What is code there (sample_loader, crude samples) is refused by name. Several folders in one: energon_mix.h.
 * Includes: base, source/brace.h. Order: Local.
 */
#ifndef TUTTI_DATA_ENERGON_H
#define TUTTI_DATA_ENERGON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/mem.h"

/* What becomes of a sample that has no partner of its key in a folder that is joined to its own. */
enum energon_nonmatch { NONMATCH_ERROR, NONMATCH_SKIP, NONMATCH_NONE };

/* A folder as somebody names it. */
struct energon_ref {
    const char *folder, *part;   /* "train", "val" */
    const char *dataset, *split; /* names of files in .nv-meta; NULL: dataset.yaml; split.yaml, or split.json */
    enum energon_nonmatch nonmatch;
};
/* Some of a folder's samples, in the order of its part. First [first, last), then a range of what is left. */
struct energon_subset {
    int64_t first, last; /* last -1: the end */
    double from, to;     /* 0 and 1: all */
};
#define ENERGON_ALL ((struct energon_subset){0, -1, 0, 1})

struct energon_shard {
    char *path;
    const char *name; /* as split.yaml names it */
    int64_t samples;  /* as .info says; -1: it does not */
    char **excluded;  /* [n_excluded] keys of samples in it, sorted */
    int64_t n_excluded, room;
};
struct energon {
    struct energon_shard *shards;
    int64_t n, room;
    const char *type;          /* "ImageClassificationSample" */
    const char *image, *label; /* of field_map; NULL: there is no such field */
    const char *caption, *context, *answers, *weights;
    struct arena *arena;
};

bool energon_is(const char *path); /* a folder with .nv-meta/dataset.yaml */
/* The shards of its part. ERR_REQUEST, ERR_CORRUPT with file and line. energon_free in any case. */
int energon_read(struct energon *g, const struct energon_ref *ref, struct err *e);
void energon_free(struct energon *g);

bool energon_excludes(const struct energon_shard *s, const char *key);
bool energon_trains(const char *type); /* samples of this type are pictures with their classes */
bool energon_tells(const char *type);  /* pictures with captions, or with questions and answers (energon_texts.h) */
/* Samples [*lo, *hi) of n that a subset is; name: whose, for errors. */
int energon_subset_of(const struct energon_subset *s, int64_t n, const char *name, int64_t *lo, int64_t *hi,
                      struct err *e);

#endif
