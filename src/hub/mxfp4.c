/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.c: a product per value; the sixteen numbers are in a table made once per call. */
#include "hub/mxfp4.h"

#include "layout/format.h"

void mxfp4_decode(float *x, const unsigned char *codes, const unsigned char *scales, int64_t lo, int64_t n)
{
    float value[16];
    for (uint32_t c = 0; c < 16; c++) value[c] = format_decode(FORMAT_E2M1, c);
    for (int64_t i = lo; i < lo + n;) {
        int64_t end = (i / MXFP4_BLOCK + 1) * MXFP4_BLOCK;
        float scale = format_decode(FORMAT_E8M0, scales[i / MXFP4_BLOCK]);
        for (end = end < lo + n ? end : lo + n; i < end; i++)
            x[i - lo] = scale * value[i % 2 ? codes[i / 2] >> 4 : codes[i / 2] & 15];
    }
}
