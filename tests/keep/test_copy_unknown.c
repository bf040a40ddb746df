/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that cannot be read, are damaged, are of another run or of nobody: nothing is begun beside them, written over
 * or removed; and what is whole comes back, whatever is wrong with the rest. */
#include "keep/copies.h"

#include <unistd.h>

#include "base/hash.h"

/* ---- what a place has, as a number ---- */

static uint64_t objects(struct object_server *s)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_objects; i++)
        if (!strstr(s->object[i].path, COPY_OWNER_NAME))
            sum += hash64(s->object[i].path, strlen(s->object[i].path)) * 31 + hash64(s->object[i].p, s->object[i].n);
    pthread_mutex_unlock(&s->lock);
    return sum;
}

static struct served *object_of(struct object_server *s, const char *path)
{
    for (int i = 0; i < s->n_objects; i++)
        if (!strcmp(s->object[i].path, path)) return &s->object[i];
    fail_msg("no object %s", path);
    return NULL;
}

static int64_t newest_of(const char *root)
{
    struct ckpt_held h;
    ckpt_hold(&h, root);
    int64_t step = h.what == HELD_UNKNOWN ? -2 : h.what == HELD_NONE ? -1 : h.newest.step;
    ckpt_held_free(&h);
    return step;
}

/* Three copies of a run there; the run's folder. */
static char *three(const char *to)
{
    struct err e;
    char *root = scratch_new();
    for (int step = 1; step <= 3; step++) {
        save(root, step);
        assert_ok(put(to, root, step, 0, &e));
    }
    return root;
}

/* ---- not read is not "none" ---- */

/* The manifests' answers are of this kind: a start without a disk stops, one with a whole disk goes on, and the copies
 * are what they were. */
static void stops(struct object_server *s, const char *to, const char *root, const char *text)
{
    struct err e;
    bool fetched;
    uint64_t before = objects(s);
    char *disk = lose_disk(root);
    int rc = fetch(to, root, &fetched, &e);
    if (rc == OK || fetched || !strstr(e.text, text)) fail_msg("%s: %d, %s", text, rc, rc ? e.text : "");
    assert_int_equal(newest_of(root), -1);
    /* Whoever goes on all the same (a fresh start that a person asked for) writes nothing beside them. */
    save(root, 1);
    if (run(to, root, 2, 2, 1, &e) == OK) assert_int_equal(newest_of(root), 2);
    assert_int_equal(objects(s), before);
    disk_back(root, disk);
    assert_ok(fetch(to, root, &fetched, &e));
    assert_false(fetched);
}

static void what_a_store_does_not_tell(void **state)
{
    (void)state;
    struct object_server s;
    const char *to = "s3://b/x";
    server_new(&s);
    char *root = three(to);
    static const int status[] = {403, 404, 400, 503};
    for (size_t i = 0; i < sizeof status / sizeof *status; i++) {
        char text[8];
        snprintf(text, sizeof text, "%d", status[i]);
        server_trouble_for(&s, STATUS, false, "manifest.json", 0, 1 << 20, status[i]);
        stops(&s, to, root, text);
        server_trouble_for(&s, STATUS, false, "/b", 0, 1 << 20, status[i]); /* lists, too */
        stops(&s, to, root, text);
        server_trouble_for(&s, STATUS, false, COPY_OWNER_NAME, 0, 1 << 20, status[i]);
        stops(&s, to, root, status[i] == 404 ? "says that there is none" : text);
    }
    server_trouble(&s, FINE, 0, 0, "");
    /* A newest copy that the list does not show (yet). */
    struct served *manifest = object_of(&s, "/b/x/step-00000003/manifest.json");
    memcpy(strstr(manifest->path, "step"), "stop", 4);
    stops(&s, to, root, "which was made last, is not there");
    memcpy(strstr(manifest->path, "stop"), "step", 4);
    assert_int_equal(newest(to), 3);
    server_stop(&s);
    scratch_free(root);
}

