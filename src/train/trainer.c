/* SPDX-License-Identifier: Apache-2.0 */
/* The corridor, walked once per step, by one rank. Everything a step needs is made before the first (trainer_open.c);
 * what can fail in the world (files, disk, memory) returns errors, what can go wrong with numbers is reported with
 * step, tensor and remedy. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/epochs.h"
#include "train/starts_file.h"
#include "train/trainer_impl.h"

/* The steps of a synchronous server: what workers push, once per step. */
static int server_step(struct trainer *t, struct err *e)
{
    struct engine_report r;
    double lr = lr_at(&t->lr, t->step);
    bool finite = param_server_step(t->site.serve, NULL, t->step, lr, &r);
    int rc = engine_status(t->site.engine, e);
    if (!rc && !finite) rc = trainer_not_finite(t, NULL, &r, lr, e);
    t->step += !rc;
    t->tokens += rc ? 0 : r.tokens;
    return rc;
}

static int one_step(struct trainer *t, struct err *e)
{
    if (trainer_serves(t)) return server_step(t, e);
    const struct batch *b;
    struct engine_report r;
    double from = clock_now_s(), lr = lr_at(&t->lr, t->step);
    int64_t first, n;
    struct engine_batch view = {0};
    bool finite = true, left_out = trainer_skips(t);
    int rc = OK;
    if (!t->policy) rc = prefetch_next(t->feed, &b, e);
    else if (!left_out) rc = trainer_policy_batch(t, &view, e);
    if (rc || t->put_off) return rc;
    trace_add(t->site.engine->trace, TRACE_PART, t->policy ? "answers" : "wait for the batch", t->step, from,
              clock_now_s());
    config_part(&t->cfg, t->site.ranks.part, &first, &n);
    if (!t->policy) view = trainer_view(b, first);
    trainer_tier_begin(t);
    rank_times_begin(t->pace);
    if (left_out) trainer_skip(t, &r);
    else if (t->policy) finite = trainer_policy_step(t, &view, lr, &r);
    else if (trainer_prefers(t)) finite = trainer_preference_step(t, &view, lr, &r);
    else if (trainer_witness_due(t)) rc = trainer_witness_step(t, &view, lr, &r, &finite, e);
    else
        finite = t->site.serve ? param_server_step(t->site.serve, &view, t->step, lr, &r)
                               : engine_step(t->site.engine, &view, t->step, lr, &r);
    if (!rc) rc = engine_status(t->site.engine, e);
    if (!rc) rc = trainer_tier_end(t, e);
    if (rc) return rc;
    if (!left_out) rc = trainer_judge(t, &view, &r, finite, lr, e);
    if (rc || t->rewinds) return rc;
    if (t->policy && !left_out && (rc = trainer_together(t, trainer_policy_tell(t, e), e))) return rc;
    t->step++;
    t->tokens += r.skip ? 0 : r.tokens;
    double step_s = clock_now_s() - from;
    if ((rc = trainer_pace(t, step_s, e))) return rc;
    return t->leads ? trainer_report(t, &r, lr, step_s, e) : OK;
}

/* A signal reaches the ranks at different moments, and data fails on one of them: they stop after the same step, and
 * all know why. */
static bool stop_wanted(struct trainer *t, int *rc, struct err *e)
{
    int data = t->feed ? prefetch_wait(t->feed, e) : OK;
    enum { STOP, DATA, WAITED, SAVING, SAVE_TIME, N };
    int64_t here = signals_number(t->job->signals);
    int64_t wanted[N] = {here, data != OK, trainer_waited_ns(t), t->saving && async_save_is_busy(t->saving),
                         trainer_save_time(t)};
    if (t->site.ranks.world)
        comm_wait(t->site.ranks.world,
                  comm_all_reduce(t->site.ranks.world, wanted, wanted, N, DT_I64, COMM_MAX, "stop? data? waited?"));
    t->saves_there = wanted[SAVING];
    t->save_time = wanted[SAVE_TIME];
    t->data_wait_s = 1e-9 * (double)wanted[WAITED];
    t->data_waited_s += t->data_wait_s;
    if (trainer_policy_amid(t)) return false; /* it stops after the last step of these answers */
    if (t->leads && wanted[STOP] && !here) log_info("another rank got %s: saving", signals_name((int)wanted[STOP]));
    t->stopped_by = (int)wanted[STOP];
    if (wanted[DATA] && !wanted[STOP]) *rc = trainer_together(t, data, e);
    return wanted[STOP] || *rc;
}

