/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of every kind of layout: the rules that hold for all (trace_rules.h), and what must be in them: every action
 * of the schedule, FLOPs and bytes as the plan says, slabs taken and given back, clocks that differ lined up. */
#include "runs.h"
#include "watch/trace_rules.h"

#include "base/clock.h"
#include "plan/plan.h"
#include "engine/trace.h"
#include "sanitized.h"

/* The keys that train_ranks gives, for the plan of the same run. */
static void plan_of(struct plan *p, int ranks, const char *const *more)
{
    struct arena *a = arena_new();
    struct config c;
    struct conf *conf;
    struct err e = {0};
    char *keys[MAX_KEYS] = {"model.layers=2",    "model.hidden=32",  "model.heads=4",  "model.kv_heads=2",
                            "model.ffn=44",      "model.seq_len=24", "batch.global=4", "batch.micro=2",
                            "optimizer.lr=0.01", "run.threads=1",    "model.vocab=257"};
    int n = 11;
    for (int i = 0; more[i]; i++) keys[n++] = (char *)(uintptr_t)more[i];
    if (config_load(&c, &conf, a, NULL, keys, n, &e) || config_resolve(&c, conf, 0, ranks, &e) || plan_make(p, &c, &e))
        fail_msg("%s", e.text);
    arena_free(a);
}

static int count_of(const struct rules *r, int pid, const char *cat)
{
    int n = 0;
    for (int i = 0; i < r->n; i++) n += (pid < 0 || r->box[i].pid == pid) && rule_is(&r->box[i], cat);
    return n;
}

/* FLOPs of all kernels in steps, over the steps: what the plan says a step computes. */
static void check_flops(const struct rules *r, const struct plan *p)
{
    double sum = 0;
    for (int i = 0; i < r->n; i++)
        if (rule_is(&r->box[i], "kernel") || rule_is(&r->box[i], "handover"))
            sum += json_real(json_get(r->box[i].args, "flops"), 0);
    if (fabs(sum / r->n_steps - p->flops_per_step) > 1e-9 * p->flops_per_step + r->n)
        fail_msg("%.0f FLOPs in a step of the trace, %.0f in the plan", sum / r->n_steps, p->flops_per_step);
}

/* What a rank sends in a step to the groups of its axes: begun in the traced steps, by the operations' own boxes. */
static void check_bytes(const struct rules *r, const struct plan *p)
{
    for (int k = 0; k < p->n_roles; k++) {
        const struct plan_rank *role = &p->role[k];
        int64_t sent = 0, planned = 0;
        int64_t first = r->first_ns[role->rank];
        for (int a = 0; a < AXIS_N; a++) planned += role->comm[a].bytes;
        for (int i = 0; i < r->n; i++) {
            const struct box *b = &r->box[i];
            if (b->pid != role->rank || !rule_is(b, "comm") || str_starts(b->id, "world")) continue;
            if (rule_ns(b->args, "asked_us") >= first) sent += json_int(json_get(b->args, "sent"), 0);
        }
        if (sent != planned * r->n_steps)
            fail_msg("rank %d sends %lld bytes in %d steps of the trace, %lld in each by the plan", role->rank,
                     (long long)sent, r->n_steps, (long long)planned);
    }
}

/* The ledger's track says what the plan says. */
static void check_memory(const struct rules *r, const struct plan *p)
{
    for (int k = 0; k < p->n_roles; k++)
        for (size_t i = 0, seen = 0; i < json_size(r->root) || !seen; i++) {
            if (i == json_size(r->root)) fail_msg("rank %d has no track of memory", p->role[k].rank);
            const struct json *v = json_at(r->root, i);
            if (strcmp(rule_text(v, "name"), "memory allocated") || json_int(json_get(v, "pid"), -1) != p->role[k].rank)
                continue;
            seen = 1;
            for (int c = 0; c < MEM_N; c++) {
                int64_t got = json_int(json_get(json_get(v, "args"), mem_cat_name((enum mem_cat)c)), -1);
                if (got != (int64_t)p->role[k].bytes[c])
                    fail_msg("%s of rank %d: %lld bytes in the trace, %zu in the plan", mem_cat_name((enum mem_cat)c),
                             p->role[k].rank, (long long)got, p->role[k].bytes[c]);
            }
        }
}

/* A counter of bytes in use comes back to nothing, and its highest value is `most` (-1: any but zero, -2: never
 * moved). */
