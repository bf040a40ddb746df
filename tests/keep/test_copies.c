/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* Copies of checkpoints in a folder and in a store that fails, stalls, cuts short and forgets: nothing that is not
 * whole is ever the newest, what is whole comes back, and no failure ends anything. */
#include "keep/copies.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "runs.h"

/* What every place does alike. */
static void there_and_back(const char *to)
{
    struct err e;
    bool fetched;
    char *root = scratch_new(), *path;
    assert_int_equal(newest(to), -1);
    assert_ok(fetch(to, root, &fetched, &e));
    assert_false(fetched);
    save(root, 1);
    assert_ok(run(to, root, 2, 1, 2, &e)); /* the one that is there at the beginning */
    assert_int_equal(newest(to), 1);
    for (int step = 2; step <= 4; step++) {
        assert_ok(run(to, root, step, step, 2, &e));
        assert_int_equal(newest(to), step);
    }
    assert_ok(run(to, root, 5, 8, 2, &e)); /* many at once: the last, whatever was left out */
    assert_int_equal(newest(to), 8);
    assert_ok(fetch(to, root, &fetched, &e));
    assert_false(fetched);
    char *before = lose_disk(root);
    assert_ok(fetch(to, root, &fetched, &e));
    assert_true(fetched);
    state_check(root, 8);
    disk_back(root, before);
    /* Here it is damaged, there it is whole. */
    path = step_path(root, 8);
    char *file = fs_join(path, "boxes-00000.safetensors");
    assert_int_equal(truncate(file, 100), 0);
    assert_ok(fetch(to, root, &fetched, &e));
    assert_true(fetched);
    state_check(root, 8);
    xfree(file);
    xfree(path);
    path = fs_join(root, "step-00000008.aside-1");
    assert_true(fs_exists(path)); /* what cannot be read is not removed */
    xfree(path);
    /* A run of its own may not hide behind these. */
    char *fresh = scratch_new();
    save(fresh, 1);
    assert_err(ERR_REQUEST, "copies of another run", run(to, fresh, 2, 1, 2, &e));
    scratch_free(fresh);
    scratch_free(root);
}

static void in_a_folder(void **state)
{
    (void)state;
    struct err e;
    char *to = scratch_new(), *path;
    there_and_back(to);
    path = step_path(to, 4);
    assert_false(fs_exists(path)); /* of two that are kept */
    xfree(path);
    path = step_path(to, 8);
    state_check(path, 8);
    /* Left by a copy that was killed: not a copy. */
    char *half = fs_join(to, ".tmp-step-00000009");
    assert_ok(fs_mkdirs(half, &e));
    assert_int_equal(newest(to), 8);
    xfree(half);
    xfree(path);
    scratch_free(to);
}

static void in_a_store(void **state)
{
    (void)state;
    struct object_server s;
    server_new(&s);
    there_and_back("s3://b/runs/a/");
    int steps = 0;
    for (int i = 0; i < s.n_objects; i++) steps += strstr(s.object[i].path, "manifest.json") != NULL;
    assert_int_equal(steps, 2);
    server_stop(&s);
}

/* A save of which half stands still, incrementally. */
static void save_still(const char *root, int step, int frozen)
{
    struct err e;
    struct ckpt_info info = {.step = step, .run = name_of(root), .incremental = true};
    struct ckpt_tensor t[N_KNOWN];
    for (int k = 0; k < N_KNOWN; k++) t[k] = known_whole(k, k < 5 ? frozen : step);
    assert_ok(ckpt_save(root, &info, t, N_KNOWN, &e));
    for (int k = 0; k < N_KNOWN; k++) xfree(t[k].p);
}

static void not_good(void *ctx, const char *text)
{
    (void)ctx;
    fail_msg("%s", text);
}

static void check_whole(const char *root)
{
    struct err e;
    struct ckpt *c;
    assert_ok(ckpt_open(&c, root, &e));
    assert_int_equal(ckpt_verify(c, not_good, NULL), 0);
    ckpt_close(c);
}