/* Every manifest is a newer tutti's, or flipped. */
static void reseal(struct served *o, uint64_t version)
{
    struct str text = {0};
    char digits[17], *at = strstr((char *)o->own, "\"version\":");
    size_t n = o->n - strlen(",\n\"xxh64\":\"0123456789abcdef\"}\n");
    at[strlen("\"version\":")] = (char)('0' + version);
    str_add(&text, (char *)o->own, n);
    str_printf(&text, ",\n\"xxh64\":\"%s\"}\n", hash64_print(digits, hash64(text.p, text.n)));
    memcpy(o->own, text.p, text.n);
    str_free(&text);
}

static void what_cannot_be_understood(void **state)
{
    (void)state;
    struct object_server s;
    const char *to = "s3://b/x";
    server_new(&s);
    char *root = three(to);
    for (int pass = 0; pass < 4; pass++) {
        for (int step = 1; step <= 3; step++) {
            char path[64];
            snprintf(path, sizeof path, "/b/x/step-%08d/manifest.json", step);
            if (pass % 2 == 0 && pass < 2) object_of(&s, path)->own[50] ^= 1;
            if (pass >= 2) reseal(object_of(&s, path), pass == 2 ? 9 : 2);
            if (pass == 1) object_of(&s, path)->own[50] ^= 1;
        }
        if (pass == 0) stops(&s, to, root, "checksum");
        if (pass == 2) stops(&s, to, root, "version 9");
        if (pass % 2) assert_int_equal(newest(to), 3);
    }
    server_stop(&s);
    scratch_free(root);
}

/* ---- each request of a start in turn ---- */

/* The n-th request that reads meets it, `times` times over, for every n: either the newest comes, or the start stops.
 */
static void every_request(struct object_server *s, const char *to, const char *root, enum trouble t, int status,
                          int times)
{
    for (int n = 0;; n++) {
        struct err e = {0};
        bool fetched;
        char *disk = lose_disk(root);
        server_trouble_for(s, t, false, "", n, times, status);
        int rc = fetch(to, root, &fetched, &e);
        int left = server_count(s, &s->left);
        server_trouble(s, FINE, 0, 0, "");
        if (rc == OK && (!fetched || newest_of(root) != 3))
            fail_msg("request %d, trouble %d (%d), %d times: step %lld", n, (int)t, status, times,
                     (long long)newest_of(root));
        if (rc == OK) state_check(root, 3);
        else if (newest_of(root) != -1) fail_msg("request %d: %s, and something was published", n, e.text);
        disk_back(root, disk);
        if (left == times) {
            assert_true(n > 8);
            break;
        }
    }
}

