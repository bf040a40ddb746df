/* SPDX-License-Identifier: Apache-2.0 */
/* topology.h: the cores of a host in the order in which neighbours share most (package, memory node, cache), and which
 * memory node each belongs to. The library behind it (hwloc) is named in topology.c only.
 *
 * Of this machine, or of another one: hwloc's XML (`lstopo machine.xml` there), or its synthetic form, such as
 * "synthetic:package:2 node:1 core:8 pu:2" for two packages with a memory node and eight cores of two hardware threads.
 * Includes: base only. Order: Local.
 */
#ifndef TUTTI_BASE_TOPOLOGY_H
#define TUTTI_BASE_TOPOLOGY_H

#include "base/cores.h"
#include "base/err.h"

enum { TOPOLOGY_THREADS = 8 }; /* hardware threads of a core that are looked at */

struct topology_core {
    int n, pu[TOPOLOGY_THREADS]; /* its hardware threads, by the system's numbers */
    int node, package;           /* which, counted from 0 in the machine's order; -1: the machine does not say */
};
struct topology {
    struct topology_core *core;
    int n, n_nodes, n_packages; /* cores; memory nodes and packages that they belong to */
};

/* from NULL: this machine.
 *   fails   ERR_REQUEST naming what is no topology, ERR_IO where the machine cannot be looked at */
int topology_read(struct topology *t, const char *from, struct err *e);
void topology_free(struct topology *t);
/* Keeps the hardware threads in `allowed`, and cores that have some left. */
void topology_within(struct topology *t, const struct cores *allowed);
/* All hardware threads. */
void topology_cores(const struct topology *t, struct cores *out);

#endif
