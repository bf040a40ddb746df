/* SPDX-License-Identifier: Apache-2.0 */
/* decoding.h: a model that goes on with many sequences at once, each with its keys and values in pages.
 *
 * A sequence is a number (open, close). One step feeds new tokens of several of them, whatever their lengths, and gives
 * the logits of those rows that are wanted. A sequence that begins as another text did takes over its pages
 * (decoding_reuse); a fork is a second sequence that reads the first one's pages and writes its own.
 *
 * The model is recorded once for each number of rows that is used, 1, 2, 4, ... up to `rows`; what is missing to that
 * number is filled with rows of no sequence. Pages are allocated once.
 *
 * Of a model of encoder and decoder (t5) a sequence is what the decoder writes, which begins with decoding_start;
 * before its first step the encoder reads a text (decoding_read), once, and what the decoder's layers take of it is
 * kept in pages of its own, which forks share. Positions and rows are the decoder's.
 *
 * Several ranks may have a model together (decoding_ranks.h): the one that leads calls everything here, the others only
 * decoding_new, decoding_follow and decoding_free.
 *
 * Floor 8. Order: Local; one thread at a time. decoding_new over ranks: Collective(the world).
 */
#ifndef TUTTI_DECODE_DECODING_H
#define TUTTI_DECODE_DECODING_H

#include "hub/weights.h"
#include "device/device.h"
#include "nn/model.h"
#include "token/tokenizer.h"

struct decoding_ranks; /* decoding_ranks.h */
struct decoding_options {
    int threads;
    enum dtype dtype;      /* DT_N: bf16 */
    int64_t sequences;     /* at once; 0: 1 */
    int64_t positions;     /* that one sequence may have; 0, or more than the model has: as many as the model has. Of
                              encoder and decoder each has so many; 0: 1024, for their distances have no end */
    int64_t rows;          /* of a step at most; 0: 128 */
    size_t cache_bytes;    /* of keys and values on a rank; 0: enough for all sequences at their longest */
    const char *reuse_not; /* not NULL: pages are not taken over, and why */
    const struct decoding_ranks *ranks; /* NULL: alone; borrowed */
    const struct model_config *model;   /* with no weights: random ones of this model; else NULL */
    const char *kernels;                /* NULL: auto */
    enum packing weights;               /* matrices of layers are kept in few bits (state/packed.h) */
    bool scores;                        /* the model is a reward model, whose rows have one column; else it is none */
    int64_t wanted; /* not 0: everything is allocated when it is made, for steps that want so many logits at most */
};

struct decoding;
/* w NULL: o->model, with random weights, or those that the caller writes (decoding_store) before the first step. */
int decoding_new(struct decoding **out, struct weights *w, struct device *d, const struct decoding_options *o,
                 struct err *e);
void decoding_free(struct decoding *d); /* NULL is fine; the leader's lets the others go */
/* Seconds that training's forward pass takes through the layers, without the head, of one sequence of n tokens by these
 * weights: the best of some, of one thread its processor time. */
int decoding_forward_s(struct decoding *d, int64_t n, double *s, struct err *e);
/* Pictures of the texts that are fed from now on, before the first of them: fp32 values, one picture behind the other,
 * which the n-th run of patches' tokens of each text are. On one rank.
 *   fails   ERR_REQUEST: the model sees none, steps were made already, or several ranks have the model */
int decoding_pictures(struct decoding *d, const float *pixels, int64_t n, struct err *e);
/* What the leader's calls make of this rank, until it frees its own. */
int decoding_follow(struct decoding *d, struct err *e);

const struct store *decoding_store(const struct decoding *d); /* of its parameters */
const struct model_config *decoding_model(const struct decoding *d);
int64_t decoding_room(const struct decoding *d); /* positions of a sequence */
int64_t decoding_rows(const struct decoding *d); /* of a step */
int64_t decoding_sequences(const struct decoding *d);
int64_t decoding_pages(const struct decoding *d);      /* all */
int64_t decoding_pages_left(const struct decoding *d); /* that are nobody's */
int64_t decoding_pages_for(const struct decoding *d, int64_t positions);
double decoding_weight_bytes(const struct decoding *d); /* that a step reads: matrices, the embedding's table once */
/* What this rank holds of the model: matrices in few bits, and all else. */
void decoding_held_bytes(const struct decoding *d, size_t *coded, size_t *whole);
/* The ends of a text that the model's files name, and the tokenizer's. */
bool decoding_is_end(const struct decoding *d, const struct tokenizer *t, int64_t id);
int decoding_n_ends(const struct decoding *d); /* how many those are at most */

/* A new sequence; -1: all are in use. */
int decoding_open(struct decoding *d);
void decoding_close(struct decoding *d, int sequence);
int64_t decoding_fed(const struct decoding *d, int sequence); /* tokens that it has */
/* A new sequence, which will have n tokens at least, takes over pages that hold its first ones: how many of the n need
 * not be fed, fewer than n. Where positions turn by a text's length a text that may come to turn otherwise takes none.
 */
int64_t decoding_reuse(struct decoding *d, int sequence, const int32_t *ids, int64_t n);
/* No page is taken over any longer that was written before now. No sequence is open. */
void decoding_forget(struct decoding *d);
/* Whether a prompt is read by an encoder, and not fed. */
bool decoding_reads(const struct decoding *d);
int32_t decoding_start(const struct decoding *d); /* of such a model: the first token of every sequence */
/* The encoder reads a text for a sequence without tokens, in place of what it had read. t: where the text does not end
 * with its end of text, that is put behind it; NULL: nothing is.
 *   fails   ERR_REQUEST: an id is not the model's, the text is longer than decoding_room, or no page is left */
int decoding_read(struct decoding *d, int sequence, const struct tokenizer *t, const int32_t *ids, int64_t n,
                  struct err *e);
/* A new sequence's first n tokens are its prompt: where a model has prefixes (model.attn.prefix) they see each other in
 * both directions, so they are fed in one part, and nothing is cut off them but all. Forgotten by a cut to nothing. */
void decoding_prompt(struct decoding *d, int sequence, int64_t n);
/* Rows that the first part of such a sequence has to have; 0: any number. */
int64_t decoding_whole(const struct decoding *d, int sequence);
/* The text will have n tokens at least. Where positions turn by a text's length (longrope) pieces of it are turned by
 * that of the whole; without it by what is fed so far, and when that length is passed the text is fed again from its
 * beginning, inside of a step. Closing, or a cut to nothing, forgets it. */
void decoding_expect(struct decoding *d, int sequence, int64_t n);
/* How many tokens a text of n may come to have without being fed again; INT64_MAX: any. */
int64_t decoding_turns_alike(const struct decoding *d, int64_t n);
/* A second sequence with the same tokens; -1: all are in use, or no page is left. */
int decoding_fork(struct decoding *d, int sequence);
/* Forgets all but the first n tokens. */
void decoding_cut(struct decoding *d, int sequence, int64_t n);

struct decoding_part {
    int sequence;
    const int32_t *ids;
    int64_t n;      /* >= 1 */
    int64_t wanted; /* logits of the last so many rows */
};
/* Each sequence at most once; together at most decoding_rows. logits_RV: wanted rows in order, valid until the next
 * call. ERR_REQUEST: an id is not the model's, a sequence is too long; or no page is left. Nothing was fed then (of a
 * text that was being fed again perhaps less than before: decoding_fed). */
int decoding_step(struct decoding *d, const struct decoding_part *part, int n_parts, const float **logits_RV,
                  struct err *e);

#endif
