/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_impl.h: what the files of dataset.h share. Includes: base, data, remote. Order: Local. */
#ifndef TUTTI_DATA_DATASET_IMPL_H
#define TUTTI_DATA_DATASET_IMPL_H

#include "data/dataset.h"
#include "data/dataset_mix.h"
#include "data/image_index.h"
#include "data/sampler.h"
#include "data/tokenfile.h"

/* A source that is open. */
struct sample_stream {
    struct tokenfile file;
    struct cuts cuts;           /* of pictures only n and n_inputs */
    struct tokenfile rejected;  /* of pairs: file has the chosen answers */
    struct tokenfile written;   /* of two sides: file has what is read, */
    int64_t n_read;             /* so many tokens of all samples */
    struct image_index *images; /* NULL: texts */
    int32_t *labels;            /* of its documents; NULL: they have none */
    struct held_out held;       /* of the file that it was before; of n 0: nothing is held out */
    char *image;                /* which members of a shard's sample are its pictures; NULL: all that are images */
};

struct dataset {
    struct sample_stream *streams;
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
    struct taken_spans spans; /* of no seq: none are taken out */
    struct sides_rule sides;
    int64_t classes;
    int32_t begin;      /* comes before a text of a class; -1: nothing does */
    struct tokens lead; /* what the tokenizer puts before a text: like ends it is never hidden */
    struct image_rule images;
    struct text_pictures_rule pictures; /* of texts */
    bool sees;                          /* samples are pictures with a class */
};

/* -- dataset_options.c ---------------------------------------------------------------------------------------- */

int dataset_check(const struct dataset_options *o, struct err *e);

/* -- dataset_stream.c ----------------------------------------------------------------------------------------- */

/* Of checked options; in any case stream_close. *objects is made where the first source wants it. */
int stream_open(struct sample_stream *s, struct remote **objects, const struct dataset_source *source,
                const struct mix_source *about, const struct dataset_options *o, struct err *e);
void stream_close(struct sample_stream *s);

/* -- dataset_order.c ------------------------------------------------------------------------------------------ */

/* What deals out a window's pieces in this epoch; NULL: nothing does. */
const uint64_t *dataset_shuffle(const struct dataset *d, int source, int64_t epoch, uint64_t *room);

/* -- dataset_rows.c ------------------------------------------------------------------------------------------- */

/* What rows are made in; trains: those of the order of training. */
struct row_work *row_work_new(const struct dataset *d, bool trains);
void row_work_free(struct row_work *w);
/* Sequence k of the order of training as a row. Adds to b->n_trained and b->n_padded, like row_of_list. */
int row_of_order(const struct dataset *d, int64_t k, struct batch *b, int64_t row, struct row_work *w, struct err *e);
/* Sample k of a source, which is `place` in the list of evaluation. */
int row_of_list(const struct dataset *d, int source, int64_t k, int64_t place, struct batch *b, int64_t row,
                struct row_work *w, struct err *e);
/* A sequence that does not exist. */
void row_blank(struct batch *b, int64_t row);

#endif
