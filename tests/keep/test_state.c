/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* suite: wraps save_resume tile_rate_registers */
/* State of every kind, saved in one layout and loaded in others: what every rank then holds is, tensor by tensor, what
 * was saved; and one bit that changes between the files' checksums and the arrays ends the run with the tensor's name,
 * whichever array it is in. Saves of frozen state are links. The engine's loading is wrapped here. */
#include "runs.h"
#include "told_rate.h"

#include "engine/engine.h"
#include "keep/run_checkpoint.h"
#include "sanitized.h"

static struct {
    int flip;         /* the so-many-th saved array of rank 0 gets a wrong bit; -1: none */
    int loads;        /* of rank 0, so far */
    char flipped[40]; /* its name; "": there are not so many */
} plan = {.flip = -1};

static void flip_one(const struct engine *g)
{
    const struct store *s = &g->store;
    int left = plan.flip;
    for (int k = 0; k < s->n_arrays && left >= 0; k++) {
        const struct array *a = store_array(s, k);
        if (!s->array[k].row.saved || !array_is_here(a)) continue;
        for (int i = 0; i < g->params.n && left >= 0; i++) {
            struct array_span x = store_writes(s, i, k);
            if (!array_covers(&s->array[k].row, &g->params.p[i]) || !x.n) continue;
            if (left-- == 0) {
                unsigned char byte;
                stream_to_host(g->stream, &byte, array_at(a, x.at), 1);
                stream_sync(g->stream);
                byte ^= 1;
                stream_from_host(g->stream, array_at(a, x.at), &byte, 1);
                stream_sync(g->stream);
                snprintf(plan.flipped, sizeof plan.flipped, "%s/", s->array[k].row.name);
            }
            break;
        }
    }
}

int __real_save_resume(struct engine *g, struct ckpt *c, const char *root, int rc, struct str *said, struct err *e);
int __wrap_save_resume(struct engine *g, struct ckpt *c, const char *root, int rc, struct str *said, struct err *e);
int __wrap_save_resume(struct engine *g, struct ckpt *c, const char *root, int rc, struct str *said, struct err *e)
{
    rc = __real_save_resume(g, c, root, rc, said, e);
    if (rc || !c || g->params.rank) return rc;
    plan.loads++;
    if (plan.flip >= 0) flip_one(g);
    return OK;
}

#define FEW "model.layers=2", "model.ffn=64", "checkpoint.every=0", "optimizer.schedule.name=constant"

static const struct {
    const char *key[3];
} kinds[] = {
    {{"precision.recipe=fp32"}},
    {{"optimizer.name=muon", "precision.recipe=bf16"}},
    {{"optimizer.moments=8bit", "optimizer.block=16"}},
    {{"optimizer.moments=fp8", "optimizer.block=16"}},
    {{"optimizer.moments=bf16", "precision.recipe=bf16"}},
    {{"optimizer.name=adafactor"}},
    {{"optimizer.name=lion"}},
    {{"optimizer.ema=0.9"}},
    {{"precision.recipe=fp8-delayed"}},
    {{"precision.recipe=fp16"}},
    {{"precision.recipe=bf16", "model.family=mixtral", "model.moe.experts=4"}},
};
static const struct {
    int ranks;
    const char *key[3];
} layouts[] = {
    {2, {"parallel.dp_shard=2", "parallel.zero=3"}},
    {2, {"parallel.tp=2"}},
    {2, {"parallel.pp=2"}},
    {2, {"parallel.dp_shard=2", "parallel.zero=1"}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_LAYOUTS = sizeof layouts / sizeof *layouts };

static const char * or (const char *key) { return key ? key : "run.log_every=10"; }

static int go(const struct folder *f, int kind, int layout, const char *steps, struct err *e)
{
    struct trainer_result r;
    return train_ranks(f, "run", layout < 0 ? 1 : layouts[layout].ranks,
                       KEYS(FEW, or (kinds[kind].key[0]), or (kinds[kind].key[1]), or (kinds[kind].key[2]), steps,
                            or (layout < 0 ? NULL : layouts[layout].key[0]),
                            or (layout < 0 ? NULL : layouts[layout].key[1])),
                       &r, e);
}

/* One rank, two layouts, one rank: every start compares. */
static void any_layout_holds_what_was_saved(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind += CASE_STRIDE) {
        struct folder f;
        struct err e;
        char steps[32];
        int done = 1;
        folder_open(&f);
        plan.loads = 0;
        const int way[] = {-1, kind % N_LAYOUTS, (kind + 1) % N_LAYOUTS, -1};
        for (int i = 0; i < 4; i++) {
            snprintf(steps, sizeof steps, "run.steps=%d", done++);
            if (go(&f, kind, way[i], steps, &e)) fail_msg("%s, layout %d: %s", kinds[kind].key[0], way[i], e.text);
        }
        assert_int_equal(plan.loads, 3);
        folder_close(&f);
    }
}

