/* SPDX-License-Identifier: Apache-2.0 */
/* faults.h: the kernels of faults.cu, and what each must come to. C11 and C++. */
#ifndef TUTTI_TESTS_CUDA_FAULTS_H
#define TUTTI_TESTS_CUDA_FAULTS_H

struct fault_args {
    const float *x;
    float *y;
    int n;
};
enum { THREADS = 64, TILE = 256 };
#define FAULT_THREADS_rows THREADS
#define FAULT_THREADS_lanes 32
#define FAULT_THREADS_copies THREADS
#define FAULT_THREADS_product THREADS
#define FAULT_THREADS_move THREADS

/* X(frame, fault); NONE of each frame is right. */
#define FAULTS_EACH(X)                                                                                                 \
    X(rows, NONE)                                                                                                      \
    X(rows, NO_BARRIER_BEFORE_READ)                                                                                    \
    X(rows, NO_BARRIER_BEFORE_WRITE)                                                                                   \
    X(rows, BARRIER_IN_A_BRANCH)                                                                                       \
    X(rows, ENDS_EARLY)                                                                                                \
    X(rows, BEHIND_SHARED)                                                                                             \
    X(rows, NEVER_WRITTEN)                                                                                             \
    X(lanes, NONE)                                                                                                     \
    X(lanes, HALF_A_WARP)                                                                                              \
    X(lanes, WRONG_LANE)                                                                                               \
    X(lanes, NOT_IN_ITS_MASK)                                                                                          \
    X(lanes, MASK_OF_MORE)                                                                                             \
    X(copies, NONE)                                                                                                    \
    X(copies, NOT_ALIGNED)                                                                                             \
    X(copies, NO_COMMIT)                                                                                               \
    X(copies, NO_WAIT)                                                                                                 \
    X(copies, WAITS_FOR_OLDER)                                                                                         \
    X(copies, LAST_NOT_WAITED)                                                                                         \
    X(copies, NO_BARRIER_BEFORE_COPY)                                                                                  \
    X(product, NONE)                                                                                                   \
    X(product, NO_BARRIER_BEFORE_LDMATRIX)                                                                             \
    X(product, WRONG_ROW)                                                                                              \
    X(product, NOT_TRANSPOSED)                                                                                         \
    X(product, FRAGMENTS_SWAPPED)                                                                                      \
    X(product, AS_FP16)                                                                                                \
    X(product, RESULT_ROWS)                                                                                            \
    X(move, NONE)                                                                                                      \
    X(move, LOAD_NOT_ALIGNED)
enum fault {
    NONE,
    NO_BARRIER_BEFORE_READ,
    NO_BARRIER_BEFORE_WRITE,
    BARRIER_IN_A_BRANCH,
    ENDS_EARLY,
    BEHIND_SHARED,
    NEVER_WRITTEN,
    HALF_A_WARP,
    WRONG_LANE,
    NOT_IN_ITS_MASK,
    MASK_OF_MORE,
    NOT_ALIGNED,
    NO_COMMIT,
    NO_WAIT,
    WAITS_FOR_OLDER,
    LAST_NOT_WAITED,
    NO_BARRIER_BEFORE_COPY,
    NO_BARRIER_BEFORE_LDMATRIX,
    WRONG_ROW,
    NOT_TRANSPOSED,
    FRAGMENTS_SWAPPED,
    AS_FP16,
    RESULT_ROWS,
    LOAD_NOT_ALIGNED,
    FAULTS
};

#endif
