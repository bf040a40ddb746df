/* ranks.h: this rank's place among all: the mesh, its coordinates, its groups. Made from a world and a config.
 * Floor 6. Order: Collective(world).
 */
#ifndef TUTTI_RUN_RANKS_H
#define TUTTI_RUN_RANKS_H

#include "comm/comm.h"
#include "run/config.h"

struct ranks {
    struct comm *world;            /* borrowed; NULL: alone */
    struct comm *shard, *replicate;/* groups along dp_shard and dp_replicate; NULL: of size 1 */
    struct mesh mesh;
    int rank, n;
    int part;                      /* which part of the batch: dp_replicate-major */
};
int ranks_init(struct ranks *r, struct comm *world, const struct config *c, struct err *e);
void ranks_fini(struct ranks *r);
/* Writes groups, rank and zero level into the engine's settings. */
void ranks_engine(const struct ranks *r, struct engine_config *ec);

#endif
