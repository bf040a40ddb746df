/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench_data.c: `tutti bench data`: how fast a config's inputs are read and tokenized, how fast batches come, what
 * training takes, and from which number of workers and depth on it does not wait.
 *
 * What is needed is told (--need), or the rate of a run's last steps (its metrics.jsonl), or that of a few steps that
 * are run here. Then a thread takes batches as training would: one, a pause as long as a step, the next. It pauses
 * without computing, so workers have all cores; where training keeps all of them busy, one more worker is no loss. The
 * first setting in the list that makes it wait less than 1 % of the time is the best: few threads, little memory.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "benchmark/bench_texts.h"
#include "benchmark/bench_models.h"
#include "cli/cli.h"
#include "config/config_feed.h"
#include "config/setup.h"
#include "data/prefetch.h"
#include "data/tokenfile.h"
#include "train/datasets.h"
#include "site/site.h"

enum { SETTINGS = 40, STEPS = 4, WAIT_STEPS = 8 };
static const double GOOD_SHARE = 0.01;

struct request {
    const char *config, *metrics, *rules, *dedup;
    double need, seconds;
    bool json;
    struct cli_keys keys;
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--need", "R", CLI_REAL, AT(need), .least = 1e-3, .most = 1e15,
     .help = "tokens per second that training takes (default: as the run's last steps did, else steps are run here)"},
    {"--metrics", "FILE", CLI_TEXT, AT(metrics),
     .help = "the metrics.jsonl of a run (default: that of run.dir, where there is one)"},
    {"--rules", "RULES", CLI_TEXT, AT(rules),
     .help = "rules of tutti data clean, measured on the same texts: all of them, and each filter by itself"},
    {"--dedup", "LIST", CLI_TEXT, AT(dedup), .help = "steps of tutti data dedup, each measured by itself: exact,near"},
    {"--seconds", "S", CLI_REAL, AT(seconds), .least = 0.01, .most = 3600, .help = "of each measurement"},
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{"CONFIG", AT(config), false, false}};
static const struct cli_table table = {
    .command = "bench data",
    .usage = "CONFIG [options] [key=value ...]",
    .about = "Measures how fast the inputs of data.train are read and tokenized by one thread, how fast batches are\n"
             "prepared by several, and what training needs; prints the best data.workers and data.prefetch. Texts are\n"
             "tokenized into the run's cache first, as training would.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
    .takes_keys = true,
    .keys = AT(keys),
};

struct setting {
    int workers, depth;
    double tokens_per_s; /* as fast as they come */
    double wait;         /* share of the time, at the need; -1: not measured */
};
struct found {
    double need;
    const char *need_from;
    struct setting s[SETTINGS];
    int n, best; /* best -1: none is good */
};

/* ---- what training needs ---- */

/* The mean of the last half of the steps of a metrics.jsonl; 0: it has none. */
static int need_of_run(const char *path, double *need, struct err *e)
{
    char *text;
    size_t n;
    double *rate = NULL, sum = 0;
    int64_t steps = 0, room = 0;
    int rc = fs_read_all(path, (size_t)1 << 30, &text, &n, e);
    if (rc) return rc;
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        struct json *v;
        if (!*line || json_parse(&v, line, strlen(line), path, NULL)) continue;
        double r = json_real(json_get(v, "tokens_per_s"), 0);
        json_free(v);
        if (!(r > 0)) continue;
        GROW(rate, steps, room, 1);
        rate[steps++] = r;
    }
    for (int64_t i = steps / 2; i < steps; i++) sum += rate[i];
    *need = steps ? sum / (double)(steps - steps / 2) : 0;
    xfree(rate);
    xfree(text);
    return OK;
}