static void check_counter(const struct rules *r, int pid, const char *name, int64_t most)
{
    int64_t high = 0, now = 0;
    for (size_t i = 0; i < json_size(r->root); i++) {
        const struct json *v = json_at(r->root, i);
        if (strcmp(rule_text(v, "name"), name) || json_int(json_get(v, "pid"), -1) != pid) continue;
        now = json_int(json_get(json_get(v, "args"), "bytes"), -1);
        if (now > high) high = now;
    }
    if (now) fail_msg("%s of rank %d: %lld bytes are never given back", name, pid, (long long)now);
    if (most >= 0 && high != most)
        fail_msg("%s of rank %d: at most %lld, not %lld", name, pid, (long long)high, (long long)most);
    if (most == -1 && !high) fail_msg("%s of rank %d never moves", name, pid);
    if (most == -2 && high) fail_msg("%s of rank %d: %lld", name, pid, (long long)high);
}

struct layout_row {
    const char *name;
    int ranks, forwards; /* forwards of a rank in a step */
    const char *keys[12];
    bool messages, collectives, same_traffic;
};

#define MOE "model.family=mixtral", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=20"
/* clang-format off */
static const struct layout_row layouts[] = {
    {"one rank", 1, 2, {NULL}, false, false, true},
    {"recompute", 1, 2, {"memory.recompute=full"}, false, false, true},
    {"dp", 2, 1, {"parallel.zero=0"}, false, true, true},
    {"zero 1", 2, 1, {"parallel.zero=1"}, false, true, true},
    {"zero 2", 2, 2, {"parallel.zero=2", "batch.micro=1"}, false, true, true},
    {"zero 3", 2, 2, {"parallel.zero=3", "batch.micro=1", "comm.progress=thread"}, false, true, true},
    {"replicas", 4, 1, {"parallel.dp_replicate=2", "parallel.zero=2", "batch.micro=1"}, false, true, true},
    {"tp", 2, 2, {"parallel.tp=2", "parallel.sequence_parallel=true"}, false, true, true},
    {"cp ring", 2, 2, {"parallel.cp=2"}, true, true, true},
    {"pp", 2, 4, {"parallel.pp=2", "batch.micro=1"}, true, true, true},
    {"zbh1", 2, 4, {"parallel.pp=2", "batch.micro=1", "parallel.schedule=zbh1"}, true, true, true},
    {"interleaved", 2, 8, {"parallel.pp=2", "batch.micro=1", "parallel.schedule=interleaved", "parallel.chunks=2", "model.layers=4"}, true, true, true},
    {"pp tp dp", 8, 2, {"parallel.pp=2", "parallel.tp=2", "batch.micro=1", "parallel.zero=2"}, true, true, false},
    {"ep", 2, 1, {MOE, "parallel.ep=2"}, false, true, false},
    {"server", 3, 1, {"parallel.servers=1"}, false, true, false},
};
/* clang-format on */

/* A box per unit (embedding, two layers, norm, head, more where experts are apart) and step; pipelines have some of
 * them on each rank. A server steps all it has at once. */
static void check_updates(const struct rules *r, const char *name, int rank, bool server)
{
    int n = count_of(r, rank, "optimizer"), out = count_of(r, rank, "publish");
    bool all = !strcmp(name, "one rank") || !strcmp(name, "dp") || !strncmp(name, "zero", 4);
    if (all ? n != 2 * 5 : n % 2 || !n != (strstr(name, "server") && !server))
        fail_msg("%d updates of rank %d", n, rank);
    if (server && n != 2) fail_msg("%d updates of a server", n);
    if (out && out != n) fail_msg("%d units of rank %d are updated, %d published", n, rank, out);
    bool publishes = !strcmp(name, "zero 1") || !strcmp(name, "zero 2") || !strcmp(name, "replicas");
    if (publishes ? !out : all && out) fail_msg("%d units of rank %d are published", out, rank);
}

