/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's set-up: its data, its engine, its weights, its files. What can fail in the world (files, memory, peers) is
 * agreed on by all ranks at every stage, so that none waits for one that gave up; and what engine_new planned is
 * compared with the memory there is before a page of it is touched. */
#include "train/trainer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "config/afford.h"
#include "config/companions.h"
#include "config/config_optim.h"
#include "config/traps.h"
#include "kernel/cpu/tile/tile_rate.h"
#include "site/choose.h"
#include "train/datasets.h"
#include "train/epochs.h"
#include "train/first_lines.h"

int trainer_stop_here(const struct trainer *t, const char *during, struct err *e)
{
    int number = signals_number(t->job->signals);
    return number ? err_set(e, ERR_SIGNAL, "stopped by %s while %s", signals_name(number), during) : OK;
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
    if (trainer_rewards(t) && t->leads) traps_say(&t->cfg, t->conf, 0);
    if (trainer_rewards(t)) return trainer_policy_data(t, e);
    int rc = datasets_open(&t->train, &t->cfg, &t->cfg.data.train, t->tokenizer, signals_flag(t->job->signals), e);
    if (rc) return err_prefix(e, "%s: data.train", conf_where(t->conf, "data.train"));
    t->data = (struct changes_data){dataset_fingerprint(t->train), dataset_ends_fingerprint(t->train), true};
    if (t->leads && dataset_sees(t->train))
        log_info("data: %s pictures", str_count(s, (double)dataset_n_samples(t->train)));
    else if (t->leads)
        log_info("data: %s tokens, %s samples of %lld", str_count(n, (double)dataset_n_tokens(t->train)),
                 str_count(s, (double)dataset_n_samples(t->train)), (long long)t->cfg.model.seq_len);
    if (t->leads) datasets_say(t->train);
    if (t->leads) traps_say(&t->cfg, t->conf, dataset_n_samples(t->train));
    if (t->cfg.run.eval_every && t->cfg.data.valid.n) {
        rc = datasets_open(&t->valid, &t->cfg, &t->cfg.data.valid, t->tokenizer, signals_flag(t->job->signals), e);
        if (rc) err_prefix(e, "%s: data.valid", conf_where(t->conf, "data.valid"));
    }
    return rc;
}

int trainer_together(struct trainer *t, int rc, struct err *e)
{
    bool again = t->back || (t->job->epoch && t->job->epoch->number > 1);
    if (!rc && !t->ready)
        rc = trainer_stop_here(t,
                               again ? "the run was opened again; the same command goes on from its newest checkpoint"
                                     : "the run was set up; no step was done, nothing is lost",
                               e);
    return t->site.ranks.world ? comm_agree(t->site.ranks.world, rc, e) : rc;
}

/* Every rank reads files of its own host: that they are the same as rank 0's is checked, or each would take its part of
 * other samples. Servers read none. Collective(world). */
static int same_data(struct trainer *t, struct err *e)
{
    enum { TRAIN, TOKENS, VALID, VALID_TOKENS, N };
    int64_t mine[N] = {0}, first[N];
    int rc = OK;
    if (!t->site.ranks.world) return OK;
    if (!trainer_serves(t)) {
        mine[TRAIN] = (int64_t)(t->data.train + t->data.ends);
        mine[TOKENS] = t->train ? dataset_n_tokens(t->train) : trainer_policy_tokens(t);
        if (t->valid) {
            mine[VALID] = (int64_t)(dataset_fingerprint(t->valid) + dataset_ends_fingerprint(t->valid));
            mine[VALID_TOKENS] = dataset_n_tokens(t->valid);
        }
    }
    memcpy(first, mine, sizeof first);
    comm_wait(t->site.ranks.world, comm_broadcast(t->site.ranks.world, first, N, DT_I64, 0, "what the data is"));
    if ((rc = comm_status(t->site.ranks.world, e))) return trainer_together(t, rc, e);
    for (int i = TRAIN; !rc && !trainer_serves(t) && i < N; i += 2)
        if (first[i] != mine[i])
            rc = err_set(e, ERR_REQUEST,
                         "%s: %s: not the data of rank 0, which has %lld tokens; here are %lld%s; copy the same "
                         "files to every host, and remove what was tokenized from others (data.cache_dir)",
                         conf_where(t->conf, i == TRAIN ? "data.train" : "data.valid"),
                         i == TRAIN ? "data.train" : "data.valid", (long long)first[i + 1], (long long)mine[i + 1],
                         first[i + 1] == mine[i + 1] ? ", other ones" : "");
    return trainer_together(t, rc, e);
}