/* What stood still does not travel again, and is there all the same; what only looks like it does. */
static void what_stands_still_stays(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    bool fetched;
    char *root = scratch_new(), *other = scratch_new(), *folder = scratch_new(), *back = scratch_new(),
         *again = scratch_new();
    server_new(&s);
    same_run(other, root);
    same_run(back, root);
    same_run(again, root);
    for (int step = 1; step <= 5; step++) {
        save_still(root, step, 1);
        s.no_copies = step == 5;
        assert_ok(put("s3://b/x", root, step, 2, &e));
        assert_ok(put(folder, root, step, 2, &e));
        assert_int_equal(s.n_copies, step < 3 ? 0 : step < 5 ? step - 2 : 2); /* the second save writes that file */
        assert_int_equal(newest("s3://b/x"), step);
    }
    s.no_copies = false;
    struct stat st;
    char *path = fs_join(folder, "step-00000005/still-00000-1.safetensors");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_nlink, 2); /* of 4 and 5 */
    xfree(path);
    assert_ok(fetch("s3://b/x", back, &fetched, &e));
    assert_true(fetched);
    check_whole(back);
    check_whole(folder);
    for (int step = 1; step <= 6; step++) save_still(other, step, 2); /* files of the same names, sizes and headers */
    int copies = s.n_copies;
    assert_ok(put("s3://b/x", other, 6, 0, &e));
    assert_ok(put(folder, other, 6, 0, &e));
    assert_int_equal(s.n_copies, copies);
    assert_ok(fetch("s3://b/x", again, &fetched, &e));
    check_whole(again);
    check_whole(folder);
    server_stop(&s);
    scratch_free(root);
    scratch_free(other);
    scratch_free(folder);
    scratch_free(back);
    scratch_free(again);
}

/* Parts that a killed process left are given up by the next start; those of others are not. */
static void what_was_begun_is_given_up(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    char *root = scratch_new();
    server_new(&s);
    for (int i = 0; i < 6; i++) {
        struct upload *x = &s.upload[s.n_uploads++];
        *x = (struct upload){.id = ++s.begun};
        snprintf(x->path, sizeof x->path, i == 3 ? "/b/xy/step-0000000%d/boxes" : "/b/x/step-0000000%d/a +&name", i);
    }
    save(root, 1);
    assert_ok(run("s3://b/x", root, 2, 1, 0, &e));
    assert_int_equal(s.n_uploads, 1);
    assert_int_equal(s.upload[0].id, 4);
    assert_int_equal(newest("s3://b/x"), 1);
    server_stop(&s);
    scratch_free(root);
}

static void trouble(struct object_server *s, enum trouble t, int pass, int n, int status)
{
    server_trouble(s, t, n, status, "");
    pthread_mutex_lock(&s->lock);
    s->pass = pass;
    s->writes = true;
    pthread_mutex_unlock(&s->lock);
}

/* The n-th write is refused for good, for every n: the older copy stays the newest until the last is written. */
static void every_write_refused(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    const char *to = "s3://b/x";
    char *root = scratch_new();
    server_new(&s);
    save(root, 1);
    save(root, 2);
    assert_ok(put(to, root, 1, 0, &e));
    int refused = 0;
    for (int pass = 0; newest(to) == 1; pass++, refused++) {
        trouble(&s, STATUS, pass, 1, 403);
        assert_err(ERR_REQUEST, "403", put(to, root, 2, 0, &e));
        assert_int_equal(newest(to), pass < 5 ? 1 : 2);
        server_trouble(&s, FINE, 0, 0, "");
    }
    assert_int_equal(refused, 6); /* whose it is, the manifest's removal, boxes, config, manifest, which is the last */
    assert_ok(put(to, root, 2, 0, &e));
    /* A copy that is made again is not complete meanwhile: its manifest goes first. */
    save(root, 2);
    trouble(&s, STATUS, 3, 1, 403);
    assert_err(ERR_REQUEST, "403", put(to, root, 2, 0, &e));
    assert_int_equal(newest(to), 1);
    server_trouble(&s, FINE, 0, 0, "");
    assert_ok(put(to, root, 2, 0, &e));
    assert_int_equal(newest(to), 2);
    server_stop(&s);
    scratch_free(root);
}

