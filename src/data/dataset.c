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
#include "data/dataset_mix.h"
#include "data/energon_texts.h"
#include "data/dataset_weights.h"
#include "data/labels.h"
#include "data/megatron.h"
#include "data/prompt_cut.h"
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
    struct tokenfile rejected;  /* of pairs: file has the chosen answers */
    struct tokenfile written;   /* of two sides: file has what is read, */
    int64_t n_read;             /* so many tokens of all samples */
    struct image_index *images; /* NULL: texts */
    int32_t *labels;            /* of its documents; NULL: they have none */
    char *image;                /* which members of a shard's sample are its pictures; NULL: all that are images */
};

struct dataset {
    struct stream *streams;
    int n;
    struct dataset_mix mix; /* what the streams are of */
    struct blend blend;     /* of groups, or parts */
    struct remote *remote;  /* of token files behind addresses; NULL: there are none */
    int64_t seq_len, parts, n_pixels, group, n_tokens;
    int64_t n_cuts; /* samples of all sources, each a part */
    uint64_t seed;
    int32_t eos;
    bool shuffled, reset_positions, mask_boundaries, joined, pairs, scores, end_unread;
    struct fim fim;
    double prefix_rate;
    struct mlm mlm;
    struct spans spans; /* of no seq: none are taken out */
    struct sides_rule sides;
    int64_t classes;
    int32_t begin; /* comes before a text of a class; -1: nothing does */
    struct image_rule images;
    struct text_pictures_rule pictures; /* of texts */
    bool sees;                          /* samples are pictures with a class */
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

/* Both sides of every record are whole samples, so that document i of one file and of the other are a pair. */
static int check_pairs(const struct stream *s, const char *path, const struct dataset_options *o, struct err *e)
{
    int64_t ends[2] = {0}, longest = 0;
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0, begin = 0; i < s->file.n_documents; i++, begin = ends[side]) {
            int code = tokenfile_ends(side ? &s->rejected : &s->file, i, 1, &ends[side], e);
            if (code) return code;
            if (ends[side] - begin > longest) longest = ends[side] - begin;
        }
    int64_t room = longest - !o->scores; /* a score is read where the text ends */
    if (room > o->seq_len)
        return err_set(e, ERR_REQUEST,
                       "%s: a prompt and an answer have %lld tokens, and a sequence %lld; an answer that is cut says "
                       "nothing of what is preferred: choose model.seq_len: %lld, or leave such records out",
                       path, (long long)longest, (long long)o->seq_len, (long long)room);
    return OK;
}

/* No picture is cut. */
static int check_whole(const struct stream *s, const char *path, const struct dataset_options *o, struct err *e)
{
    for (int64_t i = 0, begin = 0, end; i < s->file.n_documents; i++, begin = end) {
        int code = tokenfile_ends(&s->file, i, 1, &end, e);
        if (code) return code;
        if (end - begin - 1 <= o->seq_len) continue;
        char *input = NULL;
        int64_t byte = -1;
        if (tokenfile_origin(&s->file, i, &input, &byte, e)) return e->code;
        err_set(e, ERR_REQUEST,
                "%s: the record at byte %lld has %lld tokens, those of its pictures among them, and a sample %lld; a "
                "text with pictures is not cut: choose model.seq_len: %lld, or leave such records out",
                input ? input : path, (long long)byte, (long long)(end - begin), (long long)o->seq_len,
                (long long)(end - begin - 1));
        xfree(input);
        return ERR_REQUEST;
    }
    return OK;
}

