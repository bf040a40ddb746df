/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank begins with: a copy is fetched where its own disk lacks it, a checkpoint is chosen and loaded, on disk or
 * in memory, or weights are drawn or read; then it is known which run this is, and where it is copied to. A checkpoint
 * of its own that turns out to be damaged when it is loaded is fetched whole, where there are copies. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config_feed.h"
#include "config/from.h"
#include "config/setup.h"
#include "config/start_weights.h"
#include "keep/resume.h"
#include "keep/run_name.h"
#include "keep/run_checkpoint.h"
#include "keep/state_compare.h"
#include "train/trainer_impl.h"

/* What the run is held to is what it was held to before. Local. */
static int same_reference(const struct trainer *t, struct ckpt *c, struct err *e)
{
    const struct json *said = json_get(ckpt_extra(c), "reference");
    uint64_t was;
    if (!said || !t->site.engine->cfg.reference) return OK;
    if (hash64_parse(json_string(said, NULL, ""), &was))
        return err_set(e, ERR_CORRUPT, "%s: reference: wanted a number of 16 digits", ckpt_path(c));
    if (was == t->began) return OK;
    return err_set(e, ERR_REQUEST,
                   "%s: was held to other weights (train.grpo.beta) than those that the run begins with now: bring "
                   "back "
                   "what %s held, or choose train.grpo.beta=0",
                   ckpt_path(c), t->cfg.from.dir ? t->cfg.from.dir : "its config said");
}

/* Beside adapters nothing of the model moves that is not named, and a drawn score says nothing. */
static void say_score(const struct trainer *t, const struct weights *w)
{
    const struct param_table *p = &t->site.engine->params;
    int i = param_find(p, "score.weight");
    if (i >= 0 && p->p[i].frozen && (!w || weights_find_param(w, "score.weight") < 0))
        log_warn("score.weight is drawn anew and stays so, since it is not trained: name it (train.only: "
                 "[score.weight])");
}

static int fresh_weights(struct trainer *t, struct err *e)
{
    struct engine *g = t->site.engine;
    struct weights *w = NULL;
    int rc = OK;
    engine_init(g);
    if (t->cfg.from.dir && !trainer_pushes(t)) /* a worker gets its weights from the servers */
        rc = setup_weights(&w, &t->cfg, e);
    if (!rc && t->cfg.adapter.kind && t->cfg.adapter.from)
        rc = source_adapter(&g->store, &g->kernels, g->stream, &t->cfg.model, w, t->cfg.adapter.from, e);
    if (!rc && w) rc = source_load(&g->store, &g->kernels, g->stream, w, e);
    if (!rc && w && t->leads) log_info("weights from %s", t->cfg.from.dir);
    if (!rc && w && t->leads) from_say(w, &t->cfg, t->tokenizer);
    if (!rc && t->leads) say_score(t, w);
    weights_close(w);
    return rc;
}

int trainer_load(struct trainer *t, struct ckpt *c, const char *root, int rc, struct err *e)
{
    struct str said = {0};
    if (!rc && t->leads) rc = changes_histories(c, &t->cfg, e);
    if (!rc && !trainer_pushes(t)) rc = save_check(t->site.engine, c, root, e);
    if (!rc && t->leads) rc = changes_check(c, &t->cfg, &t->data, e);
    if (rc && root && rc != ERR_REQUEST) resume_advise(root, ckpt_path(c), NULL, e);
    if (!rc) rc = same_reference(t, c, e);
    rc = save_resume(t->site.engine, c, root, rc, &said, e);
    if (!rc) rc = state_compare(t->site.engine, &t->site.ranks, c, e);
    if (!rc) rc = skips_take(&t->skips, ckpt_extra(c), ckpt_path(c), e);
    if (!rc) rc = evals_take(&t->evals, ckpt_extra(c), ckpt_path(c), e);
    if (!rc) {
        t->step = ckpt_step(c);
        t->tokens = ckpt_tokens(c);
        if (t->leads) log_info("resumed from %s: %lld steps done", ckpt_path(c), (long long)t->step);
        if (t->leads && said.n) log_info("read %s", str_text(&said));
        char digits[17];
        t->loaded.known = ckpt_state(c, &t->loaded.state);
        if (t->leads && t->loaded.known) log_info("state %s, as it was saved", hash64_print(digits, t->loaded.state));
    }
    str_free(&said);
    return rc;
}

/* A person said that whatever run's copies are there are this run's from now on. */
static bool takes_copy(const struct trainer *t) { return !strcmp(t->cfg.checkpoint.resume, "copy"); }

