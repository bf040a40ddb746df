/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_stream.c: a source becomes files that samples are read from: tokens that were made before, here or behind an
 * address, texts that are tokenized into the cache, or the places of pictures; and is cut into samples. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "data/dataset_impl.h"
#include "data/energon_texts.h"
#include "data/labels.h"
#include "data/megatron.h"
#include "data/tokenize.h"
#include "source/blob_remote.h"
#include "source/brace.h"
#include "source/source.h"

enum { USUAL_WINDOW = 4096 };

/* Texts that were tokenized before documents began with what the tokenizer puts there, or elsewhere. Conversations are
 * begun by their template. */
static int check_begin(const struct tokenfile *f, const struct tokenizer *t, const char *path, struct err *e)
{
    const struct tokens *begin = tokenizer_begin(t);
    int32_t first[16];
    if (!begin->n || begin->n > 16 || f->n_tokens < begin->n || tokenfile_masked(f)) return OK;
    int code = tokenfile_read(f, 0, begin->n, first, e);
    if (!code && memcmp(first, begin->ids, to_size(begin->n) * sizeof *first) != 0)
        log_warn("data: %s: its documents do not begin with %s, which the tokenizer puts before a text, and a model "
                 "that is "
                 "asked will see it there; tokenize the text again",
                 path, tokenizer_piece(t, begin->ids[0], NULL));
    return code;
}

static int check_tokenizer(const struct tokenfile *f, const struct tokenizer *t, const char *path, struct err *e)
{
    bool same = f->head.fingerprint == tokenizer_fingerprint(t);
    if (same && f->head.eos != tokenizer_eos(t))
        return err_set(e, ERR_REQUEST,
                       "%s: separates documents with id %d, the tokenizer's end of text is %d; tokenize the text again",
                       path, f->head.eos, tokenizer_eos(t));
    if (same) return check_begin(f, t, path, e);
    return err_set(e, ERR_REQUEST,
                   "%s: was made with another tokenizer (vocabulary of %d, wanted %d); tokenize the text again, or "
                   "name the tokenizer it was made with",
                   path, f->head.vocab, tokenizer_vocab(t));
}

/* A file of an older version does not say where its documents end: it is read through, which is said. */
static int find_documents(struct sample_stream *s, const atomic_int *give_up, struct err *e)
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

/* A file of which no token is trained would make steps that do nothing. Mostly the first piece tells. */
static int check_trained(const struct tokenfile *f, const char *path, struct err *e)
{
    enum { PIECE = 64 << 10 };
    if (!tokenfile_masked(f)) return OK;
    unsigned char *trained = xmalloc(PIECE);
    bool any = false;
    int code = OK;
    for (int64_t at = 0; at < f->n_tokens && !any && !code; at += PIECE) {
        int64_t n = f->n_tokens - at < PIECE ? f->n_tokens - at : PIECE;
        code = tokenfile_mask(f, at, n, trained, e);
        any = !code && memchr(trained, 1, (size_t)n);
    }
    xfree(trained);
    if (code || any) return code;
    return err_set(e, ERR_REQUEST,
                   "%s: none of its %lld tokens is trained: no conversation in it has an answer of the assistant whose "
                   "weight is not 0; train_on: all takes a loss of everything",
                   path, (long long)f->n_tokens);
}

static int64_t part_length(const struct dataset_options *o) { return o->seq_len / (o->parts ? o->parts : 1); }