static int open_rejected(struct stream *s, const struct dataset_source *source, const char *path,
                         struct tokenize_input *how, const struct dataset_options *o, struct err *e)
{
    char *file = NULL;
    how->chat.side = CHAT_REJECTED;
    int code = tokenize_cached(o->tokenizer, source->path, how, o->cache_dir, o->give_up, &file, e);
    if (!code) code = tokenfile_open(&s->rejected, file, e);
    xfree(file);
    if (!code) code = tokenfile_has_ends(&s->rejected) ? OK : tokenfile_find_ends(&s->rejected, o->give_up, e);
    if (!code && s->file.n_documents == s->rejected.n_documents) code = check_pairs(s, path, o, e);
    if (!code && (s->file.n_documents != s->rejected.n_documents || s->cuts.n != s->file.n_documents))
        code = err_set(e, ERR_REQUEST,
                       "%s: %lld chosen answers, %lld rejected ones, %lld samples: every record wants one of each, not "
                       "longer than model.seq_len (%lld)",
                       path, (long long)s->file.n_documents, (long long)s->rejected.n_documents, (long long)s->cuts.n,
                       (long long)o->seq_len);
    return code;
}

/* The other text of every record. A sample is a record, so nothing is cut. */
static int open_written(struct stream *s, const struct dataset_source *source, const char *path,
                        struct tokenize_input *how, const struct dataset_options *o, struct err *e)
{
    char *file = NULL;
    int64_t filled[2];
    how->column = source->target;
    int code = tokenize_cached(o->tokenizer, source->path, how, o->cache_dir, o->give_up, &file, e);
    if (!code) code = tokenfile_open(&s->written, file, e);
    xfree(file);
    if (code) return code;
    s->written.made_from = xstrdup(path);
    code = sides_check(&s->file, &s->written, &o->sides, o->seq_len, path, filled, e);
    s->cuts = (struct cuts){.file = &s->file,
                            .rule = {.kind = PACK_PADDED, .seq = o->seq_len},
                            .n = s->file.n_documents,
                            .n_inputs = filled[1]};
    s->n_read = filled[0];
    return code;
}

/* How its records are written, and its pictures with them. */
static void text_rules(struct tokenize_input *how, const struct dataset_source *source, const struct dataset_options *o)
{
    how->chat = (struct chat_rules){.template_name = source->chat,
                                    .tokenizer_path = o->tokenizer_path,
                                    .train_on = o->scores ? CHAT_ANSWERS : (enum chat_train_on)source->train_on,
                                    .side = o->pairs ? CHAT_CHOSEN : CHAT_PLAIN};
    if (!o->pictures.patches) return;
    if (!source->chat) how->chat.template_name = "plain";
    how->chat.patches = o->pictures.patches;
    how->chat.image_token = o->pictures.token;
    how->chat.pictures = o->pictures.most;
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
    if ((file || megatron) && source->label) {
        xfree(file);
        xfree(megatron);
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no classes of its texts; name the .jsonl file",
                       path);
    }
    if ((file || megatron) && source->target) {
        xfree(file);
        xfree(megatron);
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no pairs of texts; name the .jsonl file", path);
    }
    if ((file || megatron) && o->pictures.patches) {
        xfree(file);
        xfree(megatron);
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no pictures; name the shards (.tar)", path);
    }
    if ((file || megatron) && source->chat) {
        xfree(file);
        xfree(megatron);
        return err_set(e, ERR_REQUEST,
                       "%s: is a token file, made already: chat and train_on are for tutti data tokenize", path);
    }
    struct tokenize_input how = {.column = source->column, .remote = o->remote, .skip_bad = source->skip_bad};
    if (o->sides.encoder && !how.column) how.column = "input";
    text_rules(&how, source, o);
    if (megatron) code = megatron_cached(o->tokenizer, megatron, o->cache_dir, o->give_up, &file, e);
    else if (!file) code = tokenize_cached(o->tokenizer, source->path, &how, o->cache_dir, o->give_up, &file, e);
    if (!code && address && !cached) code = open_object(d, &s->file, source->path, o, e);
    else if (!code) code = tokenfile_open(&s->file, file, e);
    if (!code && cached) s->file.made_from = xstrdup(path);
    xfree(file);
    xfree(megatron);
    if (!code) code = check_tokenizer(&s->file, o->tokenizer, path, e);
    if (!code) code = o->sides.encoder ? open_written(s, source, path, &how, o, e) : cut_stream(s, path, o, e);
    if (!code && o->pictures.patches) code = check_whole(s, path, o, e);
    if (!code && o->pairs) code = open_rejected(s, source, path, &how, o, e);
    if (code || !o->classes) return code;
    struct source_options records = {.column = source->column, .remote = o->remote, .skip_bad = source->skip_bad};
    return labels_read(source->path, &records, source->label, o->classes, s->file.n_documents, &s->labels, e);
}

