/* SPDX-License-Identifier: Apache-2.0 */
#include "model/batch_fields.h"

#include <string.h>

#include "base/mem.h"

const struct batch_row batch_rows[BATCH_FIELDS] = {
    [BATCH_TOKENS] = {"tokens", DT_I32, 1, false, false, 0},
    [BATCH_SEGMENTS] = {"segments", DT_I32, 1, false, false, 0},
    [BATCH_TARGETS] = {"targets", DT_I32, 1, false, false, 0xff}, /* not trained */
    [BATCH_POSITIONS] = {"positions", DT_I32, 1, false, false, 0},
    [BATCH_DOCUMENTS] = {"documents", DT_I32, 1, false, true, 0}, /* those of all keys are wanted on every rank */
    [BATCH_PIXELS] = {"pixels", DT_F32, 0, true, false, 0},
    [BATCH_FACTOR] = {"factor", DT_F32, 1, false, false, 0},
    [BATCH_PATCHES] = {"patches", DT_I32, 1, false, false, 0xff},
    [BATCH_LABEL] = {"label", DT_I32, 0, true, false, 0xff},
};

struct batch_row batch_field_row(int f, int64_t pixels)
{
    struct batch_row r = batch_rows[f];
    if (f == BATCH_PIXELS) r.values = pixels;
    if (f == BATCH_LABEL) r.values = pixels > 0;
    return r;
}

static size_t one(const struct batch_row *r) { return to_size(r->values) * dtype_bytes(r->dtype); }

size_t batch_bytes(const struct batch_row *r, int64_t n_seqs, int64_t tokens)
{
    return to_size(r->per_sequence ? n_seqs : n_seqs * tokens) * one(r);
}

size_t batch_begin(const struct batch_row *r, size_t taken)
{
    size_t unit = dtype_bytes(r->dtype);
    return (taken + unit - 1) / unit * unit;
}

void batch_cut(const struct batch_row *r, void *to, const void *from, int64_t n_seqs, int64_t seq, const int64_t *place,
               int64_t here)
{
    size_t bytes = one(r);
    if (r->per_sequence) {
        memcpy(to, from, batch_bytes(r, n_seqs, seq));
        return;
    }
    for (int64_t i = 0; i < here; i++)
        for (int64_t b = 0; b < n_seqs; b++)
            memcpy((char *)to + to_size(b * here + i) * bytes, (const char *)from + to_size(b * seq + place[i]) * bytes,
                   bytes);
}
