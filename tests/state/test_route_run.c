/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors travel between random layouts of 8 ranks, several at once, and arrive bit for bit: whole, cut along
 * several dims, with remainders, empty pieces, heads kept together, axes of which one coordinate has it all, holders
 * that are missing on either side, replicas to choose from, sums owed, and another mesh for the destination than for
 * the source. What is not a destination stays as it was, and so does every source. Bytes and buffers are what the null
 * device says beforehand. */
#include "run/toy.h"

#include "base/mem.h"
#include "base/rng.h"
#include "state/route_run.h"

enum { RANKS = 8, TENSORS = 6, CASES = 60, GUARD = 24 /* bytes in front of and behind a box */ };

struct dice {
    uint64_t seed, at;
};
static int roll(struct dice *d, int n) { return (int)(rng_u64(d->seed, 3, d->at++) % (uint64_t)n); }

static struct mesh random_mesh(struct dice *d)
{
    static const int dense[][5] = {{1, 1, 1, 1, 8}, {2, 1, 2, 1, 2}, {1, 2, 2, 2, 1}, {4, 1, 1, 1, 2},
                                   {1, 1, 4, 2, 1}, {2, 2, 2, 1, 1}, {1, 1, 2, 1, 4}};
    const int *s = dense[roll(d, 7)];
    struct mesh m;
    int ep = roll(d, 2) ? 1 : 8 / s[0] / (roll(d, 2) + 1);
    assert_int_equal(mesh_init(&m, RANKS, (int[AXIS_N]){s[0], s[1], s[2], s[3], s[4], -1, ep, 1}, NULL), OK);
    return m;
}

/* Axes get their letters in random order: that is the order of cuts. */
static struct layout random_layout(struct dice *d, struct shape shape, bool source, bool sums)
{
    struct mesh m = random_mesh(d);
    enum mesh_view view = roll(d, 3) ? MESH_DENSE : MESH_EXPERT;
    struct layout l = layout_on(&m, view, shape, roll(d, 2) ? SPMD_I : SPMD_R);
    enum axis axes[MESH_VIEW_MAX];
    int n = mesh_view_axes(view, axes), first = roll(d, n);
    if (view == MESH_DENSE && !roll(d, 3)) l = layout_with_joined(l, AXIS_DP_SHARD, AXIS_CP, SPMD_S0);
    for (int i = 0; i < n; i++) {
        enum axis a = axes[(first + i) % n];
        int k = roll(d, 8), size = m.size[a], dim = roll(d, shape.nd), there = -1;
        for (int p = 0; p < l.n_places; p++)
            if (l.place[p].on.axis == a && l.place[p].on.size == l.place[p].on.of) there = p;
        if (there < 0 || spmd_is_shard(l.place[there].type)) continue;
        if (k < 3) l = layout_with(l, a, (enum spmd)(SPMD_S0 + dim));
        else if (k == 3 && size > 1) l = layout_hold_at(l, a, roll(d, size));
        else if (k == 4 && size == 4) l = layout_with_factor(l, a, 2, (enum spmd)(SPMD_S0 + dim), SPMD_R);
        else if (k == 5 && a == AXIS_PP && size > 1) l = layout_hold_on(l, (int[]){roll(d, size)}, 1);
        else if (k == 6 && source && sums) l = layout_with(l, a, SPMD_P);
        else if (k == 7 && shape.n[0] % 3 == 0) {
            bool cut = false;
            for (int p = 0; p < l.n_places; p++) cut |= l.place[p].type == SPMD_S0;
            if (!cut) l = layout_with_unit(l, a, SPMD_S0, 3);
        }
    }
    struct err e;
    if (layout_check(&l, &e)) fail_msg("%s", e.text);
    return l;
}