/* What passes is tried again; a store that keeps less than it was given is found out before the manifest is written. */
static void what_passes_and_what_lies(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    const char *to = "s3://b/x";
    char *root = scratch_new();
    server_new(&s);
    static const enum trouble passing[] = {STATUS, HANG_UP, RESET, STALL};
    for (int i = 0; i < 4; i++) {
        save(root, i + 1);
        trouble(&s, passing[i], i, 1, 503);
        patience_s = passing[i] == STALL ? 2 : 3600;
        assert_ok(put(to, root, i + 1, 0, &e));
        assert_int_equal(server_count(&s, &s.left), 0);
        patience_s = 3600;
        assert_int_equal(newest(to), i + 1);
    }
    save(root, 5);
    trouble(&s, HALF_STORED, 2, 1, 0);
    assert_err(ERR_IO, "it was given", put(to, root, 5, 0, &e));
    assert_int_equal(newest(to), 4);
    assert_ok(put(to, root, 5, 0, &e));
    /* A thread's failures are tried again until it is over. */
    trouble(&s, STATUS, 0, 6, 403);
    assert_ok(run(to, root, 6, 6, 0, &e));
    s.left = 0;
    server_stop(&s);
    scratch_free(root);
}

/* A copy whose manifest was changed is passed over where an older one can be used; where none can, nobody knows. */
static void a_damaged_copy(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    bool fetched;
    const char *to = "s3://b/x";
    char *root = scratch_new(), *other = scratch_new();
    server_new(&s);
    same_run(other, root);
    for (int step = 1; step <= 2; step++) {
        save(root, step);
        assert_ok(put(to, root, step, 0, &e));
    }
    for (int i = 0; i < s.n_objects; i++)
        if (!strcmp(s.object[i].path, "/b/x/step-00000002/manifest.json")) s.object[i].own[50] ^= 1;
    assert_int_equal(newest(to), 1);
    assert_ok(fetch(to, other, &fetched, &e));
    state_check(other, 1);
    /* One whose file is gone is not complete. */
    server_remove(&s, "/b/x/step-00000001/boxes-00000.safetensors");
    assert_int_equal(newest(to), -2);
    server_stop(&s);
    /* A store that cannot be reached: what is here is gone on from; where nothing is, nobody begins afresh. */
    assert_ok(fetch(to, root, &fetched, &e));
    assert_false(fetched);
    char *empty = scratch_new();
    assert_err(ERR_IO, "s3://b", fetch(to, empty, &fetched, &e));
    struct copy_place p;
    assert_err(ERR_REQUEST, "no agreed way", copy_place_open(&p, "https://host/x", NULL, &e));
    copy_place_close(&p);
    scratch_free(empty);
    scratch_free(other);
    scratch_free(root);
}

/* -- objects in parts ------------------------------------------------------------------------------------------ */

enum { PART = 16 << 20, LARGE = 2 * PART + 1000 };
static int64_t fail_at = -1;

static int bytes_of(void *ctx, int64_t at, size_t n, void *out, struct err *e)
{
    (void)ctx;
    if (fail_at >= at && fail_at < at + (int64_t)n) return err_set(e, ERR_IO, "the disk ends here");
    for (size_t i = 0; i < n; i++) ((unsigned char *)out)[i] = (unsigned char)((at + (int64_t)i) * 31 >> 3);
    return OK;
}

static int put_large(struct err *e)
{
    struct remote_options o = options();
    struct remote *r = remote_new(&o);
    int rc = remote_put(r, "s3://b/a large one", bytes_of, NULL, LARGE, e);
    remote_free(r);
    return rc;
}

