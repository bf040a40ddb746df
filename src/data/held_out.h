/* SPDX-License-Identifier: Apache-2.0 */
/* held_out.h: a share of the documents of a token file kept from training, to be validated on: data.valid: 5%.
 *
 * Which they are is a function of (seed, tokens of the document): documents with the same text are on the same side, so
 * none is in both, and more text beside them changes nothing. Of two or more documents at least one is on each side; of
 * a file that is one document the end of it is held out. Both sides become token files in the cache, and whoever reads
 * them knows nothing of it: so any layout, packing and order has them.
 *
 * Includes: base, tokenfile.h. Order: Local (processes that want the same file wait for one of them). Cost: the tokens
 * are read and hashed once, and each side copied once.
 */
#ifndef TUTTI_DATA_HELD_OUT_H
#define TUTTI_DATA_HELD_OUT_H

#include "data/tokenfile.h"

struct held_out_rule {
    double share; /* of the documents, 0 to 1; 0: nothing is held out */
    uint64_t seed;
    bool valid; /* the side that is held out; else the one that is trained on */
};

/* Which documents of a file are held out. */
struct held_out {
    unsigned char *of; /* [n]; of one document: it is cut */
    int64_t n;
};
void held_out_free(struct held_out *h);
int held_out_choose(struct held_out *h, const struct tokenfile *f, const struct held_out_rule *r,
                    const atomic_int *give_up, struct err *e);
/* The rule's side of f, of which document i is on the side that h says (h is of f, or of another file with as many
 * documents), takes f's place. Says how much was held out when it makes the file. */
int held_out_take(struct tokenfile *f, const struct held_out *h, const struct held_out_rule *r, const char *cache_dir,
                  const atomic_int *give_up, struct err *e);

#endif