static void check_layout(const struct folder *f, const struct layout_row *l)
{
    char key[200], dir[64];
    const char *keys[20] = {0};
    struct trainer_result result;
    struct err e;
    struct rules r;
    struct plan p;
    int n = 0;
    snprintf(key, sizeof key, "run.trace=%s", f->trace);
    snprintf(dir, sizeof dir, "%s", l->name);
    while (l->keys[n]) keys[n] = l->keys[n], n++;
    keys[n++] = key;
    keys[n++] = "run.steps=4";
    keys[n++] = "checkpoint.every=0";
    if (train_ranks(f, dir, l->ranks, keys, &result, &e)) fail_msg("%s: %s", l->name, e.text);
    rules_check(&r, f->trace, l->ranks);
    if (r.n_steps != 2) fail_msg("%d steps", r.n_steps);
    for (int k = 0; k < l->ranks; k++) {
        bool server = strstr(l->name, "server") && k == l->ranks - 1;
        if (count_of(&r, k, "step") != 2) fail_msg("%d steps of rank %d", count_of(&r, k, "step"), k);
        if (count_of(&r, k, "forward") != (server ? 0 : 2 * l->forwards))
            fail_msg("%d forwards of rank %d", count_of(&r, k, "forward"), k);
        check_updates(&r, l->name, k, server);
        check_counter(&r, k, "activations in use", server ? -2 : -1);
        bool gathers = strstr(l->name, "zero 3"),
             reduces = strstr(l->name, "zero") || !strcmp(l->name, "dp") || !strcmp(l->name, "replicas");
        if (gathers != (count_of(&r, k, "gather") > 0)) fail_msg("%d gathers of rank %d", count_of(&r, k, "gather"), k);
        if (count_of(&r, k, "gather") != count_of(&r, k, "release"))
            fail_msg("%d releases of rank %d", count_of(&r, k, "release"), k);
        if (reduces && !count_of(&r, k, "reduce")) fail_msg("no reduction of rank %d", k);
        if (!strcmp(l->name, "recompute") != (count_of(&r, k, "recompute") > 0))
            fail_msg("%d times again on rank %d", count_of(&r, k, "recompute"), k);
        check_counter(&r, k, "gathered parameters in use", strstr(l->name, "zero 3") ? -1 : -2);
    }
    if (l->messages != (r.messages > 0) || l->collectives != (r.collectives > 0))
        fail_msg("%d arrows of messages, %d of collectives", r.messages, r.collectives);
    plan_of(&p, l->ranks, keys);
    check_flops(&r, &p);
    check_memory(&r, &p);
    if (l->same_traffic) check_bytes(&r, &p);
    print_message("%-12s %6d boxes %5d arrows\n", l->name, r.n, r.arrows);
    plan_free(&p);
    rules_free(&r);
}

static void test_layouts(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        print_message("%s\n", layouts[i].name);
        check_layout(&f, &layouts[i]);
    }
    folder_close(&f);
}

/* ---- without a trainer: the ring, clocks, files that end early ---- */
enum { WORKERS = 3, ROOM = 400, ROUNDS = 7 };
struct world_run {
    struct folder *folder;
    double skew_s[WORKERS];
    int rounds, room;
    bool kill;                                                 /* nobody closes the file */
    double called_s[ROUNDS][WORKERS], back_s[ROUNDS][WORKERS]; /* around each rank's call, by one clock for all */
};

static void one_round(struct world_run *w, struct comm *world, struct trace *t, int k)
{
    int rank = comm_rank(world), next = (rank + 1) % WORKERS, before = (rank + WORKERS - 1) % WORKERS;
    int32_t out[5] = {rank}, in[5] = {0};
    double sum = 1, from = clock_now_s();
    int64_t got = comm_recv(world, in, 5, DT_I32, before, "ring"),
            sent = comm_send(world, out, 5, DT_I32, next, "ring");
    comm_wait(world, got);
    comm_wait(world, sent);
    assert_int_equal(in[0], before);
    if (rank == 1) clock_sleep_s(0.002); /* the last one to come */
    w->called_s[k][rank] = clock_now_s();
    int64_t all = comm_all_reduce(world, &sum, &sum, 1, DT_F64, COMM_SUM, "all");
    w->back_s[k][rank] = clock_now_s();
    comm_wait(world, all);
    trace_count(t, COUNTER_SLABS, k % 2 ? -8 : 8);
    trace_add(t, TRACE_STEP, "", k, from, clock_now_s());
}

