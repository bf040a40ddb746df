/* tile_rate.c: the ceilings. Every member of the team runs the same loop at the same time, because cores share power,
 * and hardware threads share a core; the slowest member ends the round. The number of repeats is found by
 * doubling until a round takes 5 ms; the best round counts, so that a neighbour on the machine does not lower a ceiling.
 */
#include "kernel/cpu/tile_rate.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

enum { ROUNDS = 7, PANEL_BYTES = 256 << 10 };

struct loop {
    const struct tile_ops *o;
    int64_t repeats;
    char *panels;   /* per member: A, then B; NULL: registers only */
    double *done;   /* per member: operations */
};

static double panels_once(const struct tile_ops *o, const char *a, const char *b)
{
    float c[TILE_MAX_MR * TILE_MAX_NR] __attribute__((aligned(64)));
    const int64_t depth = o->kc;
    const int64_t n_a = PANEL_BYTES / (int64_t)tile_a_step(o, depth), n_b = PANEL_BYTES / (int64_t)tile_b_step(o, depth);
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
    double done = 0;
    l->o->begin();
    if (!a) done = l->o->spin(l->repeats);
    else
        for (int64_t i = 0; i < l->repeats; i++) done += panels_once(l->o, a, a + PANEL_BYTES);
    l->o->end();
    l->done[member] = done;
}

static double round_s(struct loop *l, struct team *team, double *operations)
{
    double start = clock_now_s();
    team_run(team, member_run, l);
    double s = clock_now_s() - start;
    *operations = 0;
    for (int i = 0; i < team_size(team); i++) *operations += l->done[i];
    return s;
}

static double measure(struct loop *l, struct team *team)
{
    double best = 0, operations;
    l->done = xcalloc((size_t)team_size(team), sizeof *l->done);
    for (l->repeats = 1; round_s(l, team, &operations) < 5e-3; l->repeats *= 2) continue;
    for (int i = 0; i < ROUNDS; i++) {
        double s = round_s(l, team, &operations);
        if (operations / s > best) best = operations / s;
    }
    xfree(l->done);
    return best;
}

double tile_rate_registers(const struct tile_ops *o, struct team *team)
{
    struct loop l = {.o = o};
    return measure(&l, team);
}

double tile_rate_l2(const struct tile_ops *o, struct team *team)
{
    const size_t bytes = (size_t)team_size(team) * 2 * PANEL_BYTES;
    struct loop l = {.o = o, .panels = mem_pages_new(bytes)};
    CHECK(l.panels, "no memory for panels");
    for (size_t i = 0; i < bytes; i++) l.panels[i] = 0x3c; /* small normal numbers in f32 and bf16 */
    double rate = measure(&l, team);
    mem_pages_free(l.panels, bytes);
    return rate;
}
