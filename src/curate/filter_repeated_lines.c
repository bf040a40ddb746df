/* SPDX-License-Identifier: Apache-2.0 */
/* filter_repeated_lines.c: takes lines out of a document that were in it before: menus, headers of pages. Lines are
 * compared without white space around them, by 64 bits of their hash. */
#include "base/hash.h"
#include "curate/filter.h"
#include "curate/letters.h"

struct options {
    int64_t keep, min_chars;
    double max_share;
};

static const struct filter_rule rules[] = {{"repeated_lines", 0, 1, false}};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "keep", .type = CONF_INT, AT(keep), .otherwise = "1", .lo = 1, .hi = 1e9, .doc = "how often a line may be there; later ones are taken out"},
    {.path = "min_chars", .type = CONF_INT, AT(min_chars), .otherwise = "1", .lo = 1, .hi = 1e9, .doc = "shorter lines stay"},
    {.path = "max_share", .type = CONF_REAL, AT(max_share), .otherwise = "1", .lo = 0, .hi = 1, .doc = "drop documents of which a larger share of lines would go"},
    {0},
};
/* clang-format on */

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    const struct spans *l = document_lines(d);
    struct key_table *t = document_table(d, l->n);
    double gone = 0;
    str_clear(&d->spare);
    for (size_t i = 0; i < l->n; i++) {
        const char *p = span_text(d, &l->p[i]);
        size_t n = letters_trim(p, l->p[i].n), space, from = 0;
        while (from < n && (space = letters_space(p + from, n - from)) > 0) from += space;
        size_t end = i + 1 < l->n ? l->p[i + 1].at : d->text.n; /* with its line end */
        bool counts = n > from && count_chars(p + from, n - from) >= o->min_chars;
        if (counts && table_slot(t, hash64(p + from, n - from))->count++ >= o->keep) {
            findings_removed(f, p + from, n - from);
            gone++;
            continue;
        }
        str_add(&d->spare, p, end - l->p[i].at);
    }
    f->value[0] = l->n ? gone / (double)l->n : 0;
    if (f->value[0] > o->max_share) return 0;
    if (f->n_removed) document_replace(d);
    return FILTER_KEEPS;
}

const struct filter filter_repeated_lines = {
    .kind = {.name = "repeated_lines",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "takes out lines that were in the document before"},
    .source = "",
    FILTER_RULES_OF(rules),
    .judge = judge,
};
