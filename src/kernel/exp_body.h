/* SPDX-License-Identifier: Apache-2.0 */
/* exp_body.h: the exponential, in the words of vec.h, which come first: over a vector on a CPU, over one number in a
 * GPU's kernels (cuda/gpu_words.h). Relative error below 2e-7: a minimax polynomial of degree 6. Order: Local. */
#ifndef TUTTI_KERNEL_EXP_BODY_H
#define TUTTI_KERNEL_EXP_BODY_H

VEC_INLINE vf v_exp(vf x)
{
    x = vf_min(vf_set(89.0f), vf_max(vf_set(-104.0f), x)); /* in this order NaN passes through */
    vf n = vf_round(x * vf_set(1.44269504f));
    vf r = vf_fma(n, vf_set(-0.693359375f), x); /* ln 2, high part: exact for these n */
    r = vf_fma(n, vf_set(2.12194440e-4f), r);   /* and low part */
    vf p = vf_fma(r, vf_set(0x1.709ba2p-10f), vf_set(0x1.129052p-7f));
    p = vf_fma(p, r, vf_set(0x1.55515ep-5f));
    p = vf_fma(p, r, vf_set(0x1.5553c0p-3f));
    p = vf_fma(p, r, vf_set(0x1.000002p-1f));
    p = vf_fma(p, r, vf_set(1.0f));
    p = vf_fma(p, r, vf_set(1.0f));
    return vf_scale2(p, n);
}

#endif
