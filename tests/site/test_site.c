/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank works: the same place on a device that computes, on one that counts and on paper; what fails on one rank
 * is an error on all of them, and leaves nothing behind. */
#include <string.h>

#include "site/site.h"
#include "toy.h"

enum { N = 3 };

static void configure(struct config *c, struct arena *a)
{
    static const char *const keys[] = {"model.layers=1",        "model.hidden=32", "model.heads=2", "model.vocab=40",
                                       "model.seq_len=8",       "batch.global=3",  "batch.micro=1", "parallel.zero=2",
                                       "precision.recipe=fp32", "run.threads=1"};
    enum { KEYS = sizeof keys / sizeof *keys };
    struct conf *f;
    struct err e = {0};
    char *copy[KEYS];
    for (int i = 0; i < KEYS; i++) copy[i] = arena_strdup(a, keys[i]);
    if (config_load(c, &f, a, NULL, copy, KEYS, &e) || config_resolve(c, f, 0, N, &e)) fail_msg("%s", e.text);
}

struct job {
    const struct config *c;
    const char *kernels[N]; /* by rank */
    int code[N];
    int64_t held[N], peak[N];
    bool left[N]; /* something is left after an error */
};

static int64_t held_by(const struct site *s)
{
    int64_t sum = 0;
    for (int i = 0; i < s->engine->params.n; i++) sum += store_held(&s->engine->store, i, STORE_MASTER).n;
    return sum;
}

static int work(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    int r = comm_rank(world);
    struct config mine = *j->c;
    struct site s;
    if (j->kernels[r]) mine.run.kernels = j->kernels[r];
    j->code[r] = site_open(&s, &(struct site_config){.config = &mine, .world = world}, e);
    j->left[r] = j->code[r] && (s.engine || s.dev || s.ranks.shard);
    if (j->code[r]) return OK;
    j->held[r] = held_by(&s);
    j->peak[r] = (int64_t)s.dev->ledger.peak_total;
    site_close(&s);
    return OK;
}

static void same_place_everywhere(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct config c;
    struct err e = {0};
    configure(&c, a);
    struct job j = {.c = &c};
    struct comm_config cc = config_comm(&c);
    if (comm_run_local(N, &cc, work, &j, &e)) fail_msg("%s", e.text);
    for (int r = 0; r < N; r++)
        for (int kind = SITE_COUNTS; kind <= SITE_PAPER; kind++) {
            struct site s;
            assert_int_equal(j.code[r], OK);
            if (site_open(&s, &(struct site_config){.config = &c, .kind = (enum site_kind)kind, .rank = r, .n = N}, &e))
                fail_msg("%s", e.text);
            assert_int_equal(s.ranks.rank, r);
            assert_int_equal(held_by(&s), j.held[r]);
            if (kind == SITE_COUNTS) assert_int_equal(s.dev->ledger.peak_total, j.peak[r]);
            site_close(&s);
        }
    arena_free(a);
}

static void one_rank_fails(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct config c;
    struct err e = {0};
    configure(&c, a);
    struct job j = {.c = &c, .kernels = {[1] = "none such"}};
    struct comm_config cc = config_comm(&c);
    (void)comm_run_local(N, &cc, work, &j, &e);
    for (int r = 0; r < N; r++) {
        assert_true(j.code[r] < 0);
        assert_false(j.left[r]);
    }
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_place_everywhere), cmocka_unit_test(one_rank_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
