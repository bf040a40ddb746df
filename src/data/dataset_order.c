/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_order.c: which part of which source comes when, what it is made of, and how much of a source that is so far:
 * functions of the seed and a number (sampler.h), a few rounds of a hash and O(log sources) each. */
#include <stdio.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/dataset_impl.h"

int64_t dataset_parts(const struct dataset *d) { return d->parts; }

int64_t dataset_part(const struct dataset *d, int64_t sample, int64_t j)
{
    CHECK(j >= 0 && j < d->parts, "part %lld of %lld", (long long)j, (long long)d->parts);
    if (d->parts == 1 || !d->shuffled) return sample * d->parts + j;
    uint64_t key = rng_u64(d->seed, rng_stream("data/parts"), (uint64_t)sample);
    return sample * d->parts + (int64_t)rng_permute(key, 0, (uint64_t)d->parts, (uint64_t)j);
}

void dataset_where(const struct dataset *d, int64_t k, int *source, int64_t *epoch, int64_t *sample)
{
    int64_t r;
    if (d->pairs) k /= 2;
    *source = blend_pick(&d->blend, k / d->group, &r);
    int64_t n = d->streams[*source].cuts.n, n_groups = (n + d->group - 1) / d->group;
    *sample = order_pick(d->seed, *source, d->shuffled, n_groups, r, epoch) * d->group + k % d->group;
    if (*sample >= n) *sample = -1;
}

const uint64_t *dataset_shuffle(const struct dataset *d, int source, int64_t epoch, uint64_t *room)
{
    char name[64];
    snprintf(name, sizeof name, "data/pack/%d/%lld", source, (long long)epoch);
    *room = rng_u64(d->seed, rng_stream(name), 0);
    return d->shuffled ? room : NULL;
}

/* One piece of joined documents → a piece per document. */
static int split_joined(const struct tokenfile *f, struct cuts_pieces *out, struct err *e)
{
    struct cuts_piece whole = out->p[0];
    int64_t document, end = whole.begin, room = 1;
    if (!tokenfile_has_ends(f)) return OK;
    int code = tokenfile_document_of(f, whole.begin, &document, e);
    out->n = 0;
    for (int64_t at = whole.begin; !code && at < whole.begin + whole.n; at = end, document++) {
        code = tokenfile_ends(f, document, 1, &end, e);
        if (code) break;
        int64_t n = end < whole.begin + whole.n ? end - at : whole.begin + whole.n - at;
        GROW(out->p, out->n, room, 1);
        out->p[out->n++] = (struct cuts_piece){document, at, n};
    }
    return code;
}

int dataset_pieces(const struct dataset *d, int64_t k, struct cuts_pieces *out, struct err *e)
{
    int source;
    int64_t epoch, sample;
    uint64_t shuffle;
    *out = (struct cuts_pieces){0};
    dataset_where(d, k, &source, &epoch, &sample);
    if (sample < 0 || d->sees) return OK;
    const struct sample_stream *s = &d->streams[source];
    if (d->sides.encoder) { /* what is read of it */
        int64_t begin, end;
        int failed = tokenfile_document(&s->file, sample, &begin, &end, e);
        if (failed) return failed;
        *out = (struct cuts_pieces){xmalloc(sizeof *out->p), 1};
        out->p[0] = (struct cuts_piece){sample, begin, end - begin};
        return OK;
    }
    int code = cuts_pieces(&s->cuts, sample, dataset_shuffle(d, source, epoch, &shuffle), out, e);
    if (!code && d->joined) code = split_joined(&s->file, out, e);
    if (!code) return OK;
    xfree(out->p);
    *out = (struct cuts_pieces){0};
    return code;
}

int64_t dataset_used(const struct dataset *d, int64_t k, int source, double *epochs)
{
    if (d->pairs) k /= 2;
    int64_t r, n = d->streams[source].cuts.n, whole = (n + d->group - 1) / d->group * d->group,
               used = blend_count(&d->blend, k / d->group, source) * d->group;
    if (k % d->group && blend_pick(&d->blend, k / d->group, &r) == source) used += k % d->group;
    *epochs = (double)used / (double)whole;
    return used;
}

double dataset_padding(const struct dataset *d, int source)
{
    const struct cuts *c = &d->streams[source].cuts;
    if (d->sees) return 0;
    if (d->spans.seq) return (double)spans_padding(&d->spans) / (double)d->spans.seq;
    const struct sample_stream *s = &d->streams[source];
    double places = (double)((c->n + d->group - 1) / d->group * d->group) * (double)c->rule.seq * (d->pairs ? 2 : 1);
    int64_t more = d->pairs ? s->rejected.n_tokens - s->rejected.n_documents : s->n_read; /* of the second text */
    return 1 - (double)(c->n_inputs + more) / places;
}
