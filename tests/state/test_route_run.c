/* SPDX-License-Identifier: Apache-2.0 */
/* Random tensors travel between random layouts of 8 ranks, several at once, and arrive bit for bit: whole, cut along
 * several dims, with remainders, empty pieces, heads kept together, axes of which one coordinate has it all, holders
 * that are missing on either side, replicas to choose from, sums owed, and another mesh for the destination than for
 * the source. What is not a destination stays as it was, and so does every source. Bytes and buffers are what the null
 * device says beforehand. */
#include "toy.h"

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

/* ---- in rounds ---- */
/* A file is one more holder: stretches of stored boxes, each read by some rank, travel a few at a time to a random
 * layout, as engine/loading.c brings a checkpoint. Each round's memory is what it reads and receives, however many want
 * it. */
enum { AT_ONCE = 3, MOST_PARTS = AT_ONCE * REGION_STRETCH };

struct stretches {
    struct trial *x;
    struct dice d;
    int tensor, box; /* of the next stretch */
    int64_t lo;
};

/* The next stretch, of some tensor's some box, in one order on all ranks; returns its boxes, 0 when there is no more.
 */
static int next_stretch(struct stretches *s, struct region part[REGION_STRETCH], int *tensor, int *reader)
{
    for (; s->tensor < s->x->n; s->tensor++, s->box = 0)
        for (const struct layout *l = &s->x->t[s->tensor].from; s->box < RANKS; s->box++, s->lo = 0) {
            if (!layout_holds(l, s->box) || !layout_is_first(l, s->box)) continue;
            struct region box = layout_box(l, s->box);
            int64_t left = region_volume(&box) - s->lo, n = 1 + roll(&s->d, 40);
            if (!left) continue;
            if (n > left) n = left;
            *tensor = s->tensor;
            *reader = roll(&s->d, RANKS);
            int k = region_stretch(&box, s->lo, n, part);
            s->lo += n;
            return k;
        }
    return 0;
}

static struct route *part_route(const struct layout *to, int reader, const struct region *part, int64_t *here, int rank)
{
    struct holding from = {.holder = reader, .box = *part}, want[RANKS];
    struct route *r;
    struct err e;
    int n = 0;
    for (int i = 0; i < RANKS; i++) {
        struct region box;
        if (!layout_holds(to, i)) continue;
        box = layout_box(to, i);
        want[n].term = want[n].lane = 0;
        want[n].holder = i;
        if (!region_intersect(part, &box, &want[n].box)) continue;
        if (i == rank && i != reader) *here += region_volume(&want[n].box);
        n++;
    }
    if (route_new_holdings(&r, &from, 1, want, n, &e)) fail_msg("%s", e.text);
    return r;
}

/* One round; false: nothing was left. */
static bool one_round(struct stretches *s, struct comm *c, struct stream *st, struct end to[TENSORS], int *rc,
                      struct err *e)
{
    struct route_tensor list[MOST_PARTS] = {0};
    struct route *route[MOST_PARTS];
    struct end from[MOST_PARTS] = {0};
    struct region part[REGION_STRETCH];
    struct route_run *run;
    int n = 0, tensor, reader, rank = comm_rank(c);
    int64_t bytes = 0;
    for (int i = 0; i < AT_ONCE; i++)
        for (int k = next_stretch(s, part, &tensor, &reader), j = 0; j < k; j++, n++) {
            const struct tensor_case *t = &s->x->t[tensor];
            int64_t width = (int64_t)dtype_bytes(t->dtype), here = reader == rank ? region_volume(&part[j]) : 0;
            route[n] = part_route(&t->to, reader, &part[j], &here, rank);
            bytes += here * width;
            if (reader == rank) {
                from[n].box = part[j];
                from[n].want = image(t, s->x->seed * TENSORS + (uint64_t)tensor, &part[j], -1, &from[n].bytes);
                put(&from[n], st, from[n].want);
            }
            list[n] = (struct route_tensor){route[n], t->dtype, end_of(&from[n]), end_of(&to[tensor])};
        }
    *rc = route_run_new(&run, c, st, list, n, NULL, e);
    if (!*rc) {
        route_run_begin(run, "round");
        route_run_end(run);
        *rc = comm_status(c, e);
        if (!*rc && (int64_t)route_run_bytes(run) > bytes + 64 * 2 * RANKS + 8 * n)
            *rc = err_set(e, ERR_CORRUPT, "seed %d, rank %d: %zu bytes of buffers for %lld that are read and received",
                          (int)s->x->seed, rank, route_run_bytes(run), (long long)bytes);
        route_run_free(run);
    }
    stream_sync(st);
    for (int i = 0; i < n; i++) {
        route_free(route[i]);
        if (from[i].want) buffer_free(&from[i].buf);
        xfree(from[i].want);
    }
    return n > 0;
}

