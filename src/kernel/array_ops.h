/* SPDX-License-Identifier: Apache-2.0 */
/* array_ops.h: rows of whole arrays that have a loop of their own in every family of the CPU, for the tables of slots:
 * X(OP, name of the function). Includes: kernel.h. */
#ifndef TUTTI_KERNEL_ARRAY_OPS_H
#define TUTTI_KERNEL_ARRAY_OPS_H

#include "kernel/kernel.h"

#define ARRAY_OPS(X)                                                                                                   \
    X(CAST, cast)                                                                                                      \
    X(SUM_INTO, sum_into)                                                                                              \
    X(SUM_TREE, sum_tree)                                                                                              \
    X(SUM_PARTS, sum_parts)                                                                                            \
    X(SUM_SQUARES, sum_squares)                                                                                        \
    X(EXACT_SQUARES, exact_squares)                                                                                    \
    X(FIND_NONFINITE, find_nonfinite)                                                                                  \
    X(ENCODE, encode)                                                                                                  \
    X(DECODE, decode)                                                                                                  \
    X(UNPACK, unpack)                                                                                                  \
    X(ADAMW, adamw)                                                                                                    \
    X(SGD, sgd)                                                                                                        \
    X(LION, update)                                                                                                    \
    X(MOMENTUM, update)                                                                                                \
    X(UNIT, update)                                                                                                    \
    X(BLEND, update)                                                                                                   \
    X(ADAMW16, update)                                                                                                 \
    X(ADAMW8, update)                                                                                                  \
    X(APPLY, update)                                                                                                   \
    X(AVERAGE, update)                                                                                                 \
    X(ROUND, update)                                                                                                   \
    X(FACTOR_SUMS, update)                                                                                             \
    X(FACTOR_KEEP, update)                                                                                             \
    X(FACTOR_MEAN, update)                                                                                             \
    X(FACTOR_SIZE, update)                                                                                             \
    X(FACTOR_APPLY, update)

#endif
