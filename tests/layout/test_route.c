/* SPDX-License-Identifier: Apache-2.0 */
/* Routes between random layouts, executed on arrays. */
#include "world.h"

#include "layout/recognise.h"

#include <stdio.h>
#include <stdlib.h>

static struct mesh random_mesh(struct dice *d)
{
    static const int sizes[] = {1, 1, 1, 2, 2, 3, 4, 5};
    for (;;) {
        int degrees[AXIS_N] = {1, 1, 1, 1, 1, -1, 1, 1}, n = 1;
        for (int a = AXIS_PP; a <= AXIS_TP; a++) n *= degrees[a] = sizes[roll(d, 8)];
        if (n > WORLD_MAX_RANKS) continue;
        int per_pp = n / degrees[AXIS_PP];
        for (int k = 4; k > 0; k--)
            if (per_pp % k == 0 && roll(d, 2)) {
                degrees[AXIS_EP] = k;
                break;
            }
        struct mesh m;
        struct err e;
        if (mesh_init(&m, n, degrees, &e)) fail_msg("%s", e.text);
        return m;
    }
}

static struct shape random_shape(struct dice *d)
{
    int64_t n[SHAPE_MAX_DIMS];
    int nd = roll(d, 30) == 0 ? 0 : 1 + roll(d, SHAPE_MAX_DIMS);
    for (int i = 0; i < nd; i++) n[i] = roll(d, 40) == 0 ? 0 : 1 + roll(d, nd > 3 ? 3 : nd > 2 ? 5 : 13);
    return shape_of(nd, n);
}

static enum spmd random_letter(struct dice *d, int nd, bool allow_p)
{
    int k = roll(d, allow_p ? 6 : 5);
    if (k == 5) return SPMD_P;
    if (k == 0) return SPMD_I;
    if (k == 1 || nd == 0) return SPMD_R;
    return (enum spmd)(SPMD_S0 + roll(d, nd < 4 ? nd : 4));
}

/* Axes get letters in random order, so that splitting orders vary. `from` (may be NULL) says where P and V may be
 * kept. */
static struct layout random_layout(struct dice *d, const struct mesh *m, enum mesh_view v, struct shape shape,
                                   const struct layout *from)
{
    struct layout l = layout_on(m, v, shape, SPMD_I);
    enum axis axes[MESH_VIEW_MAX];
    int n = mesh_view_axes(v, axes);
    for (int i = n - 1; i > 0; i--) {
        int j = roll(d, i + 1);
        enum axis swap = axes[i];
        axes[i] = axes[j];
        axes[j] = swap;
    }
    for (int i = 0; i < n; i++) {
        enum axis a = axes[i];
        enum spmd was = from ? layout_type(from, a) : SPMD_I;
        enum spmd letter = random_letter(d, shape.nd, !from || was == SPMD_P);
        if (from ? was == SPMD_V : roll(d, 12) == 0) letter = SPMD_V;
        int size = m->size[a];
        if (letter != SPMD_V && letter != SPMD_P && was != SPMD_V && size == 4 && roll(d, 2)) {
            enum spmd inner = random_letter(d, shape.nd, !from);
            if (from && inner == SPMD_P) inner = SPMD_R;
            l = layout_with_factor(l, a, 2, letter, inner);
        } else {
            l = layout_with(l, a, letter);
        }
    }
    return l;
}

/* Explicit holders on pp, of both layouts, where it is legal. */
static void restrict_holders(struct dice *d, const struct mesh *m, struct layout *from, struct layout *to)
{
    int pp = m->size[AXIS_PP];
    for (int side = 0; side < 2; side++) {
        struct layout *l = side ? to : from;
        if (pp < 2 || roll(d, 3)) continue;
        bool whole = false;
        for (int i = 0; i < l->n_places; i++) whole |= l->place[i].on.axis == AXIS_PP && l->place[i].on.size == pp;
        if (!whole || is_p_or_v(layout_type(to, AXIS_PP))) continue;
        int a = roll(d, pp), b = roll(d, pp);
        if (a == b) *l = layout_hold_on(*l, &a, 1);
        else *l = layout_hold_on(*l, (int[]){a < b ? a : b, a < b ? b : a}, 2);
    }
}

