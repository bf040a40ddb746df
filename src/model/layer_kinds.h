/* SPDX-License-Identifier: Apache-2.0 */
/* layer_kinds.h: what each layer of a hybrid model is, as its published config.json says it: one letter per layer, M a
 * state space (Mamba-2), * attention, - a feed-forward layer. The text is repeated until all layers are covered.
 *
 * It is kept as patterns of layers are (layer_pattern.h): a short text, zeros behind its end. Floor 1. Order: Local.
 */
#ifndef TUTTI_MODEL_LAYER_KINDS_H
#define TUTTI_MODEL_LAYER_KINDS_H

#include "model/layer_pattern.h"

enum layer_kind {
    LAYER_BOTH, /* attention and a feed-forward layer: of families that have no such text */
    LAYER_SCAN,
    LAYER_ATTENTION,
    LAYER_MLP,
    LAYER_KINDS
};

/* NULL: it is such a text; else what is wanted of it, for an error. */
const char *layer_kinds_wanted(const char *text);
/* Letters of it; 0: it is empty. */
int64_t layer_kinds_length(const struct layer_pattern *p);
/* p: not empty, and wanted. */
enum layer_kind layer_kind_at(const struct layer_pattern *p, int64_t layer);
/* Whether any layer is of this kind. */
bool layer_kinds_have(const struct layer_pattern *p, enum layer_kind k);
char layer_kind_letter(enum layer_kind k);

#endif
