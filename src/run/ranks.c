/* The mesh from the config's degrees, groups from the mesh. */
#include "run/ranks.h"

#include <string.h>

static int group(struct comm **out, struct ranks *r, enum axis a, struct err *e)
{
    struct mesh_axis along = mesh_axis(&r->mesh, a);
    return r->mesh.size[a] > 1 ? comm_split(out, r->world, &along, 1, e) : OK;
}

int ranks_init(struct ranks *r, struct comm *world, const struct config *c, struct err *e)
{
    memset(r, 0, sizeof *r);
    r->world = world;
    r->n = world ? comm_size(world) : 1;
    r->rank = world ? comm_rank(world) : 0;
    int degrees[AXIS_N];
    for (int a = 0; a < AXIS_N; a++) degrees[a] = 1;
    degrees[AXIS_DP_REPLICATE] = to_int(c->parallel.dp_replicate);
    degrees[AXIS_DP_SHARD] = to_int(c->parallel.dp_shard);
    degrees[AXIS_EDP] = -1;
    int rc = mesh_init(&r->mesh, r->n, degrees, e);
    if (rc) return rc;
    r->part = mesh_coord(&r->mesh, AXIS_DP_REPLICATE, r->rank) * r->mesh.size[AXIS_DP_SHARD] +
              mesh_coord(&r->mesh, AXIS_DP_SHARD, r->rank);
    if (!world) return OK;
    rc = group(&r->shard, r, AXIS_DP_SHARD, e);
    if (!rc) rc = group(&r->replicate, r, AXIS_DP_REPLICATE, e);
    if (rc) ranks_fini(r);
    return rc;
}

void ranks_fini(struct ranks *r)
{
    comm_free(r->shard);
    comm_free(r->replicate);
    r->shard = r->replicate = NULL;
}

void ranks_engine(const struct ranks *r, struct engine_config *ec)
{
    ec->rank = r->rank;
    ec->shard = r->shard;
    ec->replicate = r->replicate;
}