/* A run that goes back does so to its own newest checkpoint, whatever it was started from. */
static int choose_checkpoint(struct trainer *t, struct resume *r, struct err *e)
{
    const char *asked = t->cfg.checkpoint.resume;
    char name[40] = "never";
    if (takes_copy(t)) t->cfg.checkpoint.resume = "auto";
    if (t->back && t->back_saved >= 0) snprintf(name, sizeof name, "step-%08lld", (long long)t->back_saved);
    if (t->back) t->cfg.checkpoint.resume = name;
    int rc = resume_choose(r, t->site.ranks.world, &t->cfg, t->conf, t->checkpoints, e);
    t->cfg.checkpoint.resume = asked;
    r->chosen &= !t->back;
    if (!rc && r->ckpt && r->own && !r->chosen) {
        rc = trainer_together(t, t->leads ? run_name_check(t->cfg.run.dir, r->ckpt, e) : OK, e);
        if (rc) resume_free(r);
    }
    return rc;
}

/* What a run before this one left out is not this one's. */
static int set_skips_aside(const struct trainer *t, struct err *e)
{
    char *path = fs_join(t->cfg.run.dir, SKIPS_NAME), *to = NULL;
    int rc = fs_exists(path) ? fs_set_aside(path, &to, e) : OK;
    if (to) log_warn("%s is of a run that this one does not go on from: it was moved to %s", path, to);
    xfree(to);
    xfree(path);
    return rc;
}

/* Copies of checkpoints elsewhere: the newest of all places is below run.dir before anybody looks there. */
static struct copies_config copies_of(const struct trainer *t, const struct remote_options *o)
{
    return (struct copies_config){.to = t->cfg.checkpoint.copy_to,
                                  .root = t->checkpoints,
                                  .run_dir = t->cfg.run.dir,
                                  .run = t->name,
                                  .takes = takes_copy(t),
                                  .found = &t->found,
                                  .keep = t->cfg.checkpoint.copy_keep,
                                  .retry_s = t->cfg.checkpoint.retry_s,
                                  .remote = o};
}

/* damaged: the newest of its own disk was read, and is not whole. */
static int look_for_copy(struct trainer *t, bool damaged, struct err *e)
{
    struct remote_options o = config_remote(&t->cfg);
    struct copies_config c = copies_of(t, &o);
    o.give_up = signals_flag(t->job->signals);
    c.damaged = damaged;
    int rc = copies_fetch(&c, &t->found, e);
    return rc ? err_prefix(e, "%s: checkpoint.copy_to", conf_where(t->conf, "checkpoint.copy_to")) : OK;
}

static int fetch_copy(struct trainer *t, struct err *e)
{
    bool looks = t->leads && !t->back && (takes_copy(t) || !strcmp(t->cfg.checkpoint.resume, "auto"));
    int rc = OK;
    if (takes_copy(t) && !t->cfg.checkpoint.copy_to)
        rc = err_set(e, ERR_REQUEST,
                     "%s: checkpoint.resume: copy goes on from the newest copy in checkpoint.copy_to, and that is not "
                     "set",
                     conf_where(t->conf, "checkpoint.resume"));
    else if (!t->cfg.checkpoint.copy_to) return OK;
    if (!rc && looks) rc = look_for_copy(t, false, e);
    return trainer_together(t, rc, e);
}

/* Its newest checkpoint turned out to be damaged when it was loaded (was): where the same is whole elsewhere, or an
 * older one that is newer than the next one here, that is fetched, chosen and loaded instead. */
static int load_whole_copy(struct trainer *t, struct resume *r, int was, struct err *e)
{
    struct comm *w = t->site.ranks.world;
    struct err first = *e, why = {0};
    int64_t fetched = 0;
    if (was != ERR_CORRUPT || !t->cfg.checkpoint.copy_to || r->chosen || !r->own || t->back) return was;
    if (t->leads) log_warn("%s; looking for a whole copy in checkpoint.copy_to", e->text);
    if (t->leads && look_for_copy(t, true, &why)) log_warn("%s", why.text);
    else fetched = t->leads && t->found.fetched;
    if (w) comm_wait(w, comm_broadcast(w, &fetched, 1, DT_I64, 0, "was a whole copy fetched?"));
    int rc = w ? comm_status(w, e) : OK;
    if (rc || !fetched) {
        if (!rc) *e = first;
        return rc ? rc : was;
    }
    resume_free(r);
    skips_free(&t->skips); /* the damaged one may have come that far */
    evals_init(&t->evals, &t->evals.rules);
    rc = choose_checkpoint(t, r, e);
    return rc ? rc : trainer_load(t, r->ckpt, t->checkpoints, OK, e);
}

/* Which run this is, the same on all ranks. */
static int settle_name(struct trainer *t, const struct resume *r, struct err *e)
{
    struct comm *w = t->site.ranks.world;
    struct run_begins b = {.from = r->ckpt, .chosen = r->chosen, .own = r->own, .fetched = t->found.run};
    int64_t name = 0;
    int rc = trainer_together(t, t->leads ? run_name_settle(t->cfg.run.dir, &b, &t->name, e) : OK, e);
    memcpy(&name, &t->name, sizeof name);
    if (!rc && w) comm_wait(w, comm_broadcast(w, &name, 1, DT_I64, 0, "name of the run"));
    memcpy(&t->name, &name, sizeof name);
    return rc || !w ? rc : comm_status(w, e);
}

