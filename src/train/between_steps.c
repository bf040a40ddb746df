/* SPDX-License-Identifier: Apache-2.0 */
/* What happens between steps: replicas are compared, validation text is looked at, and a step that went wrong is
 * explained. Nothing here changes a parameter. */
#include "train/trainer_impl.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/balance.h"
#include "engine/replicas.h"
#include "watch/exponents_file.h"
#include "watch/rounding_report.h"

int trainer_compare(struct trainer *t, struct err *e)
{
    struct replicas_report r;
    if (trainer_is_async(t) || t->compared == t->step) return OK;
    t->compared = t->step;
    int rc = replicas_compare(t->site.engine, &r, e);
    if (rc || !r.differ) return rc;
    if (t->leads) {
        log_status_end();
        metrics_differ(t->metrics, t->step, r.tensor, r.element, r.ranks, r.n_ranks, NULL);
    }
    comm_wait(t->site.ranks.world,
              comm_barrier(t->site.ranks.world,
                           "replicas differ")); /* who leaves first takes the others down: all know it now */
    char saved[80] = "there is no checkpoint";
    if (t->saved >= 0)
        snprintf(saved, sizeof saved, "the last checkpoint, of step %lld, is from before that", (long long)t->saved);
    return err_set(e, ERR_NUMERIC,
                   "step %lld: ranks that must hold the same numbers do not: %s. Nothing of it was saved; %s. "
                   "Memory or a transfer went wrong there: look at that machine before you start again",
                   (long long)t->step, r.text, saved);
}

/* An evaluation: what of it only workers have. */
struct measured {
    double loss;  /* mean over what was trained on, nats */
    double share; /* of classes that were told right */
    int64_t trained;
    bool whole; /* no signal ended it */
};

/* Servers know of validation only that workers agree on each batch. */
static int measure_server(struct trainer *t, struct measured *m, struct err *e)
{
    int64_t n = 0;
    int rc = OK;
    comm_wait(t->site.ranks.world, comm_broadcast(t->site.ranks.world, &n, 1, DT_I64, 0, "batches of validation"));
    for (int64_t i = 0; !rc && i < n; i++) rc = trainer_together(t, trainer_stop_here(t, "validating", e), e);
    *m = (struct measured){.loss = NAN, .whole = !rc};
    return rc == ERR_SIGNAL ? OK : rc;
}

static int measure(struct trainer *t, struct measured *m, struct err *e)
{
    int64_t most = t->cfg.run.eval_batches, n = dataset_eval_batches(t->valid, t->cfg.batch.global, most), trained = 0,
            first, count;
    double nats = 0, right = 0;
    struct preference_sums pairs = {0};
    struct batch b;
    int rc = OK;
    config_part(&t->cfg, t->site.ranks.part, &first, &count);
    batch_init_pictures(&b, count, t->cfg.model.seq_len, model_pixels(&t->cfg.model));
    if (t->site.serve) {
        comm_wait(t->site.ranks.world, comm_broadcast(t->site.ranks.world, &n, 1, DT_I64, 0, "batches of validation"));
        t->site.engine->exchange.sums = t->site.ranks.workers; /* also of workers that otherwise count their own */
    }
    for (int64_t i = 0; !rc && i < n; i++) {
        struct engine_report r;
        rc = dataset_eval_batch(t->valid, i, t->cfg.batch.global, most, first, &b, e);
        rc = trainer_together(t, rc ? rc : trainer_stop_here(t, "validating", e), e);
        if (rc) break;
        struct engine_batch view = trainer_view(&b, first);
        if (trainer_prefers(t)) {
            trainer_preference_measure(t, &view, i, most, &pairs);
            continue;
        }
        engine_evaluate(t->site.engine, &view, &r);
        nats += r.nats;
        right += r.right;
        trained += r.tokens;
    }
    batch_fini(&b);
    if (trainer_is_async(t)) t->site.engine->exchange.sums = NULL;
    if (trainer_prefers(t)) {
        nats = pairs.loss;
        right = (double)pairs.right;
        trained = pairs.pairs;
    }
    *m = (struct measured){trained ? nats / (double)trained : NAN, trained ? right / (double)trained : 0, trained, !rc};
    return rc == ERR_SIGNAL ? OK : rc; /* of a part nothing is said; the loop stops */
}