/* A folder of Megatron-Energon with texts about pictures, by itself or as part of a metadataset. */
static int open_folder(struct stream *s, const struct dataset_source *source, const struct mix_source *about,
                       const struct dataset_options *o, struct err *e)
{
    struct energon_texts t;
    struct energon_ref own = {.folder = source->path, .part = o->images.part};
    struct tokenize_input how = {.column = source->column, .skip_bad = source->skip_bad};
    char *file = NULL;
    text_rules(&how, source, o);
    int code = energon_texts_open(&t, about->leaf ? about->leaf->ref : &own, e);
    if (!code) {
        how.shards = t.shards;
        how.n_shards = to_int(t.folder.n);
        how.fields = &t.fields;
        s->image = xstrdup(t.fields.image);
        code = tokenize_cached(o->tokenizer, about->name, &how, o->cache_dir, o->give_up, &file, e);
    }
    energon_texts_free(&t);
    if (!code) code = tokenfile_open(&s->file, file, e);
    if (!code) s->file.made_from = xstrdup(about->name);
    xfree(file);
    if (!code) code = check_tokenizer(&s->file, o->tokenizer, about->name, e);
    if (!code) code = cut_stream(s, about->name, o, e);
    return code ? code : check_whole(s, about->name, o, e);
}

static int open_images(struct stream *s, const struct dataset_source *source, const struct mix_source *about,
                       const struct dataset_options *o, struct err *e)
{
    struct image_index_options x = {
        .energon = about->leaf,
        .path = about->leaf ? about->name : source->path,
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
                       "%s: holds pictures, for this model, and chat is for conversations; leave it out", about->name);
    int code = image_index_open(&s->images, &x, e);
    if (!code) s->cuts.n = s->cuts.n_inputs = image_index_n(s->images);
    return code;
}

/* Texts with pictures: whole documents, of conversations or captions. */
static int check_pictures(const struct dataset_options *o, struct err *e)
{
    if (o->pack == PACK_JOINED || o->parts > 1 || o->fim.rate > 0 || o->pairs || o->classes)
        return err_set(e, ERR_REQUEST,
                       "texts with pictures are whole documents: choose data.pack: best_fit or padded, and none of "
                       "data.parts, data.fim and records of preferences");
    for (int i = 0; i < o->n_sources; i++)
        if (remote_is(o->sources[i].path)) {
            char *path = remote_hidden(o->sources[i].path);
            err_set(e, ERR_REQUEST, "%s: texts with pictures are read from files; copy it", path);
            xfree(path);
            return ERR_REQUEST;
        }
    return OK;
}

