/* SPDX-License-Identifier: Apache-2.0 */
/* tutti bench generate: how fast a model of a known size writes. A token alone reads every weight once, so its bound is
 * the rate at which the same threads read as many bytes; a prompt's is training's forward pass of as many tokens. Both
 * bounds are measured in the same run, in turn with what they bound, and the best of each counts: the best step, the
 * best prompt, the best reading. One thread is timed by its own processor time, so that others' turns on its core do
 * not count; more are timed by the clock. With --weights the same model with whole weights writes in turn with it,
 * whose pass forward is also what prompts are measured against.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "benchmark/bench_models.h"
#include "cli/cli.h"
#include "decode/decoding.h"

enum { ROUNDS = 5, LINE = 8 /* words */, STRETCHES = 4, THREADS_MOST = 4096 };

struct request {
    const char *model, *dtype, *weights;
    int64_t prompt, tokens, sequences, threads;
    bool json;
    struct cli_keys keys;
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--model", "NAME", CLI_CHOICE, AT(model), .choices = BENCH_MODELS, .help = ""},
    {"--prompt", "N", CLI_INT, AT(prompt), .lo = 1, .hi = 1 << 20, .help = "tokens of a prompt"},
    {"--tokens", "N", CLI_INT, AT(tokens), .lo = 1, .hi = 1 << 20, .help = "tokens that are written in a round"},
    {"--sequences", "N", CLI_INT, AT(sequences), .lo = 1, .hi = 1024, .help = "texts at once in the second figure"},
    {"--dtype", "D", CLI_CHOICE, AT(dtype), .choices = "bf16|f32", .help = ""},
    CLI_WEIGHTS(struct request, weights),
    {"--threads", "N", CLI_INT, AT(threads), .lo = 1, .hi = THREADS_MOST, .help = "default: all cores"},
    CLI_JSON(struct request, json),
};
static const struct cli_table table = {
    .command = "bench generate",
    .usage = "[options] [key=value ...]",
    .about = "Times writing with random weights: tokens one by one beside reading the weights' bytes by the same "
             "threads, several\n"
             "texts at once, and a prompt beside training's forward pass of as many tokens through the layers. "
             "key=value is any key of\n"
             "a config.\n",
    CLI_OPTIONS(options),
    .takes_keys = true,
    .keys = AT(keys),
};

struct figures {
    double token_s, batch_s, prompt_s, forward_s, read_s, weight_bytes;
    double whole_s, whole_bytes, whole_read_s; /* a token's with whole weights, those bytes, and reading them; 0: no
                                                  others are measured */
};

/* What is measured, and the same model with whole weights: one where --weights is not given. */
struct models {
    struct decoding *d, *whole;
};

static int make_model(const struct request *q, struct config *c, struct arena *a, struct err *e)
{
    const struct bench_model *m = bench_model(q->model);
    char *keys[CLI_MAX_KEYS + 16];
    int n = 0;
    int64_t positions = q->prompt + ROUNDS * q->tokens + 1;
    for (int i = 0; i < BENCH_MODEL_KEYS && m->keys[i]; i++) keys[n++] = arena_strdup(a, m->keys[i]);
    keys[n++] = arena_printf(a, "model.seq_len=%lld", (long long)positions);
    keys[n++] = arena_printf(a, "model.max_positions=%lld", (long long)positions);
    for (int i = 0; i < q->keys.n; i++) keys[n++] = q->keys.p[i];
    int rc = cli_config(c, NULL, a, NULL, keys, n, 1, e);
    return rc ? rc : bench_device(c, e);
}

/* ---- the memory ---- */

struct reading {
    const uint64_t *p;
    int64_t n;
    uint64_t sum[THREADS_MOST]; /* by thread, that the reads are made */
};

/* Four stretches at once, a line of each in turn: one alone does not keep the memory busy. */
static void read_member(void *arg, int member, int n_members)
{
    struct reading *r = arg;
    int64_t lo, hi;
    uint64_t sum[LINE] = {0};
    team_split(r->n / (STRETCHES * LINE), member, n_members, &lo, &hi);
    const int64_t lines = hi - lo;
    const uint64_t *p = r->p + lo * STRETCHES * LINE;
    for (int64_t i = 0; i < lines; i++)
        for (int s = 0; s < STRETCHES; s++)
            for (int k = 0; k < LINE; k++) sum[k] ^= p[(s * lines + i) * LINE + k];
    for (int k = 0; k < LINE; k++) r->sum[member] ^= sum[k];
}

