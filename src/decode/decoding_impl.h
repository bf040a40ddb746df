/* SPDX-License-Identifier: Apache-2.0 */
/* decoding_impl.h: what a decoding is made of, and what each of its files does for the others. Floor 8. */
#ifndef TUTTI_DECODE_DECODING_IMPL_H
#define TUTTI_DECODE_DECODING_IMPL_H

#include "parallel/run.h"
#include "decode/cache_pages.h"
#include "decode/decoding.h"
#include "decode/decoding_ranks.h"
#include "program/program.h"
#include "tape/tape.h"

enum { SIZES = 12 }; /* 2^11 rows at most */

struct sized { /* recorded for so many rows, of which so many are wanted */
    struct tape *tape;
    struct program *program;
    bool agreed; /* all ranks have it */
};

struct page_list {
    int32_t *page;
    int64_t n;
};

struct sequence {
    bool open;
    int64_t fed, known;    /* tokens; pages of them that were told to cache_pages */
    int64_t prompt;        /* its first tokens that see each other, which come in one part; 0: none do */
    int64_t least;         /* tokens that it will have at least */
    bool longer;           /* what it has was turned as in long texts (model_turns_by_length) */
    struct page_list text; /* of its tokens */
    int32_t *ids;
    int64_t n_read;        /* of encoder and decoder: tokens that were read */
    struct page_list read; /* theirs */
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

/* decoding.c: at least so many bytes, and what was in it is gone where it grows; a place in a buffer, NULL where it has
 * no memory. */
int decoding_grow(struct decoding *d, struct buffer *b, enum mem_cat cat, size_t bytes, struct err *e);
void *decoding_place(const struct buffer *b, size_t at);

/* decoding_cache.c: fills d->cache, by d->room; bytes of this rank's tables; where a layer's first or second one
 * begins; this rank's bytes of a page, or what its layers with states keep of a sequence, once more for another one. */
int decoding_size_cache(struct decoding *d, const struct decoding_options *o, const struct model_stage *stage,
                        struct err *e);
size_t decoding_cache_bytes(const struct decoding *d);
size_t decoding_table_at(const struct decoding *d, int64_t layer, bool second);
void decoding_copy_page(struct decoding *d, int64_t from, int64_t to);
void decoding_copy_kept(struct decoding *d, int64_t from, int64_t to);

/* decoding_sequences.c: the one that is open; pages up to n, or down to it. Around a step: pages for n more tokens that
 * may be written; then it has the part's tokens, and pages that became full are known. */
void decoding_sequences_new(struct decoding *d);
void decoding_sequences_free(struct decoding *d);
struct sequence *decoding_sequence(const struct decoding *d, int s);
int decoding_pages_take(struct decoding *d, struct page_list *l, int64_t n, struct err *e);
void decoding_pages_return(struct decoding *d, struct page_list *l, int64_t n);
int decoding_make_room(struct decoding *d, struct sequence *q, int64_t n, struct err *e);
void decoding_went_on(struct decoding *d, const struct decoding_part *p);

/* decoding_turns.c: how a text of n tokens turns; before a step, its sequence turns as it will with this part. */
bool decoding_turns_longer(const struct decoding *d, int64_t n);
int decoding_turn(struct decoding *d, const struct decoding_part *p, struct err *e);

/* decoding_programs.c: rows up to the power of 2; the program for so many rows and wanted ones, with scratch and room
 * for logits; the same on all ranks: all have it, or none goes on. */
int64_t decoding_filled(int64_t rows);
int decoding_program(struct decoding *d, int64_t rows, int64_t wanted, struct program **out, struct err *e);
int decoding_program_of_all(struct decoding *d, int64_t rows, int64_t wanted, struct program **out, struct err *e);
void decoding_programs_free(struct decoding *d);

/* decoding_words.c: d->data, d->host and their slots; what a step of these parts reads; told to the other ranks, and
 * heard there. */
int decoding_words_new(struct decoding *d, struct err *e);
void decoding_words_free(struct decoding *d);
void decoding_lay_words(struct decoding *d, const struct decoding_part *part, int n_parts);
int decoding_tell_step(struct decoding *d, struct decoding_call *c, struct err *e);
int decoding_hear_step(struct decoding *d, const struct decoding_call *c, struct err *e);

/* decoding_logits.c: room for those of so many rows; from all ranks that have the head to the leader's d->host_logits.
 */
int decoding_logits_room(struct decoding *d, int64_t rows, struct err *e);
void decoding_logits_bring(struct decoding *d, int64_t rows);
void decoding_logits_free(struct decoding *d);

/* decoding_step.c: whether ids are the model's; decoding_step without its checks, turned as the sequences are. */
int decoding_check_ids(const struct decoding *d, const int32_t *ids, int64_t n, struct err *e);
int decoding_feed(struct decoding *d, const struct decoding_part *part, int n_parts, const float **logits_RV,
                  struct err *e);

/* decoding_read.c: what the leader's decoding_read makes of every rank, the pages of its call in d->packed behind the
 * tokens; the sequence's pages are returned; what is held for reading is freed. */
int decoding_follow_read(struct decoding *d, const struct decoding_call *c, struct err *e);
void decoding_unread(struct decoding *d, struct sequence *q);
void decoding_reading_fini(struct decoding *d);

/* decoding_pictures.c: which tokens of a step are patches; frees what is held of pictures. */
void decoding_lay_patches(struct decoding *d, const struct decoding_part *part, int n_parts);
void decoding_pictures_fini(struct decoding *d);

#endif
