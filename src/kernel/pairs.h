/* SPDX-License-Identifier: Apache-2.0 */
/* pairs.h: what a call's FLOPs are in proportion to, where that is data: the pairs (query, key) that documents, or a
 * window in each of them, leave, or the keys that are there. A row's flops count them as if all were. Floors 0-1 and
 * kernel.h only. Order: Local.
 */
#ifndef TUTTI_KERNEL_PAIRS_H
#define TUTTI_KERNEL_PAIRS_H

#include "kernel/kernel.h"

enum op_pairs { PAIRS_FIXED, PAIRS_DOCUMENTS, PAIRS_WINDOWS, PAIRS_KEYS, PAIRS_N };
enum op_pairs op_pairs(const struct kernel_call *c);

#endif
