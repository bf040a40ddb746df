/* SPDX-License-Identifier: Apache-2.0 */
/* The nearest of a table is found by the midpoints between its neighbours, of two equally near ones the lower: that is
 * what comparing distances in order gives. The midpoints are taken in double, so that they are exact. */
#include "layout/packing.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "layout/bits.h"
#include "layout/codec.h"
#include "layout/format.h"

static const struct packing_row table[PACKING_N] = {
    [PACKING_NONE] = {"none", 0, false, 1},
    [PACKING_NF4] = {"nf4", 64, true, 2},
    [PACKING_MXFP4] = {"mxfp4", 32, false, 2},
    [PACKING_INT8] = {"int8", 32, false, 1},
};

const struct packing_row *packing_row(enum packing p)
{
    CHECK((unsigned)p < PACKING_N, "packing %d does not exist", (int)p);
    return &table[p];
}

int packing_find(const char *name)
{
    for (int p = 0; p < PACKING_N; p++)
        if (!strcmp(name, table[p].name)) return p;
    return -1;
}

int64_t packing_groups(enum packing p, int64_t rows, int64_t cols)
{
    if (!packing_row(p)->grouped) return 0;
    return (rows * packing_row_blocks(p, cols) + PACKING_GROUP - 1) / PACKING_GROUP + 1;
}

/* Appendix E of the paper. */
static const float nf4[PACKING_CODES] = {-1.0f,
                                         -0.6961928009986877f,
                                         -0.5250730514526367f,
                                         -0.39491748809814453f,
                                         -0.28444138169288635f,
                                         -0.18477343022823334f,
                                         -0.09105003625154495f,
                                         0.0f,
                                         0.07958029955625534f,
                                         0.16093020141124725f,
                                         0.24611230194568634f,
                                         0.33791524171829224f,
                                         0.44070982933044434f,
                                         0.5626170039176941f,
                                         0.7229568362236023f,
                                         1.0f};

void packing_table(enum packing p, float out[PACKING_CODES])
{
    for (uint32_t k = 0; k < PACKING_CODES; k++) out[k] = p == PACKING_NF4 ? nf4[k] : format_decode(FORMAT_E2M1, k);
}

void packing_map(float out[PACKING_MAP])
{
    enum { DECADES = 7, MIDDLE = PACKING_MAP / 2 - 1 };
    double unit = 1e-6;
    int at = 0;
    out[MIDDLE] = 0;
    for (int e = 0; e < DECADES; e++, unit *= 10)
        for (int n = 1 << e, k = 0; k < n; k++) {
            float v = (float)(unit * (0.1 + 0.9 * (k + 0.5) / n));
            at++;
            out[MIDDLE + at] = v;
            out[MIDDLE - at] = -v;
        }
    out[PACKING_MAP - 1] = 1;
}

/* Of n rising values. */
static uint8_t nearest(const float *value, int n, float x)
{
    int lo = 0, hi = n - 1;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if ((double)x > ((double)value[mid] + (double)value[mid + 1]) / 2) lo = mid + 1;
        else hi = mid;
    }
    return (uint8_t)lo;
}

static float largest_of(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* Codes whose value fp32 has no room for are not taken: of numbers that nearly fill it the largest are cut off.
 * largest < 2^(e+1) is at most 127 2^k for k = e - 6, or for k = e - 5 where it is nearly 2^(e+1). */
static float encode_int8(const float *x, int64_t n, float largest, uint8_t *codes)
{
    enum { LEAST = -127 };
    int power = LEAST;
    if (largest > 0) (void)frexpf(largest, &power);
    if (largest > 0) power -= 7; /* frexp has largest below 2^power */
    if (power > LEAST && largest > ldexpf(127, power)) power++;
    if (power < LEAST) power = LEAST;
    const double most = power < FLT_MAX_EXP - 6 ? 127 : 63;
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)(int8_t)fmax(-most, fmin(most, nearbyint(ldexp((double)x[i], -power))));
    return ldexpf(1, power);
}

float packing_encode(enum packing p, const float *x, int64_t n, uint8_t *codes)
{
    float largest = largest_of(x, n);
    if (p == PACKING_NF4) {
        for (int64_t i = 0; i < n; i++) codes[i] = nearest(nf4, PACKING_CODES, largest > 0 ? x[i] / largest : 0);
        return largest;
    }
    if (p == PACKING_INT8) return encode_int8(x, n, largest, codes);
    const struct format_info f = format_info(FORMAT_E2M1);
    int power = (int)codec_scale(float_bits(largest), &f) - 127;
    for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)format_encode(FORMAT_E2M1, ldexp((double)x[i], -power), true);
    return ldexpf(1, power);
}

void packing_encode_scales(enum packing p, const float *scale, int64_t n, uint8_t *codes, float *groups)
{
    float map[PACKING_MAP];
    double sum = 0;
    if (!packing_row(p)->grouped) {
        for (int64_t i = 0; i < n; i++) codes[i] = (uint8_t)(float_bits(scale[i]) >> 23);
        return;
    }
    packing_map(map);
    for (int64_t i = 0; i < n; i++) sum += (double)scale[i];
    float mean = n ? (float)(sum / (double)n) : 0;
    int64_t g = 0;
    for (int64_t at = 0; at < n; at += PACKING_GROUP, g++) {
        int64_t end = at + PACKING_GROUP < n ? at + PACKING_GROUP : n;
        float most = 0;
        for (int64_t i = at; i < end; i++) most = fabsf(scale[i] - mean) > most ? fabsf(scale[i] - mean) : most;
        for (int64_t i = at; i < end; i++)
            codes[i] = nearest(map, PACKING_MAP, most > 0 ? (scale[i] - mean) / most : 0);
        groups[g] = most;
    }
    groups[g] = mean;
}