/* Before any page of what engine_new planned is touched. Collective(world). */
static int planned_fits(struct trainer *t, struct err *e)
{
    const struct ledger *l = &t->site.dev->ledger;
    double bytes = (double)l->peak_total + (double)l->peak[MEM_HOST] + (double)l->peak[MEM_KEPT];
    int here = t->cfg.parallel.ranks_here > 1 ? t->cfg.parallel.ranks_here : 1;
    struct comm *w = t->site.ranks.world;
    if (w && here == t->site.ranks.n)
        comm_wait(w, comm_all_reduce(w, &bytes, &bytes, 1, DT_F64, COMM_SUM, "planned bytes"));
    else bytes *= here;
    int rc = w ? comm_status(w, e) : OK;
    return rc ? rc : afford_planned(&t->cfg, t->conf, l, bytes, here, e);
}

/* Pieces of objects are in the engine's memory from here on, where the ledger has them. */
static void place_objects(struct trainer *t)
{
    struct buffer *b = &t->site.engine->objects;
    struct dataset *of[] = {t->train, t->valid};
    char *at = b->p;
    for (int i = 0; at && i < 2; i++) {
        size_t bytes = of[i] ? dataset_object_bytes(of[i]) : 0;
        CHECK(at + bytes <= (char *)b->p + b->bytes, "%zu bytes of pieces were planned", b->bytes);
        if (bytes) dataset_objects_in(of[i], at);
        at += bytes;
    }
}

static int open_engine(struct trainer *t, struct err *e)
{
    int rc = site_build(&t->site, &(struct site_config){.config = &t->cfg}, e);
    if (!rc) hang_engine(t->job->hang, t->site.ranks.world, t->site.engine);
    if ((rc = trainer_together(t, rc, e))) return rc;
    if ((rc = trainer_together(t, planned_fits(t, e), e))) return rc;
    place_objects(t);
    return OK;
}

static int open_serve(struct trainer *t, struct err *e)
{
    struct param_server_config c = {
        .async = t->cfg.parallel.server_mode == SERVER_ASYNC,
        .staleness = t->cfg.parallel.staleness,
        .steps = t->cfg.run.steps,
        .eval_every = t->valid || t->cfg.data.valid.n ? t->cfg.run.eval_every : 0,
        .checkpoint_every = t->cfg.checkpoint.every,
    };
    return site_serve(&t->site, &(struct site_config){.config = &t->cfg, .serve = &c}, e);
}

/* FLOP/s of this rank's threads, of which MFU is the share. Measuring takes a tenth of a second and more where others
 * use the cores, most of what many a short run takes: TUTTI_PEAK tells what one thread does instead. */
static double ceiling_of(const struct trainer *t)
{
    const struct engine_config *c = &t->site.engine->cfg;
    const char *text = getenv("TUTTI_PEAK");
    char *end = NULL;
    double told = text && *text ? strtod(text, &end) : 0;
    if (told > 0 && told < 1e18 && !*end) {
        if (t->leads)
            log_info("MFU: the share of %.3g FLOP/s per thread, as TUTTI_PEAK says; nothing is measured", told);
        return told * c->threads;
    }
    if (text && *text && t->leads) log_warn("TUTTI_PEAK: wanted FLOP/s of a thread, got '%s': measured instead", text);
    return tile_rate_registers(tile_ops_get(c->dtype), t->site.dev->team);
}

