/* SPDX-License-Identifier: Apache-2.0 */
/* removals.h: what each filter removed: counts, bytes, a histogram of every number that it measured, samples.
 *
 * Every thread has its own, and they are added up. Which documents are shown as samples depends on their numbers in the
 * pass alone, so the sum is the same for any number of threads, and after going on.
 * Includes: base, filter.h. Order: Local.
 */
#ifndef TUTTI_CURATE_REMOVALS_H
#define TUTTI_CURATE_REMOVALS_H

#include "base/json.h"
#include "curate/filter.h"

enum { REMOVALS_BINS = 40, REMOVALS_SAMPLES = 6, REMOVALS_SHOWN = 1500 };

/* Documents by a rule's number: bin 0 lies below the rule's lo, the last one above its hi. */
struct histogram {
    int64_t kept[REMOVALS_BINS + 2], dropped[REMOVALS_BINS + 2];
};
struct rule_removals {
    int64_t dropped, dropped_bytes;
    struct histogram values;
};
/* A document that was dropped, or what was taken out of one that was changed. */
struct sample {
    uint64_t rank;        /* of its index: the smallest are kept */
    struct origin origin; /* its source is a copy */
    int64_t bytes;
    int rule;     /* FILTER_KEEPS: it was changed */
    double value; /* of the rule */
    char *text;
};
struct samples {
    struct sample s[REMOVALS_SAMPLES];
    int n;
};
struct use_removals {
    int64_t seen, seen_bytes;       /* documents that came to the filter */
    int64_t dropped, dropped_bytes; /* whole documents */
    int64_t changed, removed_bytes; /* documents whose text it changed; bytes fewer in them (negative: more) */
    int64_t removed_pieces;         /* lines or characters that it took away or mended */
    struct rule_removals *rule;
    struct samples gone, edited;
};
struct removals {
    const struct use *uses;
    int n;
    struct use_removals *use;
    struct findings found; /* of the filter at work */
    size_t bytes_before;
};

void removals_init(struct removals *t, const struct use *uses, int n);
void removals_fini(struct removals *t);
/* Around a filter's judge. */
struct findings *removals_begin(struct removals *t, int use, const struct document *d);
void removals_end(struct removals *t, int use, const struct document *d, int rule);
void removals_add(struct removals *into, const struct removals *from); /* both of the same uses */
void removals_clear(struct removals *t);

/* The bin of x, 0 to REMOVALS_BINS + 1, and a bin's lower edge (of 1 to REMOVALS_BINS + 1). */
int removals_bin(const struct filter_rule *r, double x);
double removals_edge(const struct filter_rule *r, int bin);

/* As a member `filters` of an object, and back (from what was written for the same uses). */
void removals_write(const struct removals *t, struct json_out *j);
int removals_read(struct removals *t, const struct json *filters, const char *what, struct err *e);

#endif
