/* SPDX-License-Identifier: Apache-2.0 */
/* suite: alone */
/* Every reader of a place in which a run's state or its name may lie: copies in a folder, memory of a host, the small
 * files of run.dir. The n-th call that looks there fails, says that there is nothing, gives less than there is, or is
 * interrupted, for every n. The reader comes to what there is, or to an error; never to "none", and never to something
 * older. (The run's own checkpoints: checkpoint/test_newest.c; a store: test_copy_unknown.c.) The calls are defined
 * in unread_calls.h. */
#include "keep/copies.h"

#include "keep/memckpt.h"
#include "watch/expert_load_file.h"
#include "watch/run_view.h"
#include "keep/skips.h"
#include "unread_calls.h"

/* ---- copies in a folder ---- */

struct copied {
    char *to, *root;
};

static int64_t newest_of(const char *root)
{
    struct ckpt_held h;
    ckpt_hold(&h, root);
    int64_t step = h.what == HELD_UNKNOWN ? -2 : h.what == HELD_NONE ? -1 : h.newest.step;
    ckpt_held_free(&h);
    return step;
}

/* A run that lost its disk. */
static int fetches(void *ctx, struct err *e)
{
    struct copied *x = ctx;
    bool fetched;
    struct err why;
    const char *watch = fault.watch;
    fault.watch = NULL;
    if (fs_remove_tree(x->root, &why) || fs_mkdirs(x->root, &why)) fail_msg("%s", why.text);
    fault.watch = watch;
    int rc = fetch(x->to, x->root, &fetched, e);
    fault.watch = NULL;
    int64_t step = newest_of(x->root);
    return rc ? (step == -1 ? 0 : -1) : fetched && step == 3 ? 1 : -1;
}

/* A copy is made beside the others: it is there, or nothing there is other than it was. */
static int copies_on(void *ctx, struct err *e)
{
    struct copied *x = ctx;
    const char *watch = fault.watch;
    fault.watch = NULL;
    struct err why;
    char *four = step_path(x->to, 4);
    if (fs_remove_tree(four, &why)) fail_msg("%s", why.text);
    struct copier c;
    copier_open(&c, x->to, x->root);
    fault.watch = watch;
    int rc = copier_put(&c, 4, 0, e);
    fault.watch = NULL;
    copy_place_close(&c.p);
    bool there = held_path(four, NULL) == HELD_KNOWN;
    for (int step = 1; step <= 3; step++) {
        char *path = step_path(x->to, step);
        state_check(path, step);
        xfree(path);
    }
    if (there) state_check(four, 4);
    xfree(four);
    return rc ? 0 : there ? 1 : -1;
}

static void copies_in_a_folder(void **state)
{
    (void)state;
    struct err e;
    struct copied x = {scratch_new(), scratch_new()};
    for (int step = 1; step <= 3; step++) {
        save(x.root, step);
        assert_ok(put(x.to, x.root, step, 0, &e));
    }
    char *owner = fs_join(x.to, COPY_OWNER_NAME), *record;
    size_t n;
    save(x.root, 4);
    assert_ok(fs_read_all(owner, 1 << 20, &record, &n, &e));
    walk("making a copy", x.to, false, copies_on, &x, 20);
    /* The record as it was: it says that step 3 was copied last, so nothing of it can be passed over. */
    char *four = step_path(x.to, 4);
    assert_ok(fs_remove_tree(four, &e));
    assert_ok(fs_write_atomic(owner, record, n, &e));
    walk("fetching a copy", x.to, true, fetches, &x, 30);
    xfree(four);
    xfree(record);
    xfree(owner);
    scratch_free(x.root);
    scratch_free(x.to);
}

/* ---- memory ---- */

struct kept {
    struct config c;
    char *memory;
};

static int finds(void *ctx, struct err *e)
{
    struct kept *x = ctx;
    struct memckpt m;
    struct ckpt *c = NULL;
    struct str refused = {0};
    int rc = memckpt_open(&m, &x->c, NULL, false, e);
    if (!rc) rc = memckpt_find(&m, 0, &c, &refused, e);
    int64_t step = c ? ckpt_step(c) : -1;
    if (!rc && step != 3) err_set(e, ERR_CORRUPT, "step %lld; %s", (long long)step, str_text(&refused));
    ckpt_close(c);
    memckpt_close(&m);
    str_free(&refused);
    return rc ? 0 : step == 3 ? 1 : -1;
}

