/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over a rank's experts per round. */
#include "parallel/waves.h"

#include "base/mem.h"
#include "layout/region.h"

int64_t wave_rows(const struct wave_numbers *x, int r, int64_t e)
{
    int64_t lo, hi;
    if (x->of) return x->of[(int64_t)r * (x->experts + 2) + e];
    region_split(x->even, to_int(e), x->experts, &lo, &hi);
    return hi - lo;
}

static struct depth_rule rule_of(const struct wave_numbers *x, int part)
{
    if (!x->of) return x->rule;
    const int32_t *at = x->of + (int64_t)part * x->copies * (x->experts + 2) + x->experts;
    return (struct depth_rule){at[0], at[1]};
}

struct held {
    int64_t *rows_E; /* of all ranks, by expert of the part */
    int64_t n, total;
};

static struct held held_by(const struct wave_numbers *x, int part)
{
    int64_t lo, hi;
    region_split(x->experts, part, x->parts, &lo, &hi);
    struct held h = {.rows_E = xcalloc(to_size(hi - lo) + 1, sizeof *h.rows_E), .n = hi - lo};
    const int ranks = x->parts * x->copies;
    for (int64_t e = lo; e < hi; e++) {
        int64_t *rows = &h.rows_E[e - lo];
        if (!x->of) *rows = ranks * wave_rows(x, 0, e); /* on paper all ranks have as many: a plan asks this often */
        for (int r = 0; x->of && r < ranks; r++) *rows += wave_rows(x, r, e);
        h.total += *rows;
    }
    return h;
}

/* The end of a round that begins at row `begin`. */
static int64_t end_of(const struct held *h, struct depth_rule rule, int64_t room, int64_t begin)
{
    int64_t end = begin + room, first = 0, e = 0;
    if (end >= h->total) return h->total;
    while (first + h->rows_E[e] <= end) first += h->rows_E[e++];
    int64_t slice = depth_slice(rule, h->rows_E[e]), cut = first + (end - first) / slice * slice;
    return slice > room || cut == begin ? end : cut;
}

void wave_window(const struct wave_numbers *x, int part, int64_t room, int64_t round, int64_t *lo, int64_t *hi)
{
    struct held h = held_by(x, part);
    *lo = 0;
    *hi = end_of(&h, rule_of(x, part), room, 0);
    for (int64_t i = 0; i < round; i++) {
        *lo = *hi;
        *hi = end_of(&h, rule_of(x, part), room, *lo);
    }
    xfree(h.rows_E);
}

int64_t wave_rounds(const struct wave_numbers *x, int64_t room)
{
    int64_t most = 1;
    CHECK(room > 0, "no room for rows");
    for (int part = 0; part < x->parts; part++) {
        struct held h = held_by(x, part);
        int64_t n = 0;
        for (int64_t at = 0; at < h.total; n++) at = end_of(&h, rule_of(x, part), room, at);
        if (n > most) most = n;
        xfree(h.rows_E);
    }
    return most;
}