static void every_request_of_a_start(void **state)
{
    (void)state;
    struct object_server s;
    const char *to = "s3://b/x";
    static const struct {
        enum trouble t;
        int status, times;
    } rows[] = {{STATUS, 403, 1}, {STATUS, 404, 1}, {STATUS, 503, 1},   {STATUS, 503, 3},    {HANG_UP, 0, 1},
                {TRUNCATE, 0, 1}, {RESET, 0, 1},    {WRONG_BYTE, 0, 1}, {WRONG_RANGE, 0, 1}, {SHORT_CHUNK, 0, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        server_new(&s);
        char *root = three(to);
        every_request(&s, to, root, rows[i].t, rows[i].status, rows[i].times);
        server_stop(&s);
        scratch_free(root);
    }
}

/* Lists without an end. */
static void lists_that_do_not_end(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    bool fetched;
    server_new(&s);
    char *root = scratch_new();
    static const char *const said[] =
        {[LISTS_CIRCLE] = "in a circle", [LISTS_ENDLESS] = "does not end", [LISTS_EMPTY] = "does not end"};
    for (int lie = LISTS_CIRCLE; lie <= LISTS_EMPTY; lie++) {
        s.lists = lie;
        s.n_lists = 0;
        assert_err(ERR_IO, said[lie], fetch("s3://b/x", root, &fetched, &e));
        assert_true(server_count(&s, &s.n_lists) < 150);
    }
    server_stop(&s);
    scratch_free(root);
}

/* ---- whose ---- */

static void another_runs(const char *to, struct object_server *s)
{
    struct err e;
    bool fetched;
    char *root = three(to), *own = scratch_new(), *fresh = scratch_new(), *folder = scratch_new();
    uint64_t before = s ? objects(s) : 0;
    /* A run that has something, older or newer, and one that has nothing. */
    for (int step = 1; step <= 5; step += 4) {
        while (newest_of(own) < step) save(own, newest_of(own) < 0 ? 1 : (int)newest_of(own) + 1);
        assert_err(ERR_REQUEST, "copies of another run", fetch(to, own, &fetched, &e));
        assert_err(ERR_REQUEST, "copies of another run", run(to, own, step + 1, step, 1, &e));
        assert_err(ERR_REQUEST, "copies of another run", put(to, own, step, 1, &e));
        assert_int_equal(newest_of(own), step);
    }
    assert_err(ERR_REQUEST, "checkpoint.resume=copy", fetch(to, fresh, &fetched, &e));
    assert_int_equal(newest_of(fresh), -1);
    assert_true(!s || objects(s) == before);
    assert_int_equal(newest(to), 3);
    /* But where somebody says so. */
    struct remote_options o = options();
    struct copies_config c = config_of(to, fresh, &o);
    struct copies_found f;
    c.takes = true;
    assert_ok(copies_fetch(&c, &f, &e));
    assert_true(f.fetched && f.run == name_of(root));
    state_check(fresh, 3);
    scratch_free(folder);
    scratch_free(fresh);
    scratch_free(own);
    scratch_free(root);
}

/* Two runs that began at one empty place: the second copies nothing, and removes nothing. Two processes of one run: the
 * later one copies. */
static void two_at_once(const char *to)
{
    struct err e;
    struct copier a, b;
    char *one = scratch_new(), *two = scratch_new();
    for (int step = 1; step <= 3; step++) {
        save(one, step);
        save(two, step + 10);
    }
    copier_open(&a, to, one);
    copier_open(&b, to, two);
    assert_ok(copier_put(&a, 1, 1, &e));
    assert_err(ERR_REQUEST, "copies of another run", copier_put(&b, 11, 1, &e));
    assert_ok(copier_put(&a, 2, 1, &e));
    assert_int_equal(newest(to), 2);
    copy_place_close(&b.p);
    copier_open(&b, to, one);
    assert_ok(copier_put(&b, 3, 1, &e));
    save(one, 4);
    assert_err(ERR_REQUEST, "goes on with this run now", copier_put(&a, 4, 1, &e));
    assert_int_equal(newest(to), 3);
    assert_ok(copier_put(&b, 4, 1, &e));
    copy_place_close(&a.p);
    copy_place_close(&b.p);
    scratch_free(two);
    scratch_free(one);
}

/* Checkpoints that an older tutti wrote name no run, and nothing stood beside its copies. */
static void nameless(const char *to, void (*forget_owner)(const char *to, void *ctx), void *ctx)
{
    struct err e;
    bool fetched;
    char *root = scratch_new(), *other = scratch_new();
    for (int step = 1; step <= 2; step++) {
        assert_ok(state_save(root, step, step, 0, &e));
        assert_ok(put(to, root, step, 0, &e));
        forget_owner(to, ctx);
    }
    assert_ok(state_save(other, 1, 1, 0, &e));
    assert_ok(state_save(other, 2, 7, 0, &e));
    assert_err(ERR_REQUEST, "name no run", fetch(to, other, &fetched, &e));
    assert_err(ERR_REQUEST, "name no run", run(to, other, 3, 3, 1, &e));
    char *disk = lose_disk(root);
    assert_ok(fetch(to, root, &fetched, &e));
    assert_true(fetched);
    state_check(root, 2);
    disk_back(root, disk);
    assert_ok(run(to, root, 3, 3, 1, &e)); /* from now on they are this run's, and go when it is their turn */
    assert_int_equal(newest(to), 3);
    assert_err(ERR_REQUEST, "copies of another run", fetch(to, other, &fetched, &e));
    scratch_free(other);
    scratch_free(root);
}

static void drop_object(const char *to, void *ctx)
{
    (void)to;
    server_remove(ctx, "/b/c/" COPY_OWNER_NAME);
}

static void drop_file(const char *to, void *ctx)
{
    (void)ctx;
    char *path = fs_join(to, COPY_OWNER_NAME);
    assert_int_equal(unlink(path), 0);
    xfree(path);
}

static void whose_they_are(void **state)
{
    (void)state;
    struct object_server s;
    char *folder[3];
    server_new(&s);
    for (int i = 0; i < 3; i++) folder[i] = scratch_new();
    another_runs("s3://b/a", &s);
    another_runs(folder[0], NULL);
    two_at_once("s3://b/b");
    two_at_once(folder[1]);
    nameless("s3://b/c", drop_object, &s);
    nameless(folder[2], drop_file, NULL);
    server_stop(&s);
    for (int i = 0; i < 3; i++) scratch_free(folder[i]);
}

/* A record that was changed is nobody's word. */
static void whose_it_is_was_changed(void **state)
{
    (void)state;
    struct err e;
    bool fetched;
    char *to = scratch_new(), *root = three(to), *path = fs_join(to, COPY_OWNER_NAME), *text;
    size_t n;
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e));
    char *disk = lose_disk(root);
    for (size_t i = 0; i < n; i++) {
        text[i] ^= 1;
        assert_ok(fs_write_atomic(path, text, n, &e));
        text[i] ^= 1;
        int rc = fetch(to, root, &fetched, &e);
        if (rc == OK || fetched) fail_msg("byte %zu of the record: %s", i, fetched ? "fetched" : "begun afresh");
        assert_int_equal(newest_of(root), -1);
    }
    disk_back(root, disk);
    xfree(text);
    xfree(path);
    scratch_free(root);
    scratch_free(to);
}

