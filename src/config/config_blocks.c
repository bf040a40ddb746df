/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of moments are cut in rows, by column, so only a cut of columns can go through one. Matrices that are cut
 * alike (of every layer, of every expert) are looked at once. */
#include "config/config_blocks.h"

#include <stdio.h>

#include "base/mem.h"
#include "config/config.h"
#include "config/ranks.h"

enum { KINDS = 64 };

struct kind { /* of a cut of columns */
    int64_t cols, unit;
    int size;
};

static bool is_new(struct kind *seen, int *n, struct kind k)
{
    for (int i = 0; i < *n; i++)
        if (seen[i].cols == k.cols && seen[i].unit == k.unit && seen[i].size == k.size) return false;
    if (*n < KINDS) seen[(*n)++] = k;
    return true;
}

static bool cuts_columns(const struct param *p, struct kind *k)
{
    if (p->nd != 2) return false;
    for (int i = 0; i < p->layout.n_places; i++)
        if (p->layout.place[i].type == SPMD_S1 && p->layout.place[i].on.size > 1) {
            *k = (struct kind){p->n[1], p->layout.place[i].unit, p->layout.place[i].on.size};
            return true;
        }
    return false;
}

/* Whether cuts of all ranks are at blocks of so many. */
static bool fits(const struct param *p, int n_ranks, int64_t block)
{
    for (int r = 0; r < n_ranks; r++) {
        if (!layout_holds(&p->layout, r)) continue;
        struct region box = layout_box(&p->layout, r);
        if (!region_volume(&box)) continue;
        if (box.lo[1] % block || (box.hi[1] % block && box.hi[1] != p->n[1])) return false;
    }
    return true;
}

static int refuse(const struct config *c, const struct param *p, int n_ranks, struct err *e)
{
    int64_t most = c->optimizer.block, least = 16;
    char instead[64] = "";
    while (most >= least && !fits(p, n_ranks, most)) most--;
    if (most >= least) snprintf(instead, sizeof instead, "optimizer.block: %lld, or ", (long long)most);
    return err_set(e, ERR_REQUEST,
                   "blocks of %lld columns would lie on two ranks: %s of %lld columns is cut between them; choose %s"
                   "parallel.tp: 1, or optimizer.moments: bf16",
                   (long long)c->optimizer.block, p->name, (long long)p->n[1], instead);
}

int config_check_blocks(const struct config *c, struct err *e)
{
    struct param_table t = {0};
    struct kind seen[KINDS], k;
    struct mesh m;
    int n = 0, n_ranks = config_ranks(c) - to_int(c->parallel.servers);
    if (c->optimizer.moments < MOMENTS_FP8 || (c->parallel.tp == 1 && c->parallel.etp == 1)) return OK;
    int rc = ranks_mesh(&m, c, n_ranks, e);
    if (rc) return rc;
    struct par par = par_at(&m, 0);
    model_declare(&c->model, &par, &t);
    for (int i = 0; !rc && i < t.n; i++)
        if (cuts_columns(&t.p[i], &k) && is_new(seen, &n, k) && !fits(&t.p[i], n_ranks, c->optimizer.block))
            rc = refuse(c, &t.p[i], n_ranks, e);
    param_table_free(&t);
    return rc;
}
