/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of formats in NEON, 4 lanes: one build of formats_body.h and codec_body.h. Entered after cpu_isa() said
 * so. */
#include "kernel/cpu/bits/codec_body.h"

#include "kernel/cpu/build.h"
#include "kernel/packed_rows.h"

const struct format_ops format_ops_neon = {"neon",           formats_encode,   formats_decode,
                                           codec_encode_vec, codec_decode_vec, packed_unpack_ref};
