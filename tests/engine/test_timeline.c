/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps clock_now_s comm_send comm_recv comm_all_reduce comm_barrier comm_wait */
/* The executor beside the simulator: ranks are threads, and a layer's kernels take as long as the model says, in time
 * that is counted (counted_time.h). When each action begins, and when all is over, must agree but for what a double
 * rounds off. */
#include "toy.h"

#include <unistd.h>

#include "comm/comm.h"
#include "report/timing.h"
#include "engine/counted_time.h"

#define F_S 0.010
#define B_S 0.012
#define W_S 0.008
#define SAME 1e-9 /* of the whole: sums of a few hundred doubles, in two orders */
enum { VOCAB = 67, FFN = 52, MAX_RANKS = 8, ROOM = 8192 };

static void nothing(const struct kernel_call *c) { (void)c; }

static void forward(const struct kernel_call *c)
{
    (void)c;
    time_takes(F_S);
}

static void backward(const struct kernel_call *c)
{
    (void)c;
    time_takes(B_S);
}

static void weights(const struct kernel_call *c)
{
    if (c->in[1].n[1] == FFN) time_takes(W_S); /* one of the layer's four matrices does for all */
}

static struct kernel_family taking_time(void)
{
    struct kernel_family f = {.name = "taking time"};
    for (int op = 0; op < OP_N; op++)
        for (int p = 0; p < KERNEL_N_PHASES; p++) f.slot[op][p].run = nothing;
    f.slot[OP_ATTENTION][KERNEL_FWD].run = forward;
    f.slot[OP_ATTENTION][KERNEL_BWD_IN].run = backward;
    f.slot[OP_LINEAR][KERNEL_BWD_W].run = weights;
    return f;
}

struct run {
    const char *kind;
    int p, m, v;
    int64_t layers[MAX_RANKS * 2]; /* of each stage */
    char schedule[4096];           /* its text */
    const struct kernel_family *family;
    struct trace trace[MAX_RANKS];
    struct trace_event ring[MAX_RANKS][ROOM], kept[MAX_RANKS][ROOM];
    int64_t n_kept[MAX_RANKS];
    char path[64];
};

/* The k-th action that a rank computed. */
static const struct trace_event *action_at(const struct run *r, int rank, int64_t *k)
{
    while (r->kept[rank][*k].kind > TRACE_W) ++*k;
    return &r->kept[rank][(*k)++];
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct run *r = arg;
    int rank = comm_rank(world);
    struct engine_config c = toy_config(MODEL_LLAMA, DT_F32);
    struct device *d;
    struct engine *g;
    c.micro = 1;
    c.n_microbatches = r->m;
    c.model.layers = 0;
    for (int i = 0; i < r->p * r->v; i++) c.model.layers += (int)r->layers[i];
    c.rank = rank;
    struct comm *pipe; /* of the device: the world is the hosts' */
    int all[64];
    for (int i = 0; i < comm_size(world); i++) all[i] = i;
    if (comm_split_list(&pipe, world, all, comm_size(world), "pp", e)) return ERR_REQUEST;
    c.world = world;
    c.axis[AXIS_PP] = pipe;
    c.host.pp = world;
    struct mesh mesh;
    if (mesh_init(&mesh, comm_size(world), (int[AXIS_N]){-1, 1, 1, 1, 1, -1, 1, 1}, e)) return ERR_REQUEST;
    c.par = par_at(&mesh, rank);
    c.pipeline =
        (struct pipeline_config){.kind = r->kind, .chunks = r->v, .layers = r->layers, .n_layers = r->p * r->v};
    int rc = device_cpu_new(&d, 1, e);
    if (!rc) rc = engine_new(&g, &c, d, e);
    if (rc) return rc;
    struct engine_report report;
    g->kernels.chain[0] = r->family;
    for (int i = 0; i < g->n_stages; i++) { /* kernels were chosen when programs were made */
        struct program *p = g->stage[i].train;
        for (int k = 0; k < p->begin[PHASE_N]; k++)
            if (p->code[k].kernel) p->code[k].kernel = &r->family->slot[p->code[k].op][p->code[k].kphase];
    }
    trace_init(&r->trace[rank], r->ring[rank], sizeof r->ring[rank]);
    g->trace = &r->trace[rank];
    struct trace_info info = {.path = r->path,
                              .ledger = &d->ledger,
                              .place = "",
                              .schedule = r->schedule,
                              .stage_rank = rank};
    if ((rc = trace_open(g->trace, &info, world, e))) return rc;
    trace_turn(g->trace, true);
    struct engine_batch nobody = {0};
    comm_wait(world, comm_barrier(world, "start"));
    time_counts(rank, r->p);
    double from = clock_now_s();
    engine_gradients(g, &nobody, 1, &report);
    trace_add(g->trace, TRACE_STEP, "", 0, from, clock_now_s());
    time_of.counts = false;
    rc = engine_status(g, e);
    memcpy(r->kept[rank], r->ring[rank], sizeof r->ring[rank]);
    r->n_kept[rank] = trace_kept(g->trace);
    assert_true(g->trace->n <= g->trace->room);
    trace_close(g->trace, world);
    trace_free(g->trace);
    engine_free(g);
    comm_free(pipe);
    device_free(d);
    return rc;
}

