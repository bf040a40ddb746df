/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.c: opens sources and cuts samples out of them.
 *
 * Cost of a sample: O(log sources) arithmetic, one permutation (a few rounds of a hash), one read, and the first time
 * one in a chunk of the file its checksum. Nothing of a file is kept, so memory stays flat however large the data is.
 */
#include "data/dataset.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "data/dataset_weights.h"
#include "data/megatron.h"
#include "data/sampler.h"
#include "data/tokenfile.h"
#include "data/tokenize.h"
#include "source/blob_remote.h"
#include "source/brace.h"
#include "source/source.h"

enum { USUAL_WINDOW = 4096 };

struct stream {
    struct tokenfile file;
    struct cuts cuts;           /* of pictures only n and n_inputs */
    struct image_index *images; /* NULL: texts */
};

struct dataset {
    struct stream *streams;
    int n;
    struct blend blend;    /* of groups, or parts */
    struct remote *remote; /* of token files behind addresses; NULL: there are none */
    int64_t seq_len, parts, n_pixels, group, n_tokens;
    int64_t n_cuts; /* samples of all sources, each a part */
    uint64_t seed;
    int32_t eos;
    bool shuffled, reset_positions, mask_boundaries, joined;
    struct fim fim;
    struct image_rule images;
};

/* One piece of memory, the fields one after the other, each on an address that fits any of them. */
enum { FIELD_UNIT = 64 };

static size_t field_room(int f, int64_t n_seqs, int64_t seq_len, int64_t n_pixels)
{
    struct batch_row r = batch_field_row(f, n_pixels);
    return (batch_bytes(&r, n_seqs, seq_len) + FIELD_UNIT - 1) / FIELD_UNIT * FIELD_UNIT;
}

size_t batch_memory(int64_t n_seqs, int64_t seq_len, int64_t n_pixels)
{
    size_t all = 0;
    for (int f = 0; f < BATCH_FIELDS; f++) all += field_room(f, n_seqs, seq_len, n_pixels);
    return all;
}

void batch_place(struct batch *b, int64_t n_seqs, int64_t seq_len, int64_t n_pixels, void *memory)
{
    char *at = memory;
    *b = (struct batch){.n_seqs = n_seqs, .seq_len = seq_len, .n_pixels = n_pixels};
    for (int f = 0; f < BATCH_FIELDS; f++) {
        b->field[f] = at;
        at += field_room(f, n_seqs, seq_len, n_pixels);
    }
}

void batch_init_pictures(struct batch *b, int64_t n_seqs, int64_t seq_len, int64_t n_pixels)
{
    batch_place(b, n_seqs, seq_len, n_pixels, xcalloc(batch_memory(n_seqs, seq_len, n_pixels) + 1, 1));
}

void batch_init(struct batch *b, int64_t n_seqs, int64_t seq_len) { batch_init_pictures(b, n_seqs, seq_len, 0); }

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

/* A file of an older version does not say where its documents end: it is read through, which is said. */
static int find_documents(struct stream *s, const atomic_int *give_up, struct err *e)
{
    if (tokenfile_has_ends(&s->file)) return OK;
    double from = clock_now_s();
    int code = tokenfile_find_ends(&s->file, give_up, e);
    if (!code)
        log_info("data: %s: is of version %d, without a table of documents: all of it was read for %lld ends of text "
                 "in %.1f s; tokenize the text again to have one",
                 s->file.path, s->file.version, (long long)s->file.n_documents, clock_now_s() - from);
    return code;
}

static int64_t part_length(const struct dataset_options *o) { return o->seq_len / (o->parts ? o->parts : 1); }

static int cut_stream(struct stream *s, const char *path, const struct dataset_options *o, struct err *e)
{
    int64_t seq = part_length(o);
    struct cuts_rule rule = {o->pack, seq, o->window ? o->window : USUAL_WINDOW, o->group > 0};
    int code = o->pack == PACK_JOINED ? OK : find_documents(s, o->give_up, e);
    if (!code) code = cuts_open(&s->cuts, &s->file, &rule, o->give_up, e);
    if (code || s->cuts.n > 0) return code;
    if (o->pack != PACK_JOINED)
        return err_set(e, ERR_REQUEST, "%s: none of its %lld documents has a token to predict", path,
                       (long long)s->file.n_documents);
    return err_set(e, ERR_REQUEST,
                   "%s: has %lld tokens, %s of %lld needs %lld; choose a sequence length of %lld or less, %sor more "
                   "text",
                   path, (long long)s->file.n_tokens, o->parts > 1 ? "a part of a sample" : "a sequence",
                   (long long)seq, (long long)seq + 1,
                   (long long)(s->file.n_tokens > 1 ? s->file.n_tokens - 1 : 0) * (o->seq_len / seq),
                   o->parts > 1 ? "more parts, " : "");
}

