/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* One bit flipped on one rank, in every kind of array that several ranks hold, in layouts of every kind: before it
 * ranks agree (also where replicas could seem to differ: dropout, bf16, uneven parts), after it the rank, the tensor
 * and the element are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "engine/replicas.h"
#include "machine.h"
#include "site/site.h"

enum { WEIGHT, MASTER, MOMENT_M, MOMENT_V, FACTORS, LARGEST /* values per tensor */ };
static const char *const arrays[] = {"weight", "master", "m", "v", "factors", "amax"};
#define ZERO "parallel.zero="

struct row {
    const char *keys;
    int ranks;
    int culprit; /* flips a bit */
    int array;
    const char *tensor;
    const char *says; /* who: the beginning of the text */
    int n_named;      /* 1, or both of two */
};

/* clang-format off */
static const struct row rows[] = {
    {"", 4, 2, WEIGHT, "layers.1.mlp.up.weight", "rank 2 has ", 1},
    {"", 4, 0, MOMENT_M, "norm.weight", "rank 0 has ", 1},
    {"", 2, 1, WEIGHT, "layers.0.attn.o.weight", "rank 1 has ", 2},
    {"precision.recipe=bf16", 3, 1, MASTER, "embed.token", "rank 1 has ", 1},
    {"precision.recipe=bf16", 3, 2, WEIGHT, "embed.token", "rank 2 has ", 1},
    {"precision.recipe=bf16 precision.grad=bf16 parallel.reduce=step", 3, 2, MOMENT_V, "head.weight", "rank 2 has ", 1},
    {"model.dropout=0.3 batch.global=7", 3, 2, WEIGHT, "head.weight", "rank 2 has ", 1},
    {"numerics.exact_order=true", 4, 3, WEIGHT, "layers.0.norm1.weight", "rank 3 has ", 1},
    {ZERO "1", 4, 3, WEIGHT, "layers.0.mlp.down.weight", "rank 3 has ", 1},
    {ZERO "2 precision.recipe=bf16", 4, 1, WEIGHT, "layers.0.mlp.down.weight", "rank 1 has ", 1},
    {ZERO "1 parallel.dp_replicate=3", 6, 3, MOMENT_V, "layers.1.attn.q.weight", "rank 3 has ", 1},
    {ZERO "3 parallel.dp_replicate=3", 6, 5, WEIGHT, "layers.1.attn.q.weight", "rank 5 has ", 1},
    {ZERO "3 parallel.dp_replicate=3 precision.recipe=bf16", 6, 0, MASTER, "layers.1.attn.q.weight", "rank 0 has ", 1},
    {"parallel.tp=3", 3, 1, WEIGHT, "layers.1.norm2.weight", "rank 1 has ", 1},
    {"parallel.tp=3 model.kv_heads=1", 3, 2, MOMENT_M, "layers.1.attn.k.weight", "rank 2 has ", 1},
    {"parallel.tp=2 parallel.sequence_parallel=true", 4, 1, WEIGHT, "norm.weight", "rank 1 has ", 1},
    {"parallel.tp=2 parallel.dp_replicate=3", 6, 4, WEIGHT, "layers.0.mlp.gate.weight", "rank 4 has ", 1}, /* columns */
    {"parallel.tp=2 parallel.dp_shard=3 " ZERO "1", 6, 2, WEIGHT, "layers.0.attn.o.weight", "rank 2 has ", 1},
    {"model.family=gpt2 parallel.tp=5 batch.micro=8 model.seq_len=48", 5, 3, MOMENT_V,
     "layers.1.attn.o.bias", "rank 3 has ", 1}, /* which has no head */
    {"optimizer.name=adafactor parallel.tp=4", 4, 2, FACTORS, "layers.0.attn.k.weight", "rank 2 has ", 1}, /* a rank has no head */
    {"optimizer.name=adafactor parallel.tp=4", 4, 1, FACTORS, "layers.0.mlp.up.weight", "rank 1 has ", 1},
    {"precision.recipe=fp8-delayed parallel.tp=5", 5, 1, LARGEST, "layers.1.attn.q.weight", "rank 1 has ", 1},
    {"precision.recipe=fp8-delayed model.family=gpt2 parallel.tp=4 parallel.dp_replicate=2", 8, 2, LARGEST, "layers.1.attn.o.weight", "rank 2 has ", 1},
    {"parallel.cp=3", 3, 0, WEIGHT, "layers.0.attn.q.weight", "rank 0 has ", 1},
    {"parallel.cp=3 " ZERO "2", 3, 2, WEIGHT, "layers.0.attn.q.weight", "rank 2 has ", 1},
    {"parallel.pp=2 model.tie_embeddings=true", 2, 1, WEIGHT, "embed.token", "rank 1 has ", 2},
    {"parallel.pp=2 model.tie_embeddings=true parallel.dp_shard=2", 4, 3, MOMENT_V, "embed.token", "rank 3 has ", 1},
    {"parallel.pp=2 model.tie_embeddings=true parallel.dp_shard=2 " ZERO "3 parallel.dp_replicate=2", 8, 6, WEIGHT, "embed.token", "rank 6 has ", 1},
    {"parallel.pp=2 parallel.schedule=dualpipe parallel.dp_replicate=2", 4, 1, WEIGHT, "layers.1.mlp.up.weight", "rank 1 has ", 1},
    {"model.family=mixtral model.moe.experts=4 parallel.ep=2", 6, 4, WEIGHT, "layers.0.moe.experts.1.up.weight", "rank 4 has ", 1},
    {"model.family=mixtral model.moe.experts=4 parallel.ep=2 parallel.tp=2 parallel.etp=1", 4, 3, WEIGHT, "layers.0.moe.router.weight", "rank 3 has ", 1},
    {"model.family=mixtral model.moe.experts=4 parallel.tp=2 parallel.etp=1 parallel.dp_shard=2", 4, 2, MOMENT_M, "layers.0.moe.experts.3.down.weight", "rank 2 has ", 1},
    {"model.family=deepseek model.moe.experts=4 model.moe.bias=true model.mla.kv_rank=4 model.mla.nope_dim=4 model.mla.rope_dim=2 model.mla.value_dim=4",
     3, 1, WEIGHT, "layers.1.moe.router.bias", "rank 1 has ", 1},
    {"comm.grad=int8", 3, 1, WEIGHT, "layers.1.mlp.up.weight", "rank 1 has ", 1},
    {ZERO "1 precision.recipe=bf16 comm.grad=fp8 comm.param=int8", 4, 2, WEIGHT, "layers.0.attn.o.weight", "rank 2 has ", 1},
    {ZERO "3 parallel.dp_replicate=3 precision.recipe=bf16 comm.grad=bf16 comm.param=fp8", 6, 5, MASTER, "layers.1.attn.q.weight", "rank 5 has ", 1},
    {"parallel.servers=1", 4, 1, WEIGHT, "layers.0.mlp.up.weight", "rank 1 has ", 1},
    {"parallel.servers=2", 5, 2, WEIGHT, "embed.token", "rank 2 has ", 1},
};
/* clang-format on */

