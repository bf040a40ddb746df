/* SPDX-License-Identifier: Apache-2.0 */
/* tile_rate.c: the ceilings. Every member of the team runs the same loop at the same time, because cores share power,
 * and hardware threads share a core; which of the rounds counts is decided in rate.c.
 */
#include "kernel/cpu/tile/tile_rate.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "kernel/cpu/rate.h"

enum { PANEL_BYTES = 256 << 10 };

struct loop {
    const struct tile_ops *o;
    struct team *team;
    int64_t repeats;
    char *panels;           /* per member: A, then B; NULL: registers only */
    struct rate_part *part; /* per member */
};

static double panels_once(const struct tile_ops *o, const char *a, const char *b)
{
    float c[TILE_MAX_MR * TILE_MAX_NR] __attribute__((aligned(64)));
    const int64_t depth = o->kc;
    const int64_t n_a = PANEL_BYTES / (int64_t)tile_a_step(o, depth),
                  n_b = PANEL_BYTES / (int64_t)tile_b_step(o, depth);
    for (int64_t j = 0; j < n_b; j++)
        for (int64_t i = 0; i < n_a; i++)
            o->mul(c, o->nr, a + (size_t)i * tile_a_step(o, depth), b + (size_t)j * tile_b_step(o, depth), depth, o->mr,
                   false);
    return 2.0 * (double)(n_a * o->mr) * (double)(n_b * o->nr) * (double)depth;
}

static void member_run(void *arg, int member, int n_members)
{
    struct loop *l = arg;
    (void)n_members;
    const char *a = l->panels ? l->panels + (size_t)member * 2 * PANEL_BYTES : NULL;
    double done = 0, thread_s = clock_thread_s(), wall_s = clock_now_s();
    l->o->begin();
    if (!a) done = l->o->spin(l->repeats);
    else
        for (int64_t i = 0; i < l->repeats; i++) done += panels_once(l->o, a, a + PANEL_BYTES);
    l->o->end();
    l->part[member] = (struct rate_part){done, clock_now_s() - wall_s, clock_thread_s() - thread_s};
}

static void run_round(void *arg, int64_t repeats, struct rate_part *part)
{
    struct loop *l = arg;
    l->repeats = repeats;
    l->part = part;
    team_run(l->team, member_run, l);
}

double tile_rate_share(int ranks, int threads, int cores)
{
    double per_rank = threads < cores ? threads : cores;
    return ranks * per_rank > cores ? cores / (ranks * per_rank) : 1;
}

static double measure(struct loop *l)
{
    int n = team_size(l->team), cores = thread_n_cores();
    return rate_measure(run_round, l, n) * (n > cores ? (double)cores / n : 1);
}

double tile_rate_registers(const struct tile_ops *o, struct team *team)
{
    struct loop l = {.o = o, .team = team};
    return measure(&l);
}

double tile_rate_l2(const struct tile_ops *o, struct team *team)
{
    const size_t bytes = (size_t)team_size(team) * 2 * PANEL_BYTES;
    struct loop l = {.o = o, .team = team, .panels = mem_pages_new(bytes)};
    CHECK(l.panels, "no memory for panels");
    for (size_t i = 0; i < bytes; i++) l.panels[i] = 0x3c; /* small normal numbers in f32 and bf16 */
    double rate = measure(&l);
    mem_pages_free(l.panels, bytes);
    return rate;
}
