/* SPDX-License-Identifier: Apache-2.0 */
/* From the smallest power of two to the largest, so that nothing small is lost beside something large. */
#include "optim/squares.h"

#include <math.h>

double squares_total(const int64_t word[FLAT_SQUARES_WORDS])
{
    double sum = 0;
    if (word[2 * 255] || word[2 * 255 + 1]) return INFINITY;
    for (int e = 0; e < 255; e++) {
        int64_t low = word[2 * e] & 0xffffffff, high = word[2 * e + 1] + (word[2 * e] >> 32);
        sum += ldexp((double)high * 4294967296.0 + (double)low, 2 * ((e ? e : 1) - 150));
    }
    return sum;
}
