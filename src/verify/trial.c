/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks are threads and write their pieces into the same arrays, each its own elements. */
#include "verify/trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "config/config_recipe.h"
#include "engine/replicas.h"
#include "keep/run_checkpoint.h"
#include "site/site.h"

/* ---- what a run leaves behind ---- */
void outcome_init(struct outcome *o, const struct config *c, int64_t numel)
{
    struct optim_config optim = config_optim(c);
    memset(o, 0, sizeof *o);
    o->numel = numel;
    o->moments = optim_arrays(&optim, o->row);
    o->stored = c->precision.master != MASTER_NONE ? 0x1p-24 : c->precision.recipe == RECIPE_FP16 ? 0x1p-11 : 0x1p-8;
    o->began = xcalloc(to_size(numel), sizeof *o->began);
    o->grad = xcalloc(to_size(numel), sizeof *o->grad);
    o->value = xcalloc(to_size(numel * (1 + o->moments)), sizeof *o->value);
    o->loaded = xcalloc(to_size(numel * (1 + o->moments)), sizeof *o->loaded);
    o->next = xcalloc(to_size(numel), sizeof *o->next);
}

void outcome_fini(struct outcome *o)
{
    xfree(o->began);
    xfree(o->grad);
    xfree(o->value);
    xfree(o->loaded);
    xfree(o->next);
}

uint64_t outcome_state(const struct outcome *o, const float *state)
{
    return hash64(state, to_size(o->numel * (1 + o->moments)) * sizeof *state);
}

/* ---- batches ---- */
/* Every eighth target is not trained, and in larger batches of every fourth sequence none is: ranks have unlike numbers
 * of trained tokens, some have none. */
static void fill_pictures(const struct config *c, uint64_t stream, int32_t *label, float *pixels)
{
    int64_t each = model_pixels(&c->model);
    for (int64_t i = 0; i < c->batch.global; i++) {
        bool trained = i % 4 != 1 || c->batch.global < 4;
        label[i] = trained ? (int32_t)(rng_u32(7, 2 + stream, (uint64_t)i) % (uint64_t)c->model.classes) : -1;
    }
    for (int64_t i = 0; i < c->batch.global * each; i++)
        pixels[i] = (float)(rng_u32(7, 1 + stream, (uint64_t)i) % 513) / 256 - 1;
}

/* Of texts: a picture begins every so many tokens as it has, with gaps; in every fourth text there is none. */
static void fill_patches(const struct config *c, uint64_t stream, int32_t *patches, float *pixels)
{
    const struct vision_config *v = &c->model.vision;
    int64_t n = vision_patches(v), seq = c->model.seq_len;
    for (int64_t i = 0; i < c->batch.global * seq; i++) {
        int64_t picture = i % seq / n, at = i % seq % n;
        bool is = picture < v->images && i / seq % 4 != 2 && (i / seq + picture) % 3 != 1;
        patches[i] = is ? (int32_t)(picture * vision_places(v) + v->class_place + at) : -1;
    }
    for (int64_t i = 0; i < c->batch.global * model_pixels(&c->model); i++)
        pixels[i] = (float)(rng_u32(7, 1 + stream, (uint64_t)i) % 513) / 256 - 1;
}

enum { DOCUMENT = 5 }; /* tokens of one */

/* Beginnings of documents, of no tokens up to four. */
static bool is_prompt(int64_t sequence, int64_t place)
{
    return place % DOCUMENT < (int64_t)(rng_u32(7, 5, (uint64_t)(sequence * 1000 + place / DOCUMENT)) % DOCUMENT);
}

enum { FACTORS = 1 << 20 }; /* streams of random numbers: behind those of the fields */

/* Of a token in its sample; of what an encoder reads -1 behind an end by chance, which may be its last place. */
static int32_t place_of(const struct config *c, uint64_t stream, int64_t i)
{
    int64_t seq = c->model.seq_len, place = i % seq, read = c->model.pads ? c->model.encoder_len : 0;
    if (place >= read) return (int32_t)place;
    int64_t there = 1 + rng_u32(7, FACTORS + 64 + stream, (uint64_t)(i / seq)) % (uint64_t)read;
    return place < there ? (int32_t)place : -1;
}

