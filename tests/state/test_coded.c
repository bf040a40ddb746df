/* SPDX-License-Identifier: Apache-2.0 */
/* test_coded.c: gradients that travel encoded (state/coded.h), or as they are, against a literal reference, to the bit:
 * every codec, zero level, several degrees of dp_shard and dp_replicate, one and several contributions per step, with
 * numbers that are not finite among them. The reference knows ranks, rows and columns, and no message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "drawn.h"
#include "kernel/codec_spec.h"
#include "machine.h"
#include "site/site.h"
#include "sanitized.h"

enum { ROUNDS = 2 };
struct trial {
    struct config *c;
    int shard, replicate;
    bool bad;   /* some numbers are not finite */
    bool each;  /* contributions are added over ranks one by one */
    bool apart; /* a unit leaves in two goes, every second parameter in each */
    bool *leaves[2];
    float *want;
    char wrong[160];
};

/* Of rank `who` (replica * shard + place), contribution `round`: of all sizes. */
static float number(const struct trial *t, int who, int round, int param, int64_t i)
{
    uint64_t stream = (uint64_t)(who * ROUNDS + round), at = (uint64_t)param << 32 | (uint64_t)i;
    uint32_t word = rng_u32(3, stream, at);
    if (t->bad && word % 997 == 0) return word % 2 ? NAN : INFINITY;
    return ldexpf(rng_normal(4, stream, at), (int)(word % 12) - 6 - (int)(i / 32 % 5));
}

/* ---- the reference ---- */
static void through(enum codec c, const struct param *p, float *x)
{
    if (p->nd < 2 || c == CODEC_KEPT) return;
    struct codec_rows rows = {p->numel / p->n[p->nd - 1], p->n[p->nd - 1], 0};
    float *y = xmalloc(to_size(p->numel) * sizeof *y);
    codec_defined(c, x, &rows, y);
    memcpy(x, y, to_size(p->numel) * sizeof *y);
    xfree(y);
}

static void add(float *to, const float *x, int64_t n, bool first)
{
    for (int64_t i = 0; i < n; i++) to[i] = first ? x[i] : to[i] + x[i];
}

/* What the ranks of replica q make of their contributions. */
static void sum_replica(const struct trial *t, const struct param *p, int param, int q, bool each, float *sum)
{
    enum codec c = config_engine(t->c).comm_grad;
    size_t bytes = to_size(p->numel) * sizeof(float);
    float *x = xmalloc(bytes), *one = xmalloc(bytes), *ranks = xmalloc(bytes);
    for (int round = 0; round < (each ? ROUNDS : 1); round++) {
        for (int s = 0; s < t->shard; s++) {
            for (int k = round; k < (each ? round + 1 : ROUNDS); k++) {
                for (int64_t i = 0; i < p->numel; i++) one[i] = number(t, q * t->shard + s, k, param, i);
                add(x, one, p->numel, k == round);
            }
            if (t->shard > 1) through(c, p, x);
            add(ranks, x, p->numel, s == 0);
        }
        add(sum, ranks, p->numel, round == 0);
    }
    xfree(x);
    xfree(one);
    xfree(ranks);
}

static void reference(struct trial *t, const struct param_table *p)
{
    enum codec c = config_engine(t->c).comm_grad;
    for (int i = 0; i < p->n; i++) {
        float *sum = t->want + p->p[i].offset, *one = xmalloc(to_size(p->p[i].numel) * sizeof *one);
        for (int q = 0; q < t->replicate; q++) {
            sum_replica(t, &p->p[i], i, q, t->each, one);
            if (t->replicate > 1) through(c, &p->p[i], one);
            add(sum, one, p->p[i].numel, q == 0);
        }
        through(c, &p->p[i], sum);
        xfree(one);
    }
}

/* ---- a rank ---- */
static void contribute(const struct trial *t, struct engine *g, int who, int round)
{
    struct exchange *x = &g->exchange;
    bool temporary = store_grad_is_temporary(&g->store);
    for (int u = g->store.units.n - 1; u >= 0; u--) {
        const struct unit *unit = &g->store.units.unit[u];
        if (temporary) exchange_slot_free(x, 0);
        for (int i = unit->first; i < unit->first + unit->n; i++) {
            float *to = device_here(exchange_grad_ptr(x, i, temporary ? 0 : -1));
            stream_sync(g->stream);
            for (int64_t k = 0; k < g->params.p[i].held; k++) {
                float v = number(t, who, round, i, k);
                to[k] = temporary || !round ? v : to[k] + v;
            }
        }
        bool last = round == ROUNDS - 1;
        if (temporary && t->apart) {
            exchange_reduce(x, u, 0, t->leaves[0], false);
            exchange_slot_free(x, 0);
        }
        if (temporary) exchange_reduce(x, u, 0, t->apart ? t->leaves[1] : NULL, last);
        else if (last) exchange_reduce(x, u, -1, NULL, true);
    }
}

