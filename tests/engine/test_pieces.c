/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* Products and messages in pieces of rows beside the same layout without: the same bits in every gradient, value and
 * loss, on every rank; the same bytes in more operations; and what the null device counts is what was sent and
 * allocated. With reference kernels any number of rows may be cut, with the fast ones more than the few that they
 * multiply in another way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "config/ranks.h"

enum { MAX_RANKS = 6, MAX_KEYS = 12 };

struct trial {
    const struct config *c;
    struct pieces_rule rule;
    const int32_t *tokens;
    uint64_t bits[MAX_RANKS];
    double loss, eval;
    int64_t instructions; /* of rank 0's programs */
    struct comm_traffic sent[MAX_RANKS];
    struct ledger ledger[MAX_RANKS];
};

static struct comm_traffic sent_by(const struct ranks *r)
{
    struct comm_traffic by[AXIS_N], sum = {0};
    ranks_traffic(r, by);
    for (int a = 0; a < AXIS_N; a++) {
        sum.bytes += by[a].bytes;
        sum.messages += by[a].messages;
        sum.operations += by[a].operations;
    }
    return sum;
}

static void add_pieces(struct hash64 *h, const struct engine *g)
{
    for (int i = 0; i < g->params.n; i++) {
        size_t n = to_size(g->store.units.piece[i].n);
        hash64_add(h, device_here(store_piece_grad(&g->store, i)), n * dtype_bytes(g->store.grad_dtype));
        hash64_add(h, device_here(store_piece_ptr(&g->store, i, STORE_MASTER)), n * 4);
    }
}

static struct engine_batch batch_of(const struct trial *t, int part)
{
    const struct config *c = t->c;
    int64_t first, n, seq = c->model.seq_len, field = c->batch.global * seq;
    config_part(c, part, &first, &n);
    const int32_t *at = t->tokens + first * seq;
    struct engine_batch b = {.tokens = at,
                             .targets = at + field,
                             .positions = at + 2 * field,
                             .docs = at + 3 * field,
                             .n = n,
                             .first = first};
    for (int64_t i = 0; i < n * seq; i++) b.n_trained += b.targets[i] >= 0;
    return b;
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct trial *t = arg;
    struct engine_config ec = config_engine(t->c);
    struct engine_report report;
    struct device *d = NULL;
    struct engine *g = NULL;
    struct ranks r;
    struct hash64 h;
    int rc = ranks_init(&r, world, t->c, e);
    if (rc) return rc;
    ranks_engine(&r, &ec);
    ec.pieces = t->rule;
    rc = device_cpu_new(&d, ec.threads, e);
    if (!rc) rc = engine_new(&g, &ec, d, e);
    if (!rc) {
        struct engine_batch b = batch_of(t, r.part);
        hash64_init(&h);
        engine_init(g);
        for (int s = 0; s < g->n_stages; s++) {
            program_check(g->stage[s].train);
            program_check(g->stage[s].eval);
            if (r.rank == 0) t->instructions += g->stage[s].train->begin[PHASE_N] + g->stage[s].eval->begin[PHASE_N];
        }
        struct comm_traffic before = sent_by(&r);
        engine_step(g, &b, 0, 1e-3, &report);
        t->sent[r.rank] = sent_by(&r);
        t->sent[r.rank].bytes -= before.bytes;
        t->sent[r.rank].messages -= before.messages;
        t->sent[r.rank].operations -= before.operations;
        t->ledger[r.rank] = d->ledger;
        add_pieces(&h, g);
        engine_step(g, &b, 1, 1e-3, &report);
        add_pieces(&h, g);
        t->bits[r.rank] = hash64_value(&h);
        if (r.rank == 0) t->loss = report.loss;
        engine_evaluate(g, &b, &report);
        if (r.rank == 0) t->eval = report.loss;
        rc = engine_status(g, e);
    }
    engine_free(g);
    ranks_fini(&r);
    if (d) device_free(d);
    return rc;
}