static double time_s(struct team *team) { return team_size(team) == 1 ? clock_thread_s() : clock_now_s(); }

static double read_once(struct team *team, struct reading *r)
{
    double from = time_s(team);
    team_run(team, read_member, r);
    return time_s(team) - from;
}

/* ---- writing ---- */

static double least(double a, double b) { return a < b ? a : b; }

/* Seconds of the best step. */
static int write_some(struct decoding *d, struct team *team, const int *sequence, int n, int64_t steps, double *s,
                      struct err *e)
{
    struct decoding_part *part = xcalloc(to_size(n), sizeof *part);
    const int32_t token = 1;
    const float *logits;
    int rc = OK;
    for (int i = 0; i < n; i++) part[i] = (struct decoding_part){sequence[i], &token, 1, 1};
    *s = 1e30;
    for (int64_t k = 0; k < steps && !rc; k++) {
        double from = time_s(team);
        rc = decoding_step(d, part, n, &logits, e);
        *s = least(*s, time_s(team) - from);
    }
    xfree(part);
    return rc;
}

static int feed_prompt(struct decoding *d, struct team *team, int sequence, int64_t n, double *s, struct err *e)
{
    int32_t *ids = xcalloc(to_size(n), sizeof *ids);
    const float *logits;
    int rc = OK;
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)((i * 7919) % decoding_model(d)->vocab);
    decoding_cut(d, sequence, 0);
    double from = time_s(team);
    for (int64_t at = 0, now; at < n && !rc; at += now) {
        now = n - at < decoding_rows(d) ? n - at : decoding_rows(d);
        rc = decoding_step(d, &(struct decoding_part){sequence, ids + at, now, at + now == n}, 1, &logits, e);
    }
    *s = time_s(team) - from;
    xfree(ids);
    return rc;
}

static int measure(const struct request *q, const struct models *m, struct team *team, struct figures *f, struct err *e)
{
    struct decoding *d = m->d;
    const bool two = m->whole != m->d;
    int n = (int)q->sequences, *sequence = xcalloc(to_size(n), sizeof *sequence), rc = OK;
    const int64_t own = (int64_t)f->weight_bytes / 128 * 16, others = (int64_t)f->whole_bytes / 128 * 16; /* words */
    struct reading *r = xcalloc(1, sizeof *r);
    uint64_t *words = xmalloc(to_size(own > others ? own : others) * sizeof *words + 128);
    for (int64_t i = 0; i < own || i < others; i++) words[i] = (uint64_t)i;
    *r = (struct reading){.p = words, .n = own};
    f->token_s = f->batch_s = f->prompt_s = f->forward_s = f->read_s = 1e30;
    for (int i = 0; i < n; i++) sequence[i] = decoding_open(d);
    const int beside = two ? decoding_open(m->whole) : -1;
    if (two) f->whole_s = f->whole_read_s = 1e30;
    for (int k = 0; k <= ROUNDS && !rc; k++) { /* the first one records programs */
        double prompt = 0, token = 0, batch = 0, forward = 0, whole = 0, read = read_once(team, r);
        rc = feed_prompt(d, team, sequence[0], q->prompt, &prompt, e);
        if (!rc) rc = decoding_forward_s(m->whole, q->prompt, &forward, e);
        if (!rc) rc = write_some(d, team, sequence, 1, q->tokens, &token, e);
        if (two) decoding_cut(m->whole, beside, 0);
        if (!rc && two) rc = write_some(m->whole, team, &beside, 1, q->tokens, &whole, e);
        r->n = others;
        double read_whole = two ? read_once(team, r) : 0;
        r->n = own;
        for (int i = 1; i < n; i++) decoding_cut(d, sequence[i], 0);
        if (!rc && n > 1) rc = write_some(d, team, sequence, n, 4, &batch, e);
        read = least(read, read_once(team, r));
        if (!k) continue;
        f->prompt_s = least(f->prompt_s, prompt);
        f->forward_s = least(f->forward_s, forward);
        f->token_s = least(f->token_s, token);
        f->batch_s = least(f->batch_s, batch);
        f->read_s = least(f->read_s, read);
        if (two) f->whole_s = least(f->whole_s, whole);
        if (two) f->whole_read_s = least(f->whole_read_s, read_whole);
    }
    xfree(words);
    xfree(r);
    xfree(sequence);
    return rc;
}

/* ---- what is said ---- */

