/* SPDX-License-Identifier: Apache-2.0 */
/* seam.h: where a document may be cut into parts that are encoded apart, with the ids of the whole.
 *
 * A property of the tokenizer and the two characters at the cut, proved from its splitting expressions (pattern_seam.c)
 * and added tokens; never a guess. Tokenizers for which nothing is known have no seams: their documents stay whole.
 * Includes: base, tokenizer.h. Order: Local; read-only.
 */
#ifndef TUTTI_TOKEN_SEAM_H
#define TUTTI_TOKEN_SEAM_H

#include <stdbool.h>
#include <stddef.h>

#include "token/pattern.h"
#include "token/tokenizer.h"

struct split;
struct seams {
    bool everywhere;            /* the byte tokenizer */
    bool before[PATTERN_SEAMS]; /* the byte of PATTERN_SEAM_BYTES may follow a seam */
    const struct split *split;
};
void seams_find(struct seams *s, const struct tokenizer *t);
struct cut_rules;
void seams_of_rules(struct seams *s, const struct cut_rules *rules); /* of cutting alone */
/* Is there a seam right before p[at]? p[0..at] is all that is looked at, at >= 1. */
bool seam_at(const struct seams *s, const unsigned char *p, size_t at);

#endif
