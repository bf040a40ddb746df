/* SPDX-License-Identifier: Apache-2.0 */
/* recompute.h: what of a layer is computed again in backward instead of being kept: groups of operations by name, and
 * in how many layers. The bits of gradients do not depend on it.
 *
 *   name         not kept                                         again in backward
 *   norms        normalised rows, before the products, joined ones reads the stream
 *   activations  what comes out of gelu or swiglu                 reads what goes in
 *   attention    attention's result and its statistics            attention once more; over cp its messages too
 *   gathers      rows of all ranks of tp (sequence parallelism)   their message once more
 *   latent       keys and values opened from the latent vector    copies
 *   products     what comes out of matrix products                the products, but those nobody reads
 *   experts      rows sorted by expert, sent, multiplied          the experts once more; over ep their messages too
 *
 * Sources: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"; Korthikanti et al. 2022, "Reducing
 * Activation Recomputation in Large Transformer Models" (selective).
 * Floor 5. Order: Local.
 */
#ifndef TUTTI_NN_RECOMPUTE_H
#define TUTTI_NN_RECOMPUTE_H

#include <stdbool.h>
#include <stdint.h>

struct recompute {
    uint64_t again; /* bit 1 << op of the operation table; 0: all is kept */
    int64_t layers; /* of each stage the first so many; 0: all */
    uint64_t rest;  /* as again, in the layers behind them */
};

struct recompute_group {
    const char *name;
    uint64_t again;
    bool selective; /* one of those that the word `selective` stands for */
};
extern const struct recompute_group recompute_groups[]; /* ends with name NULL */
/* Of a group's name, or none, selective (attention, norms, activations), full; returns 0, or -1 for another word. */
int recompute_named(const char *name, uint64_t *again);
/* "attention + norms"; "full", "none". out: room for 96 characters. */
const char *recompute_text(uint64_t again, char out[96]);

#endif
