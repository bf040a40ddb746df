/* SPDX-License-Identifier: Apache-2.0 */
/* sides.h: pairs of texts, one that an encoder reads and one that its decoder writes: translations, summaries, answers.
 *
 *   input     a b c .                          . the end of text
 *   target    d e .
 *   sample    a b c . . .   s d e . .          encoder: what is behind the end has the position -1, and is not there
 *   targets                 d e . - -          decoder: behind the token that starts; nothing is behind the end
 *
 * A source is read twice, for the member that is read and for the one that is written, each to a token file of its own,
 * document for document; that both documents are of one record is compared by where they came from. A side that does
 * not fit its places with its end of text is refused with its record, or cut before its end. Includes: base,
 * tokenfile.h. Order: Local.
 */
#ifndef TUTTI_DATA_SIDES_H
#define TUTTI_DATA_SIDES_H

#include <stdbool.h>
#include <stdint.h>

#include "data/tokenfile.h"

struct sides_rule {
    int64_t encoder; /* places of what is read; 0: sources are no pairs */
    int64_t start;   /* what the decoder reads first */
    bool cut;
};

/* Of two files with their documents' ends. path: the source's name, for errors. filled: tokens of all samples that are
 * read, and that are written. seq: places of a sample.
 *   fails   ERR_REQUEST: documents of different records, or one that does not fit; names the record */
int sides_check(const struct tokenfile *read, const struct tokenfile *written, const struct sides_rule *rule,
                int64_t seq, const char *path, int64_t filled[2], struct err *e);
/* Pair i into a sample's places [seq] of each. Returns how many targets there are, or an error's code, below 0. */
int64_t sides_fill(const struct tokenfile *read, const struct tokenfile *written, const struct sides_rule *rule,
                   int64_t i, int64_t seq, int32_t *ids, int32_t *targets, int32_t *positions, struct err *e);

#endif
