/* SPDX-License-Identifier: Apache-2.0 */
/* filter.h: what a filter is: a row of one table (filters.def), from which RULES.yaml, its help, the pass and the
 * report follow.
 *
 * A filter has options with defaults (a table of base/conf.h), where it was published, and rules: the numbers that it
 * measures and may drop a document by. It looks at one document and keeps it, drops it by one of its rules, or changes
 * its text.
 *
 * Invariants
 *   1. What a filter does depends on its options, the files they name and the document, and on nothing else: not on
 *      other documents, threads or time. So a pass can be cut and go on anywhere.
 *   2. judge takes time in proportion to the text (times its logarithm), whatever the text is.
 *   3. judge is called by several threads at once, each with its own document.
 * How to add one: a file with its options, its rules and its struct filter, and a line in filters.def.
 * Includes: base, document.h. Order: Local.
 */
#ifndef TUTTI_CURATE_FILTER_H
#define TUTTI_CURATE_FILTER_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/conf.h"
#include "base/err.h"
#include "base/str.h"
#include "curate/document.h"

/* A number that a filter measures of a document, and what its histogram in the report reaches over. */
struct filter_rule {
    const char *name; /* "mean_word_length": the reason of a document that is dropped by it */
    double lo, hi;
    bool log; /* bins by factor, for counts; lo > 0 */
};
enum { FILTER_RULES = 24, FILTER_KEEPS = -1, FILTER_SHOWN = 400 };

/* What a filter found in one document. */
struct findings {
    double value[FILTER_RULES]; /* by rule; NaN where it was not measured, as behind the rule that dropped */
    struct str removed;         /* of a text it changed: the first of what it took away, up to FILTER_SHOWN bytes */
    struct str why;             /* of a document it drops: what a sample shows instead of the text; may be empty */
    int64_t n_removed;          /* pieces (lines, characters) that it took away or mended */
};

struct use;
struct filter {
    struct conf_kind kind;          /* its name in RULES.yaml, its options, what it does in a line */
    const char *source;             /* where it was published; "" for what everybody does */
    const struct filter_rule *rule; /* n_rules of them */
    int n_rules;
    /* Makes what judge needs from the options: u->state, and u->key of files that they name. NULL: nothing to do.
     * Errors begin with u->where. */
    int (*open)(struct use *u, struct err *e);
    void (*close)(struct use *u); /* also after open failed; NULL: nothing to do */
    /* FILTER_KEEPS, or the rule that drops the document. Changes the text by document_replace. */
    int (*judge)(const struct use *u, struct document *d, struct findings *f);
};

/* A filter as a line of RULES.yaml has it. */
struct use {
    const struct filter *filter;
    const void *options;
    void *state;
    uint64_t key;      /* of the contents of files that the options name */
    const char *where; /* "rules.yaml:7" */
};

#define FILTER_RULES_OF(rows) .rule = (rows), .n_rules = (int)(sizeof(rows) / sizeof *(rows))

/* Measures rule i as x: true when x is outside of [least, most] (0 and 0: nothing is outside). */
static inline bool finds(struct findings *f, int i, double x, double least, double most)
{
    f->value[i] = x;
    return !(least == 0 && most == 0) && (x < least || x > most);
}

/* Another piece was taken away; p[0..n) is shown while there is room. */
void findings_removed(struct findings *f, const char *p, size_t n);

#define FILTER(name) extern const struct filter filter_##name;
#include "curate/filters.def"
#undef FILTER

#endif
