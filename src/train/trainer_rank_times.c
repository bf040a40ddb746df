/* SPDX-License-Identifier: Apache-2.0 */
/* How long ranks take (watch/rank_times.h), between the trainer's step and what it says of it. */
#include "base/log.h"
#include "train/trainer_impl.h"

int trainer_pace_open(struct trainer *t, struct err *e)
{
    if (t->site.serve) return OK; /* workers and servers do different things by design */
    return rank_times_open(&t->pace, &t->site.ranks, t->site.engine, t->cfg.run.rank_times ? t->cfg.run.dir : NULL,
                           t->step, e);
}

int trainer_pace(struct trainer *t, double step_s, struct err *e)
{
    struct str said = {0};
    struct rank_times_verdict v;
    if (!t->pace) return OK;
    int rc = rank_times_step(t->pace, t->step, step_s, &t->ranks_took, &v, &said, e);
    if (!rc && t->leads && said.n) {
        log_status_end();
        log_warn("step %lld: %s", (long long)t->step, str_text(&said));
        if (v.cause) rc = metrics_straggler(t->metrics, t->step, &v, e);
    }
    str_free(&said);
    return rc;
}
