/* SPDX-License-Identifier: Apache-2.0 */
/* minhash.h: signatures whose places agree as often as their sets overlap (Broder 1997), and the bands by which similar
 * ones are found (Indyk and Motwani 1998; Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", 3.4).
 *
 * A signature has bands * rows minima, each over another hash of the set's members. Two sets of Jaccard similarity s
 * agree in a place with chance s, so in all rows of some band with chance 1 - (1 - s^rows)^bands.
 * Includes: base. Order: Local; a minhash is read by any number of threads.
 */
#ifndef TUTTI_CURATE_MINHASH_H
#define TUTTI_CURATE_MINHASH_H

#include <stddef.h>
#include <stdint.h>

enum { MINHASH_MOST = 2048 };
struct minhash {
    int bands, rows, k; /* k: bands * rows, at most MINHASH_MOST */
    uint64_t seed;
    uint32_t *a, *b; /* of hash i: x becomes low(x) a[i] + high(x) b[i] mod 2^32 */
};
void minhash_init(struct minhash *m, int bands, int rows, uint64_t seed);
void minhash_fini(struct minhash *m);

/* Of x[0..n), n >= 1, into min[k]. */
void minhash_sign(const struct minhash *m, const uint64_t *x, size_t n, uint32_t *min);
/* The name of a band: equal where all its rows are and the band is the same one. */
uint64_t minhash_band(const struct minhash *m, const uint32_t *min, int band);
/* The low 16 bits of each minimum are what is kept for comparing. Four to a word, k of them in minhash_words(m). */
static inline int minhash_words(const struct minhash *m) { return (m->k + 3) / 4; }
void minhash_pack(const struct minhash *m, const uint32_t *min, uint64_t *out);
/* Places in which two packed signatures agree; and the similarity that follows: two that differ agree in 16 bits once
 * in 65536 times. */
int minhash_agree(const struct minhash *m, const uint64_t *a, const uint64_t *b);
double minhash_similarity(const struct minhash *m, int agree);

/* 1 - (1 - s^rows)^bands. */
double minhash_chance(double s, int bands, int rows);
/* The chance that a pair of similarity s shares a band and its estimate reaches the threshold: what is found. */
double minhash_found(double s, int bands, int rows, double threshold);
/* At most k hashes: the most rows with which a pair at the threshold shares a band with a chance of MINHASH_WANTED, and
 * as many bands as k allows. */
#define MINHASH_WANTED 0.9
void minhash_choose(double threshold, int k, int *bands, int *rows);

/* Minima over one part of the hashes and members; for minhash_sign and its tests. */
typedef void minhash_fold_fn(uint32_t *min, const uint32_t *a, const uint32_t *b, int k, const uint64_t *x, size_t n);
minhash_fold_fn minhash_fold_portable, minhash_fold_avx2, minhash_fold_neon;

#endif
