/* SPDX-License-Identifier: Apache-2.0 */
/* The corridor, walked once per step. Everything a step needs is made before the first; what can fail in the world
 * (files, disk, memory) returns errors, what can go wrong with numbers is reported with step, tensor and remedy. */
#include "run/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/thread.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "kernel/cpu/tile_rate.h"
#include "config/afford.h"
#include "run/choose.h"
#include "engine/balance.h"
#include "config/companions.h"
#include "config/from.h"
#include "run/metrics.h"
#include "engine/replicas.h"
#include "run/resume.h"
#include "run/retry.h"
#include "config/same.h"
#include "run/samples.h"
#include "run/saved.h"
#include "config/setup.h"
#include "run/signals.h"
#include "run/site.h"
#include "config/start_weights.h"
#include "run/speed.h"
#include "config/traps.h"
#include "run/starts.h"
#include "run/tell.h"
#include "run/tracer.h"

/* What all ranks of a process share: the request, the directory, the signals. */
struct job {
    const char *config_path;
    char *const *overrides;
    int n_overrides, n_ranks, ranks_here, sharers, least_here, cores_left; /* config.h: parallel */
    struct signals *signals;
    struct fs_lock lock;
    bool locked, refused;          /* all ranks know that the request cannot be carried out: nothing to tear down */
    struct trainer_result *result; /* filled by rank 0 */
};

struct trainer { /* one rank */
    struct job *job;
    struct site site;
    bool leads;     /* rank 0: logs, metrics, published checkpoints */
    bool ready;     /* set up, on all ranks: from now on a wish to stop ends with a save */
    int stopped_by; /* the signal that a rank got, agreed on; 0: none */
    struct arena *arena;
    struct config cfg;
    struct conf *conf;
    struct tokenizer *tokenizer;
    struct dataset *train, *valid;
    struct changes_data data; /* of train */
    struct prefetch *feed;
    struct staleness stale;
    struct metrics *metrics; /* rank 0 */
    struct str config_text;
    char *checkpoints, *tokenizer_dir;
    struct lr_config lr;
    struct speed speed; /* of all ranks together */
    double flops;       /* of a step over all ranks, without recomputation */
    int64_t peak_bytes; /* of the rank that needs most */
    struct tracer tracer;
    int64_t step, tokens; /* done */
    struct retry retry;   /* of saving */
    int64_t saved;        /* step of the newest checkpoint, -1 none */
    int64_t compared;     /* step after which replicas were compared last */
    double started_s;
    int64_t started_step;
    double valid_loss;
};

/* ---- open ---- */
static int read_config(struct job *j, struct config *c, struct conf **f, struct arena *a, struct tokenizer **t,
                       struct err *e)
{
    int rc = config_load(c, f, a, j->config_path, j->overrides, j->n_overrides, e);
    c->parallel.ranks_here = j->ranks_here;
    c->parallel.sharers = j->sharers;
    c->parallel.least_here = j->least_here;
    c->parallel.cores_left = j->cores_left;
    if (!rc) rc = setup_model(c, *f, a, t, e);
    if (!rc && !*t) rc = setup_no_tokenizer(c, *f, e);
    if (!rc) rc = config_resolve(c, *f, tokenizer_vocab(*t), j->n_ranks, e);
    if (!rc && c->run.device == DEVICE_NULL)
        rc = conf_error(*f, e, "run.device", "null only counts; use tutti plan, or choose cpu");
    if (!rc) rc = traps_check(c, *f, e);
    return rc;
}

static int take_directory(struct job *j, const struct config *c, const struct conf *f, struct err *e)
{
    int rc = fs_mkdirs(c->run.dir, e);
    if (rc) return err_prefix(e, "%s: run.dir", conf_where(f, "run.dir"));
    char *path = fs_join(c->run.dir, "lock");
    rc = fs_lock_take(&j->lock, path, e);
    if (rc) err_prefix(e, "another process trains in %s", c->run.dir);
    j->locked = !rc;
    xfree(path);
    return rc;
}

static int stop_here(const struct trainer *t, const char *during, struct err *e)
{
    int number = signals_number(t->job->signals);
    return number ? err_set(e, ERR_SIGNAL, "stopped by %s while %s", signals_name(number), during) : OK;
}

