/* SPDX-License-Identifier: Apache-2.0 */
/* moves.c: building, counting and printing lists of steps. Empty steps are not written, so an algorithm need not
 * care about pieces without elements; both ends of a message know its size and leave it out together. */
#include "comm/moves.h"

#include "base/mem.h"

void comm_moves_clear(struct moves *p)
{
    p->n = 0;
    p->tmp = 0;
}

void comm_moves_free(struct moves *p)
{
    xfree(p->move);
    *p = (struct moves){0};
}

static void add(struct moves *p, struct move s)
{
    GROW(p->move, p->n, p->room, 1);
    p->move[p->n++] = s;
}

/* TMP is as large as the last thing written to it. */
static void needs(struct moves *p, enum side where, int64_t end)
{
    if (where == SIDE_TMP && end > p->tmp) p->tmp = end;
}

void comm_moves_send(struct moves *p, int peer, enum side from, int64_t at, int64_t n)
{
    if (n > 0) add(p, (struct move){.kind = MOVE_SEND, .from_side = from, .peer = peer, .from = at, .n = n});
}

void comm_moves_recv(struct moves *p, int peer, enum side to, int64_t at, int64_t n)
{
    needs(p, to, at + n);
    if (n > 0) add(p, (struct move){.kind = MOVE_RECV, .to_side = to, .peer = peer, .to = at, .n = n});
}

void comm_moves_fence(struct moves *p)
{
    if (p->n && p->move[p->n - 1].kind != MOVE_FENCE) add(p, (struct move){.kind = MOVE_FENCE});
}

void comm_moves_copy(struct moves *p, enum side from, int64_t from_at, enum side to, int64_t to_at, int64_t n)
{
    needs(p, to, to_at + n);
    if (n > 0)
        add(p,
            (struct move){.kind = MOVE_COPY, .from_side = from, .to_side = to, .from = from_at, .to = to_at, .n = n});
}

void comm_moves_add(struct moves *p, enum side from, int64_t from_at, enum side to, int64_t to_at, int64_t n)
{
    needs(p, to, to_at + n);
    if (n > 0)
        add(p, (struct move){.kind = MOVE_ADD, .from_side = from, .to_side = to, .from = from_at, .to = to_at, .n = n});
}

void comm_moves_scale(struct moves *p, enum side at, int64_t to, int64_t n)
{
    if (n > 0) add(p, (struct move){.kind = MOVE_SCALE, .to_side = at, .to = to, .n = n});
}

void comm_moves_fold(struct moves *p, struct move s)
{
    s.kind = MOVE_FOLD;
    needs(p, s.to_side, s.to + s.n);
    if (s.n > 0) add(p, s);
}

void comm_moves_native(struct moves *p) { add(p, (struct move){.kind = MOVE_NATIVE}); }

struct comm_traffic comm_moves_traffic(const struct moves *p, int rank, enum dtype t)
{
    struct comm_traffic sum = {.operations = 1};
    for (int i = 0; i < p->n; i++) {
        if (p->move[i].kind != MOVE_SEND || p->move[i].peer == rank) continue;
        sum.messages++;
        sum.bytes += p->move[i].n * (int64_t)dtype_bytes(t);
    }
    return sum;
}

double comm_moves_cost(const struct moves *p, int rank, enum dtype t, double latency_s, double bytes_per_s)
{
    double total = 0, sent = 0, received = 0;
    int messages = 0;
    for (int i = 0; i <= p->n; i++) {
        const struct move *s = i < p->n ? &p->move[i] : NULL;
        if (!s || s->kind == MOVE_FENCE) {
            double more = sent > received ? sent : received;
            total += messages * latency_s + more / bytes_per_s;
            sent = received = messages = 0;
        } else if (s->kind == MOVE_SEND && s->peer != rank) {
            sent += (double)s->n * (double)dtype_bytes(t);
            messages++;
        } else if (s->kind == MOVE_RECV && s->peer != rank) {
            received += (double)s->n * (double)dtype_bytes(t);
            if (!messages) messages = 1;
        }
    }
    return total;
}
