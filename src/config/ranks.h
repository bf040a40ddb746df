/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h: this rank's place among all: the mesh, its coordinates, its groups. Made from a world and a config.
 * Floor 7. Order: Collective(world).
 */
#ifndef TUTTI_CONFIG_RANKS_H
#define TUTTI_CONFIG_RANKS_H

#include "comm/comm.h"
#include "config/config.h"
#include "engine/engine.h"

struct ranks {
    struct comm *world; /* borrowed; NULL: alone */
    /* Groups; NULL: of size 1. shard: dp_shard and cp together, over which state is shared out; replicate: its copies;
     * model: all ranks that hold one copy (everything but dp_replicate); axis: along one axis (ep: with those ranks of
     * etp that get the same rows, parallel/expert.h). world, model and workers are the hosts'. */
    struct comm *shard, *replicate, *model, *axis[AXIS_N];
    struct host_groups host; /* the hosts of some of them, for small numbers */
    struct comm *expert;     /* ranks of one replica with the same experts; NULL: of size 1, or no experts folded */
    struct comm *cp_inner, *cp_outer; /* cp's two levels (parallel/context.h), where it has two */
    struct mesh mesh;
    int rank, n;
    int n_servers, server; /* the last n_servers ranks are a parameter server; which of them this is, -1: a worker */
    struct comm *workers;  /* NULL: no servers, or one of them, or one worker */
    bool writes;           /* this rank writes a part of checkpoints: */
    int writer, n_writers; /* which */
    int part;              /* which part of the batch: dp_replicate-major */
    struct par par;        /* sizes and coordinates, for recording */
};
/* The mesh of n ranks that are no servers. Local. */
int ranks_mesh(struct mesh *m, const struct config *c, int n, struct err *e);
/* The mesh of a parameter server's ranks: a parameter is shared out over all of them along dp_shard. */
struct mesh ranks_servers(int n);
int ranks_init(struct ranks *r, struct comm *world, const struct config *c, struct err *e);
void ranks_fini(struct ranks *r);
/* What this rank sent so far, by axis. The groups of several axes count for one: shard for dp_shard (cp where that has
 * size 1), model for the outermost of its axes. */
void ranks_traffic(const struct ranks *r, struct comm_traffic out[AXIS_N]);

/* Buffers that collectives touch come from memory that the other processes of the host see, where there are any. Before
 * the device's first buffer; the world outlives its buffers. */
void ranks_device(const struct ranks *r, struct device *d);

/* Writes groups, rank and zero level into the engine's settings. */
void ranks_engine(const struct ranks *r, struct engine_config *ec);

#endif
