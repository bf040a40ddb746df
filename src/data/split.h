/* SPDX-License-Identifier: Apache-2.0 */
/* split.h: pre-tokenisation. Cuts text into the pieces inside which BPE merges; no merge crosses a cut.
 *
 * A split is a list of regular expressions (Hugging Face's "Split, Isolated"): each match is a piece, and so is
 * each stretch between matches; pieces of one stage are cut further by the next. No stage: text is one piece.
 * The meaning is Oniguruma's (pattern.h, oniguruma.h), as in the reference.
 *
 * Invariants
 *   1. The pieces, joined, are the text.
 *   2. Where text arrives in parts, the pieces do not depend on how it was parted.
 *   3. No piece is longer than SPLIT_PIECE_MAX; longer ones are cut there (the one departure from the reference
 *      implementation, which needs the whole document in memory), except where the whole text is needed.
 * Includes: base. Order: Local; a split is read-only and shared, a split_work belongs to one thread.
 */
#ifndef TUTTI_DATA_SPLIT_H
#define TUTTI_DATA_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SPLIT_PIECE_MAX = 256 << 10 };

/* The two expressions that matter, as published with the models. */
extern const char *const SPLIT_GPT2;
extern const char *const SPLIT_LLAMA3;

struct split;
struct split *split_new(void);
void split_free(struct split *s); /* NULL is fine */
/* Adds a stage. `what` names its place in errors. ERR_REQUEST for an expression that is none, or whose meaning we
 * cannot be sure to share with the reference (unknown properties, \X). */
int split_add(struct split *s, const char *pattern, size_t n, const char *what, struct err *e);
/* The same by Oniguruma, also where pattern.h could do it: the test of their equality. */
int split_add_general(struct split *s, const char *pattern, size_t n, const char *what, struct err *e);
int split_n_stages(const struct split *s);
/* The first stage needs the whole text: split_run hands out nothing before `final`. */
bool split_needs_whole_text(const struct split *s);
/* May a text be cut before the k-th byte of PATTERN_SEAM_BYTES, which follows a character, and both sides be split
 * apart, into the very pieces of the whole? False also where it is not known. */
bool split_parts_before(const struct split *s, int k, uint32_t before);
enum { SPLIT_TEXT_MAX = 64 << 20 }; /* and no text may be longer then */

struct split_work;
struct split_work *split_work_new(const struct split *s);
void split_work_free(struct split_work *w);

typedef void split_piece_fn(void *arg, const unsigned char *p, size_t n);

/* Cuts the valid UTF-8 text p[0..n) and hands each piece to fn. Unless `final`, stops before the first piece that
 * text after p[n) could change. *used: bytes of the pieces handed out; the caller brings the rest again. */
int split_run(const struct split *s, struct split_work *w, const unsigned char *p, size_t n, bool final,
              split_piece_fn *fn, void *arg, size_t *used, struct err *e);

#endif