static int check_images(const struct dataset_options *o, struct err *e)
{
    if (o->images.view.size < 1) return OK;
    if (o->images.view.channels != 1 && o->images.view.channels != VIEW_CHANNELS)
        return err_set(e, ERR_REQUEST, "pictures of %d channels (model.channels); files hold 1 or 3",
                       o->images.view.channels);
    if (o->pictures.patches) return check_pictures(o, e);
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
    if (o->classes && (o->pack != PACK_PADDED || o->parts > 1 || o->fim.rate > 0))
        return err_set(e, ERR_REQUEST,
                       "a sample of a class is one document: choose data.pack: padded, and neither data.parts "
                       "nor data.fim");
    if (o->mlm.rate > 0 && o->fim.rate > 0)
        return err_set(e, ERR_REQUEST, "data.fim moves what data.mlm hides in its place; choose one of both");
    if (o->pairs && (o->pack != PACK_PADDED || o->group || o->parts > 1))
        return err_set(e, ERR_REQUEST,
                       "a sequence of a pair is one document: choose data.pack: padded, and neither "
                       "data.group nor data.parts");
    if (o->pairs && o->global_batch % 2)
        return err_set(e, ERR_REQUEST, "batches of %lld sequences, and a pair is two", (long long)o->global_batch);
    for (int i = 0; i < o->n_sources; i++)
        if (o->pairs && (!o->sources[i].chat || o->sources[i].skip_bad))
            return err_set(e, ERR_REQUEST,
                           o->sources[i].chat ? "%s: bad records of preferences are errors (data.skip_bad)"
                                              : "%s: records of preferences are written by a template; name one (chat)",
                           o->sources[i].path);
    for (int i = 0; i < o->n_sources; i++)
        if (!o->sources[i].target != !o->sides.encoder)
            return err_set(e, ERR_REQUEST,
                           o->sides.encoder ? "%s: is one text, and other sources are pairs of texts; name the member "
                                              "that is written (target)"
                                            : "%s: has a target, and this model has no encoder; leave it out",
                           o->sources[i].path);
    for (int i = 0; i < o->n_sources; i++)
        if (!o->sources[i].label != !o->classes)
            return err_set(e, ERR_REQUEST,
                           o->classes
                               ? "%s: has no label, and this model tells classes of texts; name the member "
                                 "of its records that is one (label)"
                               : "%s: has a label, and this model tells no classes (model.classes); leave it out",
                           o->sources[i].path);
    return OK;
}

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

