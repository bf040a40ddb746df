/* SPDX-License-Identifier: Apache-2.0 */
/* two_level.c: inside each host first, then between hosts, for networks that are slower than memory.
 *
 * all_reduce, H hosts of L ranks: the ranks of a host reduce-scatter the vector among themselves; rank l of every host
 * then holds piece l and all-reduces it with the other hosts' ranks l (every rank of a host drives the network at
 * once); the ranks of a host gather the pieces. broadcast: the root sends to one rank of every other host, which passes
 * on to its mates; any number of ranks per host.
 *
 * Cost per rank of all_reduce, N bytes: 2N(L-1)/L inside the host, 2(N/L)(H-1)/H across; 2(L-1) + 2(H-1) messages.
 * Other algorithms put 2N(K-1)/K on the network where neighbours in rank order sit on different hosts. Sums are added
 * host by host (one rounding per level); needs the same number of ranks on every host and more than one host.
 */
#include "base/mem.h"
#include "base/thread.h"
#include "comm/moves.h"

/* Some ranks of the communicator that work together, and this rank among them. */
struct level {
    int *rank;
    int n, me;
};

/* Ranks of this host, or the ranks that have this rank's position on every host. */
static struct level mates(const struct coll *c, bool same_host)
{
    struct level g = {.rank = xcalloc((size_t)c->size, sizeof *g.rank)};
    int position = 0;
    for (int r = 0; r < c->rank; r++) position += c->host[r] == c->host[c->rank];
    for (int r = 0; r < c->size; r++) {
        int at = 0;
        for (int q = 0; q < r; q++) at += c->host[q] == c->host[r];
        if (same_host ? c->host[r] != c->host[c->rank] : at != position) continue;
        if (r == c->rank) g.me = g.n;
        g.rank[g.n++] = r;
    }
    return g;
}

/* [base, base+n) of `from` is cut over the level; everybody's piece `me` is folded to OUT at its place. */
static void scatter(struct moves *p, const struct level *g, enum side from, int64_t base, int64_t n, bool final)
{
    int64_t lo, hi;
    team_split(n, g->me, g->n, &lo, &hi);
    int64_t mine = hi - lo;
    for (int i = 0; i < g->n; i++) {
        int64_t a, b;
        team_split(n, i, g->n, &a, &b);
        if (i == g->me) continue;
        comm_moves_send(p, g->rank[i], from, base + a, b - a);
        comm_moves_recv(p, g->rank[i], SIDE_TMP, i * mine, mine);
    }
    comm_moves_fence(p);
    comm_moves_copy(p, from, base + lo, SIDE_TMP, g->me * mine, mine);
    comm_moves_fold(p, (struct move){.from_side = SIDE_TMP,
                                     .to_side = SIDE_OUT,
                                     .to = base + lo,
                                     .n = mine,
                                     .n_src = g->n,
                                     .own = -1,
                                     .stride = mine,
                                     .final = final});
}

static void gather(struct moves *p, const struct level *g, int64_t base, int64_t n)
{
    int64_t lo, hi, a, b;
    team_split(n, g->me, g->n, &lo, &hi);
    for (int i = 0; i < g->n; i++) {
        team_split(n, i, g->n, &a, &b);
        if (i == g->me) continue;
        comm_moves_send(p, g->rank[i], SIDE_OUT, base + lo, hi - lo);
        comm_moves_recv(p, g->rank[i], SIDE_OUT, base + a, b - a);
    }
    comm_moves_fence(p);
}

static int n_hosts(const struct coll *c)
{
    int n = 0;
    for (int r = 0; r < c->size; r++)
        if (c->host[r] + 1 > n) n = c->host[r] + 1;
    return n;
}

/* Every host has as many ranks as the first. */
static bool regular(const struct coll *c, int hosts)
{
    if (hosts < 2 || c->size % hosts) return false;
    for (int h = 0; h < hosts; h++) {
        int here = 0;
        for (int r = 0; r < c->size; r++) here += c->host[r] == h;
        if (here != c->size / hosts) return false;
    }
    return true;
}

static bool all_reduce(struct moves *p, const struct coll *c)
{
    if (!regular(c, n_hosts(c))) return false;
    struct level inside = mates(c, true), across = mates(c, false);
    int64_t lo, hi;
    team_split(c->n, inside.me, inside.n, &lo, &hi);
    scatter(p, &inside, SIDE_IN, 0, c->n, false);
    scatter(p, &across, SIDE_OUT, lo, hi - lo, true);
    gather(p, &across, lo, hi - lo);
    gather(p, &inside, 0, c->n);
    xfree(inside.rank);
    xfree(across.rank);
    return true;
}

/* The rank of a host that the root speaks to: the root itself, or the host's first. */
static int leader(const struct coll *c, int host)
{
    if (host == c->host[c->root]) return c->root;
    int r = 0;
    while (c->host[r] != host) r++;
    return r;
}

static bool broadcast(struct moves *p, const struct coll *c)
{
    int hosts = n_hosts(c), mine = leader(c, c->host[c->rank]);
    if (hosts < 2) return false;
    if (c->rank != mine) {
        comm_moves_recv(p, mine, SIDE_OUT, 0, c->n);
        return true;
    }
    if (c->rank != c->root) comm_moves_recv(p, c->root, SIDE_OUT, 0, c->n);
    comm_moves_fence(p);
    for (int h = 0; c->rank == c->root && h < hosts; h++)
        if (h != c->host[c->root]) comm_moves_send(p, leader(c, h), SIDE_OUT, 0, c->n);
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && c->host[r] == c->host[c->rank]) comm_moves_send(p, r, SIDE_OUT, 0, c->n);
    return true;
}

bool two_level_write(struct moves *p, const struct coll *c)
{
    if (c->op == COMM_ALL_REDUCE) return all_reduce(p, c);
    if (c->op == COMM_BROADCAST) return broadcast(p, c);
    return false;
}