static int cut_stream(struct sample_stream *s, const char *path, const struct dataset_options *o, struct err *e)
{
    int64_t seq = part_length(o);
    struct cuts_rule rule = {o->pack, seq, o->window ? o->window : USUAL_WINDOW, o->group > 0};
    int code = check_trained(&s->file, path, e);
    if (!code) code = o->pack == PACK_JOINED ? OK : find_documents(s, o->give_up, e);
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
static int open_object(struct tokenfile *f, struct remote **objects, const char *url, const struct dataset_options *o,
                       struct err *e)
{
    struct remote_about about;
    struct fs_file file;
    if (!*objects) *objects = remote_new(o->remote);
    int code = remote_look(*objects, url, &about, e);
    if (!code) code = file_of_object(&file, *objects, url, &about, e);
    return code ? code : tokenfile_open_file(f, &file, e);
}

/* Texts that are tokenized into the cache, or were. */
static int open_tokenized(struct tokenfile *f, const char *path, const struct tokenize_input *how,
                          const struct dataset_options *o, struct err *e)
{
    char *file = NULL;
    int code = tokenize_cached(o->tokenizer, path, how, o->cache_dir, o->give_up, &file, e);
    if (!code) code = tokenfile_open(f, file, e);
    xfree(file);
    return code;
}

/* Both sides of every record are whole samples, so that document i of one file and of the other are a pair. */
static int check_pairs(const struct sample_stream *s, const char *path, const struct dataset_options *o, struct err *e)
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
static int check_whole(const struct sample_stream *s, const char *path, const struct dataset_options *o, struct err *e)
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

/* A file's side of what is held out. */
static int hold_out(struct sample_stream *s, struct tokenfile *f, const struct dataset_options *o, struct err *e)
{
    if (!(o->held.share > 0)) return OK;
    int code = tokenfile_has_ends(f) ? OK : tokenfile_find_ends(f, o->give_up, e);
    if (!code && !s->held.n) code = held_out_choose(&s->held, f, &o->held, o->give_up, e);
    if (!code && s->held.n < 2 && (o->pairs || o->sides.encoder || o->classes))
        code = err_set(e, ERR_REQUEST, "%s: is one record, of which no share can be held out", f->path);
    if (!code) code = held_out_take(f, &s->held, &o->held, o->cache_dir, o->give_up, e);
    return code ? err_prefix(e, "data.valid: a share of data.train") : OK;
}

/* Of labels of all documents those of the side that is read. */
static void keep_labels(const struct sample_stream *s, bool valid)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->held.n; i++)
        if ((s->held.of[i] != 0) == valid) s->labels[n++] = s->labels[i];
}

static int open_rejected(struct sample_stream *s, const struct dataset_source *source, const char *path,
                         struct tokenize_input *how, const struct dataset_options *o, struct err *e)
{
    how->chat.side = CHAT_REJECTED;
    int code = open_tokenized(&s->rejected, source->path, how, o, e);
    if (!code) s->rejected.made_from = xstrdup(path);
    if (!code) code = hold_out(s, &s->rejected, o, e);
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
static int open_written(struct sample_stream *s, const struct dataset_source *source, const char *path,
                        struct tokenize_input *how, const struct dataset_options *o, struct err *e)
{
    int64_t filled[2];
    how->column = source->target;
    int code = open_tokenized(&s->written, source->path, how, o, e);
    if (!code) code = hold_out(s, &s->written, o, e);
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
                                    .side = o->pairs ? CHAT_CHOSEN : CHAT_PLAIN,
                                    .day = source->chat ? source->date : NULL};
    if (!o->pictures.patches) return;
    if (!source->chat) how->chat.template_name = "plain";
    how->chat.patches = o->pictures.patches;
    how->chat.image_token = o->pictures.token;
    how->chat.pictures = o->pictures.most;
}

/* What a file of tokens cannot have: it was made of records, which are gone. */
static int check_made(const struct dataset_source *source, const char *path, const struct dataset_options *o,
                      struct err *e)
{
    if (source->column)
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no column \"%s\"; leave the column out", path,
                       source->column);
    if (source->label)
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no classes of its texts; name the .jsonl file",
                       path);
    if (source->target)
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no pairs of texts; name the .jsonl file", path);
    if (o->pictures.patches)
        return err_set(e, ERR_REQUEST, "%s: is a token file, which has no pictures; name the shards (.tar)", path);
    if (source->chat)
        return err_set(e, ERR_REQUEST,
                       "%s: is a token file, made already: chat and train_on are for tutti data tokenize", path);
    return OK;
}

static int check_there(const char *path, struct err *e)
{
    char plain[320];
    if (!fs_absent(path) || brace_has(path)) return OK;
    snprintf(plain, sizeof plain, "no such file or folder, and no token file %.120s.tok or %.120s.bin and .idx", path,
             path);
    return source_missing(path, plain, e);
}