/* A token file behind an address. */
static int open_object(struct dataset *d, struct tokenfile *f, const char *url, const struct dataset_options *o,
                       struct err *e)
{
    struct remote_about about;
    struct fs_file file;
    if (!d->remote) d->remote = remote_new(o->remote);
    int code = remote_look(d->remote, url, &about, e);
    if (!code) code = file_of_object(&file, d->remote, url, &about, e);
    return code ? code : tokenfile_open_file(f, &file, e);
}

/* path: what may be said of the source's. */
static int open_stream(struct dataset *d, struct stream *s, const struct dataset_source *source, const char *path,
                       const struct dataset_options *o, struct err *e)
{
    bool address = remote_is(source->path);
    char *file = address ? str_ends(path, ".tok") ? xstrdup(path) : NULL : tokenfile_find(path);
    bool cached = !file;
    int code = OK;
    char *megatron = file || address ? NULL : megatron_find(path);
    if (!file && !megatron && !address && !fs_exists(path) && !brace_has(path)) {
        char plain[320];
        snprintf(plain, sizeof plain, "no such file or folder, and no token file %.120s.tok or %.120s.bin and .idx",
                 path, path);
        return source_missing(path, plain, e);
    }
    if ((file || megatron) && source->column) {
        xfree(file);
        xfree(megatron);
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no column \"%s\"; leave the column out", path,
                       source->column);
    }
    if ((file || megatron) && source->chat) {
        xfree(file);
        xfree(megatron);
        return err_set(e, ERR_REQUEST,
                       "%s: is a token file, made already: chat and train_on are for tutti data tokenize", path);
    }
    struct tokenize_input how = {.column = source->column,
                                 .remote = o->remote,
                                 .skip_bad = source->skip_bad,
                                 .chat = {source->chat, o->tokenizer_path, (enum chat_train_on)source->train_on}};
    if (megatron) code = megatron_cached(o->tokenizer, megatron, o->cache_dir, o->give_up, &file, e);
    else if (!file) code = tokenize_cached(o->tokenizer, source->path, &how, o->cache_dir, o->give_up, &file, e);
    if (!code && address && !cached) code = open_object(d, &s->file, source->path, o, e);
    else if (!code) code = tokenfile_open(&s->file, file, e);
    if (!code && cached) s->file.made_from = xstrdup(path);
    xfree(file);
    xfree(megatron);
    if (!code) code = check_tokenizer(&s->file, o->tokenizer, path, e);
    return code ? code : cut_stream(s, path, o, e);
}

/* path: what may be said of the source's. */
static int open_images(struct stream *s, const struct dataset_source *source, const char *path,
                       const struct dataset_options *o, struct err *e)
{
    struct image_index_options x = {
        .path = source->path,
        .part = o->images.part,
        .label = source->column,
        .classes = o->images.classes,
        .skip_bad = source->skip_bad,
        .limits = o->images.limits,
        .cache_dir = o->cache_dir,
        .remote = o->remote,
        .give_up = o->give_up,
    };
    if (source->chat)
        return err_set(e, ERR_REQUEST,
                       "%s: holds pictures, for this model, and chat is for conversations; leave it out", path);
    int code = image_index_open(&s->images, &x, e);
    if (!code) s->cuts.n = s->cuts.n_inputs = image_index_n(s->images);
    return code;
}

static int check_images(const struct dataset_options *o, struct err *e)
{
    if (o->images.view.size < 1) return OK;
    if (o->images.view.channels != 1 && o->images.view.channels != VIEW_CHANNELS)
        return err_set(e, ERR_REQUEST, "pictures of %d channels (model.channels); files hold 1 or 3",
                       o->images.view.channels);
    if (o->pack != PACK_JOINED || o->group || o->parts > 1 || o->fim.rate > 0)
        return err_set(e, ERR_REQUEST, "samples are pictures, and %s; leave the key out",
                       o->fim.rate > 0 ? "data.fim rearranges texts"
                                       : "data.pack, data.group and data.parts are of texts");
    return OK;
}