int dataset_open(struct dataset **out, const struct dataset_options *o, struct err *e)
{
    *out = NULL;
    int code = check_options(o, e);
    if (!code) code = weights_check(o, e);
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
    if (!code) code = dataset_mix_init(&d->mix, o, e);
    d->streams = xcalloc((size_t)d->mix.n + 1, sizeof *d->streams);
    for (int i = 0; i < d->mix.n && !code; i++, d->n++) {
        const struct mix_source *about = &d->mix.about[i];
        d->streams[i].file.file.fd = d->streams[i].rejected.file.fd = d->streams[i].written.file.fd = -1;
        if (d->sees) code = open_images(&d->streams[i], &d->mix.sources[i], about, o, e);
        else if (about->leaf || (o->pictures.patches && energon_is(d->mix.sources[i].path)))
            code = open_folder(&d->streams[i], &d->mix.sources[i], about, o, e);
        else code = open_stream(d, &d->streams[i], &d->mix.sources[i], about->name, o, e);
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
    for (int i = 0; i < d->n; i++) {
        image_index_close(d->streams[i].images);
        xfree(d->streams[i].labels);
        xfree(d->streams[i].image);
        if (d->sees) continue;
        cuts_close(&d->streams[i].cuts);
        tokenfile_close(&d->streams[i].file);
        if (d->pairs) tokenfile_close(&d->streams[i].rejected);
        if (d->sides.encoder) tokenfile_close(&d->streams[i].written);
    }
    if (d->remote) remote_say(d->remote);
    remote_free(d->remote);
    blend_fini(&d->blend);
    dataset_mix_fini(&d->mix);
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
    if (d->pairs) k /= 2;
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
    int64_t order;        /* of the part, for it; of the sample, where tokens are hidden */
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
    int64_t pictures; /* of the row that are there */
};

/* Pictures of texts: none yet. */
static void no_pictures(const struct dataset *d, struct batch *b, int64_t row)
{
    if (!d->pictures.patches) return;
    memset(b->pixels + row * b->n_pixels, 0, to_size(b->n_pixels) * sizeof *b->pixels);
    for (int64_t i = 0; i < b->seq_len; i++) b->patches[row * b->seq_len + i] = -1;
}

/* Those of a document, whose n inputs are at `at` in the batch: tokens of pictures are rows of them, in order. */
static int fill_pictures(const struct dataset *d, const struct stream *s, struct batch *b, struct place *to, int64_t at,
                         int64_t n, int64_t document, int64_t order, struct err *e)
{
    const struct text_pictures_rule *p = &d->pictures;
    int64_t tokens = 0, each = image_rule_pixels(&d->images);
    for (int64_t i = at; i < at + n; i++) {
        if (b->tokens[i] != p->token) continue;
        b->patches[i] = (int32_t)((to->pictures + tokens / p->patches) * p->places + p->lead + tokens % p->patches);
        tokens++;
    }
    int64_t pictures = tokens / p->patches;
    if (tokens % p->patches || to->pictures + pictures > p->most)
        return err_set(e, ERR_CORRUPT,
                       "%s: document %lld: %lld tokens of pictures, with those before it more than %lld pictures, or a "
                       "part of one",
                       s->file.path, (long long)document, (long long)tokens, (long long)p->most);
    int code = text_pictures_fill(&s->file, document, pictures, s->image, &d->images, d->seed, (uint64_t)order,
                                  b->pixels + to->row * b->n_pixels + to->pictures * each, e);
    to->pictures += pictures;
    return code;
}

/* The target of place i of what was read, which is place `at` of the batch: the next token, or what may be hidden. */
static void aim(const struct dataset *d, struct batch *b, int64_t at, bool trained, const struct room *r, int64_t i)
{
    bool hides = d->mlm.rate > 0;
    if (hides) trained = r->ids[i] != d->eos && r->mask[i];
    if (d->spans.seq) trained = hides = true; /* what is there: taken_spans.h */
    b->targets[at] = !trained ? -1 : r->ids[hides ? i : i + 1];
    b->segments[at] = 0;
    b->n_trained += !hides && trained;
}

/* n places of a row from n + 1 tokens: documents end with the end-of-text id, and the last of a part with it. */
static void fill_joined(const struct dataset *d, struct batch *b, struct place *p, int64_t n, const struct room *r)
{
    int64_t at = p->row * b->seq_len + p->at;
    int32_t document = p->document, position = 0;
    memcpy(b->tokens + at, r->ids, to_size(n) * sizeof *r->ids);
    for (int64_t i = 0; i < n; i++) {
        bool ends = r->ids[i] == d->eos;
        bool trained = !(ends && d->mask_boundaries) && r->mask[i + 1];
        aim(d, b, at + i, trained, r, i);
        b->positions[at + i] = d->reset_positions ? position : (int32_t)(p->at + i);
        b->documents[at + i] = document;
        position = ends ? 0 : position + 1;
        document += ends;
    }
    p->at += n;
    p->document = document + (r->ids[n - 1] != d->eos);
}

static void aim_score(struct batch *b, int64_t at, bool last)
{
    b->targets[at] = last ? 0 : -1;
    b->segments[at] = 0;
    b->n_trained += last;
}

/* One side of a pair: document i of a file, whole. */
static int fill_side(const struct dataset *d, const struct tokenfile *f, int64_t i, struct batch *b, struct place *to,
                     struct room *r, struct err *e)
{
    int64_t ends[2] = {0}, at = to->row * b->seq_len;
    int code = i ? tokenfile_ends(f, i - 1, 2, ends, e) : tokenfile_ends(f, 0, 1, &ends[1], e);
    int64_t n = ends[1] - ends[0] - 1;
    if (!code) code = read_tokens(f, ends[0], n + 1, r, e);
    if (code) return code;
    bool own = d->scores && !d->end_unread && r->mask[n]; /* the end of text is the answer's, and read */
    n += own;
    memcpy(b->tokens + at, r->ids, to_size(n) * sizeof *r->ids);
    for (int64_t k = 0; k < n; k++) {
        if (!d->scores) aim(d, b, at + k, r->mask[k + 1], r, k);
        else aim_score(b, at + k, k == n - 1);
        b->positions[at + k] = (int32_t)k;
        b->documents[at + k] = 0;
    }
    to->at = n;
    to->document = 1;
    return OK;
}

/* One side of a pair of a source. */
static int fill_pair(const struct dataset *d, int source, int64_t document, bool rejected, struct batch *b,
                     struct place *to, struct room *r, struct err *e)
{
    const struct stream *s = &d->streams[source];
    return fill_side(d, rejected ? &s->rejected : &s->file, document, b, to, r, e);
}

/* Both texts of record i. */
static int fill_sides(const struct dataset *d, int source, int64_t i, struct batch *b, int64_t row, struct err *e)
{
    const struct stream *s = &d->streams[source];
    int64_t at = row * b->seq_len, read = 0;
    int64_t n = sides_fill(&s->file, &s->written, &d->sides, i, b->seq_len, b->tokens + at, b->targets + at,
                           b->positions + at, e);
    if (n < 0) return (int)n;
    for (int64_t k = 0; k < b->seq_len; k++) {
        b->documents[at + k] = b->segments[at + k] = 0;
        read += k < d->sides.encoder && b->positions[at + k] >= 0;
    }
    b->n_trained += n;
    b->n_padded += b->seq_len - read - n;
    return OK;
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
        b->segments[at + i] = 0;
    }
    b->n_padded += b->seq_len - p->at;
}

