/* meet.c: slots of meet.h. Entering costs one copy of a descriptor and one atomic addition; comparing is a loop over
 * the group, done by every rank for itself so that every rank knows the outcome without another message. */
#include "comm/meet.h"

#include <string.h>

static size_t up(size_t n)
{
    return (n + 63) / 64 * 64;
}

static size_t slot_bytes(int size)
{
    return sizeof(struct meet_slot) + up((size_t)size * sizeof(struct meet_part)) +
           (size_t)size * sizeof(struct meet_cursor);
}

size_t meet_bytes(int size)
{
    return sizeof(struct meet) + MEET_SLOTS * slot_bytes(size);
}

void meet_init(struct meet *m, int size)
{
    memset(m, 0, meet_bytes(size));
    m->size = size;
    m->part_at = (int64_t)sizeof(struct meet_slot);
    m->cursor_at = m->part_at + (int64_t)up((size_t)size * sizeof(struct meet_part));
    m->slot_bytes = (int64_t)slot_bytes(size);
    for (int i = 0; i < MEET_SLOTS; i++) atomic_init(&meet_slot(m, i)->gen, i);
}

struct meet_slot *meet_slot(struct meet *m, int64_t number)
{
    return (struct meet_slot *)(void *)(m->slots + number % MEET_SLOTS * m->slot_bytes);
}

struct meet_part *meet_part(struct meet *m, struct meet_slot *s, int rank)
{
    return (struct meet_part *)(void *)((char *)s + m->part_at) + rank;
}

struct meet_cursor *meet_cursor(struct meet *m, struct meet_slot *s, int rank)
{
    return (struct meet_cursor *)(void *)((char *)s + m->cursor_at) + rank;
}

bool meet_enter(struct meet *m, int64_t number, int rank, const struct meet_part *part)
{
    struct meet_slot *s = meet_slot(m, number);
    if (atomic_load_explicit(&s->gen, memory_order_acquire) != number) return false;
    struct meet_part *p = meet_part(m, s, rank);
    p->desc = part->desc;
    p->in = part->in;
    p->out = part->out;
    p->in_at = part->in_at;
    p->out_at = part->out_at;
    atomic_store_explicit(&p->arrived, number + 1, memory_order_release);
    atomic_fetch_add_explicit(&s->arrived, 1, memory_order_acq_rel);
    return true;
}

bool meet_full(struct meet *m, int64_t number)
{
    struct meet_slot *s = meet_slot(m, number);
    return atomic_load_explicit(&s->arrived, memory_order_acquire) == m->size;
}

bool meet_arrived(struct meet *m, int64_t number, int rank)
{
    struct meet_part *p = meet_part(m, meet_slot(m, number), rank);
    return atomic_load_explicit(&p->arrived, memory_order_acquire) > number;
}

int meet_compare(struct meet *m, int64_t number, const int *world, struct err *e)
{
    struct meet_slot *s = meet_slot(m, number);
    const struct desc *first = &meet_part(m, s, 0)->desc;
    for (int r = 1; r < m->size; r++) {
        const struct desc *d = &meet_part(m, s, r)->desc;
        const char *differs = desc_differ(first, d);
        if (!differs) continue;
        char a[DESC_TEXT], b[DESC_TEXT];
        return err_set(e, ERR_IO,
                       "ranks of %s called different operations: rank %d: %s; rank %d: %s; the %s differs. Every rank "
                       "must call the same operations in the same order",
                       first->group, world[0], desc_print(a, first), world[r], desc_print(b, d), differs);
    }
    return OK;
}

void meet_leave(struct meet *m, int64_t number)
{
    struct meet_slot *s = meet_slot(m, number);
    if (atomic_fetch_add_explicit(&s->left, 1, memory_order_acq_rel) + 1 < m->size) return;
    atomic_store_explicit(&s->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&s->left, 0, memory_order_relaxed);
    atomic_store_explicit(&s->done, 0, memory_order_relaxed);
    for (int r = 0; r < m->size; r++)
        atomic_store_explicit(&meet_cursor(m, s, r)->next, 0, memory_order_relaxed);
    atomic_store_explicit(&s->gen, number + MEET_SLOTS, memory_order_release);
}
