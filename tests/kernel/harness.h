/* SPDX-License-Identifier: Apache-2.0 */
/* harness.h: random calls of kernel rows, for tests of any family.
 *
 *   struct kcase k;
 *   kcase_random(&k, OP_LINEAR, DT_BF16, seed);        shapes, attributes, inputs, gradients of outputs
 *   kcase_forward(&k, &kernel_family_ref, 2);          fills k.out (2 threads)
 *   kcase_backward(&k, &kernel_family_ref, 2);         fills k.din from k.dout, k.acc
 *   kcase_free(&k);
 *
 * Every tensor is its own allocation (AddressSanitizer sees overruns), lies at an odd element offset, and most
 * have rows wider than their columns; the gap holds a pattern that kcase_check_gaps verifies. Scratch is full of
 * NaNs and guarded. The case is a function of (op, dtype, seed) only. */
#ifndef TUTTI_TESTS_KERNEL_HARNESS_H
#define TUTTI_TESTS_KERNEL_HARNESS_H

#include "kernel/cases/run.h"

#endif
