/* SPDX-License-Identifier: Apache-2.0 */
/* meet.c: slots of meet.h. Between two cores an arrival moves one cache line; the whole meeting of K ranks costs each
 * of them K-1 lines, all fetched at once. Counters that everybody adds to were twice as slow, and descriptors compared
 * field by field brought three more lines per peer, so ranks compare 64-bit prints of them; every rank compares for
 * itself, so every rank knows the outcome without another message.
 */
#include "comm/meet.h"

#include <string.h>

#include "base/hash.h"

static size_t up(size_t n) { return (n + 63) / 64 * 64; }

static size_t slot_bytes(int size)
{
    size_t n = (size_t)size;
    return n * (sizeof(struct meet_seat) + sizeof(struct meet_share)) + up(n * sizeof(struct desc));
}

size_t meet_bytes(int size) { return sizeof(struct meet) + MEET_SLOTS * slot_bytes(size); }

void meet_init(struct meet *m, int size)
{
    memset(m, 0, meet_bytes(size));
    m->size = size;
    m->share_at = (int64_t)((size_t)size * sizeof(struct meet_seat));
    m->desc_at = m->share_at + (int64_t)((size_t)size * sizeof(struct meet_share));
    m->slot_bytes = (int64_t)slot_bytes(size);
}

static char *slot(struct meet *m, int64_t number) { return m->slots + number % MEET_SLOTS * m->slot_bytes; }

struct meet_seat *meet_seat(struct meet *m, int64_t number, int rank)
{
    return (struct meet_seat *)(void *)slot(m, number) + rank;
}

struct meet_share *meet_share(struct meet *m, int64_t number, int rank)
{
    return (struct meet_share *)(void *)(slot(m, number) + m->share_at) + rank;
}

static struct desc *desc_at(struct meet *m, int64_t number, int rank)
{
    return (struct desc *)(void *)(slot(m, number) + m->desc_at) + rank;
}

/* Of the fields that desc_differ looks at. */
static uint64_t print_of(const struct desc *d)
{
    const int64_t fields[] = {d->n, (int64_t)d->counts, d->op, d->red, d->dtype, d->algorithm, d->root};
    return hash64(fields, sizeof fields);
}

void meet_enter(struct meet *m, int64_t number, int rank, const struct desc *d, const struct meet_seat *from)
{
    struct meet_seat *s = meet_seat(m, number, rank);
    struct meet_share *share = meet_share(m, number, rank);
    *desc_at(m, number, rank) = *d;
    atomic_store_explicit(&share->next, 0, memory_order_relaxed);
    atomic_store_explicit(&share->done, 0, memory_order_relaxed);
    s->print = print_of(d);
    s->in = from->in;
    s->out = from->out;
    s->most = from->most;
    s->alone = from->alone;
    atomic_store_explicit(&s->arrived, number + 1, memory_order_release);
}

bool meet_arrived(struct meet *m, int64_t number, int rank)
{
    return atomic_load_explicit(&meet_seat(m, number, rank)->arrived, memory_order_acquire) > number;
}

bool meet_full(struct meet *m, int64_t number, int *seen)
{
    while (*seen < m->size && meet_arrived(m, number, *seen)) ++*seen;
    return *seen == m->size;
}

int meet_compare(struct meet *m, int64_t number, const int *world, struct err *e)
{
    uint64_t print = meet_seat(m, number, 0)->print;
    for (int r = 1; r < m->size; r++) {
        if (meet_seat(m, number, r)->print == print) continue;
        return desc_compare(desc_at(m, number, 0), world[0], desc_at(m, number, r), world[r], e);
    }
    return OK;
}