struct tensor_case {
    enum dtype dtype;
    struct layout from, to;
    struct route *route;
    int term_of[RANKS];
};
/* The world's own communicator is the hosts'. */
static int device_group(struct comm **out, struct comm *world, const struct device *d, struct err *e)
{
    int all[RANKS];
    for (int i = 0; i < RANKS; i++) all[i] = i;
    int rc = comm_split_list(out, world, all, RANKS, "routes", e);
    if (!rc) comm_on(*out, d);
    return rc;
}

struct trial {
    uint64_t seed;
    int n;
    struct tensor_case t[TENSORS];
    bool untouchable, late;
    bool often; /* what is recognised runs as a collective */
    size_t wire[RANKS];
    int64_t sends[RANKS];
};

/* The value of an element: any bits for what is copied, floats of all sizes for what is summed. */
static float term_value(uint64_t tensor, int term, uint64_t index)
{
    return rng_normal(tensor, 50 + (uint64_t)term, index) *
           (float)(1 << rng_u64(tensor, 60 + (uint64_t)term, index) % 20);
}

static void expect(const struct tensor_case *t, uint64_t tensor, uint64_t index, int term, void *out)
{
    uint64_t bits = rng_u64(tensor, 40, index);
    int n = layout_n_terms(&t->from);
    if (n == 1) {
        memcpy(out, &bits, dtype_bytes(t->dtype));
        return;
    }
    float sum = term_value(tensor, term < 0 ? 0 : term, index);
    for (int k = 1; term < 0 && k < n; k++) sum += term_value(tensor, k, index);
    memcpy(out, &sum, sizeof sum);
}

/* A box as it should be in memory, with guards around it: sources hold their term (term >= 0), destinations the sum
 * (-1). */
static unsigned char *image(const struct tensor_case *t, uint64_t tensor, const struct region *box, int term,
                            size_t *bytes)
{
    size_t width = dtype_bytes(t->dtype);
    struct region whole = region_whole(&t->from.shape);
    struct region_run run;
    *bytes = to_size(region_volume(box)) * width + 2 * GUARD;
    unsigned char *p = xmalloc(*bytes);
    memset(p, 0xA5, *bytes);
    for (bool more = region_run_first(&run, box, box, &whole); more; more = region_run_next(&run))
        for (int64_t k = 0; k < run.n; k++)
            expect(t, tensor, (uint64_t)(run.b + k), term, p + GUARD + to_size(run.a + k) * width);
    return p;
}

struct end {
    struct buffer buf;
    unsigned char *want; /* what must be there at the end */
    size_t bytes;
    struct region box;
};

static void put(struct end *x, struct stream *st, unsigned char *now)
{
    struct err e;
    if (buffer_new(&x->buf, st->dev, MEM_DATA, x->bytes, &e)) fail_msg("%s", e.text);
    if (now) device_from_host(st, &x->buf, 0, now, x->bytes);
    stream_sync(st);
}

static struct route_end end_of(const struct end *x)
{
    return (struct route_end){x->want ? &x->buf : NULL, GUARD, x->box};
}

/* Both ends of every tensor on one rank; what is held nowhere stays all zeros. */
static void ends(struct trial *x, int rank, struct stream *st, struct end from[TENSORS], struct end to[TENSORS],
                 struct route_tensor list[TENSORS])
{
    for (int i = 0; i < x->n; i++) {
        const struct tensor_case *t = &x->t[i];
        uint64_t tensor = x->seed * TENSORS + (uint64_t)i;
        if (layout_holds(&t->from, rank)) {
            from[i].box = layout_box(&t->from, rank);
            from[i].want = image(t, tensor, &from[i].box, t->term_of[rank], &from[i].bytes);
            put(&from[i], st, from[i].want);
        }
        if (layout_holds(&t->to, rank)) {
            to[i].box = layout_box(&t->to, rank);
            to[i].want = image(t, tensor, &to[i].box, -1, &to[i].bytes);
            unsigned char *now = xmalloc(to[i].bytes);
            memset(now, 0xA5, to[i].bytes);
            put(&to[i], st, now);
            xfree(now);
        }
        list[i] = (struct route_tensor){t->route, t->dtype, end_of(&from[i]), end_of(&to[i])};
    }
}

