/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of formats in AVX2, 8 lanes: one build of formats_body.h and codec_body.h. Entered after cpu_isa() said
 * so. */
#include "kernel/cpu/codec_body.h"

#include "kernel/cpu/build.h"
#include "kernel/packed_rows.h"

const struct format_ops format_ops_avx2 = {"avx2",           formats_encode,   formats_decode,
                                           codec_encode_vec, codec_decode_vec, packed_unpack_ref};
