/* SPDX-License-Identifier: Apache-2.0 */
/* The mesh from the config's degrees, groups from the mesh. */
#include "config/ranks.h"

#include <stdio.h>
#include <string.h>

static int split(struct comm **out, struct ranks *r, int n, const struct mesh_axis *along, const char *name,
                 struct err *e)
{
    int size = mesh_group(along, n, r->rank, NULL), *list = xcalloc((size_t)size, sizeof *list);
    mesh_group(along, n, r->rank, list);
    int rc = comm_split_list(out, r->world, list, size, name, e);
    xfree(list);
    return rc;
}

/* Axes of size 1 are left out, and there is no group of one rank. The name says the axes, and what for where there are
 * several groups along the same ones. */
static int group(struct comm **out, struct ranks *r, int n, const enum axis *axes, const char *what, struct err *e)
{
    struct mesh_axis along[AXIS_N];
    struct str name = {0};
    int k = 0;
    for (int i = 0; i < n; i++) {
        if (r->mesh.size[axes[i]] == 1) continue;
        str_printf(&name, "%s%s", k ? "+" : "", axis_name(axes[i]));
        along[k++] = mesh_axis(&r->mesh, axes[i]);
    }
    str_printf(&name, "%s", what);
    int rc = k ? split(out, r, k, along, str_text(&name), e) : OK;
    str_free(&name);
    return rc;
}

/* Ranks of one replica that hold the same experts: edp without its outer part, dp_replicate. */
static int expert_group(struct ranks *r, struct err *e)
{
    struct mesh_axis edp = mesh_axis(&r->mesh, AXIS_EDP), outer, inner;
    if (r->mesh.size[AXIS_EP] == 1 && r->mesh.size[AXIS_ETP] == r->mesh.size[AXIS_TP]) return OK; /* as all others */
    mesh_axis_factor(edp, r->mesh.size[AXIS_DP_REPLICATE], &outer, &inner);
    return inner.size > 1 ? split(&r->expert, r, 1, &inner, "edp state", e) : OK;
}

/* The hosts of a group. */
static int hosts(struct comm **out, struct ranks *r, const struct comm *of, struct err *e)
{
    if (!of) return OK;
    int n = comm_size(of), *list = xcalloc((size_t)n, sizeof *list);
    char name[64];
    for (int i = 0; i < n; i++) list[i] = comm_world_rank(of, i);
    snprintf(name, sizeof name, "%s hosts", comm_name(of));
    int rc = comm_split_list(out, r->world, list, n, name, e);
    xfree(list);
    return rc;
}

static int host_groups(struct ranks *r, struct err *e)
{
    struct host_groups *h = &r->host;
    int rc = hosts(&h->shard, r, r->shard, e);
    if (!rc) rc = hosts(&h->replicate, r, r->replicate, e);
    if (!rc) rc = hosts(&h->expert, r, r->expert, e);
    if (!rc) rc = hosts(&h->tp, r, r->axis[AXIS_TP], e);
    if (!rc) rc = hosts(&h->pp, r, r->axis[AXIS_PP], e);
    return rc;
}

static int groups(struct ranks *r, struct err *e)
{
    static const enum axis shard[] = {AXIS_DP_SHARD, AXIS_CP}, replicate[] = {AXIS_DP_REPLICATE},
                           model[] = {AXIS_PP, AXIS_DP_SHARD, AXIS_CP, AXIS_TP}, experts[] = {AXIS_EP, AXIS_ETP};
    int rc = group(&r->shard, r, 2, shard, " state", e);
    if (!rc) rc = group(&r->replicate, r, 1, replicate, "", e);
    if (!rc) rc = group(&r->model, r, 4, model, " model", e);
    if (!rc) rc = expert_group(r, e);
    for (int a = 0; !rc && a < AXIS_N; a++) {
        enum axis one = (enum axis)a;
        bool elsewhere =
            one == AXIS_DP_SHARD || one == AXIS_DP_REPLICATE || one == AXIS_EDP || one == AXIS_EP || one == AXIS_ETP;
        if (!elsewhere) rc = group(&r->axis[a], r, 1, &one, "", e);
    }
    static const enum axis columns[] = {AXIS_ETP};
    if (!rc && par_expert_copies(&r->par) > 1) rc = group(&r->axis[AXIS_ETP], r, 1, columns, "", e);
    if (!rc) rc = group(&r->axis[AXIS_EP], r, par_expert_copies(&r->par) > 1 ? 2 : 1, experts, "", e);
    return rc ? rc : host_groups(r, e);
}

