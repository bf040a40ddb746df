/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps event_wait */
/* Activations that wait in the host's memory: which go, when they travel, and that somebody notices when the order is
 * broken. That the numbers stay is golden/test_losses' to say, that the plan is what is allocated plan/test_plan's.
 *
 * Broken here, each on a device that is late on purpose or against the program's own checker: copies that do not wait
 * for what they read, bytes that are used again while they travel, readers that do not wait, a row that may travel too
 * long, and two places that share the bytes in the other memory. */
#include <signal.h>
#include <sys/wait.h>

#include "child.h"
#include "toy.h"
#include "told.h"

static struct engine_config config_of(enum model_family family, bool on)
{
    struct engine_config c = toy_config(family, DT_F32);
    c.model.layers = 4;
    c.away = (struct away_rule){.on = on};
    return c;
}

static int stretch_of(const struct tape *t, int node)
{
    int n = 0;
    for (int i = 1; i <= node; i++) n += t->nodes[i].layer != t->nodes[i - 1].layer;
    return n;
}

/* ---- which, and when ---- */
struct seen {
    size_t stored, fetched;
    int stores, fetches, most, far; /* most: under way at once; far: stretches of layers that a copy spans */
};

static void look_at(const struct program *p, struct seen *s)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < p->begin[PHASE_N]; i++) {
        const struct instr *c = &p->code[i];
        int under_way = 0;
        for (int k = 0; k <= i; k++) under_way += op_row(p->code[k].op)->travels && p->code[k].until > i;
        if (under_way > s->most) s->most = under_way;
        if (op_row(c->op)->by != BY_COPIES) continue;
        bool store = c->op == OP_STORE;
        assert_string_equal(c->what, tape_tensor(p->tape, p->places[c->out[0].place].of)->name); /* whose bytes go */
        const struct place *away = &p->places[(store ? c->out[0] : c->in[0]).place],
                           *here = &p->places[(store ? c->in[0] : c->out[0]).place];
        assert_true(away->home == HOME_AWAY && here->home != HOME_AWAY && away->bytes == here->bytes);
        assert_true(store ? i < p->begin[PHASE_B] && here->last < p->begin[PHASE_B] : here->first == i);
        s->stores += store;
        s->fetches += !store;
        *(store ? &s->stored : &s->fetched) += away->bytes;
        int far = stretch_of(p->tape, p->code[c->until - 1].node) - stretch_of(p->tape, c->node);
        if (store && far > s->far) s->far = far;
    }
}

static void test_what_goes(void **state)
{
    (void)state;
    for (int v = 0; v < 2 * TOY_TEXTS; v++) {
        enum model_family f = (enum model_family)(v / 2);
        struct engine_config c = config_of(f, true);
        struct kernel_table k;
        struct toy t;
        struct err e = {0};
        struct seen s;
        if (v & 1) assert_int_equal(recompute_named("full", &c.recompute.again), OK);
        toy_open(&t, &c);
        assert_int_equal(kernel_table_init(&k, "auto", 1, t.dev->counts_only, &e), OK);
        for (int split = 0; split < 2; split++) {
            struct lower_options o = {.training = true, .split_w = split};
            struct program *off, *on, *large;
            assert_int_equal(tape_lower(&off, t.g->stage[0].tape, &k, o, &e), OK);
            o.away.on = true;
            assert_int_equal(tape_lower(&on, t.g->stage[0].tape, &k, o, &e), OK);
            o.away.least_bytes = 7000;
            assert_int_equal(tape_lower(&large, t.g->stage[0].tape, &k, o, &e), OK);
            program_check(on);
            program_check(large);
            look_at(on, &s);
            size_t kept = 0;
            for (int i = 0; i < off->n_places; i++) {
                const struct place *x = &off->places[i];
                bool waits =
                    x->first >= 0 && x->slot < 0 && x->first < off->begin[PHASE_B] && x->last >= off->begin[PHASE_B];
                kept += waits ? x->bytes : 0;
            }
            assert_true(kept > 0 && s.stored == kept && s.fetched == kept && s.stores == s.fetches);
            assert_true(on->bytes[HOME_AWAY] >= kept && on->bytes[HOME_ACT] == 0 && off->bytes[HOME_AWAY] == 0);
            assert_true(s.most <= PROGRAM_UNDER_WAY && s.far <= 1);
            look_at(large, &s);
            assert_true(s.stored < kept && large->bytes[HOME_ACT] + large->bytes[HOME_WGRAD] > 0);
            program_free(off);
            program_free(on);
            program_free(large);
        }
        toy_close(&t);
    }
}

/* ---- a broken order ---- */
/* Which waits for events are left out, by the stream that would wait. */
static const char *deaf;
void __real_event_wait(struct stream *s, struct event *ev);
void __wrap_event_wait(struct stream *s, struct event *ev);
void __wrap_event_wait(struct stream *s, struct event *ev)
{
    if (!deaf || strcmp(s->name, deaf)) __real_event_wait(s, ev);
}

enum broken { NOTHING, STORES_TOO_LATE, FETCHES_TOO_LATE, SHARED_AWAY };

