/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's step without what surrounds it: no files, no prefetch, no signals. The run's cache of tokens is offered
 * through links in a folder of this process, so that whatever opening data may repair or tokenize lands there. */
#include "train/rerun.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/crowd.h"
#include "config/config_offload.h"
#include "config/start_weights.h"
#include "site/choose.h"
#include "train/datasets.h"
#include "keep/run_checkpoint.h"
#include "train/trainer_impl.h"

enum { LINE_BYTES = 16 << 20, KEYS = 300 };

/* ---- what the run recorded ---- */
struct record {
    bool is;                /* else the step has no line */
    double loss, grad_norm; /* NaN: not finite, or none was made */
    char skip[16];          /* why it was left out; "": it was not */
};

struct rerunning {
    const struct rerun_request *q;
    struct rerun_result *r;
    struct job job;
    char *key[KEYS], *folder;
    int n_keys;
    char *from; /* a checkpoint, or NULL */
    int64_t begin;
    struct record *record; /* [step - begin], of steps begin + 1 to step */
};

struct of_lines {
    void (*line)(void *ctx, const struct json *v);
    void *ctx;
};

static void one_line(void *ctx, const char *text, size_t n)
{
    const struct of_lines *x = ctx;
    struct json *v;
    if (!text || json_parse(&v, text, n, "line", NULL)) return;
    x->line(x->ctx, v);
    json_free(v);
}

static int each_line(const char *path, void (*line)(void *ctx, const struct json *v), void *ctx, struct err *e)
{
    int64_t bytes;
    int rc = fs_look(path, &bytes, e);
    if (rc || bytes < 0) return rc;
    return lines_each(path, LINE_BYTES, one_line, &(struct of_lines){line, ctx}, e);
}

static void last_step(void *ctx, const struct json *v)
{
    struct rerun_result *r = ctx;
    int64_t step = json_int(json_get(v, "step"), -1);
    if (json_get(v, "loss") && step > r->recorded) r->recorded = step;
}

static void keep_record(void *ctx, const struct json *v)
{
    struct rerunning *x = ctx;
    int64_t step = json_int(json_get(v, "step"), -1);
    if (!json_get(v, "loss") || step <= x->begin || step > x->q->step) return;
    struct record *r = &x->record[step - x->begin - 1];
    *r = (struct record){true, json_real(json_get(v, "loss"), NAN), json_real(json_get(v, "grad_norm"), NAN), ""};
    snprintf(r->skip, sizeof r->skip, "%s", json_string(json_get(v, "skip_cause"), NULL, ""));
}

/* Steps from which checkpoint, and the one that the step begins from. */
static int find_spans(struct rerunning *x, struct err *e)
{
    struct ckpt_listing *list;
    int n, room = 0;
    struct rerun_result *r = x->r;
    char *root = fs_join(x->q->dir, "checkpoints"), *metrics = fs_join(x->q->dir, "metrics.jsonl");
    int rc = each_line(metrics, last_step, r, e);
    if (!rc) rc = ckpt_list(root, &list, &n, e);
    xfree(metrics);
    xfree(root);
    if (rc) return rc;
    GROW(r->span, r->n_spans, room, n + 1);
    r->span[r->n_spans++] = (struct rerun_span){.first = 1, .last = INT64_MAX};
    for (int i = 0; i < n; i++) {
        if (list[i].code != OK || list[i].step < 1) continue;
        struct rerun_span *last = &r->span[r->n_spans - 1];
        if (list[i].step + 1 <= last->first) continue;
        last->last = list[i].step;
        r->span[r->n_spans] = (struct rerun_span){.first = list[i].step + 1, .last = INT64_MAX};
        snprintf(r->span[r->n_spans++].from, sizeof last->from, "%s", list[i].path);
    }
    ckpt_list_free(list, n);
    return OK;
}

