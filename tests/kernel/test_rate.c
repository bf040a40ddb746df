/* SPDX-License-Identifier: Apache-2.0 */
/* The ceiling of a machine that is fed by hand: what others do on it, and clocks of coarse ticks, move it by a few
 * percent at most. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernel/cpu/rate.h"
#include "kernel/cpu/tile/tile_rate.h"

enum { MEMBERS = 3 };
static const double TRUE_RATE = 2e9, PER_REPEAT = 1e3; /* operations per second of a member; per repeat */

struct machine {
    double away_s;     /* a round's member is away for about so long ... */
    double away_share; /* ... in this share of rounds */
    double slow_share; /* of rounds in which the core itself is slower: half the rate */
    double tick_s;     /* of the threads' clocks; 0: exact */
    bool stands_still; /* the threads' clocks */
    double now_s[MEMBERS], thread_s[MEMBERS];
    uint64_t dice;
    int rounds;
};

static double dice(struct machine *m) { return rng_u32(7, 7, m->dice++) / 4294967296.0; }

static double seen(const struct machine *m, double s)
{
    if (m->stands_still) return 0;
    return m->tick_s > 0 ? floor(s / m->tick_s) * m->tick_s : s;
}

static void run_round(void *arg, int64_t repeats, struct rate_part *part)
{
    struct machine *m = arg;
    m->rounds++;
    for (int i = 0; i < MEMBERS; i++) {
        double operations = PER_REPEAT * (double)repeats, before_s = m->thread_s[i];
        double s = 1e-7 + operations / (dice(m) < m->slow_share ? TRUE_RATE / 2 : TRUE_RATE * (1 - 0.01 * dice(m)));
        double away_s = dice(m) < m->away_share ? m->away_s * (0.5 + dice(m)) : 0;
        m->thread_s[i] += s;
        part[i] = (struct rate_part){operations, s + away_s, seen(m, m->thread_s[i]) - seen(m, before_s)};
    }
}

static void expect(const char *what, struct machine m, double from, double to)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct machine now = m;
        now.dice = seed << 32;
        double rate = rate_measure(run_round, &now, MEMBERS) / (MEMBERS * TRUE_RATE);
        if (!(rate >= from && rate <= to)) fail_msg("%s: %.4f of the true rate, wanted %g to %g", what, rate, from, to);
        if (now.rounds > 70) fail_msg("%s: %d rounds", what, now.rounds);
    }
}

static void test_disturbed(void **state)
{
    (void)state;
    expect("quiet", (struct machine){0}, 0.98, 1.001);
    expect("one round in two descheduled", (struct machine){.away_s = 0.02, .away_share = 0.5}, 0.98, 1.001);
    expect("every round descheduled", (struct machine){.away_s = 0.1, .away_share = 1}, 0.98, 1.001);
    expect("every round descheduled for a second", (struct machine){.away_s = 1, .away_share = 1}, 0.95, 1.001);
    expect("descheduled shortly", (struct machine){.away_s = 1e-3, .away_share = 1}, 0.95, 1.001);
    expect("cores slower in some rounds", (struct machine){.slow_share = 0.3}, 0.8, 1.001);
    expect("and busy", (struct machine){.slow_share = 0.3, .away_share = 0.5, .away_s = 0.05}, 0.6, 1.001);
    expect("coarse clocks", (struct machine){.tick_s = 0.01}, 0.7, 1.4);
    expect("coarse clocks, busy", (struct machine){.tick_s = 0.01, .away_s = 0.05, .away_share = 1}, 0.7, 1.4);
    expect("clocks stand still", (struct machine){.stands_still = true}, 0.95, 1.001);
}

static void test_share(void **state)
{
    (void)state;
    for (int ranks = 1; ranks < 20; ranks++)
        for (int threads = 1; threads < 20; threads++)
            for (int cores = 1; cores < 20; cores++) {
                double own = threads < cores ? threads : cores; /* what a rank measures, in cores */
                double all = ranks * own * tile_rate_share(ranks, threads, cores),
                       want = ranks * threads < cores ? ranks * threads : cores;
                if (fabs(all - want) > 1e-9)
                    fail_msg("%d ranks, %d threads, %d cores: %g cores", ranks, threads, cores, all);
            }
}

/* More threads than cores, and neighbours: the real thing stays near what one thread alone can do, times the cores. */
static void *load(void *arg)
{
    atomic_bool *stop = arg;
    for (volatile double x = 1; !atomic_load(stop);) x = x * 1.0000001;
    return NULL;
}

struct rates { /* FLOP/s */
    double quiet, busy, crowd;
};

static struct rates measure(struct team *one, struct team *many)
{
    enum { N = 6 };
    const struct tile_ops *o = tile_ops_get(DT_F32);
    struct rates r = {0};
    atomic_bool stop = false;
    pthread_t t[N];
    for (int i = 0; i < 3; i++) r.quiet = fmax(r.quiet, tile_rate_registers(o, one));
    for (int i = 0; i < N; i++) assert_int_equal(pthread_create(&t[i], NULL, load, &stop), 0);
    r.busy = tile_rate_registers(o, one);
    r.crowd = tile_rate_registers(o, many);
    atomic_store(&stop, true);
    for (int i = 0; i < N; i++) pthread_join(t[i], NULL);
    return r;
}

static bool near(double rate, double want) { return rate > 0.45 * want && rate < 2.2 * want; }

/* Cores may share power, caches and hardware with what runs beside: bounds are wide, but a core's share of 1/(N + 1) is
 * far below. What else runs on the hardware may change between the quiet and the busy measurement: then they are taken
 * again, together. A figure that holds the busy rounds against the clock alone is too low each time. */
static void test_busy_machine(void **state)
{
    (void)state;
    enum { TRIES = 4 };
    int cores = thread_n_cores();
    struct team *one = team_new(1), *many = team_new(4 * cores);
    struct rates r = {0};
    bool right = false;
    for (int i = 0; !right && i < TRIES; i++) {
        r = measure(one, many);
        right = near(r.busy, r.quiet) && near(r.crowd, cores * r.quiet);
    }
    team_free(one);
    team_free(many);
    if (!right)
        fail_msg("one thread %.3g, beside others %.3g, %d threads %.3g FLOP/s", r.quiet, r.busy, 4 * cores, r.crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disturbed),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_busy_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
