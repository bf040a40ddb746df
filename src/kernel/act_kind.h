/* SPDX-License-Identifier: Apache-2.0 */
/* act_kind.h: which activations ACT computes. C11, C++ and nvcc. Floors 0-1 only. Order: Local. */
#ifndef TUTTI_KERNEL_ACT_KIND_H
#define TUTTI_KERNEL_ACT_KIND_H

#include <stdbool.h>

#include "base/fn.h"

enum act_kind {
    ACT_GELU /* tanh form, "gelu_new" */,
    ACT_SWIGLU,
    ACT_GELU_ERF /* x times the normal distribution */,
    ACT_TANH,
    ACT_GEGLU /* gelu(gate) up, tanh form */,
    ACT_CAP /* cap tanh(x / cap) */,
    ACT_GELU_QUICK /* x sigmoid(1.702 x) (CLIP) */,
    ACT_CLAMPED /* of gate g <= cap and up u in [-cap, cap]: g sigmoid(1.702 g) (u + 1) (gpt-oss) */,
    ACT_RELU2 /* max(x, 0) squared (So et al. 2021, "Primer"; Nemotron) */,
    ACT_RELU /* max(x, 0), slope 0 at 0 */,
    ACT_TIMES /* cap x */,
    ACT_N
};
TUTTI_FN bool act_gated(enum act_kind k) { return k == ACT_SWIGLU || k == ACT_GEGLU || k == ACT_CLAMPED; }
#define ACT_CLAMPED_SLOPE 1.702f /* also of ACT_GELU_QUICK */

#endif
