/* SPDX-License-Identifier: Apache-2.0 */
/* Components against union-find, on graphs of every shape, by 1 to 4 ranks, with memory for a few edges at a time. */
#include "scratch.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "curate/components.h"
#include "sanitized.h"

enum { VERTICES = 480 / CASE_STRIDE };
struct graph {
    int n;
    int (*edge)[2];
    char *dir;
    int answer[VERTICES]; /* of the ranks together */
    int rounds;
};

static int root(int *up, int i)
{
    while (up[i] != i) i = up[i] = up[up[i]];
    return i;
}

/* Vertices are far apart and in no order of their own. */
static uint64_t name_of(int i) { return (uint64_t)i << 36 | (uint64_t)(i * 7 % 11); }

static int find(struct comm *world, void *arg, struct err *e)
{
    struct graph *g = arg;
    int rank = comm_rank(world), n = comm_size(world);
    char dir[200];
    snprintf(dir, sizeof dir, "%s/%d", g->dir, rank);
    int code = fs_mkdirs(dir, e), got = 0;
    struct components *c = components_new(world, dir, 0);
    for (int i = 0; i < g->n && !code; i++)
        if (i % n == rank) code = components_put(c, name_of(g->edge[i][i % 2]), name_of(g->edge[i][1 - i % 2]), e);
    if (!code) code = components_finish(c, e);
    uint64_t vertex, least;
    while (!code && (got = components_next(c, &vertex, &least, e)) > 0) {
        int v = (int)(vertex >> 36);
        if (name_of(v) != vertex || g->answer[v] != v) code = err_set(e, ERR_CORRUPT, "vertex %d comes twice", v);
        g->answer[v] = (int)(least >> 36);
    }
    if (rank == 0) g->rounds = components_rounds(c);
    components_free(c);
    return code ? code : got;
}

static void check(const char *what, struct graph *g)
{
    int up[VERTICES];
    struct err e = {0};
    for (int i = 0; i < VERTICES; i++) up[i] = i;
    for (int i = 0; i < g->n; i++) { /* the lesser root stays one */
        int a = root(up, g->edge[i][0]), b = root(up, g->edge[i][1]);
        if (a < b) up[b] = a;
        else up[a] = b;
    }
    for (int ranks = 1; ranks <= 4; ranks++) {
        for (int i = 0; i < VERTICES; i++) g->answer[i] = i;
        if (comm_run_local(ranks, &(struct comm_config){0}, find, g, &e)) fail_msg("%s: %s", what, e.text);
        for (int i = 0; i < VERTICES; i++)
            if (g->answer[i] != root(up, i))
                fail_msg("%s, %d ranks: vertex %d is with %d, not with %d", what, ranks, i, g->answer[i], root(up, i));
    }
    printf("  %-24s %5d edges, %d rounds\n", what, g->n, g->rounds);
    assert_true(g->rounds <= 16);
}

static void graphs(void **state)
{
    (void)state;
    static int edge[3 * VERTICES][2];
    struct graph g = {.edge = edge, .dir = scratch_new()};
    check("none", &g);
    for (g.n = 0; g.n < VERTICES - 1; g.n++) edge[g.n][0] = g.n, edge[g.n][1] = g.n + 1;
    check("a path", &g);
    for (int i = 0; i < VERTICES - 1; i++) /* the same vertices in any order */
        for (int k = 0; k < 2; k++) edge[i][k] = (int)rng_permute(5, 6, VERTICES, (uint64_t)(i + k));
    check("a path in disorder", &g);
    for (int i = 0; i < g.n; i++) edge[i][0] = VERTICES - 1, edge[i][1] = i;
    check("a star around the last", &g);
    for (int i = 0; i < g.n; i++) edge[i][0] = (i + 1) / 2, edge[i][1] = i + 1;
    check("a tree", &g);
    for (int density = 1; density <= 5; density += 2) {
        for (g.n = 0; g.n < density * VERTICES / 2; g.n++) {
            edge[g.n][0] = (int)(rng_u32(1, (uint64_t)density, 2 * (uint64_t)g.n) % VERTICES);
            edge[g.n][1] = (int)(rng_u32(1, (uint64_t)density, 2 * (uint64_t)g.n + 1) % VERTICES);
            if (edge[g.n][0] == edge[g.n][1]) edge[g.n][1] = (edge[g.n][0] + 1) % VERTICES;
        }
        check("any", &g);
    }
    for (g.n = 0; g.n < VERTICES; g.n++) edge[g.n][0] = g.n / 40 * 40, edge[g.n][1] = g.n / 40 * 40 + 1 + g.n % 39;
    for (int i = 0; i < g.n; i++) edge[i][1] = edge[i][1] < VERTICES ? edge[i][1] : edge[i][0] - 1;
    check("many small ones", &g);
    scratch_free(g.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
