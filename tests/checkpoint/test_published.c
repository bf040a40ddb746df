/* SPDX-License-Identifier: Apache-2.0 */
/* Which checkpoint is the newest, which ones are kept, and that damage anywhere is found and named. */
#include "state.h"

#include <unistd.h>

#include "base/hash.h"
#include "checkpoint/manifest.h"
#include "checkpoint/published.h"

static void save(const char *root, int64_t step, int version, int keep)
{
    struct err e;
    assert_ok(state_save(root, step, version, keep, &e));
}

/* The published steps, oldest publication first, as text. */
static void steps_are(const char *root, const char *wanted)
{
    struct err e;
    struct ckpt_listing *list;
    int n;
    char text[200] = "";
    assert_ok(ckpt_list(root, &list, &n, &e));
    for (int i = 0; i < n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? " " : "", (long long)list[i].step);
    ckpt_list_free(list, n);
    assert_string_equal(text, wanted);
}

static void latest_is(const char *root, int64_t step)
{
    struct err e;
    char name[40], target[100] = "", *path, *link = fs_join(root, "latest");
    snprintf(name, sizeof name, "step-%08lld", (long long)step);
    assert_true(readlink(link, target, sizeof target - 1) > 0);
    assert_string_equal(target, name);
    assert_ok(ckpt_find_latest(root, &path, &e));
    assert_string_equal(strrchr(path, '/') + 1, name);
    xfree(path);
    xfree(link);
}

static void oldest_are_removed(void **state)
{
    (void)state;
    char *root = scratch_new();
    for (int step = 1; step <= 6; step++) save(root, step, step, 3);
    steps_are(root, "4 5 6");
    latest_is(root, 6);
    save(root, 2, 20, 3); /* rewound: an earlier step, a later publication */
    steps_are(root, "5 6 2");
    latest_is(root, 2);
    save(root, 5, 50, 3); /* again a step that is there */
    steps_are(root, "6 2 5");
    latest_is(root, 5);
    state_check(root, 50);
    save(root, 7, 70, 0); /* keep all */
    steps_are(root, "6 2 5 7");
    save(root, 8, 80, 1);
    steps_are(root, "8");
    state_check(root, 80);
    scratch_free(root);
}

static void paths_that_mean_a_checkpoint(void **state)
{
    (void)state;
    struct err e;
    char *run = scratch_new(), *root = fs_join(run, "checkpoints"), *found, *one = fs_join(root, "step-00000003");
    assert_err(ERR_REQUEST, "no such checkpoint", ckpt_resolve(root, &found, &e));
    assert_err(ERR_REQUEST, "no complete checkpoint", ckpt_resolve(run, &found, &e));
    save(root, 3, 3, 0);
    save(root, 4, 4, 0);
    state_check(run, 4);
    state_check(root, 4);
    state_check(one, 3);
    char *file = fs_join(one, "config.yaml");
    assert_err(ERR_REQUEST, "is a file", ckpt_resolve(file, &found, &e));
    xfree(file);
    xfree(one);
    xfree(root);
    scratch_free(run);
}

static char *member(const char *root, int64_t step, const char *name)
{
    char dir[40];
    snprintf(dir, sizeof dir, "step-%08lld", (long long)step);
    char *full = fs_join(root, dir), *path = fs_join(full, name);
    xfree(full);
    return path;
}

/* 4 cut short, 2 with a changed manifest; 1 and 3 are whole. */
static char *half_broken(void)
{
    struct err e;
    char *root = scratch_new(), *text;
    size_t n;
    for (int step = 1; step <= 4; step++) save(root, step, step, 0);
    char *data = member(root, 4, "boxes-00000.safetensors"), *manifest = member(root, 2, "manifest.json");
    assert_int_equal(truncate(data, 500), 0);
    assert_ok(fs_read_all(manifest, 1 << 20, &text, &n, &e));
    *strchr(text, '2') = '3';
    assert_ok(fs_write_atomic(manifest, text, n, &e));
    xfree(text);
    xfree(manifest);
    xfree(data);
    return root;
}

/* The newest is never guessed: what may be newer than all that can be used is an error that names both. */
static void the_newest_is_not_guessed(void **state)
{
    (void)state;
    struct err e;
    char *root = half_broken(), *path, *nearest;
    assert_err(ERR_CORRUPT, "step-00000004 cannot be used", ckpt_newest(root, &path, &nearest, &e));
    assert_null(path);
    assert_string_equal(strrchr(nearest, '/'), "/step-00000003");
    xfree(nearest);
    assert_err(ERR_CORRUPT, "boxes-00000.safetensors: has 500 bytes", ckpt_find_latest(root, &path, &e));
    assert_non_null(strstr(e.text, "the nearest that can be used is"));

    /* a person chose 3: what is in the way is moved, the broken one that is older is left, nothing is lost */
    char *three = fs_join(root, "step-00000003"), *aside = fs_join(root, "step-00000004.aside-1");
    assert_ok(ckpt_set_aside(root, three, &e));
    assert_true(fs_is_dir(aside));
    latest_is(root, 3);
    state_check(root, 3);

    struct ckpt_listing *list;
    int count;
    assert_ok(ckpt_list(root, &list, &count, &e));
    assert_int_equal(count, 3);
    for (int i = 0; i < count; i++) assert_int_equal(list[i].code, list[i].step == 2 ? ERR_CORRUPT : OK);
    ckpt_list_free(list, count);

    save(root, 5, 5, 1); /* keeping one removes the complete ones only: the broken are for a person to look at */
    latest_is(root, 5);
    assert_ok(ckpt_list(root, &list, &count, &e));
    assert_int_equal(count, 2);
    ckpt_list_free(list, count);
    assert_true(fs_is_dir(aside));
    xfree(aside);
    xfree(three);
    scratch_free(root);
}