/* Steps of this config on this machine, the first not counted. */
static int need_of_steps(const struct config *c, const struct dataset *d, double *need, struct err *e)
{
    struct site s;
    struct batch b;
    struct err why;
    int rc = bench_device(c, &why);
    if (!rc) rc = site_open(&s, &(struct site_config){.config = c}, &why);
    if (rc) return err_set(e, rc, "%s; --need says without a run what training takes", why.text);
    batch_init_pictures(&b, c->batch.global, c->model.seq_len, model_pixels(&c->model));
    engine_init(s.engine);
    double from = 0;
    int64_t tokens = 0;
    for (int64_t step = 0; step <= STEPS && !rc; step++) {
        struct engine_report r;
        struct engine_batch view = {.n = b.n_seqs};
        if (step == 1) from = clock_now_s();
        rc = dataset_batch(d, step, c->batch.global, 0, &b, e);
        for (int f = 0; f < BATCH_FIELDS; f++) view.field[f] = b.field[f];
        view.n_trained = b.n_trained;
        if (!rc && step) tokens += batch_tokens(b.n_seqs, b.seq_len, b.n_padded);
        if (!rc) engine_step(s.engine, &view, step, 0, &r);
        if (!rc) rc = engine_status(s.engine, e);
    }
    *need = (double)tokens / (clock_now_s() - from);
    batch_fini(&b);
    site_close(&s);
    return rc;
}

static int find_need(const struct request *q, const struct config *c, const struct dataset *d, struct found *f,
                     struct err *e)
{
    char *path = q->metrics ? xstrdup(q->metrics) : fs_join(c->run.dir, "metrics.jsonl");
    int rc = OK;
    f->need = q->need;
    f->need_from = "given";
    if (!f->need && (q->metrics || fs_exists(path))) {
        rc = need_of_run(path, &f->need, e);
        f->need_from = "run";
        if (!rc && !f->need && q->metrics) rc = err_set(e, ERR_REQUEST, "%s: has no step with tokens_per_s", path);
    }
    if (!rc && !f->need) {
        f->need_from = "measured";
        rc = need_of_steps(c, d, &f->need, e);
    }
    xfree(path);
    return rc;
}

/* ---- batches ---- */

/* Takes batches for the time, or n of them (0: no limit), pausing between them; tokens per second, those of a batch,
 * and the share of time waited. */
static int take(const struct config *c, const struct dataset *d, struct setting *s, double pause_s, double seconds,
                int n, double *rate, double *each, double *share, struct err *e)
{
    struct prefetch *p;
    const struct batch *b;
    struct prefetch_config x = {.first_step = 0,
                                .global_batch = c->batch.global,
                                .count = c->batch.global,
                                .depth = s->depth,
                                .workers = s->workers};
    int rc = prefetch_new(&p, d, &x, e);
    if (rc) return rc;
    rc = prefetch_next(p, &b, e); /* a run's first batch is waited for, once */
    double from = clock_now_s(), before = prefetch_waited_s(p), spent = 0;
    int64_t taken = 0, tokens = 0;
    while (!rc && (!taken || (spent < seconds && (!n || taken < n)))) {
        if (pause_s > 0) clock_sleep_s(pause_s);
        rc = prefetch_next(p, &b, e);
        if (!rc) tokens += batch_tokens(b->n_seqs, b->seq_len, b->n_padded);
        taken++;
        spent = clock_now_s() - from;
    }
    *rate = (double)tokens / spent;
    *each = (double)tokens / (double)(taken ? taken : 1);
    *share = (prefetch_waited_s(p) - before) / spent;
    prefetch_free(p);
    return rc;
}

static int measure_settings(const struct request *q, const struct config *c, const struct dataset *d, struct found *f,
                            struct err *e)
{
    int cores = thread_n_cores(), rc = OK;
    double each, unused;
    f->best = -1;
    for (int workers = 1; workers <= cores && !rc && f->n < SETTINGS; workers *= 2)
        for (int depth = workers < 2 ? 2 : workers; depth <= 4 * workers && !rc && f->n < SETTINGS; depth *= 2) {
            struct setting *s = &f->s[f->n++];
            *s = (struct setting){workers, depth, 0, -1};
            rc = take(c, d, s, 0, q->seconds, 0, &s->tokens_per_s, &each, &unused, e);
            double rate, step_s = each / f->need;
            bool enough = s->tokens_per_s > f->need; /* else it waits, however deep */
            if (!rc && f->best < 0 && enough)
                rc = take(c, d, s, step_s, 10 * q->seconds, WAIT_STEPS + 4 * depth, &rate, &unused, &s->wait, e);
            if (!rc && f->best < 0 && enough && s->wait < GOOD_SHARE) f->best = f->n - 1;
        }
    return rc;
}

/* ---- saying it ---- */