static int check_options(const struct dataset_options *o, struct err *e)
{
    int code = check_images(o, e);
    if (code) return code;
    if (o->n_sources < 1) return err_set(e, ERR_REQUEST, "no data: name at least one text, folder or token file");
    if (o->seq_len < 1)
        return err_set(e, ERR_REQUEST, "a sequence length of %lld; at least 1 is needed", (long long)o->seq_len);
    if (o->parts < 0 || (o->parts && o->seq_len % o->parts))
        return err_set(e, ERR_REQUEST, "samples of %lld tokens in %lld parts; choose a divisor", (long long)o->seq_len,
                       (long long)o->parts);
    if (o->parts > 1 && o->group)
        return err_set(e, ERR_REQUEST,
                       "the samples of a group are of one source, those of %lld parts of several; "
                       "choose one of both",
                       (long long)o->parts);
    if (o->group && o->pack == PACK_JOINED)
        return err_set(e, ERR_REQUEST,
                       "samples of joined documents are all of one length, so that there is nothing to group; pack "
                       "documents (best_fit or padded), or do without groups");
    if (o->group < 0 || (o->group && o->global_batch % o->group))
        return err_set(e, ERR_REQUEST, "groups of %lld samples in batches of %lld; choose a divisor",
                       (long long)o->group, (long long)o->global_batch);
    return OK;
}

int dataset_open(struct dataset **out, const struct dataset_options *o, struct err *e)
{
    *out = NULL;
    int code = check_options(o, e);
    if (!code) code = weights_check(o, e);
    if (code) return code;
    struct dataset *d = xcalloc(1, sizeof *d);
    *d = (struct dataset){
        .streams = xcalloc((size_t)o->n_sources, sizeof *d->streams),
        .seq_len = o->seq_len,
        .parts = o->parts ? o->parts : 1,
        .group = o->group ? o->group : 1,
        .joined = o->pack == PACK_JOINED && !o->images.view.size,
        .seed = o->seed,
        .eos = o->tokenizer ? tokenizer_eos(o->tokenizer) : -1,
        .images = o->images,
        .n_pixels = o->images.view.size ? image_rule_pixels(&o->images) : 0,
        .shuffled = o->shuffled,
        .reset_positions = o->reset_positions,
        .mask_boundaries = o->mask_boundaries,
    };
    if (!d->n_pixels) code = fim_init(&d->fim, &o->fim, o->tokenizer, o->seed, e);
    for (int i = 0; i < o->n_sources && !code; i++, d->n++) {
        const char *path = o->sources[i].path;
        char *shown = remote_is(path) ? remote_shown(path) : xstrdup(path);
        d->streams[i].file.file.fd = -1;
        if (d->n_pixels) code = open_images(&d->streams[i], &o->sources[i], shown, o, e);
        else code = open_stream(d, &d->streams[i], &o->sources[i], shown, o, e);
        xfree(shown);
        d->n_cuts += d->streams[i].cuts.n;
        d->n_tokens += d->streams[i].file.n_tokens;
    }
    if (!code) code = weights_blend(&d->blend, o, e);
    if (code) dataset_close(d);
    else *out = d;
    return code;
}

void dataset_close(struct dataset *d)
{
    if (!d) return;
    for (int i = 0; i < d->n; i++) {
        image_index_close(d->streams[i].images);
        if (d->n_pixels) continue;
        cuts_close(&d->streams[i].cuts);
        tokenfile_close(&d->streams[i].file);
    }
    if (d->remote) remote_say(d->remote);
    remote_free(d->remote);
    blend_fini(&d->blend);
    xfree(d->streams);
    xfree(d);
}

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
    *source = blend_pick(&d->blend, k / d->group, &r);
    int64_t n = d->streams[*source].cuts.n, n_groups = (n + d->group - 1) / d->group;
    *sample = order_pick(d->seed, *source, d->shuffled, n_groups, r, epoch) * d->group + k % d->group;
    if (*sample >= n) *sample = -1;
}

/* What deals out a window's pieces in this epoch; NULL: nothing does. */
static const uint64_t *shuffle_of(const struct dataset *d, int source, int64_t epoch, uint64_t *room)
{
    char name[64];
    snprintf(name, sizeof name, "data/pack/%d/%lld", source, (long long)epoch);
    *room = rng_u64(d->seed, rng_stream(name), 0);
    return d->shuffled ? room : NULL;
}

int dataset_sample(const struct dataset *d, int64_t k, int32_t *tokens, struct err *e)
{
    int source;
    int64_t epoch, sample;
    CHECK(d->joined && d->parts == 1, "a sample of packed documents or of parts has no tokens of its own");
    dataset_where(d, k, &source, &epoch, &sample);
    return tokenfile_read(&d->streams[source].file, sample * d->seq_len, d->seq_len + 1, tokens, e);
}