static int open_dataset(struct trainer *t, struct dataset **d, const struct conf_list *list, struct err *e)
{
    const struct config_source *items = list->items;
    struct dataset_source *s = xcalloc((size_t)list->n + 1, sizeof *s);
    for (int i = 0; i < list->n; i++) s[i] = (struct dataset_source){items[i].path, items[i].weight};
    char *cache = t->cfg.data.cache_dir ? xstrdup(t->cfg.data.cache_dir) : fs_join(t->cfg.run.dir, "data");
    struct dataset_options o = {
        .sources = s,
        .n_sources = list->n,
        .tokenizer = t->tokenizer,
        .seq_len = t->cfg.model.seq_len,
        .seed = (uint64_t)t->cfg.data.seed,
        .shuffled = t->cfg.data.order == ORDER_SHUFFLED,
        .reset_positions = t->cfg.data.reset_positions,
        .mask_boundaries = t->cfg.data.mask_boundaries,
        .cache_dir = cache,
        .give_up = signals_flag(t->job->signals),
    };
    int rc = dataset_open(d, &o, e);
    xfree(cache);
    xfree(s);
    return rc;
}

static int open_data(struct trainer *t, struct err *e)
{
    char n[32], s[32];
    if (!t->cfg.data.train.n) {
        bool given = strcmp(conf_where(t->conf, "data.train"), "default") != 0;
        return err_set(e, ERR_REQUEST,
                       "%s: data.train: is required: a text file, a folder, a .jsonl file or a token file",
                       given ? conf_where(t->conf, "data.train") : t->job->config_path);
    }
    int rc = open_dataset(t, &t->train, &t->cfg.data.train, e);
    if (rc) return err_prefix(e, "%s: data.train", conf_where(t->conf, "data.train"));
    t->data = (struct changes_data){dataset_fingerprint(t->train), true};
    if (t->leads)
        log_info("data: %s tokens, %s samples of %lld", str_count(n, (double)dataset_n_tokens(t->train)),
                 str_count(s, (double)dataset_n_samples(t->train)), (long long)t->cfg.model.seq_len);
    if (t->leads) traps_say(&t->cfg, t->conf, dataset_n_samples(t->train));
    if (t->cfg.run.eval_every && t->cfg.data.valid.n) {
        rc = open_dataset(t, &t->valid, &t->cfg.data.valid, e);
        if (rc) err_prefix(e, "%s: data.valid", conf_where(t->conf, "data.valid"));
    }
    return rc;
}

/* A decision of all ranks: an error on one is an error on all. During the set-up a wish to stop is one. */
static int together(struct trainer *t, int rc, struct err *e)
{
    if (!rc && !t->ready) rc = stop_here(t, "the run was set up; no step was done, nothing is lost", e);
    return t->site.ranks.world ? comm_agree(t->site.ranks.world, rc, e) : rc;
}

static bool is_server(const struct trainer *t) { return t->site.ranks.server >= 0; }

/* Every rank reads files of its own host: that they are the same as rank 0's is checked, or each would take its part of
 * other samples. Servers read none. Collective(world). */
static int same_data(struct trainer *t, struct err *e)
{
    enum { TRAIN, TOKENS, VALID, VALID_TOKENS, N };
    int64_t mine[N] = {0}, first[N];
    int rc = OK;
    if (!t->site.ranks.world) return OK;
    if (!is_server(t)) {
        mine[TRAIN] = (int64_t)t->data.train;
        mine[TOKENS] = dataset_n_tokens(t->train);
        if (t->valid) {
            mine[VALID] = (int64_t)dataset_fingerprint(t->valid);
            mine[VALID_TOKENS] = dataset_n_tokens(t->valid);
        }
    }
    memcpy(first, mine, sizeof first);
    comm_wait(t->site.ranks.world, comm_broadcast(t->site.ranks.world, first, N, DT_I64, 0, "what the data is"));
    if ((rc = comm_status(t->site.ranks.world, e))) return together(t, rc, e);
    for (int i = TRAIN; !rc && !is_server(t) && i < N; i += 2)
        if (first[i] != mine[i])
            rc = err_set(e, ERR_REQUEST,
                         "%s: %s: not the data of rank 0, which has %lld tokens; here are %lld%s; copy the same "
                         "files to every host, and remove what was tokenized from others (data.cache_dir)",
                         conf_where(t->conf, i == TRAIN ? "data.train" : "data.valid"),
                         i == TRAIN ? "data.train" : "data.valid", (long long)first[i + 1], (long long)mine[i + 1],
                         first[i + 1] == mine[i + 1] ? ", other ones" : "");
    return together(t, rc, e);
}
static bool is_worker(const struct trainer *t) { return t->site.serve && !is_server(t); }
static bool is_async(const struct trainer *t) { return t->site.serve && t->cfg.parallel.server_mode == SERVER_ASYNC; }

static int fresh_weights(struct trainer *t, struct err *e)
{
    engine_init(t->site.engine);
    if (!t->cfg.from.dir || is_worker(t)) return OK; /* a worker gets its weights from the servers */
    struct weights *w;
    int rc = setup_weights(&w, &t->cfg, e);
    if (rc) return rc;
    rc = source_load(&t->site.engine->store, &t->site.engine->kernels, t->site.engine->stream, w, e);
    if (!rc && t->leads) log_info("weights from %s", t->cfg.from.dir);
    if (!rc && t->leads) from_say(w, &t->cfg, t->tokenizer);
    weights_close(w);
    return rc;
}