/* Rewound to 2, which was published last and has lost its manifest: `latest` tells that it may be the newest. */
static void a_rewound_one_without_manifest(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new(), *path;
    for (int step = 1; step <= 4; step++) save(root, step, step, 0);
    save(root, 2, 20, 0);
    char *manifest = member(root, 2, "manifest.json");
    assert_int_equal(unlink(manifest), 0);
    assert_err(ERR_CORRUPT, "step-00000002 cannot be used", ckpt_find_latest(root, &path, &e));
    save(root, 5, 5, 0); /* published since: 2 is older for certain */
    state_check(root, 5);
    xfree(manifest);
    scratch_free(root);
}

/* Nothing that can be used: an error, not "there is none". The same for what `latest` alone speaks of. */
static void none_can_be_used(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new(), *path, *nearest;
    save(root, 7, 7, 0);
    char *config = member(root, 7, "config.yaml");
    assert_int_equal(truncate(config, 9), 0); /* an attachment, one byte short */
    assert_err(ERR_CORRUPT, "there is no other", ckpt_newest(root, &path, &nearest, &e));
    assert_null(nearest);
    assert_err(ERR_CORRUPT, "config.yaml: has 9 bytes", ckpt_find_latest(root, &path, &e));
    char *dir = fs_join(root, "step-00000007");
    assert_ok(fs_remove_tree(dir, &e));
    assert_err(ERR_CORRUPT, "latest names step-00000007, which is not there", ckpt_find_latest(root, &path, &e));
    save(root, 3, 3, 0);
    state_check(root, 3);
    xfree(dir);
    xfree(config);
    scratch_free(root);
}

/* Saving a step again replaces what can be read, and moves aside what cannot. */
static void the_unreadable_is_not_replaced(void **state)
{
    (void)state;
    char *root = half_broken(), *aside = fs_join(root, "step-00000004.aside-1"),
         *three = fs_join(root, "step-00000003.aside-1");
    save(root, 4, 40, 0);
    save(root, 3, 30, 0);
    assert_true(fs_is_dir(aside));
    assert_false(fs_exists(three));
    char *data = fs_join(aside, "boxes-00000.safetensors");
    assert_int_equal(fs_size(data), 500);
    state_check(root, 30);
    xfree(data);
    xfree(three);
    xfree(aside);
    scratch_free(root);
}

static void count_problem(void *ctx, const char *text)
{
    (void)text;
    ++*(int *)ctx;
}

/* 0 when nothing is wrong; what loading everything says otherwise. */
static int load_all(const char *dir, struct err *e)
{
    struct ckpt *c;
    int rc = ckpt_open(&c, dir, e);
    if (rc < 0) return rc;
    for (int k = 0; k < N_KNOWN && rc == OK; k++) {
        struct ckpt_tensor t = known_whole(k, 0);
        rc = ckpt_load(c, &t, 1, e);
        xfree(t.p);
    }
    int told = 0;
    int64_t n = ckpt_verify(c, count_problem, &told);
    assert_int_equal(n, told);
    if (rc < 0) assert_true(n > 0); /* what loading finds, verifying finds */
    if (rc == OK && n > 0) rc = err_set(e, ERR_CORRUPT, "only verifying saw it");
    ckpt_close(c);
    return rc;
}

/* Every byte of every file: changing it is noticed, by loading or at the latest by verifying. */
static void every_byte_counts(void **state)
{
    (void)state;
    static const char *const files[] = {"manifest.json", "config.yaml", "boxes-00000.safetensors"};
    struct err e;
    char *root = scratch_new();
    struct dice d = {.seed = 5};
    save(root, 1, 1, 0);
    char *dir = fs_join(root, "step-00000001");
    assert_ok(load_all(dir, &e));
    for (int f = 0; f < 3; f++) {
        char *path = fs_join(dir, files[f]), *text;
        size_t n;
        assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e));
        size_t stride = n / 400 + 1; /* all regions, at moving places */
        for (size_t at = 0; at < n; at += 1 + (size_t)roll(&d, 2 * (int64_t)stride)) {
            char kept = text[at];
            text[at] = (char)(text[at] ^ (1 << roll(&d, 8)));
            FILE *file = fopen(path, "wb");
            assert_int_equal(fwrite(text, 1, n, file), n);
            fclose(file);
            text[at] = kept;
            int rc = load_all(dir, &e);
            if (rc != ERR_CORRUPT && rc != ERR_REQUEST) fail_msg("%s: byte %zu was changed: code %d", files[f], at, rc);
        }
        for (size_t k = 0; k < n; k += n / 50 + 1) { /* and cutting it short */
            FILE *file = fopen(path, "wb");
            assert_int_equal(fwrite(text, 1, k, file), k);
            fclose(file);
            assert_int_equal(load_all(dir, &e), ERR_CORRUPT);
            assert_non_null(strstr(e.text, files[f]));
        }
        assert_ok(fs_write_atomic(path, text, n, &e));
        xfree(text);
        xfree(path);
    }
    assert_ok(load_all(dir, &e));
    xfree(dir);
    scratch_free(root);
}