int32_t *trial_tokens(const struct config *c, int which)
{
    int64_t n = c->batch.global * c->model.seq_len, more = c->batch.global * (1 + model_pixels(&c->model));
    int64_t kinds = model_tells(&c->model) ? c->model.classes : model_outputs(&c->model),
            types = c->model.types ? c->model.types : 1;
    int32_t *t = xcalloc(to_size(7 * n + more), sizeof *t);
    float *factor = (float *)(void *)(t + 6 * n + more);
    if (model_sees(&c->model)) {
        fill_pictures(c, 3 * (uint64_t)which, t + 6 * n, (float *)(void *)(t + 6 * n + c->batch.global));
        return t;
    }
    uint64_t stream = 3 * (uint64_t)which;
    int64_t read = model_pairs(&c->model) ? c->model.encoder_len : 0; /* by an encoder: no targets */
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i;
        t[i] = (int32_t)(rng_u32(7, 1 + stream, at) % (uint64_t)c->model.vocab);
        bool trained = rng_u32(7, 3 + stream, at) % 8 != 0 && (i / c->model.seq_len % 4 != 1 || c->batch.global < 4);
        trained = trained && i % c->model.seq_len >= read;
        trained = trained && !(model_prefixes(&c->model) && is_prompt(i / c->model.seq_len, i % c->model.seq_len));
        t[n + i] = !trained ? -1 : (int32_t)(rng_u32(7, 2 + stream, at) % (uint64_t)kinds);
        t[2 * n + i] = place_of(c, stream, i);
        t[3 * n + i] = (int32_t)(i % c->model.seq_len / DOCUMENT);
        t[4 * n + i] = (int32_t)(rng_u32(7, 4 + stream, at) % (uint64_t)types);
        factor[i] = trained ? (float)(rng_u32(7, FACTORS + (uint64_t)which, at) % 513) / 256 - 1 : 0;
    }
    if (model_looks(&c->model)) fill_patches(c, stream, t + 5 * n, (float *)(void *)(t + 6 * n + c->batch.global));
    return t;
}

static struct engine_batch part_of(const struct trial *t, const int32_t *tokens, int part)
{
    int64_t first, count, seq = t->c->model.seq_len, field = t->c->batch.global * seq;
    config_part(t->c, part, &first, &count);
    const int32_t *at = tokens + first * seq;
    struct engine_batch b = {.tokens = at,
                             .targets = at + field,
                             .positions = at + 2 * field,
                             .docs = at + 3 * field,
                             .segments = at + 4 * field,
                             .patches = at + 5 * field,
                             .n = count,
                             .first = first};
    const float *pixels = (const float *)(const void *)(tokens + 6 * field + t->c->batch.global);
    b.factor = pixels + t->c->batch.global * model_pixels(&t->c->model) + first * seq;
    if (model_pixels(&t->c->model)) b.pixels = pixels + first * model_pixels(&t->c->model);
    if (model_sees(&t->c->model)) {
        b.label = tokens + 6 * field + first;
        for (int64_t i = 0; i < count; i++) b.n_trained += b.label[i] >= 0;
        return b;
    }
    for (int64_t i = 0; i < count * seq; i++) b.n_trained += b.targets[i] >= 0;
    return b;
}

/* ---- keeping ---- */
/* What this rank would write of parameter i in an array, from there to its place in the array of global shapes. */
static void keep(const struct trial *t, const struct engine *g, int i, int which, float *to)
{
    const struct param *p = &g->params.p[i];
    const struct array *a = store_array_of(&g->store, which, i);
    struct array_span x = store_writes(&g->store, i, which);
    enum dtype dtype = a->row.dtype;
    if (!x.n || a->row.block != ARRAY_ELEMENT || dtype == DT_U8)
        return; /* codes and scales: the next step shows them */
    struct shape shape = shape_of(p->nd, p->n);
    struct region whole = region_whole(&shape),
                  mine = param_rows(p, x.lo / param_row_numel(p), x.n / param_row_numel(p));
    struct region_run run;
    size_t bytes = to_size(x.n) * dtype_bytes(dtype);
    char *room = device_shows(g->dev, array_at(a, x.at)) ? NULL : xmalloc(bytes);
    const char *here = device_peek(store_stream_of(&g->store, which, i, g->stream), array_at(a, x.at), bytes, room);
    to += t->global->p[i].offset;
    float times = which == STORE_GRAD ? (float)(1 / g->store.grad_times) : 1; /* a power of two */
    for (bool more = region_run_first(&run, &mine, &mine, &whole); more; more = region_run_next(&run)) {
        store_cast(&g->kernels, NULL, to + run.b, DT_F32, here + to_size(run.a) * dtype_bytes(dtype), dtype, run.n);
        for (int64_t k = 0; times != 1 && k < run.n; k++) to[run.b + k] *= times;
    }
    xfree(room);
}