static int open_weights(struct trainer *t, struct err *e)
{
    struct resume r;
    struct str said = {0};
    int rc = resume_choose(&r, t->site.ranks.world, &t->cfg, t->conf, t->checkpoints, e);
    if (rc) return rc;
    if (r.ckpt && !is_worker(t)) rc = save_check(t->site.engine, r.ckpt, e);
    if (!rc && r.ckpt && t->leads) rc = changes_check(r.ckpt, &t->cfg, &t->data, e);
    if (!rc && !r.ckpt) rc = fresh_weights(t, e);
    if (rc && r.ckpt && rc != ERR_REQUEST) resume_advise(t->checkpoints, ckpt_path(r.ckpt), e);
    if (r.ckpt) rc = save_resume(t->site.engine, r.ckpt, t->checkpoints, rc, &said, e);
    else rc = together(t, rc, e);
    if (!rc && !is_worker(t) && !r.ckpt && t->cfg.from.dir) exchange_publish(&t->site.engine->exchange);
    if (!rc && r.ckpt) {
        t->step = ckpt_step(r.ckpt);
        t->tokens = ckpt_tokens(r.ckpt);
        if (r.own) t->saved = t->step;
        if (t->leads) log_info("resumed from %s: %lld steps done", ckpt_path(r.ckpt), (long long)t->step);
        if (t->leads && said.n) log_info("read %s", str_text(&said));
    }
    if (!rc) rc = together(t, t->leads ? resume_done(&r, t->checkpoints, e) : OK, e);
    resume_free(&r);
    str_free(&said);
    return rc;
}

/* Before any page of what engine_new planned is touched. Collective(world). */
static int planned_fits(struct trainer *t, struct err *e)
{
    const struct ledger *l = &t->site.dev->ledger;
    double bytes = (double)l->peak_total;
    int here = t->cfg.parallel.ranks_here > 1 ? t->cfg.parallel.ranks_here : 1;
    struct comm *w = t->site.ranks.world;
    if (w && here == t->site.ranks.n)
        comm_wait(w, comm_all_reduce(w, &bytes, &bytes, 1, DT_F64, COMM_SUM, "planned bytes"));
    else bytes *= here;
    int rc = w ? comm_status(w, e) : OK;
    return rc ? rc : afford_planned(&t->cfg, t->conf, l, bytes, here, e);
}

static int open_engine(struct trainer *t, struct err *e)
{
    int rc = site_build(&t->site, &(struct site_config){.config = &t->cfg}, e);
    if ((rc = together(t, rc, e))) return rc;
    return together(t, planned_fits(t, e), e);
}

static int open_serve(struct trainer *t, struct err *e)
{
    struct serve_config c = {
        .async = t->cfg.parallel.server_mode == SERVER_ASYNC,
        .staleness = t->cfg.parallel.staleness,
        .steps = t->cfg.run.steps,
        .eval_every = t->valid || t->cfg.data.valid.n ? t->cfg.run.eval_every : 0,
        .checkpoint_every = t->cfg.checkpoint.every,
    };
    return site_serve(&t->site, &(struct site_config){.config = &t->cfg, .serve = &c}, e);
}

/* Ranks differ (stages of a pipeline): one number for all of them. */
static void sum_ranks(struct trainer *t)
{
    struct comm *w = t->site.ranks.world;
    const struct engine_config *c = &t->site.engine->cfg;
    int cores = thread_n_cores();
    double ceiling = tile_rate_registers(tile_ops_get(c->dtype), t->site.dev->team);
    ceiling *= tile_rate_share(t->job->sharers, c->threads, cores);
    t->flops = engine_flops_model(t->site.engine);
    t->peak_bytes = (int64_t)t->site.dev->ledger.peak_total;
    if (w) comm_wait(w, comm_all_reduce(w, &ceiling, &ceiling, 1, DT_F64, COMM_SUM, "FLOP/s of all cores"));
    speed_init(&t->speed, ceiling);
    if (!w) return;
    comm_wait(w, comm_all_reduce(w, &t->flops, &t->flops, 1, DT_F64, COMM_SUM, "FLOPs of a step"));
    comm_wait(w, comm_all_reduce(w, &t->peak_bytes, &t->peak_bytes, 1, DT_I64, COMM_MAX, "bytes of the largest rank"));
}

static int write_config(struct trainer *t, struct err *e)
{
    char *path = fs_join(t->cfg.run.dir, "config.yaml");
    config_print(&t->cfg, &t->config_text);
    int rc = OK;
    if (t->leads) {
        rc = fs_write_atomic(path, str_text(&t->config_text), t->config_text.n, e);
        if (!rc) rc = companions_keep(t->tokenizer, &t->cfg, t->tokenizer_dir, e);
    }
    xfree(path);
    return rc;
}

