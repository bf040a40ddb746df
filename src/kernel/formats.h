/* SPDX-License-Identifier: Apache-2.0 */
/* formats.h: whole arrays to number formats (layout/format.h) and back, as a family of the CPU has it; all give the
 * bits of the reference, for any team. On memory that the caller can touch. The last three have rows (codec_rows.h,
 * packed_rows.h) that come to these by array_slots_body.h. Includes: thread.h, dtype.h, format.h.
 * Order: Local. */
#ifndef TUTTI_KERNEL_FORMATS_H
#define TUTTI_KERNEL_FORMATS_H

#include "base/thread.h"
#include "layout/dtype.h"
#include "layout/format.h"

struct format_random { /* words of the generator: element i of the call takes that of index first + i */
    uint64_t seed, stream, first;
};
struct codec_args;  /* codec_rows.h */
struct packed_args; /* packed_rows.h */
struct format_ops {
    const char *name;
    /* codes[i] = x[i] in f, n of format_info(f).bytes each, no overlap; x is f32 or bf16. random: NULL, or round by it;
     * then x is f32. */
    void (*encode)(struct team *team, void *codes, enum format f, const void *x, enum dtype from, int64_t n,
                   bool saturate, const struct format_random *random);
    /* x[i] = the value of codes[i], as f32 or rounded to bf16 (which holds every 8-bit format exactly). */
    void (*decode)(struct team *team, void *x, enum dtype to, const void *codes, enum format f, int64_t n);
    /* Whole rows as a codec writes them (codec_rows.h). */
    void (*encode_rows)(struct team *team, const struct codec_args *a);
    void (*decode_rows)(struct team *team, const struct codec_args *a);
    /* Matrices kept in few bits, as numbers (packed_rows.h). */
    void (*unpack)(struct team *team, const struct packed_args *a);
};
extern const struct format_ops format_ops_ref, format_ops_cpu;

/* A code where it lies among others. */
static inline void format_store(void *codes, const struct format_info *f, int64_t i, uint32_t code)
{
    if (f->bytes == 1) ((uint8_t *)codes)[i] = (uint8_t)code;
    else if (f->bytes == 2) ((uint16_t *)codes)[i] = (uint16_t)code;
    else ((uint32_t *)codes)[i] = code << f->shift;
}
static inline uint32_t format_load(const void *codes, const struct format_info *f, int64_t i)
{
    if (f->bytes == 1) return ((const uint8_t *)codes)[i];
    if (f->bytes == 2) return ((const uint16_t *)codes)[i];
    return ((const uint32_t *)codes)[i] >> f->shift;
}

#endif