static int world_rank(struct comm *world, void *arg, struct err *e)
{
    struct world_run *w = arg;
    struct trace t;
    struct ledger ledger;
    int rank = comm_rank(world);
    struct trace_event *ring = xcalloc((size_t)w->room, sizeof *ring);
    memset(&ledger, 0, sizeof ledger);
    trace_init(&t, ring, (size_t)w->room * sizeof *ring);
    struct trace_info info = {.path = w->folder->trace,
                              .ledger = &ledger,
                              .place = "",
                              .schedule = "",
                              .skew_s = w->skew_s[rank]};
    int rc = trace_open(&t, &info, world, e);
    if (rc) return rc;
    trace_turn(&t, true);
    for (int k = 0; k < w->rounds; k++) {
        t.step = k;
        one_round(w, world, &t, k);
        if (k % 4 == 1) trace_collect(&t, world);
    }
    if (!w->kill) trace_close(&t, world);
    trace_free(&t);
    xfree(ring);
    return comm_status(world, e);
}

static void run_world(struct world_run *w)
{
    struct comm_config cc = {.timeout_s = 100};
    struct err e = {0};
    if (comm_run_local(WORKERS, &cc, world_rank, w, &e)) fail_msg("%s", e.text);
}

/* How far two ranks' clocks may be off after all, as the file says; each offset is what it must be, within that. */
static double check_offsets(const struct rules *r, const struct world_run *w)
{
    double most = 0;
    int seen = 0;
    for (size_t i = 0; i < json_size(r->root); i++) {
        const struct json *v = json_at(r->root, i), *args = json_get(v, "args");
        bool first = !strcmp(rule_text(v, "name"), "tutti.rank"); /* of the clocks; again for each tutti.collected */
        if (!first && strcmp(rule_text(v, "name"), "tutti.collected")) continue;
        double off = 1e-6 * json_real(json_get(args, "clock_offset_us"), NAN),
               error = 1e-6 * json_real(json_get(args, "clock_error_us"), NAN);
        double want = w->skew_s[json_int(json_get(v, "pid"), 0)];
        if (!(fabs(off - want) <= error + 1e-9) || error > 1)
            fail_msg("an offset of %.9f s is measured as %.9f, give or take %.9f", want, off, error);
        if (error > most) most = error;
        seen += first;
    }
    assert_int_equal(seen, WORKERS);
    return 2 * most;
}

/* Which all_reduce of its rank a box is, from 0. */
static int round_of(const struct rules *r, const struct box *b)
{
    int k = 0;
    for (int i = 0; i < r->n; i++)
        k += r->box[i].pid == b->pid && r->box[i].from < b->from &&
             !strcmp(rule_text(r->box[i].args, "operation"), "all_reduce");
    return k;
}

/* Of an operation on several ranks, by the boxes as they are drawn: arrows that would go back in time. A message's is
 * from its sender to its receiver, a collective's from the last rank to come to each of the others. */
static int backward(const struct rules *r, const struct box *b)
{
    const struct box *from = rule_last_to_begin(r, b->id);
    bool message = !strcmp(rule_text(b->args, "operation"), "exchange");
    int n = 0;
    for (int i = 0; i < r->n && message; i++)
        if (rule_is(&r->box[i], "comm") && !strcmp(r->box[i].id, b->id) &&
            !strcmp(rule_text(r->box[i].args, "direction"), "send"))
            from = &r->box[i];
    for (int i = 0; i < r->n; i++) {
        const struct box *to = &r->box[i];
        if (!rule_is(to, "comm") || strcmp(to->id, b->id) || to == from) continue;
        int64_t end = to->to - 1 > to->from ? to->to - 1 : to->from; /* arrows end inside a box */
        n += end < from->from;
    }
    return n;
}

/* Every arrow is there but those that the clocks, as exact as the file says they are, would turn back: these it admits
 * to. */
static int64_t check_arrows(const struct rules *r, const struct world_run *w)
{
    int64_t against = -1;
    for (size_t i = 0; i < json_size(r->root); i++) {
        const struct json *v = json_at(r->root, i);
        if (!strcmp(rule_text(v, "name"), "tutti.end"))
            against = json_int(json_get(json_get(v, "args"), "arrows_against_time"), -1);
    }
    int64_t impossible = 0;
    for (int i = 0; i < r->n; i++) {
        bool first = rule_is(&r->box[i], "comm");
        for (int k = 0; k < i && first; k++) first = !rule_is(&r->box[k], "comm") || strcmp(r->box[k].id, r->box[i].id);
        if (first) impossible += backward(r, &r->box[i]);
    }
    assert_int_equal(against, impossible);
    assert_int_equal(r->messages + r->collectives + against, w->rounds * (2 * WORKERS - 1));
    return against;
}

