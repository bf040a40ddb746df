/* SPDX-License-Identifier: Apache-2.0 */
/* edits.h: what a step of deduplication removes, and the corpus as it is when some steps are done.
 *
 * A step does not write the corpus again: it leaves a sorted file of edits (sorted_file.h), and whoever reads the
 * corpus reads the edits of the steps before beside it. An edit is four words:
 *
 *   document, span, document that stays, its span
 *
 * A span is from << 32 | to, in bytes of the document's text as the steps before left it; EDIT_ALL is all of it. Edits
 * come in the order of their words. Spans of one document may overlap; what is removed is their union, less bytes at
 * either end of a stretch that belong to a character which is not all in it.
 * Includes: base, corpus. Order: Local.
 */
#ifndef TUTTI_CURATE_EDITS_H
#define TUTTI_CURATE_EDITS_H

#include "base/str.h"
#include "curate/corpus.h"
#include "curate/sorted_file.h"

enum { EDIT_WORDS = 4, EDIT_STEPS_MOST = 8 };
#define EDIT_ALL UINT64_MAX
#define EDIT_TEXT_MOST ((size_t)UINT32_MAX)
static inline uint64_t edit_span(uint64_t from, uint64_t to) { return from << 32 | to; }

/* One stretch of text, or a whole document, that a step removes, told while the view passes it. */
struct edit_told {
    int step;
    bool all;
    const struct corpus_document *document; /* as the corpus has it; its text may be another by now */
    const char *text;                       /* what goes */
    size_t from, n;                         /* from: where it was in the text that the step saw */
    uint64_t of, of_span;                   /* what stays instead */
};
typedef int edit_told_fn(void *ctx, const struct edit_told *t, struct err *e);

/* Documents of a corpus with the edits of steps 0 to n-1 done. */
struct view;
/* paths[step], made with key; the corpus stays the caller's. told: NULL, or called for each removal. */
int view_open(struct view **out, struct corpus *c, char *const *paths, int n_steps, uint64_t key, edit_told_fn *told,
              void *ctx, struct err *e);
void view_close(struct view *v); /* NULL is fine */
/* Units in ascending order only: edits are read once. */
void view_begin(struct view *v, int64_t unit);
/* The next document that is not removed, 1; 0 after the unit's last. *changed: its text is not the record's. */
int view_next(struct view *v, struct corpus_document *d, bool *changed, struct err *e);
int64_t view_documents(const struct view *v); /* that the corpus had, so far */
int64_t view_bytes(const struct view *v);     /* of their texts */

#endif