/* ---- rows ---- */

/* What tokens of a file and their masks are read into. */
struct room {
    struct fim_work *fim; /* NULL: nothing of it is done */
    int64_t order;        /* of the part, for it */
    int32_t *ids;         /* [seq_len + 1] */
    unsigned char *mask;  /* [seq_len + 1] */
};

static struct room room_new(const struct dataset *d)
{
    return (struct room){NULL, 0, xmalloc(to_size(d->seq_len + 1) * sizeof(int32_t)), xmalloc(to_size(d->seq_len + 1))};
}

static void room_free(struct room *r)
{
    fim_work_free(r->fim);
    xfree(r->ids);
    xfree(r->mask);
}

static int read_tokens(const struct tokenfile *f, int64_t at, int64_t n, struct room *r, struct err *e)
{
    int code = tokenfile_read(f, at, n, r->ids, e);
    return code ? code : tokenfile_mask(f, at, n, r->mask, e);
}

/* Fill-in-the-middle of the first n tokens read; what has a loss mask was arranged on purpose, and stays. */
static int rearrange(const struct tokenfile *f, int64_t document, int64_t n, struct room *r, struct err *e)
{
    return r->fim && !tokenfile_masked(f) ? fim_apply(r->fim, r->order, document, r->ids, n, e) : OK;
}

/* Where a row is filled on. */
struct place {
    int64_t row, at; /* at: tokens of the row that are there */
    int32_t document;
};

/* n places of a row from n + 1 tokens: documents end with the end-of-text id, and the last of a part with it. */
static void fill_joined(const struct dataset *d, struct batch *b, struct place *p, int64_t n, const struct room *r)
{
    int64_t at = p->row * b->seq_len + p->at;
    int32_t document = p->document, position = 0;
    memcpy(b->tokens + at, r->ids, to_size(n) * sizeof *r->ids);
    for (int64_t i = 0; i < n; i++) {
        bool ends = r->ids[i] == d->eos;
        bool trained = !(ends && d->mask_boundaries) && r->mask[i + 1];
        b->targets[at + i] = trained ? r->ids[i + 1] : -1;
        b->n_trained += trained;
        b->positions[at + i] = d->reset_positions ? position : (int32_t)(p->at + i);
        b->documents[at + i] = document;
        position = ends ? 0 : position + 1;
        document += ends;
    }
    p->at += n;
    p->document = document + (r->ids[n - 1] != d->eos);
}

/* What is left of a row: places each a document of its own, so that attention has one pair for it. */
static void pad_row(const struct dataset *d, struct batch *b, const struct place *p)
{
    int32_t document = p->document;
    for (int64_t i = p->at, at = p->row * b->seq_len; i < b->seq_len; i++) {
        b->tokens[at + i] = d->eos >= 0 ? d->eos : 0;
        b->targets[at + i] = -1;
        b->positions[at + i] = 0;
        b->documents[at + i] = document++;
    }
    b->n_padded += b->seq_len - p->at;
}

static int fill_packed(const struct tokenfile *f, struct batch *b, struct place *to, const struct cuts_pieces *p,
                       struct room *r, struct err *e)
{
    for (int64_t k = 0; k < p->n; to->at += p->p[k++].n, to->document++) {
        int64_t n = p->p[k].n, at = to->row * b->seq_len + to->at;
        int code = read_tokens(f, p->p[k].begin, n + 1, r, e);
        if (!code) code = rearrange(f, k, n + 1, r, e);
        if (code) return code;
        memcpy(b->tokens + at, r->ids, to_size(n) * sizeof *r->ids);
        for (int64_t i = 0; i < n; i++) {
            b->targets[at + i] = r->mask[i + 1] ? r->ids[i + 1] : -1;
            b->n_trained += r->mask[i + 1];
            b->positions[at + i] = (int32_t)i;
            b->documents[at + i] = to->document;
        }
    }
    return OK;
}