static void print_json(const struct request *q, const struct figures *f)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_document(&o, "bench-generate", 1);
    json_put_string(&o, "model", q->model);
    json_put_string(&o, "dtype", q->dtype);
    if (q->weights) json_put_string(&o, "weights", q->weights);
    json_put_int(&o, "prompt", q->prompt);
    json_put_real(&o, "weight_bytes", f->weight_bytes);
    json_put_real(&o, "read_bytes_per_s", f->weight_bytes / f->read_s);
    json_put_real(&o, "tokens_per_s", 1 / f->token_s);
    json_put_real(&o, "bandwidth_share", f->read_s / f->token_s);
    if (q->weights) {
        json_put_real(&o, "whole_weight_bytes", f->whole_bytes);
        json_put_real(&o, "whole_tokens_per_s", 1 / f->whole_s);
        json_put_real(&o, "whole_bandwidth_share", f->whole_read_s / f->whole_s);
    }
    if (q->sequences > 1) json_put_int(&o, "sequences", q->sequences);
    if (q->sequences > 1) json_put_real(&o, "together_tokens_per_s", (double)q->sequences / f->batch_s);
    json_put_real(&o, "prompt_tokens_per_s", (double)q->prompt / f->prompt_s);
    json_put_real(&o, "forward_tokens_per_s", (double)q->prompt / f->forward_s);
    json_put_real(&o, "prompt_share", f->forward_s / f->prompt_s);
    json_end_object(&o);
    puts(str_text(&s));
    str_free(&s);
}

static void print_table(const struct request *q, const struct figures *f)
{
    char a[32], b[32];
    printf("%s, %s%s%s\n", q->model, q->dtype, q->weights ? ", weights in " : "", q->weights ? q->weights : "");
    printf("one text: %.1f tokens/s, each %s of weights: %.0f %% of reading them at %s/s\n", 1 / f->token_s,
           str_bytes(a, f->weight_bytes), 100 * f->read_s / f->token_s, str_bytes(b, f->weight_bytes / f->read_s));
    if (q->weights)
        printf("whole weights beside it: %.1f tokens/s, each %s: %.0f %%\n", 1 / f->whole_s,
               str_bytes(a, f->whole_bytes), 100 * f->whole_read_s / f->whole_s);
    if (f->read_s > f->token_s || f->whole_read_s > f->whole_s)
        printf(
            "more than 100 %% is no share: the weights stay in a cache, or others used the memory while it was read\n");
    if (q->sequences > 1)
        printf("%lld texts: %.1f tokens/s\n", (long long)q->sequences, (double)q->sequences / f->batch_s);
    printf("a prompt of %lld: %.1f tokens/s, %.0f %% of training's forward pass at %.1f\n", (long long)q->prompt,
           (double)q->prompt / f->prompt_s, 100 * f->forward_s / f->prompt_s, (double)q->prompt / f->forward_s);
}

int cmd_bench_generate(int argc, char **argv)
{
    struct request q = {.model = "gpt2-124m", .prompt = 512, .tokens = 16, .sequences = 8, .dtype = "bf16"};
    struct config c;
    struct figures f = {0};
    struct models m = {0};
    struct err e = {0};
    struct device *d = NULL;
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    struct arena *a = arena_new();
    rc = make_model(&q, &c, a, &e);
    struct decoding_options o = {.threads = q.threads ? (int)q.threads : thread_n_cores(),
                                 .dtype = cli_dtype(q.dtype),
                                 .sequences = q.sequences,
                                 .rows = q.sequences > 256 ? q.sequences : 256,
                                 .reuse_not = "measured",
                                 .model = &c.model};
    if (!rc) rc = device_open(&d, DEVICE_CPU, o.threads, &e);
    if (!rc) rc = decoding_new(&m.whole, NULL, d, &o, &e);
    o.weights = cli_packing(q.weights);
    if (!rc && q.weights) rc = decoding_new(&m.d, NULL, d, &o, &e);
    if (!q.weights) m.d = m.whole;
    if (!rc) f.weight_bytes = decoding_weight_bytes(m.d);
    if (!rc && q.weights) f.whole_bytes = decoding_weight_bytes(m.whole);
    if (!rc) rc = measure(&q, &m, d->team, &f, &e);
    if (!rc && q.json) print_json(&q, &f);
    if (!rc && !q.json) print_table(&q, &f);
    if (m.d != m.whole) decoding_free(m.d);
    decoding_free(m.whole);
    if (d) device_free(d);
    arena_free(a);
    return rc ? cli_fail(&e) : 0;
}