static bool is_whole(struct object_server *s)
{
    struct err e;
    unsigned char *wanted = xmalloc(LARGE);
    bytes_of(NULL, 0, LARGE, wanted, &e);
    bool whole = s->n_objects == 1 && s->object[0].n == LARGE && !memcmp(s->object[0].p, wanted, LARGE);
    xfree(wanted);
    return whole;
}

static void in_parts(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    server_new(&s);
    assert_ok(put_large(&e));
    assert_true(is_whole(&s));
    static const struct {
        enum trouble t;
        int pass, n;
        bool good;
    } rows[] = {{STATUS, 0, 1, true},       {RESET, 2, 2, true},   {HANG_UP, 4, 1, true},
                {ERROR_INSIDE, 4, 1, true}, {STATUS, 2, 3, false}, {ERROR_INSIDE, 4, 3, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int aborted = s.aborted;
        server_remove(&s, "/b/a large one");
        trouble(&s, rows[i].t, rows[i].pass, rows[i].n, 503);
        int rc = put_large(&e);
        assert_int_equal(rc == OK, rows[i].good);
        assert_int_equal(s.aborted - aborted, !rows[i].good);
        assert_true(rows[i].good ? is_whole(&s) : s.n_objects == 0);
        assert_int_equal(s.n_uploads, 0); /* nothing lies about that its owner pays for */
    }
    /* The store's own object once more, in parts where it is more than it copies at once. */
    for (int64_t most = 0; most <= LARGE; most += LARGE / 3) {
        server_remove(&s, "/b/a large one");
        assert_ok(put_large(&e));
        struct remote_options o = options();
        o.copy_most = most;
        struct remote *r = remote_new(&o);
        int before = s.n_copies;
        assert_ok(remote_copy(r, "s3://b/a large one", "s3://b/another", LARGE, &e));
        assert_int_equal(s.n_copies - before, most == 0 || most >= LARGE ? 1 : (LARGE + most - 1) / most);
        server_remove(&s, "/b/a large one");
        assert_true(is_whole(&s));
        server_remove(&s, "/b/another");
        assert_err(ERR_REQUEST, "another", remote_copy(r, "s3://b/none", "s3://b/another", LARGE, &e));
        assert_int_equal(s.n_objects + s.n_uploads, 0);
        remote_free(r);
    }
    fail_at = PART + 5;
    assert_err(ERR_IO, "the disk ends here", put_large(&e));
    fail_at = -1;
    assert_int_equal(s.n_objects + s.n_uploads, 0);
    s.secret = "another";
    assert_err(ERR_REQUEST, "may not write it", put_large(&e));
    server_stop(&s);
}

/* What is being copied is not removed by keep-last-K. */
static void in_use_stays(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new(), *one = step_path(root, 1), *two = step_path(root, 2);
    atomic_llong step = 1;
    save(root, 1);
    save(root, 2);
    for (int round = 0; round < 2; round++) {
        struct ckpt_tensor *t = state_new(3);
        struct ckpt_info info = {.step = 3 + round, .keep = 1, .in_use = &step};
        assert_ok(ckpt_save(root, &info, t, N_KNOWN, &e));
        state_free(t, N_KNOWN);
        assert_int_equal(fs_exists(one), round == 0);
        assert_false(fs_exists(two));
        atomic_store(&step, -1);
    }
    xfree(two);
    xfree(one);
    scratch_free(root);
}

/* Damaged here, it does not leave: the copy before stays the newest. */
static void damage_does_not_travel(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    char *folder = scratch_new(), *root = scratch_new();
    const char *to[] = {folder, "s3://b/x"};
    server_new(&s);
    save(root, 1);
    save(root, 2);
    for (int i = 0; i < 2; i++) assert_ok(put(to[i], root, 1, 0, &e));
    char *dir = step_path(root, 2), *file = fs_join(dir, "boxes-00000.safetensors");
    flip_end(file);
    for (int i = 0; i < 2; i++) {
        assert_err(ERR_CORRUPT, "boxes-00000.safetensors: tensor ", put(to[i], root, 2, 0, &e));
        assert_int_equal(newest(to[i]), 1);
    }
    server_stop(&s);
    xfree(file);
    xfree(dir);
    scratch_free(root);
    scratch_free(folder);
}

static bool has_copy(const char *to, int step)
{
    struct copy_place p;
    struct err e;
    struct remote_options o = options();
    char *root = scratch_new();
    assert_ok(copy_place_open(&p, to, &o, &e));
    bool there = copy_place_take(&p, step, root, &e) == OK;
    copy_place_close(&p);
    scratch_free(root);
    return there;
}

/* A run that went back to an earlier step: the newest, what stays and what comes back go by publications. */
static void steps_that_go_back(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    char *folder = scratch_new();
    const char *to[] = {folder, "s3://b/x"};
    server_new(&s);
    for (int i = 0; i < 2; i++) {
        static const int steps[] = {4, 6, 2};
        bool fetched;
        char *root = scratch_new(), *behind = scratch_new();
        same_run(behind, root);
        for (int k = 0; k < 3; k++) {
            save(root, steps[k]);
            if (k < 2) save(behind, steps[k]);
            assert_ok(put(to[i], root, steps[k], 2, &e));
        }
        assert_int_equal(newest(to[i]), 2);
        assert_false(has_copy(to[i], 4));
        assert_true(has_copy(to[i], 6) && has_copy(to[i], 2));
        assert_ok(fetch(to[i], behind, &fetched, &e));
        assert_true(fetched);
        state_check(behind, 2);
        scratch_free(behind);
        scratch_free(root);
    }
    server_stop(&s);
    scratch_free(folder);
}

/* While a step is copied its number stands where savers look; the store answers when this test lets it. */
static void who_saves_is_told(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    struct copies *x;
    struct remote_options o = options();
    const char *to = "s3://b/x";
    char *root = scratch_new();
    server_new(&s);
    save(root, 1);
    struct copies_config c = config_of(to, root, &o);
    c.run = name_of(root);
    assert_ok(copies_begin(&x, &c, &e));
    const atomic_llong *in_use = copies_in_use(x);
    while (newest(to) != 1 || atomic_load(in_use) != -1) clock_sleep_s(1e-3);
    save(root, 2);
    pthread_mutex_lock(&s.lock);
    copies_offer(x, 2);
    while (atomic_load(in_use) != 2) clock_sleep_s(1e-3);
    pthread_mutex_unlock(&s.lock);
    copies_end(x, false);
    assert_int_equal(newest(to), 2);
    server_stop(&s);
    scratch_free(root);
}

/* A run that loses its directory goes on from its copy, with the same end. */
#define CONSTANT "optimizer.schedule.name=constant" /* a rate that does not look at run.steps */
static void a_lost_directory(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    char to[160];
    folder_open(&f);
    snprintf(to, sizeof to, "checkpoint.copy_to=%s/copies", f.dir);
    train_ok(&f, "want", KEYS("run.steps=6", "checkpoint.every=2", CONSTANT));
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *keys[] =
            {"run.steps=4", "checkpoint.every=2", "checkpoint.async=true", "parallel.zero=1", CONSTANT, to, NULL};
        char *dir = fs_join(f.dir, "run"), *copies = fs_join(f.dir, "copies");
        if (train_ranks(&f, "run", ranks, keys, &r, &e)) fail_msg("%s", e.text);
        assert_ok(fs_remove_tree(dir, &e));
        keys[0] = "run.steps=6";
        if (train_ranks(&f, "run", ranks, keys, &r, &e)) fail_msg("%s", e.text);
        assert_int_equal(r.first_step, 4);
        if (ranks == 1) same_file(&f, "want", "run", "checkpoints/step-00000006/boxes-00000.safetensors");
        /* And without the place it would have begun afresh; another run may not use the same. */
        assert_ok(fs_remove_tree(dir, &e));
        if (ranks == 2) {
            keys[2] = "checkpoint.resume=never";
            assert_err(ERR_REQUEST, "checkpoint.copy_to", train_ranks(&f, "run", ranks, keys, &r, &e));
        }
        assert_ok(fs_remove_tree(dir, &e));
        assert_ok(fs_remove_tree(copies, &e));
        xfree(copies);
        xfree(dir);
    }
    folder_close(&f);
}