/* ---- damage there ---- */

static void flip(struct object_server *s, const char *to, int step, const char *name)
{
    char path[160];
    if (s) {
        snprintf(path, sizeof path, "/b/x/step-%08d/%s", step, name);
        struct served *o = object_of(s, path);
        o->own[o->n - 3] ^= 1; /* its ETag is what it was */
        return;
    }
    snprintf(path, sizeof path, "%s/step-%08d/%s", to, step, name);
    flip_end(path);
}

/* The newest copy is damaged: the next comes, nothing of the damaged one has a name here, and the run that goes on from
 * the older one can copy again. Then all are damaged. */
static void the_next_one(const char *to, struct object_server *s)
{
    struct err e;
    struct copies_found f;
    char *root = three(to), *disk = lose_disk(root);
    flip(s, to, 3, "boxes-00000.safetensors");
    assert_ok(fetch_found(to, root, &f, &e));
    assert_true(f.fetched && f.n_passed == 1 && f.passed[0] == 3);
    assert_int_equal(newest_of(root), 2);
    state_check(root, 2);
    same_run(root, disk);
    char *kept = step_path(root, 3);
    assert_false(fs_exists(kept));
    xfree(kept);
    save(root, 3);
    assert_ok(run_found(to, root, 4, 4, 0, &f, &e));
    assert_int_equal(newest(to), 4);
    struct copier c;
    copier_open(&c, to, root);
    char *again = scratch_new();
    assert_ok(copy_place_take(&c.p, 4, again, &e));
    state_check(again, 4);
    copy_place_close(&c.p);
    scratch_free(again);
    disk_back(root, disk);
    scratch_free(root);
}

static void all_damaged(const char *to, struct object_server *s)
{
    struct err e;
    bool fetched;
    char *root = three(to), *disk = lose_disk(root);
    for (int step = 1; step <= 3; step++) flip(s, to, step, "boxes-00000.safetensors");
    assert_err(ERR_CORRUPT, "every copy that is there is damaged", fetch(to, root, &fetched, &e));
    assert_int_equal(newest_of(root), -1);
    disk_back(root, disk);
    scratch_free(root);
}