static void keep_gradients(const struct trial *t, const struct engine *g)
{
    for (int i = 0; i < g->params.n; i++) keep(t, g, i, STORE_GRAD, t->out->grad);
}

/* Masters, and with `moments` the optimizers' arrays, which are the first that follow the store's own. */
static void keep_values(const struct trial *t, const struct engine *g, bool moments, float *to)
{
    for (int what = 0; what <= (moments ? t->out->moments : 0); what++)
        for (int i = 0; i < g->params.n; i++)
            keep(t, g, i, what ? STORE_ROWS + what - 1 : STORE_MASTER, to + what * t->out->numel);
}

/* ---- one rank ---- */
struct rank { /* of a trial */
    struct trial *t;
    struct site at;
    struct replay_watch watch;
    struct answers *answers; /* NULL: the objective has none */
    struct answers_found found;
    bool serves;
};

static void count_traffic(struct rank *x)
{
    struct comm_traffic sent[AXIS_N];
    struct trial *t = x->t;
    ranks_traffic(&x->at.ranks, sent);
    for (int a = 0; a < AXIS_N; a++) t->out->comm_bytes += sent[a].bytes;
    t->out->comm_bytes +=
        copies_traffic(&x->at.engine->copies).bytes + (x->at.serve ? param_server_traffic(x->at.serve) - t->began : 0);
}

/* Answers of preferences have factors of either sign, which follow from their pair in a run and are random here; a
 * microbatch without a sequence has none. */
static double *weigh(struct rank *x, const struct engine_batch *b)
{
    struct engine *g = x->at.engine;
    if (!g->cfg.by_sequence) return NULL;
    double *factor = xcalloc(to_size(g->cfg.n_microbatches), sizeof *factor);
    for (int64_t i = 0; i < b->n; i++)
        factor[i] = (double)(rng_u32(7, FACTORS - 1, (uint64_t)(b->first + i)) % 513) / 256 - 1;
    engine_weigh(g, factor);
    return factor;
}

/* Of scores the mean has either sign, and may be next to nothing beside what it is made of: of them the root of the
 * mean square counts. Collective. */
static double loss_of(struct engine *g, const struct engine_report *r)
{
    if (!g->cfg.model.scores) return r->loss;
    int64_t n = engine_n_sequences(g);
    double *score = xcalloc(to_size(n), sizeof *score), squares = 0;
    engine_sequence_nats(g, score);
    for (int64_t i = 0; i < n; i++) squares += score[i] * score[i];
    xfree(score);
    return sqrt(squares / (double)g->cfg.seq);
}

/* Whether it was taken: fp16 may leave steps out. */
static bool step(struct rank *x, int s)
{
    struct trial *t = x->t;
    struct lr_config lr = config_lr(t->c);
    struct engine_batch b = part_of(t, t->tokens, x->serves ? 0 : x->at.ranks.part);
    struct engine_report report;
    if (engine_status(x->at.engine, NULL)) return false;
    double *factor = weigh(x, &b);
    if (x->at.serve) param_server_step(x->at.serve, x->serves ? NULL : &b, s, lr_at(&lr, s), &report);
    else engine_step(x->at.engine, &b, s, lr_at(&lr, s), &report);
    double loss = loss_of(x->at.engine, &report);
    if (factor) engine_weigh(x->at.engine, NULL);
    xfree(factor);
    if (x->at.ranks.rank) return !report.skip;
    t->out->ran += !engine_status(x->at.engine, NULL);
    t->out->skipped[s] = report.skip != SKIP_NONE;
    t->out->loss[s] = loss;
    t->out->norm[s] = report.grad_norm;
    t->out->rounds[s] = report.rounds_most;
    return !report.skip;
}

static void evaluate(struct rank *x)
{
    struct trial *t = x->t;
    struct engine_report report;
    if (x->serves) return;
    struct engine_batch b = part_of(t, t->unseen, x->at.ranks.part);
    engine_evaluate(x->at.engine, &b, &report);
    double loss = loss_of(x->at.engine, &report);
    if (x->at.ranks.rank) return;
    t->out->eval_loss = loss;
    t->out->eval_tokens = report.tokens;
}

/* Values of before the first step, so that one which loading leaves out is not nearly right. */
static void forget(struct engine *g)
{
    for (int u = 0; u < g->store.units.n; u++)
        exchange_gather_wait(&g->exchange, u); /* what was published is still arriving */
    stream_sync(g->stream);
    engine_init(g);
}

