/* SPDX-License-Identifier: Apache-2.0 */
/* group.h: some documents that follow one another: the unit of work of a pass, read by one thread, filtered by any.
 *
 * Where a group ends depends on its documents alone, so that the bytes of a pass are the same for any number of
 * threads. What is kept becomes lines of JSON: the text, then where it came from:
 *
 *     {"text": "...", "source": "a.jsonl", "document": 7, "offset": 5120, "bytes": 311}
 *
 * bytes are those of the text as it was read; behind them is what filters note (a language, say), and then the other
 * members of its record in a .jsonl file, as they stand (rewrite_others).
 * Includes: base, source/source.h, rules.h, compress.h. Order: Local.
 */
#ifndef TUTTI_CURATE_GROUP_H
#define TUTTI_CURATE_GROUP_H

#include "curate/compress.h"
#include "curate/rules.h"
#include "source/source.h"

enum { GROUP_BYTES = 512 << 10, GROUP_DOCUMENTS = 1024 };

struct group_item {
    size_t at, n, others_at, others_n; /* in group.text, group.others */
    struct origin origin;
};
struct group_counts {
    int64_t documents, bytes;             /* read */
    int64_t too_large, too_large_bytes;   /* of these: not looked at */
    int64_t kept, kept_bytes, file_bytes; /* bytes of text, and of its lines as they are written */
    int64_t emptied;                      /* nothing was left of their text: not written */
    int64_t not_utf8;                     /* kept ones with bytes that are no UTF-8, written as U+FFFD */
};
struct group {
    struct str text, others;
    struct group_item *item;
    size_t n, room;
    bool ends_part, ends_input;
    struct group_counts counts;
    char too_large[200]; /* the first of them */
    struct str lines, packed;
    struct err error;
};

/* What one thread filters with. */
struct worker {
    const struct rules *rules;
    struct removals removals;
    struct document document;
    struct compressor *compressor; /* NULL: lines as they are */
};

void group_free(struct group *g);
/* Reads until the group is full, the part has part_bytes of input (of which *part are read) or the input ends. *index
 * counts documents of the pass. Documents of more than `most` bytes are counted and left out. */
int group_read(struct group *g, struct source *s, int64_t *index, int64_t *part, int64_t part_bytes, int64_t most,
               struct err *e);
/* Filters it: what is to be written is g->packed, or g->lines without a compressor; g->error: what went wrong. */
void group_filter(struct group *g, struct worker *w);
/* {"text": ...} and a line end. */
void group_put_line(const struct document *d, struct str *out);
void group_counts_add(struct group_counts *into, const struct group_counts *from);

#endif
