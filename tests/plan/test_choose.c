/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* memory.limit and memory.recompute: auto. What is chosen fits, to the byte, at the least work among what was tried;
 * what waits on disk and the zero level are chosen where they are left open, and never where they are asked for;
 * a run and a plan choose alike; no bit of a run depends on it; what cannot be had is refused with how much is missing.
 */
#include "runs.h"

#include "config/config_offload.h"
#include "drawn.h"
#include "plan/plan.h"

static const char *const toy[] = {"model.layers=6", "model.hidden=64", "model.heads=4",    "model.kv_heads=2",
                                  "model.ffn=96",   "model.vocab=300", "model.seq_len=64", "batch.global=8",
                                  "batch.micro=4",  "run.threads=1"};

/* Enough of it that a disk saves more than it needs of memory itself (tier.h: two MiB). */
#define LARGER "model.hidden=160", "model.ffn=320", "model.seq_len=128"

static int load(struct config *c, struct conf **f, struct arena *a, int ranks, const char *const *more, struct err *e)
{
    char *keys[MAX_KEYS];
    int n = 0;
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) keys[n++] = arena_strdup(a, toy[i]);
    for (int i = 0; more && more[i]; i++) keys[n++] = arena_strdup(a, more[i]);
    *e = (struct err){0};
    int rc = config_load(c, f, a, NULL, keys, n, e);
    return rc ? rc : config_resolve(c, *f, 0, ranks, e);
}

static double peak(const struct config *c)
{
    struct plan p;
    struct err e = {0};
    if (plan_make(&p, c, &e)) fail_msg("%s", e.text);
    double most = 0;
    for (int i = 0; i < p.n_roles; i++) most = fmax(most, (double)p.role[i].peak_bytes);
    plan_free(&p);
    return most;
}

/* What is possible for n ranks: the bytes that nothing and everything computed again take. */
static void range(int ranks, const char *const *more, double *none, double *full)
{
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct err e;
    const char *keys[MAX_KEYS];
    int n = 0;
    while (more && more[n]) keys[n] = more[n], n++;
    keys[n] = NULL;
    if (load(&c, &f, a, ranks, keys, &e)) fail_msg("%s", e.text);
    *none = peak(&c);
    keys[n] = "memory.recompute=full";
    keys[n + 1] = NULL;
    if (load(&c, &f, a, ranks, keys, &e)) fail_msg("%s", e.text);
    *full = peak(&c);
    arena_free(a);
}

static double work_of(const struct chosen *x) { return x->tried[x->taken].cost.work; }

/* From all to the least memory: what is chosen fits, is what planning it says, and costs more the less there is. */
static void test_limits(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *key[8];
    } all[] = {
        {1, {"model.family=llama"}},
        {1, {"model.family=gpt2", "model.kv_heads=4", "precision.recipe=fp32"}},
        {1, {"model.family=mixtral", "model.moe.experts=4"}},
        {4, {"parallel.tp=2", "parallel.sequence_parallel=true", "parallel.zero=1"}},
        {4, {"parallel.pp=2", "parallel.schedule=1f1b", "batch.micro=1"}},
        {2, {"parallel.pp=2", "parallel.schedule=zbh1", "batch.micro=1"}},
        {4, {"parallel.pp=2", "parallel.schedule=zbh1", "batch.micro=1", "parallel.zero=3"}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        double none, full, before = -1;
        range(all[i].ranks, all[i].key, &none, &full);
        assert_true(full < none);
        for (int k = 0; k <= 4; k++) {
            struct arena *a = arena_new();
            struct config c;
            struct conf *f;
            struct chosen x;
            struct err e;
            const char *keys[16];
            int n = 0;
            while (all[i].key[n]) keys[n] = all[i].key[n], n++;
            double limit = k == 4 ? full : floor(none - k * (none - full) / 4);
            keys[n++] = "memory.recompute=auto";
            keys[n++] = arena_printf(a, "memory.limit=%.0f", limit);
            keys[n] = NULL;
            if (load(&c, &f, a, all[i].ranks, keys, &e)) fail_msg("%s", e.text);
            if (plan_choose(&c, &x, NULL, &e)) fail_msg("row %zu, limit %.0f: %s", i, limit, e.text);
            assert_true(x.taken >= 0 && x.tried[x.taken].cost.bytes <= limit);
            assert_true(peak(&c) == x.tried[x.taken].cost.bytes);
            assert_true(k > 0 || (!c.memory.chosen.again && work_of(&x) == 0));
            assert_true(work_of(&x) >= before && (k < 4 || c.parallel.zero || work_of(&x) > 0));
            before = work_of(&x);
            for (int t = 0; t < x.n; t++) { /* nobody waits for a disk: work is a longer step */
                const struct choose_cost *cost = &x.tried[t].cost;
                assert_true(cost->work == cost->step - x.tried[0].cost.step && cost->step > cost->flops);
                if (cost->bytes <= limit) assert_true(work_of(&x) <= cost->work);
            }
            arena_free(a);
        }
    }
}

