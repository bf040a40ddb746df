/* SPDX-License-Identifier: Apache-2.0 */
/* What a run does about a loss that jumps or is not finite (run.on_spike, run.on_nan): it goes back to the newest
 * checkpoint, in memory or on disk, and leaves the batch out. Going back is a new start in the same process: all is
 * closed and opened again (trainer_rank), so what follows is what follows of a start from that checkpoint, to the bit.
 */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "train/trainer_impl.h"

bool trainer_skips(const struct trainer *t) { return skips_has(&t->skips, t->step + 1); }

/* A step that is left out passes by. */
void trainer_skip(struct trainer *t, struct engine_report *r)
{
    *r = (struct engine_report){0};
    engine_leave_out(t->site.engine, r, SKIP_BATCH);
    if (!t->leads) return;
    log_status_end();
    log_info("step %lld: its batch is left out", (long long)t->step + 1);
}

int trainer_open_skips(struct trainer *t, struct err *e)
{
    const int64_t *by_hand = t->cfg.run.skip.items;
    for (int i = 0; i < t->cfg.run.skip.n; i++) skips_add(&t->skips, by_hand[i]);
    return skips_read(&t->skips, t->cfg.run.dir, t->site.ranks.world, e);
}

/* The step to go back to, -1: there is none. */
static int64_t back_to(const struct trainer *t) { return t->saved > t->memory.saved ? t->saved : t->memory.saved; }

/* Steps that were left out for their loss, not by hand. */
static int64_t left_out(const struct trainer *t)
{
    const int64_t *by_hand = t->cfg.run.skip.items;
    int64_t n = t->skips.n;
    for (int64_t i = 0; i < t->skips.n; i++)
        for (int k = 0, seen = 0; k < t->cfg.run.skip.n && !seen; k++)
            if ((seen = by_hand[k] == t->skips.step[i])) n--;
    return n;
}

static int refuse(const struct trainer *t, const char *what, struct err *e)
{
    if (back_to(t) < 0)
        return err_set(e, ERR_NUMERIC,
                       "step %lld: %s, and there is no checkpoint to go back to; checkpoint.memory_every keeps one "
                       "from "
                       "the start",
                       (long long)t->step + 1, what);
    return err_set(e, ERR_NUMERIC,
                   "step %lld: %s, and %lld steps were left out before it, as many as run.rewinds allows. Lower "
                   "optimizer.lr (now %g), raise warmup_steps, or look at the data of these steps (skips.jsonl)",
                   (long long)t->step + 1, what, (long long)left_out(t), t->cfg.optimizer.lr);
}

/* The decision is on disk before anybody acts on it. A save that is under way may be the one to go back to. */
static int go_back(struct trainer *t, const char *cause, const char *what, double loss, struct err *e)
{
    int rc = trainer_save_end(t, e);
    if (rc) return rc;
    struct skips_note note = {.step = t->step + 1,
                              .back_to = back_to(t),
                              .cause = cause,
                              .loss = loss,
                              .mean = t->skips.seen ? t->skips.mean : NAN,
                              .deviation = t->skips.seen ? skips_deviation(&t->skips) : NAN};
    if (note.back_to < 0 || left_out(t) >= t->cfg.run.rewinds) return refuse(t, what, e);
    rc = trainer_together(t, t->leads ? skips_write(t->cfg.run.dir, &note, e) : OK, e);
    if (rc) return rc;
    if (t->leads) {
        log_status_end();
        log_warn("step %lld: %s: its batch is left out; going back to step %lld", (long long)note.step, what,
                 (long long)note.back_to);
    }
    t->rewinds = true;
    return OK;
}

int trainer_judge(struct trainer *t, const struct engine_batch *b, const struct engine_report *r, bool finite,
                  double lr, struct err *e)
{
    int64_t window = t->cfg.run.on_spike == SPIKE_IGNORE ? 0 : t->cfg.run.spike_window;
    char what[160];
    if (!finite) {
        if (t->cfg.run.on_nan == NAN_STOP) return trainer_not_finite(t, b, r, lr, e);
        snprintf(what, sizeof what, "loss %g, gradient norm %g", r->loss, r->grad_norm);
        return go_back(t, "not finite", what, r->loss, e);
    }
    int64_t jumped = !r->skip && skips_jumped(&t->skips, r->loss, t->cfg.run.spike_deviations, window);
    if (window && t->site.ranks.world)
        comm_wait(t->site.ranks.world,
                  comm_broadcast(t->site.ranks.world, &jumped, 1, DT_I64, 0, "has the loss jumped?"));
    if (!jumped) {
        if (!r->skip) skips_learn(&t->skips, r->loss, window);
        return OK;
    }
    snprintf(what, sizeof what, "loss %.6g is %.3g deviations above the mean of %.6g", r->loss,
             (r->loss - t->skips.mean) / skips_deviation(&t->skips), t->skips.mean);
    if (t->cfg.run.on_spike == SPIKE_REWIND) return go_back(t, "loss", what, r->loss, e);
    char saved[40] = "none";
    if (back_to(t) >= 0) snprintf(saved, sizeof saved, "of step %lld", (long long)back_to(t));
    return err_set(e, ERR_NUMERIC,
                   "step %lld: %s (run.on_spike: stop); the newest checkpoint is %s. Lower optimizer.lr (now %g), set "
                   "optimizer.clip (now %g), or leave the batch out: run.on_spike=rewind",
                   (long long)t->step + 1, what, saved, lr, t->cfg.optimizer.clip);
}
