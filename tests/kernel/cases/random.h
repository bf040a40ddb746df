/* SPDX-License-Identifier: Apache-2.0 */
/* random.h: the case of an operation, a dtype and a seed: inputs by the operation's builder, outputs and gradients by
 * its row. */
#ifndef TUTTI_TESTS_KERNEL_CASES_RANDOM_H
#define TUTTI_TESTS_KERNEL_CASES_RANDOM_H

#include "kernel/cases/attention.h"
#include "kernel/cases/experts.h"
#include "kernel/cases/layers.h"
#include "kernel/cases/pictures.h"
#include "kernel/cases/products.h"
#include "kernel/cases/scans.h"

/* A root of the loss: no gradient comes in, and forward adds to what is there. */
static inline bool kcase_is_root(enum op op) { return op == OP_XENT || op == OP_BALANCE; }

/* Shapes of the outputs by the row, and memory; what accumulates starts from zero. */
static inline void kcase_outputs(struct kcase *k)
{
    const struct op_row *row = op_row(k->op);
    char text[200];
    const char *why = row->infer(&k->at, k->n_in, k->in, k->out);
    if (why) fail_msg("%s: %s", kcase_text(text, k), why);
    k->n_out = row->n_out;
    for (int i = 0; i < k->n_out; i++) {
        kcase_memory(k, &k->out[i]);
        view_fill_zero(&k->out[i]);
    }
}

/* Random gradients of the outputs, and memory for those of the inputs; acc is absent. */
static inline void kcase_gradients(struct kcase *k)
{
    const struct op_row *row = op_row(k->op);
    if (!row->has_backward) return;
    if (!kcase_is_root(k->op)) {
        k->dout[0] = k->out[0];
        kcase_memory(k, &k->dout[0]);
        view_fill(&k->dout[0], k->seed, rng_stream("kcase/dout"), 1);
    }
    for (int i = 0; i < k->n_in; i++) {
        bool weight = (row->weight_in | row->weight_by_in) >> i & 1;
        if (!k->in[i].nd || (!weight && !(row->grad_in >> i & 1))) continue;
        k->din[i] =
            kcase_tensor(k, weight ? DT_F32 : k->in[i].dtype, k->in[i].n[0], k->in[i].nd > 1 ? k->in[i].n[1] : 0);
    }
}

static inline void kcase_random(struct kcase *k, enum op op, enum dtype dtype, uint64_t seed)
{
    static void (*const build[OP_N])(struct kcase *) = {
        [OP_EMBED] = build_embed,
        [OP_LINEAR] = build_linear,
        [OP_RMSNORM] = build_norm,
        [OP_LAYERNORM] = build_norm,
        [OP_HEADNORM] = build_norm,
        [OP_SQUARES] = build_squares,
        [OP_NORM_BY] = build_squares,
        [OP_ROTARY] = build_rotary,
        [OP_ATTENTION] = build_attention,
        [OP_ACT] = build_act,
        [OP_ADD] = build_add,
        [OP_DROPOUT] = build_add,
        [OP_XENT] = build_xent,
        [OP_XENT_PART] = build_xent,
        [OP_ATTENTION_CACHED] = build_attention_cached,
        [OP_ATTENTION_PART] = build_attention_part,
        [OP_COPY] = build_copy,
        [OP_ROUTER] = build_router,
        [OP_LOAD] = build_load,
        [OP_BALANCE] = build_balance,
        [OP_PERMUTE] = build_permute,
        [OP_GROUPED] = build_grouped,
        [OP_UNPERMUTE] = build_unpermute,
        [OP_EXPERT_BIAS] = build_expert_bias,
        [OP_MLA_KV] = build_mla,
        [OP_TRIM] = build_mla,
        [OP_JOIN] = build_join,
        [OP_PATCHES] = build_patches,
        [OP_POOL] = build_pool,
        [OP_INSERT] = build_insert,
        [OP_CONV] = build_conv,
        [OP_TIMES] = build_times,
        [OP_SCAN] = build_scan,
        [OP_SCAN_END] = build_scan,
        [OP_GATED_NORM] = build_gated_norm,
        [OP_CONV_CACHED] = build_conv_cached,
        [OP_SCAN_CACHED] = build_scan_cached,
        [OP_CODED] = build_coded,
        [OP_TAILS] = build_halo,
        [OP_HALO] = build_halo,
        [OP_CARRY] = build_carry,
        [OP_PICK] = build_pick,
        [OP_DISTANCES] = build_distances,
        [OP_ATTENTION_BIASED] = build_attention_biased,
        [OP_ATTENTION_CACHED_BIASED] = build_attention_cached_biased,
        [OP_ADAPTED_SQUARES] = build_adapted,
        [OP_MAGNITUDES] = build_adapted,
    };
    *k = (struct kcase){.op = op, .dtype = dtype, .seed = seed * 64 + (uint64_t)op * 4 + (uint64_t)dtype};
    k->large = seed % 6 == 5;
    k->step = (struct step_info){.seed = 7, .step = seed, .first_token = 96, .training = true, .loss_scale = 0.125f};
    k->at = op_attrs_zero(op);
    build[op](k);
    kcase_outputs(k);
    kcase_gradients(k);
}

#endif