/* With disk beside it: from all in memory to as little as there can be. What is chosen is what planning it says, to the
 * byte, the least work of what was tried, and below what computing everything again needs only disk is left. */
static void test_offload(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *key[8];
    } all[] = {
        {1, {"batch.micro=4", LARGER}},
        {1, {"optimizer.name=muon", LARGER, "model.seq_len=512"}}, /* cannot wait on disk, nor can weights beside it */
        {2, {"parallel.zero=3", "batch.micro=2", LARGER}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        double none, full, least, before = -1;
        struct arena *a = arena_new();
        const char *keys[16];
        int n = 0;
        bool muon = strstr(all[i].key[0], "muon") != NULL;
        range(all[i].ranks, all[i].key, &none, &full);
        while (all[i].key[n]) keys[n] = all[i].key[n], n++;
        keys[n] = muon ? "memory.offload=activations" : "memory.offload=[activations,optimizer,master,params]";
        keys[n + 1] = "memory.offload_to=.";
        keys[n + 2] = NULL;
        double kept;
        range(all[i].ranks, keys, &kept, &least);
        least = fmin(kept, least);
        assert_true(least < full);
        for (int k = 0; k <= 4; k++) {
            struct config c;
            struct conf *f;
            struct chosen x;
            struct err e;
            double limit = k == 4 ? least : floor(none - k * (none - least) / 4);
            keys[n] = "memory.recompute=auto";
            keys[n + 1] = "memory.offload=auto";
            keys[n + 2] = "memory.offload_to=.";
            keys[n + 3] = arena_printf(a, "memory.limit=%.0f", limit);
            keys[n + 4] = NULL;
            if (load(&c, &f, a, all[i].ranks, keys, &e)) fail_msg("%s", e.text);
            if (plan_choose(&c, &x, NULL, &e)) fail_msg("row %zu, limit %.0f: %s", i, limit, e.text);
            assert_true(x.taken >= 0 && x.tried[x.taken].cost.bytes <= limit);
            assert_true(peak(&c) == x.tried[x.taken].cost.bytes && c.memory.away == x.tried[x.taken].away);
            assert_true(k > 0 || (!c.memory.chosen.again && !c.memory.away && work_of(&x) == 0));
            assert_true(limit >= full || c.memory.away);
            assert_true(work_of(&x) >= before && !(muon && c.memory.away & ~AWAY_ACTIVATIONS));
            assert_true(!c.memory.away == (x.tried[x.taken].cost.moved == 0));
            before = work_of(&x);
            for (int t = 0; t < x.n; t++)
                if (x.tried[t].cost.bytes <= limit) assert_true(work_of(&x) <= x.tried[t].cost.work);
            struct str out = {0}, json = {0}, away = {0};
            struct plan p;
            plan_print_chosen(&x, &c, &out);
            config_offload_text(&c, &away);
            const char *star = strstr(str_text(&out), "\n* "), *under = NULL;
            for (const char *at = str_text(&out); (at = strstr(at + 1, "\non disk: ")) && at < star;) under = at + 10;
            if (k > 0) { /* in a run that keeps all, nothing else is tried */
                assert_non_null(star);
                assert_non_null(under);
                assert_memory_equal(under, c.memory.away ? str_text(&away) : "nothing",
                                    c.memory.away ? away.n : strlen("nothing"));
            }
            for (const char *line = str_text(&out); *line; line += strcspn(line, "\n") + 1)
                assert_true(strcspn(line, "\n") <= 100);
            if (plan_make(&p, &c, &e)) fail_msg("%s", e.text);
            plan_json(&p, &c, &x, &json);
            if (c.memory.away) assert_non_null(strstr(str_text(&json), str_text(&away)));
            plan_free(&p);
            str_free(&out);
            str_free(&json);
            str_free(&away);
        }
        arena_free(a);
    }
}

