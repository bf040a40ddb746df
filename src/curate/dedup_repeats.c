/* SPDX-License-Identifier: Apache-2.0 */
/* dedup_repeats.c: what has the same hash, wherever it lies: documents, lines, paragraphs, passages.
 *
 * Every rank cuts its documents into spans (spans.h) and sends (hash, document, span) to the rank that has the hash's
 * range. There they come sorted: of equal hashes the first is the first in the corpus, and stays. 32 bytes a span on
 * disk; nothing is read but in order.
 */
#include <string.h>

#include "curate/dedup_impl.h"
#include "curate/spans.h"

struct cutting {
    struct dedup_job *job;
    struct shuffle *to;
    struct span_cutter cutter;
    uint64_t document;
};

static int put_span(void *ctx, struct hash128 h, size_t from, size_t to, struct err *e)
{
    struct cutting *c = ctx;
    uint64_t span = c->cutter.kind == SPAN_ALL ? EDIT_ALL : edit_span(from, to);
    uint64_t record[4] = {h.hi, h.lo, c->document, span};
    return shuffle_put(c->to, record, hash_rank(h.hi, c->job->n_ranks), e);
}

static int cut(void *ctx, const struct corpus_document *d, struct err *e)
{
    struct cutting *c = ctx;
    c->document = d->id;
    return spans_cut(&c->cutter, d->text, d->n, put_span, c, e);
}

/* Where a text repeats itself within its own length the stretch that stays is left whole. */
static uint64_t beside(uint64_t span, uint64_t kept)
{
    uint64_t from = span >> 32, to = span & UINT32_MAX, end = kept & UINT32_MAX;
    return from < end ? edit_span(end < to ? end : to, to) : span;
}

static int keep_first(struct dedup_job *j, struct shuffle *from, struct shuffle *edits, struct err *e)
{
    uint64_t first[4] = {0};
    const uint64_t *r;
    bool any = false;
    int got, code = OK;
    while (!code && (got = shuffle_next(from, &r, e)) != 0) {
        if (got < 0) return got;
        if (!any || r[0] != first[0] || r[1] != first[1]) {
            memcpy(first, r, sizeof first);
            any = true;
            continue;
        }
        uint64_t span = r[3];
        if (span != EDIT_ALL && r[2] == first[2]) span = beside(span, first[3]);
        if (span != EDIT_ALL && span >> 32 >= (span & UINT32_MAX)) continue;
        code = dedup_edit(j, edits, r[2], span, first[2], first[3], e);
    }
    return code;
}

int dedup_repeats(struct dedup_job *j, int step, struct shuffle *edits, struct err *e)
{
    static const enum span_kind kinds[N_DEDUP_KINDS] = {[DEDUP_EXACT] = SPAN_ALL,
                                                        [DEDUP_LINES] = SPAN_LINES,
                                                        [DEDUP_PARAGRAPHS] = SPAN_PARAGRAPHS,
                                                        [DEDUP_PASSAGES] = SPAN_PASSAGES};
    const struct dedup_config *x = j->config;
    enum span_kind kind = kinds[x->steps[step]];
    struct sorter_config sorter = {.dir = j->work,
                                   .name = "spans",
                                   .words = 4,
                                   .key_words = 4,
                                   .memory = j->memory / 2};
    struct cutting c = {.job = j, .to = shuffle_new(j->world, &sorter)};
    c.cutter = (struct span_cutter){.kind = kind,
                                    .normal = x->normal,
                                    .least = kind == SPAN_ALL        ? 1
                                             : kind == SPAN_PASSAGES ? (size_t)x->repeat_least
                                                                     : (size_t)x->line_least};
    int code = dedup_scan(j, step, cut, &c, e);
    if (!code) code = shuffle_finish(c.to, e);
    if (!code) code = keep_first(j, c.to, edits, e);
    spans_fini(&c.cutter);
    shuffle_free(c.to);
    return code;
}
