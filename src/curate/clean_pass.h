/* SPDX-License-Identifier: Apache-2.0 */
/* clean_pass.h: `tutti data clean`: documents of any source through the filters, on all cores, into shards.
 *
 * A folder is written: part-00000.jsonl.zst, part-00001... with what is kept of every `part_bytes` of input, in the
 * order of the input (a part of which nothing is kept has no file), and .clean.json, which says how far the pass is.
 * The folder is an input of `tutti data tokenize` or data.train as it is.
 *
 * Invariants
 *   1. The bytes of the parts are a function of the inputs, the rules and part_bytes; the number of threads changes
 *      nothing, and neither does an interruption.
 *   2. A part appears under its name when it is complete and on the disk; then .clean.json counts it. Killed between
 *      the two, the part is made again, with the same bytes.
 *   3. The same command goes on where it stopped: what was read is read again, without filtering. Other inputs, rules
 *      or sizes for the same folder are refused by name.
 *   4. Memory: three rounds of two groups a thread (group.h), and the largest document a few times.
 * Includes: base, source/source.h, group.h. Order: Local.
 */
#ifndef TUTTI_CURATE_CLEAN_PASS_H
#define TUTTI_CURATE_CLEAN_PASS_H

#include <stdatomic.h>

#include "curate/group.h"

struct pass_options {
    const struct rules *rules;
    const char *const *inputs;
    int n_inputs;
    const char *column; /* see source_open */
    const char *out;
    int threads;        /* 0: all cores */
    int64_t part_bytes; /* of input text in a part */
    int64_t most_bytes; /* of a document: larger ones are counted, and left out */
    bool plain;         /* .jsonl, not .jsonl.zst */
    bool skip_bad;      /* bad records (source/source.h) are passed over and listed in .clean.skipped of the folder */
};
struct pass_result {
    struct group_counts counts; /* of the whole pass, with what was done before an interruption */
    char too_large[200];        /* the first document of that kind; "" */
    int64_t parts;              /* files there are */
    int64_t skipped_files;      /* binary or unreadable, of folders; of what was read now */
    int64_t bad;                /* records that were passed over, of all the pass */
    bool complete_before;       /* nothing was left to do */
    int64_t resumed_at;         /* documents that were done before; 0: from the start */
    double seconds;             /* of this time */
    double filter_s, read_s;    /* threads' seconds in filters (with making lines), and in reading */
    int64_t filtered_bytes;     /* this time */
    int threads;
    struct removals removals; /* removals_fini */
};

int pass_run(const struct pass_options *o, struct pass_result *r, struct err *e);
void pass_result_fini(struct pass_result *r);

#endif