/* What follows from it is decided by rank 0's number, on all ranks. */
static bool learn(struct trainer *t, double *loss)
{
    struct comm *w = t->site.ranks.world;
    if (w && evals_count(&t->evals)) comm_wait(w, comm_broadcast(w, loss, 1, DT_F64, 0, "validation loss"));
    return evals_learn(&t->evals, t->step, *loss);
}

static int tell(struct trainer *t, const struct measured *m, bool best, struct err *e)
{
    const long long step = t->step, since = t->evals.since;
    const char *mark = best ? ", the best so far" : "";
    bool prefers = trainer_prefers(t), tells = model_tells(&t->cfg.model) || prefers;
    log_status_end();
    if (tells)
        log_info("step %lld  validation loss %.4f%s, accuracy %.2f %% of %lld %s", step, m->loss, mark, 100 * m->share,
                 (long long)m->trained,
                 prefers                     ? "pairs"
                 : model_sees(&t->cfg.model) ? "pictures"
                                             : "texts");
    else
        log_info("step %lld  validation loss %.4f%s (perplexity %.2f) over %lld of %lld tokens", step, m->loss, mark,
                 exp(m->loss), (long long)m->trained, (long long)dataset_eval_tokens(t->valid));
    if (evals_over(&t->evals))
        log_info("step %lld: %lld evaluations in a row have no lower validation loss than %.4f: the run ends here "
                 "(run.stop_early)",
                 step, since, t->evals.least);
    const struct metrics_valid v = {.step = t->step,
                                    .tokens = t->tokens,
                                    .loss = m->loss,
                                    .accuracy = tells ? m->share : NAN,
                                    .valid_tokens = m->trained, /* of preferences: pairs */
                                    .judged = t->evals.rules.best,
                                    .best = best};
    return metrics_valid(t->metrics, &v, e);
}

int trainer_validate(struct trainer *t, struct err *e)
{
    struct measured m;
    int rc = trainer_serves(t) ? measure_server(t, &m, e) : measure(t, &m, e);
    if (rc || !m.whole) return rc;
    bool best = learn(t, &m.loss);
    if (!trainer_serves(t)) t->valid_loss = m.loss;
    return t->leads ? tell(t, &m, best, e) : OK;
}

bool trainer_evaluates(const struct trainer *t)
{
    int64_t every = t->cfg.run.eval_every;
    return t->cfg.data.valid.n && every && t->step && (t->step == t->cfg.run.steps || t->step % every == 0);
}

int trainer_not_finite(struct trainer *t, const struct engine_batch *b, const struct engine_report *r, double lr,
                       struct err *e)
{
    char what[256], saved[40] = "none";
    if (t->saving) trainer_save_end(t, &(struct err){0}); /* what is being written is of a step that went well */
    if (t->saved >= 0) snprintf(saved, sizeof saved, "of step %lld", (long long)t->saved);
    snprintf(what, sizeof what, "a worker's gradients");
    if (!t->site.serve) engine_blame(t->site.engine, b, t->step, what, sizeof what);
    if (t->leads) log_status_end();
    if (t->cfg.precision.recipe == RECIPE_FP16)
        return err_set(
            e, ERR_NUMERIC,
            "step %lld: loss %g, gradient norm %g: not finite, as in the steps before, until the loss scale is %.10g "
            "and half of it below precision.loss_scale.least (%g); %lld of %lld steps were left out. First seen in %s. "
            "Lower optimizer.lr (now %g), raise warmup_steps, or choose precision.recipe: bf16, which needs no "
            "scale; the last checkpoint is %s",
            (long long)t->step + 1, r->loss, r->grad_norm, r->loss_scale, t->cfg.precision.loss_scale.least,
            (long long)t->site.engine->scale.skipped, (long long)t->step + 1, what, lr, saved);
    return err_set(e, ERR_NUMERIC,
                   "step %lld: loss %g, gradient norm %g: not finite; first seen in %s. Nothing was updated or saved. "
                   "Lower optimizer.lr (now %g), raise warmup_steps, or set optimizer.clip (now %g); the last "
                   "checkpoint is %s",
                   (long long)t->step + 1, r->loss, r->grad_norm, what, lr, t->cfg.optimizer.clip, saved);
}