/* A wrong bit in each array in turn, with one rank and with two. */
static void a_wrong_bit_is_named(void **state)
{
    (void)state;
    static const int some[] = {2, 7, 8};
    for (size_t i = 0; i < sizeof some / sizeof *some; i += CASE_STRIDE) {
        struct folder f;
        struct err e;
        folder_open(&f);
        if (go(&f, some[i], -1, "run.steps=1", &e)) fail_msg("%s", e.text);
        int found = 0;
        for (int k = 0;; k++) {
            plan.flip = k;
            *plan.flipped = 0;
            int rc = go(&f, some[i], k % 2 ? 0 : -1, "run.steps=2", &e);
            plan.flip = -1;
            if (!*plan.flipped) {
                assert_int_equal(rc, OK);
                break;
            }
            assert_int_equal(rc, ERR_CORRUPT);
            if (!strstr(e.text, plan.flipped)) fail_msg("%s is not in %s", plan.flipped, e.text);
            assert_non_null(strstr(e.text, "not what was saved"));
            found++;
        }
        assert_true(found >= 2);
        folder_close(&f);
    }
}

static void no_problem(void *ctx, const char *text)
{
    (void)ctx;
    fail_msg("%s", text);
}

/* The state that layouts save after the same loads is one number, whoever saves it. */
static void one_number(void **state)
{
    (void)state;
    uint64_t first = 0;
    for (int layout = -1; layout < N_LAYOUTS; layout++) {
        struct folder f;
        struct err e;
        struct ckpt *c;
        uint64_t now;
        folder_open(&f);
        /* What is drawn at the start is the same in every layout; a rate of 0 keeps it. */
        struct trainer_result r;
        if (train_ranks(&f, "run", layout < 0 ? 1 : layouts[layout].ranks,
                        KEYS(FEW, "run.steps=1", "optimizer.name=sgd", "optimizer.momentum=0", "optimizer.lr=0",
                             "optimizer.weight_decay=0", or (layout < 0 ? NULL : layouts[layout].key[0]),
                             or (layout < 0 ? NULL : layouts[layout].key[1])),
                        &r, &e))
            fail_msg("%s", e.text);
        char *path = fs_join(f.dir, "run");
        assert_int_equal(ckpt_open(&c, path, &e), OK);
        assert_true(ckpt_state(c, &now));
        if (layout < 0) first = now;
        assert_true(now == first);
        ckpt_close(c);
        xfree(path);
        folder_close(&f);
    }
}

/* Weights that no step moves: from the third save on they are links, on every rank, beside the steps or not; without
 * the key nothing is. */
static void what_no_step_moves_is_linked(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        const char *async, *incremental;
    } rows[] = {{1, "checkpoint.async=false", "true"},
                {2, "checkpoint.async=false", "true"},
                {2, "checkpoint.async=true", "true"},
                {1, "checkpoint.async=false", "false"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i += SANITIZED ? 2 : 1) {
        struct folder f;
        struct err e;
        struct trainer_result r;
        char key[60];
        snprintf(key, sizeof key, "checkpoint.incremental=%s", rows[i].incremental);
        folder_open(&f);
        if (train_ranks(&f, "run", rows[i].ranks,
                        KEYS("checkpoint.every=1", "checkpoint.keep=2", "run.steps=5", "optimizer.name=sgd",
                             "optimizer.momentum=0", "optimizer.lr=0", "parallel.zero=1", rows[i].async, key),
                        &r, &e))
            fail_msg("%s", e.text);
        for (int k = 0; k < rows[i].ranks; k++) {
            char path[300];
            struct stat st;
            snprintf(path, sizeof path, "%s/run/checkpoints/step-00000005/still-%05d-1.safetensors", f.dir, k);
            bool there = !stat(path, &st);
            assert_int_equal(there, !strcmp(rows[i].incremental, "true"));
            if (there) assert_int_equal(st.st_nlink, 2); /* steps 4 and 5 are left */
        }
        struct ckpt *c;
        char *path = fs_join(f.dir, "run");
        assert_int_equal(ckpt_open(&c, path, &e), OK);
        assert_int_equal(ckpt_verify(c, no_problem, NULL), 0);
        ckpt_close(c);
        xfree(path);
        folder_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_holds_what_was_saved),
        cmocka_unit_test(a_wrong_bit_is_named),
        cmocka_unit_test(one_number),
        cmocka_unit_test(what_no_step_moves_is_linked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