static int rounds_main(struct comm *world, void *arg, struct err *e)
{
    struct trial *x = arg;
    struct device *d;
    struct stream *st;
    struct comm *c;
    struct end from[TENSORS] = {0}, to[TENSORS] = {0};
    struct route_tensor list[TENSORS] = {0};
    struct stretches s = {.x = x, .d = {x->seed + 1000, 0}};
    int rc = x->late ? device_late_new(&d, 1, x->seed, NULL, NULL, e) : device_untouchable_new(&d, 1, e);
    if (rc || (rc = stream_new(&st, d, "rounds", e))) return rc;
    comm_stream_on(world, st);
    if ((rc = device_group(&c, world, d, e))) return rc;
    ends(x, comm_rank(world), st, from, to, list);
    while (!rc && one_round(&s, c, st, to, &rc, e)) continue;
    struct err found = {0};
    int bad = finish(x, comm_rank(world), "source", from, st, !rc, &found);
    bad |= finish(x, comm_rank(world), "destination", to, st, !rc && !bad, &found);
    if (bad && !rc) rc = bad, *e = found;
    comm_free(c);
    comm_stream_off(world, st);
    stream_free(st);
    device_free(d);
    return rc;
}

static void test_rounds(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < CASES / 3; seed++) {
        struct trial x = {.seed = seed + 500, .late = seed % 2};
        struct seen s = {0};
        struct comm_config cc = {.timeout_s = 60};
        struct err e = {0};
        make(&x, &s);
        if (s.sums) { /* what is stored is no summand */
            for (int i = 0; i < x.n; i++)
                for (int k = 0; k < x.t[i].from.n_places; k++)
                    if (x.t[i].from.place[k].type == SPMD_P) x.t[i].from.place[k].type = SPMD_R;
        }
        if (comm_run_local(RANKS, &cc, rounds_main, &x, &e)) fail_msg("%s", e.text);
        for (int i = 0; i < x.n; i++) route_free(x.t[i].route);
    }
}

/* ---- collectives ---- */
/* Six ranks hold tensors whole, two share out their rows: pushes are sums to each of the two, pulls fans from each. As
 * messages and as collectives the same bits come out, and whose sum it is holds one message instead of six. */
enum { WORKERS = 6, PULLED = 3 };
static const struct shape pulled[PULLED] = {{2, {9, 5}}, {1, {4}}, {3, {7, 3, 2}}};

static struct region rows_of(int tensor, int rank)
{
    struct region box = region_whole(&pulled[tensor]);
    if (rank >= WORKERS) region_split(pulled[tensor].n[0], rank - WORKERS, RANKS - WORKERS, &box.lo[0], &box.hi[0]);
    return box;
}

static struct route *pull_route(int tensor, bool push)
{
    struct holding own[RANKS - WORKERS], all[WORKERS];
    struct route *r;
    struct err e;
    for (int i = 0; i < RANKS - WORKERS; i++)
        own[i] = (struct holding){.holder = WORKERS + i, .box = rows_of(tensor, WORKERS + i)};
    for (int i = 0; i < WORKERS; i++)
        all[i] = (struct holding){.holder = i, .term = push ? i : 0, .box = rows_of(tensor, i)};
    int rc = push ? route_new_holdings(&r, all, WORKERS, own, RANKS - WORKERS, &e)
                  : route_new_holdings(&r, own, RANKS - WORKERS, all, WORKERS, &e);
    if (rc) fail_msg("%s", e.text);
    return r;
}

