/* SPDX-License-Identifier: Apache-2.0 */
/* When a run saves, and what comes of it: at once, while all wait, or beside the steps (async_save.h); a save that
 * failed is tried again (save_retry.h); a published checkpoint writes a sample. All ranks decide alike: from the step,
 * from what they agreed on when they last met (trainer.c), from rank 0's clock. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "keep/averaged.h"
#include "decode/checkpoint_samples.h"
#include "keep/run_checkpoint.h"
#include "train/trainer_impl.h"

static void write_samples(struct trainer *t, const char *const *prompts, int n)
{
    struct err e = {0};
    if (n && checkpoint_samples_write(&t->cfg, t->checkpoints, t->saved, prompts, n, &e))
        log_warn("no sample of step %lld: %s", (long long)t->saved, e.text);
}

/* A text that cannot be written is no reason to end a run. */
static void write_due_samples(struct trainer *t)
{
    const int64_t every = t->cfg.run.sample_every, apart = t->cfg.run.eval_every;
    bool evaluated = t->saved == t->cfg.run.steps || (apart && t->saved % apart == 0);
    if (every && (t->saved % every == 0 || t->saved == t->cfg.run.steps))
        write_samples(t, &t->cfg.run.sample_prompt, 1);
    if (t->saved <= t->evals.step && evaluated) write_samples(t, t->cfg.run.samples.items, t->cfg.run.samples.n);
}

void trainer_diverged(const struct trainer *t, struct err *e)
{
    char saved[64] = "there is none before it", text[sizeof e->text];
    int64_t last = t->saved > t->memory.saved ? t->saved : t->memory.saved;
    if (last >= 0) snprintf(saved, sizeof saved, "the last one is of step %lld", (long long)last);
    snprintf(text, sizeof text, "%s", e->text);
    err_set(e, ERR_NUMERIC,
            "%.700s; %s. Lower optimizer.lr (now %g), raise warmup_steps, or set optimizer.clip (now %g)", text, saved,
            t->cfg.optimizer.lr, t->cfg.optimizer.clip);
}

struct save_info trainer_save_info(const struct trainer *t)
{
    return (struct save_info){
        .root = t->checkpoints,
        .step = t->step,
        .tokens = t->tokens,
        .keep = t->cfg.checkpoint.keep,
        .keep_every = t->cfg.checkpoint.keep_every,
        .run = t->name,
        .incremental = t->cfg.checkpoint.incremental,
        .config_text = str_text(&t->config_text),
        .tokenizer_dir = t->tokenizer_dir,
        .cfg = &t->cfg,
        .bos = t->tokenizer ? tokenizer_bos(t->tokenizer) : -1,
        .eos = t->tokenizer ? tokenizer_eos(t->tokenizer) : -1,
        .data = t->data,
        .skips = &t->skips,
        .evals = &t->evals,
        .reference = t->site.engine->cfg.reference ? &t->began : NULL,
        .in_use = copies_in_use(t->copies),
    };
}

/* What was the best when it was saved is named so, also where another one has been found by now that is still to be
 * written. */
static void name_best(const struct trainer *t, int64_t step)
{
    struct err e = {0};
    if (step != t->evals.best.step && step != t->evals.before.step) return;
    if (ckpt_set_best(t->checkpoints, step, &e)) log_warn("%s", e.text);
}

static void published(struct trainer *t, int64_t step, const char *how, const struct ckpt_told *told)
{
    char state[32] = "", bytes[32], linked[64] = "";
    t->saved = step;
    save_retry_done(&t->retry);
    if (!t->leads) return;
    log_status_end();
    if (told->has_state) hash64_print(stpcpy(state, ", state "), told->state);
    if (told->linked) snprintf(linked, sizeof linked, ", %s of it linked", str_bytes(bytes, (double)told->linked));
    log_info("saved step %lld in %s%s%s", (long long)step, how, state, linked);
    struct err why;
    if (told->has_state && t->metrics && metrics_state(t->metrics, t->step, "saved", step, told->state, &why))
        log_warn("%s", why.text); /* the next step's line fails as well, and ends the run */
    name_best(t, step);
    copies_offer(t->copies, step);
    write_due_samples(t);
}

/* Other ranks are late here for as long as a disk takes: checkpoint.timeout_s. */
static void patient(struct trainer *t, bool now)
{
    struct comm *w = t->site.ranks.world;
    if (w) comm_patience(w, now ? t->cfg.checkpoint.timeout_s : 0);
}

static int save_now(struct trainer *t, struct err *e)
{
    char how[40];
    double from = clock_now_s();
    int rc = trainer_compare(t, e);
    if (rc) return rc;
    struct ckpt_told told = {0};
    struct save_info s = trainer_save_info(t);
    s.told = &told;
    patient(t, true);
    rc = save_checkpoint(t->site.engine, &t->site.ranks, &s, e);
    patient(t, false);
    if (rc == ERR_NUMERIC) trainer_diverged(t, e);
    if (rc) return rc;
    snprintf(how, sizeof how, "%.2f s", clock_now_s() - from);
    published(t, t->step, how, &told);
    return OK;
}

/* ---- beside the steps ---- */

static int begin(struct trainer *t, struct err *e)
{
    int rc = trainer_compare(t, e);
    if (rc) return rc;
    struct save_info s = trainer_save_info(t);
    patient(t, true);
    rc = async_save_begin(&t->saving, t->site.engine, &t->site.ranks, &s, e);
    patient(t, false);
    if (rc == ERR_NUMERIC) trainer_diverged(t, e);
    return rc;
}

