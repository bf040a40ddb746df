/* SPDX-License-Identifier: Apache-2.0 */
/* A step of the trainer that is witnessed (train/witness.h): the parts of other ranks are read from the data beside the
 * batches that are prepared ahead, and what is found ends the run before anything of it is saved. */
#include <stdio.h>

#include "base/log.h"
#include "train/trainer_impl.h"

struct reading {
    struct trainer *t;
    struct batch batch;
    bool made;
};

static int read_part(void *ctx, int part, struct engine_batch *out, struct err *e)
{
    struct reading *x = ctx;
    const struct config *c = &x->t->cfg;
    int64_t first, n;
    config_part(c, part, &first, &n);
    if (x->made) batch_fini(&x->batch);
    batch_init_pictures(&x->batch, n, c->model.seq_len, model_pixels(&c->model));
    x->made = true;
    int rc = dataset_batch(x->t->train, x->t->step, c->batch.global, first, &x->batch, e);
    *out = trainer_view(&x->batch, first);
    return rc;
}

int trainer_witness_open(struct trainer *t, struct err *e)
{
    return t->cfg.run.replay_every ? witness_new(&t->witness, t->site.engine, &t->site.ranks, e) : OK;
}

bool trainer_witness_due(const struct trainer *t) { return t->witness && (t->step + 1) % t->cfg.run.replay_every == 0; }

int trainer_witness_step(struct trainer *t, const struct engine_batch *own, double lr, struct engine_report *r,
                         bool *finite, struct err *e)
{
    struct reading x = {.t = t};
    struct witness_report f;
    int rc = witness_step(t->witness, read_part, &x, own, t->step, lr, r, finite, &f, e);
    if (x.made) batch_fini(&x.batch);
    if (rc || !f.differ) return rc;
    if (t->leads) {
        log_status_end();
        metrics_witness(t->metrics, t->step + 1, f.tensor, f.ranks, f.n_ranks, NULL);
    }
    comm_wait(t->site.ranks.world, comm_barrier(t->site.ranks.world, "a witness disagrees")); /* all know it now */
    char saved[80] = "there is no checkpoint";
    if (t->saved >= 0)
        snprintf(saved, sizeof saved, "the last checkpoint, of step %lld, is from before that", (long long)t->saved);
    return err_set(e, ERR_NUMERIC,
                   "step %lld: %s. Nothing of it was saved; %s. A processor or memory went wrong there: look at that "
                   "machine before you start again",
                   (long long)t->step + 1, f.text, saved);
}
