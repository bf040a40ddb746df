/* SPDX-License-Identifier: Apache-2.0 */
/* flat.h: flat operations: whole arrays beside the tape, casts, sums of gradients, norms (attrs.h says what each
 * computes). Each as a call of the operation table, and as that call on a stream, with addresses of the stream's
 * device. Includes: kernel.h, squares.h. Order: Local. */
#ifndef TUTTI_KERNEL_FLAT_H
#define TUTTI_KERNEL_FLAT_H

#include "kernel/kernel.h"
#include "kernel/squares.h"

/* A window on n elements in a row. */
struct view flat_view(void *p, enum dtype t, int64_t n);

struct kernel_call cast_call(void *dst, enum dtype to, const void *src, enum dtype from, int64_t n);
struct kernel_call sum_into_call(void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add);
struct kernel_call sum_tree_call(float *to, const float *part, int n_parts, int64_t n);
struct kernel_call sum_parts_call(void *to, enum dtype t, const void *part, int n_parts, int64_t n);
struct kernel_call sum_squares_call(double *sum, const float *x, int64_t n);
struct kernel_call exact_squares_call(int64_t *word, const float *x, int64_t n);
struct kernel_call find_nonfinite_call(int64_t *at, const void *x, enum dtype dtype, int64_t n);

void flat_cast(struct stream *s, void *dst, enum dtype to, const void *src, enum dtype from, int64_t n);
void flat_sum_into(struct stream *s, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add);
void flat_sum_tree(struct stream *s, float *to, const float *part, int n_parts, int64_t n);
void flat_sum_parts(struct stream *s, void *to, enum dtype t, const void *part, int n_parts, int64_t n);
void flat_sum_squares(struct stream *s, const float *x, int64_t n, double *sum);
void flat_squares(struct stream *s, const float *x, int64_t n, int64_t *word);
void flat_find_nonfinite(struct stream *s, const void *x, enum dtype dtype, int64_t n, int64_t *at);

/* The sum of what EXACT_SQUARES wrote, here or, element by element added up, on all ranks; infinite when an element was
 * not finite. The same double for the same set of elements. */
double squares_total(const int64_t word[FLAT_SQUARES_WORDS]);

/* At once, on memory that the caller can touch; team NULL: by the caller alone. */
void flat_cast_here(const struct kernel_table *t, struct team *team, void *dst, enum dtype to, const void *src,
                    enum dtype from, int64_t n);

#endif
