/* Dealing layers: they all cost the same, only the ends of the pipeline carry more. So layers go one by one to the stage
 * that is cheapest so far, which makes the dearest stage as cheap as possible; of equal ones the first takes it. Cost
 * O(layers x stages). Rejected: dynamic programming over cuts, which finds the same numbers. */
#include "run/stages.h"

#include "base/mem.h"

static void deal(int64_t *n, int n_stages, const struct model_config *c, int64_t seq)
{
    double layer, embed, head;
    model_costs(c, seq, &layer, &embed, &head);
    double *cost = xcalloc((size_t)n_stages, sizeof *cost);
    cost[0] += embed;
    cost[n_stages - 1] += head;
    for (int l = 0; l < c->layers; l++) {
        int to = 0;
        for (int s = 1; s < n_stages; s++)
            if (cost[s] < cost[to]) to = s;
        n[to]++;
        cost[to] += layer;
    }
    xfree(cost);
}

int stages_split(struct model_stage *out, int n_stages, const struct model_config *c, int64_t seq,
                 const int64_t *layers, int n_layers, struct err *e)
{
    int64_t *n = xcalloc((size_t)n_stages, sizeof *n), sum = 0;
    int rc = OK, first = 0;
    if (layers && n_layers != n_stages)
        rc = err_set(e, ERR_REQUEST, "%d numbers of layers for %d stages; give one per stage", n_layers, n_stages);
    if (!rc && !layers) deal(n, n_stages, c, seq);
    for (int s = 0; !rc && s < n_stages; s++) {
        if (layers) n[s] = layers[s];
        sum += n[s];
        out[s] = (struct model_stage){first, first + to_int(n[s]), s == 0, s == n_stages - 1};
        first = out[s].end;
    }
    if (!rc && sum != c->layers)
        rc = err_set(e, ERR_REQUEST, "the stages have %lld layers together, the model has %d", (long long)sum, c->layers);
    for (int s = 1; !rc && s + 1 < n_stages; s++) {
        if (n[s] > 0) continue;
        rc = layers ? err_set(e, ERR_REQUEST, "stage %d has no layers; only the first (embedding) and the last (head) may", s)
                    : err_set(e, ERR_REQUEST, "%d layers leave stage %d of %d empty; choose at most %d stages", c->layers, s,
                              n_stages, c->layers);
    }
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

int stages_holders(const struct schedule *s, const struct model_stage *stage, const struct model_config *c,
                   const struct param *p, int *out)
{
    int n = 0;
    for (int r = 0; r < s->n_ranks; r++) {
        bool here = false;
        for (int i = 0; i < s->n_stages && !here; i++)
            here = model_stage_uses(c, &stage[i], p) && schedule_has_stage(s, r, i);
        if (here) out[n++] = r;
    }
    return n;
}
