/* SPDX-License-Identifier: Apache-2.0 */
/* The config's own file and keys, and behind them those of the layout and of a short run on a text of random words:
 * keys that come later count. Texts hold lower-case letters and spaces, which any vocabulary of texts can write. */
#include "verify/trained.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/str.h"
#include "config/config_optim.h"
#include "train/trainer.h"

enum { STEPS = 3, MOST_KEYS = 320 };

const char *trained_why_not(const struct config *c)
{
    if (model_pixels(&c->model)) return "its data are pictures";
    if (c->parallel.server_mode != 0) return "asynchronous servers have no order of steps";
    return NULL;
}

/* ---- texts ---- */
static void put_words(struct str *out, uint64_t *at, int letters)
{
    for (int i = 0; i < letters; i++) {
        uint32_t r = rng_u32(11, 1, (*at)++) % 32;
        str_putc(out, i && i + 1 < letters && r >= 26 ? ' ' : (char)('a' + r % 26));
    }
}

static int64_t samples_of(const struct config *c) { return c->batch.global * (STEPS + 2); }

/* Lines of JSON: a pair of answers, a prompt, a text with its class or with what a decoder writes. */
static void put_record(const struct config *c, struct str *out, uint64_t *at, int i)
{
    int seq = to_int(c->model.seq_len), each = seq < 24 ? seq / 3 : 6 + i % 3;
    str_printf(out, "{\"%s\": \"", c->train.objective == OBJECTIVE_NEXT ? "text" : "prompt");
    put_words(out, at, each);
    if (config_prefers(c)) {
        str_puts(out, "\", \"chosen\": \"");
        put_words(out, at, 3 + i % 3);
        str_puts(out, "\", \"rejected\": \"");
        put_words(out, at, 5 - i % 2);
    }
    if (c->train.objective != OBJECTIVE_NEXT) str_puts(out, "\"}\n");
    else str_printf(out, "\", \"label\": %d}\n", i % to_int(c->model.classes));
}

static bool has_records(const struct config *c)
{
    return c->train.objective != OBJECTIVE_NEXT || model_tells(&c->model);
}

static int write_texts(const struct config *c, const char *path, int which, struct err *e)
{
    struct str text = {0};
    uint64_t at = (uint64_t)which << 32;
    int64_t samples = which ? c->batch.global + c->batch.global / 2 : samples_of(c); /* the last batch is not full */
    for (int i = 0; has_records(c) && i < samples; i++) put_record(c, &text, &at, i);
    if (!has_records(c)) put_words(&text, &at, to_int(8 * samples * c->model.seq_len));
    int rc = fs_write_atomic(path, str_text(&text), text.n, e);
    str_free(&text);
    return rc;
}

/* ---- keys ---- */
struct keys {
    struct arena *a;
    char *at[MOST_KEYS];
    int n;
};

static void add(struct keys *k, char *key)
{
    CHECK(k->n < MOST_KEYS, "more than %d keys", MOST_KEYS);
    k->at[k->n++] = key;
}

/* One that has no effect where it is what it would be anyway is not given: it would be told so. */
static void add_int(struct keys *k, const char *key, int64_t value, bool says)
{
    if (says) add(k, arena_printf(k->a, "%s=%" PRId64, key, value));
}

static void add_layout(struct keys *k, const struct config *c)
{
    static const char *const algorithm[] = {"ring", "all_gather", "all_to_all", "two_level"};
    struct str layers = {0};
    const int64_t *each = c->parallel.pp_layers.items;
    add_int(k, "parallel.dp_replicate", c->parallel.dp_replicate, true);
    add_int(k, "parallel.dp_shard", c->parallel.dp_shard, true);
    add_int(k, "parallel.zero", c->parallel.zero, true);
    add_int(k, "parallel.tp", c->parallel.tp, true);
    add_int(k, "parallel.cp", c->parallel.cp, true);
    add_int(k, "parallel.ep", c->parallel.ep, true);
    add_int(k, "parallel.pp", c->parallel.pp, true);
    add_int(k, "parallel.servers", c->parallel.servers, true);
    add_int(k, "parallel.etp", c->parallel.etp, c->model.moe.experts > 0);
    add_int(k, "parallel.chunks", c->parallel.chunks, true);
    add_int(k, "parallel.round", c->parallel.round, true);
    add(k, arena_printf(k->a, "parallel.sequence_parallel=%s", c->parallel.sequence_parallel ? "true" : "false"));
    if (c->parallel.cp > 1) add(k, arena_printf(k->a, "parallel.cp_algorithm=%s", algorithm[c->parallel.cp_algorithm]));
    add(k, arena_printf(k->a, "parallel.schedule=%s", c->parallel.pp > 1 ? c->parallel.schedule : "auto"));
    for (int i = 0; i < c->parallel.pp_layers.n; i++) str_printf(&layers, "%s%" PRId64, i ? "," : "", each[i]);
    add(k, arena_printf(k->a, "parallel.pp_layers=[%s]", str_text(&layers)));
    str_free(&layers);
}