static int choose_span(struct rerunning *x, struct err *e)
{
    const struct rerun_result *r = x->r;
    int64_t step = x->q->step, most = r->span[r->n_spans - 1].first;
    if (r->recorded > most) most = r->recorded;
    if (step > most)
        return err_set(e, ERR_REQUEST,
                       "step %lld was not made: %s has steps up to %lld (and its newest checkpoint can "
                       "make step %lld)",
                       (long long)step, x->q->dir, (long long)r->recorded, (long long)r->span[r->n_spans - 1].first);
    for (int i = 0; i < r->n_spans; i++) {
        const struct rerun_span *s = &r->span[i];
        if (step < s->first || step > s->last) continue;
        x->begin = s->first - 1;
        x->from = s->from[0] ? xstrdup(s->from) : NULL;
    }
    return OK;
}

/* ---- the config ---- */
static void add_key(struct rerunning *x, const char *key, const char *value)
{
    struct str s = {0};
    str_printf(&s, "%s=%s", key, value);
    x->key[x->n_keys++] = xstrdup(str_text(&s));
    str_free(&s);
}

/* A folder of this process in which the run's tokens can be found. */
static int borrow_cache(struct rerunning *x, const char *cache, struct err *e)
{
    const char *tmp = getenv("TMPDIR");
    char *folder = fs_join(tmp && *tmp ? tmp : "/tmp", "tutti-replay-XXXXXX");
    if (!mkdtemp(folder)) {
        int rc = err_errno(e, ERR_IO, errno, "cannot make a folder in %s (TMPDIR)", tmp && *tmp ? tmp : "/tmp");
        xfree(folder);
        return rc;
    }
    x->folder = folder;
    char *whole = realpath(cache, NULL);
    DIR *d = whole ? opendir(whole) : NULL;
    for (struct dirent *f; d && (f = readdir(d));) {
        size_t n = strlen(f->d_name);
        if (f->d_name[0] == '.' || (n > 5 && !strcmp(f->d_name + n - 5, ".lock"))) continue;
        char *there = fs_join(whole, f->d_name), *here = fs_join(folder, f->d_name);
        if (symlink(there, here)) log_debug("%s: not borrowed: %s", there, strerror(errno));
        xfree(there);
        xfree(here);
    }
    if (d) closedir(d);
    free(whole); /* realpath's */
    return OK;
}

static int choose_keys(struct rerunning *x, struct err *e)
{
    static const char *const off[][2] = {{"run.trace", "null"},
                                         {"run.tensorboard", "false"},
                                         {"run.replay_every", "0"},
                                         {"run.exponents_every", "0"}};
    static const char *const alone[][2] = {
        {"parallel.dp_replicate", "1"},
        {"parallel.dp_shard", "1"},
        {"parallel.tp", "1"},
        {"parallel.cp", "1"},
        {"parallel.pp", "1"},
        {"parallel.ep", "1"},
        {"parallel.etp", "1"},
        {"parallel.zero", "0"},
        {"parallel.servers", "0"},
        {"parallel.pp_layers", "[]"},
        {"parallel.schedule_file", "null"},
        {"parallel.sequence_parallel", "false"},
    };
    struct config c;
    struct arena *a = arena_new();
    x->job.config_path = fs_join(x->q->dir, "config.yaml");
    int rc =
        fs_exists(x->job.config_path)
            ? config_load(&c, NULL, a, x->job.config_path, NULL, 0, e)
            : err_set(e, ERR_REQUEST, "%s is not the directory of a run (run.dir): it has no config.yaml", x->q->dir);
    if (!rc && c.parallel.servers && c.parallel.server_mode == SERVER_ASYNC)
        rc = err_set(e, ERR_REQUEST,
                     "%s: workers of an asynchronous server have no common steps (parallel.server_mode: async): none "
                     "can "
                     "be run again",
                     x->q->dir);
    else if (!rc && c.parallel.servers && !x->q->one_rank)
        rc = err_set(e, ERR_REQUEST, "%s has a parameter server; run its steps again with --one-rank", x->q->dir);
    if (!rc) {
        char *cache = c.data.cache_dir ? xstrdup(c.data.cache_dir) : fs_join(x->q->dir, "data");
        rc = borrow_cache(x, cache, e);
        xfree(cache);
    }
    if (!rc) {
        int64_t ranks = c.parallel.dp_replicate * c.parallel.dp_shard * c.parallel.tp * c.parallel.cp * c.parallel.pp +
                        c.parallel.servers;
        x->r->ranks = x->q->one_rank ? 1 : x->q->ranks ? x->q->ranks : to_int(ranks);
        x->r->same_layout = !x->q->n_override && x->r->ranks == ranks;
        for (size_t i = 0; i < sizeof off / sizeof *off; i++) add_key(x, off[i][0], off[i][1]);
        add_key(x, "run.dir", x->q->dir);
        add_key(x, "data.cache_dir", x->folder);
        if (config_offload_dir(&c)) add_key(x, "memory.offload_to", x->folder);
        for (size_t i = 0; x->q->one_rank && i < sizeof alone / sizeof *alone; i++)
            add_key(x, alone[i][0], alone[i][1]);
        if (x->q->n_override > KEYS - x->n_keys)
            rc = err_set(e, ERR_REQUEST, "%d keys were given; at most %d can be", x->q->n_override, KEYS - x->n_keys);
        for (int i = 0; !rc && i < x->q->n_override; i++) x->key[x->n_keys++] = xstrdup(x->q->override[i]);
    }
    arena_free(a);
    return rc;
}

