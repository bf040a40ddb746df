/* SPDX-License-Identifier: Apache-2.0 */
/* binding.h: which cores each rank of a host runs on, and each of its threads (run.bind). A decision on paper, the same
 * on every rank; printed by `tutti explain CONFIG binding` and the first lines of a run, and carried out by
 * binding_apply.
 *
 *   none   nothing is bound: the system moves threads as it likes within what the process may use
 *   rank   the cores that ranks of a host share are dealt to them: neighbours in the machine's order to one rank, sizes
 *          differing by one at most. All threads of a rank stay there
 *   core   the same, and each thread of a team but the rank's own has one hardware thread to itself, cores first; the
 *          rank's own stays on its share, where threads that it starts later (reading, saving) run too
 *
 * Ranks that a launcher bound apart keep what they have. Ranks with fewer cores than there are of them take turns, and
 * so do threads: said, not refused. Ranks that share a part of their cores only are refused.
 * Floor 9.
 */
#ifndef TUTTI_SITE_BINDING_H
#define TUTTI_SITE_BINDING_H

#include "base/json.h"
#include "base/topology.h"
#include "config/config.h"
#include "site/places.h"

struct binding_rank {
    int rank;           /* of the world */
    struct cores share; /* what its threads may use */
    int n_nodes;        /* memory nodes among them */
    int node;           /* the first */
    int n_threads, *pu; /* of thread i; -1: all of the share */
};
struct binding {
    enum bind how;
    int n;
    struct binding_rank *of; /* ranks of one host, in order */
    int cores, n_nodes;      /* of the host, that its ranks may use */
    bool turns_ranks;        /* ranks take turns on a core */
    bool turns_threads;      /* threads of a rank do */
};

/* Of the ranks of host `host`. t: that host's. Local.
 *   fails   ERR_REQUEST where two ranks may use some of each other's cores only */
int binding_choose(struct binding *b, enum bind how, const struct topology *t, const struct places *p, int host,
                   struct err *e);
void binding_free(struct binding *b);
/* NULL: not of this host. */
const struct binding_rank *binding_of(const struct binding *b, int rank);
/* The calling thread and its team, from here on. ERR_REQUEST where the system refuses. Local; the team's owner. */
struct team;
int binding_apply(const struct binding *b, int rank, struct team *team, struct err *e);

/* "rank, rank 0: 0-3 (memory node 0), ...", eight ranks of them; a warning per line, empty: none. */
void binding_line(const struct binding *b, struct str *out);
void binding_warnings(const struct binding *b, struct str *out);
/* A line per rank. */
void binding_map(const struct binding *b, struct str *out);
/* Members of the open object: "bind", "cores", "memory_nodes", "ranks": a list of "rank", "cores", "memory_node",
 * "memory_nodes", "threads". */
void binding_put(const struct binding *b, struct json_out *o);

#endif