/* Sample i of a source is a part of a row. */
static int fill_part(const struct dataset *d, int source, int64_t i, const uint64_t *shuffle, struct batch *b,
                     struct place *to, struct room *r, struct err *e)
{
    const struct stream *s = &d->streams[source];
    struct cuts_pieces p = {0};
    int code = cuts_pieces(&s->cuts, i, shuffle, &p, e);
    if (!code && d->joined) code = read_tokens(&s->file, p.p[0].begin, p.p[0].n + 1, r, e);
    if (!code && d->joined) code = rearrange(&s->file, 0, p.p[0].n + 1, r, e);
    if (!code && d->joined) fill_joined(d, b, to, p.p[0].n, r);
    else if (!code) code = fill_packed(&s->file, b, to, &p, r, e);
    xfree(p.p);
    return code;
}

static int fill_sample(const struct dataset *d, int64_t k, struct batch *b, int64_t row, struct room *r, struct err *e)
{
    struct place to = {.row = row};
    int code = OK;
    for (int64_t j = 0; j < d->parts && !code; j++) {
        int source;
        int64_t epoch, sample;
        uint64_t shuffle;
        r->order = dataset_part(d, k, j);
        dataset_where(d, r->order, &source, &epoch, &sample);
        if (sample >= 0) code = fill_part(d, source, sample, shuffle_of(d, source, epoch, &shuffle), b, &to, r, e);
    }
    if (!code) pad_row(d, b, &to);
    return code;
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
    if (!b->n_pixels) return;
    memset(b->pixels + row * b->n_pixels, 0, to_size(b->n_pixels) * sizeof *b->pixels);
    b->label[row] = -1;
}

/* Sample i of a source of pictures. What is of texts says nothing. */
static int fill_image(const struct dataset *d, int source, int64_t i, int64_t order, struct batch *b, int64_t row,
                      struct err *e)
{
    blank_row(b, row);
    int code = image_fill(d->streams[source].images, &d->images, i, d->seed, (uint64_t)order,
                          b->pixels + row * d->n_pixels, &b->label[row], e);
    b->n_trained += !code;
    return code;
}

static int fill_images(const struct dataset *d, int64_t first, struct batch *b, struct err *e)
{
    int code = OK;
    b->n_trained = b->n_padded = 0;
    for (int64_t row = 0; row < b->n_seqs && !code; row++) {
        int source;
        int64_t epoch, sample;
        dataset_where(d, first + row, &source, &epoch, &sample);
        code = fill_image(d, source, sample, first + row, b, row, e);
    }
    return code;
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
    if (d->n_pixels) return fill_images(d, step * global_batch + first, b, e);
    struct room r = room_new(d);
    if (d->fim.rate > 0) r.fim = fim_work_new(&d->fim);
    int code = OK;
    b->n_trained = b->n_padded = 0;
    for (int64_t row = 0; row < b->n_seqs && !code; row++)
        code = fill_sample(d, step * global_batch + first + row, b, row, &r, e);
    room_free(&r);
    return code;
}