/* What this rank steps, and at zero 0 that is all. */
static void compare(struct trial *t, struct engine *g)
{
    for (int i = 0; i < g->params.n && !t->wrong[0]; i++) {
        struct piece piece = g->store.units.piece[i];
        bool whole = store_state_is_whole(&g->store);
        int64_t lo = whole ? 0 : piece.lo, n = whole ? g->params.p[i].held : piece.n;
        const float *at = whole ? store_grad_ptr(&g->store, i) : store_piece_grad(&g->store, i);
        float *room = xmalloc(to_size(n) * sizeof *room + 4);
        const float *got = device_peek(g->stream, at, to_size(n) * sizeof *at, room),
                    *want = t->want + g->params.p[i].offset + lo;
        for (int64_t k = 0; k < n; k++)
            if (!(isnan(got[k]) && isnan(want[k])) && got[k] != want[k]) {
                snprintf(t->wrong, sizeof t->wrong, "rank %d: %s, element %d: %a, wanted %a", g->cfg.rank,
                         g->params.p[i].name, (int)(lo + k), (double)got[k], (double)want[k]);
                break;
            }
        xfree(room);
    }
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct trial *all = arg, t = *all;
    struct site at;
    int rc = site_open(&at, &(struct site_config){.config = t.c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    const struct ranks *r = &at.ranks;
    CHECK(store_reduces_each(&g->store) == t.each, "the reference adds in another order");
    int who = (r->replicate ? comm_rank(r->replicate) : 0) * t.shard + (r->shard ? comm_rank(r->shard) : 0);
    struct buffer *grads = &g->store.array[STORE_GRAD].buf; /* another step's: nothing is added to them */
    stream_sync(g->stream);
    memset(device_here(grads->p), 0xff, grads->bytes);
    exchange_step_begin(&g->exchange);
    for (int round = 0; round < ROUNDS; round++) contribute(&t, g, who, round);
    exchange_reduce_finish(&g->exchange);
    compare(&t, g);
    rc = engine_status(g, e);
    if (!rc && t.wrong[0]) rc = err_set(e, ERR_REQUEST, "%s", t.wrong);
    site_close(&at);
    return rc;
}

static void one(const char *codec, int shard, int replicate, int zero, bool step, bool bad)
{
    struct arena *a = arena_new();
    struct config c;
    struct err e = {0};
    char keys[256];
    snprintf(keys, sizeof keys,
             "batch.global=%d batch.micro=1 comm.grad=%s parallel.dp_replicate=%d parallel.dp_shard=%d "
             "parallel.zero=%d "
             "parallel.reduce=%s model.layers=1 model.seq_len=4",
             ROUNDS * shard * replicate, codec, replicate, shard, zero, step ? "step" : "microbatch");
    xfree(machine_toy(&c, a, keys, shard * replicate));
    struct param_table p = {0};
    struct trial t = {.c = &c, .shard = shard, .replicate = replicate, .bad = bad, .each = shard > 1 && !step};
    model_declare(&c.model, NULL, &p);
    t.want = xcalloc(to_size(p.numel), sizeof *t.want);
    t.apart = (zero + shard / 2) % 4 < 2;
    for (int k = 0; k < 2; k++) {
        t.leaves[k] = xcalloc(to_size(p.n), sizeof *t.leaves[k]);
        for (int i = k; i < p.n; i += 2) t.leaves[k][i] = true;
    }
    reference(&t, &p);
    struct comm_config cc = config_comm(&c);
    if (comm_run_local(shard * replicate, &cc, rank_main, &t, &e)) fail_msg("%s: %s", keys, e.text);
    for (int k = 0; k < 2; k++) xfree(t.leaves[k]);
    xfree(t.want);
    param_table_free(&p);
    arena_free(a);
}

static const char *const codecs[] = {"bf16", "fp8", "fp8-e5m2", "int8", "kept"};

static void sums_are_the_references(void **state)
{
    (void)state;
    static const int degrees[][2] = {{2, 1}, {3, 1}, {5, 1}, {8, 1}, {2, 2}, {3, 2}, {1, 3}, {1, 8}};
    for (int i = 0; i < 8; i += CASE_STRIDE)
        for (int zero = 0; zero <= (degrees[i][0] > 1 ? 3 : 0); zero++)
            for (int k = 0; k < 5; k++)
                if (drawn_here(i / CASE_STRIDE + zero + k, 2))
                    one(codecs[k], degrees[i][0], degrees[i][1], zero, (zero + k + i) % 2, false);
}

/* On every rank that is given the sum: in a block all of it, or the number alone (bf16). */
static void what_is_not_finite_reaches_all(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++)
        for (int zero = 0; zero <= 3; zero++) one(codecs[k], 2, zero % 2 + 1, zero, k % 2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_references),
        cmocka_unit_test(what_is_not_finite_reaches_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