struct tally {
    int routes, sums, empty, fans, reductions;
};

static void describe(const struct layout *from, const struct layout *to, uint64_t seed)
{
    struct str t = {0};
    layout_print(from, &t);
    str_puts(&t, "  ->  ");
    layout_print(to, &t);
    print_error("seed %llu: %s\n", (unsigned long long)seed, str_text(&t));
    str_free(&t);
}

static int64_t messages(const struct route *r, int src, int dst, int term)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r->n; i++)
        n += (src < 0 || r->msg[i].src == src) && (dst < 0 || r->msg[i].dst == dst) &&
             (term < 0 || r->msg[i].term == term);
    return n;
}

/* By the plain meaning: of a fan every peer has a message for each that the first has, with the same box, and nobody
 * else has any; of a sum every source has all of one term. */
static bool known_is_right(const struct route *r, int n_ranks, struct tally *tally)
{
    struct known_list k;
    bool good = true;
    recognise(&k, &r, 1, n_ranks);
    for (int i = 0; i < k.n; i++) {
        const struct known *x = &k.p[i];
        int64_t all = 0;
        bool fan = x->kind == KNOWN_FAN;
        *(fan ? &tally->fans : &tally->reductions) += 1;
        for (int j = 0; j < x->n; j++) {
            int src = fan ? x->root : x->rank[j], dst = fan ? x->rank[j] : x->root;
            int64_t here = messages(r, src, dst, fan ? 0 : j),
                    first = messages(r, fan ? src : x->rank[0], fan ? x->rank[0] : dst, -1);
            good &= here > 0 && here == first && here == messages(r, src, dst, -1);
            all += here;
        }
        good &= all ==
                (fan ? messages(r, x->root, -1, -1) - messages(r, x->root, x->root, -1) : messages(r, -1, x->root, -1));
    }
    known_free(&k);
    return good;
}

static bool one_pair(uint64_t seed, struct tally *tally)
{
    struct dice d = {seed, 0};
    struct mesh m = random_mesh(&d);
    struct shape shape = random_shape(&d);
    enum mesh_view va = roll(&d, 4) ? MESH_DENSE : MESH_EXPERT, vb = roll(&d, 4) ? va : MESH_EXPERT;
    struct layout from = random_layout(&d, &m, va, shape, NULL);
    struct layout to = random_layout(&d, &m, vb, shape, &from);
    restrict_holders(&d, &m, &from, &to);
    assert_int_equal(layout_check(&from, NULL), OK);
    assert_int_equal(layout_check(&to, NULL), OK);
    struct route *r;
    struct err e = {0};
    if (route_new(&r, &from, &to, &e)) return false;

    bool good = true;
    struct world a, b;
    world_new(&a, &from);
    world_new(&b, &to);
    world_fill(&a, &from);
    world_route(&b, &a, r);
    int64_t sent = 0, received = 0;
    for (int rank = 0; rank < m.n_ranks; rank++) {
        int64_t s, t;
        route_traffic(r, rank, &s, &t);
        sent += s;
        received += t;
        for (int64_t i = 0; b.data[rank] && i < region_volume(&b.box[rank]); i++) {
            int64_t want = expected_value(&from, &to, rank, global_index(&shape, &b.box[rank], i));
            good &= b.data[rank][i] == want && b.arrivals[rank][i] == r->n_terms;
        }
        tally->empty += b.data[rank] && region_volume(&b.box[rank]) == 0;
    }
    good &= sent == received && sent == route_traffic_total(r);
    for (int64_t i = 0; i < r->n; i++) { /* nothing travels that is there already */
        const struct route_msg *m1 = &r->msg[i];
        bool differs = layout_has(&from, SPMD_P) || layout_has(&from, SPMD_V);
        if (m1->src != m1->dst && !differs && a.data[m1->dst]) good &= !region_contains(&a.box[m1->dst], &m1->box);
    }
    good &= known_is_right(r, m.n_ranks, tally);
    tally->routes++;
    tally->sums += r->n_terms > 1;
    if (!good) describe(&from, &to, seed);
    world_free(&a);
    world_free(&b);
    route_free(r);
    return good;
}

