/* SPDX-License-Identifier: Apache-2.0 */
/* explain_lines.h: text for a terminal: lines of at most so many columns, and repetitions told once. Private to cli/.
 *
 * A model is the same layer again and again, so a view of it is the same lines again and again. Lines are collected
 * with the layer (and the expert) that they are about; where a block of lines comes again for other layers, and differs
 * in nothing but the layer's number and what stands in the prefix (indices), it is printed once, and a line says for
 * which layers it holds.
 *
 * Floor 11; includes base only. Order: Local. */
#ifndef TUTTI_EXPLAIN_EXPLAIN_LINES_H
#define TUTTI_EXPLAIN_EXPLAIN_LINES_H

#include <stdint.h>

#include "base/str.h"

enum { EXPLAIN_COLUMNS = 100 };
enum line_of { LINE_LAYER, LINE_EXPERT, LINE_OF_N };

struct line {
    size_t at, n;          /* its text */
    uint64_t key;          /* of what must be the same for two lines to be alike */
    int number[LINE_OF_N]; /* which layer, which expert; -1: none */
    bool note;             /* says what was folded */
};
struct lines {
    struct str text;
    struct line *p;
    int n, room;
};

/* prefix: printed, but not compared. Digits after "layers.", "layer " and "experts." in body are not compared
 * either. */
void explain_lines_add(struct lines *l, int layer, int expert, const char *prefix, const char *body);
/* Folds what repeats along one of the numbers: experts before layers. */
void explain_lines_fold(struct lines *l, enum line_of along);
/* Prints and empties: lines longer than `columns` (0: none are) are broken between words and go on `indent` columns
 * from the left. */
void explain_lines_print(struct lines *l, int columns, int indent, struct str *out);
void explain_lines_free(struct lines *l);
/* The same breaking for a whole text. */
void explain_lines_wrap(const char *text, int columns, int indent, struct str *out);
/* The number after `word` in name, or -1: explain_line_number("layers.3.mlp", "layers.") is 3. */
int explain_line_number(const char *name, const char *word);

#endif