/* A document of a class, or a piece of it, is a row. */
static void fill_told(const struct dataset *d, const struct stream *s, struct batch *b, struct place *to,
                      int64_t document, int64_t n, const struct room *r)
{
    int64_t at = to->row * b->seq_len, m = 0, leads = d->begin >= 0, room = b->seq_len - leads;
    bool ends = n < room; /* else there is no place for an end */
    int32_t segment = 0;
    if (leads) b->tokens[at + m++] = d->begin;
    memcpy(b->tokens + at + m, r->ids, to_size(n < room ? n : room) * sizeof *r->ids);
    m += n < room ? n : room;
    if (ends) b->tokens[at + m++] = d->eos;
    for (int64_t i = 0; i < m; i++) {
        b->targets[at + i] = i ? -1 : s->labels[document];
        b->positions[at + i] = (int32_t)i;
        b->documents[at + i] = 0;
        b->segments[at + i] = segment;
        if (b->tokens[at + i] == d->eos) segment = 1;
    }
    b->n_trained += b->targets[at] >= 0;
    to->at = m;
    to->document = 1;
}

static int fill_packed(const struct dataset *d, const struct stream *s, struct batch *b, struct place *to,
                       const struct cuts_pieces *p, struct room *r, struct err *e)
{
    const struct tokenfile *f = &s->file;
    for (int64_t k = 0; k < p->n; to->at += p->p[k++].n, to->document++) {
        int64_t n = p->p[k].n, at = to->row * b->seq_len + to->at;
        int code = read_tokens(f, p->p[k].begin, n + 1, r, e);
        if (!code) code = rearrange(f, k, n + 1, r, e);
        if (code) return code;
        if (d->classes) {
            fill_told(d, s, b, to, p->p[k].document, n, r);
            return OK;
        }
        memcpy(b->tokens + at, r->ids, to_size(n) * sizeof *r->ids);
        for (int64_t i = 0; i < n; i++) {
            aim(d, b, at + i, r->mask[i + 1], r, i);
            b->positions[at + i] = (int32_t)i;
            b->documents[at + i] = to->document;
        }
        if (d->pictures.patches) code = fill_pictures(d, s, b, to, at, n, p->p[k].document, r->order, e);
        if (code) return code;
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
    else if (!code) code = fill_packed(d, s, b, to, &p, r, e);
    xfree(p.p);
    return code;
}

/* Tokens of a row that is filled; what was read is wanted no more. */
static void hide(const struct dataset *d, struct batch *b, int64_t row, uint64_t seed, int64_t sample, struct room *r)
{
    int64_t at = row * b->seq_len;
    if (d->mlm.rate > 0) b->n_trained += mlm_apply(&d->mlm, seed, sample, b->tokens + at, b->targets + at, b->seq_len);
    if (d->prefix_rate > 0)
        b->n_trained -= prompt_cut(d->prefix_rate, seed, sample, b->documents + at, b->targets + at, b->seq_len);
    if (d->spans.seq) b->n_trained += spans_apply(&d->spans, seed, sample, b->tokens + at, b->targets + at, r->ids);
}

static int fill_sample(const struct dataset *d, int64_t k, struct batch *b, int64_t row, struct room *r, struct err *e)
{
    struct place to = {.row = row};
    int code = OK;
    if (d->sides.encoder) {
        int source;
        int64_t epoch, record;
        dataset_where(d, k, &source, &epoch, &record);
        return fill_sides(d, source, record, b, row, e);
    }
    no_pictures(d, b, row);
    if (d->pairs) {
        int source;
        int64_t epoch, document;
        dataset_where(d, k, &source, &epoch, &document);
        code = fill_pair(d, source, document, k % 2, b, &to, r, e);
    }
    for (int64_t j = 0; !d->pairs && j < d->parts && !code; j++) {
        int source;
        int64_t epoch, sample;
        uint64_t shuffle;
        r->order = dataset_part(d, k, j);
        dataset_where(d, r->order, &source, &epoch, &sample);
        if (sample >= 0) code = fill_part(d, source, sample, shuffle_of(d, source, epoch, &shuffle), b, &to, r, e);
    }
    if (!code) pad_row(d, b, &to);
    if (!code) hide(d, b, row, d->seed, k, r);
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
        b->segments[at + i] = 0;
    }
    if (!b->n_pixels) return;
    for (int64_t i = 0; i < s; i++) b->patches[at + i] = -1;
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
    if (d->sees) return fill_images(d, step * global_batch + first, b, e);
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

/* Sample k of the list into a row. What lies behind the end of its source repeats the last token and is no target. */
static int eval_row(const struct dataset *d, const int64_t of_all, struct batch *b, int64_t row, struct room *r,
                    struct err *e)
{
    int source = 0;
    int64_t k = of_all;
    while (k >= eval_samples_of(d, source)) k -= eval_samples_of(d, source++);
    if (d->sees) return fill_image(d, source, k, k, b, row, e);
    if (d->sides.encoder) return fill_sides(d, source, k, b, row, e);
    struct place to = {.row = row};
    no_pictures(d, b, row);
    if (!d->joined) {
        int failed =
            d->pairs ? fill_pair(d, source, k / 2, k % 2, b, &to, r, e) : fill_part(d, source, k, NULL, b, &to, r, e);
        if (!failed) pad_row(d, b, &to);
        if (!failed) hide(d, b, row, 0, of_all, r);
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
    for (int64_t i = n; d->spans.seq && i < d->seq_len; i++) b->targets[row * d->seq_len + i] = -1;
    hide(d, b, row, 0, of_all, r);
    return OK;
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
        int64_t at = place_of(d, i * global_batch + first + row, n, all);
        if (at < 0) blank_row(b, row);
        else code = eval_row(d, at, b, row, &r, e);
    }
    room_free(&r);
    return code;
}

bool dataset_has_pairs(const struct dataset *d) { return d->pairs; }

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
        const struct stream *s = &d->streams[i];
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
    const struct stream *s = &d->streams[source];
    if (d->sides.encoder) { /* what is read of it */
        int64_t begin, end;
        int failed = tokenfile_document(&s->file, sample, &begin, &end, e);
        if (failed) return failed;
        *out = (struct cuts_pieces){xmalloc(sizeof *out->p), 1};
        out->p[0] = (struct cuts_piece){sample, begin, end - begin};
        return OK;
    }
    int code = cuts_pieces(&s->cuts, sample, shuffle_of(d, source, epoch, &shuffle), out, e);
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
    double places = (double)((c->n + d->group - 1) / d->group * d->group) * (double)c->rule.seq;
    return 1 - (double)(c->n_inputs + d->streams[source].n_read) / places;
}

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
