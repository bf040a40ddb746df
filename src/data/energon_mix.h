/* SPDX-License-Identifier: Apache-2.0 */
/* energon_mix.h: a metadataset of Megatron-Energon: a YAML file that puts several of its folders together, read as it
 * is.
 *
 *   __class__: MetadatasetV2      or Metadataset, the older form, whose parts hold `datasets`
 *   splits:
 *     train:                      each part is one of
 *       path: coco                a folder (energon.h), or another such file
 *       blend: [...]              several by weight
 *       blend_epochized: [...]    several by repetitions: an epoch has each sample so often
 *       join: [...]               several as one: samples of one key become one sample, fields of later folders
 *                                 replacing those of earlier ones; nonmatch says what becomes of a sample without a
 *                                 partner: error, skip (it is left out) or none (its own fields stay)
 *
 * A path is relative to the file that names it. split_part, dataset_config, split_config and subset go with a path;
 * subflavors tag samples for Python code and change nothing here. What would change which samples come is understood,
 * or refused by name with file and line: aux, joiners and blends of one's own, shuffle_over_epochs_multiplier other
 * than 1, crude data (.jsonl).
 * Includes: base, energon.h. Order: Local.
 */
#ifndef TUTTI_DATA_ENERGON_MIX_H
#define TUTTI_DATA_ENERGON_MIX_H

#include "data/energon.h"

/* What is left when everything is put together: a folder, or some that are joined, with its share. */
struct energon_leaf {
    struct energon_ref *ref; /* [n_refs] those from the second on are joined to the first */
    int n_refs;
    struct energon_subset subset;
    double weight;      /* all of a mix add up to 1; of repetitions: 1 */
    double repetitions; /* of its samples in an epoch of the mix; 0: weights say how many */
    const char *name;   /* "mix.yaml: coco + labels (train)" */
};
struct energon_mix {
    struct energon_leaf *leaf;
    int n;
    struct arena *arena;
};

/* A file NAME.yaml or NAME.yml with `splits`, or of one of the classes above. */
bool energon_mix_is(const char *path);
/* Its part "train" or "val". ERR_IO, ERR_REQUEST, ERR_CORRUPT with file and line. energon_mix_free in any case. */
int energon_mix_read(struct energon_mix *m, const char *path, const char *part, struct err *e);
void energon_mix_free(struct energon_mix *m);

#endif