static void memory_of_a_host(void **state)
{
    (void)state;
    struct err e;
    struct kept x = {.memory = scratch_new()};
    char *dir = scratch_new();
    struct memckpt m;
    x.c.run.dir = dir;
    x.c.checkpoint.memory_dir = x.memory;
    assert_ok(memckpt_open(&m, &x.c, NULL, false, &e));
    for (int step = 2; step <= 3; step++) {
        struct ckpt_attachment file[] = {{.name = "config.yaml", .p = "model: {}\n", .bytes = 10},
                                         {.name = "run.id", .p = m.id, .bytes = strlen(m.id)}};
        struct ckpt_info info = {.step = step, .attachments = file, .n_attachments = 2, .parted = true};
        struct ckpt_tensor *t = state_new(step);
        assert_ok(ckpt_save(m.root, &info, t, N_KNOWN, &e));
        state_free(t, N_KNOWN);
    }
    char *root = xstrdup(m.root), *id = fs_join(dir, "id"), *was = fs_join(dir, "memory_dir");
    memckpt_close(&m);
    walk("checkpoints in memory", root, false, finds, &x, 20);
    walk("which run it is", id, false, finds, &x, 2);
    walk("where memory was", was, false, finds, &x, 2);
    xfree(was);
    xfree(id);
    xfree(root);
    scratch_free(dir);
    scratch_free(x.memory);
}

/* ---- small files ---- */

static int reads_name(void *ctx, struct err *e)
{
    uint64_t name;
    enum held held = run_name_read(ctx, &name, e);
    return held == HELD_KNOWN ? 1 : held == HELD_UNKNOWN ? 0 : -1;
}

static int reads_skips(void *ctx, struct err *e)
{
    struct skips s = {0};
    int rc = skips_read(&s, ctx, NULL, e);
    int64_t n = s.n;
    skips_free(&s);
    return rc ? 0 : n == 3 ? 1 : -1;
}

/* How a run is: never one of no starts, nor of no steps. */
static int looks(void *ctx, struct err *e)
{
    struct run_view *p = ctx;
    int rc = run_view_look(p, e);
    return rc ? 0 : p->n_starts == 2 && p->steps == 77 && p->step == 4 && p->ended == 2 && p->n_errors == 1 ? 1 : -1;
}

static void a_run_that_is_watched(void **state)
{
    (void)state;
    static const char *const file[][2] =
        {{"starts.jsonl", "{\"time\": \"2025-01-01T00:00:00Z\"}\n{\"time\": \"2025-01-02T00:00:00Z\"}\n"},
         {"ends.jsonl", "{\"time\": \"2025-01-03T00:00:00Z\", \"starts\": 2}\n"},
         {"config.yaml", "model: {}\nrun:\n  steps: 77\n"},
         {"metrics.jsonl", "{\"step\": 4, \"loss\": 1.5}\n"},
         {"flight-rank0.txt", "rank 0: the cause\n"}};
    enum { FILES = sizeof file / sizeof *file };
    struct err e;
    char *dir = scratch_new();
    struct run_view *p;
    for (int i = 0; i < FILES; i++) {
        char *path = fs_join(dir, file[i][0]);
        assert_ok(fs_write_atomic(path, file[i][1], strlen(file[i][1]), &e));
        xfree(path);
    }
    assert_ok(run_view_open(&p, dir, &e));
    for (int i = 0; i < FILES; i++) {
        char *path = fs_join(dir, file[i][0]);
        walk(file[i][0], path, false, looks, p, 2);
        xfree(path);
    }
    run_view_close(p);
    scratch_free(dir);
}

/* Loads of experts that a run goes on with: never taken for another run's, which are moved away. */
static const double *const load[] = {NULL, (const double[]){1, 2, 3}};
static int goes_on(void *ctx, struct err *e)
{
    struct expert_load *l;
    char *aside = fs_join(ctx, "expert_load.bin.aside-1");
    int rc = expert_load_open(&l, ctx, 10, load, 2, 3, e), closed = rc ? rc : expert_load_close(l, e);
    const char *watch = fault.watch;
    fault.watch = NULL; /* this look is the test's own */
    bool moved = fs_exists(aside);
    fault.watch = watch;
    xfree(aside);
    return moved ? -1 : closed ? 0 : 1;
}

static void loads_of_experts(void **state)
{
    (void)state;
    struct err e;
    struct expert_load *l;
    char *dir = scratch_new(), *path = fs_join(dir, "expert_load.bin");
    assert_ok(expert_load_open(&l, dir, 1, load, 2, 3, &e));
    assert_ok(expert_load_add(l, 1, load, &e));
    assert_ok(expert_load_close(l, &e));
    walk("loads of experts", path, false, goes_on, dir, 2);
    xfree(path);
    scratch_free(dir);
}

static void small_files(void **state)
{
    (void)state;
    struct err e;
    char *dir = scratch_new(), *name = fs_join(dir, "name"), *skips = fs_join(dir, SKIPS_NAME);
    (void)name_of(dir);
    for (int step = 3; step < 6; step++) {
        struct skips_note note = {.step = step, .cause = "loss", .loss = 1, .mean = 1, .deviation = 1, .back_to = 2};
        assert_ok(skips_write(dir, &note, &e));
    }
    walk("the run's name", name, false, reads_name, dir, 2);
    walk("steps that are left out", skips, false, reads_skips, dir, 2);
    xfree(skips);
    xfree(name);
    scratch_free(dir);
}

int main(void)
{
    setenv("LOG", "error", 1); /* warnings are what these tests provoke */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_in_a_folder),    cmocka_unit_test(memory_of_a_host), cmocka_unit_test(small_files),
        cmocka_unit_test(a_run_that_is_watched), cmocka_unit_test(loads_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