/* ---- a rank ---- */
struct rank { /* what the trainer has of it */
    struct site site;
    struct config cfg;
    struct conf *conf;
    struct arena *arena;
    struct tokenizer *tokenizer;
    struct dataset *train;
    struct skips skips; /* steps whose batch the run left out */
};

static int together(const struct rank *k, int rc, struct err *e)
{
    return k->site.ranks.world ? comm_agree(k->site.ranks.world, rc, e) : rc;
}

static int first_weights(struct rank *k, struct err *e)
{
    struct weights *w = NULL;
    struct engine *g = k->site.engine;
    int rc = OK;
    engine_init(g);
    if (k->cfg.from.dir) rc = setup_weights(&w, &k->cfg, e);
    if (!rc && k->cfg.adapter.kind && k->cfg.adapter.from)
        rc = source_adapter(&g->store, &g->kernels, g->stream, &k->cfg.model, w, k->cfg.adapter.from, e);
    if (!rc && w) rc = source_load(&g->store, &g->kernels, g->stream, w, e);
    weights_close(w);
    return rc;
}

static int load(const struct rerunning *x, struct rank *k, struct err *e)
{
    struct ckpt *c = NULL;
    if (!x->from) {
        int rc = together(k, first_weights(k, e), e);
        if (!rc && (k->cfg.from.dir || k->cfg.adapter.from)) exchange_publish(&k->site.engine->exchange);
        return rc;
    }
    struct changes_data data = {.train = dataset_fingerprint(k->train), .known = true};
    int rc = ckpt_open(&c, x->from, e);
    if (!rc) rc = save_check(k->site.engine, c, NULL, e);
    if (!rc && k->site.ranks.rank == 0 && x->r->same_layout) rc = changes_check(c, &k->cfg, &data, e);
    rc = save_resume(k->site.engine, c, NULL, rc, NULL, e);
    ckpt_close(c);
    return rc;
}

/* As the trainer has them: by hand, and as the run decided. */
static int read_skips(const struct rerunning *x, struct rank *k, struct err *e)
{
    const int64_t *by_hand = k->cfg.run.skip.items;
    for (int i = 0; i < k->cfg.run.skip.n; i++) skips_add(&k->skips, by_hand[i]);
    return skips_read(&k->skips, x->q->dir, k->site.ranks.world, e);
}

static int set_up(struct rerunning *x, struct rank *k, struct comm *world, struct err *e)
{
    k->arena = arena_new();
    struct job mine = x->job; /* ranks are threads: the job is read only */
    int rc = job_read_config(&mine, &k->cfg, &k->conf, k->arena, &k->tokenizer, e);
    if (!rc) rc = site_join(&k->site, &(struct site_config){.config = &k->cfg, .world = world}, e);
    if (!rc && config_prefers(&k->cfg))
        rc = err_set(e, ERR_REQUEST, "%s: a step on preferences (train.objective: dpo, reward) is not replayed",
                     x->q->dir);
    if (rc) return rc;
    rc = together(k, datasets_open(&k->train, &k->cfg, &k->cfg.data.train, k->tokenizer, NULL, e), e);
    if (!rc) rc = choose_recompute(&k->cfg, choose_together, world, &(struct chosen){0}, e);
    if (!rc) rc = together(k, site_build(&k->site, &(struct site_config){.config = &k->cfg}, e), e);
    if (!rc) rc = read_skips(x, k, e);
    return rc ? rc : load(x, k, e);
}