static int64_t wrong(const struct end *x, struct stream *st)
{
    if (!x->want) return -1;
    unsigned char *now = xmalloc(x->bytes);
    int64_t at = -1;
    device_to_host(st, now, &x->buf, 0, x->bytes);
    stream_sync(st);
    for (size_t i = 0; i < x->bytes && at < 0; i++)
        if (now[i] != x->want[i]) at = (int64_t)i;
    xfree(now);
    return at;
}

static int finish(const struct trial *x, int rank, const char *side, struct end *e, struct stream *st, bool compare,
                  struct err *err)
{
    int rc = OK;
    for (int i = 0; i < x->n; i++) {
        int64_t at = compare ? wrong(&e[i], st) : -1;
        if (at >= 0 && !rc) {
            struct str text = {0};
            layout_print(&x->t[i].from, &text);
            str_puts(&text, "  ->  ");
            layout_print(&x->t[i].to, &text);
            rc = err_set(err, ERR_CORRUPT, "seed %d, rank %d: byte %d of the %s of tensor %d (%s): %s", (int)x->seed,
                         rank, (int)at - GUARD, side, i, dtype_name(x->t[i].dtype), str_text(&text));
            str_free(&text);
        }
        if (e[i].want) buffer_free(&e[i].buf);
        xfree(e[i].want);
        e[i].want = NULL;
    }
    return rc;
}

static int64_t sent_by(const struct comm *c, const struct route_run *run)
{
    int64_t n = comm_traffic(c).bytes;
    const struct comm *group;
    for (int i = 0; (group = route_run_group(run, i)); i++) n += comm_traffic(group).bytes;
    return n;
}

static int rank_main(struct comm *world, void *arg, struct err *e)
{
    struct trial *x = arg;
    struct device *d;
    int rank = comm_rank(world), rc;
    if (x->late) rc = device_late_new(&d, 1, x->seed, NULL, NULL, e);
    else rc = x->untouchable ? device_untouchable_new(&d, 1, e) : device_cpu_new(&d, 1, e);
    if (rc) return rc;
    struct stream *st;
    struct kernel_table k;
    struct end from[TENSORS] = {0}, to[TENSORS] = {0};
    struct route_tensor list[TENSORS] = {0};
    struct route_run *run;
    if ((rc = kernel_table_init(&k, "auto", 1, false, e))) return rc;
    if ((rc = stream_new(&st, d, "routes", e))) return rc;
    kernel_on(st, &k);
    comm_stream_on(world, st);
    struct comm *c;
    if ((rc = device_group(&c, world, d, e))) return rc;
    ends(x, rank, st, from, to, list);
    rc = route_run_new(&run, c, st, list, x->n, x->often ? "often" : NULL, e);
    for (int again = 0; again < 2 && !rc; again++) { /* it may run twice */
        int64_t sent = sent_by(c, run);
        route_run_begin(run, "tensors");
        while (again && !route_run_done(run)) continue;
        route_run_end(run);
        rc = comm_status(world, e);
        if (!rc && sent_by(c, run) - sent != route_run_sends(run))
            rc = err_set(e, ERR_CORRUPT, "bytes are not what was said");
    }
    if (!rc && (x->wire[rank] != route_run_bytes(run) || x->sends[rank] != route_run_sends(run)))
        rc = err_set(e, ERR_CORRUPT, "rank %d: on paper %zu bytes of buffers, %lld sent; here %zu, %lld", rank,
                     x->wire[rank], (long long)x->sends[rank], route_run_bytes(run), (long long)route_run_sends(run));
    route_run_free(run);
    struct err found = {0};
    int bad = finish(x, rank, "source", from, st, !rc, &found);
    bad |= finish(x, rank, "destination", to, st, !rc && !bad, &found);
    if (bad && !rc) rc = bad, *e = found;
    comm_free(c);
    comm_stream_off(world, st);
    stream_free(st);
    device_free(d);
    return rc;
}

