/* SPDX-License-Identifier: Apache-2.0 */
/* engine/replicas.h: whether ranks that must hold the same numbers do. Nothing in a step would notice: a bit that flips
 * in one replica's weight stays there for ever, every other rank goes on without it, and a checkpoint has whichever
 * copy was written.
 *
 * What must be the same, and among whom:
 *
 *   what is here of a parameter and its arrays but gradients   dp_replicate
 *   whole arrays: parameters at zero 0, 1, 2, state at zero 0  dp_shard and cp; of experts the ranks that hold the same
 *                                                              ones
 *   arrays of parameters that are I or R along tp              tp
 *   values per tensor (state/array.h), however it is cut       tp
 *   what several stages hold (tied embeddings, dualpipe)       those stages
 *   parameters                                                 workers of a synchronous server; asynchronous ones
 *                                                              differ by design
 *
 * Biases of routers are parameters like the others. Each rank hashes what it holds by position, and each group compares
 * one number; so it costs one read of the state and a few small messages. Only when they differ do the ranks look
 * closer: at the first tensor, who is in the minority, and by halving the range, at the first element.
 *
 * Two ranks that differ cannot say which of them is right: then both are named. What lies on one rank only is compared
 * with nothing (zero 3 without dp_replicate); nor can it be seen that the owner of a piece published a wrong one to
 * all. Floor 6. Order: Collective(world).
 */
#ifndef TUTTI_ENGINE_REPLICAS_H
#define TUTTI_ENGINE_REPLICAS_H

#include "engine/engine.h"

struct replicas_report { /* the same on every rank */
    bool differ;
    char tensor[PARAM_NAME];
    const char *array;      /* its name in the store's table: "weight", "master", "m", ... */
    char element[64];       /* "[3, 17]", the first that differs, in the whole tensor */
    int ranks[16], n_ranks; /* those in the minority (the first 16 of them); of two that differ both */
    bool decided;           /* there is a majority */
    int n_arrays;           /* how many arrays differ, over all tensors */
    char text[512];         /* all of that in words; never empty where they differ */
};

/* ERR_* when ranks could not be asked; that they differ is in r. Nothing is changed. */
int replicas_compare(struct engine *g, struct replicas_report *r, struct err *e);

#endif