/* A byte of this run's newest checkpoint is another one, which only its loading tells: the whole copy is fetched, and
 * the end is what it would have been. */
static void a_damaged_disk(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    char to[160], file[256];
    folder_open(&f);
    snprintf(to, sizeof to, "checkpoint.copy_to=%s/copies", f.dir);
    snprintf(file, sizeof file, "%s/run/checkpoints/step-00000004/boxes-00000.safetensors", f.dir);
    train_ok(&f, "want", KEYS("run.steps=6", "checkpoint.every=2", CONSTANT));
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *keys[] = {"run.steps=4", "checkpoint.every=2", "parallel.zero=1", CONSTANT, to, NULL};
        char *dir = fs_join(f.dir, "run"), *copies = fs_join(f.dir, "copies");
        if (train_ranks(&f, "run", ranks, keys, &r, &e)) fail_msg("%s", e.text);
        flip_end(file);
        keys[0] = "run.steps=6";
        if (train_ranks(&f, "run", ranks, keys, &r, &e)) fail_msg("%s", e.text);
        assert_int_equal(r.first_step, 4);
        if (ranks == 1) same_file(&f, "want", "run", "checkpoints/step-00000006/boxes-00000.safetensors");
        assert_ok(fs_remove_tree(dir, &e));
        assert_ok(fs_remove_tree(copies, &e));
        xfree(copies);
        xfree(dir);
    }
    folder_close(&f);
}

