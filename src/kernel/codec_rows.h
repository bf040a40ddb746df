/* SPDX-License-Identifier: Apache-2.0 */
/* codec_rows.h: numbers written as a codec says (layout/codec.h), and sums of what several ranks wrote. One
 * implementation per family (formats.h); all give the bits of the reference (ref/codec.c), for any team.
 * Includes: kernel.h. Order: Local. */
#ifndef TUTTI_KERNEL_CODEC_ROWS_H
#define TUTTI_KERNEL_CODEC_ROWS_H

#include "kernel/kernel.h"
#include "layout/codec.h"

struct codec_args {
    enum codec codec;
    struct codec_rows shape;
    void *x; /* the numbers, f32, bf16 or f16 */
    enum dtype t;
    void *codes; /* codec_bytes of them; to decode: of the first of `parts` */
    /* to decode: x = (add ? x : 0) + ((part 0 + part 1) + ...) in fp32, rounded once to t; part p begins p * stride
     * bytes after the first. */
    int parts;
    size_t stride;
    bool add;
};

/* As calls of the operation table, and what a call says. */
struct kernel_call codec_call(enum op op, const struct codec_args *a);
struct codec_args codec_of(const struct kernel_call *c);
/* On a stream. */
void codec_encode(struct stream *s, const struct codec_args *a);
void codec_decode(struct stream *s, const struct codec_args *a);

/* A power of two from a scale's code, and its inverse, as fp32. */
static inline uint32_t codec_times_bits(uint32_t scale)
{
    return scale == CODEC_NAN ? 0x7fc00000u : scale ? scale << 23 : 0x400000u;
}
static inline uint32_t codec_over_bits(uint32_t scale)
{
    return scale == CODEC_NAN ? 0x3f800000u : scale < 254 ? (254 - scale) << 23 : 0x400000u;
}

void codec_encode_ref(struct team *team, const struct codec_args *a);
void codec_decode_ref(struct team *team, const struct codec_args *a);

#endif