int trainer_open_copies(struct trainer *t, struct err *e)
{
    if (!t->cfg.checkpoint.copy_to) return OK;
    struct remote_options o = config_remote(&t->cfg);
    struct copies_config c = copies_of(t, &o);
    int rc = t->leads ? copies_begin(&t->copies, &c, e) : OK;
    if (rc) err_prefix(e, "%s: checkpoint.copy_to", conf_where(t->conf, "checkpoint.copy_to"));
    return trainer_together(t, rc, e);
}

/* The best checkpoint by what the run goes on from: it is there, and has that name; else the next evaluation finds one
 * anew. */
static int open_best(struct trainer *t, struct err *e)
{
    struct comm *w = t->site.ranks.world;
    char name[64];
    int64_t bytes = -1;
    int rc = OK;
    if (!t->evals.rules.best) return OK;
    snprintf(name, sizeof name, "step-%08lld/manifest.json", (long long)t->evals.best.step);
    char *path = fs_join(t->checkpoints, name);
    if (t->leads && t->evals.best.step >= 0) rc = fs_look(path, &bytes, e);
    if (!rc && t->leads && t->evals.best.step >= 0 && bytes < 0)
        log_warn("the best checkpoint so far, of step %lld, is not in %s (any more): the next evaluation is the best",
                 (long long)t->evals.best.step, t->checkpoints);
    if (w) comm_wait(w, comm_broadcast(w, &bytes, 1, DT_I64, 0, "is the best checkpoint there?"));
    if (bytes < 0) evals_forget_best(&t->evals);
    if (!rc && t->leads) rc = ckpt_set_best(t->checkpoints, t->evals.best.step, e);
    xfree(path);
    return trainer_together(t, rc, e);
}

static int begin_weights(struct trainer *t, struct err *e)
{
    bool given = t->cfg.from.dir || (t->cfg.adapter.kind && t->cfg.adapter.from);
    int rc = trainer_together(t, fresh_weights(t, e), e);
    if (!rc && !trainer_pushes(t) && given) exchange_publish(&t->site.engine->exchange);
    return rc;
}

/* Where the model is held to what the run began with: that, before anything else is there. */
static int open_reference(struct trainer *t, struct err *e)
{
    int rc = begin_weights(t, e);
    if (!rc) reference_keep(t->site.engine);
    if (!rc) rc = state_of_weights(t->site.engine, &t->site.ranks, &t->began, e);
    return rc ? err_prefix(e, "train.grpo.beta holds the model to what the run began with, which is read again") : OK;
}

int trainer_open_weights(struct trainer *t, struct err *e)
{
    struct resume r;
    bool in_memory = false, refers = t->site.engine->cfg.reference;
    int rc = fetch_copy(t, e);
    if (!rc) rc = choose_checkpoint(t, &r, e);
    if (rc) return rc;
    if (refers) rc = open_reference(t, e);
    if (!rc && t->cfg.checkpoint.memory_every && !r.chosen) rc = trainer_memory_load(t, r.ckpt, &in_memory, e);
    if (!t->cfg.checkpoint.memory_every && !r.chosen && t->leads && !t->back) memckpt_say_unused(&t->cfg);
    bool fresh = !in_memory && !r.ckpt;
    if (!rc && !in_memory && r.ckpt) {
        rc = trainer_load(t, r.ckpt, t->checkpoints, OK, e);
        if (rc) rc = load_whole_copy(t, &r, rc, e);
    }
    if (!rc && fresh && t->back)
        rc = err_set(e, ERR_IO,
                     "the checkpoint in memory that the run was to go back to is gone, and none is on disk; started "
                     "again, the run begins afresh");
    if (!rc && fresh && !refers) rc = begin_weights(t, e);
    if (!rc && r.ckpt && r.own) t->saved = ckpt_step(r.ckpt);
    if (!rc) rc = settle_name(t, &r, e); /* first: what is moved aside then is of a run of another name */
    if (!rc) rc = trainer_together(t, t->leads ? resume_done(&r, t->checkpoints, e) : OK, e);
    if (!rc) rc = open_best(t, e);
    if (!rc && (fresh || (r.chosen && !r.own))) rc = trainer_together(t, t->leads ? set_skips_aside(t, e) : OK, e);
    if (!rc) rc = trainer_open_skips(t, e);
    if (!rc && t->cfg.checkpoint.memory_every && r.chosen) rc = trainer_memory_begin(t, e);
    resume_free(&r);
    return rc;
}
