/* SPDX-License-Identifier: Apache-2.0 */
/* pack.h: a window of documents is packed: cut into samples, as a pure function of the documents' lengths.
 *
 * A document of n tokens, its end of text included, is n - 1 inputs with their targets: its end is predicted and
 * predicts nothing. Where that is more than a sequence it is cut into pieces of a sequence and the rest, each of whose
 * targets are its inputs one further, so that no prediction is lost or made twice. A sample is one or several pieces:
 *
 *   PACK_BEST_FIT  pieces from long to short, each into the sample where it leaves the least room, a new one where none
 *                  has room for it (best-fit decreasing; Ding et al. 2024, "Fewer Truncations Improve Language
 *                  Modeling").
 *   PACK_PADDED    every piece is a sample. By area, that is, with samples in groups of like ones: pieces from long to
 *                  short, each behind the one before it while there is room, so that a sample holds pieces of like
 *                  length and as many as fit. Padding is what is left behind the last of them.
 *
 * Pieces of one length are dealt out by `shuffle`, so that a document meets others in every epoch; how many samples
 * there are, and how long their pieces are, depends on the lengths alone.
 *
 * Cost: O(documents) and two bits and an integer per token of a sequence. Includes: base. Order: Local.
 */
#ifndef TUTTI_DATA_PACK_H
#define TUTTI_DATA_PACK_H

#include <stdbool.h>
#include <stdint.h>

enum pack_kind { PACK_JOINED, PACK_BEST_FIT, PACK_PADDED };
#define PACK_NAMES "joined|best_fit|padded"

struct pack_piece {
    int64_t document; /* of the window: 0 .. n - 1 */
    int64_t begin;    /* inputs are tokens [begin, begin + n) of the document, targets the same one further */
    int64_t n;
};

struct pack {
    struct pack_piece *pieces; /* of sample 0, then of sample 1, ... */
    int64_t *first;            /* [n_samples + 1]: where those of a sample begin in pieces */
    int64_t n_samples, n_pieces;
};

struct pack_options {
    enum pack_kind kind; /* not PACK_JOINED */
    int64_t seq;
    bool by_area;     /* samples from little attention to much (the sum of their pieces' squares); else as they came */
    bool shuffled;    /* by shuffle */
    uint64_t shuffle; /* of (seed, source, epoch, window) */
};

/* n_tokens[i]: of document i. pack_fini frees what p holds. */
void pack_documents(struct pack *p, const struct pack_options *o, const int64_t *n_tokens, int64_t n);
void pack_fini(struct pack *p);

#endif
