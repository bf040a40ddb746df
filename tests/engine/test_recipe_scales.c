/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* suite: long threads */
/* The same scales in every layout. Of fp8-current, every largest value of a step, by microbatch and product: equal to
 * the bit where ranks share out whole sequences, layers or state; over tp and cp those of weights and of the first
 * product's input are, the others follow from sums that are rounded in another order. Of fp8-delayed the histories that
 * are kept, after some steps. A history goes on with its run. */
#include <pthread.h>

#include "toy.h"

#include "config/config.h"
#include "config/ranks.h"
#include "machine.h"
#include "site/site.h"

enum { STEPS = 3, MOST = 4096, HISTORY = 4 };
struct scale {
    char key[96];
    float amax;
    bool exact; /* in every layout */
};
struct scales {
    struct scale s[MOST];
    int n;
    pthread_mutex_t lock;
};
struct job {
    struct config c;
    int32_t *tokens;
    struct scales *out;
    float *history; /* [parameters][each], NaN where not seen */
    int64_t each;
};
struct looker {
    struct job *j;
    int phase;
    int64_t token;  /* of the microbatch */
    int count[512]; /* by node: its QUANTISE so far */
};

static void put(struct scales *x, const char *key, float amax, bool exact)
{
    pthread_mutex_lock(&x->lock);
    int i = 0;
    while (i < x->n && strcmp(x->s[i].key, key)) i++;
    if (i < x->n && x->s[i].amax != amax)
        fail_msg("%s: ranks have %.9g and %.9g", key, (double)x->s[i].amax, (double)amax);
    assert_true(i < MOST);
    if (i == x->n) {
        x->s[x->n].amax = amax;
        x->s[x->n].exact = exact;
        snprintf(x->s[x->n++].key, sizeof x->s[0].key, "%s", key);
    }
    pthread_mutex_unlock(&x->lock);
}

static void look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct looker *l = ctx;
    if (c->op != OP_QUANTISE || c->step->step > 0) return;
    int phase = (int)(i - p->code) >= p->begin[PHASE_B];
    if ((int64_t)c->step->first_token != l->token || phase != l->phase) memset(l->count, 0, sizeof l->count);
    l->token = (int64_t)c->step->first_token;
    l->phase = phase;
    const struct node *d = &p->tape->nodes[i->node];
    const char *name = tape_tensor(p->tape, d->out[0])->name;
    int k = l->count[i->node]++;
    char key[96];
    snprintf(key, sizeof key, "token %lld %c layer %d %s %d", (long long)l->token, "FB"[phase], d -> layer, name, k);
    bool weight = k == (phase ? 0 : 1), first = k == 0 && !phase && d->layer == 0 && !strcmp(name, "qkv");
    put(l->j->out, key, *(const float *)device_here(c->in[1].p), weight || first);
}

static int keep_histories(struct job *j, struct engine *g, struct err *e)
{
    int which = store_find(&g->store, "amax");
    float *v = xcalloc(to_size(j->each), sizeof *v);
    int rc = OK;
    pthread_mutex_lock(&j->out->lock);
    for (int i = 0; which >= 0 && i < g->params.n; i++) {
        struct array_span x = store_held(&g->store, i, which);
        float *all = j->history + i * j->each;
        if (!x.n) continue;
        assert_int_equal(x.n, j->each);
        store_read(&g->store, g->stream, i, which, v);
        if (!isnan(all[0]) && memcmp(all, v, to_size(x.n) * sizeof *v))
            rc = err_set(e, ERR_NUMERIC, "ranks have other histories of %s", g->params.p[i].name);
        memcpy(all, v, to_size(x.n) * sizeof *v);
    }
    pthread_mutex_unlock(&j->out->lock);
    xfree(v);
    return rc;
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct job *j = arg;
    struct site at;
    int rc = site_open(&at, &(struct site_config){.config = &j->c, .kind = SITE_WORKS, .world = world}, e);
    if (rc) return rc;
    struct engine *g = at.engine;
    engine_init(g);
    struct looker *l = xcalloc(1, sizeof *l);
    l->j = j;
    l->token = -1;
    if (recipe_row((enum recipe)j->c.precision.recipe)->history) l->token = 0;
    else g->watch = look;
    g->watch_ctx = l;
    struct engine_batch b = machine_part(&j->c, j->tokens, at.ranks.part);
    struct engine_report report;
    for (int s = 0; s < STEPS; s++) engine_step(g, &b, s, 1e-2, &report);
    rc = keep_histories(j, g, e);
    if (world) rc = comm_agree(world, rc, e);
    xfree(l);
    site_close(&at);
    return rc;
}

