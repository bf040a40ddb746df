/* SPDX-License-Identifier: Apache-2.0 */
/* tutti bench train: whole training steps of a known model on random tokens, and where their time goes. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/crowd.h"
#include "base/thread.h"
#include "benchmark/bench_models.h"
#include "cli/cli.h"
#include "device/tier.h"
#include "plan/plan.h"
#include "kernel/cpu/tile/tile_rate.h"
#include "optim/muon.h"
#include "site/site.h"

struct request {
    const struct bench_model *model;
    const char *model_name, *dtype, *kernels;
    int64_t seq, micro, batch, steps, threads, ranks;
    bool json, crowd;
    struct cli_keys keys;
};
#define AT(field) offsetof(struct request, field)
enum { MOST = 1 << 24 };
static const struct cli_option options[] = {
    {"--model", "NAME", CLI_CHOICE, AT(model_name), .choices = BENCH_MODELS, .help = ""},
    {"--seq", "S", CLI_INT, AT(seq), .lo = 1, .hi = MOST, .help = "tokens per sequence"},
    {"--micro", "B", CLI_INT, AT(micro), .lo = 1, .hi = MOST, .help = "sequences per microbatch"},
    {"--batch", "G", CLI_INT, AT(batch), .lo = 1, .hi = MOST,
     .help = "sequences per step, of all ranks (default: one microbatch for each)"},
    {"--dtype", "D", CLI_CHOICE, AT(dtype), .choices = "bf16|f32|f16", .help = ""},
    {"--steps", "N", CLI_INT, AT(steps), .lo = 1, .hi = MOST, .help = "timed steps, after one that is not"},
    {"--threads", "N", CLI_INT, AT(threads), .lo = 1, .hi = MOST, .help = "default: all cores"},
    {"--kernels", "K", CLI_TEXT, AT(kernels), .help = "auto or ref"},
    {"--ranks", "N", CLI_INT, AT(ranks), .lo = 1, .hi = 1024,
     .help = "ranks as threads of this process, each with --threads threads"},
    CLI_CROWD(struct request, crowd),
    CLI_JSON(struct request, json),
};
static const struct cli_table table = {
    .command = "bench train",
    .usage = "[options] [key=value ...]",
    .about =
        "Times whole optimizer steps (forward, backward, update) on random tokens. key=value is any key of a "
        "config, e.g.\n"
        "memory.recompute=full. With several ranks the time that rank 0 waits for messages is shown; with\n"
        "comm.link_GBps=X (every rank sends over a pretended link) beside the time they take, so what is hidden\n"
        "behind backward. With memory.offload_to=FOLDER what a step moves there and back, how long it waits for it,\n"
        "and how long the same bytes take alone.\n",
    CLI_OPTIONS(options),
    .takes_keys = true,
    .keys = AT(keys),
};

struct figures {
    double step_s, matrix_s, matmul_flops, matmul_s, flops, rate_l2, rate_registers;
    int64_t tokens, peak_bytes, rss, sent_bytes;
    double optimizer_flops;             /* of rank 0's update */
    double waited_s, link_s, exposed_s; /* for messages; that they take on the pretended link; of that, waited for */
    struct tier_counts disk;            /* of a step, rank 0's; all 0: nothing waits there */
    double disk_alone_s;                /* that the same bytes take when nothing is computed beside them */
    struct program_profile profile;
};

/* As cli_read. */
static bool parse(int argc, char **argv, struct request *q, int *status)
{
    *q = (struct request){.model_name = "gpt2-124m",
                          .seq = 1024,
                          .micro = 4,
                          .steps = 3,
                          .ranks = 1,
                          .dtype = "bf16",
                          .kernels = "auto"};
    if (!cli_read(&table, argc, argv, q, status)) return false;
    q->model = bench_model(q->model_name);
    if (!q->batch) q->batch = q->micro * q->ranks;
    return true;
}

