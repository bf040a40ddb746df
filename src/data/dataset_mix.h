/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_mix.h: the sources of a dataset, where a metadataset of Megatron-Energon (energon_mix.h) is as many as it
 * puts together; for the files of dataset.h. Includes: base, dataset.h, energon_mix.h. Order: Local. */
#ifndef TUTTI_DATA_DATASET_MIX_H
#define TUTTI_DATA_DATASET_MIX_H

#include "data/dataset.h"
#include "data/energon_mix.h"

/* A source, and what it is of a mix. */
struct mix_source {
    const struct energon_leaf *leaf; /* NULL: it is none's, as it was named */
    const char *name;                /* may be said: of a leaf, or the path without what is secret */
    double share;                    /* of the weight that was named; 1: all */
    int of;                          /* which of the options' sources */
};
struct dataset_mix {
    struct dataset_source *sources; /* [n] with their own weights */
    struct mix_source *about;       /* [n] */
    int n;
    struct energon_mix *mixes; /* [n_options] */
    int n_options;
    struct arena *arena;
};

/* Of checked options. ERR_REQUEST: a metadataset or a folder of Megatron-Energon where samples are texts. In any case
 * dataset_mix_fini. */
int dataset_mix_init(struct dataset_mix *m, const struct dataset_options *o, struct err *e);
/* The samples that each source has: where an epoch has repetitions of them, weights follow from that. */
void dataset_mix_weigh(struct dataset_mix *m, const int64_t *n_samples);
void dataset_mix_fini(struct dataset_mix *m);

#endif