static void check_order(const struct rules *r, const struct world_run *w, double error_s)
{
    for (int i = 0; i < r->n; i++) {
        const struct box *b = &r->box[i];
        if (strcmp(rule_text(b->args, "operation"), "all_reduce")) continue;
        const struct box *last = rule_last_to_begin(r, b->id);
        int k = round_of(r, b);
        for (int j = 0; j < WORKERS; j++)
            if (w->back_s[k][last->pid] + error_s < w->called_s[k][j])
                fail_msg("round %d: rank %d is drawn as the last to come, and rank %d came %.6f s later", k, last->pid,
                         j, w->called_s[k][j] - w->back_s[k][last->pid]);
        if ((double)b->to + 1e9 * error_s < (double)last->from) /* nobody is done before the last one came */
            fail_msg("%s: rank %d is drawn as done %.6f ms before rank %d came, beyond what clocks may be off (%.6f "
                     "ms)",
                     b->id, b->pid, 1e-6 * (double)(last->from - b->to), last->pid, 1e3 * error_s);
    }
}

/* Clocks that are hours apart: boxes line up, arrows go forward, and the file says how far the clocks were off. On a
 * crowded machine a look at another's clock may take longer than a message, whose arrow is then left out and counted:
 * just those are. Of the three messages of a round, which go in a ring, at least one goes forward by any clocks. */
static void test_clocks(void **state)
{
    (void)state;
    struct folder f;
    int64_t against = 1;
    folder_open(&f);
    for (int tries = 0; tries < 5 && against; tries++) {
        struct world_run w = {.folder = &f, .skew_s = {0, 5000, -333}, .rounds = 6, .room = ROOM};
        struct rules r;
        run_world(&w);
        rules_check(&r, f.trace, WORKERS);
        check_order(&r, &w, check_offsets(&r, &w));
        against = check_arrows(&r, &w);
        assert_true(r.messages >= w.rounds);
        rules_free(&r);
    }
    folder_close(&f);
}

/* Clocks that run at different speeds are drawn on one line. */
static void test_drift(void **state)
{
    (void)state;
    struct trace t = {.clock = {{.at_s = 100, .offset_s = 1}, {.at_s = 200, .offset_s = 3}}, .begun_s = 90};
    assert_int_equal(trace_ns(&t, 100), (int64_t)9e9);
    assert_int_equal(trace_ns(&t, 150), (int64_t)58e9);
    assert_int_equal(trace_ns(&t, 200), (int64_t)107e9);
    assert_int_equal(trace_ns(&t, 300), (int64_t)207e9);
    t.info.skew_s = 50;
    assert_int_equal(trace_ns(&t, 100), (int64_t)58e9);
}

/* A ring that is too small keeps the newest events, and says how many went. */
static void test_full_ring(void **state)
{
    (void)state;
    struct folder f;
    struct rules r;
    folder_open(&f);
    struct world_run w = {.folder = &f, .rounds = 4, .room = 16};
    run_world(&w);
    rules_read(&r, f.trace, WORKERS);
    rules_nesting(&r);
    rules_arrows(&r);
    rules_counters(&r);
    int64_t dropped = 0, kept = 0, end = -1;
    for (size_t i = 0; i < json_size(r.root); i++) {
        const struct json *v = json_at(r.root, i), *args = json_get(v, "args");
        if (!strcmp(rule_text(v, "name"), "tutti.collected")) dropped += json_int(json_get(args, "dropped"), 0);
        if (!strcmp(rule_text(v, "name"), "tutti.collected")) kept += json_int(json_get(args, "events"), 0);
        if (!strcmp(rule_text(v, "name"), "tutti.end")) end = json_int(json_get(args, "dropped"), -1);
    }
    assert_true(dropped > 0 && kept > 0 && kept <= 2 * WORKERS * 16);
    assert_int_equal(dropped, end);
    assert_true(count_of(&r, 0, "step") >= 1); /* a step is told after all that is in it */
    rules_free(&r);
    folder_close(&f);
}