static void same_checkpoint(const struct folder *f, const char *a, const char *b, int ranks)
{
    for (int i = 0; i < ranks; i++) {
        char file[96];
        snprintf(file, sizeof file, "checkpoints/step-00000008/boxes-%05d.safetensors", i);
        same_file(f, a, b, file);
    }
}

/* Through the trainer: the same numbers, below the limit, and what the plan says. */
static void test_runs(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        if (!drawn_here(ranks, 2)) continue; /* every day one of them */
        struct folder f;
        struct trainer_result plain, chosen;
        struct err e;
        char limit[64], first[96];
        const char *const pp = ranks > 1 ? "parallel.pp=2" : "parallel.pp=1";
        const char *const keys[] = {LARGER, "model.layers=4", "batch.global=4", "batch.micro=1", pp, NULL};
        folder_open(&f);
        if (train_ranks(&f, "plain", ranks, keys, &plain, &e)) fail_msg("%s", e.text);
        const char *const tight[] =
            {LARGER, "model.layers=4", "batch.global=4", "batch.micro=1", pp, "memory.limit=100kB", NULL};
        assert_int_equal(train_ranks(&f, "tight", ranks, tight, &chosen, &e), ERR_REQUEST);
        double needs = 0;
        const char *at = strstr(e.text, "needs ");
        assert_non_null(at);
        (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(at + 6, ","), at + 6);
        assert_int_equal(str_to_bytes(first, &needs), 0);
        snprintf(limit, sizeof limit, "memory.limit=%.0f", 0.97 * needs);
        const char *const autom[] =
            {LARGER, "model.layers=4", "batch.global=4", "batch.micro=1", pp, limit, "memory.recompute=auto", NULL};
        if (train_ranks(&f, "auto", ranks, autom, &chosen, &e)) fail_msg("%s", e.text);
        assert_memory_equal(&plain.loss, &chosen.loss, sizeof plain.loss);
        same_checkpoint(&f, "plain", "auto", ranks);
        snprintf(limit, sizeof limit, "memory.limit=100kB"); /* what can be had without a disk, and then less */
        assert_int_equal(train_ranks(&f, "never", ranks, autom, &chosen, &e), ERR_REQUEST);
        at = strstr(e.text, "at least ");
        assert_non_null(at);
        (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(at + 9, "i") + 2, at + 9); /* "957 KiB" */
        assert_int_equal(str_to_bytes(first, &needs), 0);
        snprintf(limit, sizeof limit, "memory.limit=%.0f", 0.94 * needs);
        assert_int_equal(train_ranks(&f, "never", ranks, autom, &chosen, &e), ERR_REQUEST);
        assert_contains(e.text, "memory.offload=[");
        const char *const disk[] =
            {LARGER, "model.layers=4",        "batch.global=4",      "batch.micro=1",       pp,
             limit,  "memory.recompute=auto", "memory.offload=auto", "memory.offload_to=.", NULL};
        if (train_ranks(&f, "disk", ranks, disk, &chosen, &e)) fail_msg("%s", e.text);
        assert_memory_equal(&plain.loss, &chosen.loss, sizeof plain.loss);
        same_checkpoint(&f, "plain", "disk", ranks);
        folder_close(&f);
    }
}