/* Ranks differ (stages of a pipeline): one number for all of them. */
static void sum_ranks(struct trainer *t)
{
    struct comm *w = t->site.ranks.world;
    const struct engine_config *c = &t->site.engine->cfg;
    int cores = thread_n_cores();
    double ceiling = device_simulates(t->site.dev) ? NAN : ceiling_of(t);
    ceiling *= tile_rate_share(t->job->sharers, c->threads, cores);
    work_cost_of(t->site.engine, &t->cost);
    t->peak_bytes = (int64_t)t->site.dev->ledger.peak_total;
    if (w) comm_wait(w, comm_all_reduce(w, &ceiling, &ceiling, 1, DT_F64, COMM_SUM, "FLOP/s of all cores"));
    speed_init(&t->speed, ceiling);
    if (!w) return;
    int64_t n = sizeof t->cost / sizeof(double);
    comm_wait(w, comm_all_reduce(w, &t->cost, &t->cost, n, DT_F64, COMM_SUM, "FLOPs of a sequence"));
    comm_wait(w, comm_all_reduce(w, &t->peak_bytes, &t->peak_bytes, 1, DT_I64, COMM_MAX, "bytes of the largest rank"));
}

static int write_config(struct trainer *t, struct err *e)
{
    char *path = fs_join(t->cfg.run.dir, "config.yaml");
    config_print(&t->cfg, &t->config_text);
    int rc = OK;
    if (t->leads) {
        const char *text = str_text(&t->config_text);
        rc = remote_has_secrets(text) ? fs_write_private(path, text, t->config_text.n, e)
                                      : fs_write_atomic(path, text, t->config_text.n, e);
        if (!rc) rc = companions_keep(t->tokenizer, &t->cfg, t->tokenizer_dir, e);
    }
    xfree(path);
    return rc;
}

/* Where the ranks of this run are, which cores each of them and its threads get (run.bind), and the first lines. */
static int settle(struct trainer *t, struct err *e)
{
    struct places places;
    struct binding binding = {0};
    struct topology machine = {0};
    char lr[128];
    int rc = places_gather(&places, t->site.ranks.world, t->site.engine->cfg.threads, e), bound = OK;
    if (rc) return rc;
    if (t->cfg.run.bind) {
        int me = t->site.ranks.rank;
        bound = topology_read(&machine, NULL, e);
        if (!bound) bound = binding_choose(&binding, t->cfg.run.bind, &machine, &places, places.seat[me].on, e);
        if (!bound) bound = binding_apply(&binding, me, t->site.engine->dev->team, e);
        rc = trainer_together(t, bound, e);
    }
    if (!rc)
        first_lines_tell(&(struct first_lines){.cfg = &t->cfg,
                                               .ranks = &t->site.ranks,
                                               .engine = t->site.engine,
                                               .step = t->step,
                                               .places = &places,
                                               .binding = &binding,
                                               .tier_put = t->site.tier_put,
                                               .tier_get = t->site.tier_get,
                                               .lr = config_lr_usual(&t->cfg, t->conf, lr),
                                               .epoch = t->job->epoch});
    topology_free(&machine);
    binding_free(&binding);
    places_free(&places);
    return rc;
}

static int open_metrics(struct trainer *t, struct err *e)
{
    if (!t->leads) return OK;
    int rc = metrics_open(&t->metrics, t->cfg.run.dir, t->step, t->cfg.run.tensorboard, e);
    if (!rc && t->loaded.known) rc = metrics_state(t->metrics, t->step, "loaded", t->step, t->loaded.state, e);
    return rc;
}

