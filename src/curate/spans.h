/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h: the parts of a text that are compared with those of all other texts: all of it, its lines, its paragraphs,
 * or passages of a length, chosen by what they hold.
 *
 *   all          one span, hashed in a normal form (normal.h)
 *   lines        up to a newline, which belongs to the line; hashed in the normal form without it
 *   paragraphs   lines up to one or more blank ones (white space only), which belong to the paragraph
 *   passages     some of the stretches of `least` bytes, hashed as they are: of any passage_apart of them that follow
 *                each other the one of least hash (winnowing: Schleimer, Wilkerson, Aiken, "Winnowing: local algorithms
 *                for document fingerprinting", 2003). So every text of least + passage_apart - 1 bytes that is there
 *                twice has a passage in common, wherever it lies
 *
 * A line or paragraph whose normal form has fewer than `least` bytes is no span: braces, bullets and blank lines are
 * there often, and mean nothing. Includes: base. Order: Local.
 */
#ifndef TUTTI_CURATE_SPANS_H
#define TUTTI_CURATE_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/str.h"
#include "curate/normal.h"

enum span_kind { SPAN_ALL, SPAN_LINES, SPAN_PARAGRAPHS, SPAN_PASSAGES };
enum { PASSAGE_LEAST = 16 };
struct span_cutter {
    enum span_kind kind;
    enum normal_kind normal;
    size_t least; /* passages: at least PASSAGE_LEAST */

    struct str form; /* scratch, like the next two; zero at first */
    uint64_t *ring;
    size_t ring_room;
};
/* text[from..to) has this hash; a negative code ends the cutting. */
typedef int span_fn(void *ctx, struct hash128 hash, size_t from, size_t to, struct err *e);
int spans_cut(struct span_cutter *c, const char *text, size_t n, span_fn *each, void *ctx, struct err *e);
void spans_fini(struct span_cutter *c);
size_t passage_apart(size_t least);

#endif
