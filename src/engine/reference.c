/* SPDX-License-Identifier: Apache-2.0 */
/* Cost of a swap: three copies of what moves, once a batch of answers. Rejected: exchanging addresses, which programs,
 * groups and checkpoints hold. */
#include "engine/reference.h"

#include "engine/engine.h"

enum { STRETCH = 1 << 22 }; /* bytes that are on their way at once */

/* Bytes of parameter i that move, and where they lie in the array of weights. */
static size_t moving_bytes(const struct engine *g, int i, size_t *at)
{
    const struct param *p = &g->params.p[i];
    size_t width = dtype_bytes(g->store.array[STORE_PARAM].row.dtype);
    if (p->frozen || p->packed || !p->held) return 0;
    struct array_span s = store_held(&g->store, i, STORE_PARAM);
    *at = to_size(s.at) * width;
    return to_size(s.n) * width;
}

int reference_new(struct engine *g, struct err *e)
{
    size_t all = 0, at;
    if (!g->cfg.reference) return OK;
    for (int i = 0; i < g->params.n; i++) all += moving_bytes(g, i, &at);
    int rc = buffer_new(&g->reference.kept, g->dev, MEM_PARAM, all, e);
    return rc ? rc : buffer_new(&g->reference.moving, g->dev, MEM_SCRATCH, all < STRETCH ? all : STRETCH, e);
}

void reference_free(struct engine *g)
{
    buffer_free(&g->reference.kept);
    buffer_free(&g->reference.moving);
}

/* What was published is here: nothing is written into the weights any more. */
static void settle(struct engine *g)
{
    for (int u = 0; u < g->store.units.n; u++) exchange_gather_wait(&g->exchange, u);
}

void reference_keep(struct engine *g)
{
    const struct buffer *weights = &g->store.array[STORE_PARAM].buf;
    size_t to = 0, at = 0, n;
    settle(g);
    for (int i = 0; i < g->params.n; i++, to += n)
        if ((n = moving_bytes(g, i, &at))) device_copy(g->stream, &g->reference.kept, to, weights, at, n);
    stream_sync(g->stream);
}

static void swap(struct engine *g, size_t at, size_t kept, size_t n)
{
    struct buffer *weights = &g->store.array[STORE_PARAM].buf, *other = &g->reference.kept,
                  *moving = &g->reference.moving;
    for (size_t done = 0, k; done < n; done += k) {
        k = n - done < moving->bytes ? n - done : moving->bytes;
        device_copy(g->stream, moving, 0, weights, at + done, k);
        device_copy(g->stream, weights, at + done, other, kept + done, k);
        device_copy(g->stream, other, kept + done, moving, 0, k);
    }
}

void reference_swap(struct engine *g)
{
    size_t kept = 0, at = 0, n;
    settle(g);
    for (int i = 0; i < g->params.n; i++, kept += n)
        if ((n = moving_bytes(g, i, &at))) swap(g, at, kept, n);
    stream_sync(g->stream);
}
