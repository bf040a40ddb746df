/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.c: opens sources and cuts samples out of them.
 *
 * Cost of a sample: O(log sources) arithmetic, one permutation (a few rounds of a hash), one read, and the first time
 * one in a chunk of the file its checksum. Nothing of a file is kept, so memory stays flat however large the data is.
 */
#include "data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "data/sampler.h"
#include "data/source.h"
#include "data/tokenfile.h"
#include "data/tokenize.h"

struct stream {
    struct tokenfile file;
    int64_t n_samples;
};

struct dataset {
    struct stream *streams;
    int n;
    struct blend blend;
    int64_t seq_len, n_samples, n_tokens;
    uint64_t seed;
    int32_t eos;
    bool shuffled, reset_positions, mask_boundaries;
};

/* One piece of memory, the fields one after the other. */
void batch_init(struct batch *b, int64_t n_seqs, int64_t seq_len)
{
    size_t begin[BATCH_FIELDS], end = 0;
    *b = (struct batch){.n_seqs = n_seqs, .seq_len = seq_len};
    for (int f = 0; f < BATCH_FIELDS; f++) {
        begin[f] = batch_begin(&batch_rows[f], end);
        end = begin[f] + batch_bytes(&batch_rows[f], n_seqs, seq_len);
    }
    char *memory = xcalloc(end + 1, 1);
    for (int f = 0; f < BATCH_FIELDS; f++) b->field[f] = memory + begin[f];
}

void batch_fini(struct batch *b)
{
    xfree(b->field[0]);
    *b = (struct batch){0};
}

static int check_tokenizer(const struct tokenfile *f, const struct tokenizer *t, const char *path, struct err *e)
{
    bool same = f->head.fingerprint == tokenizer_fingerprint(t);
    if (same && f->head.eos != tokenizer_eos(t))
        return err_set(e, ERR_REQUEST,
                       "%s: separates documents with id %d, the tokenizer's end of text is %d; tokenize the text again",
                       path, f->head.eos, tokenizer_eos(t));
    if (same) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: was made with another tokenizer (vocabulary of %d, wanted %d); tokenize the text again, or "
                   "name the tokenizer it was made with",
                   path, f->head.vocab, tokenizer_vocab(t));
}

static int open_stream(struct stream *s, const struct dataset_source *source, const struct dataset_options *o,
                       struct err *e)
{
    const char *path = source->path;
    char *file = tokenfile_find(path);
    bool cached = !file;
    int code = OK;
    if (!file && !fs_exists(path)) {
        char plain[320];
        snprintf(plain, sizeof plain, "no such file or folder, and no token file %.250s.tok", path);
        return source_missing(path, plain, e);
    }
    if (file && source->column) {
        xfree(file);
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no column \"%s\"; leave the column out", path,
                       source->column);
    }
    struct tokenize_input how = {source->column, source->skip_bad};
    if (!file) code = tokenize_cached(o->tokenizer, path, &how, o->cache_dir, o->give_up, &file, e);
    if (!code) code = tokenfile_open(&s->file, file, e);
    if (!code && cached) s->file.made_from = xstrdup(path);
    xfree(file);
    if (!code) code = check_tokenizer(&s->file, o->tokenizer, path, e);
    if (code) return code;
    s->n_samples = (s->file.n_tokens - 1) / o->seq_len;
    if (s->n_samples > 0) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: has %lld tokens, a sequence of %lld needs %lld; choose a sequence length of %lld or less, or "
                   "more text",
                   path, (long long)s->file.n_tokens, (long long)o->seq_len, (long long)o->seq_len + 1,
                   (long long)(s->file.n_tokens > 1 ? s->file.n_tokens - 1 : 0));
}

static int check_options(const struct dataset_options *o, struct err *e)
{
    double total = 0;
    if (o->n_sources < 1) return err_set(e, ERR_REQUEST, "no data: name at least one text, folder or token file");
    if (o->seq_len < 1)
        return err_set(e, ERR_REQUEST, "a sequence length of %lld; at least 1 is needed", (long long)o->seq_len);
    for (int i = 0; i < o->n_sources; i++) {
        double w = o->sources[i].weight;
        if (!(w >= 0) || !isfinite(w))
            return err_set(e, ERR_REQUEST, "%s: weight %g; wanted a number >= 0", o->sources[i].path, w);
        total += w;
    }
    if (!(total > 0) || !isfinite(total)) return err_set(e, ERR_REQUEST, "the weights of the data add up to %g", total);
    return OK;
}