/* A checkpoint of another name is not gone on from by itself, wherever it came from; nor is another run's copy. */
static void another_name(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    char to[160], from[160], here[160];
    folder_open(&f);
    snprintf(to, sizeof to, "checkpoint.copy_to=%s/copies", f.dir);
    const char *keys[] = {"run.steps=2", "checkpoint.every=2", CONSTANT, to, NULL, NULL};
    if (train(&f, "a", keys, &r, &e)) fail_msg("%s", e.text);
    keys[0] = "run.steps=4";
    assert_err(ERR_REQUEST, "copies of another run", train(&f, "b", keys, &r, &e));
    keys[4] = "checkpoint.resume=copy";
    if (train(&f, "b", keys, &r, &e)) fail_msg("%s", e.text);
    assert_int_equal(r.first_step, 2);
    keys[3] = NULL;
    keys[0] = "run.steps=2";
    if (train(&f, "c", keys, &r, &e)) fail_msg("%s", e.text);
    snprintf(from, sizeof from, "%s/a/checkpoints", f.dir);
    snprintf(here, sizeof here, "%s/c/checkpoints", f.dir);
    assert_ok(fs_remove_tree(here, &e));
    assert_ok(fs_rename(from, here, &e));
    keys[0] = "run.steps=4";
    assert_err(ERR_REQUEST, "and this is run", train(&f, "c", keys, &r, &e));
    keys[3] = "checkpoint.resume=step-00000002";
    keys[4] = NULL;
    if (train(&f, "c", keys, &r, &e)) fail_msg("%s", e.text);
    assert_int_equal(r.first_step, 2);
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_a_folder),
        cmocka_unit_test(in_a_store),
        cmocka_unit_test(every_write_refused),
        cmocka_unit_test(what_passes_and_what_lies),
        cmocka_unit_test(a_damaged_copy),
        cmocka_unit_test(in_parts),
        cmocka_unit_test(what_stands_still_stays),
        cmocka_unit_test(what_was_begun_is_given_up),
        cmocka_unit_test(in_use_stays),
        cmocka_unit_test(damage_does_not_travel),
        cmocka_unit_test(steps_that_go_back),
        cmocka_unit_test(who_saves_is_told),
        cmocka_unit_test(a_lost_directory),
        cmocka_unit_test(a_damaged_disk),
        cmocka_unit_test(another_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
