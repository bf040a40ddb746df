/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of formats in AVX-512, 16 lanes: one build of formats_body.h and codec_body.h. Entered after cpu_isa()
 * said so. */
#include "kernel/cpu/bits/codec_body.h"

#include "kernel/cpu/build.h"
#include "kernel/cpu/tile/packed512.h"

const struct format_ops format_ops_avx512 = {"avx512",         formats_encode,   formats_decode,
                                             codec_encode_vec, codec_decode_vec, packed_unpack_512};