/* Fills what metrics say of experts; returns the list of layers, NULL without experts. */
static const double **experts_load(const struct engine *g, const struct engine_report *r, struct metrics_step *m)
{
    const struct model_config *c = &g->cfg.model;
    if (!c->moe.experts) return NULL;
    const double **load = xcalloc(to_size(model_blocks(c)), sizeof *load);
    for (int l = 0; l < model_blocks(c); l++) load[l] = balance_load(g, l);
    m->balance_loss = r->balance_loss;
    m->z_loss = r->z_loss;
    m->load_worst = balance_worst(g);
    m->rounds_mean = r->rounds_mean;
    m->rounds_most = r->rounds_most;
    m->load = load;
    m->layers = to_int(model_blocks(c));
    m->experts = c->moe.experts;
    return load;
}

/* Fills what metrics say of the data; returns the list. On a rank that reads none (a server) it is NULL. */
static struct metrics_source *sources_used(const struct trainer *t, const struct engine_report *r,
                                           struct metrics_step *m)
{
    m->padded = r->padded;
    if (!t->train) return NULL;
    m->n_sources = dataset_n_sources(t->train);
    m->packed = t->cfg.data.pack != PACK_JOINED;
    int64_t parts = dataset_parts(t->train);
    struct metrics_source *s = xcalloc((size_t)m->n_sources, sizeof *s);
    for (int i = 0; i < m->n_sources; i++) {
        s[i].samples = dataset_used(t->train, t->step * t->cfg.batch.global * parts, i, &s[i].epochs);
        double places = (double)s[i].samples * (double)(t->cfg.model.seq_len / parts * (trainer_prefers(t) ? 2 : 1));
        s[i].tokens = (int64_t)llround(places * (1 - dataset_padding(t->train, i)));
    }
    m->sources = s;
    return s;
}

/* Tokens of the global batch that exist (batch_tokens). A worker that goes alone knows its own part of it: the others'
 * are taken to be alike. */
static int64_t tokens_there(const struct trainer *t, const struct engine_report *r)
{
    int64_t own = batch_tokens(r->sequences, t->cfg.model.seq_len, r->padded), global = t->cfg.batch.global;
    if (!trainer_is_async(t) || !r->sequences) return own;
    return llround((double)own * (double)global / (double)r->sequences);
}

/* The model's FLOPs of the step over all ranks: its batch's, and those of passes before it. */
static double flops_of(const struct trainer *t, const struct engine_report *r)
{
    double own = t->passed_flops + work_flops(&t->cost, r, true);
    return trainer_is_async(t) && r->sequences ? own * (double)t->cfg.batch.global / (double)r->sequences : own;
}

static void say_untrained(struct trainer *t)
{
    t->told_untrained = true;
    log_status_end();
    log_warn("step %lld: no token of its batch is trained: it has no loss, and updates nothing (said once; "
             "\"skip_cause\": \"untrained\" in metrics.jsonl). Look at the samples (tutti data inspect), at train_on "
             "and weights of messages, and at model.seq_len, behind which answers may be cut off",
             (long long)t->step);
}