int dataset_open(struct dataset **out, const struct dataset_options *o, struct err *e)
{
    *out = NULL;
    int code = check_options(o, e);
    if (code) return code;
    struct dataset *d = xcalloc(1, sizeof *d);
    *d = (struct dataset){
        .streams = xcalloc((size_t)o->n_sources, sizeof *d->streams),
        .seq_len = o->seq_len,
        .seed = o->seed,
        .eos = tokenizer_eos(o->tokenizer),
        .shuffled = o->shuffled,
        .reset_positions = o->reset_positions,
        .mask_boundaries = o->mask_boundaries,
    };
    double *weights = xmalloc((size_t)o->n_sources * sizeof *weights);
    for (int i = 0; i < o->n_sources && !code; i++, d->n++) {
        weights[i] = o->sources[i].weight;
        code = open_stream(&d->streams[i], &o->sources[i], o, e);
        d->n_samples += d->streams[i].n_samples;
        d->n_tokens += d->streams[i].file.n_tokens;
    }
    if (!code) blend_init(&d->blend, weights, o->n_sources, (int64_t[]){0}, 1);
    xfree(weights);
    if (code) dataset_close(d);
    else *out = d;
    return code;
}

void dataset_close(struct dataset *d)
{
    if (!d) return;
    for (int i = 0; i < d->n; i++) tokenfile_close(&d->streams[i].file);
    blend_fini(&d->blend);
    xfree(d->streams);
    xfree(d);
}

static int read_sample(const struct dataset *d, int source, int64_t sample, int32_t *tokens, struct err *e)
{
    const struct tokenfile *f = &d->streams[source].file;
    return tokenfile_read(f, sample * d->seq_len, d->seq_len + 1, tokens, e);
}

void dataset_where(const struct dataset *d, int64_t k, int *source, int64_t *epoch, int64_t *sample)
{
    int64_t r;
    *source = blend_pick(&d->blend, k, &r);
    *sample = order_pick(d->seed, *source, d->shuffled, d->streams[*source].n_samples, r, epoch);
}

int dataset_sample(const struct dataset *d, int64_t k, int32_t *tokens, struct err *e)
{
    int source;
    int64_t epoch, sample;
    dataset_where(d, k, &source, &epoch, &sample);
    return read_sample(d, source, sample, tokens, e);
}

/* Row `row` of the batch from its seq_len + 1 tokens. */
static void fill_row(const struct dataset *d, struct batch *b, int64_t row, const int32_t *sample)
{
    int64_t s = b->seq_len, at = row * s;
    int32_t document = 0, position = 0;
    memcpy(b->tokens + at, sample, to_size(s) * sizeof *sample);
    for (int64_t i = 0; i < s; i++) {
        bool ends = sample[i] == d->eos;
        bool trained = !(ends && d->mask_boundaries);
        b->targets[at + i] = trained ? sample[i + 1] : -1;
        b->n_trained += trained;
        b->positions[at + i] = d->reset_positions ? position : (int32_t)i;
        b->documents[at + i] = document;
        position = ends ? 0 : position + 1;
        document += ends;
    }
}

static void blank_row(struct batch *b, int64_t row)
{
    int64_t s = b->seq_len, at = row * s;
    for (int64_t i = 0; i < s; i++) {
        b->tokens[at + i] = 0;
        b->targets[at + i] = -1;
        b->positions[at + i] = (int32_t)i;
        b->documents[at + i] = 0;
    }
}

int dataset_batch(const struct dataset *d, int64_t step, int64_t global_batch, int64_t first, struct batch *b,
                  struct err *e)
{
    CHECK(b->seq_len == d->seq_len, "a batch of sequences of %lld, data of %lld", (long long)b->seq_len,
          (long long)d->seq_len);
    CHECK(step >= 0 && first >= 0 && first + b->n_seqs <= global_batch, "sequences [%lld, +%lld) of %lld",
          (long long)first, (long long)b->n_seqs, (long long)global_batch);
    int32_t *sample = xmalloc(to_size(d->seq_len + 1) * sizeof *sample);
    int code = OK;
    b->n_trained = 0;
    for (int64_t row = 0; row < b->n_seqs && !code; row++) {
        code = dataset_sample(d, step * global_batch + first + row, sample, e);
        if (!code) fill_row(d, b, row, sample);
    }
    xfree(sample);
    return code;
}