static int trainer_open(struct trainer *t, struct job *j, struct comm *world, struct err *e)
{
    t->job = j;
    t->arena = arena_new();
    t->saved = t->compared = -1;
    int rc = read_config(j, &t->cfg, &t->conf, t->arena, &t->tokenizer, e);
    if (!rc) rc = site_join(&t->site, &(struct site_config){.config = &t->cfg, .world = world}, e);
    t->leads = t->site.ranks.rank == 0;
    t->checkpoints = fs_join(t->cfg.run.dir, "checkpoints");
    t->tokenizer_dir = fs_join(t->cfg.run.dir, "tokenizer");
    if (!rc) rc = together(t, is_server(t) ? OK : open_data(t, e), e);
    if (!rc) rc = same_data(t, e);
    if (!rc) rc = choose_recompute(&t->cfg, choose_together, t->site.ranks.world, &(struct chosen){0}, e);
    if (!rc) rc = together(t, open_engine(t, e), e);
    if (!rc) sum_ranks(t);
    if (!rc) rc = together(t, open_serve(t, e), e);
    if (!rc) rc = open_weights(t, e);
    if (!rc) rc = tell_start(&(struct tell){&t->cfg, &t->site.ranks, t->site.engine, t->step}, e);
    if (!rc && t->site.serve) serve_begin(t->site.serve, t->step);
    if (!rc) rc = together(t, write_config(t, e), e);
    if (!rc)
        rc = together(t, t->leads ? metrics_open(&t->metrics, t->cfg.run.dir, t->step, t->cfg.run.tensorboard, e) : OK,
                      e);
    t->ready = !rc;
    if (!rc) signals_set_up(j->signals);
    t->lr = config_lr(&t->cfg);
    t->retry = (struct retry){.most = t->cfg.checkpoint.retries, .pause_s = t->cfg.checkpoint.retry_s};
    return rc;
}

static int trainer_close(struct trainer *t, struct err *e)
{
    prefetch_free(t->feed);
    int rc = metrics_close(t->metrics, e);
    trace_free(&t->tracer.trace);
    site_close(&t->site);
    dataset_close(t->train);
    dataset_close(t->valid);
    tokenizer_free(t->tokenizer);
    str_free(&t->config_text);
    xfree(t->checkpoints);
    xfree(t->tokenizer_dir);
    arena_free(t->arena);
    return rc;
}

/* ---- loop ---- */
static struct engine_batch view_batch(const struct batch *b, int64_t first)
{
    struct engine_batch v = {.n = b->n_seqs, .first = first, .n_trained = b->n_trained};
    for (int f = 0; f < BATCH_FIELDS; f++) v.field[f] = b->field[f];
    return v;
}

/* A text that cannot be written is no reason to end a run. */
static void write_sample(struct trainer *t)
{
    struct err e = {0};
    const int64_t every = t->cfg.run.sample_every;
    if (!every || (t->step % every && t->step != t->cfg.run.steps)) return;
    if (samples_write(&t->cfg, t->checkpoints, t->step, &e))
        log_warn("no sample of step %lld: %s", (long long)t->step, e.text);
}

/* Ranks that must hold the same numbers do, or the run ends before anything of them is published. Workers of an
 * asynchronous server go ways of their own. */
