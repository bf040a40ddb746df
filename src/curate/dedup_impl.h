/* SPDX-License-Identifier: Apache-2.0 */
/* dedup_impl.h: what the steps of deduplication share; for dedup.c and the steps' files only. */
#ifndef TUTTI_CURATE_DEDUP_IMPL_H
#define TUTTI_CURATE_DEDUP_IMPL_H

#include "curate/dedup.h"
#include "curate/shuffle.h"

struct dedup_job {
    struct comm *world;
    int rank, n_ranks;
    const struct dedup_config *config;
    struct corpus *corpus;
    int *owner; /* by unit */
    char *work; /* this rank's folder */
    uint64_t key;
    char *edits[EDIT_STEPS_MOST]; /* files */
    size_t memory;
    int bands, rows;
};

/* The view of what steps before `step` left. */
int dedup_view(struct dedup_job *j, int step, struct view **v, struct err *e);
/* Calls each for this rank's documents in that view. */
typedef int dedup_document_fn(void *ctx, const struct corpus_document *d, struct err *e);
int dedup_scan(struct dedup_job *j, int step, dedup_document_fn *each, void *ctx, struct err *e);
int dedup_owner(const struct dedup_job *j, uint64_t document);
/* text[span] of a document goes, `of` stays. */
int dedup_edit(struct dedup_job *j, struct shuffle *edits, uint64_t document, uint64_t span, uint64_t of,
               uint64_t of_span, struct err *e);

/* The steps: put their edits. Collective(world); at most j->memory less a quarter, which `edits` has. */
typedef int dedup_step_fn(struct dedup_job *j, int step, struct shuffle *edits, struct err *e);
dedup_step_fn dedup_repeats;   /* exact, lines, paragraphs, passages */
dedup_step_fn dedup_near;      /* near */
dedup_step_fn dedup_substring; /* substring */

#endif
