/* SPDX-License-Identifier: Apache-2.0 */
/* decoding_impl.h: what a decoding is made of, for the files that make it up. */
#ifndef TUTTI_RUN_DECODING_IMPL_H
#define TUTTI_RUN_DECODING_IMPL_H

#include "parallel/run.h"
#include "run/cache_pages.h"
#include "run/decoding.h"
#include "run/decoding_ranks.h"
#include "tape/program.h"

enum { SIZES = 12 }; /* 2^11 rows at most */

struct sized { /* recorded for so many rows, of which so many are wanted */
    struct tape *tape;
    struct program *program;
    bool agreed; /* all ranks have it */
};

struct sequence {
    bool open;                   /* all ranks are at work */
    int64_t fed, n_pages, known; /* pages of it that were told to cache_pages */
    int64_t prompt;              /* its first tokens that see each other, which come in one part; 0: none do */
    int64_t least;               /* tokens that it will have at least */
    bool longer;                 /* what it has was turned as in long texts (model_turns_by_length) */
    int32_t *page, *ids;
    int64_t n_read, n_read_pages; /* of encoder and decoder: tokens that were read */
    int32_t *read;                /* their pages */
};

struct decoding {
    struct device *dev;
    struct stream *stream;
    struct kernel_table kernels;
    struct model_config model;
    struct param_table params;
    struct store store;
    struct par par;
    const struct decoding_ranks *ranks; /* NULL: alone */
    struct par_run collectives;
    struct model_stage part;
    bool open; /* on all ranks */
    enum dtype dtype;
    struct {
        int64_t page, pages, sequences, most; /* places of a page; pages, sequences, pages of a sequence */
    } cache;
    int64_t room, rows, room_rows; /* positions; rows of a step, and of its largest program */
    bool reuse;
    struct sized sized[SIZES][SIZES];
    struct buffer keys, rope, data, logits, scratch, stage_in, stage_out, gathered; /* gathered: logits of tp's ranks */
    void **slot;
    float *host_logits;
    int32_t *host;   /* tokens, positions, wanted [room_rows] each, runs, reads: what is copied to the device */
    int32_t *packed; /* the same without what is not used: what ranks are told */
    struct {
        int64_t n, rows;          /* pictures, and what they became: rows of the stream */
        struct buffer stream, at; /* those; which of them each token of a step is */
        int32_t *host;            /* at */
    } pictures;
    struct reading {
        int64_t n; /* tokens that the program is for */
        struct tape *tape;
        struct program *program;
        struct buffer ids, act, made; /* made: keys, values of each of the decoder's layers, [n, columns] */
    } reading;
    struct sequence *seq;
    struct cache_pages *pages;
    int64_t eos[HF_EOS];
    int n_eos;
    int32_t start;
};

/* Whether a layer has keys and values in pages. */
bool decoding_keeps(const struct decoding *d, int64_t layer);
size_t decoding_table_at(const struct decoding *d, int64_t layer, bool second);
int decoding_grow(struct decoding *d, struct buffer *b, enum mem_cat cat, size_t bytes, struct err *e);

/* decoding_read.c: what the leader's decoding_read makes of every rank, the pages of its call in d->packed behind the
 * tokens; the sequence's pages are returned; what is held for reading is freed. */
int decoding_follow_read(struct decoding *d, const struct decoding_call *c, struct err *e);
void decoding_unread(struct decoding *d, struct sequence *q);
void decoding_reading_fini(struct decoding *d);

/* decoding_pictures.c: which tokens of a step are patches; frees what is held of pictures. */
void decoding_lay_patches(struct decoding *d, const struct decoding_part *part, int n_parts);
void decoding_pictures_fini(struct decoding *d);

#endif