/* What each rank would take and send, from one thread, on the null device. */
static void on_paper(struct trial *x)
{
    for (int rank = 0; rank < RANKS; rank++) {
        struct device *d;
        struct comm *world, *c;
        struct end from[TENSORS] = {0}, to[TENSORS] = {0};
        struct route_tensor list[TENSORS] = {0};
        struct route_run *run;
        struct err e;
        if (device_null_new(&d, &e) || comm_world_null(&world, rank, RANKS, NULL, &e)) fail_msg("%s", e.text);
        struct stream *st;
        if (stream_new(&st, d, "routes", &e)) fail_msg("%s", e.text);
        if (device_group(&c, world, d, &e)) fail_msg("%s", e.text);
        ends(x, rank, st, from, to, list);
        if (route_run_new(&run, c, st, list, x->n, x->often ? "often" : NULL, &e)) fail_msg("%s", e.text);
        route_run_begin(run, "on paper");
        route_run_end(run);
        x->wire[rank] = route_run_bytes(run);
        x->sends[rank] = route_run_sends(run);
        assert_int_equal(sent_by(c, run), x->sends[rank]);
        route_run_free(run);
        finish(x, rank, "", from, st, false, &e);
        finish(x, rank, "", to, st, false, &e);
        comm_free(c);
        comm_free(world);
        stream_free(st);
        device_free(d);
    }
}

struct seen {
    int copies, sums, direct, missing, local;
};

static void make(struct trial *x, struct seen *s)
{
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_I64, DT_U8, DT_F32};
    struct dice d = {x->seed, 0};
    x->n = 1 + roll(&d, TENSORS);
    for (int i = 0; i < x->n; i++) {
        struct tensor_case *t = &x->t[i];
        int64_t n[4];
        int nd = 1 + roll(&d, 4);
        for (int k = 0; k < nd; k++) n[k] = roll(&d, 20) == 0 ? 0 : 1 + roll(&d, nd < 3 ? 17 : 6);
        t->dtype = types[roll(&d, 5)];
        struct err e;
        do {
            t->from = random_layout(&d, shape_of(nd, n), true, t->dtype == DT_F32);
            t->to = random_layout(&d, shape_of(nd, n), false, false);
        } while (route_may(&t->from, &t->to, NULL));
        if (route_new(&t->route, &t->from, &t->to, &e)) fail_msg("%s", e.text);
        struct holding h[RANKS];
        for (int k = layout_holdings(&t->from, h); k-- > 0;) t->term_of[h[k].holder] = h[k].term;
        s->sums += layout_has(&t->from, SPMD_P) && layout_n_terms(&t->from) > 1;
        s->copies += layout_n_terms(&t->from) == 1;
        for (int r = 0; r < RANKS; r++) s->missing += !layout_holds(&t->from, r) + !layout_holds(&t->to, r);
        for (int64_t k = 0; k < t->route->n; k++) s->local += t->route->msg[k].src == t->route->msg[k].dst;
    }
}

static void test_random_layouts(void **state)
{
    (void)state;
    struct seen s = {0};
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct trial x = {.seed = seed, .untouchable = seed % 2, .late = seed % 5 == 4, .often = seed % 3 == 2};
        struct comm_config cc = {.timeout_s = 60};
        struct err e = {0};
        make(&x, &s);
        on_paper(&x);
        for (int r = 0; r < RANKS; r++) s.direct += x.sends[r] > 0 && x.wire[r] == 0;
        if (comm_run_local(RANKS, &cc, rank_main, &x, &e)) fail_msg("%s", e.text);
        for (int i = 0; i < x.n; i++) route_free(x.t[i].route);
    }
    assert_true(s.copies > CASES && s.sums > 5 && s.direct > 5 && s.missing > 100 && s.local > 100);
}

