/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous workers and servers walk alone from one meeting to the next, where all save and validate. */
#include "base/clock.h"
#include "base/log.h"
#include "train/trainer_impl.h"

static int worker_until_meeting(struct trainer *t, struct err *e)
{
    for (bool meet = false; !meet;) {
        const struct batch *b;
        struct engine_report r;
        double from = clock_now_s(), lr = lr_at(&t->lr, t->step);
        int rc = prefetch_next(t->feed, &b, e);
        if (rc) return rc;
        t->data_wait_s = 1e-9 * (double)trainer_waited_ns(t);
        t->data_waited_s += t->data_wait_s;
        int64_t first, n;
        config_part(&t->cfg, t->site.ranks.part, &first, &n);
        struct engine_batch view = trainer_view(b, first);
        rc = param_server_push(t->site.serve, &view, t->step, signals_stop_wanted(t->job->signals), &r, &t->stale,
                               &meet, e);
        if (!rc) rc = engine_status(t->site.engine, e);
        if (rc) return rc;
        t->step++;
        t->tokens += r.tokens; /* of this worker; at a meeting of all */
        if (t->leads && (rc = trainer_report(t, &r, lr, clock_now_s() - from, e))) return rc;
    }
    return OK;
}

static int meeting(struct trainer *t, struct err *e)
{
    int rc = trainer_together(t, OK, e);
    int64_t *left_out = &t->site.engine->left_out; /* servers count, as they do what is trained */
    comm_wait(t->site.ranks.world,
              comm_broadcast(t->site.ranks.world, left_out, 1, DT_I64, t->site.ranks.n - 1, "pushes left out"));
    comm_wait(t->site.ranks.world,
              comm_broadcast(t->site.ranks.world, &t->tokens, 1, DT_I64, t->site.ranks.n - 1, "tokens"));
    if (!rc && trainer_evaluates(t)) rc = trainer_validate(t, e);
    if (!rc &&
        ((t->cfg.checkpoint.every && t->step % t->cfg.checkpoint.every == 0) || param_server_is_over(t->site.serve)))
        rc = trainer_save(t, true, e);
    return rc;
}

int trainer_loop_async(struct trainer *t, struct err *e)
{
    int rc = OK;
    while (!rc && t->step < t->cfg.run.steps && !param_server_is_over(t->site.serve)) {
        if (trainer_serves(t)) {
            int64_t at = param_server_until_meeting(t->site.serve, &t->tokens, e);
            rc = at < 0 ? (int)at : OK;
            t->step = at;
        } else {
            rc = worker_until_meeting(t, e);
        }
        if (!rc) rc = meeting(t, e);
    }
    if (t->leads) log_status_end();
    return rc;
}