/* What the trainer does when it goes on from a checkpoint. */
static int load(struct rank *x, struct err *e)
{
    struct ckpt *c = NULL;
    if (!x->at.serve) forget(x->at.engine);
    int rc = ckpt_open(&c, x->t->load_from, e);
    rc = save_resume(x->at.engine, c, NULL, rc, NULL, e);
    ckpt_close(c);
    if (!rc && x->at.serve) param_server_begin(x->at.serve, x->t->steps);
    return rc;
}

/* Writes a checkpoint, reads another layout's, goes on from there. */
static int hand_over(struct rank *x, struct err *e)
{
    struct trial *t = x->t;
    struct save_info s = {.root = t->save_to, .step = t->steps, .tokens = t->steps, .keep = 0, .config_text = ""};
    int rc = save_checkpoint(x->at.engine, &x->at.ranks, &s, e);
    if (!rc && t->load_from) rc = load(x, e);
    if (rc) return rc;
    if (x->at.ranks.writes) keep_values(t, x->at.engine, true, t->out->loaded);
    step(x, t->steps);
    if (x->at.ranks.writes) keep_values(t, x->at.engine, false, t->out->next);
    return OK;
}

static int walk(struct rank *x, struct err *e)
{
    struct trial *t = x->t;
    int rc = x->answers && !t->measure ? answers_compare(x->answers, &x->found, e) : OK;
    if (rc) return rc;
    if (x->at.ranks.writes) keep_values(t, x->at.engine, false, t->out->began);
    bool kept = false; /* of the first step that is taken; the second where scales follow from earlier steps: before
                        * that they are 1, and small gradients are a code or none */
    const struct recipe_config recipe = config_recipe(t->c);
    const int first = recipes_history(&recipe) && t->steps > 1;
    for (int s = 0; s < (t->measure ? 1 : t->steps); s++) {
        bool taken = step(x, s);
        if (taken && !kept && s >= first && x->at.ranks.writes) keep_gradients(t, x->at.engine);
        kept |= taken && s >= first;
        if (s == 0 && x->at.ranks.rank == 0 && !t->measure) count_traffic(x);
    }
    if (t->measure) return OK;
    if (x->at.ranks.writes) keep_values(t, x->at.engine, true, t->out->value);
    evaluate(x);
    if (x->answers) rc = answers_compare(x->answers, &x->found, e);
    if (!rc) rc = engine_status(x->at.engine, e);
    if (x->at.ranks.rank == 0) t->out->peak_bytes = (int64_t)x->at.dev->ledger.peak_total;
    if (x->at.ranks.rank == 0) t->out->answers = x->found;
    struct replicas_report same = {0};
    if (!rc && t->save_to) rc = hand_over(x, e);
    if (!rc) rc = replicas_compare(x->at.engine, &same, e);
    if (x->at.ranks.rank == 0 && same.differ) {
        t->out->differ = true;
        snprintf(t->out->replicas, sizeof t->out->replicas, "%.255s", same.text);
    }
    return rc;
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct rank x = {.t = arg};
    struct trial *t = arg;
    const struct param_server_config serve = {.async = false};
    int64_t first, n;
    int rc = site_open(&x.at, &(struct site_config){.config = t->c, .world = world, .serve = &serve}, e);
    if (rc) return rc;
    x.serves = x.at.ranks.server >= 0;
    engine_init(x.at.engine);
    config_part(t->c, x.serves ? 0 : x.at.ranks.part, &first, &n);
    replay_watch(&x.watch, t->replay, x.at.engine, first, n);
    if (x.at.serve) param_server_begin(x.at.serve, 0);
    if (x.at.serve && x.at.ranks.rank == 0) t->began = param_server_traffic(x.at.serve);
    if (x.at.rollout) rc = answers_new(&x.answers, t->c, &x.at, t->unseen, e);
    if (!rc) rc = walk(&x, e);
    if (!rc) rc = engine_status(x.at.engine, e);
    site_close(&x.at);
    answers_free(x.answers); /* whose tokenizer the rollout borrowed */
    return rc;
}

int trial_run(struct trial *t, struct err *e)
{
    int n = config_ranks(t->c);
    struct comm_config cc = config_comm(t->c);
    t->replay->routed = t->replay->elsewhere = 0;
    return n > 1 ? comm_run_local(n, &cc, rank_main, t, e) : rank_main(NULL, t, e);
}