/* path: what may be said of the source's. */
static int open_texts(struct sample_stream *s, struct remote **objects, const struct dataset_source *source,
                      const char *path, const struct dataset_options *o, struct err *e)
{
    bool address = remote_is(source->path);
    char *file = address ? str_ends(path, ".tok") ? xstrdup(path) : NULL : tokenfile_find(path);
    char *megatron = file || address ? NULL : megatron_find(path);
    bool cached = !file;
    int code = file || megatron ? check_made(source, path, o, e) : address ? OK : check_there(path, e);
    struct tokenize_input how = {.column = source->column, .remote = o->remote, .skip_bad = source->skip_bad};
    if (o->sides.encoder && !how.column) how.column = "input";
    text_rules(&how, source, o);
    if (!code && megatron) code = megatron_cached(o->tokenizer, megatron, o->cache_dir, o->give_up, &file, e);
    else if (!code && !file)
        code = tokenize_cached(o->tokenizer, source->path, &how, o->cache_dir, o->give_up, &file, e);
    if (!code && address && !cached) code = open_object(&s->file, objects, source->path, o, e);
    else if (!code) code = tokenfile_open(&s->file, file, e);
    if (!code && cached) s->file.made_from = xstrdup(path);
    xfree(file);
    xfree(megatron);
    if (!code) code = check_tokenizer(&s->file, o->tokenizer, path, e);
    if (!code && address && !cached && o->held.share > 0)
        code = err_set(e, ERR_REQUEST,
                       "%s: is a token file behind an address, of which no share is held out (data.valid); copy it, or "
                       "name text to validate on",
                       path);
    if (!code) code = hold_out(s, &s->file, o, e);
    if (!code) code = o->sides.encoder ? open_written(s, source, path, &how, o, e) : cut_stream(s, path, o, e);
    if (!code && o->pictures.patches) code = check_whole(s, path, o, e);
    if (!code && o->pairs) code = open_rejected(s, source, path, &how, o, e);
    if (code || !o->classes) return code;
    struct source_options records = {.column = source->column, .remote = o->remote, .skip_bad = source->skip_bad};
    int64_t n = s->held.n ? s->held.n : s->file.n_documents;
    code = labels_read(source->path, &records, source->label, o->classes, n, &s->labels, e);
    if (!code) keep_labels(s, o->held.valid);
    return code;
}

/* A folder of Megatron-Energon with texts about pictures, by itself or as part of a metadataset. */
static int open_folder(struct sample_stream *s, const struct dataset_source *source, const struct mix_source *about,
                       const struct dataset_options *o, struct err *e)
{
    struct energon_texts t;
    struct energon_ref own = {.folder = source->path, .part = o->images.part};
    struct tokenize_input how = {.column = source->column, .skip_bad = source->skip_bad};
    text_rules(&how, source, o);
    int code = energon_texts_open(&t, about->leaf ? about->leaf->ref : &own, e);
    if (!code) {
        how.shards = t.shards;
        how.n_shards = to_int(t.folder.n);
        how.fields = &t.fields;
        s->image = xstrdup(t.fields.image);
        code = open_tokenized(&s->file, about->name, &how, o, e);
    }
    energon_texts_free(&t);
    if (!code) s->file.made_from = xstrdup(about->name);
    if (!code) code = check_tokenizer(&s->file, o->tokenizer, about->name, e);
    if (!code) code = cut_stream(s, about->name, o, e);
    return code ? code : check_whole(s, about->name, o, e);
}

static int open_images(struct sample_stream *s, const struct dataset_source *source, const struct mix_source *about,
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

int stream_open(struct sample_stream *s, struct remote **objects, const struct dataset_source *source,
                const struct mix_source *about, const struct dataset_options *o, struct err *e)
{
    s->file.file.fd = s->rejected.file.fd = s->written.file.fd = -1;
    if (o->images.view.size && !o->pictures.patches) return open_images(s, source, about, o, e);
    if (about->leaf || (o->pictures.patches && energon_is(source->path))) return open_folder(s, source, about, o, e);
    return open_texts(s, objects, source, about->name, o, e);
}

void stream_close(struct sample_stream *s)
{
    image_index_close(s->images);
    xfree(s->labels);
    xfree(s->image);
    held_out_free(&s->held);
    cuts_close(&s->cuts);
    tokenfile_close(&s->file);
    tokenfile_close(&s->rejected);
    tokenfile_close(&s->written);
}