static const char *const list_names[BENCH_LISTS] = {[BENCH_FILTERS] = "filters", [BENCH_DEDUP] = "dedup"};

static void print_texts(const char *path, const struct bench_text_rate *rate, int64_t n)
{
    char bytes[32], made[32], name[64];
    for (int64_t i = 0; i < n; i++) {
        bool row = rate[i].list == BENCH_ROWS;
        snprintf(name, sizeof name, "%s%s", row ? "" : rate[i].list == BENCH_FILTERS ? "  " : "dedup ", rate[i].name);
        printf("%-20s %12s/s  %10s %s/s   %s\n", name, str_bytes(bytes, rate[i].bytes_per_s),
               str_count(made, rate[i].made_per_s), rate[i].makes, path);
    }
}

static void json_rate(struct json_out *j, const struct bench_text_rate *rate)
{
    bool row = rate->list == BENCH_ROWS;
    json_begin_object(j, row ? rate->name : NULL);
    if (!row) json_put_string(j, "name", rate->name);
    json_put_real_digits(j, "bytes_per_s", rate->bytes_per_s, 6);
    json_put_string(j, "makes", rate->makes);
    json_put_real_digits(j, "made_per_s", rate->made_per_s, 6);
    json_end_object(j);
}

static void json_texts(struct json_out *j, const char *path, const struct bench_text_rate *rate, int64_t n)
{
    enum bench_list list = BENCH_ROWS;
    json_begin_object(j, NULL);
    json_put_string(j, "path", path);
    for (int64_t i = 0; i < n; i++) {
        if (rate[i].list != list && list != BENCH_ROWS) json_end_array(j);
        if (rate[i].list != list) json_begin_array(j, list_names[list = rate[i].list]);
        json_rate(j, &rate[i]);
    }
    if (list != BENCH_ROWS) json_end_array(j);
    json_end_object(j);
}

static void print_found(const struct found *f)
{
    char need[32], rate[32];
    printf("\nneeded     %12s tokens/s (%s)\n\nworkers prefetch     tokens/s  waited\n", str_count(need, f->need),
           !strcmp(f->need_from, "run") ? "the run's last steps" : f->need_from);
    for (int i = 0; i < f->n; i++) {
        printf("%7d %8d %12s", f->s[i].workers, f->s[i].depth, str_count(rate, f->s[i].tokens_per_s));
        if (f->s[i].wait >= 0) printf("  %.2f %%", 100 * f->s[i].wait);
        printf("%s\n", i == f->best ? "  <- best" : "");
    }
    if (f->best >= 0)
        printf("\ndata.workers=%d data.prefetch=%d: training waits less than 1 %% of the time\n", f->s[f->best].workers,
               f->s[f->best].depth);
    else printf("\nno number of workers is fast enough: training will wait for data\n");
}

static void json_found(struct json_out *j, const struct found *f)
{
    json_put_real_digits(j, "need_tokens_per_s", f->need, 6);
    json_put_string(j, "need_from", f->need_from);
    json_begin_array(j, "settings");
    for (int i = 0; i < f->n; i++) {
        json_begin_object(j, NULL);
        json_put_int(j, "workers", f->s[i].workers);
        json_put_int(j, "prefetch", f->s[i].depth);
        json_put_real_digits(j, "tokens_per_s", f->s[i].tokens_per_s, 6);
        if (f->s[i].wait >= 0) json_put_real_digits(j, "wait_share", f->s[i].wait, 4);
        json_end_object(j);
    }
    json_end_array(j);
    if (f->best >= 0) json_put_int(j, "workers", f->s[f->best].workers);
    if (f->best >= 0) json_put_int(j, "prefetch", f->s[f->best].depth);
}

/* ---- the command ---- */

/* Inputs that are tokens already have no rates of texts. */
static bool is_text(const char *path)
{
    char *shown = remote_is(path) ? remote_shown(path) : xstrdup(path), *file = tokenfile_find(shown);
    bool text = !file && !str_ends(shown, ".tok");
    if (text && !remote_is(path)) text = fs_exists(path);
    xfree(file);
    xfree(shown);
    return text;
}