/* Samples of a source for evaluation: where documents are joined, the short one at its end, too. */
static int64_t eval_samples_of(const struct dataset *d, int source)
{
    if (!d->joined) return d->streams[source].cuts.n;
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

/* Sample k of the list into a row. What lies behind the end of its source repeats the last token and is no target. */
static int eval_row(const struct dataset *d, int64_t k, struct batch *b, int64_t row, struct room *r, struct err *e)
{
    int source = 0;
    while (k >= eval_samples_of(d, source)) k -= eval_samples_of(d, source++);
    if (d->n_pixels) return fill_image(d, source, k, k, b, row, e);
    struct place to = {.row = row};
    if (!d->joined) {
        int failed = fill_part(d, source, k, NULL, b, &to, r, e);
        if (!failed) pad_row(d, b, &to);
        return failed;
    }
    int64_t at = k * d->seq_len, left = d->streams[source].file.n_tokens - at,
            n = left < d->seq_len + 1 ? left : d->seq_len + 1;
    int code = read_tokens(&d->streams[source].file, at, n, r, e);
    if (code) return code;
    for (int64_t i = n; i <= d->seq_len; i++) {
        r->ids[i] = r->ids[n - 1];
        r->mask[i] = 0;
    }
    fill_joined(d, b, &to, d->seq_len, r);
    return OK;
}

int dataset_eval_batch(const struct dataset *d, int64_t i, int64_t global_batch, int64_t most, int64_t first,
                       struct batch *b, struct err *e)
{
    CHECK(b->seq_len == d->seq_len, "a batch of sequences of %lld, data of %lld", (long long)b->seq_len,
          (long long)d->seq_len);
    int64_t all, n = eval_samples(d, global_batch, most, &all);
    struct room r = room_new(d);
    int code = OK;
    b->n_trained = b->n_padded = 0;
    for (int64_t row = 0; row < b->n_seqs && !code; row++) {
        int64_t j = i * global_batch + first + row; /* the middle of the j-th of n equal parts of the list */
        if (j >= n) blank_row(b, row);
        else code = eval_row(d, (int64_t)((2 * (__int128)j + 1) * all / (2 * n)), b, row, &r, e);
    }
    room_free(&r);
    return code;
}

int64_t dataset_seq_len(const struct dataset *d) { return d->seq_len; }

int64_t dataset_pixels(const struct dataset *d) { return d->n_pixels; }

struct image_index *dataset_images(const struct dataset *d, int source) { return d->streams[source].images; }

const struct image_rule *dataset_image_rule(const struct dataset *d) { return &d->images; }

int64_t dataset_n_tokens(const struct dataset *d) { return d->n_tokens; }

int64_t dataset_n_samples(const struct dataset *d) { return d->n_cuts / d->parts; }

uint64_t dataset_fingerprint(const struct dataset *d)
{
    struct hash64 h;
    hash64_init(&h);
    for (int i = 0; i < d->n; i++) {
        const struct stream *s = &d->streams[i];
        const struct tokenfile *f = &s->file;
        uint64_t about[] = {(uint64_t)f->n_tokens,          (uint64_t)s->cuts.n, f->head.fingerprint,
                            (uint64_t)f->head.eos,          (uint64_t)f->width,  (uint64_t)f->chunk,
                            f->table[TABLE_TOKENS].sums_sum};
        uint64_t packed[] = {(uint64_t)s->cuts.rule.kind, (uint64_t)s->cuts.rule.window, (uint64_t)d->group,
                             (uint64_t)f->n_documents, (uint64_t)s->cuts.n_inputs};
        uint64_t images[] = {s->images ? image_index_sum(s->images) : 0, (uint64_t)d->images.classes};
        if (s->images) hash64_add(&h, images, sizeof images);
        if (s->images) continue;
        hash64_add(&h, about, sizeof about);
        if (tokenfile_masked(f)) hash64_add(&h, &f->table[TABLE_MASK].sums_sum, sizeof(uint64_t));
        if (!d->joined) hash64_add(&h, packed, sizeof packed);
    }
    if (d->parts > 1) hash64_add(&h, &d->parts, sizeof d->parts);
    return hash64_value(&h);
}

uint64_t dataset_ends_fingerprint(const struct dataset *d)
{
    struct hash64 h;
    if (d->joined || d->n_pixels) return 0;
    hash64_init(&h);
    for (int i = 0; i < d->n; i++) hash64_add(&h, &d->streams[i].cuts.ends_hash, sizeof(uint64_t));
    return hash64_value(&h);
}

int dataset_n_sources(const struct dataset *d) { return d->n; }

const struct tokenfile *dataset_file(const struct dataset *d, int source) { return &d->streams[source].file; }

const struct cuts *dataset_cuts(const struct dataset *d, int source) { return &d->streams[source].cuts; }

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
    if (sample < 0 || d->n_pixels) return OK;
    const struct stream *s = &d->streams[source];
    int code = cuts_pieces(&s->cuts, sample, shuffle_of(d, source, epoch, &shuffle), out, e);
    if (!code && d->joined) code = split_joined(&s->file, out, e);
    if (!code) return OK;
    xfree(out->p);
    *out = (struct cuts_pieces){0};
    return code;
}

int64_t dataset_used(const struct dataset *d, int64_t k, int source, double *epochs)
{
    int64_t r, n = d->streams[source].cuts.n, whole = (n + d->group - 1) / d->group * d->group,
               used = blend_count(&d->blend, k / d->group, source) * d->group;
    if (k % d->group && blend_pick(&d->blend, k / d->group, &r) == source) used += k % d->group;
    *epochs = (double)used / (double)whole;
    return used;
}

double dataset_padding(const struct dataset *d, int source)
{
    const struct cuts *c = &d->streams[source].cuts;
    if (d->n_pixels) return 0;
    double places = (double)((c->n + d->group - 1) / d->group * d->group) * (double)c->rule.seq;
    return 1 - (double)c->n_inputs / places;
}

void dataset_cost(const struct dataset *d, int64_t *bytes, double *seconds)
{
    *bytes = 0;
    *seconds = 0;
    for (int i = 0; i < d->n && !d->n_pixels; i++) {
        int64_t b;
        double s;
        tokenfile_cost(&d->streams[i].file, &b, &s);
        *bytes += b;
        *seconds += s;
    }
}
