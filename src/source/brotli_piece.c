/* SPDX-License-Identifier: Apache-2.0 */
#include "source/brotli_piece.h"

#include <brotli/decode.h>

const char *brotli_piece(const void *p, size_t n, void *out, size_t n_out)
{
    size_t given = n_out;
    BrotliDecoderResult r = BrotliDecoderDecompress(n, p, &given, out);
    return r == BROTLI_DECODER_RESULT_SUCCESS && given == n_out
               ? NULL
               : "its Brotli data are damaged, or not as long as they should be";
}