static const struct way {
    const char *keys;
    int ranks;
    bool sums; /* over ranks, rounded in another order */
} ways[] = {
    {"", 1, false},
    {"parallel.dp_shard=2 parallel.zero=3", 2, false},
    {"parallel.dp_replicate=2", 2, false},
    {"parallel.pp=2", 2, false},
    {"parallel.dp_shard=2 parallel.zero=1 parallel.pp=2", 4, false},
    {"parallel.tp=3 parallel.dp_shard=1", 3, true},
    {"parallel.tp=3 parallel.dp_shard=1 parallel.sequence_parallel=true", 3, true},
    {"parallel.cp=2 parallel.dp_shard=1", 2, true},
};

static void run(struct job *j, struct arena *a, const struct way *w, const char *recipe)
{
    struct err e = {0};
    memset(j, 0, sizeof *j);
    j->tokens = machine_toy(&j->c, a,
                            arena_printf(a,
                                         "batch.global=8 batch.micro=2 model.layers=3 precision.history=4 "
                                         "precision.recipe=%s %s",
                                         recipe, w->keys),
                            w->ranks);
    enum { PARAMS = 64 };
    j->each = 3 * HISTORY;
    j->out = xcalloc(1, sizeof *j->out);
    pthread_mutex_init(&j->out->lock, NULL);
    j->history = xmalloc(to_size(PARAMS * j->each) * sizeof *j->history);
    for (int64_t i = 0; i < PARAMS * j->each; i++) j->history[i] = NAN;
    struct comm_config cc = config_comm(&j->c);
    int rc = w->ranks > 1 ? comm_run_local(w->ranks, &cc, rank_main, j, &e) : rank_main(NULL, j, &e);
    if (rc) fail_msg("'%s': %s", w->keys, e.text);
}

static void done(struct job *j)
{
    pthread_mutex_destroy(&j->out->lock);
    xfree(j->out);
    xfree(j->history);
    xfree(j->tokens);
}

static float of_key(const struct scales *x, const char *key)
{
    for (int i = 0; i < x->n; i++)
        if (!strcmp(x->s[i].key, key)) return x->s[i].amax;
    fail_msg("no scale of %s", key);
    return 0;
}

static void test_current(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct job one, other;
    run(&one, a, &ways[0], "fp8-current precision.layers={\"layers.*\":fp8-current}");
    assert_int_equal(one.out->n, 4 /* microbatches */ * 3 /* layers */ * 4 /* products */ * 5);
    for (size_t w = 1; w < sizeof ways / sizeof *ways; w++) {
        run(&other, a, &ways[w], "fp8-current precision.layers={\"layers.*\":fp8-current}");
        assert_int_equal(other.out->n, one.out->n);
        for (int i = 0; i < one.out->n; i++) {
            const struct scale *s = &one.out->s[i];
            float got = of_key(other.out, s->key);
            bool exact = s->exact || !ways[w].sums;
            if (exact ? got != s->amax : fabsf(got - s->amax) > 0.25f * s->amax)
                fail_msg("'%s': %s: %.9g, one rank has %.9g", ways[w].keys, s->key, (double)got, (double)s->amax);
        }
        done(&other);
    }
    done(&one);
    arena_free(a);
}

static void test_delayed(void **state)
{
    (void)state;
    struct arena *a = arena_new();
    struct job one, other;
    run(&one, a, &ways[0], "fp8-delayed");
    int64_t n = 64 * one.each, held = 0;
    for (size_t w = 1; w < sizeof ways / sizeof *ways; w++) {
        run(&other, a, &ways[w], "fp8-delayed");
        for (int64_t i = 0; i < n; i++) {
            float x = one.history[i], y = other.history[i];
            int64_t operand = i % one.each / HISTORY, step = STEPS - 1 - i % HISTORY;
            bool exact = !ways[w].sums || (operand == 1 && step == 0);
            if (isnan(x)) continue;
            held += x > 0;
            if (exact ? x != y : step == 0 && fabsf(x - y) > 0.25f * x)
                fail_msg("'%s': number %lld of parameter %lld: %.9g, one rank has %.9g", ways[w].keys,
                         (long long)(i % one.each), (long long)(i / one.each), (double)y, (double)x);
        }
        done(&other);
    }
    assert_true(held > 200);
    done(&one);
    arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_current), cmocka_unit_test(test_delayed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