static int make_config(const struct request *q, struct config *c, struct arena *a, struct err *e)
{
    char *keys[CLI_MAX_KEYS + 16];
    int n = 0;
    for (int i = 0; i < BENCH_MODEL_KEYS && q->model->keys[i]; i++) keys[n++] = arena_strdup(a, q->model->keys[i]);
    keys[n++] = arena_printf(a, "model.seq_len=%lld", (long long)q->seq);
    if (q->seq > 1024 && q->model->keys[6] && strstr(q->model->keys[6], "max_positions"))
        keys[n++] = arena_printf(a, "model.max_positions=%lld", (long long)q->seq);
    keys[n++] = arena_printf(a, "batch.global=%lld", (long long)q->batch);
    keys[n++] = arena_printf(a, "batch.micro=%lld", (long long)q->micro);
    keys[n++] = arena_printf(a, "run.threads=%lld", (long long)q->threads);
    keys[n++] = arena_printf(a, "run.kernels=%s", q->kernels);
    keys[n++] = arena_printf(a, "precision.recipe=%s",
                             !strcmp(q->dtype, "f32")   ? "fp32"
                             : !strcmp(q->dtype, "f16") ? "fp16"
                                                        : "bf16");
    for (int i = 0; i < q->keys.n; i++) keys[n++] = q->keys.p[i];
    int rc = cli_config(c, NULL, a, NULL, keys, n, to_int(q->ranks), e);
    if (!rc && model_sees(&c->model))
        rc = err_set(e, ERR_REQUEST, "model.family: sees pictures; this command measures models that read text");
    if (!rc) rc = bench_device(c, e);
    return rc ? rc : plan_choose(c, NULL, NULL, e);
}

/* This rank's part of a batch of random tokens. */
static void random_batch(struct engine_batch *b, int32_t *memory, const struct config *c, int part)
{
    int64_t seq = c->model.seq_len, n = c->batch.global * seq, first, count;
    int32_t *tokens = memory, *targets = memory + n, *positions = memory + 2 * n, *docs = memory + 3 * n;
    int64_t trained = bench_fill(memory, c);
    config_part(c, part, &first, &count);
    *b = (struct engine_batch){.tokens = tokens + first * seq,
                               .targets = targets + first * seq,
                               .positions = positions + first * seq,
                               .docs = docs + first * seq,
                               .n = count,
                               .first = first,
                               .n_trained = count * trained};
}

static void read_profile(struct figures *f, const struct program_profile *p)
{
    for (int ph = 0; ph < KERNEL_N_PHASES; ph++) {
        double products_s = p->s[OP_LINEAR][ph] + p->s[OP_LINEAR_SCALED][ph];
        f->matrix_s += products_s + p->s[OP_ATTENTION][ph];
        f->matmul_s += products_s;
        f->matmul_flops += p->flops[OP_LINEAR][ph] + p->flops[OP_LINEAR_SCALED][ph];
    }
    f->profile = *p;
}

struct measured { /* what the ranks share */
    const struct request *q;
    const struct config *c;
    struct figures *f; /* rank 0's */
};

/* Over all groups of this rank, until now. */
static void read_comm(const struct ranks *r, const struct param_server *v, struct comm_times *t, int64_t *bytes)
{
    enum { OWN = 11 };
    const struct host_groups *h = &r->host;
    struct comm *group[OWN + AXIS_N] = {r->shard,  h->shard, r->replicate, h->replicate, r->model, r->expert,
                                        h->expert, h->tp,    h->pp,        r->workers,   r->world};
    struct comm_traffic sent[AXIS_N];
    *t = (struct comm_times){0};
    *bytes = v ? param_server_traffic(v) : 0;
    for (int x = 0; x < AXIS_N; x++) group[OWN + x] = r->axis[x];
    for (int i = 0; i < OWN + AXIS_N; i++) {
        bool again = !group[i];
        for (int k = 0; k < i; k++) again |= group[k] == group[i];
        if (again) continue;
        struct comm_times one = comm_times(group[i]);
        t->waited_s += one.waited_s;
        t->link_s += one.link_s;
        t->exposed_s += one.exposed_s;
    }
    ranks_traffic(r, sent);
    for (int x = 0; x < AXIS_N; x++) *bytes += sent[x].bytes;
}

