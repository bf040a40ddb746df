/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices untouchable */
/* A checkpoint knows no layout: written as any partition of the tensors, it is read as any box. */
#include "state.h"

/* Cuts `box` at random planes into at most `limit` boxes; returns how many. */
static int cut(struct dice *d, struct region box, struct region *out, int limit)
{
    int dim = box.nd ? (int)roll(d, box.nd) : 0;
    if (limit < 2 || box.nd == 0 || box.hi[dim] - box.lo[dim] < 2 || roll(d, 4) == 0) {
        out[0] = box;
        return 1;
    }
    struct region left = box, right = box;
    left.hi[dim] = right.lo[dim] = box.lo[dim] + 1 + roll(d, box.hi[dim] - box.lo[dim] - 1);
    int n = cut(d, left, out, limit / 2);
    return n + cut(d, right, out + n, limit - limit / 2);
}

static struct region random_box(struct dice *d, const struct shape *s)
{
    struct region b = region_whole(s);
    for (int i = 0; i < s->nd; i++) {
        b.lo[i] = roll(d, s->n[i] + 1);
        b.hi[i] = b.lo[i] + roll(d, s->n[i] - b.lo[i] + 1);
    }
    return b;
}

static int host_read(void *ctx, int64_t offset, size_t bytes, void *dst, struct err *e)
{
    (void)e;
    memcpy(dst, (unsigned char *)ctx + offset, bytes);
    return OK;
}

static int host_write(void *ctx, int64_t offset, size_t bytes, const void *src, struct err *e)
{
    (void)e;
    memcpy((unsigned char *)ctx + offset, src, bytes);
    return OK;
}
static const struct ckpt_access far_memory = {host_read, host_write};

/* Saves the state over n_ranks: every box goes to a random rank, some through ckpt_access. */
static void save_partition(struct dice *d, const char *root, int n_ranks, int version)
{
    struct err e;
    struct region boxes[12];
    struct ckpt_tensor *of_rank[8];
    int n_of[8] = {0};
    for (int r = 0; r < n_ranks; r++) of_rank[r] = xcalloc(N_KNOWN * 13, sizeof **of_rank);
    for (int k = 0; k < N_KNOWN; k++) {
        int n = cut(d, region_whole(&state_all[k].shape), boxes, 12);
        for (int i = 0; i < n; i++) {
            int r = (int)roll(d, n_ranks);
            of_rank[r][n_of[r]++] = known_tensor(k, version, boxes[i]);
        }
        int r = (int)roll(d, n_ranks); /* and somebody holds nothing of it */
        struct region empty = {.nd = state_all[k].shape.nd};
        if (empty.nd) of_rank[r][n_of[r]++] = known_tensor(k, version, empty);
    }
    assert_ok(ckpt_save_begin(root, 9, &e));
    for (int r = n_ranks - 1; r >= 0; r--) {
        for (int i = 0; i < n_of[r]; i++)
            if (roll(d, 2)) {
                of_rank[r][i].access = &far_memory;
                of_rank[r][i].ctx = of_rank[r][i].p;
            }
        assert_ok(ckpt_save_rank(root, 9, r, of_rank[r], n_of[r], &e));
    }
    struct ckpt_info info = {.step = 9, .tokens = 90, .seed = -3};
    assert_ok(ckpt_save_publish(root, n_ranks, &info, &e));
    for (int r = 0; r < n_ranks; r++) state_free(of_rank[r], n_of[r]);
}

static void read_random_boxes(struct dice *d, struct ckpt *c, int version)
{
    struct err e;
    for (int round = 0; round < 20; round++) {
        int k = (int)roll(d, N_KNOWN);
        const struct known *s = &state_all[k];
        struct region box = random_box(d, &s->shape);
        static const enum dtype reals[] = {DT_F32, DT_F64, DT_BF16, DT_F16};
        enum dtype as = dtype_info(s->dtype)->is_float ? reals[roll(d, 4)] : s->dtype;
        size_t bytes = (size_t)region_volume(&box) * dtype_bytes(as);
        unsigned char *wanted = known_box(k, version, &box, as), *got = xcalloc(bytes + 1, 1);
        assert_ok(ckpt_read(c, ckpt_find(c, s->group, s->name), &box, as, got, &e));
        assert_memory_equal(got, wanted, bytes);
        struct ckpt_tensor t = known_tensor(k, version + 1, box);
        if (roll(d, 2)) {
            t.access = &far_memory;
            t.ctx = t.p;
        }
        unsigned char *again = known_box(k, version, &box, s->dtype);
        assert_ok(ckpt_load(c, &t, 1, &e));
        assert_memory_equal(t.p, again, (size_t)region_volume(&box) * dtype_bytes(s->dtype));
        xfree(again);
        xfree(t.p);
        xfree(wanted);
        xfree(got);
    }
}

