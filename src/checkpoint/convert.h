/* SPDX-License-Identifier: Apache-2.0 */
/* convert.h: copying boxes of tensors between memories of different extent and element type.
 * Includes: layout. Order: Local.
 */
#ifndef TUTTI_CHECKPOINT_CONVERT_H
#define TUTTI_CHECKPOINT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "layout/dtype.h"
#include "layout/region.h"

/* Same type, or both floating point. */
bool convertible(enum dtype from, enum dtype to);
/* n elements; to the narrower type by rounding to nearest even. Neither side needs alignment. */
void convert(void *dst, enum dtype dt, const void *src, enum dtype st, int64_t n);
/* The elements of `part` from src, which holds box `from`, to dst, which holds box `to`. part lies in both. */
void convert_box(void *dst, enum dtype dt, const struct region *to, const void *src, enum dtype st,
                 const struct region *from, const struct region *part);
/* dst[c * dst_stride + r] = src[r * src_stride + c] for r < rows, c < cols; strides in elements. */
void convert_transposed(void *dst, enum dtype dt, int64_t dst_stride, const void *src, enum dtype st,
                        int64_t src_stride, int64_t rows, int64_t cols);

#endif