/* The same step of one rank where nothing is there. */
static void against_null(const struct trial *t, int rank, int n)
{
    struct engine_config ec = config_engine(t->c);
    struct engine_batch nothing = {0};
    struct engine_report report;
    struct device *d;
    struct engine *g;
    struct comm *world = NULL;
    struct ranks r;
    struct err e = {0};
    if (device_null_new(&d, &e) || comm_world_null(&world, rank, n, NULL, &e) || ranks_init(&r, world, t->c, &e))
        fail_msg("%s", e.text);
    ranks_engine(&r, &ec);
    ec.pieces = t->rule;
    if (engine_new(&g, &ec, d, &e)) fail_msg("%s", e.text);
    engine_init(g);
    struct comm_traffic before = sent_by(&r);
    engine_step(g, &nothing, 0, 1e-3, &report);
    struct comm_traffic after = sent_by(&r);
    assert_int_equal(after.bytes - before.bytes, t->sent[rank].bytes);
    assert_int_equal(after.messages - before.messages, t->sent[rank].messages);
    assert_int_equal(after.operations - before.operations, t->sent[rank].operations);
    assert_memory_equal(d->ledger.at_peak, t->ledger[rank].at_peak, sizeof d->ledger.at_peak);
    engine_free(g);
    ranks_fini(&r);
    comm_free(world);
    device_free(d);
}

static int32_t *random_tokens(const struct config *c)
{
    int64_t n = c->batch.global * c->model.seq_len;
    int32_t *t = xcalloc(to_size(4 * n), sizeof *t);
    for (int64_t i = 0; i < n; i++) {
        t[i] = (int32_t)(rng_u32(7, 1, (uint64_t)i) % (uint64_t)c->model.vocab);
        t[n + i] =
            rng_u32(7, 3, (uint64_t)i) % 8 ? (int32_t)(rng_u32(7, 2, (uint64_t)i) % (uint64_t)c->model.vocab) : -1;
        t[2 * n + i] = (int32_t)(i % c->model.seq_len);
    }
    return t;
}

static void run(struct trial *t, int n, struct pieces_rule rule)
{
    struct err e = {0};
    struct comm_config cc = config_comm(t->c);
    t->rule = rule;
    if (comm_run_local(n, &cc, rank_main, t, &e)) fail_msg("%s", e.text);
}

static void compare(const char *const *keys, int n, struct pieces_rule rule, bool cuts)
{
    static const char *const toy[] = {"model.layers=2", "model.hidden=36",  "model.heads=3",        "model.ffn=52",
                                      "model.vocab=67", "model.seq_len=23", "run.threads=1",        "comm.timeout_s=60",
                                      "batch.global=2", "batch.micro=1",    "precision.recipe=fp32"};
    char *all[32], name[400] = "";
    int k = 0;
    struct err e = {0};
    struct conf *f;
    struct config c;
    struct arena *a = arena_new();
    for (size_t i = 0; i < sizeof toy / sizeof *toy; i++) all[k++] = arena_strdup(a, toy[i]);
    for (int i = 0; i < MAX_KEYS && keys[i]; i++) {
        all[k++] = arena_strdup(a, keys[i]);
        snprintf(name + strlen(name), sizeof name - strlen(name), " %s", keys[i]);
    }
    if (config_load(&c, &f, a, NULL, all, k, &e) || config_resolve(&c, f, 0, n, &e)) fail_msg("%s:%s", name, e.text);
    c.parallel.ranks_here = n;
    struct trial whole = {.c = &c, .tokens = random_tokens(&c)}, cut = whole;
    run(&whole, n, (struct pieces_rule){0});
    run(&cut, n, rule);
    for (int r = 0; r < n; r++) {
        if (whole.bits[r] != cut.bits[r]) fail_msg("%s in %d pieces: other bits on rank %d", name, rule.most, r);
        assert_int_equal(whole.sent[r].bytes, cut.sent[r].bytes);
        assert_true(cuts ? cut.sent[r].operations > whole.sent[r].operations
                         : cut.sent[r].operations == whole.sent[r].operations);
        assert_true(cut.sent[r].messages >= whole.sent[r].messages);
        against_null(&cut, r, n);
    }
    assert_true(whole.loss == cut.loss && whole.eval == cut.eval);
    assert_true(cuts ? cut.instructions > whole.instructions : cut.instructions == whole.instructions);
    xfree((void *)(uintptr_t)whole.tokens);
    arena_free(a);
}

#define SEQ "parallel.sequence_parallel=true"
#define REF "run.kernels=ref"