static void any_partition_any_box(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct err e;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct dice d = {.seed = seed};
        save_partition(&d, dir, 1 + (int)roll(&d, 8), (int)seed);
        state_check(dir, (int)seed);
        struct ckpt *c;
        assert_ok(ckpt_open(&c, dir, &e));
        assert_int_equal(ckpt_step(c), 9);
        assert_int_equal(ckpt_tokens(c), 90);
        assert_int_equal(ckpt_seed(c), -3);
        assert_null(ckpt_extra(c));
        read_random_boxes(&d, c, (int)seed);
        ckpt_close(c);
    }
    scratch_free(dir);
}

/* Ranks that contradict each other are found before anything is published. */
static void holes_and_overlaps_are_refused(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct err e;
    struct ckpt_info info = {.step = 1};
    struct region whole = region_whole(&state_all[0].shape), top = whole, bottom = whole;
    top.hi[0] = 10;
    bottom.lo[0] = 11;
    struct ckpt_tensor a = known_tensor(0, 1, top), b = known_tensor(0, 1, bottom), c = known_whole(0, 1);
    struct ckpt_tensor odd = known_whole(1, 1);
    odd.group = a.group;
    odd.name = a.name;

    assert_ok(ckpt_save_begin(dir, 1, &e));
    assert_ok(ckpt_save_rank(dir, 1, 0, &a, 1, &e));
    assert_err(ERR_REQUEST, "rank 1 has not written", ckpt_save_publish(dir, 2, &info, &e));
    assert_ok(ckpt_save_rank(dir, 1, 1, &b, 1, &e));
    assert_err(ERR_CORRUPT, "hold 224 of 232", ckpt_save_publish(dir, 2, &info, &e));
    assert_ok(ckpt_save_rank(dir, 1, 1, &c, 1, &e));
    assert_err(ERR_CORRUPT, "overlap", ckpt_save_publish(dir, 2, &info, &e));
    assert_ok(ckpt_save_rank(dir, 1, 1, &odd, 1, &e));
    assert_err(ERR_CORRUPT, "rank 0 has bf16 [29, 8], rank 1 has bf16 [8, 8]", ckpt_save_publish(dir, 2, &info, &e));
    ckpt_save_abort(dir, 1, 0, &e);
    assert_non_null(strstr(e.text, "rank 1 has bf16 [8, 8] ("));
    assert_non_null(strstr(e.text, "free); no earlier one was published"));

    char **names;
    int n;
    assert_ok(fs_list(dir, &names, &n, &e));
    assert_int_equal(n, 0);
    fs_list_free(names, n);
    xfree(a.p);
    xfree(b.p);
    xfree(c.p);
    xfree(odd.p);
    scratch_free(dir);
}

static void another_model_is_named(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct err e;
    struct ckpt *c;
    assert_ok(state_save(dir, 3, 1, 0, &e));
    assert_ok(ckpt_open(&c, dir, &e));
    struct ckpt_tensor *t = state_new(1);
    assert_ok(ckpt_check(c, t, N_KNOWN, &e));
    assert_ok(ckpt_check(c, t, 3, &e)); /* a whole group may be left alone */
    t[0].shape.n[0] = 30;
    assert_err(ERR_REQUEST, "param/embed.token is bf16 [29, 8] in the checkpoint, bf16 [30, 8] in the model",
               ckpt_load(c, t, N_KNOWN, &e));
    t[0].shape.n[0] = 29;
    t[1].name = "layers.1.attn.q.weight";
    assert_err(ERR_REQUEST, "param/layers.1.attn.q.weight is not in it", ckpt_load(c, t, N_KNOWN, &e));
    assert_err(ERR_REQUEST, "param/layers.0.attn.q.weight is in the checkpoint only", ckpt_check(c, t, N_KNOWN, &e));
    t[1].name = state_all[1].name;
    t[1].dtype = DT_I32;
    assert_err(ERR_REQUEST, "i32", ckpt_check(c, t, N_KNOWN, &e));
    state_free(t, N_KNOWN);
    ckpt_close(c);
    scratch_free(dir);
}

static void extra_and_attachments(void **state)
{
    (void)state;
    char *dir = scratch_new(), *text;
    size_t n;
    struct err e;
    struct ckpt *c;
    assert_ok(state_save(dir, 3, 1, 0, &e));
    assert_ok(ckpt_open(&c, dir, &e));
    assert_string_equal(json_string(json_get(ckpt_extra(c), "note"), NULL, ""), "x");
    const struct json *order = json_get(ckpt_extra(c), "order");
    assert_int_equal(json_size(order), 3);
    assert_true(json_real(json_at(order, 1), 0) == 2.5);
    assert_ok(ckpt_attachment(c, "config.yaml", &text, &n, &e));
    assert_string_equal(text, "model: {}\n");
    assert_int_equal(n, 10);
    xfree(text);
    assert_ok(ckpt_attachment(c, "tokenizer.json", &text, &n, &e));
    assert_null(text);
    ckpt_close(c);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_partition_any_box),
        cmocka_unit_test(holes_and_overlaps_are_refused),
        cmocka_unit_test(another_model_is_named),
        cmocka_unit_test(extra_and_attachments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
