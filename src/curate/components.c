/* SPDX-License-Identifier: Apache-2.0 */
/* components.c: edges become stars around the least vertex of each component.
 *
 * A large star at u ties every neighbour above u to the least of u and its neighbours; a small star at u ties u and
 * every neighbour below it to the least of those. Both are a pass over edges sorted by u, and keep what hangs together
 * together. When the edges are the same before two large stars, each component is a star already.
 */
#include "curate/components.h"

#include "base/hash.h"
#include "base/mem.h"
#include "curate/shuffle.h"

enum { ROUNDS_MOST = 1000 };

struct components {
    struct comm *world;
    char *dir;
    size_t memory;
    int n, rounds;
    struct shuffle *edges; /* of the next large star: both directions; in the end the stars */
};

static struct shuffle *new_shuffle(struct components *c, const char *name)
{
    struct sorter_config x =
        {.dir = c->dir, .name = name, .words = 2, .key_words = 2, .memory = c->memory / 2, .distinct = true};
    return shuffle_new(c->world, &x);
}

struct components *components_new(struct comm *world, const char *dir, size_t memory)
{
    struct components *c = xcalloc(1, sizeof *c);
    *c = (struct components){.world = world, .dir = xstrdup(dir), .memory = memory, .n = comm_size(world)};
    c->edges = new_shuffle(c, "large");
    return c;
}

static int put(struct components *c, struct shuffle *s, uint64_t u, uint64_t v, struct err *e)
{
    uint64_t record[2] = {u, v};
    return shuffle_put(s, record, hash_rank(hash64(&u, sizeof u), c->n), e);
}

static int put_both(struct components *c, struct shuffle *s, uint64_t u, uint64_t v, struct err *e)
{
    int code = put(c, s, u, v, e);
    return code ? code : put(c, s, v, u, e);
}

int components_put(struct components *c, uint64_t a, uint64_t b, struct err *e)
{
    CHECK(a != b, "an edge of vertex %llu to itself", (unsigned long long)a);
    return put_both(c, c->edges, a, b, e);
}

/* Edges in both directions, by u, to the edges of a small star, each by its larger end. *print: a sum over all edges of
 * all ranks. */
static int large_star(struct components *c, struct shuffle *to, uint64_t *print, struct err *e)
{
    const uint64_t *r;
    uint64_t u = 0, least = 0, sum = 0;
    bool any = false;
    int got, code = OK;
    while (!code && (got = shuffle_next(c->edges, &r, e)) != 0) {
        if (got < 0) return got;
        sum += hash64(r, 2 * sizeof *r);
        if (!any || r[0] != u) least = r[1] < r[0] ? r[1] : r[0]; /* its least neighbour comes first */
        any = true;
        u = r[0];
        if (r[1] > u) code = put(c, to, r[1], least, e);
    }
    if (!code) code = shuffle_finish(to, e);
    if (code) return code;
    int64_t halves[2] = {(int64_t)(sum >> 32), (int64_t)(sum & UINT32_MAX)};
    comm_wait(c->world, comm_all_reduce(c->world, halves, halves, 2, DT_I64, COMM_SUM, COMM_AT("sum over edges")));
    *print = ((uint64_t)halves[0] << 32) + (uint64_t)halves[1];
    return comm_status(c->world, e);
}

static int small_star(struct components *c, struct shuffle *from, struct shuffle *to, struct err *e)
{
    const uint64_t *r;
    uint64_t u = 0, least = 0;
    bool any = false;
    int got, code = OK;
    while (!code && (got = shuffle_next(from, &r, e)) != 0) {
        if (got < 0) return got;
        if (!any || r[0] != u) {
            least = r[1];
            u = r[0];
            any = true;
            code = put_both(c, to, u, least, e);
        } else {
            code = put_both(c, to, r[1], least, e);
        }
    }
    return code ? code : shuffle_finish(to, e);
}

int components_finish(struct components *c, struct err *e)
{
    uint64_t before = 0, now = 0;
    int code = shuffle_finish(c->edges, e);
    for (; !code; before = now) {
        CHECK(++c->rounds <= ROUNDS_MOST, "components are not done after %d rounds", ROUNDS_MOST);
        struct shuffle *small = new_shuffle(c, "small"), *large;
        code = large_star(c, small, &now, e);
        shuffle_free(c->edges);
        c->edges = small;
        if (code || (c->rounds > 1 && now == before)) break;
        large = new_shuffle(c, "large");
        code = small_star(c, small, large, e);
        shuffle_free(small);
        c->edges = large;
    }
    return code;
}

int components_next(struct components *c, uint64_t *vertex, uint64_t *least, struct err *e)
{
    const uint64_t *r;
    int got = shuffle_next(c->edges, &r, e);
    if (got <= 0) return got;
    *vertex = r[0];
    *least = r[1];
    return 1;
}

int components_rounds(const struct components *c) { return c->rounds; }

void components_free(struct components *c)
{
    if (!c) return;
    shuffle_free(c->edges);
    xfree(c->dir);
    xfree(c);
}
