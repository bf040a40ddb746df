/* SPDX-License-Identifier: Apache-2.0 */
/* tanh_body.h: tanh in the words of vec.h, as exp_body.h has them: for soft caps.
 *
 * tanh u = 2/(1 + e^-2u) - 1, which cancels near 0: below 1/4 it is the series to u^9 instead. Within 3e-7 of itself
 * everywhere; 1 for large u, where no exponential overflows. NaN passes.
 */
#ifndef TUTTI_KERNEL_TANH_BODY_H
#define TUTTI_KERNEL_TANH_BODY_H

#include "kernel/exp_body.h"

VEC_INLINE vf v_tanh(vf u)
{
    vf a = vf_max(u, vf_zero() - u), s = u * u;
    vf e = v_exp(vf_min(vf_set(86.0f), vf_set(-2.0f) * u));
    vf far = vf_fma(vf_set(2.0f), vf_reciprocal(vf_set(1.0f) + e), vf_set(-1.0f));
    vf p = vf_fma(s, vf_set(0.02186948853615520f), vf_set(-0.05396825396825397f)); /* 62/2835, -17/315 */
    p = vf_fma(p, s, vf_set(0.13333333333333333f));
    p = vf_fma(p, s, vf_set(-0.33333333333333333f));
    p = vf_fma(p, s, vf_set(1.0f));
    return vf_pick(vf_gt(vf_set(0.25f), a), u * p, far);
}

#endif