/* What comparing the tokens that were read with their checksums has cost, on rank 0. */
static void report_checks(const struct trainer *t)
{
    int64_t bytes, more = 0;
    double s, more_s = 0, all = clock_now_s() - t->started_s;
    char read[32];
    if (!t->leads || !t->train) return;
    dataset_cost(t->train, &bytes, &s);
    if (t->valid) dataset_cost(t->valid, &more, &more_s);
    log_info("data: %s of tokens read for the first time and compared with their checksums in %.3f s, %.3f %% of the "
             "time",
             str_bytes(read, (double)(bytes + more)), s + more_s, 100 * (s + more_s) / (all > 1e-9 ? all : 1e-9));
    double share = t->data_waited_s / (all > 1e-9 ? all : 1e-9);
    log_info("data: steps waited %.3f s for batches, %.2f %% of the time", t->data_waited_s, 100 * share);
    if (share > 0.05 && t->step - t->started_step >= 20)
        log_warn("data: that is much; tutti bench data %s finds better data.workers and data.prefetch",
                 t->job->config_path ? t->job->config_path : "CONFIG");
}

static int save_if_due(struct trainer *t, struct err *e)
{
    int rc = trainer_save_due(t) ? trainer_save(t, false, e) : OK;
    if (!rc) trainer_save_settle(t);
    return rc;
}

/* An evaluation that a signal cut short is made up for before anything is decided without it. */
static int made_up(struct trainer *t, struct err *e)
{
    if (!evals_count(&t->evals) || !trainer_evaluates(t) || t->evals.step == t->step) return OK;
    int rc = trainer_validate(t, e);
    return rc ? rc : save_if_due(t, e);
}

static int loop(struct trainer *t, struct err *e)
{
    int64_t first, n;
    int rc = OK;
    config_part(&t->cfg, trainer_serves(t) ? 0 : t->site.ranks.part, &first, &n);
    struct prefetch_config feed = {.first_step = t->step,
                                   .global_batch = t->cfg.batch.global,
                                   .first = first,
                                   .count = n,
                                   .depth = (int)t->cfg.data.prefetch,
                                   .workers = (int)t->cfg.data.workers,
                                   .memory = t->site.engine->ahead.p};
    if (t->train) rc = prefetch_new(&t->feed, t->train, &feed, e);
    if ((rc = trainer_together(t, rc, e))) return rc;
    t->started_s = t->save_from_s = clock_now_s();
    t->started_step = t->step;
    tracer_begin(&t->tracer, &t->cfg, t->site.engine, &t->site.ranks, t->step);
    if (trainer_is_async(t)) return trainer_loop_async(t, e);
    rc = trainer_compare(t, e);
    if (!rc) rc = made_up(t, e);
    if (!rc) rc = trainer_memory_save(t, e);
    while (!rc && !trainer_is_finished(t) && !stop_wanted(t, &rc, e)) {
        rc = trainer_save_poll(t, e);
        if (!rc) rc = tracer_before(&t->tracer, t->step, e);
        double from = clock_now_s();
        if (!rc) rc = one_step(t, e);
        tracer_after(&t->tracer, t->step, from);
        if (t->rewinds) return rc;
        if (!rc && t->put_off) continue; /* the signal that put it off ends the loop */
        if (!rc && t->cfg.run.compare_every && t->step % t->cfg.run.compare_every == 0) rc = trainer_compare(t, e);
        if (!rc && trainer_evaluates(t)) rc = trainer_validate(t, e);
        if (!rc) rc = save_if_due(t, e);
        if (!rc) rc = trainer_memory_save(t, e);
    }
    if (!rc) tracer_end(&t->tracer, t->step);
    if (!rc && t->saved != t->step && t->step > 0) rc = trainer_save(t, true, e);
    if (!rc) memckpt_drop(&t->memory); /* all of it is on disk */
    if (!rc && trainer_is_finished(t)) rc = trainer_average(t, e);
    if (t->leads) log_status_end();
    if (!rc) report_checks(t);
    return rc;
}

