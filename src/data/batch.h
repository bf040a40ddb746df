/* SPDX-License-Identifier: Apache-2.0 */
/* batch.h: the sequences of one step, as the model takes them. Includes: base, model. Order: Local. */
#ifndef TUTTI_DATA_BATCH_H
#define TUTTI_DATA_BATCH_H

#include <stdint.h>

#include "model/batch_fields.h"

struct batch {
    int64_t n_seqs, seq_len; /* B and S */
    int64_t n_pixels;        /* values of a picture, P; 0: there are none */
    union {
        void *field[BATCH_FIELDS]; /* by the table, and by name: */
        struct {
            int32_t *tokens;    /* [B, S] */
            int32_t *targets;   /* [B, S] the next token; -1: not trained */
            int32_t *positions; /* [B, S] 0 .. S - 1, or from the beginning of the document */
            int32_t *documents; /* [B, S] 0, 1, ... within a sequence: attention may be kept inside a document */
            float *pixels;      /* [B, P] of channels, rows, columns, as the model takes them */
            int32_t *label;     /* [B] the picture's class; -1: not trained */
            int32_t *segments;  /* [B, S] 0, or 1 in the second text of a pair */
            float *factor;      /* [B, S] the trainer's own */
            int32_t *patches;   /* [B, S] which row of its pictures a token is; -1: it is text */
        };
    };
    int64_t n_trained; /* targets that are not -1; of pictures, labels */
    int64_t n_padded;  /* positions that hold no token of a document */
};

void batch_init(struct batch *b, int64_t n_seqs, int64_t seq_len);
/* With a picture of so many values in each sequence. */
void batch_init_pictures(struct batch *b, int64_t n_seqs, int64_t seq_len, int64_t n_pixels);
/* A token that exists is at any place but those of padding: what speed is told in (docs/watching.md). */
static inline int64_t batch_tokens(int64_t n_seqs, int64_t seq_len, int64_t n_padded)
{
    return n_seqs * seq_len - n_padded;
}
/* The same in memory of the caller's, batch_memory bytes of it; no batch_fini. */
size_t batch_memory(int64_t n_seqs, int64_t seq_len, int64_t n_pixels);
void batch_place(struct batch *b, int64_t n_seqs, int64_t seq_len, int64_t n_pixels, void *memory);
void batch_fini(struct batch *b);

#endif