struct job {
    const struct row *row;
    struct config c;
    int32_t *tokens; /* [4][global][seq]: tokens, targets, positions, documents */
    char element[64];
};

static void steps(const struct job *j, const struct site *at)
{
    const struct ranks *r = &at->ranks;
    struct engine_batch b = machine_part(&j->c, j->tokens, r->server < 0 ? r->part : 0);
    for (int s = 0; s < 2; s++) {
        struct engine_report report;
        if (at->serve) param_server_step(at->serve, r->server < 0 ? &b : NULL, s, 1e-2, &report);
        else engine_step(at->engine, &b, s, 1e-2, &report);
    }
}

/* In values per tensor, which all have whole. */
static void flip_of_tensor(struct job *j, struct engine *g, int i)
{
    int which = STORE_ROWS;
    while (which < g->store.n_arrays && strcmp(g->store.array[which].row.name, arrays[j->row->array])) which++;
    assert_true(which < g->store.n_arrays);
    struct array_span x = store_held(&g->store, i, which);
    int64_t at = x.n * 2 / 3;
    assert_true(x.n > 0);
    ((char *)device_here(array_at(&g->store.array[which], x.at + at)))[0] ^= 1;
    snprintf(j->element, sizeof j->element, "[%lld]", (long long)at);
}