/* One step of all ranks; of this worker, or all that are left of this server, where servers step with each push. */
static int one_step(const struct measured *m, struct engine *g, struct param_server *v, const struct ranks *r,
                    const struct engine_batch *b, int64_t step, struct engine_report *report, struct err *e)
{
    struct staleness stale;
    int64_t tokens = 0;
    bool meet, server = r->server >= 0;
    if (!v) engine_step(g, b, step, 1e-4, report);
    else if (m->c->parallel.server_mode == SERVER_SYNC) param_server_step(v, server ? NULL : b, step, 1e-4, report);
    else if (!server) return param_server_push(v, b, step, false, report, &stale, &meet, e);
    else if (step == 0) return param_server_until_meeting(v, &tokens, e) < 0 ? ERR_IO : OK;
    return OK;
}

/* Steps are over: what is on disk is nobody's any more. */
static void read_disk(struct figures *f, struct tier *t, const struct tier_counts *before, int64_t steps)
{
    const struct tier_counts now = tier_counts(t);
    f->disk = (struct tier_counts){.put_bytes = (now.put_bytes - before->put_bytes) / steps,
                                   .got_bytes = (now.got_bytes - before->got_bytes) / steps,
                                   .waited_s = (now.waited_s - before->waited_s) / (double)steps};
    f->disk_alone_s = tier_time(t, f->disk.put_bytes, f->disk.got_bytes);
}

static int time_steps(const struct measured *m, struct engine *g, struct param_server *v, const struct ranks *r,
                      struct figures *f, struct err *e)
{
    const struct tile_ops *tile = tile_ops_get(g->cfg.dtype);
    double workers = r->n - r->n_servers;
    struct program_profile profile = {0};
    struct engine_batch b;
    struct engine_report report;
    struct comm_times before, after;
    int64_t sent_before, sent_after, steps = m->q->steps;
    bool shows = r->rank == 0 && !m->q->json;
    int32_t *memory = xmalloc(to_size(4 * m->c->batch.global * m->c->model.seq_len) * sizeof *memory);
    random_batch(&b, memory, m->c, r->server < 0 ? r->part : 0);
    engine_init(g);
    if (v) param_server_begin(v, 0);
    int rc = one_step(m, g, v, r, &b, 0, &report, e);
    if (r->rank == 0) {
        double share = r->n * tile_rate_share(r->n, g->cfg.threads, thread_n_cores());
        f->rate_l2 = tile_rate_l2(tile, g->dev->team) * share;
        f->rate_registers = tile_rate_registers(tile, g->dev->team) * share;
    }
    bool together = r->world && !(v && m->c->parallel.server_mode == SERVER_ASYNC);
    if (together) comm_wait(r->world, comm_barrier(r->world, "start together"));
    g->profile = &profile;
    read_comm(r, v, &before, &sent_before);
    struct tier *tier = g->dev->tier;
    struct tier_counts disk_before = tier ? tier_counts(tier) : (struct tier_counts){0};
    double from = clock_now_s();
    for (int64_t s = 0; s < steps && !rc; s++) {
        rc = one_step(m, g, v, r, &b, s + 1, &report, e);
        if (shows) log_status("step %lld/%lld  loss %.4f", (long long)(s + 1), (long long)steps, report.loss);
    }
    f->step_s = (clock_now_s() - from) / (double)steps;
    if (shows) log_status_end();
    read_comm(r, v, &after, &sent_after);
    if (tier && !rc) read_disk(f, tier, &disk_before, steps);
    f->waited_s = (after.waited_s - before.waited_s) / (double)steps;
    f->exposed_s = (after.exposed_s - before.exposed_s) / (double)steps;
    f->link_s = (after.link_s - before.link_s) / (double)steps;
    f->sent_bytes = (sent_after - sent_before) / steps;
    read_profile(f, &profile);
    f->matrix_s /= (double)steps;
    f->matmul_s /= (double)steps;
    f->matmul_flops *= workers / (double)steps;
    f->flops = engine_flops_model(g) * workers * config_share_there(m->c);
    f->optimizer_flops = muon_flops(g->tools.muon);
    if (f->flops / f->step_s > f->rate_registers)
        f->rate_registers = f->flops / f->step_s; /* measured on a busy machine */
    f->tokens = m->c->batch.global * m->c->model.seq_len;
    f->peak_bytes = (int64_t)g->dev->ledger.peak_total;
    f->rss = (int64_t)mem_rss_peak();
    xfree(memory);
    return rc;
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    const struct measured *m = arg;
    struct site s;
    struct figures here = {0};
    struct param_server_config serve = {.async = m->c->parallel.server_mode == SERVER_ASYNC,
                                        .staleness = m->c->parallel.staleness,
                                        .steps = m->q->steps + 1};
    int rc = site_open(&s, &(struct site_config){.config = m->c, .world = world, .serve = &serve}, e);
    if (rc) return rc;
    rc = time_steps(m, s.engine, s.serve, &s.ranks, &here, e);
    if (!rc) rc = engine_status(s.engine, e);
    if (s.ranks.rank == 0) *m->f = here;
    site_close(&s);
    return rc;
}

