/* SPDX-License-Identifier: Apache-2.0 */
/* Logits of the rows that are wanted, from the device to the leader's host. Ranks of tp have a part of the vocabulary
 * each, which the leader puts together; a score they all have. */
#include <string.h>

#include "base/mem.h"
#include "decode/decoding_impl.h"

static bool leads(const struct decoding *d) { return !d->ranks || d->ranks->leads; }

static bool splits(const struct decoding *d) { return d->par.size[AXIS_TP] > 1 && !d->model.scores; }

int decoding_logits_room(struct decoding *d, int64_t rows, struct err *e)
{
    if (!d->part.heads) return OK;
    size_t bytes = to_size(rows) * to_size(model_outputs(&d->model)) * sizeof(float), had = d->logits.bytes;
    int rc = decoding_grow(d, &d->logits, MEM_DATA, bytes, e);
    if (!rc && splits(d) && leads(d)) rc = decoding_grow(d, &d->gathered, MEM_COMM, bytes, e);
    if (rc) return rc;
    d->slot[SLOT_LOGITS] = d->logits.p;
    if (had >= bytes) return OK;
    xfree(d->host_logits);
    d->host_logits = xmalloc(bytes);
    return OK;
}

/* Parts of the vocabulary, one rank's after the other, become whole rows on the leader. */
static void gather(struct decoding *d, int64_t rows)
{
    struct comm *tp = d->collectives.axis[AXIS_TP];
    int64_t lo, hi, vocab = d->model.vocab;
    par_share(&d->par, AXIS_TP, vocab, &lo, &hi);
    if (!leads(d)) {
        comm_wait(tp, comm_send(tp, d->logits.p, rows * (hi - lo), DT_F32, 0, COMM_AT("logits")));
        return;
    }
    int n = comm_size(tp);
    struct comm_p2p *from = xcalloc(to_size(n), sizeof *from);
    struct par at = d->par;
    for (int r = 1; r < n; r++) {
        at.rank[AXIS_TP] = r;
        par_share(&at, AXIS_TP, vocab, &lo, &hi);
        from[r - 1] = (struct comm_p2p){.peer = r,
                                        .buf = (float *)d->gathered.p + rows * lo,
                                        .n = rows * (hi - lo),
                                        .dtype = DT_F32};
    }
    comm_wait(tp, comm_exchange(tp, from, n - 1, COMM_AT("logits")));
    float *part = xmalloc(to_size(rows * vocab) * sizeof *part);
    par_share(&d->par, AXIS_TP, vocab, &lo, &hi);
    size_t own = to_size(rows * (hi - lo)) * sizeof *part;
    device_to_host(d->stream, part, &d->logits, 0, own);
    device_to_host(d->stream, part + rows * (hi - lo), &d->gathered, own, to_size(rows * vocab) * sizeof *part - own);
    stream_sync(d->stream);
    for (int r = 0; r < n; r++) {
        at.rank[AXIS_TP] = r;
        par_share(&at, AXIS_TP, vocab, &lo, &hi);
        for (int64_t i = 0; i < rows; i++)
            memcpy(d->host_logits + i * vocab + lo, part + rows * lo + i * (hi - lo), to_size(hi - lo) * sizeof *part);
    }
    xfree(part);
    xfree(from);
}

void decoding_logits_bring(struct decoding *d, int64_t rows)
{
    if (!rows) return;
    if (splits(d)) gather(d, rows);
    else
        device_to_host(d->stream, d->host_logits, &d->logits, 0,
                       to_size(rows * model_outputs(&d->model)) * sizeof *d->host_logits);
}

void decoding_logits_free(struct decoding *d)
{
    buffer_free(&d->logits);
    buffer_free(&d->gathered);
    xfree(d->host_logits);
}