/* What stands still is read where it lies before it is used again. */
static void twins_are_read(const char *to, struct object_server *s)
{
    struct err e;
    struct copier c;
    char *root = scratch_new(), *back = scratch_new();
    same_run(back, root);
    for (int step = 1; step <= 4; step++) {
        struct ckpt_info info = {.step = step, .run = name_of(root), .incremental = true};
        struct ckpt_tensor t[N_KNOWN];
        for (int k = 0; k < N_KNOWN; k++) t[k] = known_whole(k, k < 5 ? 1 : step);
        assert_ok(ckpt_save(root, &info, t, N_KNOWN, &e));
        for (int k = 0; k < N_KNOWN; k++) xfree(t[k].p);
        assert_ok(put(to, root, step, 0, &e));
        if (step == 3) flip(s, to, 3, "still-00000-1.safetensors");
    }
    copier_open(&c, to, root);
    assert_err(ERR_CORRUPT, "still-00000-1.safetensors", copy_place_take(&c.p, 3, back, &e));
    assert_ok(copy_place_take(&c.p, 4, back, &e));
    copy_place_close(&c.p);
    scratch_free(back);
    scratch_free(root);
}

static void damage_there(void **state)
{
    (void)state;
    struct object_server s;
    void (*const each[])(const char *to, struct object_server *s) = {the_next_one, all_damaged, twins_are_read};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char *folder = scratch_new();
        server_new(&s);
        each[i]("s3://b/x", &s);
        server_stop(&s);
        each[i](folder, NULL);
        scratch_free(folder);
    }
}

/* ---- what a store says of what it was given ---- */

static void tags_are_compared(void **state)
{
    (void)state;
    struct object_server s;
    struct err e;
    const char *to = "s3://b/x";
    char *root = scratch_new();
    server_new(&s);
    for (int step = 1; step <= 3; step++) save(root, step);
    s.tags = TAGS_MD5;
    assert_ok(put(to, root, 1, 0, &e));
    for (int pass = 0; pass < 4; pass++) {
        server_trouble_for(&s, WRONG_STORED, true, "step-00000002", pass, 1, 0);
        int rc = put(to, root, 2, 0, &e), met = server_count(&s, &s.left) == 0;
        server_trouble(&s, FINE, 0, 0, "");
        if (met && pass > 0 && (rc != ERR_IO || !strstr(e.text, "other bytes than it was given")))
            fail_msg("write %d: %d, %s", pass, rc, rc ? e.text : "");
        assert_int_equal(newest(to), met && pass > 0 ? 1 : 2);
        if (newest(to) == 2) save(root, 2);
    }
    s.tags = TAGS_LIKE_MD5; /* read back once, and then known to be something else */
    assert_ok(put(to, root, 3, 0, &e));
    server_stop(&s);
    scratch_free(root);
}

/* ---- addresses ---- */

static void addresses(void **state)
{
    (void)state;
    static const struct {
        const char *to, *text;
    } rows[] = {{"s3://", "names no bucket"},
                {"s3:///x", "names no bucket"},
                {"s3://b c/x", "names no bucket"},
                {"gs://b/x", "is an address (gs://), wanted: a folder, or s3://"},
                {"az://b/x", "is an address (az://)"},
                {"hdfs://n:1/x", "is an address (hdfs://)"},
                {"file:///tmp/x", "is an address (file://)"},
                {"S3://b/x", "small letters: s3://"},
                {"HTTPS://h/x", "small letters: https://"},
                {"gs://user:secret@h/x?sig=secret", "gs://h/x"},
                {"https://h/x", "no agreed way"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct copy_place p;
        struct err e;
        assert_err(ERR_REQUEST, rows[i].text, copy_place_open(&p, rows[i].to, NULL, &e));
        assert_null(strstr(e.text, "secret"));
        copy_place_close(&p);
    }
    struct err e;
    assert_err(ERR_REQUEST, "is an address (gs://)", fs_mkdirs("gs://b/x", &e));
    assert_false(fs_exists("gs:"));
}

int main(void)
{
    setenv("LOG", "error", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_store_does_not_tell),
        cmocka_unit_test(what_cannot_be_understood),
        cmocka_unit_test(every_request_of_a_start),
        cmocka_unit_test(lists_that_do_not_end),
        cmocka_unit_test(whose_they_are),
        cmocka_unit_test(whose_it_is_was_changed),
        cmocka_unit_test(damage_there),
        cmocka_unit_test(tags_are_compared),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
