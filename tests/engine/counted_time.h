/* SPDX-License-Identifier: Apache-2.0 */
/* counted_time.h: time that is counted instead of measured, for ranks that are threads of one process. A rank's clock
 * stands still but for what its kernels say that they take (time_takes) and for whom it waits: what arrives was sent
 * before, what was sent has been asked for, and nobody leaves a collective before the last has come. So a step takes
 * what it would on a machine of its own, to the last bit, however busy this one is. The test says
 *
 *   suite: wraps clock_now_s comm_send comm_recv comm_all_reduce comm_barrier comm_wait
 *
 * Collectives of fewer than all ranks take no time. What one rank writes here another reads behind the operation that
 * orders both.
 */
#ifndef TUTTI_TESTS_ENGINE_COUNTED_TIME_H
#define TUTTI_TESTS_ENGINE_COUNTED_TIME_H

#include <string.h>

#include "base/err.h"
#include "base/clock.h"
#include "comm/comm.h"

enum { TIME_RANKS = 8, TIME_MESSAGES = 1024, TIME_COLLECTIVES = 256, TIME_TICKETS = 8192 };
static double time_sent[TIME_RANKS][TIME_RANKS][TIME_MESSAGES], time_asked[TIME_RANKS][TIME_RANKS][TIME_MESSAGES],
    time_came[TIME_COLLECTIVES][TIME_RANKS];

enum message_kind { MESSAGE_SENT, MESSAGE_ASKED, MESSAGE_OF_ALL };
struct time_ticket {
    struct comm *c;
    int64_t ticket;
    enum message_kind kind;
    int peer, number;
};
static _Thread_local struct {
    bool counts;
    int rank, n_ranks, n_sent[TIME_RANKS], n_asked[TIME_RANKS], n_all, n;
    double now;
    struct time_ticket ticket[TIME_TICKETS];
} time_of;

/* From now on this thread, which is a rank, counts; its clock begins at 0. */
static void time_counts(int rank, int n_ranks)
{
    memset(&time_of, 0, sizeof time_of);
    time_of.counts = true;
    time_of.rank = rank;
    time_of.n_ranks = n_ranks;
}

static void time_takes(double s) { time_of.now += s; }

double __real_clock_now_s(void);
double __wrap_clock_now_s(void);
double __wrap_clock_now_s(void) { return time_of.counts ? time_of.now : __real_clock_now_s(); }

static int64_t time_began(struct comm *c, int64_t ticket, enum message_kind kind, int peer)
{
    if (!time_of.counts || (kind == MESSAGE_OF_ALL && comm_size(c) < time_of.n_ranks)) return ticket;
    int number = kind == MESSAGE_OF_ALL ? time_of.n_all++
                 : kind == MESSAGE_SENT ? time_of.n_sent[peer]++
                                        : time_of.n_asked[peer]++;
    CHECK(time_of.n < TIME_TICKETS && number < (kind == MESSAGE_OF_ALL ? TIME_COLLECTIVES : TIME_MESSAGES), "too many");
    time_of.ticket[time_of.n++] = (struct time_ticket){c, ticket, kind, peer, number};
    return ticket;
}

/* Written before the operation begins: whoever waits for it sees it. */
static void time_comes(const struct comm *c, enum message_kind kind, int peer)
{
    int me = time_of.rank;
    if (!time_of.counts || (kind == MESSAGE_OF_ALL && comm_size(c) < time_of.n_ranks)) return;
    if (kind == MESSAGE_OF_ALL) time_came[time_of.n_all][me] = time_of.now;
    else if (kind == MESSAGE_SENT) time_sent[me][peer][time_of.n_sent[peer]] = time_of.now;
    else time_asked[me][peer][time_of.n_asked[peer]] = time_of.now;
}

#define TIME_WRAP(name, kind, peer, types, ...)                                                                        \
    int64_t __real_##name types;                                                                                       \
    int64_t __wrap_##name types;                                                                                       \
    int64_t __wrap_##name types                                                                                        \
    {                                                                                                                  \
        time_comes(c, kind, peer);                                                                                     \
        return time_began(c, __real_##name(__VA_ARGS__), kind, peer);                                                  \
    }
TIME_WRAP(comm_send, MESSAGE_SENT, peer,
          (struct comm * c, const void *buf, int64_t n, enum dtype t, int peer, const char *what), c, buf, n, t, peer,
          what)
TIME_WRAP(comm_recv, MESSAGE_ASKED, peer,
          (struct comm * c, void *buf, int64_t n, enum dtype t, int peer, const char *what), c, buf, n, t, peer, what)
TIME_WRAP(comm_all_reduce, MESSAGE_OF_ALL, 0,
          (struct comm * c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r, const char *what), c,
          in, out, n, t, r, what)
TIME_WRAP(comm_barrier, MESSAGE_OF_ALL, 0, (struct comm * c, const char *what), c, what)

static void time_until(double s)
{
    if (s > time_of.now) time_of.now = s;
}

void __real_comm_wait(struct comm *c, int64_t ticket);
void __wrap_comm_wait(struct comm *c, int64_t ticket);
void __wrap_comm_wait(struct comm *c, int64_t ticket)
{
    int me = time_of.rank;
    __real_comm_wait(c, ticket);
    for (int i = time_of.counts ? time_of.n - 1 : -1; i >= 0; i--) {
        const struct time_ticket *t = &time_of.ticket[i];
        if (t->c != c || t->ticket != ticket) continue;
        if (t->kind == MESSAGE_SENT) time_until(time_asked[t->peer][me][t->number]);
        if (t->kind == MESSAGE_ASKED) time_until(time_sent[t->peer][me][t->number]);
        for (int r = 0; t->kind == MESSAGE_OF_ALL && r < time_of.n_ranks; r++) time_until(time_came[t->number][r]);
        return;
    }
}

#endif
