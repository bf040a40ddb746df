/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.c: opens sources and hands out batches of their samples; and what it all is, for reports and comparisons.
 *
 * Cost of a sample: O(log sources) arithmetic, one permutation (a few rounds of a hash), one read, and the first time
 * one in a chunk of the file its checksum. Nothing of a file is kept, so memory stays flat however large the data is.
 */
#include "data/dataset.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "data/dataset_impl.h"
#include "data/dataset_weights.h"

/* The token before a text of a class. */
static int find_begin(struct dataset *d, const struct dataset_options *o, struct err *e)
{
    const char *name = o->begin ? o->begin : "[CLS]";
    d->begin = tokenizer_find(o->tokenizer, name, strlen(name));
    if (d->begin >= 0 || !o->begin) return OK;
    return err_set(e, ERR_REQUEST, "data.begin: the tokenizer has no token \"%.100s\"; name one that it has", o->begin);
}

/* By weight; of a mix of repetitions by what each source has. */
static int blend_sources(struct dataset *d, const struct dataset_options *o, struct err *e)
{
    struct dataset_options all = *o;
    int64_t *n = xcalloc((size_t)d->n + 1, sizeof *n);
    for (int i = 0; i < d->n; i++) n[i] = d->streams[i].cuts.n;
    dataset_mix_weigh(&d->mix, n);
    xfree(n);
    all.sources = d->mix.sources;
    all.n_sources = d->n;
    return weights_blend(&d->blend, &all, e);
}

int dataset_options_check(const struct dataset_options *o, struct err *e)
{
    int code = dataset_check(o, e);
    return code ? code : weights_check(o, e);
}

int dataset_open(struct dataset **out, const struct dataset_options *o, struct err *e)
{
    *out = NULL;
    int code = dataset_options_check(o, e);
    if (code) return code;
    struct dataset *d = xcalloc(1, sizeof *d);
    *d = (struct dataset){
        .seq_len = o->seq_len,
        .parts = o->parts ? o->parts : 1,
        .group = o->group ? o->group : 1,
        .joined = o->pack == PACK_JOINED && !o->images.view.size && !o->sides.encoder,
        .seed = o->seed,
        .eos = o->tokenizer ? tokenizer_eos(o->tokenizer) : -1,
        .images = o->images,
        .pictures = o->pictures,
        .sees = o->images.view.size && !o->pictures.patches,
        .n_pixels =
            o->images.view.size ? image_rule_pixels(&o->images) * (o->pictures.patches ? o->pictures.most : 1) : 0,
        .shuffled = o->shuffled,
        .reset_positions = o->reset_positions,
        .mask_boundaries = o->mask_boundaries,
        .classes = o->classes,
        .begin = -1,
        .pairs = o->pairs,
        .scores = o->scores,
        .end_unread = o->end_unread,
        .sides = o->sides,
        .prefix_rate = o->prefix_rate,
    };
    if (!d->sees) code = fim_init(&d->fim, &o->fim, o->tokenizer, o->seed, e);
    if (!d->sees && !code) code = mlm_init(&d->mlm, &o->mlm, o->tokenizer, e);
    if (o->spans.rate > 0 && !code) code = spans_init(&d->spans, &o->spans, o->tokenizer, e);
    if (d->classes && !code) code = find_begin(d, o, e);
    for (int64_t i = 0; d->mlm.rate > 0 && i < tokenizer_begin(o->tokenizer)->n; i++)
        tokens_push(&d->lead, tokenizer_begin(o->tokenizer)->ids[i]);
    if (!code) code = dataset_mix_init(&d->mix, o, e);
    d->streams = xcalloc((size_t)d->mix.n + 1, sizeof *d->streams);
    for (int i = 0; i < d->mix.n && !code; i++, d->n++) {
        code = stream_open(&d->streams[i], &d->remote, &d->mix.sources[i], &d->mix.about[i], o, e);
        d->n_cuts += d->streams[i].cuts.n;
        d->n_tokens += d->streams[i].file.n_tokens;
    }
    if (!code) code = blend_sources(d, o, e);
    if (code) dataset_close(d);
    else *out = d;
    return code;
}

/* Of source i's pictures, and for i = n of all token files; NULL: it reads no object. */
static struct remote *remote_of(const struct dataset *d, int i)
{
    if (i == d->n) return d->remote;
    return d->streams[i].images ? image_index_remote(d->streams[i].images) : NULL;
}

size_t dataset_object_bytes(const struct dataset *d)
{
    size_t bytes = 0;
    for (int i = 0; i <= d->n; i++) bytes += remote_of(d, i) ? remote_memory(remote_of(d, i)) : 0;
    return bytes;
}

void dataset_objects_in(struct dataset *d, void *memory)
{
    char *at = memory;
    for (int i = 0; i <= d->n; i++) {
        struct remote *r = remote_of(d, i);
        if (!r) continue;
        remote_place(r, at);
        at += remote_memory(r);
    }
}

void dataset_close(struct dataset *d)
{
    if (!d) return;
    for (int i = 0; i < d->n; i++) stream_close(&d->streams[i]);
    if (d->remote) remote_say(d->remote);
    remote_free(d->remote);
    blend_fini(&d->blend);
    dataset_mix_fini(&d->mix);
    tokens_free(&d->lead);
    xfree(d->streams);
    xfree(d);
}