/* The k-th action of a rank's list that computes began here, for the trace's k-th span that does. */
static double worst_start(const struct schedule *s, const struct schedule_timeline *t, const struct run *r,
                          double begin)
{
    double worst = 0;
    for (int rank = 0; rank < s->n_ranks; rank++) {
        int64_t k = 0;
        for (int64_t i = 0; i < s->rank[rank].n; i++) {
            if (!action_is_compute((enum action_kind)s->rank[rank].a[i].kind)) continue;
            const struct trace_event *x = action_at(r, rank, &k);
            char text[32];
            assert_string_equal(x->what, action_print(text, s->rank[rank].a[i]));
            double late = x->from_s - begin - t->at[rank][i].start_s;
            if (fabs(late) > worst) worst = fabs(late);
        }
    }
    return worst;
}

/* The share of idle time that the trace's reader finds, beside the simulator's; and its kinds add up to the step. */
static double idle_off(const char *path, int p, double want)
{
    struct timing t;
    struct err e = {0};
    if (timing_read(&t, path, &e)) fail_msg("%s", e.text);
    assert_int_equal(t.n_ranks, p);
    assert_true(t.ended && !t.broken && !t.left_out);
    for (int r = 0; r < p; r++) {
        double sum = 0;
        for (int k = 0; k < TIME_N; k++) sum += t.rank[r].s[k];
        assert_true(fabs(sum - t.rank[r].step_s) < 1e-9);
        assert_true(t.rank[r].s[TIME_LATE] < 1e-9); /* ranks of a pipeline are of other stages */
    }
    double off = fabs(t.idle_share - want);
    timing_free(&t);
    unlink(path);
    return off;
}

static void expect_timeline(const char *kind, int p, int m, int v)
{
    struct schedule *s;
    struct schedule_timeline t;
    struct err e = {0};
    struct kernel_family family = taking_time();
    if (schedule_generate(&s, kind, p, m, v, 0, &e)) fail_msg("%s", e.text);
    schedule_add_comm(s);
    struct run *r = xcalloc(1, sizeof *r);
    *r = (struct run){.kind = kind, .p = p, .m = m, .v = v, .family = &family};
    for (int i = 0; i < p * v; i++) r->layers[i] = 1;
    snprintf(r->path, sizeof r->path, "/tmp/tutti-timeline-%d.json", (int)getpid());
    struct comm_config cc = {.timeout_s = 100};
    schedule_simulate(s, &(struct schedule_cost){F_S * v, B_S * v, W_S * v, 0, NULL, NULL, 0}, &t);
    if (comm_run_local(p, &cc, rank_main, r, &e)) fail_msg("%s", e.text);
    double begin = 1e300, end = 0;
    for (int k = 0; k < p; k++)
        for (int64_t i = 0; i < r->n_kept[k]; i++) {
            const struct trace_event *x = &r->kept[k][i];
            if (x->kind > TRACE_W) continue;
            begin = fmin(begin, x->from_s);
            end = fmax(end, x->to_s);
        }
    double off = fmax(fabs(end - begin - t.makespan), worst_start(s, &t, r, begin)) / t.makespan,
           idle = idle_off(r->path, p, t.idle_share);
    print_message("%-12s p %d m %d: %.2g of %.0f ms off, idle time %.2g\n", kind, p, m, off, 1e3 * t.makespan, idle);
    if (idle > SAME) fail_msg("%s: its trace says %.3g of the step idle other than the simulator", kind, idle);
    if (off > SAME) fail_msg("%s: the executor is %.3g of the step away from the simulator", kind, off);
    schedule_timeline_fini(&t);
    xfree(r);
    schedule_free(s);
}