static int measure(const struct request *q, const struct config *c, struct figures *f, struct err *e)
{
    struct measured m = {q, c, f};
    struct comm_config cc = config_comm(c);
    int rc = crowd_check(q->ranks, q->crowd, e);
    if (rc) return rc;
    return q->ranks > 1 ? comm_run_local(to_int(q->ranks), &cc, rank_main, &m, e) : rank_main(NULL, &m, e);
}

static double hidden_share(const struct figures *f)
{
    return f->link_s > f->exposed_s ? 1 - f->exposed_s / f->link_s : 0;
}

static bool has_disk(const struct figures *f) { return f->disk.put_bytes + f->disk.got_bytes > 0; }

static double disk_share(const struct figures *f)
{
    return f->disk_alone_s > f->disk.waited_s ? 1 - f->disk.waited_s / f->disk_alone_s : 0;
}

static void print_json(const struct request *q, const struct figures *f)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_document(&o, "bench-train", 1);
    json_put_string(&o, "model", q->model->name);
    json_put_string(&o, "dtype", q->dtype);
    json_put_int(&o, "seq", q->seq);
    json_put_int(&o, "micro", q->micro);
    json_put_real(&o, "tokens_per_s", (double)f->tokens / f->step_s);
    json_put_real(&o, "step_s", f->step_s);
    json_put_real(&o, "mfu", f->flops / f->step_s / f->rate_registers);
    json_put_real(&o, "matrix_share", f->matrix_s / f->step_s);
    json_put_real(&o, "matmul_flops_per_s", f->matmul_flops / f->matmul_s);
    json_put_real(&o, "tile_rate_flops", f->rate_l2);
    if (f->optimizer_flops > 0) json_put_real(&o, "optimizer_flops", f->optimizer_flops);
    json_put_int(&o, "peak_bytes", f->peak_bytes);
    json_put_int(&o, "max_rss_bytes", f->rss);
    json_put_int(&o, "ranks", q->ranks);
    json_put_int(&o, "sent_bytes", f->sent_bytes);
    json_put_real(&o, "waited_s", f->waited_s);
    json_put_real(&o, "link_s", f->link_s);
    json_put_real(&o, "exposed_s", f->exposed_s);
    json_put_real(&o, "hidden_share", hidden_share(f));
    if (has_disk(f)) {
        json_put_int(&o, "offload_put_bytes", f->disk.put_bytes);
        json_put_int(&o, "offload_get_bytes", f->disk.got_bytes);
        json_put_real(&o, "offload_wait_s", f->disk.waited_s);
        json_put_real(&o, "offload_alone_s", f->disk_alone_s);
        json_put_real(&o, "offload_hidden_share", disk_share(f));
    }
    json_begin_array(&o, "operations");
    for (int op = 0; op < OP_N; op++)
        for (int ph = 0; ph < KERNEL_N_PHASES; ph++) {
            if (!f->profile.calls[op][ph]) continue;
            static const char *const phase[] = {"forward", "input_grad", "weight_grad"};
            json_begin_object(&o, NULL);
            json_put_string(&o, "op", op_row((enum op)op)->name);
            json_put_string(&o, "pass", phase[ph]);
            json_put_real(&o, "step_s", f->profile.s[op][ph] / (double)q->steps);
            json_put_real(&o, "flops_per_s", f->profile.flops[op][ph] / f->profile.s[op][ph]);
            json_end_object(&o);
        }
    json_end_array(&o);
    json_end_object(&o);
    puts(str_text(&s));
    str_free(&s);
}

