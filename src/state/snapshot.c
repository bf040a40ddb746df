/* SPDX-License-Identifier: Apache-2.0 */
/* All copies of an array are enqueued on the stream that orders its work (store_stream), and each stream is waited for
 * once. Cost: one pass over the state, at the speed of the device's copies to the host. */
#include "state/snapshot.h"

#include "base/mem.h"

static bool is_saved(const struct store *s, int k) { return s->array[k].row.saved && array_is_here(store_array(s, k)); }

void snapshot_init(struct snapshot *x, const struct store *s, enum snapshot_of of)
{
    *x = (struct snapshot){.part = xcalloc(to_size(s->table->n) * to_size(s->n_arrays) + 1, sizeof *x->part)};
    for (int k = 0; k < s->n_arrays; k++) {
        for (int i = 0; is_saved(s, k) && i < s->table->n; i++) {
            if (!store_covers(s, k, i)) continue;
            size_t width = dtype_bytes(store_array_of(s, k, i)->row.dtype);
            struct array_span span = of == SNAPSHOT_HELD ? store_held(s, i, k) : store_writes(s, i, k);
            if (!span.n) continue;
            size_t bytes = to_size(span.n) * width;
            x->part[x->n++] = (struct snapshot_part){k, i, span, x->bytes, bytes};
            x->bytes += (bytes + SNAPSHOT_ALIGN - 1) / SNAPSHOT_ALIGN * SNAPSHOT_ALIGN;
        }
    }
}

void snapshot_free(struct snapshot *x)
{
    xfree(x->part);
    *x = (struct snapshot){0};
}

static void wait_for_arrays(const struct store *s, struct stream *st)
{
    for (int k = 0; k < s->n_arrays; k++)
        if (is_saved(s, k)) stream_sync(store_stream(s, k, st));
    stream_sync(store_stream(s, STORE_PARAM, st)); /* frozen parameters are their own masters */
}

int snapshot_take(const struct snapshot *x, const struct store *s, struct stream *st, void *memory, struct err *e)
{
    for (int64_t i = 0; i < x->n; i++) {
        const struct snapshot_part *p = &x->part[i];
        stream_to_host(store_stream_of(s, p->array, p->param, st), (char *)memory + p->at,
                       array_at(store_array_of(s, p->array, p->param), p->span.at), p->bytes);
    }
    wait_for_arrays(s, st);
    return device_status(s->dev, e);
}

void snapshot_give(const struct snapshot *x, const struct store *s, struct stream *st, const void *memory)
{
    for (int64_t i = 0; i < x->n; i++) {
        const struct snapshot_part *p = &x->part[i];
        stream_from_host(store_stream_of(s, p->array, p->param, st),
                         array_at(store_array_of(s, p->array, p->param), p->span.at), (const char *)memory + p->at,
                         p->bytes);
    }
    wait_for_arrays(s, st);
}
