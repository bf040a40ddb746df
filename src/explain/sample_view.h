/* SPDX-License-Identifier: Apache-2.0 */
/* sample_view.h: a sample as people look at it: its text, of which tokens a loss is taken, where documents begin and
 * which positions they have; in a terminal, as a page, as JSON. Includes: base, data. Order: Local. */
#ifndef TUTTI_EXPLAIN_SAMPLE_VIEW_H
#define TUTTI_EXPLAIN_SAMPLE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/str.h"
#include "data/batch.h"
#include "token/tokenizer.h"

struct sample_view {
    const struct tokenizer *t;
    char *title;
    int64_t n;
    int32_t *ids, *positions, *documents; /* [n] */
    int64_t *places;                      /* [n]: in the sample; -1: a target only */
    unsigned char *loss;                  /* [n]: 1 where the token is a target */
};
void sample_view_init(struct sample_view *v, const struct tokenizer *t, const char *title, int64_t n);
void sample_view_fini(struct sample_view *v);
/* Row `row` of a batch. What is predicted at the end of a packed document, or of a part of a sample, or of the row, is
 * in no place of it: it stands behind them as a target. scores: nothing is predicted, and targets are places that are
 * scored. */
void sample_view_of_row(struct sample_view *v, const struct tokenizer *t, const char *title, const struct batch *b,
                        int64_t row, bool scores);

/* colour: what a loss is taken of is green; else it stands between ⟦ and ⟧. each: a line per token. */
void sample_view_text(const struct sample_view *v, bool colour, bool each, struct str *out);
void sample_view_json(const struct sample_view *v, struct json_out *o); /* one object of an array */
/* One page that needs nothing else: sample_page_begin, views, sample_page_end. */
void sample_page_begin(struct str *out, const char *title);
void sample_view_html(const struct sample_view *v, struct str *out);
void sample_page_end(struct str *out);

#endif
