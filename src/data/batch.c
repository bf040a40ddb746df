/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c: a batch is one piece of memory, the fields one after the other, each on an address that fits any of them. */
#include "data/batch.h"

#include "base/mem.h"

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
