/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator asked with the times of a trace: each stage takes the mean of what its own actions took, kind by kind.
 * What is left between its answer and the trace is what the simulator does not know: messages, and that no two actions
 * take the same time. */
#include "base/mem.h"
#include "report/timing.h"
#include "schedule/parts.h"

static struct schedule_stage_cost cost_of(const struct timing_stage *x)
{
    struct schedule_stage_cost c = {.f = x->mean_s[TIME_F],
                                    .b = x->mean_s[TIME_B],
                                    .w = x->mean_s[TIME_W],
                                    .bw = x->mean_s[TIME_BW]};
    if (x->actions[TIME_BW] && !x->actions[TIME_B]) c.b = c.w = c.bw / 2; /* only their sum counts */
    return c;
}

/* All stages that the schedule runs were seen. What is computed once more was measured inside its backward. */
static bool costs(const struct timing *t, const struct schedule *s, struct schedule_stage_cost *c)
{
    if (t->n_stages != s->n_stages) return false;
    for (int i = 0; i < t->n_stages; i++) {
        if (!t->stage[i].actions[TIME_F]) return false;
        c[i] = cost_of(&t->stage[i]);
    }
    return true;
}

bool timing_predict(const struct timing *t, struct timing_promise *p)
{
    struct schedule *s;
    struct schedule_timeline line;
    *p = (struct timing_promise){0};
    if (!*t->schedule || schedule_parse(&s, t->schedule, "schedule", NULL)) return false;
    struct schedule_stage_cost *c = xcalloc(to_size(s->n_stages), sizeof *c);
    if (!schedule_check(s, NULL, NULL) && costs(t, s, c)) {
        struct schedule *whole = schedule_has_parts(s) ? schedule_join(s) : NULL;
        schedule_simulate(whole ? whole : s, &(struct schedule_cost){.each = c}, &line);
        *p = (struct timing_promise){line.makespan, line.bubble_ratio, line.idle_share};
        schedule_timeline_fini(&line);
        schedule_free(whole);
    }
    xfree(c);
    schedule_free(s);
    return p->makespan_s > 0;
}
