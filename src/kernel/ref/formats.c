/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of arrays written out plainly, an element at a time. The team is left unused: this is the specification.
 */
#include "kernel/formats.h"

#include "base/err.h"
#include "base/rng.h"
#include "kernel/codec_rows.h"
#include "kernel/packed_rows.h"

static void encode_ref(struct team *team, void *codes, enum format f, const void *x, enum dtype from, int64_t n,
                       bool saturate, const struct format_random *random)
{
    (void)team;
    const struct format_info info = format_info(f);
    CHECK(from == DT_F32 || (from == DT_BF16 && !random), "%s to %s", dtype_name(from), info.name);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)(from == DT_F32 ? ((const float *)x)[i] : bf16_to_f32(((const bf16 *)x)[i]));
        format_store(codes, &info, i,
                     random ? format_encode_random(f, v, saturate,
                                                   rng_u32(random->seed, random->stream, random->first + (uint64_t)i))
                            : format_encode(f, v, saturate));
    }
}

static void decode_ref(struct team *team, void *x, enum dtype to, const void *codes, enum format f, int64_t n)
{
    (void)team;
    const struct format_info info = format_info(f);
    CHECK(to == DT_F32 || to == DT_BF16, "%s to %s", info.name, dtype_name(to));
    for (int64_t i = 0; i < n; i++) {
        float v = format_decode(f, format_load(codes, &info, i));
        if (to == DT_F32) ((float *)x)[i] = v;
        else ((bf16 *)x)[i] = bf16_from_f32(v);
    }
}

const struct format_ops format_ops_ref =
    {"ref", encode_ref, decode_ref, codec_encode_ref, codec_decode_ref, packed_unpack_ref};