static int measure_texts(const struct request *q, const struct config *c, const struct tokenizer *t, struct json_out *j,
                         struct err *e)
{
    const struct config_source *items = c->data.train.items;
    struct remote_options remote = config_remote(c);
    int code = OK;
    json_begin_array(j, "inputs");
    for (int i = 0; i < c->data.train.n && !code; i++) {
        if (!is_text(items[i].path)) continue;
        struct bench_text_rates rates;
        struct bench_texts b = {t, q->rules, q->dedup, items[i].column, &remote, q->seconds};
        char *shown = remote_is(items[i].path) ? remote_shown(items[i].path) : xstrdup(items[i].path);
        code = bench_text_measure(&b, items[i].path, &rates, e);
        if (!code && !q->json) print_texts(shown, rates.p, rates.n);
        if (!code) json_texts(j, shown, rates.p, rates.n);
        xfree(rates.p);
        xfree(shown);
    }
    json_end_array(j);
    return code;
}

/* What one thread makes of pictures: read, decoded, seen as the model does. */
static int measure_images(const struct request *q, const struct dataset *d, struct json_out *j, struct err *e)
{
    float *pixels = xmalloc(to_size(dataset_pixels(d)) * sizeof *pixels);
    int rc = OK;
    json_begin_array(j, "inputs");
    for (int i = 0; i < dataset_n_sources(d) && !rc; i++) {
        struct image_index *x = dataset_images(d, i);
        double from = clock_now_s(), spent = 0, bytes = 0;
        int64_t n = 0;
        for (; !rc && (!n || spent < q->seconds); spent = clock_now_s() - from, n++) {
            struct image_place p;
            int32_t label;
            int64_t sample = n % image_index_n(x);
            rc = image_index_where(x, sample, &p, e);
            if (!rc) rc = image_fill(x, dataset_image_rule(d), sample, 1, (uint64_t)n, pixels, &label, e);
            if (!rc) bytes += (double)p.bytes;
        }
        struct bench_text_rate rate = {BENCH_ROWS, "decode", "pictures", bytes / spent, (double)n / spent};
        if (!rc && !q->json) print_texts(dataset_source_name(d, i), &rate, 1);
        if (!rc) json_texts(j, dataset_source_name(d, i), &rate, 1);
    }
    json_end_array(j);
    xfree(pixels);
    return rc;
}

static int read_config(const struct request *q, struct config *c, struct arena *a, struct tokenizer **t, struct err *e)
{
    struct conf *f;
    int rc = config_load(c, &f, a, q->config, q->keys.p, q->keys.n, e);
    if (!rc) rc = setup_model(c, f, a, t, e);
    if (!rc && !*t && !model_sees(&c->model)) rc = setup_no_tokenizer(c, f, e);
    if (!rc) rc = config_resolve(c, f, *t ? tokenizer_vocab(*t) : 0, 1, e);
    if (!rc && !c->data.train.n) rc = err_set(e, ERR_REQUEST, "%s: data.train: names nothing to measure", q->config);
    return rc;
}

int cmd_bench_data(int argc, char **argv)
{
    struct request q = {.seconds = 1};
    struct err e = {0};
    int status;
    if (!cli_read(&table, argc, argv, &q, &status)) return status;
    struct arena *a = arena_new();
    struct config c;
    struct tokenizer *t = NULL;
    struct dataset *d = NULL;
    struct found f = {.best = -1};
    struct str text = {0};
    struct json_out j = {.s = &text};
    int rc = read_config(&q, &c, a, &t, &e);
    json_begin_document(&j, "bench-data", 1);
    if (!rc && !model_sees(&c.model)) rc = measure_texts(&q, &c, t, &j, &e);
    if (!rc) rc = datasets_open(&d, &c, &c.data.train, t, NULL, &e);
    if (!rc && dataset_sees(d)) rc = measure_images(&q, d, &j, &e);
    if (!rc) rc = find_need(&q, &c, d, &f, &e);
    if (!rc) rc = measure_settings(&q, &c, d, &f, &e);
    if (!rc) json_found(&j, &f);
    json_end_object(&j);
    if (!rc && q.json) puts(str_text(&text));
    else if (!rc) print_found(&f);
    dataset_close(d);
    tokenizer_free(t);
    str_free(&text);
    arena_free(a);
    return rc ? cli_fail(&e) : 0;
}