static void damage_is_named(void **state)
{
    (void)state;
    struct err e;
    char *root = scratch_new(), *text;
    size_t n;
    save(root, 1, 1, 0);
    char *path = member(root, 1, "boxes-00000.safetensors");
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e));
    text[n - 1] ^= 1; /* sizes that small powers of two divide come last: the end of positions */
    assert_ok(fs_write_atomic(path, text, n, &e));
    struct ckpt *c;
    assert_ok(ckpt_open(&c, root, &e));
    struct ckpt_tensor t = known_whole(7, 1);
    assert_err(ERR_CORRUPT, "boxes-00000.safetensors: tensor data/positions", ckpt_load(c, &t, 1, &e));
    xfree(t.p);
    ckpt_close(c);
    xfree(path);
    xfree(text);
    scratch_free(root);
}

/* Which of steps 1 .. 9, saved in that order, are left. */
static void retention(void **state)
{
    (void)state;
    static const struct {
        int keep;
        int64_t keep_every;
        const char *left;
    } rows[] = {{0, 0, "123456789"}, {0, 4, "123456789"}, {1, 0, "9"}, {3, 0, "789"}, {1, 4, "489"},
                {3, 4, "4789"},      {2, 1, "123456789"}, {1, 9, "9"}, {2, 20, "89"}, {20, 2, "123456789"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e;
        char *root = scratch_new(), left[16] = "";
        for (int64_t step = 1; step <= 9; step++) {
            char *dir = published_dir(root, step);
            save(root, step, (int)step, 0);
            assert_ok(published_prune(root, rows[i].keep, rows[i].keep_every, dir, -1, &e));
            assert_true(fs_exists(dir));
            xfree(dir);
        }
        for (int64_t step = 1; step <= 9; step++) {
            char *dir = published_dir(root, step);
            if (fs_exists(dir)) snprintf(left + strlen(left), sizeof left - strlen(left), "%d", (int)step);
            xfree(dir);
        }
        assert_string_equal(left, rows[i].left);
        scratch_free(root);
    }
}

/* A run that went back publishes a step before others that are there: it is the newest, and stays, whatever its number.
 */
static void retention_after_going_back(void **state)
{
    (void)state;
    for (int keep = 1; keep <= 3; keep++) {
        struct err e;
        struct ckpt_listing *list;
        int n, left = 0;
        char *root = scratch_new(), *dir = published_dir(root, 3);
        for (int64_t step = 5; step <= 8; step++) save(root, step, (int)step, 0);
        save(root, 3, 9, 0);
        assert_ok(published_prune(root, keep, 0, dir, -1, &e));
        assert_true(fs_exists(dir));
        assert_ok(ckpt_list(root, &list, &n, &e));
        for (int i = 0; i < n; i++) left += !*list[i].problem;
        assert_int_equal(left, keep);
        ckpt_list_free(list, n);
        xfree(dir);
        scratch_free(root);
    }
}

static void newer_formats_are_refused(void **state)
{
    (void)state;
    struct err e;
    struct manifest m = {0};
    struct str text = {0};
    manifest_init(&m);
    m.tutti = "9.9";
    assert_ok(manifest_finish(&m, "t", false, &e));
    manifest_print(&m, &text);
    manifest_fini(&m);
    char *version = strstr(text.p, "\"version\":2");
    assert_non_null(version);
    version[10] = '3';
    char hash[17];
    size_t sealed = text.n - strlen(",\n\"xxh64\":\"0123456789abcdef\"}\n");
    memcpy(text.p + text.n - strlen("0123456789abcdef\"}\n"), hash64_print(hash, hash64(text.p, sealed)), 16);
    assert_err(ERR_REQUEST, "version 3 of the format by tutti 9.9", manifest_parse(&m, text.p, text.n, "t", false, &e));
    str_free(&text);
}

int main(void)
{
    setenv("LOG", "error", 1); /* warnings are what these tests provoke */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_are_removed),         cmocka_unit_test(paths_that_mean_a_checkpoint),
        cmocka_unit_test(the_newest_is_not_guessed),  cmocka_unit_test(a_rewound_one_without_manifest),
        cmocka_unit_test(none_can_be_used),           cmocka_unit_test(the_unreadable_is_not_replaced),
        cmocka_unit_test(every_byte_counts),          cmocka_unit_test(damage_is_named),
        cmocka_unit_test(newer_formats_are_refused),  cmocka_unit_test(retention),
        cmocka_unit_test(retention_after_going_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