/* Flips the lowest bit of an element in the middle of what this rank holds; says where that is in the whole tensor. */
static void flip(struct job *j, struct engine *g)
{
    const struct store *s = &g->store;
    int i = param_find(&g->params, j->row->tensor), array = j->row->array;
    assert_true(i >= 0);
    if (array >= FACTORS) {
        flip_of_tensor(j, g, i);
        return;
    }
    const struct param *p = &g->params.p[i];
    int64_t lo = s->units.piece[i].lo, n = s->units.piece[i].n;
    bool whole = array == WEIGHT ? store_param_is_whole(s) : store_state_is_whole(s);
    if (whole) lo = 0, n = p->held;
    int64_t at = lo + n * 2 / 3;
    assert_true(n > 0);
    if (array == WEIGHT) {
        size_t width = dtype_bytes(s->dtype);
        char *from = whole ? store_param_ptr(s, i) : (char *)store_piece_param(s, i) - to_size(lo) * width;
        ((char *)device_here(from))[to_size(at) * width] ^= 1;
    } else {
        int state = array == MASTER ? STORE_MASTER : STORE_ROWS + array - MASTER - 1;
        ((char *)device_here((float *)store_piece_ptr(s, i, state) + (at - s->units.piece[i].lo)))[0] ^= 1;
    }
    int64_t cols = p->nd > 1 ? p->ln[1] : 1;
    if (p->nd > 1)
        snprintf(j->element, sizeof j->element, "[%lld, %lld]", (long long)(p->lo[0] + at / cols),
                 (long long)(p->lo[1] + at % cols));
    else snprintf(j->element, sizeof j->element, "[%lld]", (long long)(p->lo[0] + at));
}

static int found(const struct job *j, const struct replicas_report *r, struct err *e)
{
    const struct row *row = j->row;
    bool named = r->n_ranks == row->n_named && r->decided == (row->n_named == 1) &&
                 !strncmp(r->text, row->says, strlen(row->says));
    for (int i = 0, culprit = 0; i < r->n_ranks; i++) {
        culprit += r->ranks[i] == row->culprit;
        if (i == r->n_ranks - 1) named &= culprit == 1;
    }
    if (!r->differ || !named || r->n_arrays != 1 || strcmp(r->tensor, row->tensor) ||
        strcmp(r->array, arrays[row->array]) || strcmp(r->element, j->element) || !strstr(r->text, row->tensor))
        return err_set(e, ERR_NUMERIC, "%s %s %s %s, %d ranks, %d arrays: %s", r->differ ? "differ" : "same", r->tensor,
                       r->array ? r->array : "-", r->element, r->n_ranks, r->n_arrays, r->text);
    return OK;
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    struct param_server_config sc = {0};
    struct replicas_report report;
    int rc =
        site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world, .serve = &sc}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    engine_init(g);
    if (at.serve) param_server_begin(at.serve, 0);
    rc = replicas_compare(g, &report, e);
    if (!rc && report.differ) rc = err_set(e, ERR_NUMERIC, "at the start: %s", report.text);
    steps(j, &at);
    if (!rc) rc = replicas_compare(g, &report, e);
    if (!rc && report.differ) rc = err_set(e, ERR_NUMERIC, "before the flip: %s", report.text);
    if (!(rc = comm_agree(world, rc, e))) {
        if (at.ranks.rank == j->row->culprit) flip(j, g);
        comm_wait(world, comm_barrier(world, "flipped"));
        rc = replicas_compare(g, &report, e);
        if (!rc) rc = found(j, &report, e); /* on every rank */
        rc = comm_agree(world, rc, e);
    }
    site_close(&at);
    return rc;
}

static void test_one_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena *a = arena_new();
        struct job j = {.row = &rows[i]};
        struct err e = {0};
        j.tokens = machine_toy(&j.c, a, arena_printf(a, "batch.global=8 batch.micro=1 %s", j.row->keys), j.row->ranks);
        struct comm_config cc = config_comm(&j.c);
        if (comm_run_local(rows[i].ranks, &cc, rank_main, &j, &e))
            fail_msg("'%s' on %d ranks, %s, wanted at %s: %s", rows[i].keys, rows[i].ranks, rows[i].tensor, j.element,
                     e.text);
        xfree(j.tokens);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
