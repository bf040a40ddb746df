/* SPDX-License-Identifier: Apache-2.0 */
/* The table of codecs and what their bytes come to. */
#include "layout/codec.h"

#include "base/err.h"
#include "base/mem.h"

static const struct codec_row table[CODEC_N] = {
    [CODEC_KEPT] = {"kept", FORMAT_N, false},   [CODEC_BF16] = {"bf16", FORMAT_BF16, false},
    [CODEC_FP8] = {"fp8", FORMAT_E4M3, true},   [CODEC_FP8_E5M2] = {"fp8-e5m2", FORMAT_E5M2, true},
    [CODEC_INT8] = {"int8", FORMAT_INT8, true},
};

const struct codec_row *codec_row(enum codec c)
{
    CHECK((unsigned)c < CODEC_N, "codec %d does not exist", (int)c);
    return &table[c];
}

int64_t codec_blocks(const struct codec_rows *r)
{
    int64_t from = r->first / CODEC_BLOCK, end = (r->first + r->cols + CODEC_BLOCK - 1) / CODEC_BLOCK;
    return r->cols ? end - from : 0;
}

int64_t codec_block_at(const struct codec_rows *r, int64_t k)
{
    int64_t at = k * CODEC_BLOCK - r->first % CODEC_BLOCK;
    return at < 0 ? 0 : at < r->cols ? at : r->cols;
}

size_t codec_scales_at(enum codec c, const struct codec_rows *r)
{
    return to_size(r->rows * r->cols * format_info(codec_row(c)->format).bytes);
}

size_t codec_bytes(enum codec c, const struct codec_rows *r, enum dtype t)
{
    size_t n = c == CODEC_KEPT ? to_size(r->rows * r->cols) * dtype_bytes(t) : codec_scales_at(c, r);
    if (codec_row(c)->blocks) n += to_size(r->rows * codec_blocks(r));
    return (n + 3) / 4 * 4;
}