/* ---- from its first step to its last ---- */

/* Who starts runs one after the other (a batch script) reads there whether this one is finished: a line that is missing
 * would make the one before it speak. */
static int write_end(struct trainer *t, int64_t first, double began_s, struct err *e)
{
    struct trainer_result *r = t->job->result;
    char path[sizeof r->checkpoint] = "";
    if (t->saved >= 0) snprintf(path, sizeof path, "%s/step-%08lld", t->checkpoints, (long long)t->saved);
    r->tokens_per_s = speed_all(&t->speed);
    r->seconds = clock_now_s() - began_s;
    r->wanted = t->cfg.run.steps;
    r->places = model_sees(&t->cfg.model) ? t->cfg.model.seq_len : 0;
    struct ends_note n = {
        .first = first,
        .step = t->step,
        .steps = t->cfg.run.steps,
        .tokens = t->tokens,
        .tokens_per_s = r->tokens_per_s,
        .seconds = r->seconds,
        .loss = r->loss,
        .valid_loss = t->valid_loss,
        .early = t->step < t->cfg.run.steps && evals_over(&t->evals),
        .signal = trainer_is_finished(t) ? 0 : t->stopped_by,
        .checkpoint = path,
    };
    int rc = ends_write(t->cfg.run.dir, &n, e);
    return rc ? err_prefix(e, "step %lld is saved, but the run cannot say that it has ended", (long long)t->step) : OK;
}

/* A run that took no loss of anything has trained nothing, whatever its checkpoint is called. */
static int check_trained(const struct trainer *t, struct err *e)
{
    if (t->policy || t->tokens || !t->step || t->step < t->cfg.run.steps) return OK;
    if (t->site.engine->scale.skipped || t->skips.n) return OK; /* there were some, in what was left out */
    return err_set(e, ERR_REQUEST,
                   "in all %lld steps no token was trained: a loss was taken of none; look at what the samples are "
                   "(tutti data inspect), at train_on and weights of messages, and at model.seq_len, behind which "
                   "answers may be cut off",
                   (long long)t->step);
}

static int live(struct comm *world, struct job *j, struct err *e)
{
    struct trainer t = {.valid_loss = NAN};
    int rc = trainer_open(&t, j, world, e);
    int64_t first = t.step;
    if (!rc) rc = loop(&t, e);
    double began_s = t.started_s;
    while (!rc && t.rewinds) {
        struct trainer back = {.valid_loss = t.valid_loss, .back = true, .back_saved = t.saved};
        rc = trainer_close(&t, e);
        if (world) rc = comm_agree(world, rc, e); /* files are rank 0's */
        if (rc) return rc;
        t = back;
        rc = trainer_open(&t, j, world, e);
        if (!rc) rc = loop(&t, e);
    }
    if (!rc && (t.step > first || t.step >= t.cfg.run.steps))
        rc = trainer_together(&t, t.leads ? write_end(&t, first, began_s, e) : OK, e);
    if (!rc) rc = trainer_together(&t, check_trained(&t, e), e);
    if (t.leads) {
        struct trainer_result *r = j->result;
        if (!j->epoch || j->epoch->number == 1) r->first_step = first;
        r->steps = t.step;
        r->tokens = t.tokens;
        r->valid_loss = t.valid_loss;
        r->early = t.step < t.cfg.run.steps && evals_over(&t.evals);
        r->stopped = !rc && !trainer_is_finished(&t);
        r->signal = t.stopped_by;
        if (t.saved >= 0)
            snprintf(r->checkpoint, sizeof r->checkpoint, "%s/step-%08lld", t.checkpoints, (long long)t.saved);
    }
    int closed = trainer_close(&t, rc ? NULL : e);
    return rc ? rc : closed;
}

int trainer_rank(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    hang_enter(j->hang, world);
    int rc = live(world, j, e);
    hang_leave(j->hang, world);
    return rc;
}
