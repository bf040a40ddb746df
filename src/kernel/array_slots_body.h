/* SPDX-License-Identifier: Apache-2.0 */
/* array_slots_body.h: rows of whole arrays come to a family's loops here: operands of a call as the arguments of struct
 * flat_ops and struct format_ops. Included once by each family of the CPU, which says FLAT and FORMATS, the two tables,
 * and SLOT(name), what its slots are called. Includes: flat_ops.h, formats.h. */
#ifndef TUTTI_KERNEL_ARRAY_SLOTS_BODY_H
#define TUTTI_KERNEL_ARRAY_SLOTS_BODY_H

#include "kernel/array_ops.h"
#include "kernel/codec_rows.h"
#include "kernel/flat_ops.h"
#include "kernel/formats.h"
#include "kernel/packed_rows.h"
#include "kernel/words.h"

void SLOT(cast)(const struct kernel_call *c)
{
    FLAT.cast(kernel_team(c), c->out[0].p, c->out[0].dtype, c->in[0].p, c->in[0].dtype, c->in[0].n[0]);
}

void SLOT(sum_into)(const struct kernel_call *c)
{
    FLAT.sum_into(kernel_team(c), c->out[0].p, c->out[0].dtype, c->in[0].p, c->in[0].dtype, c->in[0].n[0],
                  at_array(&c->at)->add);
}

void SLOT(sum_tree)(const struct kernel_call *c)
{
    FLAT.sum_tree(kernel_team(c), c->out[0].p, c->in[0].p, (int)c->in[0].n[0], c->in[0].n[1]);
}

void SLOT(sum_parts)(const struct kernel_call *c)
{
    FLAT.sum_parts(kernel_team(c), c->out[0].p, c->out[0].dtype, c->in[0].p, (int)c->in[0].n[0], c->in[0].n[1]);
}

void SLOT(sum_squares)(const struct kernel_call *c)
{
    FLAT.sum_squares(kernel_team(c), c->in[0].p, c->in[0].n[0], c->out[0].p);
}

void SLOT(exact_squares)(const struct kernel_call *c)
{
    FLAT.squares(kernel_team(c), c->in[0].p, c->in[0].n[0], c->out[0].p);
}

void SLOT(find_nonfinite)(const struct kernel_call *c)
{
    *(int64_t *)c->out[0].p = FLAT.find_nonfinite(kernel_team(c), c->in[0].p, c->in[0].dtype, c->in[0].n[0]);
}

void SLOT(encode)(const struct kernel_call *c)
{
    struct codec_args a = codec_of(c);
    FORMATS.encode_rows(kernel_team(c), &a);
}

void SLOT(decode)(const struct kernel_call *c)
{
    struct codec_args a = codec_of(c);
    FORMATS.decode_rows(kernel_team(c), &a);
}

void SLOT(unpack)(const struct kernel_call *c)
{
    struct packed_args a = packed_of(c);
    FORMATS.unpack(kernel_team(c), &a);
}

/* ---- updates ---- */
/* By the words that it finds. false: they say that nothing changes. */
static bool update_now(const struct kernel_call *c, struct update_args *u)
{
    *u = update_of(c);
    if (!u->words) return true;
    update_by(u, u->words);
    return u->words[WORD_GOES] != 0;
}

void SLOT(adamw)(const struct kernel_call *c)
{
    struct update_args u;
    if (!update_now(c, &u)) return;
    FLAT.adamw(kernel_team(c), &(struct adamw_args){
                                   .n = u.n,
                                   .master = u.at[ADAMW_MASTER].p,
                                   .m = u.at[ADAMW_M].p,
                                   .v = u.at[ADAMW_V].p,
                                   .grad = u.at[ADAMW_GRAD].p,
                                   .param = u.at[ADAMW_PARAM].p,
                                   .param_dtype = u.at[ADAMW_PARAM].t,
                                   .lr = u.f[ADAMW_LR],
                                   .beta1 = u.f[ADAMW_BETA1],
                                   .beta2 = u.f[ADAMW_BETA2],
                                   .eps = u.f[ADAMW_EPS],
                                   .weight_decay = u.f[ADAMW_DECAY],
                                   .grad_scale = u.f[ADAMW_SCALE],
                                   .bias1 = u.f[ADAMW_BIAS1],
                                   .bias2 = u.f[ADAMW_BIAS2],
                               });
}

void SLOT(sgd)(const struct kernel_call *c)
{
    struct update_args u;
    if (!update_now(c, &u)) return;
    FLAT.sgd(kernel_team(c), &(struct sgd_args){
                                 .n = u.n,
                                 .master = u.at[SGD_MASTER].p,
                                 .m = u.at[SGD_M].p,
                                 .grad = u.at[SGD_GRAD].p,
                                 .param = u.at[SGD_PARAM].p,
                                 .param_dtype = u.at[SGD_PARAM].t,
                                 .lr = u.f[SGD_LR],
                                 .momentum = u.f[SGD_MOMENTUM],
                                 .weight_decay = u.f[SGD_DECAY],
                                 .grad_scale = u.f[SGD_SCALE],
                                 .nesterov = u.flag,
                             });
}

void SLOT(update)(const struct kernel_call *c)
{
    struct update_args u;
    if (update_now(c, &u)) FLAT.update(kernel_team(c), &u);
}

#endif
