/* SPDX-License-Identifier: Apache-2.0 */
/* Steps on preferences (train.objective: dpo, reward). A sequence's log-probability is known after all of it, and its
 * gradient has a factor that follows from both answers of its pair; so a step takes two passes: forward alone, which
 * gives every sequence's nats to every rank, and then a step as any other, in which each microbatch, which is one
 * sequence, has its factor. That costs a third more work, and no memory: nothing waits for its pair, so any layout and
 * schedule takes it, and both answers may be on different ranks. Rejected: both answers in one microbatch, which would
 * tie the loss to what lies in a stage at one time. A reward model's score stands in the place of the log-probability,
 * its sign turned. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/trainer_impl.h"

bool trainer_prefers(const struct trainer *t) { return config_prefers(&t->cfg); }

static bool scores(const struct trainer *t) { return t->cfg.train.objective == OBJECTIVE_REWARD; }

/* A pair's loss; reference: nats that the run began with, of a reward model not read. */
static void take_pair(const struct trainer *t, const double nats[2], const double reference[2],
                      struct preference_sums *s, double factor[2])
{
    if (scores(t)) preference_rewards(t->cfg.train.reward.centre, nats, s, factor);
    else preference_pair(t->cfg.train.dpo.beta, nats, reference, s, factor);
}

/* Nats of the global batch's sequences, in its order; returns the FLOPs of that. Collective. */
static double nats_of_batch(struct trainer *t, const struct engine_batch *b, double *nats)
{
    struct engine *g = t->site.engine;
    struct engine_report r;
    int64_t dp = config_dp(&t->cfg), most = g->cfg.n_microbatches, first, n;
    double *all = xcalloc(to_size(engine_n_sequences(g)), sizeof *all);
    engine_evaluate(g, b, &r);
    engine_sequence_nats(g, all);
    for (int64_t part = 0; part < dp; part++) {
        config_part(&t->cfg, (int)part, &first, &n);
        memcpy(nats + first, all + part * most, to_size(n) * sizeof *nats);
    }
    xfree(all);
    return work_flops(&t->cost, &r, false);
}

bool trainer_preference_step(struct trainer *t, const struct engine_batch *b, double lr, struct engine_report *r)
{
    struct engine *g = t->site.engine;
    int64_t global = t->cfg.batch.global, pairs = global / 2;
    /* The last parts may be shorter than the engine's: its microbatches without a sequence have a factor of 0. */
    double *nats = xcalloc(to_size(global), sizeof *nats),
           *factor = xcalloc(to_size(global + g->cfg.n_microbatches), sizeof *factor);
    t->preferred = (struct preference_sums){0};
    t->passed_flops = nats_of_batch(t, b, nats);
    for (int64_t p = 0; p < pairs; p++) {
        double of[2] = {0};
        for (int side = 0; side < 2 && !scores(t); side++)
            of[side] = t->reference.train[dataset_pair_place(t->train, t->step * global + 2 * p + side)];
        take_pair(t, nats + 2 * p, of, &t->preferred, factor + 2 * p);
    }
    for (int64_t i = 0; i < global; i++) factor[i] /= (double)pairs;
    engine_weigh(g, factor + b->first);
    bool finite = engine_step(g, b, t->step, lr, r);
    engine_weigh(g, NULL);
    if (r->skip != SKIP_UNTRAINED) r->loss = t->preferred.loss / (double)pairs;
    xfree(factor);
    xfree(nats);
    return finite;
}

/* Of a batch of evaluation; places [i * global, ...) of the list, as dataset_eval_batch chose them. */
void trainer_preference_measure(struct trainer *t, const struct engine_batch *b, int64_t i, int64_t most,
                                struct preference_sums *s)
{
    int64_t global = t->cfg.batch.global;
    double *nats = xcalloc(to_size(global), sizeof *nats), ignored[2];
    nats_of_batch(t, b, nats);
    for (int64_t p = 0; p < global / 2; p++) {
        int64_t at = dataset_eval_place(t->valid, i * global + 2 * p, global, most);
        if (at >= 0) take_pair(t, nats + 2 * p, scores(t) ? NULL : t->reference.valid + at, s, ignored);
    }
    xfree(nats);
}

/* ---- the reference ---- */

static int take(struct trainer *t, struct dataset *d, double *out, struct err *e)
{
    int64_t global = t->cfg.batch.global, n = dataset_eval_batches(d, global, 0), all = dataset_n_places(d), first,
            count;
    double *nats = xcalloc(to_size(global), sizeof *nats);
    struct batch b;
    int rc = OK;
    config_part(&t->cfg, t->site.ranks.part, &first, &count);
    batch_init(&b, count, t->cfg.model.seq_len);
    for (int64_t i = 0; !rc && i < n; i++) {
        rc = dataset_eval_batch(d, i, global, 0, first, &b, e);
        rc = trainer_together(t, rc ? rc : trainer_stop_here(t, "taking the reference's log-probabilities", e), e);
        if (rc) break;
        struct engine_batch view = trainer_view(&b, first);
        nats_of_batch(t, &view, nats);
        for (int64_t k = 0; k < global && i * global + k < all; k++) out[i * global + k] = nats[k];
    }
    if (!rc) rc = engine_status(t->site.engine, e);
    batch_fini(&b);
    xfree(nats);
    return rc;
}

static int begin(struct trainer *t, struct err *e)
{
    struct reference *r = &t->reference;
    double from = clock_now_s();
    int rc = take(t, t->train, r->train, e);
    if (!rc && r->n_valid) rc = take(t, t->valid, r->valid, e);
    if (!rc) rc = trainer_together(t, t->leads ? reference_write(t->cfg.run.dir, r, e) : OK, e);
    if (!rc && t->leads)
        log_info("preferences: the reference is what the run begins with; its log-probabilities of %lld answers took "
                 "%.1f s",
                 (long long)(r->n_train + r->n_valid), clock_now_s() - from);
    return rc;
}

static int go_on(struct trainer *t, struct err *e)
{
    struct reference *r = &t->reference;
    struct comm *w = t->site.ranks.world;
    int rc = trainer_together(t, t->leads ? reference_read(t->cfg.run.dir, r, e) : OK, e);
    if (rc || !w) return rc;
    comm_wait(w, comm_broadcast(w, r->train, r->n_train, DT_F64, 0, "the reference's log-probabilities"));
    if (r->n_valid)
        comm_wait(w, comm_broadcast(w, r->valid, r->n_valid, DT_F64, 0, "the reference's log-probabilities"));
    return comm_status(w, e);
}

int trainer_preference_open(struct trainer *t, struct err *e)
{
    struct reference *r = &t->reference;
    if (!trainer_prefers(t) || scores(t)) return OK;
    r->n_train = dataset_n_places(t->train);
    r->of_train = dataset_fingerprint(t->train);
    r->train = xcalloc(to_size(r->n_train), sizeof *r->train);
    if (t->valid) {
        r->n_valid = dataset_n_places(t->valid);
        r->of_valid = dataset_fingerprint(t->valid);
        r->valid = xcalloc(to_size(r->n_valid), sizeof *r->valid);
    }
    return t->step ? go_on(t, e) : begin(t, e);
}