/* Beside the layout: nothing that looks at the run, keeps it or begins it elsewhere. */
static void add_run(struct keys *k, const struct config *c, const char *dir, double eps)
{
    static const char *const rest[] = {"run.log_every=1000000",
                                       "run.tensorboard=false",
                                       "run.status_port=0",
                                       "run.sample_every=0",
                                       "run.samples=[]",
                                       "run.trace=null",
                                       "run.stop_early=0",
                                       "run.elastic=false",
                                       "run.skip=[]",
                                       "checkpoint.every=0",
                                       "checkpoint.every_s=0",
                                       "checkpoint.best=none",
                                       "checkpoint.average=0",
                                       "checkpoint.copy_to=null",
                                       "checkpoint.memory_every=0",
                                       "checkpoint.resume=auto",
                                       "data.cache_dir=null",
                                       "run.exponents_every=0",
                                       "optimizer.schedule.warmup_steps=0"};
    struct optim_config o = config_optim(c);
    bool rewards = c->train.objective == OBJECTIVE_GRPO;
    int64_t updates = rewards ? c->train.grpo.updates : 1;
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) add(k, arena_strdup(k->a, rest[i]));
    add_int(k, "run.steps", (STEPS + updates - 1) / updates * updates, true);
    add_int(k, "run.eval_every", rewards ? 0 : STEPS, true);
    if (!rewards) add(k, arena_strdup(k->a, "run.eval_batches=0"));
    add(k, arena_printf(k->a, "run.dir=%s/run", dir));
    if (c->memory.limit) add(k, arena_strdup(k->a, "memory.limit=null"));
    const char *kind = config_prefers(c) ? ", chat: plain" : model_tells(&c->model) ? ", label: label" : "";
    const char *type = has_records(c) ? "jsonl" : "txt";
    add(k, arena_printf(k->a, "data.train=[{path: %s/train.%s%s}]", dir, type, kind));
    if (rewards) add(k, arena_strdup(k->a, "data.valid=[]"));
    else add(k, arena_printf(k->a, "data.valid=[{path: %s/valid.%s%s}]", dir, type, kind));
    if (rewards) add(k, arena_strdup(k->a, "train.grpo.reward=awk '{ print length($0) % 7 }'"));
    if (eps > 0 && optim_reads(&o, "eps")) add(k, arena_printf(k->a, "optimizer.eps=%.17g", eps));
}

/* What saves memory and is not in c any more. */
static void add_plain(struct keys *k, const struct config *c)
{
    if (c->memory.chosen.again) return;
    add(k, arena_strdup(k->a, "memory.recompute=none"));
    add(k, arena_strdup(k->a, "memory.recompute_layers=0"));
    if (!c->memory.away) add(k, arena_strdup(k->a, "memory.offload=[]"));
    if (!c->memory.away) add(k, arena_strdup(k->a, "memory.offload_to=host"));
    if (c->comm.grad == CODEC_KEPT) add(k, arena_strdup(k->a, "comm.grad=kept"));
    if (c->comm.param == CODEC_KEPT) add(k, arena_strdup(k->a, "comm.param=kept"));
}

/* ---- what metrics say ---- */
static const struct {
    const char *name;
    bool total;   /* a loss or a norm */
    double least; /* what it is relative to, at least */
} figures[TRAINED_FIGURES] = {
    {"loss", true, 1e-3},
    {"grad_norm", true, 1e-6},
    {"lr", true, 1e-12},
    {"tokens", true, 1},
    {"accuracy", false, 1},
    {"rewards_chosen", false, 1},
    {"rewards_rejected", false, 1},
    {"rewards_margin", false, 1},
    {"rewards_accuracy", false, 1},
    {"reward", false, 1e-3},
    {"reward_std", false, 1e-3},
    {"answer_tokens", false, 1},
    {"kl", false, 1e-3},
    {"clip_fraction", false, 1},
    {"valid_loss", true, 1e-3},
    {"valid_tokens", true, 1},
    {"logprobs_unlike_most", false, 1},
};