/* A rank's bytes for exactly these keys, and what is sent over dp_shard: by the table that candidates are compared
 * with, and on the ledger of a step. */
static double peak_of(int ranks, const char *const *keys, double *by_table, double *on_ledger)
{
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct err e;
    struct plan p;
    double most = 0;
    if (load(&c, &f, a, ranks, keys, &e) || plan_make(&p, &c, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < p.n_roles; i++) most = fmax(most, (double)p.role[i].peak_bytes);
    if (by_table) *by_table = p.role[0].sent;
    if (on_ledger) *on_ledger = (double)p.role[0].comm[AXIS_DP_SHARD].bytes;
    plan_free(&p);
    arena_free(a);
    return most;
}

/* What a zero level sends in a step is what candidates are charged for, within small sums, and the last unit, which at
 * zero 3 is gathered once for forward and backward where there is one microbatch. */
static void test_sent(void **state)
{
    (void)state;
    static const char *const more[][3] = {{"batch.micro=2"},
                                          {"batch.micro=1", "parallel.reduce=step"},
                                          {"batch.micro=1", "parallel.reduce=microbatch"},
                                          {"batch.micro=1", "precision.recipe=fp32"},
                                          {"batch.micro=1", "comm.grad=fp8", "comm.param=int8"},
                                          {"batch.micro=1", "parallel.pp=2", "parallel.schedule=zbh1"}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        for (int zero = 0; zero <= 3; zero++) {
            char level[32];
            double by_table, on_ledger;
            snprintf(level, sizeof level, "parallel.zero=%d", zero);
            const char *const keys[] = {level,      "model.vocab=64", "model.layers=12",
                                        more[i][0], more[i][1],       more[i][1] ? more[i][2] : NULL,
                                        NULL};
            peak_of(4, keys, &by_table, &on_ledger);
            if (fabs(by_table / on_ledger - 1) > 0.04)
                fail_msg("row %zu, zero %d: %.0f by the table, %.0f sent", i, zero, by_table, on_ledger);
        }
}

static struct chosen take(int ranks, const char *const *more, double limit, struct config *c, struct arena *a,
                          struct err *e)
{
    struct conf *f;
    struct chosen x;
    const char *keys[MAX_KEYS];
    int n = 0;
    while (more[n]) keys[n] = more[n], n++;
    keys[n++] = "memory.recompute=auto";
    keys[n++] = arena_printf(a, "memory.limit=%.0f", floor(limit));
    keys[n] = NULL;
    if (load(c, &f, a, ranks, keys, e)) fail_msg("%s", e->text);
    int rc = plan_choose(c, &x, NULL, e);
    assert_int_equal(rc, x.taken < 0 ? ERR_REQUEST : OK);
    return x;
}

/* What the config leaves open is chosen, and only that: a limit that sharing out alone can meet, one that a disk alone
 * can, one that nothing can. */
static void test_left_open(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct config c;
    struct chosen x;
    struct err e;
    struct plan p;
    struct str out = {0}, json = {0};
    double least_zero0 = peak_of(4, KEYS("batch.micro=2", "memory.recompute=full"), NULL, NULL),
           plain1 = peak_of(4, KEYS("batch.micro=2", "parallel.zero=1"), NULL, NULL),
           least2 = peak_of(4, KEYS("batch.micro=2", "memory.recompute=full", "parallel.zero=2"), NULL, NULL);
    assert_true(plain1 < least_zero0);
    x = take(4, KEYS("batch.micro=2"), 1e9, &c, a, &e); /* all fits: nothing is chosen */
    assert_true(x.n == 1 && c.parallel.zero == 0 && !c.memory.chosen.again);
    x = take(4, KEYS("batch.micro=2"), plain1, &c, a, &e);
    assert_true(c.parallel.zero >= 1 && peak(&c) == x.tried[x.taken].cost.bytes && peak(&c) <= plain1);
    for (int i = 0; i < x.n; i++)
        if (x.tried[i].cost.bytes <= plain1)
            assert_true(choose_work(&x.tried[x.taken].cost) <= choose_work(&x.tried[i].cost));
    plan_print_chosen(&x, &c, &out);
    assert_non_null(strstr(str_text(&out), "computed again and shared out, chosen for memory.limit"));
    const char *star = strstr(str_text(&out), "\n* "), *under = NULL;
    for (const char *at = str_text(&out); (at = strstr(at + 1, "\nzero ")) && at < star;) under = at + 6;
    assert_non_null(star);
    assert_non_null(under);
    assert_int_equal(atoi(under), c.parallel.zero);
    for (const char *line = str_text(&out); *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    if (plan_make(&p, &c, &e)) fail_msg("%s", e.text);
    plan_json(&p, &c, &x, &json);
    struct json *j;
    if (json_parse(&j, json.p, json.n, "plan", &e)) fail_msg("%s", e.text);
    const struct json *taken = json_get(json_get(j, "recompute"), "chosen");
    assert_true(json_real(json_get(taken, "zero"), -1) == (double)c.parallel.zero);
    assert_true(json_real(json_get(taken, "sent_step_bytes"), 0) == x.tried[x.taken].cost.sent);
    json_free(j);
    plan_free(&p);
    /* asked for: never changed */
    x = take(4, KEYS("batch.micro=2", "parallel.zero=0"), least2, &c, a, &e);
    assert_true(x.taken < 0 && c.parallel.zero == 0 && strstr(e.text, "parallel.zero="));
    /* weights of fp32 are their own masters: at zero 1 and 2 comm.param would round them, and is refused there */
    x = take(4, KEYS("batch.micro=2", "precision.recipe=fp32", "comm.param=bf16"), 3 * least2, &c, a, &e);
    for (int i = 0; i < x.n; i++) assert_true(x.tried[i].zero == 0 || x.tried[i].zero == 3);
    /* one rank has nobody to share with: only a disk */
    double full = peak_of(1, KEYS("memory.recompute=full", LARGER), NULL, NULL);
    x = take(1, KEYS("batch.micro=4", LARGER, "memory.offload_to=."), 0.8 * full, &c, a, &e);
    assert_true(x.taken >= 0 && c.memory.away && c.memory.offload.n == 1 && peak(&c) <= 0.8 * full);
    x = take(1, KEYS("batch.micro=4", LARGER, "memory.offload_to=.", "memory.offload=[]"), 0.8 * full, &c, a, &e);
    assert_true(x.taken < 0 && !c.memory.away);
    x = take(1, KEYS("batch.micro=4", LARGER), 0.97 * full, &c, a,
             &e); /* no folder, no disk; it is said that one would do */
    assert_true(x.taken < 0 && !c.memory.away);
    assert_non_null(strstr(e.text, "batch.micro=2 fits"));
    x = take(1, KEYS("batch.micro=1", LARGER),
             0.8 * peak_of(1, KEYS("batch.micro=1", LARGER, "memory.recompute=full"), NULL, NULL), &c, a, &e);
    assert_non_null(strstr(e.text, "to a folder fits"));
    /* both, and the least that all of it can do */
    x = take(4, KEYS("batch.micro=2", LARGER, "memory.offload_to=."), 10e3, &c, a, &e);
    assert_true(x.taken < 0);
    assert_non_null(strstr(e.text, "at the zero level that needs least"));
    double least = 1e30;
    for (int i = 0; i < x.n; i++) least = fmin(least, x.tried[i].cost.bytes);
    x = take(4, KEYS("batch.micro=2", LARGER, "memory.offload_to=."), least, &c, a, &e);
    assert_true(x.taken >= 0 && c.memory.away && c.parallel.zero && peak(&c) == least);
    x = take(4, KEYS("batch.micro=2", LARGER, "memory.offload_to=."), least - 1024, &c, a, &e);
    if (!strstr(e.text, ": 1.0 KiB more. batch.micro=1 fits (")) fail_msg("%s", e.text);
    str_free(&out);
    str_free(&json);
    arena_free(a);
}

/* parallel.zero as a run wrote it into its config.yaml. */
static int level_of(const struct folder *f, const char *name)
{
    size_t n;
    int level = -1;
    char *text = read_file(f, name, "config.yaml", &n);
    for (size_t i = 0; i + 7 < n; i++)
        if (!memcmp(text + i, " zero: ", 7)) level = atoi(text + i + 7);
    xfree(text);
    return level;
}

/* Trained with: the bits of the same zero level written out by hand, and of zero 0. */
static void test_shared_runs(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result plain, chosen, hand;
    struct err e;
    char limit[64], level[32];
    folder_open(&f);
    if (train_ranks(&f, "plain", 2, KEYS("model.vocab=300"), &plain, &e)) fail_msg("%s", e.text);
    assert_int_equal(train_ranks(&f, "tight", 2, KEYS("model.vocab=300", "memory.limit=10kB"), &chosen, &e),
                     ERR_REQUEST);
    char needs[32];
    double bytes = 0;
    const char *told = strstr(e.text, "needs ");
    assert_non_null(told);
    (void)snprintf(needs, sizeof needs, "%.*s", (int)strcspn(told + 6, ","), told + 6);
    assert_int_equal(str_to_bytes(needs, &bytes), 0);
    snprintf(limit, sizeof limit, "memory.limit=%.0f", 0.8 * bytes); /* held to by the run itself */
    if (train_ranks(&f, "auto", 2, KEYS("model.vocab=300", "memory.recompute=auto", limit), &chosen, &e))
        fail_msg("%s", e.text);
    int zero = level_of(&f, "auto");
    assert_in_range(zero, 1, 3);
    snprintf(level, sizeof level, "parallel.zero=%d", zero);
    if (train_ranks(&f, "hand", 2, KEYS("model.vocab=300", level), &hand, &e)) fail_msg("%s", e.text);
    assert_memory_equal(&plain.loss, &chosen.loss, sizeof plain.loss);
    assert_memory_equal(&hand.loss, &chosen.loss, sizeof hand.loss);
    same_checkpoint(&f, "hand", "auto", 2);
    folder_close(&f);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key[4], *says;
    } all[] = {
        {{"memory.recompute=auto"}, "memory.limit"},
        {{"memory.recompute=norm"}, "did you mean norms"},
        {{"memory.recompute=[]"}, "none is the word"},
        {{"memory.recompute=[none, norms]"}, "none stands alone"},
        {{"memory.recompute=[full, norms]"}, "full stands alone"},
        {{"memory.recompute=auto", "memory.limit=1GiB", "memory.recompute_layers=2"}, "recompute_layers"},
        {{"memory.offload=auto", "memory.offload_to=."}, "choose memory.recompute: auto, too"},
        {{"memory.offload=auto", "memory.recompute=auto", "memory.limit=1GiB"}, "choose a folder"},
        {{"memory.offload=[auto,master]", "memory.recompute=auto", "memory.limit=1GiB"}, "auto stands alone"},
        {{"memory.limit=many"}, "such as 800MiB"},
        {{"memory.limit=-3GiB"}, "such as 800MiB"},
        {{"memory.limit=3GiBs"}, "such as 800MiB"},
        {{"memory.limit=1e400"}, "such as 800MiB"},
        {{"memory.limit=0"}, "such as 800MiB"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct arena *a = arena_new();
        struct config c;
        struct conf *f;
        struct err e;
        assert_int_equal(load(&c, &f, a, 1, all[i].key, &e), ERR_REQUEST);
        if (!strstr(e.text, all[i].says)) fail_msg("row %zu: %s", i, e.text);
        arena_free(a);
    }
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct chosen x;
    struct err e;
    double none, full;
    range(1, NULL, &none, &full);
    const char *const little[] = {"memory.recompute=auto", arena_printf(a, "memory.limit=%.0f", full - 1024 * 10),
                                  NULL};
    if (load(&c, &f, a, 1, little, &e)) fail_msg("%s", e.text);
    assert_int_equal(plan_choose(&c, &x, NULL, &e), ERR_REQUEST);
    if (!strstr(e.text, "10.0 KiB more. batch.micro=2 fits (")) fail_msg("%s", e.text);
    double one, three;
    range(4, (const char *const[]){"batch.micro=1", "parallel.zero=1", NULL}, &none, &one);
    range(4, (const char *const[]){"batch.micro=1", "parallel.zero=3", NULL}, &none, &three);
    const char *limit = arena_printf(a, "memory.limit=%.0f", floor((one + three) / 2));
    const char *const sharded[] = {"memory.recompute=auto", "batch.micro=1", "parallel.zero=1", limit, NULL};
    if (load(&c, &f, a, 4, sharded, &e)) fail_msg("%s", e.text);
    assert_int_equal(plan_choose(&c, &x, NULL, &e), ERR_REQUEST);
    const char *fits = strstr(e.text, "parallel.zero=");
    if (!fits) fail_msg("%s", e.text);
    const char *const advised[] = {"memory.recompute=full", "batch.micro=1", arena_printf(a, "%.15s", fits),
                                   NULL}; /* to the letter */
    if (load(&c, &f, a, 4, advised, &e)) fail_msg("%s", e.text);
    assert_true(peak(&c) <= (one + three) / 2);
    const char *const hopeless[] = {"memory.recompute=auto", "memory.limit=10kB", NULL};
    if (load(&c, &f, a, 1, hopeless, &e)) fail_msg("%s", e.text);
    assert_int_equal(plan_choose(&c, &x, NULL, &e), ERR_REQUEST);
    assert_null(strstr(e.text, "fits ("));
    arena_free(a);
}

static void test_table(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct config c;
    struct conf *f;
    struct chosen x;
    struct err e;
    struct str out = {0}, json = {0};
    double none, full;
    struct plan p;
    range(1, NULL, &none, &full);
    const char *const half[] = {"memory.recompute=auto", arena_printf(a, "memory.limit=%.0f", (none + full) / 2), NULL};
    if (load(&c, &f, a, 1, half, &e) || plan_choose(&c, &x, NULL, &e) || plan_make(&p, &c, &e)) fail_msg("%s", e.text);
    plan_print_chosen(&x, &c, &out);
    plan_json(&p, &c, &x, &json);
    assert_non_null(strstr(str_text(&out), "\n* "));
    assert_non_null(strstr(str_text(&out), "\n  nothing"));
    for (const char *line = str_text(&out); *line; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    struct json *j;
    if (json_parse(&j, json.p, json.n, "plan", &e)) fail_msg("%s", e.text);
    const struct json *r = json_get(j, "recompute");
    assert_non_null(r);
    assert_true(json_real(json_get(json_get(r, "chosen"), "peak_bytes"), 0) <=
                json_real(json_get(r, "limit_bytes"), 0));
    json_free(j);
    plan_free(&p);
    str_free(&out);
    str_free(&json);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),  cmocka_unit_test(test_offload),   cmocka_unit_test(test_runs),
        cmocka_unit_test(test_sent),    cmocka_unit_test(test_left_open), cmocka_unit_test(test_shared_runs),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
