/* SPDX-License-Identifier: Apache-2.0 */
/* mxfp4.h: weights as gpt-oss publishes them: blocks of 32 values along a row, each a 4-bit number (E2M1) times the
 * block's power of two (E8M0); OCP Microscaling Formats 1.0. Two codes share a byte, the first in its low half. bf16
 * holds every value but the smallest exactly. Includes: libc, layout/format.h. Order: Local.
 */
#ifndef TUTTI_HUB_MXFP4_H
#define TUTTI_HUB_MXFP4_H

#include <stdint.h>

enum { MXFP4_BLOCK = 32 };
/* x[i] = value lo + i of the row whose codes and scales these are; a scale of 255 makes NaN. */
void mxfp4_decode(float *x, const unsigned char *codes, const unsigned char *scales, int64_t lo, int64_t n);

#endif