/* Sums of squares of this rank's pieces of the gradients, [params]. */
static void square_gradients(const struct engine *g, double *out)
{
    enum { ROOM = 4096 };
    float values[ROOM];
    char room[ROOM * 8];
    const struct array *a = store_array(&g->store, STORE_GRAD);
    for (int i = 0; i < g->params.n; i++) {
        struct array_span s = store_writes(&g->store, i, STORE_GRAD);
        size_t width = dtype_bytes(a->row.dtype);
        for (int64_t at = 0, n; at < s.n; at += n) {
            n = s.n - at < ROOM ? s.n - at : ROOM;
            const void *p =
                device_peek(store_stream(&g->store, STORE_GRAD, g->stream),
                            (const char *)array_at(a, s.at) + to_size(at) * width, to_size(n) * width, room);
            store_cast(&g->kernels, NULL, values, DT_F32, p, a->row.dtype, n);
            for (int64_t k = 0; k < n; k++) out[i] += (double)values[k] * (double)values[k];
        }
    }
}

static int tell_gradients(struct rerunning *x, struct rank *k, struct err *e)
{
    const struct engine *g = k->site.engine;
    double *sum = xcalloc((size_t)g->params.n + 1, sizeof *sum);
    struct comm *w = k->site.ranks.world;
    stream_sync(g->stream);
    if (k->site.ranks.writes) square_gradients(g, sum);
    if (w) comm_wait(w, comm_all_reduce(w, sum, sum, g->params.n, DT_F64, COMM_SUM, "norms of gradients"));
    int rc = w ? comm_status(w, e) : OK;
    if (!rc && k->site.ranks.rank == 0) {
        x->r->param = xcalloc((size_t)g->params.n, sizeof *x->r->param);
        x->r->n_params = g->params.n;
        for (int i = 0; i < g->params.n; i++) {
            snprintf(x->r->param[i].name, sizeof x->r->param[i].name, "%s", g->params.p[i].name);
            x->r->param[i].grad_norm = sqrt(sum[i]) / g->store.grad_times;
        }
    }
    xfree(sum);
    return rc;
}

static bool same_digits(double a, double b)
{
    char x[40], y[40];
    if (!isfinite(a) && !isfinite(b)) return true; /* a line has null for all of these */
    snprintf(x, sizeof x, "%.9g", a);
    snprintf(y, sizeof y, "%.9g", b);
    return !strcmp(x, y);
}

/* Beside what the run wrote; rank 0. */
static void compare(struct rerunning *x, int64_t step, const struct engine_report *r)
{
    const struct record *was = &x->record[step - x->begin - 1];
    struct rerun_result *out = x->r;
    if (!was->is) return;
    bool same = same_digits(r->loss, was->loss) && same_digits(r->grad_norm, was->grad_norm) &&
                !strcmp(was->skip, engine_skips[r->skip]);
    out->compared++;
    if (!same && !out->first_other) out->first_other = step;
    if (step != x->q->step) return;
    out->is_recorded = true;
    out->recorded_loss = was->loss;
    out->recorded_grad_norm = was->grad_norm;
    out->same = same;
}