/* Of replicas that are equally near each sends its share. */
static void test_balanced(void **state)
{
    (void)state;
    struct trial x = {.seed = 1, .n = 1};
    struct mesh m;
    struct comm_config cc = {.timeout_s = 60};
    struct err e = {0};
    assert_int_equal(mesh_init(&m, RANKS, (int[AXIS_N]){2, 1, 4, 1, 1, -1, 1, 1}, NULL), OK);
    struct tensor_case *t = &x.t[0];
    t->dtype = DT_F32;
    t->from = layout_hold_on(layout_on(&m, MESH_DENSE, SHAPE_OF(12, 5), SPMD_R), (int[]){0}, 1);
    t->to = layout_hold_on(t->from, (int[]){1}, 1);
    assert_int_equal(route_new(&t->route, &t->from, &t->to, &e), OK);
    on_paper(&x);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(x.sends[r], r < 4 ? 12 * 5 * 4 : 0);
        assert_int_equal(x.wire[r], 0); /* whole boxes go from where they lie to where they belong */
    }
    if (comm_run_local(RANKS, &cc, rank_main, &x, &e)) fail_msg("%s", e.text);
    route_free(t->route);
}

static void test_sums_of_narrow_types_are_refused(void **state)
{
    (void)state;
    struct mesh m;
    struct device *d;
    struct comm *world;
    struct route_run *run;
    struct route *r;
    struct err e = {0};
    assert_int_equal(mesh_init(&m, RANKS, (int[AXIS_N]){1, 1, 8, 1, 1, -1, 1, 1}, NULL), OK);
    struct layout owed = layout_on(&m, MESH_DENSE, SHAPE_OF(9), SPMD_I),
                  rows = layout_with(owed, AXIS_DP_SHARD, SPMD_S0);
    owed = layout_with(owed, AXIS_DP_SHARD, SPMD_P);
    assert_int_equal(route_new(&r, &owed, &rows, &e), OK);
    assert_int_equal(device_null_new(&d, &e), OK);
    assert_int_equal(comm_world_null(&world, 0, RANKS, NULL, &e), OK);
    struct stream *st;
    assert_int_equal(stream_new(&st, d, "routes", &e), OK);
    assert_int_equal(route_run_new(&run, world, st, &(struct route_tensor){.route = r, .dtype = DT_BF16}, 1, NULL, &e),
                     ERR_REQUEST);
    assert_null(run);
    assert_string_equal(e.text, "tensor 0: a route with 8 terms of bf16 would round at every one of them; send f32, or "
                                "reduce it by a collective");
    route_free(r);
    comm_free(world);
    stream_free(st);
    device_free(d);
}

/* A rank that fails instead of sending takes the others down, and none of them unpacks. */
static int one_fails(struct comm *world, void *arg, struct err *e)
{
    struct trial *x = arg;
    struct device *d;
    int rank = comm_rank(world), rc = device_cpu_new(&d, 1, e);
    if (rc) return rc;
    struct stream *st;
    if ((rc = stream_new(&st, d, "routes", e))) return rc;
    struct end from[TENSORS] = {0}, to[TENSORS] = {0};
    struct route_tensor list[TENSORS] = {0};
    struct route_run *run;
    struct err none;
    struct comm *c;
    if ((rc = device_group(&c, world, d, e))) return rc;
    ends(x, rank, st, from, to, list);
    rc = route_run_new(&run, c, st, list, x->n, x->often ? "often" : NULL, e);
    if (!rc && rank == 2) {
        comm_abort(world, &(struct err){.code = ERR_IO, .text = "the disk is gone"});
    } else if (!rc) {
        route_run_begin(run, "tensors");
        route_run_end(run);
    }
    if (!rc) rc = comm_status(world, e);
    route_run_free(run);
    finish(x, rank, "", from, st, false, &none);
    finish(x, rank, "", to, st, false, &none);
    comm_free(c);
    stream_free(st);
    device_free(d);
    return rc;
}