static int compare(struct trainer *t, struct err *e)
{
    struct replicas_report r;
    if (is_async(t) || t->compared == t->step) return OK;
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

static void advise_diverged(const struct trainer *t, struct err *e)
{
    char saved[64] = "there is none before it", text[sizeof e->text];
    if (t->saved >= 0) snprintf(saved, sizeof saved, "the last one is of step %lld", (long long)t->saved);
    snprintf(text, sizeof text, "%s", e->text);
    err_set(e, ERR_NUMERIC,
            "%.700s; %s. Lower optimizer.lr (now %g), raise warmup_steps, or set optimizer.clip (now %g)", text, saved,
            t->cfg.optimizer.lr, t->cfg.optimizer.clip);
}

static int save(struct trainer *t, struct err *e)
{
    double from = clock_now_s();
    int same = compare(t, e);
    if (same) return same;
    struct save_info s = {
        .root = t->checkpoints,
        .step = t->step,
        .tokens = t->tokens,
        .keep = t->cfg.checkpoint.keep,
        .config_text = str_text(&t->config_text),
        .tokenizer_dir = t->tokenizer_dir,
        .cfg = &t->cfg,
        .bos = tokenizer_bos(t->tokenizer),
        .eos = tokenizer_eos(t->tokenizer),
        .data = t->data,
    };
    int rc = save_checkpoint(t->site.engine, &t->site.ranks, &s, e);
    if (rc == ERR_NUMERIC) advise_diverged(t, e);
    if (rc) return rc;
    t->saved = t->step;
    if (!t->leads) return OK;
    log_status_end();
    log_info("saved step %lld in %.2f s", (long long)t->step, clock_now_s() - from);
    write_sample(t);
    return OK;
}

/* A save that fails is tried again: later, or, where nothing else is to be done, until it is over. */
static int save_or_retry(struct trainer *t, bool waits, struct err *e)
{
    for (int rc;;) {
        if (!(rc = save(t, e))) retry_done(&t->retry);
        else rc = retry_failed(&t->retry, t->site.ranks.world, waits, rc, e);
        if (rc || !waits || !t->retry.failed) return rc;
        clock_sleep_s(t->retry.pause_s);
    }
}

/* Servers know of validation only that workers agree on each batch. */
static int validate_server(struct trainer *t, struct err *e)
{
    int64_t n = 0;
    int rc = OK;
    comm_wait(t->site.ranks.world, comm_broadcast(t->site.ranks.world, &n, 1, DT_I64, 0, "batches of validation"));
    for (int64_t i = 0; !rc && i < n; i++) rc = together(t, stop_here(t, "validating", e), e);
    return rc == ERR_SIGNAL ? OK : rc;
}

static int validate(struct trainer *t, double *loss, struct err *e)
{
    if (is_server(t)) return validate_server(t, e);
    int64_t most = t->cfg.run.eval_batches, n = dataset_eval_batches(t->valid, t->cfg.batch.global, most), trained = 0,
            first, count;
    double nats = 0;
    struct batch b;
    int rc = OK;
    config_part(&t->cfg, t->site.ranks.part, &first, &count);
    batch_init(&b, count, t->cfg.model.seq_len);
    if (t->site.serve) {
        comm_wait(t->site.ranks.world, comm_broadcast(t->site.ranks.world, &n, 1, DT_I64, 0, "batches of validation"));
        t->site.engine->exchange.sums = t->site.ranks.workers; /* also of workers that otherwise count their own */
    }
    for (int64_t i = 0; !rc && i < n; i++) {
        struct engine_report r;
        rc = dataset_eval_batch(t->valid, i, t->cfg.batch.global, most, first, &b, e);
        rc = together(t, rc ? rc : stop_here(t, "validating", e), e);
        if (rc) break;
        struct engine_batch view = view_batch(&b, first);
        engine_evaluate(t->site.engine, &view, &r);
        nats += r.nats;
        trained += r.tokens;
    }
    batch_fini(&b);
    if (is_async(t)) t->site.engine->exchange.sums = NULL;
    if (rc == ERR_SIGNAL) return OK; /* of a part nothing is said; the loop stops */
    if (rc) return rc;
    *loss = trained ? nats / (double)trained : NAN;
    if (!t->leads) return OK;
    log_status_end();
    log_info("step %lld  validation loss %.4f (perplexity %.2f) over %lld of %lld tokens", (long long)t->step, *loss,
             exp(*loss), (long long)trained, (long long)dataset_eval_tokens(t->valid));
    return metrics_valid(t->metrics, t->step, t->tokens, *loss, trained, e);
}

static int not_finite(struct trainer *t, const struct engine_batch *b, const struct engine_report *r, double lr,
                      struct err *e)
{
    char what[256], saved[40] = "none";
    if (t->saved >= 0) snprintf(saved, sizeof saved, "of step %lld", (long long)t->saved);
    snprintf(what, sizeof what, "a worker's gradients");
    if (!t->site.serve) engine_blame(t->site.engine, b, t->step, what, sizeof what);
    if (t->leads) log_status_end();
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
    const double **load = xcalloc((size_t)c->layers, sizeof *load);
    for (int l = 0; l < c->layers; l++) load[l] = balance_load(g, l);
    m->balance_loss = r->balance_loss;
    m->z_loss = r->z_loss;
    m->load_worst = balance_worst(g);
    m->load = load;
    m->layers = c->layers;
    m->experts = c->moe.experts;
    return load;
}

static int report(struct trainer *t, const struct engine_report *r, double lr, double step_s, struct err *e)
{
    int64_t step_tokens = t->cfg.batch.global * t->cfg.model.seq_len;
    bool was_raised = t->speed.raised;
    struct metrics_step m = {
        .step = t->step,
        .loss = r->loss,
        .grad_norm = r->grad_norm,
        .lr = lr,
        .tokens = t->tokens,
        .step_tokens = step_tokens,
        .step_s = step_s,
        .mfu = speed_step(&t->speed, t->flops, step_tokens, step_s),
        .peak_bytes = t->peak_bytes,
        .async = is_async(t),
        .staleness_mean = t->stale.mean,
        .staleness_max = t->stale.max,
    };
    const double **load = experts_load(t->site.engine, r, &m);
    m.progress_load = t->cfg.run.log_experts;
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
    xfree(load);
    return rc;
}

/* The steps of a synchronous server: what workers push, once per step. */
static int server_step(struct trainer *t, struct err *e)
{
    struct engine_report r;
    double lr = lr_at(&t->lr, t->step);
    bool finite = serve_step(t->site.serve, NULL, t->step, lr, &r);
    int rc = engine_status(t->site.engine, e);
    if (!rc && !finite) rc = not_finite(t, NULL, &r, lr, e);
    t->step += !rc;
    t->tokens += rc ? 0 : r.tokens;
    return rc;
}

static int one_step(struct trainer *t, struct err *e)
{
    if (is_server(t)) return server_step(t, e);
    const struct batch *b;
    struct engine_report r;
    double from = clock_now_s(), lr = lr_at(&t->lr, t->step);
    int64_t first, n;
    int rc = prefetch_next(t->feed, &b, e);
    if (rc) return rc;
    trace_add(t->site.engine->trace, TRACE_PART, "wait for the batch", t->step, from, clock_now_s());
    config_part(&t->cfg, t->site.ranks.part, &first, &n);
    struct engine_batch view = view_batch(b, first);
    bool finite = t->site.serve ? serve_step(t->site.serve, &view, t->step, lr, &r)
                                : engine_step(t->site.engine, &view, t->step, lr, &r);
    rc = engine_status(t->site.engine, e);
    if (rc) return rc;
    if (!finite) return not_finite(t, &view, &r, lr, e);
    t->step++;
    t->tokens += r.tokens;
    return t->leads ? report(t, &r, lr, clock_now_s() - from, e) : OK;
}

/* A signal reaches the ranks at different moments, and data fails on one of them: they stop after the same step, and
 * all know why. */
static bool stop_wanted(struct trainer *t, int *rc, struct err *e)
{
    int data = t->feed ? prefetch_wait(t->feed, e) : OK;
    int64_t here = signals_number(t->job->signals), wanted[2] = {here, data != OK};
    if (t->site.ranks.world)
        comm_wait(t->site.ranks.world,
                  comm_all_reduce(t->site.ranks.world, wanted, wanted, 2, DT_I64, COMM_MAX, "stop? data?"));
    if (t->leads && wanted[0] && !here) log_info("another rank got %s: saving", signals_name((int)wanted[0]));
    t->stopped_by = (int)wanted[0];
    if (wanted[1] && !wanted[0]) *rc = together(t, data, e);
    return wanted[0] || *rc;
}

/* ---- asynchronous: workers and servers walk alone from one meeting to the next ---- */
static int worker_until_meeting(struct trainer *t, struct err *e)
{
    for (bool meet = false; !meet;) {
        const struct batch *b;
        struct engine_report r;
        double from = clock_now_s(), lr = lr_at(&t->lr, t->step);
        int rc = prefetch_next(t->feed, &b, e);
        if (rc) return rc;
        int64_t first, n;
        config_part(&t->cfg, t->site.ranks.part, &first, &n);
        struct engine_batch view = view_batch(b, first);
        rc = serve_push(t->site.serve, &view, t->step, signals_stop_wanted(t->job->signals), &r, &t->stale, &meet, e);
        if (!rc) rc = engine_status(t->site.engine, e);
        if (rc) return rc;
        t->step++;
        t->tokens += r.tokens; /* of this worker; at a meeting of all */
        if (t->leads && (rc = report(t, &r, lr, clock_now_s() - from, e))) return rc;
    }
    return OK;
}

static int meeting(struct trainer *t, struct err *e)
{
    bool last = t->step == t->cfg.run.steps;
    int rc = together(t, OK, e);
    comm_wait(t->site.ranks.world,
              comm_broadcast(t->site.ranks.world, &t->tokens, 1, DT_I64, t->site.ranks.n - 1, "tokens"));
    if (!rc && t->cfg.data.valid.n && t->cfg.run.eval_every && (last || t->step % t->cfg.run.eval_every == 0))
        rc = validate(t, &t->valid_loss, e);
    if (!rc && ((t->cfg.checkpoint.every && t->step % t->cfg.checkpoint.every == 0) || serve_is_over(t->site.serve)))
        rc = save_or_retry(t, true, e);
    return rc;
}

static int loop_async(struct trainer *t, struct err *e)
{
    int rc = OK;
    while (!rc && t->step < t->cfg.run.steps && !serve_is_over(t->site.serve)) {
        if (is_server(t)) {
            int64_t at = serve_until_meeting(t->site.serve, &t->tokens, e);
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

/* What comparing the tokens that were read with their checksums has cost, on rank 0. */
static void report_checks(const struct trainer *t)
{
    int64_t bytes, more = 0;
    double s, more_s = 0, all = clock_now_s() - t->started_s;
    char read[32];
    if (!t->leads || is_server(t)) return;
    dataset_cost(t->train, &bytes, &s);
    if (t->valid) dataset_cost(t->valid, &more, &more_s);
    log_info("data: %s of tokens read for the first time and compared with their checksums in %.3f s, %.3f %% of the "
             "time",
             str_bytes(read, (double)(bytes + more)), s + more_s, 100 * (s + more_s) / (all > 1e-9 ? all : 1e-9));
}

static int loop(struct trainer *t, struct err *e)
{
    int64_t first, n;
    int rc = OK;
    config_part(&t->cfg, is_server(t) ? 0 : t->site.ranks.part, &first, &n);
    if (!is_server(t)) rc = prefetch_new(&t->feed, t->train, t->step, t->cfg.batch.global, first, n, 2, e);
    if ((rc = together(t, rc, e))) return rc;
    t->started_s = clock_now_s();
    t->started_step = t->step;
    tracer_begin(&t->tracer, &t->cfg, t->site.engine, &t->site.ranks, t->step);
    if (is_async(t)) return loop_async(t, e);
    rc = compare(t, e);
    while (!rc && t->step < t->cfg.run.steps && !stop_wanted(t, &rc, e)) {
        rc = tracer_before(&t->tracer, t->step, e);
        double from = clock_now_s();
        if (!rc) rc = one_step(t, e);
        tracer_after(&t->tracer, t->step, from);
        if (!rc && t->cfg.run.compare_every && t->step % t->cfg.run.compare_every == 0) rc = compare(t, e);
        bool last = t->step == t->cfg.run.steps;
        bool valid = t->cfg.data.valid.n && t->cfg.run.eval_every;
        if (!rc && valid && (last || t->step % t->cfg.run.eval_every == 0)) rc = validate(t, &t->valid_loss, e);
        bool due = t->cfg.checkpoint.every && t->step % t->cfg.checkpoint.every == 0;
        if (!rc && (t->retry.failed ? retry_due(&t->retry, t->site.ranks.world) : due)) rc = save_or_retry(t, false, e);
    }
    if (!rc) tracer_end(&t->tracer, t->step);
    if (!rc && t->saved != t->step && t->step > 0) rc = save_or_retry(t, true, e);
    if (t->leads) log_status_end();
    if (!rc) report_checks(t);
    return rc;
}

/* ---- one rank, and all of them ---- */

/* Who starts runs one after the other (a batch script) reads there whether this one is finished: a line that is missing
 * would make the one before it speak. */
static int write_end(struct trainer *t, int64_t first, struct err *e)
{
    struct trainer_result *r = t->job->result;
    char path[sizeof r->checkpoint] = "";
    if (t->saved >= 0) snprintf(path, sizeof path, "%s/step-%08lld", t->checkpoints, (long long)t->saved);
    r->tokens_per_s = speed_all(&t->speed);
    r->seconds = clock_now_s() - t->started_s;
    r->wanted = t->cfg.run.steps;
    struct ends_note n = {
        .first = first,
        .step = t->step,
        .steps = t->cfg.run.steps,
        .tokens = t->tokens,
        .tokens_per_s = r->tokens_per_s,
        .seconds = r->seconds,
        .loss = r->loss,
        .valid_loss = t->valid_loss,
        .signal = t->step < t->cfg.run.steps ? t->stopped_by : 0,
        .checkpoint = path,
    };
    int rc = ends_write(t->cfg.run.dir, &n, e);
    return rc ? err_prefix(e, "step %lld is saved, but the run cannot say that it has ended", (long long)t->step) : OK;
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct trainer t = {.valid_loss = NAN};
    int rc = trainer_open(&t, j, world, e);
    int64_t first = t.step;
    if (!rc) rc = loop(&t, e);
    if (!rc && (t.step > first || t.step >= t.cfg.run.steps))
        rc = together(&t, t.leads ? write_end(&t, first, e) : OK, e);
    if (t.leads) {
        struct trainer_result *r = j->result;
        r->first_step = first;
        r->steps = t.step;
        r->tokens = t.tokens;
        r->valid_loss = t.valid_loss;
        r->stopped = !rc && t.step < t.cfg.run.steps;
        r->signal = t.stopped_by;
        if (t.saved >= 0)
            snprintf(r->checkpoint, sizeof r->checkpoint, "%s/step-%08lld", t.checkpoints, (long long)t.saved);
    }
    int closed = trainer_close(&t, rc ? NULL : e);
    return rc ? rc : closed;
}

/* Hosts and ranks have different cores; what follows from them for all is decided by the least.
 * Collective(launched). */
static int same_cores(struct job *j, struct comm *launched, struct config *c, struct err *e)
{
    int64_t least[2] = {j->ranks_here, config_cores_left(c)};
    comm_wait(launched, comm_all_reduce(launched, least, least, 2, DT_I64, COMM_MIN, "ranks of a host, cores"));
    c->parallel.least_here = j->least_here = (int)least[0];
    c->parallel.cores_left = j->cores_left = least[1] ? 1 : -1;
    return comm_status(launched, e);
}

static int run_job(struct job *j, struct comm *launched, struct err *e)
{
    struct config c;
    struct conf *f = NULL;
    struct tokenizer *t = NULL;
    struct arena *a = arena_new();
    bool takes = !launched || comm_rank(launched) == 0;
    int rc = read_config(j, &c, &f, a, &t, e); /* refused before any rank starts */
    if (!rc) rc = afford_least(&c, f, j->n_ranks, j->ranks_here, e);
    if (!rc && takes) rc = take_directory(j, &c, f, e);
    struct comm_config cc = {0};
    if (!rc) cc = config_comm(&c);
    cc.dump_dir = rc ? NULL : c.run.dir;
    if (!rc && !launched)
        rc = j->n_ranks > 1 ? comm_run_local(j->n_ranks, &cc, rank_main, j, e) : rank_main(NULL, j, e);
    if (launched) {
        rc = comm_agree(launched, rc, e);
        if (!rc) rc = same_config(launched, &c, f, e);
        if (!rc) rc = same_cores(j, launched, &c, e);
        if (!rc) cc = config_comm(&c);
        cc.dump_dir = c.run.dir;
        if (!rc) rc = comm_configure(launched, &cc, e);
        j->refused = rc != OK && comm_status(launched, NULL) == OK;
        if (!rc) rc = rank_main(launched, j, e);
        j->refused |= rc == ERR_SIGNAL;
    }
    if (j->locked) fs_lock_release(&j->lock);
    tokenizer_free(t);
    arena_free(a);
    return rc;
}

/* How many ranks there are: the launcher's, else those asked for. What was asked for and is not so is refused. */
static int count_ranks(struct job *j, struct comm *launched, int asked, struct err *e)
{
    int there = launched ? comm_size(launched) : asked, idle = comm_tasks_idle();
    j->n_ranks = there ? there : 1;
    j->ranks_here = j->least_here = launched ? comm_ranks_here(launched) : j->n_ranks;
    j->sharers = launched ? comm_sharers(launched) : j->n_ranks;
    j->refused = true; /* every process says the same: there is nothing to tear down */
    if (launched && comm_tasks_apart(launched)) {
        char library[64];
        comm_mpi_library(library);
        return err_set(e, ERR_REQUEST,
                       "srun started %d tasks, but this %s is alone: it did not hear from srun of the others; srun "
                       "--mpi=pmix for Open MPI, --mpi=pmi2 for MPICH (srun --mpi=list: what this Slurm has), or "
                       "mpirun",
                       comm_tasks_apart(launched), library);
    }
    if (launched && asked && asked != there)
        return err_set(e, ERR_REQUEST,
                       "-n %d: the launcher started %d processes, and each of them is a rank; leave -n out, or start "
                       "%d processes",
                       asked, there, asked);
    if (!launched && !asked && idle)
        return err_set(e, ERR_REQUEST,
                       "the job has %d tasks, and this is one process: a batch script starts the others with srun "
                       "(srun tutti train ...); for one rank say -n 1, for threads as ranks -n %d",
                       idle, idle);
    j->refused = false;
    return OK;
}

int trainer_run(const char *config_path, char *const *overrides, int n_overrides, int n_ranks, struct trainer_result *r,
                struct err *e)
{
    struct job j = {.config_path = config_path, .overrides = overrides, .n_overrides = n_overrides, .result = r};
    struct comm *launched = NULL;
    memset(r, 0, sizeof *r);
    r->loss = r->valid_loss = NAN;
    int rc = signals_open(&j.signals, e);
    if (!rc && comm_launched()) {
        rc = comm_world_mpi(&launched, &(struct comm_config){0}, e);
        if (!rc) {
            r->rank = comm_rank(launched);
            signals_speak(j.signals, r->rank == 0);
            signals_launched(j.signals);
        }
    }
    if (!rc) rc = count_ranks(&j, launched, n_ranks, e);
    if (!rc) rc = run_job(&j, launched, e);
    if (rc && launched && !j.refused) comm_abort(launched, e);
    if (rc && launched) { /* a launcher kills the others when the first of them ends with a status: rank 0 speaks before
                             that */
        r->told = r->rank == 0 && fprintf(stderr, "tutti: %s\n", e->text) > 0;
        comm_wait(launched, comm_barrier(launched, "refused"));
    }
    comm_free(launched);
    if (!r->signal) r->signal = signals_number(j.signals);
    signals_close(j.signals);
    return rc;
}