static void print_table(const struct request *q, const struct figures *f)
{
    static const char *const phase[] = {"forward", "input grad", "weight grad"};
    char a[32], b[32];
    double other = f->step_s;
    printf("%s, %lld x %lld tokens, %s\n\n  %-18s %-12s %9s %7s %12s\n", q->model->name, (long long)q->batch,
           (long long)q->seq, q->dtype, "operation", "pass", "ms/step", "share", "GFLOP/s");
    for (int op = 0; op < OP_N; op++)
        for (int ph = 0; ph < KERNEL_N_PHASES; ph++) {
            if (!f->profile.calls[op][ph]) continue;
            double s = f->profile.s[op][ph] / (double)q->steps;
            other -= s;
            printf("  %-18s %-12s %9.2f %6.1f%% %12.1f\n", op_row((enum op)op)->name, phase[ph], 1e3 * s,
                   100 * s / f->step_s, f->profile.flops[op][ph] / f->profile.s[op][ph] / 1e9);
        }
    printf("  %-18s %-12s %9.2f %6.1f%%\n\n", "norm, optimizer", "", 1e3 * other, 100 * other / f->step_s);
    printf("%.1f tokens/s; step %.3f s; matrix work %.1f %% of it; MFU %.1f %%\n", (double)f->tokens / f->step_s,
           f->step_s, 100 * f->matrix_s / f->step_s, 100 * f->flops / f->step_s / f->rate_registers);
    printf("matmuls %.1f GFLOP/s = %.1f %% of the L2-resident tile rate %.1f GFLOP/s (registers %.1f)\n",
           f->matmul_flops / f->matmul_s / 1e9, 100 * f->matmul_flops / f->matmul_s / f->rate_l2, f->rate_l2 / 1e9,
           f->rate_registers / 1e9);
    if (f->optimizer_flops > 0)
        printf("the update of rank 0 computes %s in products of whole matrices, beside all that\n",
               str_flops(a, f->optimizer_flops));
    if (q->ranks > 1)
        printf("%lld ranks: rank 0 sends %s per step and waits %.3f s", (long long)q->ranks,
               str_bytes(a, (double)f->sent_bytes), f->waited_s);
    if (q->ranks > 1 && f->link_s > 0)
        printf("; of %.3f s on the pretended link %.0f %% are hidden", f->link_s, 100 * hidden_share(f));
    if (q->ranks > 1) printf("\n");
    if (has_disk(f))
        printf("disk: rank 0 puts %s there and gets %s in a step, and waits %.3f s; alone they take %.3f s: %.0f %% "
               "are "
               "hidden\n",
               str_bytes(a, (double)f->disk.put_bytes), str_bytes(b, (double)f->disk.got_bytes), f->disk.waited_s,
               f->disk_alone_s, 100 * disk_share(f));
    printf("ledger peak %s, resident peak %s\n", str_bytes(a, (double)f->peak_bytes), str_bytes(b, (double)f->rss));
}

int cmd_bench_train(int argc, char **argv)
{
    struct request q;
    struct config c;
    struct figures f = {0};
    struct err e = {0};
    int rc;
    if (!parse(argc, argv, &q, &rc)) return rc;
    struct arena *a = arena_new();
    rc = make_config(&q, &c, a, &e);
    c.parallel.ranks_here = to_int(q.ranks);
    if (!rc) rc = measure(&q, &c, &f, &e);
    if (!rc && q.json) print_json(&q, &f);
    if (!rc && !q.json) print_table(&q, &f);
    arena_free(a);
    return rc ? cli_fail(&e) : 0;
}
