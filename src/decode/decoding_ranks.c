/* SPDX-License-Identifier: Apache-2.0 */
/* The mesh is that of training (config/ranks.h) with the degrees that decoding has; calls are broadcasts of the hosts.
 */
#include "decode/decoding_ranks.h"

#include "base/mem.h"
#include "engine/stages.h"
#include "kernel/cache_runs.h"

int decoding_ranks_init(struct decoding_ranks *g, struct comm *world, int tp, int pp, struct err *e)
{
    int n = world ? comm_size(world) : 1;
    *g = (struct decoding_ranks){.tp = tp, .n_stages = pp};
    CHECK(tp > 0 && pp > 0, "tp %d, pp %d", tp, pp);
    if (n % (tp * pp))
        return err_set(e, ERR_REQUEST, "tp x pp = %d x %d ranks have a model, and %d were started; start %d, or choose",
                       tp, pp, n, (n / (tp * pp) + 1) * tp * pp);
    struct config *c = xcalloc(1, sizeof *c);
    c->parallel.dp_replicate = n / (tp * pp);
    c->parallel.dp_shard = c->parallel.cp = c->parallel.ep = 1;
    c->parallel.tp = c->parallel.etp = tp;
    c->parallel.pp = pp;
    int rc = ranks_init(&g->ranks, world, c, e);
    xfree(c);
    if (rc) return rc;
    g->stage = pp - 1 - g->ranks.par.rank[AXIS_PP];
    g->leads = !g->ranks.model || comm_rank(g->ranks.model) == 0;
    return OK;
}

void decoding_ranks_fini(struct decoding_ranks *g) { ranks_fini(&g->ranks); }

int decoding_ranks_split(const struct decoding_ranks *g, const struct model_config *m, struct model_stage *stage,
                         struct err *e)
{
    if (g->tp > 1 && model_scans(m))
        return err_set(e, ERR_REQUEST,
                       "state spaces are not shared out over tp when they generate; choose parallel.tp: 1, or pp");
    if (g->n_stages > 1 && model_pairs(m))
        return err_set(e, ERR_REQUEST,
                       "pp: every layer of t5's decoder reads what the encoder made, and a stage sends one stream; "
                       "choose "
                       "tp");
    int64_t ffn = m->moe.experts && m->moe.ffn < m->ffn ? m->moe.ffn : m->ffn;
    const struct {
        const char *what;
        int64_t n;
    } cut[] = {{"heads", m->heads}, {"columns of the MLP", ffn}, {"tokens of the vocabulary", m->vocab}};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        if (g->tp > 1 && g->tp > cut[i].n)
            return err_set(e, ERR_REQUEST, "tp: %d ranks share out %lld %s; choose at most %lld", g->tp,
                           (long long)cut[i].n, cut[i].what, (long long)cut[i].n);
    int rc = stages_split(stage, g->n_stages, m, 1, NULL, 0, e);
    return rc ? err_prefix(e, "pp") : OK;
}

void decoding_ranks_hold(const struct decoding_ranks *g, const struct model_config *m, const struct model_stage *stage,
                         struct param_table *t)
{
    if (g->n_stages == 1) return;
    int *at = xcalloc(to_size(g->n_stages), sizeof *at);
    for (int i = 0; i < t->n; i++) {
        int n = 0;
        for (int c = 0; c < g->n_stages; c++)
            if (model_stage_uses(m, &stage[g->n_stages - 1 - c], &t->p[i])) at[n++] = c;
        t->p[i].layout = layout_hold_on(t->p[i].layout, at, n);
    }
    param_place(t, t->rank);
    xfree(at);
}

int64_t decoding_call_words(const struct decoding_call *c)
{
    if (c->order == DECODING_READ) return c->rows + c->longest;
    return 2 * c->rows + c->wanted + c->n_parts * (RUN_PAGES + c->longest + (c->reads ? RUN_PAGES + c->reads : 0));
}

int decoding_tell(const struct decoding_ranks *g, struct decoding_call *c, struct err *e)
{
    struct comm *m = g->ranks.model;
    comm_wait(m, comm_broadcast(m, c, (int64_t)(sizeof *c / sizeof(int64_t)), DT_I64, 0, COMM_AT("call")));
    return comm_status(m, e);
}

int decoding_tell_words(const struct decoding_ranks *g, int32_t *words, int64_t n, struct err *e)
{
    struct comm *m = g->ranks.model;
    comm_wait(m, comm_broadcast(m, words, n, DT_I32, 0, COMM_AT("rows of a step")));
    return comm_status(m, e);
}
