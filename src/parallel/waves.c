/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over a rank's experts per round. */
#include "parallel/waves.h"

#include "base/mem.h"
#include "layout/region.h"

struct source_at source_at(const struct source_order *o, int64_t k)
{
    if (!o->sequences) return (struct source_at){to_int(k), 0};
    const int64_t parts = o->parts, each = o->each, of_one = 2 * o->sequences * parts * each;
    int64_t at = k % of_one, chunk = at / each % (2 * parts), sequence = at / each / (2 * parts);
    const bool tail = chunk >= parts;
    int64_t part = tail ? 2 * parts - 1 - chunk : chunk;
    return (struct source_at){to_int((k / of_one * parts + part) * each + at % each), to_int(2 * sequence + tail)};
}

/* What rank r told. */
static const int32_t *told_by(const struct wave_numbers *x, int r)
{
    return x->of + (int64_t)r * (x->experts * source_stretches(&x->order) + 2);
}

int64_t wave_rows_at(const struct wave_numbers *x, struct source_at s, int64_t e)
{
    int64_t lo, hi;
    if (x->of) return told_by(x, s.rank)[e * source_stretches(&x->order) + s.stretch];
    region_split(x->even, to_int(e), x->experts, &lo, &hi);
    return s.stretch ? 0 : hi - lo;
}

int64_t wave_rows(const struct wave_numbers *x, int r, int64_t e)
{
    int64_t n = 0;
    for (int s = 0; s < source_stretches(&x->order); s++) n += wave_rows_at(x, (struct source_at){r, s}, e);
    return n;
}

static struct depth_rule rule_of(const struct wave_numbers *x, int part)
{
    if (!x->of) return x->rule;
    const int32_t *at = told_by(x, part * x->copies) + x->experts * source_stretches(&x->order);
    return (struct depth_rule){at[0], at[1]};
}

struct held {
    int64_t *rows; /* of all ranks, by expert of the part; or piece by piece, which are not cut */
    int64_t total;
    bool pieces;
};

/* Rows for expert e of `n` ranks from `first` on. */
static int64_t rows_of_ranks(const struct wave_numbers *x, int64_t e, int first, int n)
{
    int64_t sum = 0;
    if (!x->of) return n * wave_rows(x, 0, e); /* on paper all ranks have as many: a plan asks this often */
    for (int r = first; r < first + n; r++) sum += wave_rows(x, r, e);
    return sum;
}

static struct held held_by(const struct wave_numbers *x, int part)
{
    int64_t lo, hi, n = 0;
    region_split(x->experts, part, x->parts, &lo, &hi);
    const int ranks = x->parts * x->copies, each = x->together ? x->together : ranks;
    CHECK(ranks % each == 0, "%d ranks that have rows, %d of them together", ranks, each);
    struct held h = {.rows = xcalloc(to_size((hi - lo) * (ranks / each)) + 1, sizeof *h.rows),
                     .pieces = x->together > 0};
    for (int64_t e = lo; e < hi; e++)
        for (int r = 0; r < ranks; r += each) h.total += h.rows[n++] = rows_of_ranks(x, e, r, each);
    return h;
}

/* The end of a round that begins at row `begin`. */
static int64_t end_of(const struct held *h, struct depth_rule rule, int64_t room, int64_t begin)
{
    int64_t end = begin + room, first = 0, e = 0;
    if (end >= h->total) return h->total;
    while (first + h->rows[e] <= end) first += h->rows[e++];
    CHECK(!h->pieces || first > begin, "room for %lld rows, and a piece has %lld", (long long)room,
          (long long)h->rows[e]);
    if (h->pieces) return first;
    int64_t slice = depth_slice(rule, h->rows[e]), cut = first + (end - first) / slice * slice;
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
    xfree(h.rows);
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
        xfree(h.rows);
    }
    return most;
}
