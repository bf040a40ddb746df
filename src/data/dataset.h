/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.h: token files → batches. Data order is f(seed, step): nothing is stored, nothing depends on ranks.
 *
 * How a source is cut into samples is a rule (cuts.h): joined, where a source of n tokens holds (n - 1) / seq_len
 * samples and sample i is tokens [i*seq_len, i*seq_len + seq_len], both ends included: seq_len inputs, and the same
 * shifted by one as targets (what is left at the end, less than a sample, is not used); or packed, where a sample holds
 * whole documents, or pieces of long ones, each a document of its own with positions from 0, and padding behind them:
 * the end-of-text id, without a target, each a document of its own. A token whose bit in the file's loss mask is 0 is
 * no target.
 *
 * Where tokens are hidden or classes told, a target is no next token: of hidden ones (mlm.h) it is what a place held.
 * Of classes a sample is one document, or a piece of a long one: the token that begins, its text, an end of text where
 * there is room for both; the first place has its class as target. What stands behind the first end of text in the
 * document, written there to part a pair, is of segment 1. Masks of evaluation do not depend on seed.
 *
 * A sample may be joined of several parts, of several sources: then a part is what was said of a sample, with
 * seq_len / parts tokens, and the order of sampler.h is one of parts. Sample k has the parts k*parts .. k*parts + parts
 * - 1 of it, which stand in an order drawn from (seed, k). In a sample of joined documents each part begins a document;
 * packed ones stand one behind the other, and all padding is at the end.
 *
 * Of two texts a record, one read and one written (sides), a sample of the order is a record (sides.h).
 *
 * Of preferences (pairs) a source is read twice, for the chosen and for the rejected answers, document for document; a
 * sample of the order is a pair, which is two sequences of a batch, the chosen one first, each one whole document.
 *
 * Step s trains on the samples s*G .. s*G + G - 1, G the global batch; a rank takes some of them, [first, first +
 * count), so any split over ranks trains on the same sequences.
 *
 * Invariants: 1. any number of threads may read an open dataset at once; 2. the same options and files give the same
 * batches, whatever was read before; 3. tokens are compared with their checksums before they are handed out the first
 * time. Includes: base, batch.h, cuts.h, tokenizer.h. Order: Local (ranks that open the same cache_dir wait for one of
 * them).
 */
#ifndef TUTTI_DATA_DATASET_H
#define TUTTI_DATA_DATASET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/batch.h"
#include "data/cuts.h"
#include "data/fim.h"
#include "data/held_out.h"
#include "data/image_fill.h"
#include "data/mlm.h"
#include "data/sides.h"
#include "data/taken_spans.h"
#include "data/text_pictures.h"
#include "remote/remote.h"
#include "token/tokenizer.h"

/* A source's weight from this step on. */
struct dataset_point {
    int64_t step;
    double weight; /* >= 0 */
};

struct dataset_source {
    const char *path;                   /* a file or folder of texts (source.h), or the prefix of a token file; or an
                                           address of such (remote/remote.h), of a token file with its .tok. Of
                                           pictures: image_index.h, or a metadataset (energon_mix.h) */
    const char *column;                 /* the member or column that is the text; NULL: "text" */
    double weight;                      /* share of the samples, relative to the others': */
    const struct dataset_point *points; /* where there are some, instead of weight: by rising step; before the first its
                                           weight holds, too */
    int n_points;
    bool skip_bad;      /* bad records are listed and skipped; else they are errors (source.h) */
    const char *chat;   /* template of conversations (chat.h); NULL: texts */
    int train_on;       /* enum chat_train_on */
    const char *date;   /* that the template may ask for (chat.h); NULL: none */
    const char *label;  /* the member of its records that is their class; NULL: they have none */
    const char *target; /* of pairs of texts: the member that is written, where column is what is read; else NULL */
};

