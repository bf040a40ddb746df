/* SPDX-License-Identifier: Apache-2.0 */
/* text_parts.h: a source as parts of about a MiB, each with the stretches in it that are encoded apart.
 *
 * A stretch is a document, or what is between two seams (seam.h) of a long one. Where stretches end is a function of
 * the text alone, so tokens do not depend on who reads how much at once. A place between two parts can be found again
 * in the same source, as long as no stretch goes on across it. Includes: base, seam.h, source.h. Order: Local.
 */
#ifndef TUTTI_TOKEN_TEXT_PARTS_H
#define TUTTI_TOKEN_TEXT_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "source/source.h"
#include "token/seam.h"

struct part_end {
    size_t at;     /* the stretch ends before text[at] */
    bool document; /* and a document with it */
};

/* Where a document that begins in a part comes from. */
struct part_begin {
    int64_t file, offset; /* source_file and source_place.offset */
};

/* What was read so far, and where to go on: bytes of document number `document` of file number `file`, as far as the
 * source was told to read it. */
struct parts_place {
    int64_t file, document, byte;
    int64_t bytes, documents; /* of text; that ended */
};

struct part {
    char *text;
    size_t n, room;
    struct part_end *ends; /* in order; what is behind the last goes on in the next part */
    int64_t n_ends, ends_room;
    struct part_begin *begins; /* of the documents that begin in it, in order */
    int64_t n_begins, begins_room;
    bool follows; /* begins in the middle of a stretch */
    bool open;    /* ends in the middle of one: `after` is no place to go on from */
    struct parts_place after;
    int64_t source_done, source_skipped; /* source_bytes_done and source_n_skipped then */
};
void part_fini(struct part *p);

struct parts_sizes {
    size_t stretch;    /* of at least so many bytes, where it ends at a seam */
    size_t part, most; /* a part is closed at the first end from `part` bytes on, and at `most` bytes in any case */
};
struct parts;
struct parts *parts_new(struct source *s, const struct seams *seams, const struct parts_sizes *sizes); /* NULL: usual */
void parts_free(struct parts *p);
/* Reads on to a place in the lot that the source was told to read, with nothing handed out yet. *give_up: see
 * tokenize_cached.
 *   fails   ERR_REQUEST: the lot has no such place; and as source_next and source_read */
int parts_seek(struct parts *p, const struct parts_place *to, const atomic_int *give_up, struct err *e);
/* The next part. 1; 0: there are no more; < 0: an error. */
int parts_read(struct parts *p, struct part *out, struct err *e);
/* Changes where stretches end: part of what a half-finished token file is known by. */
enum { PARTS_VERSION = 2 };

#endif
