/* SPDX-License-Identifier: Apache-2.0 */
/* minhash.c: what a signature is. The loop over hashes is minhash_body.h's, compiled per instruction set.
 *
 * A member is a hash of 64 bits already, so a family that is linear in its halves is enough: minima of different places
 * agree independently as far as tests/curate/test_minhash.c can tell. Two multiplications of 32 bits per member and
 * place; one permutation with densification (Li, Owen, Zhang 2012) would need one hash per member, and was left out:
 * its places are not independent for the short texts that a corpus is full of, and reading costs more than this.
 */
#include "curate/minhash.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernel/cpuid.h"

void minhash_init(struct minhash *m, int bands, int rows, uint64_t seed)
{
    CHECK(bands >= 1 && rows >= 1 && bands <= MINHASH_MOST / rows, "%d bands of %d rows", bands, rows);
    *m = (struct minhash){.bands = bands, .rows = rows, .k = bands * rows, .seed = seed};
    m->a = xmalloc((size_t)m->k * sizeof *m->a);
    m->b = xmalloc((size_t)m->k * sizeof *m->b);
    uint64_t stream = rng_stream("minhash");
    for (int i = 0; i < m->k; i++) {
        m->a[i] = rng_u32(seed, stream, 2 * (uint64_t)i) | 1;
        m->b[i] = rng_u32(seed, stream, 2 * (uint64_t)i + 1) | 1;
    }
}

void minhash_fini(struct minhash *m)
{
    xfree(m->a);
    xfree(m->b);
    *m = (struct minhash){0};
}

static minhash_fold_fn *best_fold(void)
{
#if defined(__x86_64__)
    return cpu_isa() >= ISA_AVX2 ? minhash_fold_avx2 : minhash_fold_portable;
#elif defined(__aarch64__)
    return minhash_fold_neon;
#else
    return minhash_fold_portable;
#endif
}

void minhash_sign(const struct minhash *m, const uint64_t *x, size_t n, uint32_t *min)
{
    enum { PART = 256 }; /* members that stay in the first cache while all hashes pass over them */
    minhash_fold_fn *fold = best_fold();
    memset(min, 0xFF, (size_t)m->k * sizeof *min);
    for (size_t at = 0; at < n; at += PART) fold(min, m->a, m->b, m->k, x + at, n - at < PART ? n - at : PART);
}

uint64_t minhash_band(const struct minhash *m, const uint32_t *min, int band)
{
    uint32_t part[MINHASH_MOST + 1];
    memcpy(part, min + band * m->rows, (size_t)m->rows * sizeof *part);
    part[m->rows] = (uint32_t)band;
    return hash64(part, ((size_t)m->rows + 1) * sizeof *part);
}

void minhash_pack(const struct minhash *m, const uint32_t *min, uint64_t *out)
{
    memset(out, 0, (size_t)minhash_words(m) * 8);
    for (int i = 0; i < m->k; i++) out[i / 4] |= (uint64_t)(min[i] & 0xFFFF) << i % 4 * 16;
}

int minhash_agree(const struct minhash *m, const uint64_t *a, const uint64_t *b)
{
    int n = 0;
    for (int i = 0; i < m->k; i++) n += !((a[i / 4] ^ b[i / 4]) >> i % 4 * 16 & 0xFFFF);
    return n;
}

double minhash_similarity(const struct minhash *m, int agree)
{
    const double by_chance = 1.0 / 65536;
    double s = ((double)agree / m->k - by_chance) / (1 - by_chance);
    return s > 0 ? s : 0;
}

double minhash_chance(double s, int bands, int rows) { return 1 - pow(1 - pow(s, rows), bands); }

/* Over the bands: the chance of each number of agreeing places, with and without a whole band among them. */
double minhash_found(double s, int bands, int rows, double threshold)
{
    int k = bands * rows, room = k + 1;
    double *p = xcalloc((size_t)(2 * room), sizeof *p), *next = xcalloc((size_t)(2 * room), sizeof *next);
    double *in_band = xcalloc((size_t)rows + 1, sizeof *in_band);
    for (int j = 0; j <= rows; j++) {
        double log_ways = lgamma(rows + 1.0) - lgamma(j + 1.0) - lgamma(rows - j + 1.0);
        double log_p = log_ways + (j ? j * log(s) : 0) + (rows - j ? (rows - j) * log1p(-s) : 0);
        in_band[j] = exp(log_p);
    }
    p[0] = 1;
    for (int band = 0; band < bands; band++) {
        memset(next, 0, (size_t)(2 * room) * sizeof *next);
        for (int whole = 0; whole < 2; whole++)
            for (int n = 0; n <= band * rows; n++)
                for (int j = 0; j <= rows; j++)
                    next[(whole || j == rows) * room + n + j] += p[whole * room + n] * in_band[j];
        double *swap = p;
        p = next;
        next = swap;
    }
    struct minhash m = {.k = k};
    double found = 0;
    for (int n = 0; n <= k; n++)
        if (minhash_similarity(&m, n) >= threshold) found += p[room + n];
    xfree(p);
    xfree(next);
    xfree(in_band);
    return found;
}

void minhash_choose(double threshold, int k, int *bands, int *rows)
{
    *rows = 1;
    for (int r = 2; r <= k; r++)
        if (minhash_chance(threshold, k / r, r) >= MINHASH_WANTED) *rows = r;
    *bands = k / *rows;
}
