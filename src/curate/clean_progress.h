/* SPDX-License-Identifier: Apache-2.0 */
/* clean_progress.h: how far a pass is, in a file .clean.json of its folder: which parts there are, what was counted,
 * and of what inputs and rules. Written whole after every part. Includes: base, group.h. Order: Local. */
#ifndef TUTTI_CURATE_CLEAN_PROGRESS_H
#define TUTTI_CURATE_CLEAN_PROGRESS_H

#include "curate/group.h"

#define PROGRESS_FILE ".clean.json"

struct progress {
    uint64_t rules, inputs; /* keys: of another rules file or other inputs the folder is not gone on with */
    int64_t part_bytes, most_bytes;
    bool plain;
    bool complete;
    int64_t next_part;      /* parts before it are done */
    int64_t parts;          /* of these have a file */
    int64_t *part_bytes_of; /* bytes of the file of each part that is done; 0: it has none */
    int64_t room;
    char too_large[200];
    struct group_counts counts;
    struct removals removals; /* removals_init before, removals_fini after */
};

void progress_write(const struct progress *p, struct str *out);
/* Reads it back; the removals only when it is of the rules with the key `rules`, which are those of p->removals. what:
 * for errors. ERR_CORRUPT. */
int progress_parse(struct progress *p, const char *text, size_t n, uint64_t rules, const char *what, struct err *e);
void progress_fini(struct progress *p);

#endif