/* Rows that pieces and ranks do not divide, a single row, ranks without rows. */
static void test_any_rows(void **state)
{
    (void)state;
    static const struct {
        const char *seq, *sequence;
        int tp, pieces;
    } all[] = {
        {"model.seq_len=23", NULL, 2, 2}, {"model.seq_len=23", NULL, 3, 5}, {"model.seq_len=1", NULL, 2, 2},
        {"model.seq_len=23", SEQ, 2, 2},  {"model.seq_len=23", SEQ, 3, 4},  {"model.seq_len=2", SEQ, 3, 2},
        {"model.seq_len=1", SEQ, 2, 3},   {"model.seq_len=5", SEQ, 4, 8},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char tp[32];
        snprintf(tp, sizeof tp, "parallel.tp=%d", all[i].tp);
        const char *keys[] = {REF, all[i].seq, tp, all[i].sequence, NULL};
        compare(keys, all[i].tp, (struct pieces_rule){.most = all[i].pieces}, true);
    }
}

static void test_models_and_layouts(void **state)
{
    (void)state;
    static const struct {
        const char *keys[MAX_KEYS];
        int ranks;
    } all[] = {
        {{"model.family=gpt2", "model.dropout=0.1", "model.tie_embeddings=true", "parallel.tp=2"}, 2},
        {{"model.family=gpt2", "model.dropout=0.1", "parallel.tp=2", SEQ}, 2},
        {{"memory.recompute=full", "parallel.tp=2", "precision.recipe=bf16"}, 2},
        {{"memory.recompute=full", "parallel.tp=2", SEQ, "parallel.zero=3"}, 4},
        {{"parallel.tp=2", "parallel.pp=2", "batch.global=3", "parallel.schedule=zbh1"}, 4},
        {{"parallel.tp=2", SEQ, "parallel.pp=2", "batch.global=3", "parallel.schedule=zbh1", "precision.recipe=bf16"},
         4},
        {{"parallel.tp=2", SEQ, "parallel.pp=2", "batch.global=3"}, 4},
        {{"parallel.tp=2", "parallel.cp=2", SEQ}, 4},
        {{"model.family=mixtral", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=20", "parallel.tp=2", SEQ},
         2},
        {{"model.family=deepseek", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=20", "model.moe.shared=1",
          "model.mla.kv_rank=10", "model.mla.nope_dim=7", "model.mla.rope_dim=6", "model.mla.value_dim=9",
          "parallel.tp=2"},
         2},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *keys[MAX_KEYS + 1] = {REF};
        for (int k = 0; k < MAX_KEYS - 1 && all[i].keys[k]; k++) keys[k + 1] = all[i].keys[k];
        compare(keys, all[i].ranks, (struct pieces_rule){.most = 3}, true);
    }
}

/* The kernels that training uses, with messages moved by a thread and by the rank, over a link that takes its time. */
static void test_fast_kernels(void **state)
{
    (void)state;
    for (int v = 0; v < 8; v++) {
        const char *keys[] = {"model.seq_len=150",
                              "parallel.tp=2",
                              v & 1 ? SEQ : "batch.micro=1",
                              v & 2 ? "precision.recipe=bf16" : "precision.recipe=fp32",
                              v & 4 ? "comm.progress=thread" : "comm.progress=inline",
                              "comm.link_GBps=0.5",
                              NULL};
        compare(keys, 2, (struct pieces_rule){.most = 4, .least_rows = 33}, true);
    }
}

/* Small messages, few rows, one piece: nothing is cut. */
static void test_not_worth_it(void **state)
{
    (void)state;
    const char *keys[] = {"parallel.tp=2", NULL, NULL}, *sequence[] = {"parallel.tp=2", SEQ, NULL};
    compare(keys, 2, (struct pieces_rule){.most = 1}, false);
    compare(keys, 2, (struct pieces_rule){.most = 4, .least_bytes = 36 * 23 * 4 / 2 + 1}, false);
    compare(keys, 2, (struct pieces_rule){.most = 4, .least_rows = 12}, false);
    compare(sequence, 2, (struct pieces_rule){.most = 4, .least_rows = 6}, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_rows),
        cmocka_unit_test(test_models_and_layouts),
        cmocka_unit_test(test_fast_kernels),
        cmocka_unit_test(test_not_worth_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