static void test_random_pairs(void **state)
{
    (void)state;
    struct tally t = {0};
    int bad = 0;
    for (uint64_t seed = 1; seed <= 6000; seed++) {
        int before = t.routes;
        if (!one_pair(seed, &t) && t.routes > before) bad++;
    }
    print_message("%d routes, %d of them sums, %d empty pieces; %d fans, %d reductions\n", t.routes, t.sums, t.empty,
                  t.fans, t.reductions);
    assert_int_equal(bad, 0);
    assert_true(t.routes > 4000 && t.sums > 500 && t.empty > 500 && t.fans > 500 && t.reductions > 20);
}

/* There and back gives what was there, in every copy. */
static void test_inverse(void **state)
{
    (void)state;
    int n = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        struct dice d = {seed, 1000};
        struct mesh m = random_mesh(&d);
        struct shape shape = random_shape(&d);
        struct layout from = random_layout(&d, &m, MESH_DENSE, shape, NULL);
        struct layout to = random_layout(&d, &m, MESH_DENSE, shape, &from);
        if (layout_has(&from, SPMD_P)) continue;
        struct route *there, *back;
        if (route_new(&there, &from, &to, NULL)) continue;
        assert_int_equal(route_new(&back, &to, &from, NULL), OK);
        struct world a, b, c;
        world_new(&a, &from);
        world_new(&b, &to);
        world_new(&c, &from);
        world_fill(&a, &from);
        world_route(&b, &a, there);
        world_route(&c, &b, back);
        for (int r = 0; r < m.n_ranks; r++)
            if (a.data[r])
                assert_memory_equal(a.data[r], c.data[r], to_size(region_volume(&a.box[r])) * sizeof(int64_t));
        world_free(&a);
        world_free(&b);
        world_free(&c);
        route_free(there);
        route_free(back);
        n++;
    }
    assert_true(n > 300);
}

static struct mesh mesh_of(int pp, int dpr, int dps, int cp, int tp)
{
    struct mesh m;
    int degrees[AXIS_N] = {pp, dpr, dps, cp, tp, -1, 1, 1};
    assert_int_equal(mesh_init(&m, pp * dpr * dps * cp * tp, degrees, NULL), OK);
    return m;
}

static void expect_known(const struct holding *from, int n_from, const struct holding *to, int n_to, int n_ranks,
                         const char *want)
{
    struct route *r;
    struct known_list k;
    struct str t = {0};
    assert_int_equal(route_new_holdings(&r, from, n_from, to, n_to, NULL), OK);
    const struct route *list[] = {r, r}; /* two tensors alike */
    recognise(&k, list, 2, n_ranks);
    known_print(&k, &t);
    assert_string_equal(str_text(&t), want);
    known_free(&k);
    route_free(r);
    str_free(&t);
}

#define ROWS(lo, hi)                                                                                                   \
    {                                                                                                                  \
        .nd = 1, {lo}, { hi }                                                                                          \
    }
/* Two servers with rows of what three workers have whole: a pull and a push, on meshes of their own. */
static void test_known(void **state)
{
    (void)state;
    struct holding server[2] = {{.holder = 3, .box = ROWS(0, 4)}, {.holder = 4, .box = ROWS(4, 7)}}, worker[3],
                   three[3];
    for (int i = 0; i < 3; i++) three[i] = worker[i] = (struct holding){.holder = i, .box = ROWS(0, 7)};
    expect_known(server, 2, worker, 3, 5, "fan 3 to 0, 1, 2; fan 4 to 0, 1, 2");
    expect_known(server, 2, worker, 1, 5, "nothing");
    three[2].box = (struct region)ROWS(0, 6); /* a row less, from the second server */
    expect_known(server, 2, three, 3, 5, "fan 3 to 0, 1, 2");
    three[2].box = (struct region)ROWS(4, 7); /* nothing from the first */
    expect_known(server, 2, three, 3, 5, "fan 3 to 0, 1; fan 4 to 0, 1, 2");
    for (int i = 0; i < 3; i++) worker[i].term = i;
    expect_known(worker, 3, server, 2, 5, "sum 0, 1, 2 to 3; sum 0, 1, 2 to 4");
    server[1].holder = 2; /* who has a term of its own */
    expect_known(worker, 3, server, 2, 5, "sum 0, 1, 2 to 3");
    worker[0].term = 1, worker[1].term = 0; /* another order than the ranks' */
    expect_known(worker, 3, server, 1, 5, "nothing");
}