static int steps(struct rerunning *x, struct rank *k, struct err *e)
{
    struct engine_report r = {0};
    struct lr_config lr = config_lr(&k->cfg);
    struct batch b;
    int64_t first, n;
    int rc = OK;
    bool tells = k->site.ranks.rank == 0;
    config_part(&k->cfg, k->site.ranks.part, &first, &n);
    batch_init_pictures(&b, n, k->cfg.model.seq_len, model_pixels(&k->cfg.model));
    for (int64_t s = x->begin; !rc && s < x->q->step; s++) {
        if (skips_has(&k->skips, s + 1)) { /* its samples pass by */
            r = (struct engine_report){0};
            engine_leave_out(k->site.engine, &r, SKIP_BATCH);
            if (tells) compare(x, s + 1, &r);
            continue;
        }
        rc = together(k, dataset_batch(k->train, s, k->cfg.batch.global, first, &b, e), e);
        if (rc) break;
        struct engine_batch view = trainer_view(&b, first);
        bool finite = engine_step(k->site.engine, &view, s, lr_at(&lr, s), &r);
        rc = engine_status(k->site.engine, e);
        if (!rc && tells) compare(x, s + 1, &r);
        if (tells && x->q->step - x->begin > 1)
            log_status("step %lld of %lld to %lld  loss %.4f", (long long)s + 1, (long long)x->begin + 1,
                       (long long)x->q->step, r.loss);
        if (!rc && !finite && s + 1 < x->q->step)
            rc = err_set(e, ERR_NUMERIC, "step %lld, on the way, is not finite: loss %g, gradient norm %g",
                         (long long)s + 1, r.loss, r.grad_norm);
    }
    batch_fini(&b);
    if (tells) log_status_end();
    if (!rc && tells) {
        x->r->step = x->q->step;
        x->r->loss = r.loss;
        x->r->grad_norm = r.grad_norm;
        x->r->tokens = r.tokens;
        x->r->skip = r.skip ? engine_skips[r.skip] : NULL;
        x->r->lr = lr_at(&lr, x->q->step - 1);
    }
    bool computed = r.skip != SKIP_BATCH && r.skip != SKIP_UNTRAINED;
    return rc || !computed ? rc : tell_gradients(x, k, e); /* there are none of a step that passed by */
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct rerunning *x = arg;
    struct rank k = {0};
    int rc = set_up(x, &k, world, e);
    if (!rc && x->q->step > k.cfg.run.steps)
        rc = err_set(e, ERR_REQUEST, "step %lld: the run has %lld (run.steps)", (long long)x->q->step,
                     (long long)k.cfg.run.steps);
    if (!rc) rc = steps(x, &k, e);
    site_close(&k.site);
    skips_free(&k.skips);
    dataset_close(k.train);
    tokenizer_free(k.tokenizer);
    arena_free(k.arena);
    return rc;
}

static int run_ranks(struct rerunning *x, struct err *e)
{
    int n = x->r->ranks, rc = crowd_check(n, x->q->crowd, e);
    if (rc) return rc;
    struct config c;
    struct arena *a = arena_new();
    struct conf *f;
    struct tokenizer *t = NULL;
    x->job.overrides = x->key;
    x->job.n_overrides = x->n_keys;
    x->job.n_ranks = x->job.ranks_here = x->job.sharers = x->job.least_here = n;
    rc = job_read_config(&x->job, &c, &f, a, &t, e); /* refused before any rank starts */
    if (!rc) {
        struct comm_config cc = config_comm(&c);
        rc = n > 1 ? comm_run_local(n, &cc, rank_main, x, e) : rank_main(NULL, x, e);
    }
    tokenizer_free(t);
    arena_free(a);
    return rc;
}

int rerun(const struct rerun_request *q, struct rerun_result *r, struct err *e)
{
    struct rerunning x = {.q = q, .r = r};
    *r = (struct rerun_result){0};
    if (!fs_exists(q->dir)) return err_set(e, ERR_REQUEST, "%s: there is no such run", q->dir);
    int rc = find_spans(&x, e);
    if (!rc && q->step) rc = choose_span(&x, e);
    if (!rc && q->step) rc = choose_keys(&x, e);
    if (!rc && q->step) {
        snprintf(r->from, sizeof r->from, "%s", x.from ? x.from : "");
        x.record = xcalloc(to_size(q->step - x.begin), sizeof *x.record);
        char *metrics = fs_join(q->dir, "metrics.jsonl");
        rc = each_line(metrics, keep_record, &x, e);
        xfree(metrics);
        if (!rc) rc = run_ranks(&x, e);
    }
    struct err ignored;
    if (x.folder) (void)fs_remove_tree(x.folder, &ignored);
    for (int i = 0; i < x.n_keys; i++) xfree(x.key[i]);
    xfree((char *)(uintptr_t)x.job.config_path);
    xfree(x.folder);
    xfree(x.from);
    xfree(x.record);
    return rc;
}

void rerun_free(struct rerun_result *r)
{
    xfree(r->span);
    xfree(r->param);
}
