/* SPDX-License-Identifier: Apache-2.0 */
/* crew.c: members and seats. Who is gone is the transport's to find out and the same on all members; which seat a
 * member has follows from that and from the seats before, so nothing of it is sent. Rejected: closing up always, which
 * is simpler, and would move the ranks behind a dead one to other hosts than those where their state lies. */
#include "comm/crew.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "comm/crew_impl.h"

struct crew *crew_new(const struct crew_ops *ops, void *shared, int self, int n)
{
    struct crew *c = xcalloc(1, sizeof *c);
    size_t size = (size_t)n;
    *c = (struct crew){.ops = ops, .shared = shared, .self = self, .began = n, .n = n, .epoch = 1};
    c->card = xcalloc(size, sizeof *c->card);
    c->seat = xcalloc(size, sizeof *c->seat);
    c->gone = xcalloc(size, sizeof *c->gone);
    c->lost = xcalloc(size, sizeof *c->lost);
    for (int i = 0; i < n; i++) c->seat[i] = i;
    return c;
}

void crew_free(struct crew *c)
{
    xfree(c->card);
    xfree(c->seat);
    xfree(c->gone);
    xfree(c->lost);
    xfree(c);
}

/* Containers of one machine may have the name and the kernel in common, but not the numbers of processes. */
void crew_card_fill(struct crew_card *card)
{
    struct stat s;
    struct {
        char name[CREW_HOST];
        uint64_t space, device;
    } here;
    struct cores cores;
    memset(card, 0, sizeof *card);
    memset(&here, 0, sizeof here);
    if (gethostname(card->host, sizeof card->host - 1)) card->host[0] = 0;
    memcpy(here.name, card->host, sizeof here.name);
    if (!stat("/proc/self/ns/pid", &s)) {
        here.space = (uint64_t)s.st_ino;
        here.device = (uint64_t)s.st_dev;
    }
    card->machine = hash64(&here, sizeof here);
    card->pid = getpid();
    cores_of(0, &cores);
    memcpy(card->core, cores.word, sizeof card->core);
}

int crew_size(const struct crew *c) { return c->n; }
int crew_began(const struct crew *c) { return c->began; }
int crew_member(const struct crew *c, int seat) { return c->seat[seat]; }
int crew_epoch(const struct crew *c) { return c->epoch; }
const char *crew_host(const struct crew *c, int member) { return c->card[member].host; }

int crew_seat(const struct crew *c)
{
    int s = 0;
    while (c->seat[s] != c->self) s++;
    return s;
}

int crew_ranks_here(const struct crew *c, int n)
{
    int here = 0;
    for (int s = 0; s < n; s++) here += c->card[c->seat[s]].machine == c->card[c->self].machine;
    return here ? here : 1; /* a spare is asked what it would be at work */
}

int crew_sharers(const struct crew *c, int n)
{
    struct cores mine, its;
    int sharers = 0;
    memcpy(mine.word, c->card[c->self].core, sizeof mine.word);
    for (int s = 0; s < n; s++) {
        const struct crew_card *card = &c->card[c->seat[s]];
        memcpy(its.word, card->core, sizeof its.word);
        sharers += card->machine == c->card[c->self].machine && cores_common(&mine, &its, NULL) > 0;
    }
    return sharers ? sharers : 1;
}

int crew_world(struct crew *c, int n, const struct comm_config *cfg, struct comm **world, struct err *e)
{
    CHECK(n >= 1 && n <= c->n && !c->world, "a world of %d of %d members", n, c->n);
    c->at_work = n;
    int rc = c->ops->world(c, cfg, e);
    *world = c->world;
    return rc;
}

void crew_wait(struct crew *c) { c->ops->wait(c); }

void crew_reseat(struct crew *c)
{
    int n = 0, spare = c->at_work, *seat = xcalloc((size_t)c->began, sizeof *seat);
    for (int s = 0; s < c->at_work; s++) {
        while (spare < c->n && c->gone[c->seat[spare]]) spare++;
        if (!c->gone[c->seat[s]]) seat[n++] = c->seat[s];
        else if (spare < c->n) seat[n++] = c->seat[spare++];
    }
    for (; spare < c->n; spare++)
        if (!c->gone[c->seat[spare]]) seat[n++] = c->seat[spare];
    memcpy(c->seat, seat, (size_t)n * sizeof *seat);
    c->n = n;
    xfree(seat);
}

enum { FLAG_DONE = 1, FLAG_ON = 2 };

const char *crew_cause(const struct crew *c) { return c->cause; }

int crew_over(struct crew *c, int rc, const struct err *why, enum crew_verdict *v, const int **lost, int *n,
              struct err *e)
{
    int flags = (rc == OK ? FLAG_DONE : 0) | (rc == OK || rc == ERR_LOST ? FLAG_ON : 0);
    bool *gone = xcalloc((size_t)c->began, sizeof *gone);
    snprintf(c->cause, sizeof c->cause, "%s", rc ? why->text : "");
    int bad = c->ops->over(c, &flags, gone, e);
    c->n_lost = 0;
    for (int m = 0; !bad && m < c->began; m++)
        if (gone[m] && !c->gone[m]) c->lost[c->n_lost++] = m;
    memcpy(c->gone, gone, (size_t)c->began * sizeof *gone);
    xfree(gone);
    if (bad) return bad;
    crew_reseat(c);
    c->epoch++;
    *v = flags & FLAG_DONE ? CREW_DONE : flags & FLAG_ON ? CREW_ON : CREW_ENDS;
    *lost = c->lost;
    *n = c->n_lost;
    return OK;
}

void crew_drop(struct crew *c) { c->ops->drop(c); }