/* Stages of one, three and two layers: what the trace says of each stage, and what the simulator makes of that, beside
 * the time that passed; with one mean for all stages it would be far off. */
static void test_uneven(void **state)
{
    (void)state;
    enum { P = 3, M = 6 };
    static const int64_t layers[P] = {1, 3, 2};
    static const double want[] = {F_S, B_S, W_S};
    struct kernel_family family = taking_time();
    struct schedule *s;
    struct str text = {0};
    struct err e = {0};
    if (schedule_generate(&s, "zbh1", P, M, 1, 0, &e)) fail_msg("%s", e.text);
    schedule_add_comm(s);
    schedule_print(s, &text);
    struct run *r = xcalloc(1, sizeof *r);
    struct timing t;
    struct timing_promise p;
    struct schedule_timeline mean;
    *r = (struct run){.kind = "zbh1", .p = P, .m = M, .v = 1, .family = &family};
    memcpy(r->layers, layers, sizeof layers);
    snprintf(r->schedule, sizeof r->schedule, "%s", str_text(&text));
    snprintf(r->path, sizeof r->path, "/tmp/tutti-uneven-%d.json", (int)getpid());
    if (comm_run_local(P, &(struct comm_config){.timeout_s = 100}, rank_main, r, &e)) fail_msg("%s", e.text);
    if (timing_read(&t, r->path, &e)) fail_msg("%s", e.text);
    assert_int_equal(t.n_stages, P);
    assert_true(timing_predict(&t, &p));
    double off = fabs(p.idle_share - t.idle_share) + fabs(p.makespan_s / t.window_s - 1);
    for (int i = 0; i < P; i++)
        for (int k = 0; k < 3; k++) {
            assert_true(t.stage[i].actions[k] > 0 && t.stage[i].actions[TIME_BW] == 0);
            off = fmax(off, fabs(t.stage[i].mean_s[k] / (want[k] * (double)layers[i]) - 1));
        }
    schedule_simulate(s, &(struct schedule_cost){t.mean_s[0], t.mean_s[1], t.mean_s[2], 0, NULL, NULL, 0}, &mean);
    double mean_off = fabs(mean.idle_share - t.idle_share);
    print_message("uneven stages: within %.2g; with one mean for all %.1f points off\n", off, 100 * mean_off);
    assert_true(off < SAME && mean_off > 0.1);
    schedule_timeline_fini(&mean);
    timing_free(&t);
    unlink(r->path);
    xfree(r);
    str_free(&text);
    schedule_free(s);
}

static void test_timelines(void **state)
{
    (void)state;
    expect_timeline("gpipe", 4, 6, 1);
    expect_timeline("1f1b", 4, 8, 1);
    expect_timeline("interleaved", 3, 6, 2);
    expect_timeline("zbh1", 4, 8, 1);
    expect_timeline("zbh2", 3, 7, 1);
    expect_timeline("zbv", 3, 6, 2);
    expect_timeline("dualpipe", 4, 8, 1);
    expect_timeline("dualpipev", 3, 6, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_timelines), cmocka_unit_test(test_uneven)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