/* The program as somebody would have lowered it who got it wrong; the places stay where they are. */
static void break_program(struct program *p, enum broken b)
{
    struct place *last = NULL;
    for (int i = 0; i < p->begin[PHASE_N]; i++) {
        struct instr *c = &p->code[i];
        if (op_row(c->op)->by != BY_COPIES) continue;
        if (b == STORES_TOO_LATE && c->op == OP_STORE && c->until + 6 < p->begin[PHASE_B]) c->until += 6;
        if (b == FETCHES_TOO_LATE && c->op == OP_FETCH && c->until + 1 < p->begin[PHASE_W]) c->until++;
        if (b != SHARED_AWAY || c->op != OP_STORE) continue;
        if (last) p->places[c->out[0].place].offset = last->offset;
        last = &p->places[c->out[0].place];
    }
}

static double late_steps(const struct engine_config *c, enum broken b, const char *without, uint64_t seed,
                         struct told *told)
{
    struct toy t;
    struct engine_report r = {0};
    struct err e;
    struct device *dev;
    memset(told, 0, sizeof *told);
    assert_int_equal(device_late_new(&dev, 1, seed, tell, told, &e), OK);
    toy_open_on(&t, c, dev);
    break_program(t.g->stage[0].train, b);
    deaf = without;
    for (int i = 0; i < 2; i++) engine_step(t.g, &t.batch, i, 1e-2, &r);
    deaf = NULL;
    toy_close(&t);
    return r.loss;
}

static double two_steps(enum broken b, const char *without, uint64_t seed, struct told *told)
{
    struct engine_config c = config_of(MODEL_LLAMA, true);
    return late_steps(&c, b, without, seed, told);
}

static double two_steps_of_params(const char *without, uint64_t seed, struct told *told)
{
    struct engine_config c = config_of(MODEL_LLAMA, false);
    c.offload = (struct offload){.to = MEM_HOST, .optimizer = true, .params = true};
    return late_steps(&c, NOTHING, without, seed, told);
}

static void test_order_is_checked(void **state)
{
    (void)state;
    struct told told;
    struct engine_config c = config_of(MODEL_LLAMA, false);
    struct toy t;
    struct engine_report r;
    toy_open(&t, &c);
    for (int i = 0; i < 2; i++) engine_step(t.g, &t.batch, i, 1e-2, &r);
    toy_close(&t);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        double loss = two_steps(NOTHING, NULL, seed, &told);
        if (told.n) fail_msg("%d: %s", told.n, told.first);
        assert_true(loss == r.loss);
    }
    two_steps(NOTHING, "copies", 1, &told); /* copies begin before what they read is there */
    assert_true(told.n > 0);
    assert_contains(told.first, "on copies");
    two_steps(NOTHING, "compute", 1, &told); /* a row has no end */
    assert_true(told.n > 0);
    assert_contains(told.first, "on compute");
    two_steps(STORES_TOO_LATE, NULL, 1, &told); /* bytes are used again while they travel */
    assert_true(told.n > 0);
    assert_contains(told.first, "put away");
    assert_contains(told.first, "(scratch, ");
    two_steps(FETCHES_TOO_LATE, NULL, 1, &told); /* a reader comes before the end */
    assert_true(told.n > 0);
    assert_contains(told.first, "bring back");
    assert_true(two_steps(SHARED_AWAY, NULL, 1, &told) != r.loss);
}

/* Weights that come before each use: slots are not read into while they are read, nor read before. */
static void test_order_of_params(void **state)
{
    (void)state;
    struct told told;
    struct engine_config c = config_of(MODEL_LLAMA, false);
    struct toy t;
    struct engine_report r;
    toy_open(&t, &c);
    for (int i = 0; i < 2; i++) engine_step(t.g, &t.batch, i, 1e-2, &r);
    toy_close(&t);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        double loss = two_steps_of_params(NULL, seed, &told);
        if (told.n) fail_msg("%d: %s", told.n, told.first);
        assert_true(loss == r.loss);
    }
    two_steps_of_params("weight", 1, &told); /* the stream of these copies */
    assert_true(told.n > 0);
    assert_contains(told.first, "on weight");
    two_steps_of_params("compute", 1, &told);
    assert_true(told.n > 0);
    assert_contains(told.first, "on compute");
}

static int check(void *p)
{
    program_check(p);
    return 0;
}

/* The checker of programs, which tests of all families and layouts call, sees them as well. */
static void test_program_is_checked(void **state)
{
    (void)state;
    for (int b = NOTHING; b <= SHARED_AWAY; b++) {
        struct engine_config c = config_of(MODEL_LLAMA, true);
        struct toy t;
        toy_open(&t, &c);
        break_program(t.g->stage[0].train, (enum broken)b);
        int status = child_end(check, t.g->stage[0].train);
        assert_int_equal(status, b == NOTHING ? 0 : -SIGABRT);
        toy_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_goes),
        cmocka_unit_test(test_order_is_checked),
        cmocka_unit_test(test_order_of_params),
        cmocka_unit_test(test_program_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