/* Workers are ranks of a mesh of their own; they meet in one group, and the servers do what else goes over ranks. */
static int worker_groups(struct ranks *r, int n_workers, struct err *e)
{
    int *list = xcalloc((size_t)n_workers, sizeof *list);
    for (int i = 0; i < n_workers; i++) list[i] = i;
    int rc =
        r->server < 0 && n_workers > 1 ? comm_split_list(&r->workers, r->world, list, n_workers, "workers", e) : OK;
    xfree(list);
    r->writes = r->server >= 0;
    r->writer = r->server;
    r->n_writers = r->n_servers;
    return rc;
}

/* Ranks of cp that exchange heads, and those that exchange rows. */
static int levels(struct ranks *r, struct err *e)
{
    struct comm *cp = r->axis[AXIS_CP];
    int n = r->par.size[AXIS_CP], inner = r->par.context_inner, me = r->par.rank[AXIS_CP], k = 0;
    if (!cp || inner <= 1 || inner == n) return OK;
    int *list = xcalloc(to_size(n), sizeof *list);
    for (int i = 0; i < inner; i++) list[k++] = comm_world_rank(cp, me / inner * inner + i);
    int rc = comm_split_list(&r->cp_inner, r->world, list, k, "cp.inner", e);
    k = 0;
    for (int o = 0; o < n / inner; o++) list[k++] = comm_world_rank(cp, o * inner + me % inner);
    if (!rc) rc = comm_split_list(&r->cp_outer, r->world, list, k, "cp.outer", e);
    xfree(list);
    return rc;
}

int ranks_mesh(struct mesh *m, const struct config *c, int n, struct err *e)
{
    int degrees[AXIS_N];
    for (int a = 0; a < AXIS_N; a++) degrees[a] = 1;
    degrees[AXIS_DP_REPLICATE] = to_int(c->parallel.dp_replicate);
    degrees[AXIS_DP_SHARD] = to_int(c->parallel.dp_shard);
    degrees[AXIS_TP] = to_int(c->parallel.tp);
    degrees[AXIS_CP] = to_int(c->parallel.cp);
    degrees[AXIS_PP] = to_int(c->parallel.pp);
    degrees[AXIS_EP] = to_int(c->parallel.ep);
    degrees[AXIS_ETP] = to_int(c->parallel.etp);
    degrees[AXIS_EDP] = -1;
    return mesh_init(m, n, degrees, e);
}

struct mesh ranks_servers(int n)
{
    struct mesh m;
    int degrees[AXIS_N];
    for (int a = 0; a < AXIS_N; a++) degrees[a] = 1;
    degrees[AXIS_DP_SHARD] = n;
    degrees[AXIS_EDP] = -1;
    CHECK(!mesh_init(&m, n, degrees, NULL), "%d servers", n);
    return m;
}

int ranks_init(struct ranks *r, struct comm *world, const struct config *c, struct err *e)
{
    memset(r, 0, sizeof *r);
    r->world = world;
    r->n = world ? comm_size(world) : 1;
    r->rank = world ? comm_rank(world) : 0;
    r->n_servers = to_int(c->parallel.servers);
    int n = r->n - r->n_servers, rc = ranks_mesh(&r->mesh, c, n, e);
    if (rc) return rc;
    r->server = r->rank >= n ? r->rank - n : -1;
    r->par = par_at(&r->mesh, r->server < 0 ? r->rank : 0);
    config_context(c, &r->par);
    r->par.sequence = c->parallel.sequence_parallel && c->parallel.tp > 1;
    r->part = r->par.rank[AXIS_DP_REPLICATE] * r->mesh.size[AXIS_DP_SHARD] + r->par.rank[AXIS_DP_SHARD];
    r->writes = r->par.rank[AXIS_DP_REPLICATE] == 0;
    r->n_writers = 1;
    if (!world) return OK;
    rc = r->n_servers ? worker_groups(r, n, e) : groups(r, e);
    if (!rc && !r->n_servers) rc = levels(r, e);
    if (!r->n_servers && r->model) {
        r->writer = comm_rank(r->model);
        r->n_writers = comm_size(r->model);
    }
    if (rc) ranks_fini(r);
    return rc;
}

