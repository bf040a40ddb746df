/* SPDX-License-Identifier: Apache-2.0 */
/* Every microbatch goes through all stages once, so the ranks' sums over a step are those of one sequence, times how
 * many there is room for: pipelines that give a stage's microbatches to two ranks need no rule of their own. Rejected:
 * adding the ranks' FLOPs up in every step, one more message for a number that follows from sums over the batch. */
#include "engine/work.h"

#include "engine/build.h"
#include "layout/mask_pairs.h"

static struct mask mask_of(const struct engine *g, enum op_pairs k)
{
    const struct model_config *c = &g->cfg.model;
    return (struct mask){.causal = !model_both_ways(c),
                         .marked = g->marked != NULL,
                         .window = k == PAIRS_WINDOWS ? c->attn.window : 0};
}

/* Of one sequence where nothing is hidden. */
static int64_t open_of(const struct engine *g, enum op_pairs k)
{
    return k == PAIRS_KEYS ? g->cfg.model.encoder_len : mask_pairs(NULL, g->cfg.seq, mask_of(g, k));
}

static int64_t keys_there(const struct engine *g, const struct engine_batch *b, int64_t s)
{
    int64_t n = 0, most = g->cfg.model.encoder_len;
    for (int64_t i = 0; i < most; i++) n += !b->positions || b->positions[s * g->cfg.seq + i] >= 0;
    return n;
}

static bool has_pairs(const struct engine *g, enum op_pairs k)
{
    const struct model_config *c = &g->cfg.model;
    if (k == PAIRS_KEYS) return c->pads;
    return c->document_mask && (k == PAIRS_DOCUMENTS || (k == PAIRS_WINDOWS && c->attn.window > 0));
}

void work_count(struct engine *g, const struct engine_batch *b, int64_t pairs[PAIRS_N])
{
    int64_t micro = g->cfg.micro;
    const int32_t *ids = g->marked ? g->marked : b->docs;
    for (int k = 0; k < PAIRS_N; k++) {
        pairs[k] = 0;
        if (!has_pairs(g, (enum op_pairs)k)) continue;
        struct mask m = mask_of(g, (enum op_pairs)k);
        int64_t open = open_of(g, (enum op_pairs)k);
        for (int64_t i = 0; i < g->cfg.n_microbatches; i++) {
            int64_t seen = 0, there = 0; /* others are computed with nothing hidden */
            for (int64_t s = i * micro; s < (i + 1) * micro && s < b->n; s++, there++)
                seen += k == PAIRS_KEYS ? keys_there(g, b, s)
                                        : mask_pairs(ids ? ids + s * g->cfg.seq : NULL, g->cfg.seq, m);
            pairs[k] += seen;
            g->shown[i * PAIRS_N + k] = (double)(seen + (micro - there) * open) / (double)(micro * open);
        }
    }
}

static void add_stage(const struct engine *g, const struct program *p, int runs, int trains, struct work_cost *c)
{
    double room = (double)(engine_n_sequences(g) * g->cfg.micro), plain = p->flops_model;
    for (int k = 0; k < PAIRS_N; k++) {
        if (!has_pairs(g, (enum op_pairs)k)) continue;
        plain -= p->flops_pairs[k];
        c->pair[trains][k] += p->flops_pairs[k] * runs / room / (double)open_of(g, (enum op_pairs)k);
    }
    c->sequence[trains] += plain * runs / room;
}

void work_cost_of(const struct engine *g, struct work_cost *c)
{
    *c = (struct work_cost){0};
    for (int i = 0; i < g->n_stages; i++)
        for (int trains = 0; trains < 2; trains++) {
            const struct program *p = trains ? g->stage[i].train : g->stage[i].eval;
            const struct schedule *when = trains ? g->when : g->when_eval;
            if (p && when) add_stage(g, p, engine_runs(g, when, i), trains, c);
        }
}

double work_flops(const struct work_cost *c, const struct engine_report *r, bool trains)
{
    double sum = c->sequence[trains] * (double)r->sequences;
    for (int k = 0; k < PAIRS_N; k++) sum += c->pair[trains][k] * (double)r->pairs[k];
    return sum;
}
