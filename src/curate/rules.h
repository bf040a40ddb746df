/* SPDX-License-Identifier: Apache-2.0 */
/* rules.h: RULES.yaml: a list of filters with their options, through which a document goes in order.
 *
 *     rules:
 *       - unicode
 *       - gopher_quality: {min_words: 50}
 *
 * The schema is closed: an unknown filter or option, a wrong type, a value out of range is ERR_REQUEST with file and
 * line. The same filter may be there several times.
 * Includes: base, filter.h, removals.h. Order: Local; several threads may judge at once, each with its own document and
 * removals.
 */
#ifndef TUTTI_CURATE_RULES_H
#define TUTTI_CURATE_RULES_H

#include "base/mem.h"
#include "curate/filter.h"
#include "curate/removals.h"

struct rules {
    struct use *use;
    int n;
    uint64_t key; /* of the filters, their options and the files that these name */
    struct arena *arena;
};
int rules_read(struct rules **r, const char *path, struct err *e);
int rules_parse(struct rules **r, const char *text, size_t n, const char *name, struct err *e);
void rules_free(struct rules *r); /* NULL is fine */
/* Every option filled in, as YAML. */
void rules_print(const struct rules *r, struct str *out);
/* For help: every filter, where it was published, its options. */
void rules_tell(struct str *out);

/* The document through all filters, counted: the one that dropped it, or FILTER_KEEPS. */
int rules_judge(const struct rules *r, struct document *d, struct removals *t);
/* The document through filter i alone, counted: the rule that drops it, or FILTER_KEEPS. */
int rules_judge_one(const struct rules *r, int i, struct document *d, struct removals *t);

#endif
