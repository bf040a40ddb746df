/* SPDX-License-Identifier: Apache-2.0 */
/* places.h: where the ranks of a run are: hosts, the cores that each of them may use, threads. Read once at the start,
 * told in fixed words (docs/cluster.md), and held against what makes runs slow without a word.
 *
 *   binding own      no two ranks of a host may use the same core
 *           shared   all ranks of a host may use the same cores
 *           mixed    each rank shares all of its cores with some and none with others: a socket for two of them, or
 *                    hosts that differ
 *           overlap  some ranks of a host share some of their cores, which nobody means
 * Floor 9.
 */
#ifndef TUTTI_SITE_PLACES_H
#define TUTTI_SITE_PLACES_H

#include "base/cores.h"
#include "base/json.h"
#include "comm/comm.h"

struct seat {
    char host[72]; /* Linux: at most 64 */
    int on;        /* number of the host */
    int threads;
    int quota; /* cores that the cgroup allows all of the host's ranks; INT32_MAX: no limit */
    int above; /* cores that the launcher's own process may use; 0: not known */
    int asked; /* cores that the job asked for per task; 0: nobody did */
    struct cores cores;
};

struct places {
    int n, n_hosts;
    bool one_process;  /* ranks are threads of this process: there is no binding them */
    struct seat *seat; /* [n] */
};

/* world NULL: one rank. Every rank gets the list. Collective(world). */
int places_gather(struct places *p, struct comm *world, int threads, struct err *e);
void places_free(struct places *p);

/* One line each, without its end: "2, node1 (ranks 0-3), node2 (ranks 4-7)", "4 per rank", "own, rank 0: 0-3, ...".
 * Local. */
void places_hosts(const struct places *p, struct str *out);
void places_threads(const struct places *p, struct str *out);
void places_binding(const struct places *p, struct str *out);
const char *places_bound(const struct places *p); /* own, shared, mixed, overlap */
/* What is probably not meant, with the remedy; a line each. Empty: nothing. */
void places_warnings(const struct places *p, struct str *out);
/* The list "places": an object for neighbouring ranks that are alike: "first", "last" (ranks), "host", "cores",
 * "threads". */
void places_put(const struct places *p, struct json_out *o);

#endif