struct dataset_options {
    const struct dataset_source *sources;
    int n_sources;
    const struct tokenizer *tokenizer; /* borrowed during open only */
    struct fim_rule fim;     /* of training samples; with a rate > 0 the tokenizer is borrowed until closing */
    double prefix_rate;      /* of documents whose beginning is not trained (prompt_cut.h) */
    struct span_rule spans;  /* with a rate > 0 samples are what taken_spans.h makes of joined documents of one part */
    struct sides_rule sides; /* with an encoder: every source is pairs of texts (sides.h), a sample is one of them */
    struct mlm_rule mlm;     /* with a rate > 0 targets are hidden tokens of a sample (mlm.h), not the next ones */
    bool pairs;        /* sources are records of preferences (chat.h), with a template each; padded, of one part */
    bool scores;       /* with pairs: of each the last token alone is a target, column 0 (a reward model's): the end
                          of text where that is the answer's own, else the token before it; */
    bool end_unread;   /* or that in any case */
    int64_t classes;   /* > 0: every source has labels, each of so many classes, documents are padded, and a sample has
                          one target, its class, at its first place */
    const char *begin; /* of such samples: the token that comes first; NULL: [CLS], where the tokenizer has it */
    const char *tokenizer_path; /* what it was opened by, for chat: tokenizer; NULL: not known */
    int64_t seq_len;
    uint64_t seed;
    bool shuffled;            /* else every source in file order */
    bool reset_positions;     /* positions start at 0 in every document */
    bool mask_boundaries;     /* the first token of a document is no target: -1 after an end of text */
    enum pack_kind pack;      /* other than joined: as if both of the above were true */
    int64_t window;           /* documents that are packed together; 0: 4096 */
    struct image_rule images; /* with a size: every source is pictures (image_index.h), and a sample is one of them with
                                 its class; tokenizer may be NULL then, and seq_len is what the model makes of one */
    struct text_pictures_rule pictures; /* with patches: sources are texts whose shards have pictures, seen by `images`;
                                           documents are whole, so packed ones are no longer than seq_len */
    int64_t parts;                      /* of which a sample is joined; divides seq_len; 0 or 1: it is one */
    int64_t group;        /* so many samples that come one after the other are of one source and of like length; 0: as
                             they come. Divides global_batch; not with parts */
    int64_t global_batch; /* what a step is, for points; 0: there are none */
    bool ramps;           /* between two points a weight moves in a line; else it jumps at the second */
    struct held_out_rule held; /* with a share every source is texts, of which this side is read (held_out.h) */
    const char *cache_dir;     /* where texts are tokenized to */
    const struct remote_options *remote; /* how addresses are read; NULL: as remote_defaults has it */
    /* Other than 0: what takes long ends with ERR_SIGNAL, nothing half done is left; NULL: never. */
    const atomic_int *give_up;
};

/* -- create ------------------------------------------------------------------------------------------------- */

struct dataset;
/* What options refuse before any file is opened, tokenizer not asked: ERR_REQUEST. */
int dataset_options_check(const struct dataset_options *o, struct err *e);
int dataset_open(struct dataset **d, const struct dataset_options *o, struct err *e);
void dataset_close(struct dataset *d); /* NULL is fine */
/* Of pieces of objects behind addresses, in memory from opening to closing; 0: it has none. */
size_t dataset_object_bytes(const struct dataset *d);
/* Keeps them in the caller's memory from now on, until it is closed. Nobody reads it. */
void dataset_objects_in(struct dataset *d, void *memory);

/* -- train -------------------------------------------------------------------------------------------------- */

/* Sample k of the order, where documents are joined and samples are one part: seq_len + 1 tokens. */
int dataset_sample(const struct dataset *d, int64_t k, int32_t *tokens, struct err *e);
/* Sequences [first, first + b->n_seqs) of step's global_batch. */
int dataset_batch(const struct dataset *d, int64_t step, int64_t global_batch, int64_t first, struct batch *b,
                  struct err *e);

/* -- evaluate ----------------------------------------------------------------------------------------------- */