void ranks_fini(struct ranks *r)
{
    comm_free(r->cp_inner);
    comm_free(r->cp_outer);
    r->cp_inner = r->cp_outer = NULL;
    for (int a = 0; a < AXIS_N; a++) {
        comm_free(r->axis[a]);
        r->axis[a] = NULL;
    }
    comm_free(r->workers);
    comm_free(r->model);
    struct comm **host[] = {&r->host.shard, &r->host.replicate, &r->host.expert, &r->host.tp, &r->host.pp};
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) {
        comm_free(*host[i]);
        *host[i] = NULL;
    }
    comm_free(r->shard);
    comm_free(r->expert);
    comm_free(r->replicate);
    r->shard = r->expert = r->replicate = r->model = r->workers = NULL;
}

void ranks_engine(const struct ranks *r, struct engine_config *ec)
{
    ec->rank = r->rank;
    ec->world = r->world;
    ec->shard = r->shard;
    ec->host = r->host;
    ec->expert = r->expert;
    ec->replicate = r->replicate;
    ec->model_group = r->model;
    ec->n_servers = r->n_servers;
    ec->server = r->server;
    ec->workers = r->workers;
    ec->snapshots &= r->writes;
    ec->par = r->par;
    if (r->server >= 0) {
        struct mesh servers = ranks_servers(r->n_servers);
        ec->par = par_at(&servers, r->server);
    }
    memcpy(ec->axis, r->axis, sizeof ec->axis);
    ec->cp_inner = r->cp_inner;
    ec->cp_outer = r->cp_outer;
}

static void count(const struct comm *c, struct comm_traffic *to)
{
    if (!c) return;
    struct comm_traffic t = comm_traffic(c);
    to->bytes += t.bytes;
    to->messages += t.messages;
    to->operations += t.operations;
}

void ranks_traffic(const struct ranks *r, struct comm_traffic out[AXIS_N])
{
    static const enum axis outer[] = {AXIS_PP, AXIS_DP_SHARD, AXIS_CP, AXIS_TP};
    memset(out, 0, sizeof *out * AXIS_N);
    enum axis shared = r->mesh.size[AXIS_DP_SHARD] > 1 ? AXIS_DP_SHARD : AXIS_CP;
    count(r->shard, &out[shared]);
    count(r->host.shard, &out[shared]);
    count(r->host.replicate, &out[AXIS_DP_REPLICATE]);
    count(r->host.expert, &out[AXIS_EDP]);
    count(r->host.tp, &out[AXIS_TP]);
    count(r->host.pp, &out[AXIS_PP]);
    count(r->replicate, &out[AXIS_DP_REPLICATE]);
    count(r->expert, &out[AXIS_EDP]);
    for (int a = 0; a < AXIS_N; a++) count(r->axis[a], &out[a]);
    count(r->cp_inner, &out[AXIS_CP]);
    count(r->cp_outer, &out[AXIS_CP]);
    for (int i = 0; i < 4; i++)
        if (r->mesh.size[outer[i]] > 1) {
            count(r->model, &out[outer[i]]);
            break;
        }
}

static void *take_pages(void *world, size_t bytes) { return comm_pages_new(world, bytes); }

static void give_pages(void *world, void *p, size_t bytes) { comm_pages_free(world, p, bytes); }

/* Parameters, gradients and buckets; activations where a layer is shared out over ranks, whose collectives run on the
 * tape. Everything else stays in ordinary pages, which the system may make huge ones. */
void ranks_device(const struct ranks *r, struct device *d)
{
    unsigned cats = 1u << MEM_PARAM | 1u << MEM_GRAD | 1u << MEM_COMM;
    bool in_layers = r->axis[AXIS_TP] || r->axis[AXIS_CP] || r->axis[AXIS_EP];
    if (in_layers) cats |= 1u << MEM_ACTIVATION | 1u << MEM_SCRATCH;
    if (r->world && comm_pages_shared(r->world))
        device_pages_set(d,
                         &(struct device_pages){.take = take_pages, .give = give_pages, .arg = r->world, .cats = cats});
}