/* Runs it twice over what was there before; *bytes of its buffers. */
static int carry(struct comm *c, struct stream *st, bool push, bool often, float *out, size_t *bytes, struct err *e)
{
    struct route_tensor list[PULLED] = {0};
    struct route *route[PULLED];
    struct route_run *run;
    struct buffer from = {0}, to = {0};
    int rank = comm_rank(c), rc;
    bool sends = push == (rank < WORKERS);
    float values[200];
    size_t at = 0;
    for (int i = 0; i < 200; i++) values[i] = term_value(7, rank, (uint64_t)i);
    rc = buffer_new(&from, st->dev, MEM_DATA, sizeof values, e);
    if (!rc) rc = buffer_new(&to, st->dev, MEM_DATA, sizeof values, e);
    if (rc) return rc;
    device_from_host(st, &from, 0, values, sizeof values);
    device_from_host(st, &to, 0, values, sizeof values);
    for (int i = 0; i < PULLED; i++) {
        struct route_end end = {sends ? &from : &to, at, rows_of(i, rank)};
        at += to_size(region_volume(&end.box)) * 4;
        route[i] = pull_route(i, push);
        list[i] = (struct route_tensor){.route = route[i], .dtype = DT_F32};
        *(sends ? &list[i].from : &list[i].to) = end;
    }
    rc = route_run_new(&run, c, st, list, PULLED, often ? "test" : NULL, e);
    for (int again = 0; again < 2 && !rc; again++) {
        route_run_begin(run, "pull");
        route_run_end(run);
        rc = comm_status(c, e);
    }
    bool grouped = !rc && route_run_group(run, 0) != NULL;
    if (!rc && grouped != often) rc = err_set(e, ERR_CORRUPT, "it is not recognised");
    if (!rc) *bytes = route_run_bytes(run);
    device_to_host(st, out, &to, 0, sizeof values);
    stream_sync(st);
    route_run_free(run);
    for (int i = 0; i < PULLED; i++) route_free(route[i]);
    buffer_free(&from);
    buffer_free(&to);
    return rc;
}

static int collectives_main(struct comm *world, void *arg, struct err *e)
{
    struct device *d;
    struct stream *st;
    struct kernel_table k;
    struct comm *c;
    float plain[200], known[200];
    size_t bytes[2] = {0};
    int rc = device_untouchable_new(&d, 1, e);
    (void)arg;
    if (rc || (rc = stream_new(&st, d, "routes", e)) || (rc = kernel_table_init(&k, "auto", 1, false, e))) return rc;
    kernel_on(st, &k);
    comm_stream_on(world, st);
    if ((rc = device_group(&c, world, d, e))) return rc;
    for (int push = 0; push < 2 && !rc; push++) {
        rc = carry(c, st, push, false, plain, &bytes[0], e);
        if (!rc) rc = carry(c, st, push, true, known, &bytes[1], e);
        if (!rc && memcmp(plain, known, sizeof plain)) rc = err_set(e, ERR_CORRUPT, "other bits");
        if (!rc && push && comm_rank(c) >= WORKERS && (bytes[0] < 6 * 100 || bytes[1]))
            rc = err_set(e, ERR_CORRUPT, "a sum takes %zu bytes, and %zu as a collective", bytes[0], bytes[1]);
    }
    comm_free(c);
    comm_stream_off(world, st);
    stream_free(st);
    device_free(d);
    return rc;
}

static void test_collectives(void **state)
{
    (void)state;
    struct comm_config cc = {.timeout_s = 60};
    struct err e = {0};
    if (comm_run_local(RANKS, &cc, collectives_main, NULL, &e)) fail_msg("%s", e.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gaps_are_left_alone),
                                       cmocka_unit_test(test_random_layouts),
                                       cmocka_unit_test(test_rounds),
                                       cmocka_unit_test(test_collectives),
                                       cmocka_unit_test(test_balanced),
                                       cmocka_unit_test(test_sums_of_narrow_types_are_refused),
                                       cmocka_unit_test(test_one_rank_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
