/* SPDX-License-Identifier: Apache-2.0 */
/* One engine per rank of the pipeline on the null device, as plans make them. Where two ranks hold a stage (both ways
 * of a bidirectional schedule) the first one counts. */
#include "plan/stage_costs.h"

#include "base/mem.h"
#include "site/site.h"

static struct schedule_stage_cost cost_of(const struct program *p)
{
    struct schedule_stage_cost c = {.f = p->flops[PHASE_F], .b = p->flops[PHASE_B], .w = p->flops[PHASE_W]};
    for (int i = p->begin[PHASE_B]; i < p->begin[PHASE_N]; i++)
        if (p->code[i].again) c.again += p->code[i].flops;
    c.b -= c.again; /* again only stands in B */
    return c;
}

static void read_off(struct schedule_stage_cost *out, const struct engine *g)
{
    for (int i = 0; i < g->n_stages; i++) {
        struct schedule_stage_cost *x = &out[g->stage[i].index];
        if (x->f == 0 && g->stage[i].train) *x = cost_of(g->stage[i].train);
    }
}

int stage_costs(struct schedule_stage_cost **out, const struct config *c, const struct engine *g, struct err *e)
{
    const struct mesh *m = &g->params.mesh;
    struct comm_config cc = config_comm(c);
    cc.link_GBps = cc.link_latency_s = 0;
    *out = xcalloc(to_size(g->when->n_stages), sizeof **out);
    read_off(*out, g);
    int rc = OK, coord[AXIS_N] = {0};
    for (int i = 1; !rc && i < m->size[AXIS_PP]; i++) {
        struct site s;
        coord[AXIS_PP] = i;
        struct site_config x = {.config = c,
                                .kind = SITE_COUNTS,
                                .rank = mesh_rank(m, MESH_DENSE, coord),
                                .n = config_ranks(c),
                                .link = &cc};
        rc = site_open(&s, &x, e);
        if (rc) break;
        read_off(*out, s.engine);
        site_close(&s);
    }
    if (!rc) return OK;
    xfree(*out);
    *out = NULL;
    return rc;
}
