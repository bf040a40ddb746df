/* SPDX-License-Identifier: Apache-2.0 */
/* cuts.h: how a source is cut into samples: which tokens each is made of; for the files of dataset.h.
 *
 *   joined    sample i is tokens [i*seq, i*seq + seq] of the file: all documents one after the other
 *   best_fit, padded (pack.h)
 *             documents are taken `window` at a time, in the file's order; samples of window 0 come first, then those
 *             of window 1, ... How many there are in a window depends on the documents' lengths alone, so they are
 *             counted once when the source is opened, and a sample is found by a search among the windows and the
 *             packing of one: a pure function of (seed, source, epoch, sample), nothing of which is kept.
 *
 * Memory: 8 bytes per window. Cost: opening reads 8 bytes per document and packs all windows (some 50 ns a document); a
 * sample packs one. Includes: base, pack.h, tokenfile.h. Order: Local; threads may share what is open.
 */
#ifndef TUTTI_DATA_CUTS_H
#define TUTTI_DATA_CUTS_H

#include <stdatomic.h>

#include "data/pack.h"
#include "data/tokenfile.h"

struct cuts_rule {
    enum pack_kind kind;
    int64_t seq;
    int64_t window; /* documents */
    bool by_area;   /* in a window from little attention to much, in the next from much to little */
};

struct cuts {
    const struct tokenfile *file;
    struct cuts_rule rule;
    int64_t n;
    int64_t *first;     /* [n_windows + 1]: samples before each window; NULL: joined */
    int64_t n_windows;  /* of what is packed: */
    int64_t n_inputs;   /* tokens of all samples that have a target, a loss taken of it or not */
    int64_t n_cut;      /* documents longer than a sequence, in pieces */
    int64_t n_empty;    /* documents in which nothing is predicted, in no sample */
    uint64_t ends_hash; /* of what is packed: where each of its documents ends */
};

/* A part of a sample: inputs are tokens [begin, begin + n) of the file, targets the same one further. */
struct cuts_piece {
    int64_t document; /* of the file; -1: joined, several or none */
    int64_t begin, n;
};
struct cuts_pieces {
    struct cuts_piece *p; /* xfree it */
    int64_t n;
};

/* Of an open file that has its documents' ends unless the rule joins them. ERR_SIGNAL: as tokenfile_find_ends. n may
 * be 0. */
int cuts_open(struct cuts *s, const struct tokenfile *f, const struct cuts_rule *r, const atomic_int *give_up,
              struct err *e);
void cuts_close(struct cuts *s);
/* Sample i, which must exist. shuffle: of (seed, source, epoch), NULL: documents as they come. */
int cuts_pieces(const struct cuts *s, int64_t i, const uint64_t *shuffle, struct cuts_pieces *out, struct err *e);

#endif
