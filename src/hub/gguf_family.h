/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_family.h: what GGUF calls our families: the architecture's name, the keys of its numbers, the names of its
 * tensors and what differs in them (rows in another order, norms of 1 + w written whole, matrices that lie together).
 * Facts of the format's public list of names and of its readers' loaders; each is held to llama.cpp's own output by
 * tests/golden/check_gguf.py. Includes: base, gguf_keys.h, hf.h. Order: Local.
 */
#ifndef TUTTI_HUB_GGUF_FAMILY_H
#define TUTTI_HUB_GGUF_FAMILY_H

#include "base/err.h"
#include "hub/gguf_keys.h"
#include "hub/hf.h"

enum gguf_join {
    GGUF_ALONE,
    GGUF_QKV,     /* ours has q where k and v follow */
    GGUF_GATE_UP, /* ours has gate where up follows */
    GGUF_EXPERTS, /* ours has a second %d: one tensor for all experts of a layer */
};
/* Our parameter and their tensor; the first %d is the layer. `when`:
 *   q      with biases of q, k, v
 *   o      with a bias of attention's output
 *   n      with norms of q and k
 *   t      with an output matrix of its own
 *   d, e   layers without, with experts */
struct gguf_name {
    const char *ours, *theirs;
    char when;  /* which models have it, as above; 0: all */
    char heads; /* rows are reordered where neighbours turn: q or k */
    enum gguf_join join;
};
/* Rows of GGUF in model/families.def. */
struct gguf_family {
    const char *architecture;      /* NULL: it is not written */
    const struct gguf_name *names; /* ends with ours NULL; names with a layer stand together */
    bool neighbours;               /* columns that turn together are neighbours; else halves, as ours */
    int64_t rope_every;            /* the reader turns all layers but each such; 0: all */
    const char *local;             /* the reader's layers with windows; NULL: it has none */
};

/* ERR_REQUEST: a family, or a number of this model, that the format's readers do not compute. what: in errors. */
int gguf_family_of(const struct gguf_family **f, const struct hf_model *m, const char *what, struct err *e);
bool gguf_has(const struct gguf_name *n, const struct model_config *m);
/* Whether this tensor's numbers are 1 + ours. */
bool gguf_adds_one(const struct gguf_name *n, const struct model_config *m);
/* What the frequencies of pairs of columns are divided by, as a tensor of the model; false: it has none. by
 * [head_dim / 2]. */
bool gguf_rope_divisors(const struct model_config *m, float *by);
void gguf_put_numbers(struct gguf_keys *k, const struct gguf_family *f, const struct model_config *m);

#endif