/* Samples of a source for evaluation: the short one at its end, too. */
static int64_t eval_samples_of(const struct dataset *d, int source)
{
    return (d->streams[source].file.n_tokens - 1 + d->seq_len - 1) / d->seq_len;
}

/* How many samples there are, and how many of them `most` batches take. */
static int64_t eval_samples(const struct dataset *d, int64_t global_batch, int64_t most, int64_t *all)
{
    *all = 0;
    for (int i = 0; i < d->n; i++) *all += eval_samples_of(d, i);
    return most == 0 || most > *all / global_batch ? *all : most * global_batch;
}

int64_t dataset_eval_batches(const struct dataset *d, int64_t global_batch, int64_t most)
{
    int64_t all, n = eval_samples(d, global_batch, most, &all);
    return (n + global_batch - 1) / global_batch;
}

int64_t dataset_eval_tokens(const struct dataset *d) { return d->n_tokens - d->n; }

/* Sample k of the list into a row. What lies behind the end of its source repeats the last token and is no target. */
static int eval_row(const struct dataset *d, int64_t k, struct batch *b, int64_t row, int32_t *sample, struct err *e)
{
    int source = 0;
    while (k >= eval_samples_of(d, source)) k -= eval_samples_of(d, source++);
    int64_t at = k * d->seq_len, left = d->streams[source].file.n_tokens - at,
            n = left < d->seq_len + 1 ? left : d->seq_len + 1;
    int code = tokenfile_read(&d->streams[source].file, at, n, sample, e);
    if (code) return code;
    for (int64_t i = n; i <= d->seq_len; i++) sample[i] = sample[n - 1];
    fill_row(d, b, row, sample);
    for (int64_t i = n - 1; i < d->seq_len; i++) {
        b->n_trained -= b->targets[row * d->seq_len + i] >= 0;
        b->targets[row * d->seq_len + i] = -1;
    }
    return OK;
}

int dataset_eval_batch(const struct dataset *d, int64_t i, int64_t global_batch, int64_t most, int64_t first,
                       struct batch *b, struct err *e)
{
    CHECK(b->seq_len == d->seq_len, "a batch of sequences of %lld, data of %lld", (long long)b->seq_len,
          (long long)d->seq_len);
    int64_t all, n = eval_samples(d, global_batch, most, &all);
    int32_t *sample = xmalloc(to_size(d->seq_len + 1) * sizeof *sample);
    int code = OK;
    b->n_trained = 0;
    for (int64_t row = 0; row < b->n_seqs && !code; row++) {
        int64_t j = i * global_batch + first + row; /* the middle of the j-th of n equal parts of the list */
        if (j >= n) blank_row(b, row);
        else code = eval_row(d, (int64_t)((2 * (__int128)j + 1) * all / (2 * n)), b, row, sample, e);
    }
    xfree(sample);
    return code;
}

int64_t dataset_seq_len(const struct dataset *d) { return d->seq_len; }

int64_t dataset_n_tokens(const struct dataset *d) { return d->n_tokens; }

int64_t dataset_n_samples(const struct dataset *d) { return d->n_samples; }

uint64_t dataset_fingerprint(const struct dataset *d)
{
    struct hash64 h;
    hash64_init(&h);
    for (int i = 0; i < d->n; i++) {
        const struct stream *s = &d->streams[i];
        uint64_t about[] = {(uint64_t)s->file.n_tokens,          (uint64_t)s->n_samples,  s->file.head.fingerprint,
                            (uint64_t)s->file.head.eos,          (uint64_t)s->file.width, (uint64_t)s->file.chunk,
                            s->file.table[TABLE_TOKENS].sums_sum};
        hash64_add(&h, about, sizeof about);
    }
    return hash64_value(&h);
}

void dataset_cost(const struct dataset *d, int64_t *bytes, double *seconds)
{
    *bytes = 0;
    *seconds = 0;
    for (int i = 0; i < d->n; i++) {
        int64_t b;
        double s;
        tokenfile_cost(&d->streams[i].file, &b, &s);
        *bytes += b;
        *seconds += s;
    }
}