static int open_status(struct trainer *t, struct err *e)
{
    const char *address = t->cfg.run.status_address;
    if (!t->leads || !t->cfg.run.status_port) return OK;
    int rc = status_open(&t->status,
                         &(struct status_config){.dir = t->cfg.run.dir,
                                                 .address = address,
                                                 .token_file = t->cfg.run.status_token,
                                                 .port = to_int(t->cfg.run.status_port)},
                         e);
    if (!rc)
        log_info("status: http://%s%s%s:%d/", strchr(address, ':') ? "[" : "", address, strchr(address, ':') ? "]" : "",
                 status_port(t->status));
    return rc;
}

int trainer_open(struct trainer *t, struct job *j, struct comm *world, struct err *e)
{
    t->job = j;
    t->arena = arena_new();
    t->saved = t->compared = t->memory.saved = -1;
    int rc = job_read_config(j, &t->cfg, &t->conf, t->arena, &t->tokenizer, e);
    if (!rc) rc = site_join(&t->site, &(struct site_config){.config = &t->cfg, .world = world}, e);
    if (!rc && world) comm_patience(world, t->cfg.comm.timeout_start_s);
    t->leads = t->site.ranks.rank == 0;
    t->checkpoints = fs_join(t->cfg.run.dir, "checkpoints");
    t->tokenizer_dir = fs_join(t->cfg.run.dir, "tokenizer");
    if (!rc) rc = trainer_together(t, trainer_serves(t) ? OK : open_data(t, e), e);
    if (!rc) rc = same_data(t, e);
    if (!rc) rc = choose_recompute(&t->cfg, choose_together, t->site.ranks.world, &(struct chosen){0}, e);
    if (!rc) rc = trainer_together(t, open_engine(t, e), e);
    if (!rc) sum_ranks(t);
    if (!rc) rc = trainer_together(t, open_serve(t, e), e);
    evals_init(&t->evals, &(struct evals_rules){t->cfg.checkpoint.best != BEST_NONE, t->cfg.run.stop_early,
                                                t->cfg.run.stop_early_delta});
    if (!rc) rc = trainer_open_weights(t, e);
    if (!rc) rc = trainer_preference_open(t, e);
    if (!rc) trainer_policy_open(t);
    if (!rc) rc = trainer_open_copies(t, e);
    if (!rc) rc = settle(t, e);
    if (!rc) rc = trainer_together(t, trainer_witness_open(t, e), e);
    if (!rc && t->site.serve) param_server_begin(t->site.serve, t->step);
    if (!rc) rc = trainer_together(t, write_config(t, e), e);
    if (!rc) rc = trainer_together(t, open_metrics(t, e), e);
    if (!rc) rc = trainer_together(t, trainer_pace_open(t, e), e);
    if (!rc) rc = trainer_together(t, open_status(t, e), e);
    t->ready = !rc;
    if (!rc) signals_set_up(j->signals);
    if (!rc && world) comm_patience(world, 0);
    t->lr = config_lr(&t->cfg);
    t->retry = (struct save_retry){.most = t->cfg.checkpoint.retries, .pause_s = t->cfg.checkpoint.retry_s};
    return rc;
}

int trainer_close(struct trainer *t, struct err *e)
{
    prefetch_free(t->feed);
    async_save_free(t->saving);
    copies_end(t->copies, t->stopped_by || t->rewinds || !t->ready);
    int rc = metrics_close(t->metrics, e);
    status_close(t->status);
    int pace = rank_times_close(t->pace, rc ? NULL : e);
    if (!rc) rc = pace;
    trace_free(&t->tracer.trace);
    witness_free(t->witness);
    hang_engine(t->job->hang, t->site.ranks.world, NULL);
    trainer_policy_close(t);
    dataset_close(t->train); /* its pieces are in the engine's memory */
    dataset_close(t->valid);
    site_close(&t->site);
    tokenizer_free(t->tokenizer);
    str_free(&t->config_text);
    memckpt_close(&t->memory);
    skips_free(&t->skips);
    xfree(t->reference.train);
    xfree(t->reference.valid);
    xfree(t->checkpoints);
    xfree(t->tokenizer_dir);
    arena_free(t->arena);
    return rc;
}