static void best_failed(struct trainer *t, int64_t step)
{
    if (t->evals.best.step == step && t->leads)
        log_warn("step %lld, the best so far, was not saved: the best before it stays that", (long long)step);
    evals_unsaved(&t->evals, step);
}

static void end(struct trainer *t, int rc)
{
    double paused, s = async_save_seconds(t->saving, &paused);
    int64_t step = async_save_step(t->saving);
    struct ckpt_told told = async_save_told(t->saving);
    char how[96];
    snprintf(how, sizeof how, "%.2f s beside the steps, which waited for %.3f s of it", s, paused);
    async_save_free(t->saving);
    t->saving = NULL;
    if (!rc) published(t, step, how, &told);
    else best_failed(t, step);
}

/* What waits on disk is gone for good: no other try would find it. All ranks have a disk, or none (site.c). */
static bool lost(struct trainer *t)
{
    struct err why;
    return t->site.dev->tier && trainer_together(t, device_status(t->site.dev, &why), &why);
}

static int failed(struct trainer *t, bool waits, int rc, struct err *e)
{
    return lost(t) ? rc : save_retry_failed(&t->retry, t->site.ranks.world, waits, rc, e);
}

int trainer_save_poll(struct trainer *t, struct err *e)
{
    bool over;
    if (!t->saving || t->saves_there) return OK;
    patient(t, true);
    int rc = async_save_next(t->saving, &over, e);
    patient(t, false);
    if (rc || over) end(t, rc);
    return rc ? failed(t, false, rc, e) : OK;
}

int trainer_save_end(struct trainer *t, struct err *e)
{
    if (!t->saving) return OK;
    patient(t, true);
    int rc = async_save_finish(t->saving, e);
    patient(t, false);
    end(t, rc);
    return rc ? failed(t, false, rc, e) : OK;
}

/* ---- */

static bool wanted_by_evaluation(const struct trainer *t)
{
    return t->evals.step == t->step && (t->evals.best.step == t->step || t->cfg.run.samples.n);
}

bool trainer_save_due(struct trainer *t)
{
    if (trainer_policy_amid(t)) return false;
    int64_t every = t->cfg.checkpoint.every;
    bool due = (every && t->step % every == 0) || t->save_time || wanted_by_evaluation(t);
    t->save_time = false;
    return t->retry.failed && !t->saving ? save_retry_due(&t->retry, t->site.ranks.world) : due;
}

bool trainer_save_time(const struct trainer *t)
{
    double every_s = t->cfg.checkpoint.every_s;
    return t->leads && every_s > 0 && !t->saving && clock_now_s() - t->save_from_s >= every_s;
}

static bool skips(struct trainer *t)
{
    if (!t->saving || t->cfg.checkpoint.busy != BUSY_SKIP || t->evals.best.step == t->step) return false;
    if (t->leads) log_status_end();
    if (t->leads)
        log_info("step %lld is not saved: step %lld is still being written (checkpoint.busy: skip)", (long long)t->step,
                 (long long)async_save_step(t->saving));
    return true;
}

/* Nothing else is done until the next try, so a signal is heard here: all ranks hear it together. */
static int wait_for_try(struct trainer *t, struct err *e)
{
    const double slice_s = 0.25;
    const int before = signals_number(t->job->signals);
    struct comm *w = t->site.ranks.world;
    for (double waited = 0; waited < t->retry.pause_s; waited += slice_s) {
        int64_t number = signals_number(t->job->signals);
        if (number == before) number = 0;
        if (w) comm_wait(w, comm_all_reduce(w, &number, &number, 1, DT_I64, COMM_MAX, "was a signal heard?"));
        if (w && comm_status(w, e)) return e->code;
        if (number)
            return err_set(e, ERR_SIGNAL,
                           "stopped by %s while the run waited to save step %lld again, which is not saved: %.600s",
                           signals_name((int)number), (long long)t->step, t->retry.why);
        double left = t->retry.pause_s - waited;
        clock_sleep_s(left < slice_s ? left : slice_s);
    }
    return OK;
}

int trainer_save(struct trainer *t, bool waits, struct err *e)
{
    if (!waits && skips(t)) return OK;
    int rc = trainer_save_end(t, e);
    if (rc || (waits && t->saved == t->step)) return rc;
    t->save_from_s = clock_now_s();
    if (!waits && t->cfg.checkpoint.async) {
        rc = begin(t, e);
        return rc ? failed(t, false, rc, e) : OK;
    }
    for (;;) {
        if ((rc = save_now(t, e))) rc = failed(t, waits, rc, e);
        if (rc || !waits || !t->retry.failed) return rc;
        if ((rc = wait_for_try(t, e))) return rc;
    }
}

void trainer_save_settle(struct trainer *t)
{
    bool there = t->saved == t->step || (t->saving && async_save_step(t->saving) == t->step);
    if (t->evals.best.step == t->step && !there) best_failed(t, t->step);
}

int trainer_average(struct trainer *t, struct err *e)
{
    int64_t n = t->cfg.checkpoint.average;
    if (!n) return OK;
    char *out = fs_join(t->cfg.run.dir, "average");
    patient(t, true);
    int rc = trainer_together(t, t->leads ? averaged_write(t->checkpoints, out, to_int(n), t->step, e) : OK, e);
    patient(t, false);
    if (rc) err_prefix(e, "the run is finished and saved, but checkpoint.average cannot be carried out");
    xfree(out);
    return rc;
}