int dataset_sample(const struct dataset *d, int64_t k, int32_t *tokens, struct err *e)
{
    int source;
    int64_t epoch, sample;
    CHECK(d->joined && d->parts == 1, "a sample of packed documents or of parts has no tokens of its own");
    dataset_where(d, k, &source, &epoch, &sample);
    return tokenfile_read(&d->streams[source].file, sample * d->seq_len, d->seq_len + 1, tokens, e);
}

int dataset_batch(const struct dataset *d, int64_t step, int64_t global_batch, int64_t first, struct batch *b,
                  struct err *e)
{
    CHECK(b->seq_len == d->seq_len, "a batch of sequences of %lld, data of %lld", (long long)b->seq_len,
          (long long)d->seq_len);
    CHECK(step >= 0 && first >= 0 && first + b->n_seqs <= global_batch, "sequences [%lld, +%lld) of %lld",
          (long long)first, (long long)b->n_seqs, (long long)global_batch);
    CHECK(b->n_pixels == d->n_pixels, "a batch of pictures of %lld values, data of %lld", (long long)b->n_pixels,
          (long long)d->n_pixels);
    struct row_work *w = row_work_new(d, true);
    int code = OK;
    b->n_trained = b->n_padded = 0;
    for (int64_t row = 0; row < b->n_seqs && !code; row++)
        code = row_of_order(d, step * global_batch + first + row, b, row, w, e);
    row_work_free(w);
    return code;
}

bool dataset_has_pairs(const struct dataset *d) { return d->pairs; }

int64_t dataset_seq_len(const struct dataset *d) { return d->seq_len; }

int64_t dataset_pixels(const struct dataset *d) { return d->n_pixels; }

bool dataset_sees(const struct dataset *d) { return d->sees; }

struct image_index *dataset_images(const struct dataset *d, int source) { return d->streams[source].images; }

const struct image_rule *dataset_image_rule(const struct dataset *d) { return &d->images; }

int64_t dataset_n_tokens(const struct dataset *d) { return d->n_tokens; }

int64_t dataset_n_samples(const struct dataset *d) { return d->n_cuts / d->parts; }

uint64_t dataset_fingerprint(const struct dataset *d)
{
    struct hash64 h;
    hash64_init(&h);
    for (int i = 0; i < d->n; i++) {
        const struct sample_stream *s = &d->streams[i];
        const struct tokenfile *f = &s->file;
        uint64_t about[] = {(uint64_t)f->n_tokens,          (uint64_t)s->cuts.n, f->head.fingerprint,
                            (uint64_t)f->head.eos,          (uint64_t)f->width,  (uint64_t)f->chunk,
                            f->table[TABLE_TOKENS].sums_sum};
        uint64_t packed[] = {(uint64_t)s->cuts.rule.kind, (uint64_t)s->cuts.rule.window, (uint64_t)d->group,
                             (uint64_t)f->n_documents, (uint64_t)s->cuts.n_inputs};
        uint64_t images[] = {s->images ? image_index_sum(s->images) : 0, (uint64_t)d->images.classes};
        if (s->images) hash64_add(&h, images, sizeof images);
        if (d->mix.about[i].leaf) hash64_add(&h, &d->mix.about[i].share, sizeof(double));
        if (s->images) continue;
        hash64_add(&h, about, sizeof about);
        if (s->labels) hash64_add(&h, s->labels, to_size(f->n_documents) * sizeof *s->labels);
        if (d->pairs) hash64_add(&h, &s->rejected.table[TABLE_TOKENS].sums_sum, sizeof(uint64_t));
        if (d->sides.encoder) hash64_add(&h, &s->written.table[TABLE_TOKENS].sums_sum, sizeof(uint64_t));
        if (d->pairs) hash64_add(&h, &s->rejected.table[TABLE_MASK].sums_sum, sizeof(uint64_t));
        if (tokenfile_masked(f)) hash64_add(&h, &f->table[TABLE_MASK].sums_sum, sizeof(uint64_t));
        if (!d->joined) hash64_add(&h, packed, sizeof packed);
    }
    if (d->parts > 1) hash64_add(&h, &d->parts, sizeof d->parts);
    return hash64_value(&h);
}

uint64_t dataset_ends_fingerprint(const struct dataset *d)
{
    struct hash64 h;
    if (d->joined || d->sees) return 0;
    hash64_init(&h);
    for (int i = 0; i < d->n; i++) hash64_add(&h, &d->streams[i].cuts.ends_hash, sizeof(uint64_t));
    return hash64_value(&h);
}

int dataset_n_sources(const struct dataset *d) { return d->n; }

const char *dataset_source_name(const struct dataset *d, int source) { return d->mix.about[source].name; }

const struct tokenfile *dataset_file(const struct dataset *d, int source) { return &d->streams[source].file; }

const struct cuts *dataset_cuts(const struct dataset *d, int source) { return &d->streams[source].cuts; }

void dataset_cost(const struct dataset *d, int64_t *bytes, double *seconds)
{
    *bytes = 0;
    *seconds = 0;
    for (int i = 0; i < d->n && !d->sees; i++) {
        int64_t b;
        double s;
        tokenfile_cost(&d->streams[i].file, &b, &s);
        *bytes += b;
        *seconds += s;
    }
}