/* tp 8 over 2 KV heads: sharded over the outer factor, copies over the inner one. */
static void test_kv_heads(void **state)
{
    (void)state;
    struct mesh m = mesh_of(1, 1, 1, 1, 8);
    struct layout all = layout_on(&m, MESH_DENSE, SHAPE_OF(16, 6), SPMD_I);
    struct layout kv = layout_with_factor(all, AXIS_TP, 2, SPMD_S0, SPMD_R);
    struct str t = {0};
    layout_print(&kv, &t);
    assert_string_equal(str_text(&t), "[16, 6] tp/4:S0 tp%4:R");
    for (int r = 0; r < 8; r++) {
        struct region box = layout_box(&kv, r);
        assert_int_equal(box.lo[0], r / 4 * 8);
        assert_int_equal(box.hi[0], r / 4 * 8 + 8);
    }
    str_free(&t);
}

/* Copies are taken from the own rank first, then nearby, then evenly. */
static void test_choice_of_replica(void **state)
{
    (void)state;
    struct mesh m = mesh_of(2, 1, 4, 1, 1);
    struct layout on0 = layout_hold_on(layout_on(&m, MESH_DENSE, SHAPE_OF(8), SPMD_R), (int[]){0}, 1);
    struct layout on1 = layout_hold_on(layout_on(&m, MESH_DENSE, SHAPE_OF(8), SPMD_R), (int[]){1}, 1);
    struct route *r;
    assert_int_equal(route_new(&r, &on0, &on1, NULL), OK);
    assert_int_equal(r->n, 4);
    for (int rank = 0; rank < 4; rank++) {
        int64_t sent, received;
        route_traffic(r, rank, &sent, &received);
        assert_int_equal(sent, 8); /* four senders, one receiver each */
    }
    route_free(r);
    struct layout every = layout_on(&m, MESH_DENSE, SHAPE_OF(8), SPMD_R);
    assert_int_equal(route_new(&r, &every, &every, NULL), OK);
    assert_int_equal(route_traffic_total(r), 0);
    route_free(r);
    /* Two columns of pp: the piece comes from the same pp although the other side is free too. */
    struct layout cut = layout_with(every, AXIS_DP_SHARD, SPMD_S0);
    assert_int_equal(route_new(&r, &cut, &every, NULL), OK);
    for (int64_t i = 0; i < r->n; i++) assert_int_equal(r->msg[i].src / 4, r->msg[i].dst / 4);
    struct str t = {0};
    route_print(r, &t);
    const char *begins = "0 -> 0 [0:2] (stays)\n1 -> 0 [2:4]\n";
    assert_true(str_starts(str_text(&t), begins));
    str_free(&t);
    route_free(r);
}