int trainer_report(struct trainer *t, const struct engine_report *r, double lr, double step_s, struct err *e)
{
    int64_t step_tokens = tokens_there(t, r);
    bool was_raised = t->speed.raised, left_out = r->skip == SKIP_BATCH, untrained = r->skip == SKIP_UNTRAINED;
    struct metrics_step m = {
        .step = t->step,
        .loss = r->loss,
        .sees = model_sees(&t->cfg.model),
        .tells = model_tells(&t->cfg.model),
        .busiest = r->busiest,
        .busiest_by_position = r->busiest_by_position,
        .accuracy = r->tokens ? r->right / (double)r->tokens : NAN,
        .ahead = r->ahead,
        .ahead_depth = left_out ? 0 : to_int(t->cfg.model.mtp.depth),
        .pictures = t->cfg.batch.global,
        .grad_norm = r->grad_norm,
        .lr = lr,
        .tokens = t->tokens,
        .step_tokens = step_tokens,
        .step_s = step_s,
        .data_wait_s = t->data_wait_s,
        .mfu = speed_step(&t->speed, left_out ? 0 : flops_of(t, r), left_out ? 0 : step_tokens, step_s),
        .peak_bytes = t->peak_bytes,
        .scaled = t->cfg.precision.recipe == RECIPE_FP16,
        .skip = r->skip ? engine_skips[r->skip] : NULL,
        .left_out = left_out,
        .loss_scale = r->loss_scale,
        .skipped = t->site.engine->scale.skipped,
        .tier = t->site.dev->tier != NULL,
        .put_bytes = t->tier.put_bytes,
        .got_bytes = t->tier.got_bytes,
        .tier_s = t->tier.waited_s,
        .async = trainer_is_async(t),
        .staleness_mean = t->stale.mean,
        .staleness_max = t->stale.max,
    };
    if (trainer_prefers(t) && !left_out && !untrained) m.preferred = &t->preferred;
    if (t->policy && !left_out && !untrained) m.policy = trainer_policy_sums(t);
    if (untrained && !t->told_untrained) say_untrained(t);
    trainer_tier_judge(t, step_s);
    const double **load = left_out ? NULL : experts_load(t->site.engine, r, &m); /* no rows came to experts */
    struct metrics_source *sources = sources_used(t, r, &m);
    struct rounding_report rounded = {0};
    if (!r->skip && telemetry_due(t->site.engine, t->step - 1))
        rounded.n = telemetry_rows(t->site.engine, &rounded.row);
    m.rounded = &rounded;
    m.fallback = &t->site.engine->fallback;
    if (rounded.n && m.fallback->said.n) {
        log_status_end();
        log_warn("step %lld: %s (precision.fallback)", (long long)t->step, str_text(&m.fallback->said));
    }
    m.progress_load = t->cfg.run.log_experts;
    m.ranks = t->ranks_took.n > 1 ? &t->ranks_took : NULL;
    if (t->speed.raised && !was_raised)
        log_info("steps are faster than what this machine did when it was measured: MFU is the share of the fastest "
                 "step from now on");
    t->job->result->loss = r->loss;
    if (t->step % t->cfg.run.log_every == 0 || t->step == t->cfg.run.steps || t->step == t->started_step + 1) {
        speed_mean(&t->speed, &m.mean_tokens_per_s, &m.mean_mfu);
        double per = (clock_now_s() - t->started_s) / (double)(t->step - t->started_step);
        metrics_progress(t->metrics, &m, t->cfg.run.steps, per * (double)(t->cfg.run.steps - t->step));
    }
    int rc = metrics_step(t->metrics, &m, e);
    if (!rc && !left_out && exponents_due(t->site.engine, t->step - 1))
        rc = exponents_write(t->site.engine, t->metrics, t->step,
                             recipe_row((enum recipe)t->cfg.precision.recipe)->name, r->loss_scale, e);
    rounding_report_free(&rounded);
    xfree(sources);
    xfree(load);
    return rc;
}
