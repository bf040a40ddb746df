/* SPDX-License-Identifier: Apache-2.0 */
/* The gated MLP (Shazeer 2020): gate and up lie next to each other, so one product makes both. Over tp columns, then
 * rows: what comes out is a part of a sum. */
#include "nn/layers.h"

void mlp_declare(struct declare_ctx *x, int layer, const char *name, int64_t ffn, double std, double std_out)
{
    int64_t D = x->c->hidden, FD[2] = {ffn, D}, DF[2] = {D, ffn};
    struct declare column = {INIT_NORMAL, std, layer, SPMD_S0, 0}, row = {INIT_NORMAL, std_out, layer, SPMD_S1, 0};
    layer_declare(x, column, 2, FD, "layers.%d.%s.gate.weight", layer, name);
    layer_declare(x, column, 2, FD, "layers.%d.%s.up.weight", layer, name);
    layer_declare(x, row, 2, DF, "layers.%d.%s.down.weight", layer, name);
}

tid mlp_up(struct layer_ctx *x, tid h_TD, int layer, const char *name)
{
    tid w_gate_up = layer_param(x, 2, "layers.%d.%s.gate.weight", layer, name);
    return op_act(x->t, op_linear(x->t, h_TD, w_gate_up, TID_NONE, "gate_up"), ACT_SWIGLU, "swiglu");
}

tid mlp_down(struct layer_ctx *x, tid a_TF, int layer, const char *name)
{
    return op_linear(x->t, a_TF, layer_param(x, 1, "layers.%d.%s.down.weight", layer, name), TID_NONE, "down");
}

tid mlp_record(struct layer_ctx *x, tid h_TD, int layer, const char *name)
{
    return mlp_down(x, mlp_up(x, h_TD, layer, name), layer, name);
}
