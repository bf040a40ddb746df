/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_eval.c: the list of all samples, one source after the other, and which of them are evaluated. */
#include "base/mem.h"
#include "data/dataset_impl.h"

/* Samples of a source for evaluation: where documents are joined, the short one at its end, too. */
static int64_t eval_samples_of(const struct dataset *d, int source)
{
    if (!d->joined) return d->streams[source].cuts.n * (d->pairs ? 2 : 1);
    return (d->streams[source].file.n_tokens - 1 + d->seq_len - 1) / d->seq_len;
}

/* How many samples there are, and how many of them `most` batches take. */
static int64_t eval_samples(const struct dataset *d, int64_t global_batch, int64_t most, int64_t *all)
{
    *all = 0;
    CHECK(d->parts == 1, "evaluation of samples in %lld parts", (long long)d->parts);
    for (int i = 0; i < d->n; i++) *all += eval_samples_of(d, i);
    return most == 0 || most > *all / global_batch ? *all : most * global_batch;
}

int64_t dataset_eval_batches(const struct dataset *d, int64_t global_batch, int64_t most)
{
    int64_t all, n = eval_samples(d, global_batch, most, &all);
    return (n + global_batch - 1) / global_batch;
}

int64_t dataset_eval_tokens(const struct dataset *d)
{
    int64_t n = 0;
    for (int i = 0; i < d->n; i++) n += d->joined ? d->streams[i].file.n_tokens - 1 : d->streams[i].cuts.n_inputs;
    return n;
}

/* The middle of the j-th of n equal parts of the list; of pairs both sides of it. */
static int64_t place_of(const struct dataset *d, int64_t j, int64_t n, int64_t all)
{
    if (j >= n) return -1;
    if (d->pairs) return (int64_t)((2 * (__int128)(j / 2) + 1) * (all / 2) / (2 * (n / 2))) * 2 + j % 2;
    return (int64_t)((2 * (__int128)j + 1) * all / (2 * n));
}

int64_t dataset_eval_place(const struct dataset *d, int64_t j, int64_t global_batch, int64_t most)
{
    int64_t all, n = eval_samples(d, global_batch, most, &all);
    return place_of(d, j, n, all);
}

/* Sample `place` of the list into a row. */
static int eval_row(const struct dataset *d, int64_t place, struct batch *b, int64_t row, struct row_work *w,
                    struct err *e)
{
    int source = 0;
    int64_t k = place;
    while (k >= eval_samples_of(d, source)) k -= eval_samples_of(d, source++);
    return row_of_list(d, source, k, place, b, row, w, e);
}

int dataset_eval_batch(const struct dataset *d, int64_t i, int64_t global_batch, int64_t most, int64_t first,
                       struct batch *b, struct err *e)
{
    CHECK(b->seq_len == d->seq_len, "a batch of sequences of %lld, data of %lld", (long long)b->seq_len,
          (long long)d->seq_len);
    int64_t all, n = eval_samples(d, global_batch, most, &all);
    struct row_work *w = row_work_new(d, false);
    int code = OK;
    b->n_trained = b->n_padded = 0;
    for (int64_t row = 0; row < b->n_seqs && !code; row++) {
        int64_t at = place_of(d, i * global_batch + first + row, n, all);
        if (at < 0) row_blank(b, row);
        else code = eval_row(d, at, b, row, w, e);
    }
    row_work_free(w);
    return code;
}

int64_t dataset_n_places(const struct dataset *d)
{
    int64_t all;
    return eval_samples(d, 1, 0, &all);
}

int64_t dataset_pair_place(const struct dataset *d, int64_t k)
{
    int source;
    int64_t epoch, document, before = 0;
    CHECK(d->pairs, "this data has no pairs");
    dataset_where(d, k, &source, &epoch, &document);
    for (int i = 0; i < source; i++) before += eval_samples_of(d, i);
    return before + 2 * document + k % 2;
}
