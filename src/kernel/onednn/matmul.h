/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.h: one thread's matrix product through oneDNN, C = A B (+ bias) (+ C), any strides.
 * Order: Local; any thread, each with its own struct. */
#ifndef TUTTI_KERNEL_ONEDNN_MATMUL_H
#define TUTTI_KERNEL_ONEDNN_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout/dtype.h"

struct matmul {
    int64_t m, n, k;
    const void *a, *b, *bias; /* bias: n values or NULL */
    void *c;
    enum dtype a_t, b_t, c_t, bias_t;
    int64_t a_rs, a_cs, b_rs, b_cs, ldc; /* elements from row to row, column to column */
    bool has_bias;                       /* known before pointers are */
    bool add;
};

/* The caller's scratch for it; -1 when the library cannot do it here. */
int64_t matmul_scratch(const struct matmul *m);
void matmul_run(const struct matmul *m, void *scratch);

/* OpenMP, which the library may be built on, would start a team of its own below every one of our threads. Between
 * these calls the calling thread's OpenMP width is one. Returns what to hand back. */
int matmul_alone_begin(void);
void matmul_alone_end(int before);

#endif
