/* SPDX-License-Identifier: Apache-2.0 */
/* The gated MLP (Shazeer 2020): gate and up lie next to each other, so one product makes both. Over tp columns, then
 * rows: what comes out is a part of a sum, and one rank of it adds the last bias. */
#include <stdio.h>

#include "nn/layers.h"

tid gate_act(struct layer_ctx *x, tid z_T2F, const char *prefix)
{
    const struct model_config *c = x->c;
    enum act_kind kind = c->gate_limit > 0 ? ACT_CLAMPED : c->gate == GATE_GELU_TANH ? ACT_GEGLU : ACT_SWIGLU;
    char name[32];
    snprintf(name, sizeof name, "%s%s", prefix, kind == ACT_GEGLU ? "geglu" : "swiglu");
    return op_act_limited(x->t, z_T2F, kind, (float)c->gate_limit, name);
}

void mlp_declare(struct declare_ctx *x, int layer, const char *name, int64_t ffn, bool bias, double std, double std_out)
{
    int64_t D = x->c->hidden, FD[2] = {ffn, D}, DF[2] = {D, ffn};
    struct declare column = {INIT_NORMAL, std, layer, SPMD_S0, 0}, row = {INIT_NORMAL, std_out, layer, SPMD_S1, 0},
                   zeros = {INIT_ZEROS, 0, layer, SPMD_S0, 0};
    layer_declare(x, column, 2, FD, "layers.%d.%s.gate.weight", layer, name);
    layer_declare(x, column, 2, FD, "layers.%d.%s.up.weight", layer, name);
    if (bias) {
        layer_declare(x, zeros, 1, &ffn, "layers.%d.%s.gate.bias", layer, name);
        layer_declare(x, zeros, 1, &ffn, "layers.%d.%s.up.bias", layer, name);
    }
    layer_declare(x, row, 2, DF, "layers.%d.%s.down.weight", layer, name);
    zeros.over_tp = SPMD_I;
    if (bias) layer_declare(x, zeros, 1, &D, "layers.%d.%s.down.bias", layer, name);
}

tid mlp_up(struct layer_ctx *x, tid h_TD, int layer, const char *name, bool bias)
{
    tid w_gate_up = layer_param(x, 2, "layers.%d.%s.gate.weight", layer, name);
    tid b_gate_up = bias ? layer_param(x, 2, "layers.%d.%s.gate.bias", layer, name) : TID_NONE;
    return gate_act(x, layer_linear(x, h_TD, w_gate_up, b_gate_up, false, "gate_up"), "");
}

tid mlp_down(struct layer_ctx *x, tid a_TF, int layer, const char *name, bool bias)
{
    tid w = layer_param(x, 1, "layers.%d.%s.down.weight", layer, name);
    tid b = bias ? layer_param(x, 1, "layers.%d.%s.down.bias", layer, name) : TID_NONE;
    return layer_linear(x, a_TF, w, b, x->par->rank[AXIS_TP] != 0, "down");
}

tid mlp_record(struct layer_ctx *x, tid h_TD, int layer, const char *name, bool bias)
{
    return mlp_down(x, mlp_up(x, h_TD, layer, name, bias), layer, name, bias);
}