static void test_ring(void **state)
{
    (void)state;
    struct trace_event ring[4];
    struct trace t;
    trace_init(&t, ring, sizeof ring);
    trace_add(&t, TRACE_PART, "off", 0, 1, 2);
    assert_int_equal(trace_kept(&t), 0);
    trace_add(NULL, TRACE_PART, "nobody", 0, 1, 2);
    trace_count(NULL, COUNTER_SLABS, 1);
    trace_turn(&t, true);
    for (int k = 0; k < 7; k++) {
        trace_add(&t, TRACE_PART, "part", k, k, k + 1);
        assert_int_equal(trace_kept(&t), k < 3 ? k + 1 : 4);
        assert_int_equal(trace_at(&t, 0)->step, k < 3 ? 0 : k - 3);
        assert_int_equal(trace_at(&t, trace_kept(&t) - 1)->step, k);
    }
    trace_init(&t, NULL, 0);
    trace_turn(&t, true);
    trace_add(&t, TRACE_PART, "no room", 0, 1, 2);
    assert_int_equal(trace_kept(&t), 0);
}

/* A run that is killed leaves lines that can be read one by one, up to the last collection. */
static void test_killed(void **state)
{
    (void)state;
    struct folder f;
    struct err e = {0};
    char *text;
    size_t n;
    int steps = 0, lines = 0;
    folder_open(&f);
    struct world_run w = {.folder = &f, .rounds = 7, .room = ROOM, .kill = true};
    run_world(&w);
    if (fs_read_all(f.trace, 1 << 24, &text, &n, &e)) fail_msg("%s", e.text);
    assert_true(str_starts(text, "[\n{\"name\":\"tutti.trace\""));
    for (char *p = text + 2, *end; *p; p = end + 1, lines++) {
        struct json *v;
        end = strchr(p, '\n');
        assert_non_null(end);
        assert_int_equal(end[-1], ',');
        if (json_parse(&v, p, (size_t)(end - 1 - p), "line", &e)) fail_msg("%s", e.text);
        steps += !strcmp(rule_text(v, "cat"), "step");
        json_free(v);
    }
    assert_int_equal(steps, 6 * WORKERS);
    xfree(text);
    folder_close(&f);
}

/* What cannot be written is refused before the first step, on all ranks. */
static void test_no_file(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result result;
    struct err e;
    folder_open(&f);
    int rc = train_ranks(&f, "nowhere", 2, KEYS("run.trace=/nonexistent/trace.json"), &result, &e);
    assert_true(rc != OK);
    assert_contains(e.text, "run.trace");
    assert_contains(e.text, "/nonexistent/");
    assert_int_equal(result.steps, 0);
    folder_close(&f);
}

/* What fails only later, when steps are done, ends the trace and not the run: a name that has no room for a temporary
 * one's ending. */
static void test_no_file_later(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result result;
    struct err e = {0};
    char key[400], name[251];
    folder_open(&f);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    snprintf(key, sizeof key, "run.trace=%.*s/%s", (int)strlen(f.dir), f.dir, name);
    assert_true(train_ranks(&f, "at once", 2, KEYS(key), &result, &e) != OK);
    assert_contains(e.text, "run.trace");
    if (train_ranks(&f, "later", 2, KEYS("run.trace_from=4", key), &result, &e)) fail_msg("%s", e.text);
    assert_true(result.steps >= 4);
    folder_close(&f);
}

/* The steps that were asked for, by number; and the same losses with and without a trace. */
static void test_which_steps(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result a, b;
    struct err e;
    struct rules r;
    char key[200];
    folder_open(&f);
    snprintf(key, sizeof key, "run.trace=%s", f.trace);
    if (train_ranks(&f, "traced", 2,
                    KEYS("run.trace_from=4", "run.trace_steps=3", "run.trace_collect=1", "parallel.zero=3",
                         "parallel.pp=1", key),
                    &a, &e))
        fail_msg("%s", e.text);
    if (train_ranks(&f, "plain", 2, KEYS("parallel.zero=3"), &b, &e)) fail_msg("%s", e.text);
    if (a.loss != b.loss) fail_msg("a trace changes the loss from %.17g to %.17g", b.loss, a.loss);
    rules_check(&r, f.trace, 2);
    int64_t want = 4;
    for (int i = 0; i < r.n; i++)
        if (r.box[i].pid == 1 && rule_is(&r.box[i], "step"))
            assert_int_equal(json_int(json_get(r.box[i].args, "step"), -1), want++);
    assert_int_equal(want, 7);
    rules_free(&r);
    folder_close(&f);
}

int main(void)
{
    setenv("LOG", "error", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),          cmocka_unit_test(test_drift),       cmocka_unit_test(test_clocks),
        cmocka_unit_test(test_full_ring),     cmocka_unit_test(test_killed),      cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_no_file_later), cmocka_unit_test(test_which_steps), cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
