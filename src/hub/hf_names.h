/* SPDX-License-Identifier: Apache-2.0 */
/* hf_names.h: the form of the tables of names (hf_names.c). For hf_params.c. Includes: base, hf.h. Order: Local.
 *
 * Runs of rows (before the layers, per layer, after the layers) are enumerated in that order; the first %d is the
 * layer, the second the expert: a run of a layer may be repeated for each.
 *
 * Sizes are letters: V vocabulary, P positions, D hidden, G = 2 D, F ffn, f = 2 F, H heads, A head size, Q = heads x A,
 * K = kv heads x A, i = Q + K, j = Q + 2 K; E experts, X ffn of an expert, S of the shared ones; a and c the short
 * vectors of queries and of keys and values, r rotated columns, k = c + r, B = heads x (nope + value), O = heads x
 * value; C classes, Y types of segments, b buckets, 1 one; h channels, p the rows of a patch, U its values; of a tower
 * v hidden, M ffn, l places, e channels, R the rows of a patch, u its values; of state spaces g heads, I = g x head
 * size, N = groups x state, t taps, d = 2 I, n = d + N, w = n + N, m = I + N, x = m + N, Z = w + g.
 *
 * `part` numbers the pieces of one fused tensor of theirs, which all have the same first size, unless `before` and
 * `whole` say where the piece begins and how long the tensor is.
 */
#ifndef TUTTI_HUB_HF_NAMES_H
#define TUTTI_HUB_HF_NAMES_H

#include "hub/hf.h"

/* struct hf_name's `when`:
 *   q, n      with, without a short query
 *   b         with a bias of choice
 *   s         with shared experts
 *   v         with biases of queries, keys and values
 *   a, o, m   with biases of attention in a decoder, of its output, of the feed-forward layer
 *   z, y      with biases of a state space's products, of its convolution
 *   h, H      with norms of each head, of all heads
 *   G, U      of t5, with gated feed-forward layers, with others
 *   u, l      of an encoder that tells masked tokens, labels
 *   w, r      of a decoder that writes, that scores (a reward model)
 *   S         with sinks
 *   c, p, P   of a tower with a place for the class, a norm before, a bias of patches */
struct hf_name {
    const char *ours, *theirs;
    char size[3]; /* ours: [size0] or [size0, size1] */
    bool transposed;
    int part, parts; /* parts 0: not fused */
    bool head;       /* never prefixed; the last of a family is absent when tied */
    char when;       /* which models have it, as above; 0: all */
    char before, whole;
    char file[4]; /* theirs where it has other dims in the file; none: the same */
    int stack;    /* > 0: theirs has all experts, one after the other, each transposed; the columns of so many of ours
                     alternate, of which this is number `part` */
};

/* A layer is some runs, up to NULL; `each` runs once per expert. */
struct hf_name_run {
    const struct hf_name *rows;
    bool each;
};
enum { HF_LAYER_RUNS = 6 };

struct hf_family_names {
    const struct hf_name *first, *last;
    struct hf_name_run dense[HF_LAYER_RUNS], moe[HF_LAYER_RUNS];
    const char *prefix;
    const char *ignored[5];      /* endings of tensors that are no parameters */
    const struct hf_name *tower; /* of each layer of a tower, or of an encoder, behind `first`; NULL: there is none */
};
extern const struct hf_family_names *const hf_family_names[HF_N];
/* Where layers are of several kinds: the runs of each. */
extern const struct hf_name_run hf_kind_names[LAYER_KINDS][HF_LAYER_RUNS];
/* Beside the block of a module that predicts further tokens. */
extern const struct hf_name hf_mtp_names[];

#endif
