/* SPDX-License-Identifier: Apache-2.0 */
/* What layers cost is counted in FLOPs; dealing them is arithmetic on whole numbers (engine/deal.c). */
#include "engine/stages.h"

#include <math.h>

#include "base/mem.h"
#include "engine/deal.h"

/* In units small enough that dealing is exact: of layers that are alike the numbers are the same. */
static void deal(int64_t *n, int n_stages, const struct model_config *c, int64_t seq)
{
    double *layer = xcalloc((size_t)c->layers + 1, sizeof *layer), embed, head, most = (double)DEAL_MOST / 2;
    int64_t *cost = xcalloc((size_t)c->layers + 1, sizeof *cost);
    model_costs(c, seq, layer, &embed, &head);
    double all = embed + head;
    for (int l = 0; l < c->layers; l++) all += layer[l];
    double unit = all > most ? all / most : 1; /* rounding up to a whole unit each is within the other half */
    for (int l = 0; l < c->layers; l++) cost[l] = llround(layer[l] / unit);
    deal_layers(n, n_stages, cost, c->layers, llround(embed / unit), llround(head / unit));
    xfree(cost);
    xfree(layer);
}

int stages_split(struct model_stage *out, int n_stages, const struct model_config *c, int64_t seq,
                 const int64_t *layers, int n_layers, struct err *e)
{
    int64_t *n = xcalloc((size_t)n_stages, sizeof *n), sum = 0;
    int rc = OK, first = 0;
    if (layers && n_layers != n_stages)
        rc = err_set(e, ERR_REQUEST, "%d numbers of layers for %d stages; give one per stage", n_layers, n_stages);
    if (!rc && !layers && !deal_possible(c->layers, n_stages))
        rc = err_set(e, ERR_REQUEST,
                     "%d layers are too few for %d stages, of which only the first (embedding) and the last (head) "
                     "may have none; choose at most %d stages",
                     to_int(c->layers), n_stages, to_int(c->layers) + 2);
    if (!rc && !layers) deal(n, n_stages, c, seq);
    for (int s = 0; !rc && s < n_stages; s++) {
        if (layers) n[s] = layers[s];
        sum += n[s];
        out[s] = (struct model_stage){first, first + to_int(n[s]), s == 0, s == n_stages - 1};
        first = out[s].end;
    }
    if (!rc && sum != c->layers)
        rc = err_set(e, ERR_REQUEST, "the stages have %lld layers together, the model has %d", (long long)sum,
                     to_int(c->layers));
    for (int s = 0; !rc && s < n_stages; s++)
        if (n[s] < deal_least(s, n_stages))
            rc = err_set(e, ERR_REQUEST, "stage %d has no layers; only the first (embedding) and the last (head) may",
                         s);
    xfree(n);
    return rc;
}

int stages_on(const struct schedule *s, int rank, int *out)
{
    int n = 0;
    for (int i = 0; i < s->n_stages; i++)
        if (schedule_has_stage(s, rank, i)) out[n++] = i;
    return n;
}

/* A stage has a rank for each way that microbatches go through the pipeline. */
int stages_holders(const struct schedule *s, const struct model_stage *stage, const struct model_config *c,
                   const struct param *p, int *out)
{
    int n = 0;
    for (int i = 0; i < s->n_stages; i++) {
        if (!model_stage_uses(c, &stage[i], p)) continue;
        for (int w = 0; w < s->n_ways; w++) {
            int rank = s->place[w * s->n_stages + i], at = n;
            for (int k = 0; k < n && at == n; k++)
                if (out[k] >= rank) at = k;
            if (at < n && out[at] == rank) continue;
            for (int k = n++; k > at; k--) out[k] = out[k - 1];
            out[at] = rank;
        }
    }
    return n;
}
