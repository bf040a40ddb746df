/* SPDX-License-Identifier: Apache-2.0 */
/* model/batch_fields.h: what a batch holds, as a table: a new field of it is a row here, who fills it
 * (data/dataset_rows.c) and the layer that reads its slot. Memory on the host and on the device, what of it a rank of
 * cp takes, and what a missing sequence is follow from the row. Floor 1: base, layout. Order: Local.
 */
#ifndef TUTTI_MODEL_BATCH_FIELDS_H
#define TUTTI_MODEL_BATCH_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout/dtype.h"

/* Also the first slots of a tape (nn/model.h). */
enum batch_field {
    BATCH_TOKENS,
    BATCH_TARGETS,
    BATCH_POSITIONS,
    BATCH_DOCUMENTS,
    BATCH_PIXELS,   /* of a sequence: [pictures, channels, height, width], scaled and shifted as the model wants them */
    BATCH_LABEL,    /* of a sequence: the picture's class; -1: none, it is not trained */
    BATCH_SEGMENTS, /* of a token: 0, or 1 in the second text of a pair */
    BATCH_FACTOR,   /* of a token: what the gradient of its nats is multiplied by */
    BATCH_PATCHES,  /* of a token: which row of its sequence's pictures it is; -1: it is text */
    BATCH_FIELDS
};

struct batch_row {
    const char *name;
    enum dtype dtype;
    int64_t values; /* of each token, or of each sequence; 0 in the table: batch_field_row says how many */
    bool per_sequence;
    bool whole; /* every rank of cp takes it for whole sequences; else for its own tokens */
    int blank;  /* the byte that it is made of in a sequence that does not exist: 0, or 0xff for -1 */
};
extern const struct batch_row batch_rows[BATCH_FIELDS];

/* The row of a field in batches whose sequences have pictures of so many values; 0: they have none, and what is of
 * pictures has no bytes. */
struct batch_row batch_field_row(int f, int64_t pixels);

/* Of n sequences of so many tokens. */
size_t batch_bytes(const struct batch_row *r, int64_t n_seqs, int64_t tokens);
/* Where it begins behind bytes that are taken. */
size_t batch_begin(const struct batch_row *r, size_t taken);
/* Tokens place[0 .. here) of each of n sequences of `seq` tokens: to holds batch_bytes(r, n, here). Fields of sequences
 * are copied. */
void batch_cut(const struct batch_row *r, void *to, const void *from, int64_t n_seqs, int64_t seq, const int64_t *place,
               int64_t here);

#endif
