/* SPDX-License-Identifier: Apache-2.0 */
/* dedup.h: a corpus without what is in it twice, by any number of ranks: `tutti data dedup`.
 *
 *   exact        documents whose normal form is the same
 *   lines        lines; paragraphs: paragraphs (spans.h)
 *   near         documents whose sets of shingles are similar: MinHash, bands, and what those find verified by the
 *                estimate of whole signatures; what is similar to something similar goes with it
 *   substring    stretches of at least repeat_least bytes that are there twice within a part: by a suffix array of the
 *                part (Lee et al., "Deduplicating training data makes language models better", 2022)
 *   passages     the same over all parts, by chosen passages (spans.h): finds every repeat of at least
 *                repeat_least + passage_apart(repeat_least) - 1 bytes, and may leave fewer bytes than that at its ends
 *
 * Steps are done in the order asked for, each on what the ones before left. Of what is the same the first in the
 * corpus's order stays: that order is the inputs' (corpus.h), so the result is one for any number of ranks, any memory
 * and any number of interruptions, to the byte.
 *
 * Files under `out`: part-00000.jsonl, ... (one per unit that keeps something): records as they were where nothing in
 * them changed; dedup.json: what was removed, with samples. While it works out/dedup.work (or `work`): edits of the
 * steps that are done, runs of the one that is not. What is done by ranks of an interrupted run of the same inputs,
 * options and number of ranks is taken from there. Nothing has its final name before it is whole.
 *
 * Includes: base, comm, data. Order: Collective(world).
 */
#ifndef TUTTI_CURATE_DEDUP_H
#define TUTTI_CURATE_DEDUP_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "curate/edits.h"
#include "curate/normal.h"

enum dedup_kind {
    DEDUP_EXACT,
    DEDUP_LINES,
    DEDUP_PARAGRAPHS,
    DEDUP_NEAR,
    DEDUP_SUBSTRING,
    DEDUP_PASSAGES,
    N_DEDUP_KINDS
};
const char *dedup_kind_name(enum dedup_kind k);
int dedup_kind_find(const char *name, size_t n); /* -1: no such kind */

struct dedup_config {
    const char *const *inputs;
    int n_inputs;
    const char *column; /* NULL: text */
    bool skip_bad;      /* as source/source.h */
    const char *out, *work;
    enum dedup_kind steps[EDIT_STEPS_MOST];
    int n_steps;
    enum normal_kind normal; /* of exact, lines and paragraphs */
    int64_t line_least;      /* bytes of the normal form */
    const char *shingles;    /* "words:5" */
    double threshold;
    int64_t hashes, bands, rows; /* bands and rows: 0, or both */
    uint64_t seed;
    bool verify;          /* candidates by the estimate of their signatures */
    int64_t repeat_least; /* bytes */
    int64_t part_bytes, unit_bytes;
    double memory;   /* bytes of this rank */
    int64_t samples; /* of each step, in dedup.json */
    bool list;       /* part-00000.removed.jsonl: all that was removed */
};
#define DEDUP_MEMORY_LEAST (16 << 20)
/* What is taken where nothing is said; without inputs, places and steps. */
#define DEDUP_USUAL                                                                                                    \
    {                                                                                                                  \
        .normal = NORMAL_SPACE, .line_least = 20, .shingles = "words:5", .threshold = 0.8, .hashes = 128, .seed = 1,   \
        .verify = true, .repeat_least = 200, .part_bytes = 64 << 20, .unit_bytes = 256 << 20, .memory = 1 << 30,       \
        .samples = 5                                                                                                   \
    }
/* "exact,near" as steps of c. ERR_REQUEST, which begins with `option`: there is no such step, or there are too many. */
int dedup_read_steps(const char *option, const char *text, struct dedup_config *c, struct err *e);

struct dedup_step_result {
    int64_t documents, spans, bytes; /* removed whole; stretches of others; of text */
    double seconds;                  /* of the slowest rank; 0 where an earlier run did it */
};
struct dedup_result {
    int64_t documents_in, documents_out, bytes_in, bytes_out;
    int64_t emptied, bad; /* nothing but white space was left; bad records were skipped */
    struct dedup_step_result steps[EDIT_STEPS_MOST];
    int bands, rows;
    double seconds, write_s, memory_peak; /* bytes, of the process of the rank that has most */
    int ranks;
};

/* ERR_REQUEST where options contradict each other. Local. */
int dedup_check(const struct dedup_config *c, struct err *e);
/* The chance that step near finds a pair of similarity s, verified or not. */
double dedup_finds(const struct dedup_config *c, const struct dedup_result *r, double s);
/* The result is rank 0's. */
int dedup_run(struct comm *world, const struct dedup_config *c, struct dedup_result *r, struct err *e);

#endif
