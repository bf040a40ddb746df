/* SPDX-License-Identifier: Apache-2.0 */
/* Two walks over the uses: how many each part has, then which. */
#include "schedule/part_uses.h"

#include "base/mem.h"

enum { COUNTS, FILLS };

/* Counts into begin[part + 1]; or fills, where begin[part] is where the next one goes. */
static void walk(struct part_uses *x, int what)
{
    for (int s = 0; s < x->p->n_stages; s++) {
        const struct stage_parts *g = &x->p->stage[s];
        for (int i = 0; i < g->n_use; i++) {
            const struct part_use *u = &g->use[i];
            int64_t first = x->phase[s * PART_PHASES + u->phase];
            for (int part = u->first; part <= u->last && part < g->n[u->phase]; part++)
                if (what == COUNTS) x->begin[first + part + 1]++;
                else x->use[x->begin[first + part]++] = i;
        }
    }
}

void part_uses_init(struct part_uses *x, const struct rank_parts *p)
{
    int64_t parts = 0;
    *x = (struct part_uses){.p = p, .phase = xcalloc(to_size(p->n_stages) * PART_PHASES + 1, sizeof *x->phase)};
    for (int s = 0; s < p->n_stages; s++)
        for (int ph = 0; ph < PART_PHASES; ph++) {
            x->phase[s * PART_PHASES + ph] = parts;
            parts += p->stage[s].n[ph];
        }
    x->begin = xcalloc(to_size(parts) + 2, sizeof *x->begin);
    walk(x, COUNTS);
    for (int64_t i = 0; i < parts; i++) x->begin[i + 1] += x->begin[i];
    x->use = xcalloc(to_size(x->begin[parts]) + 1, sizeof *x->use);
    walk(x, FILLS);
    for (int64_t i = parts; i > 0; i--) x->begin[i] = x->begin[i - 1]; /* each stands where the next one begins */
    x->begin[0] = 0;
}

void part_uses_fini(struct part_uses *x)
{
    xfree(x->phase);
    xfree(x->begin);
    xfree(x->use);
    *x = (struct part_uses){0};
}

const int *part_uses_of(const struct part_uses *x, const struct stage_parts *g, int phase, int part, int *n)
{
    int64_t at = x->phase[(g - x->p->stage) * PART_PHASES + phase] + part;
    *n = (int)(x->begin[at + 1] - x->begin[at]);
    return x->use + x->begin[at];
}
