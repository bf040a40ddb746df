/* SPDX-License-Identifier: Apache-2.0 */
/* minhash_body.h: the minima of a few hashes at a time over all members: multipliers and minima stay in registers.
 * Included once per instruction set with FOLD, the function's name. */
#include "curate/minhash.h"

enum { ABREAST = 32 };

void FOLD(uint32_t *min, const uint32_t *a, const uint32_t *b, int k, const uint64_t *x, size_t n)
{
    int i = 0;
    for (; i + ABREAST <= k; i += ABREAST) {
        uint32_t least[ABREAST], p[ABREAST], q[ABREAST];
        for (int j = 0; j < ABREAST; j++) {
            least[j] = min[i + j];
            p[j] = a[i + j];
            q[j] = b[i + j];
        }
        for (size_t m = 0; m < n; m++) {
            uint32_t low = (uint32_t)x[m], high = (uint32_t)(x[m] >> 32);
            for (int j = 0; j < ABREAST; j++) {
                uint32_t v = low * p[j] + high * q[j];
                least[j] = v < least[j] ? v : least[j];
            }
        }
        for (int j = 0; j < ABREAST; j++) min[i + j] = least[j];
    }
    for (; i < k; i++)
        for (size_t m = 0; m < n; m++) {
            uint32_t v = (uint32_t)x[m] * a[i] + (uint32_t)(x[m] >> 32) * b[i];
            min[i] = v < min[i] ? v : min[i];
        }
}
