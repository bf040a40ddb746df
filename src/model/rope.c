/* SPDX-License-Identifier: Apache-2.0 */
#include "model/rope.h"

#include <math.h>

double rope_stretched(const struct rope_scaling_config *r, double frequency)
{
    if (r->factor == 0) return frequency;
    if (r->kind == ROPE_LINEAR) return frequency / r->factor;
    if (r->kind != ROPE_LLAMA3) return frequency;
    double wavelength = 2 * acos(-1.0) / frequency;
    double low = (double)r->original_max_position / r->low_freq_factor;
    double high = (double)r->original_max_position / r->high_freq_factor;
    if (wavelength < high) return frequency;
    if (wavelength > low) return frequency / r->factor;
    double smooth = ((double)r->original_max_position / wavelength - r->low_freq_factor) /
                    (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * frequency / r->factor + smooth * frequency;
}