/* A loss of answers is a mean of advantages, which are about 1 and cancel. */
#define LEAST_OF_ANSWERS 0.1
static double least_of(const struct trained *t, int line, int figure)
{
    int reward = 0;
    while (strcmp(figures[reward].name, "reward")) reward++;
    bool answers = !strcmp(figures[figure].name, "loss") && !isnan(t->of[line][reward]);
    return answers ? LEAST_OF_ANSWERS : figures[figure].least;
}

static int read_metrics(struct trained *out, const char *dir, int64_t last, struct err *e)
{
    char *text, path[256];
    size_t bytes, n;
    snprintf(path, sizeof path, "%s/run/metrics.jsonl", dir);
    int rc = fs_read_all(path, (size_t)1 << 24, &text, &bytes, e);
    out->n = 0;
    for (size_t at = 0; !rc && at < bytes && out->n < TRAINED_LINES; at += n + 1) {
        struct json *v = NULL;
        const char *end = memchr(text + at, '\n', bytes - at);
        n = end ? (size_t)(end - text) - at : bytes - at;
        rc = json_parse(&v, text + at, n, path, e);
        bool counts = !rc && json_int(json_get(v, "step"), 0) <= last;
        bool any = false;
        for (int i = 0; counts && i < TRAINED_FIGURES; i++) {
            out->of[out->n][i] = json_real(json_get(v, figures[i].name), NAN);
            any |= !isnan(out->of[out->n][i]);
        }
        out->n += any; /* else it tells of a checkpoint */
        json_free(v);
    }
    if (!rc && !out->n) rc = err_set(e, ERR_CORRUPT, "%s: the run says nothing of its steps", path);
    xfree(rc ? NULL : text);
    return rc;
}

int trained_run(struct trained *out, const struct trained_asked *q, const struct config *c, const char *dir, double eps,
                struct err *e)
{
    struct keys k = {.a = arena_new()};
    struct trainer_result r = {0};
    int64_t last = c->train.objective == OBJECTIVE_GRPO ? c->train.grpo.updates : INT64_MAX;
    const char *type = has_records(c) ? "jsonl" : "txt";
    int rc = fs_remove_tree(dir, e);
    if (!rc) rc = fs_mkdirs(dir, e);
    if (!rc) rc = write_texts(c, arena_printf(k.a, "%s/train.%s", dir, type), 0, e);
    if (!rc) rc = write_texts(c, arena_printf(k.a, "%s/valid.%s", dir, type), 1, e);
    for (int i = 0; i < q->n_keys; i++) add(&k, q->keys[i]);
    add_layout(&k, c);
    add_plain(&k, c);
    add_run(&k, c, dir, eps);
    enum log_level before = log_most(LOG_ERROR);
    if (!rc) rc = trainer_run(q->path, k.at, k.n, config_ranks(c), &r, e);
    log_most(before);
    if (!rc && r.steps < r.wanted)
        rc = err_set(e, r.stopped ? ERR_SIGNAL : ERR_NUMERIC, "the trainer made %lld steps of %lld", (long long)r.steps,
                     (long long)r.wanted);
    if (!rc) rc = read_metrics(out, dir, last, e);
    arena_free(k.a);
    return rc;
}

struct difference trained_compare(const struct trained *want, const struct trained *got, const struct bounds *b)
{
    struct difference worst = {.bound = b->totals};
    if (want->n != got->n) {
        snprintf(worst.what, sizeof worst.what, "lines of metrics: %d, of one rank %d", got->n, want->n);
        worst.error = INFINITY;
        return worst;
    }
    for (int l = 0; l < want->n; l++)
        for (int i = 0; i < TRAINED_FIGURES; i++) {
            double x = want->of[l][i], y = got->of[l][i], bound = figures[i].total ? b->totals : b->step;
            if (isnan(x) && isnan(y)) continue;
            /* Rewards of preferences begin at 0, and are differences of numbers of the size of a loss. */
            double off = isnan(x) || isnan(y) ? INFINITY : fabs(x - y) / fmax(fabs(x), least_of(want, l, i));
            if (off / bound <= worst.error / worst.bound) continue;
            worst = (struct difference){.error = off, .bound = bound};
            snprintf(worst.what, sizeof worst.what, "%s of line %d", figures[i].name, l + 1);
        }
    return worst;
}