/* What is evaluated is a function of the files, seq_len, global_batch and `most` alone: not of seed, ranks or weights.
 * The list of samples is all of all sources, one after the other; here the last one of a source also counts when it is
 * short, with targets of -1 after its end, so that each token after the first of a source is a target once. Of this
 * list `most` batches are taken at equal distances, from the first source to the last; 0, or more than there are: every
 * sample once. In the last batch, sequences that do not exist have targets of -1. Samples are of one part. */
int64_t dataset_eval_batches(const struct dataset *d, int64_t global_batch, int64_t most);
int dataset_eval_batch(const struct dataset *d, int64_t i, int64_t global_batch, int64_t most, int64_t first,
                       struct batch *b, struct err *e);
bool dataset_has_pairs(const struct dataset *d);
/* Of pairs: the place in the list of evaluation of sequence k of the order of training, and how many places it has. */
int64_t dataset_pair_place(const struct dataset *d, int64_t k);
int64_t dataset_n_places(const struct dataset *d);
/* The place of the j-th sequence of all of dataset_eval_batches; -1: it does not exist. Pairs stay together. */
int64_t dataset_eval_place(const struct dataset *d, int64_t j, int64_t global_batch, int64_t most);
int64_t dataset_eval_tokens(
    const struct dataset *d); /* targets in all samples; with masked boundaries at most so many */

/* -- inspect ------------------------------------------------------------------------------------------------ */

int64_t dataset_seq_len(const struct dataset *d);
int64_t dataset_pixels(const struct dataset *d);    /* values of a sample's pictures; 0: it has none */
bool dataset_sees(const struct dataset *d);         /* its samples are pictures with a class */
int64_t dataset_n_tokens(const struct dataset *d);  /* of all sources */
int64_t dataset_n_samples(const struct dataset *d); /* of all sources: one epoch */
/* What comparing the tokens with their checksums has cost so far: bytes, and seconds of whoever read them. */
void dataset_cost(const struct dataset *d, int64_t *bytes, double *seconds);
/* Of what is trained on: sizes, tokenizer, and the checksums of all tokens, which are compared with the tokens when
 * these are read. Ranks compare it, since files of one name can differ between hosts; a run that goes on compares it
 * with its checkpoint's. */
uint64_t dataset_fingerprint(const struct dataset *d);
/* Of packed documents, where each of them ends; 0 where they are joined. Beside the other, since checkpoints of earlier
 * versions have only that. */
uint64_t dataset_ends_fingerprint(const struct dataset *d);
int64_t dataset_parts(const struct dataset *d); /* of a sample; at least 1 */
/* The part that stands at place j of a sample, 0 <= j < parts: its number in the order. With one part it is the sample.
 */
int64_t dataset_part(const struct dataset *d, int64_t sample, int64_t j);
/* Where part k of the order comes from, of pairs sequence k: source, epoch, sample in the source; -1: none, an empty
 * one at the end of an epoch that fills its last group. For reports and tests. */
void dataset_where(const struct dataset *d, int64_t k, int *source, int64_t *epoch, int64_t *sample);
/* What part k of the order is made of, piece after piece; none of an empty one. Where documents are joined, a piece
 * ends with its document if the file knows where that is (tokenfile_has_ends). xfree out->p. */
int dataset_pieces(const struct dataset *d, int64_t k, struct cuts_pieces *out, struct err *e);
/* Where an option's source is a metadataset of Megatron-Energon, each folder that it puts together is a source. */
int dataset_n_sources(const struct dataset *d);
const char *dataset_source_name(const struct dataset *d, int source);      /* as it was named, without what is secret */
const struct tokenfile *dataset_file(const struct dataset *d, int source); /* of texts */
struct image_index *dataset_images(const struct dataset *d, int source);   /* of pictures; NULL: it is texts */
const struct image_rule *dataset_image_rule(const struct dataset *d);
const struct cuts *dataset_cuts(const struct dataset *d, int source);
/* Of the first k parts of the order, those of this source (padding of groups counted), and how often that is all of
 * it. A pure function, O(log sources). */
int64_t dataset_used(const struct dataset *d, int64_t k, int source, double *epochs);
/* Share of positions that are padding in an epoch of this source. */
double dataset_padding(const struct dataset *d, int source);

#endif
