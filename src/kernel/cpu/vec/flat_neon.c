/* SPDX-License-Identifier: Apache-2.0 */
/* The flat operations in NEON, 4 lanes: one build of flat_body.h. Entered after cpu_isa() said so. */
#include "kernel/cpu/vec/flat_body.h"
#include "kernel/cpu/vec/sums_body.h"
#include "kernel/cpu/vec/update_body.h"

#include "kernel/cpu/build.h"

const struct flat_ops flat_ops_neon = {"neon",    adamw_vec,    sgd_vec,      sum_squares_vec, find_nonfinite_vec,
                                       cast_vec,  sum_into_vec, sum_tree_vec, sum_parts_vec,   squares_vec,
                                       update_vec};