/* A checkpoint: files are holders beyond the ranks. Written from one layout, read into another, never twice. */
static void test_files(void **state)
{
    (void)state;
    struct mesh m = mesh_of(1, 2, 2, 1, 2), n = mesh_of(1, 1, 3, 1, 1);
    struct shape shape = SHAPE_OF(7, 5);
    struct layout memory =
        layout_with(layout_with(layout_on(&m, MESH_DENSE, shape, SPMD_R), AXIS_TP, SPMD_S1), AXIS_DP_SHARD, SPMD_S0);
    struct holding from[8], files[8], to[3];
    int n_files = 0;
    for (int r = 0; r < 8; r++)
        if (layout_is_first(&memory, r)) {
            files[n_files] = (struct holding){100 + n_files, 0, 0, layout_box(&memory, r)};
            n_files++;
        }
    assert_int_equal(n_files, 4);
    assert_int_equal(layout_holdings(&memory, from), 8);
    struct route *write, *read;
    assert_int_equal(route_new_holdings(&write, from, 8, files, n_files, NULL), OK);
    assert_int_equal(write->n, 4);
    assert_int_equal(route_traffic_total(write), 35);
    struct layout other = layout_with(layout_on(&n, MESH_DENSE, shape, SPMD_R), AXIS_DP_SHARD, SPMD_S0);
    assert_int_equal(layout_holdings(&other, to), 3);
    assert_int_equal(route_new_holdings(&read, files, n_files, to, 3, NULL), OK);
    assert_int_equal(route_traffic_total(read), 35);
    route_free(read);
    struct err e;
    assert_int_equal(route_new_holdings(&read, files, n_files - 1, to, 3, &e), ERR_CORRUPT);
    assert_string_equal(e.text, "nobody holds [4:5, 3:5], which 1 wants");
    assert_null(read);
    /* Overlapping files: the first is preferred, the rest comes from the second. */
    struct holding two[2] = {{100, 0, 0, {1, {2}, {6}}}, {101, 0, 0, {1, {0}, {8}}}};
    struct holding whole = {0, 0, 0, {1, {0}, {8}}};
    assert_int_equal(route_new_holdings(&read, two, 2, &whole, 1, NULL), OK);
    struct str t = {0};
    route_print(read, &t);
    assert_string_equal(str_text(&t), "101 -> 0 [0:2]\n100 -> 0 [2:6]\n101 -> 0 [6:8]\n");
    str_free(&t);
    route_free(read);
    route_free(write);
    two[1].box.hi[0] = -1;
    assert_int_equal(route_new_holdings(&read, two, 2, &whole, 1, &e), ERR_CORRUPT);
    assert_string_equal(e.text, "box 1 of 2 (holder 101): wanted a box of 1 dims with 0 <= begin <= end");
    two[1].box = (struct region){2, {0, 0}, {8, 1}};
    assert_int_equal(route_new_holdings(&read, two, 2, &whole, 1, &e), ERR_CORRUPT);
}

/* Stretches of random boxes: few boxes, which one behind the other are the same elements in the same order. */
static void test_stretches(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct region box = {.nd = (int)(rng_u64(seed, 7, 0) % 5)}, part[REGION_STRETCH];
        for (int d = 0; d < box.nd; d++) {
            box.lo[d] = (int64_t)(rng_u64(seed, 8, (uint64_t)d) % 4);
            box.hi[d] = box.lo[d] + 1 + (int64_t)(rng_u64(seed, 9, (uint64_t)d) % 5);
        }
        int64_t all = region_volume(&box), lo = (int64_t)(rng_u64(seed, 10, 0) % (uint64_t)all), at = lo;
        int64_t n = (int64_t)(rng_u64(seed, 10, 1) % (uint64_t)(all - lo + 1));
        int k = region_stretch(&box, lo, n, part);
        assert_true(k <= (box.nd ? 2 * box.nd - 1 : 1) && (n || !k));
        for (int i = 0; i < k; i++) {
            struct region_run run; /* as a holder of the part has them, and as a holder of the box */
            for (bool more = region_run_first(&run, &part[i], &part[i], &box); more; more = region_run_next(&run)) {
                assert_int_equal(run.b, at);
                at += run.n;
            }
        }
        assert_int_equal(at, lo + n);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct mesh m = mesh_of(1, 1, 2, 1, 2);
    struct layout r = layout_on(&m, MESH_DENSE, SHAPE_OF(4), SPMD_R);
    struct layout p = layout_with(r, AXIS_TP, SPMD_P), v = layout_with(r, AXIS_DP_SHARD, SPMD_V);
    struct layout other = layout_on(&m, MESH_DENSE, SHAPE_OF(5), SPMD_R);
    struct route *route;
    struct err e;
    assert_int_equal(route_new(&route, &r, &p, &e), ERR_REQUEST);
    assert_string_equal(e.text, "tp: a route can keep a sum owed (P) but not make it");
    assert_int_equal(route_new(&route, &v, &r, &e), ERR_REQUEST);
    assert_string_equal(e.text, "dp_shard: its ranks hold different things (V); no route joins them");
    assert_int_equal(route_new(&route, &r, &other, &e), ERR_REQUEST);
    assert_string_equal(e.text, "a route from [4] to [5]: the global shapes differ");
    assert_null(route);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_pairs), cmocka_unit_test(test_inverse),           cmocka_unit_test(test_known),
        cmocka_unit_test(test_kv_heads),     cmocka_unit_test(test_choice_of_replica), cmocka_unit_test(test_files),
        cmocka_unit_test(test_stretches),    cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