static void test_one_rank_fails(void **state)
{
    (void)state;
    struct trial x = {.seed = 1, .n = 1};
    struct mesh m;
    struct comm_config cc = {.timeout_s = 60};
    struct err e = {0};
    assert_int_equal(mesh_init(&m, RANKS, (int[AXIS_N]){1, 1, 8, 1, 1, -1, 1, 1}, NULL), OK);
    struct tensor_case *t = &x.t[0];
    t->dtype = DT_F32;
    t->from = layout_with(layout_on(&m, MESH_DENSE, SHAPE_OF(12, 5), SPMD_R), AXIS_DP_SHARD, SPMD_S0);
    t->to = layout_on(&m, MESH_DENSE, SHAPE_OF(12, 5), SPMD_R);
    assert_int_equal(route_new(&t->route, &t->from, &t->to, &e), OK);
    assert_int_equal(comm_run_local(RANKS, &cc, one_fails, &x, &e), ERR_IO);
    assert_non_null(strstr(e.text, "the disk is gone"));
    route_free(t->route);
}

/* Two tensors of unlike width in one buffer on either side, and between them, where a message would have nothing, bytes
 * of somebody else. */
enum { GAP_AT = 6, WIDE_AT = 8, GAP_BYTES = 16 };

static int over_a_gap(struct comm *world, void *arg, struct err *e)
{
    const struct route *const *route = arg;
    struct device *d;
    struct stream *st;
    struct buffer b;
    struct comm *c;
    struct route_run *run;
    unsigned char bytes[GAP_BYTES], back[GAP_BYTES];
    int rank = comm_rank(world), rc;
    for (int i = 0; i < GAP_BYTES; i++) bytes[i] = (unsigned char)(100 * rank + i);
    if ((rc = device_cpu_new(&d, 1, e)) || (rc = stream_new(&st, d, "routes", e)) ||
        (rc = comm_split_list(&c, world, (int[]){0, 1}, 2, "routes", e)) ||
        (rc = buffer_new(&b, d, MEM_DATA, sizeof bytes, e)))
        return rc;
    comm_on(c, d);
    device_from_host(st, &b, 0, bytes, sizeof bytes);
    struct route_end narrow = {&b, 0, {.nd = 1, .hi = {3}}}, wide = {&b, WIDE_AT, {.nd = 1, .hi = {2}}};
    struct route_tensor list[] = {{route[0], DT_BF16, narrow, narrow}, {route[1], DT_F32, wide, wide}};
    if ((rc = route_run_new(&run, c, st, list, 2, NULL, e))) return rc;
    route_run_begin(run, "over a gap");
    route_run_end(run);
    device_to_host(st, back, &b, 0, sizeof back);
    stream_sync(st);
    for (int i = 0; i < GAP_BYTES; i++) {
        bool travels = rank == 1 && (i < GAP_AT || i >= WIDE_AT);
        assert_int_equal(back[i], travels ? i : bytes[i]);
    }
    route_run_free(run);
    buffer_free(&b);
    comm_free(c);
    stream_free(st);
    device_free(d);
    return comm_status(world, e);
}

static void test_gaps_are_left_alone(void **state)
{
    (void)state;
    struct comm_config cc = {.timeout_s = 60};
    struct route *route[2];
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        struct holding from = {.holder = 0, .box = {.nd = 1, .hi = {i ? 2 : 3}}}, to = from;
        to.holder = 1;
        assert_int_equal(route_new_holdings(&route[i], &from, 1, &to, 1, &e), OK);
    }
    if (comm_run_local(2, &cc, over_a_gap, route, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < 2; i++) route_free(route[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gaps_are_left_alone),
                                       cmocka_unit_test(test_random_layouts), cmocka_unit_test(test_balanced),
                                       cmocka_unit_test(test_sums_of_narrow_types_are_refused),
                                       cmocka_unit_test(test_one_rank_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
