/* SPDX-License-Identifier: Apache-2.0 */
/* copies.h: runs that copy their checkpoints to a folder or to a store on loopback: for tests of keep/copy_place.h and
 * keep/checkpoint_copies.h. A run is a folder with its name in it, and its checkpoints lie there, too. */
#ifndef TUTTI_TESTS_KEEP_COPIES_H
#define TUTTI_TESTS_KEEP_COPIES_H

#include "checkpoint/state.h"

#include "base/hash.h"
#include "no_sync.h"
#include "object_server.h"
#include "keep/checkpoint_copies.h"
#include "keep/run_name.h"

static double patience_s = 3600; /* a machine may be busy: only where something is to stall is it short */

static inline struct remote_options options(void)
{
    struct remote_options o = remote_defaults();
    o.tries = 3;
    o.pause_s = 0.01;
    o.connect_s = o.stall_s = patience_s;
    o.give_up_s = 3600;
    o.cache_limit = 0;
    return o;
}

static inline void server_new(struct object_server *s)
{
    char url[64];
    server_start(s);
    s->id = "AKID";
    s->secret = "secret/of+it";
    s->region = "us-east-1";
    snprintf(url, sizeof url, "http://127.0.0.1:%d", s->port);
    setenv("AWS_ENDPOINT_URL", url, 1);
    setenv("AWS_ACCESS_KEY_ID", s->id, 1);
    setenv("AWS_SECRET_ACCESS_KEY", s->secret, 1);
}

/* The name of the run of that folder. */
static inline uint64_t name_of(const char *root)
{
    struct err e = {0};
    uint64_t name;
    char *path = fs_join(root, "name");
    if (run_name_read(root, &name, &e) == HELD_NONE && digits_draw(path, &name, &e)) fail_msg("%s", e.text);
    xfree(path);
    return name;
}

/* Another folder of the same run. */
static inline void same_run(const char *root, const char *of)
{
    struct err e;
    char digits[18], *path = fs_join(root, "name");
    hash64_print(digits, name_of(of));
    digits[16] = '\n';
    assert_ok(fs_write_atomic(path, digits, 17, &e));
    xfree(path);
}

static inline void save(const char *root, int step)
{
    struct err e;
    assert_ok(state_save_of(root, name_of(root), step, step, 0, &e));
}

static inline char *step_path(const char *root, int step)
{
    char name[40];
    snprintf(name, sizeof name, "step-%08d", step);
    return fs_join(root, name);
}

/* A bit of the third byte from a file's end. */
static inline void flip_end(const char *path)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -3, SEEK_END), 0);
    int was = fgetc(f);
    assert_int_equal(fseek(f, -3, SEEK_END), 0);
    assert_int_equal(fputc(was ^ 1, f), was ^ 1);
    fclose(f);
}

/* One process that copies as long as it is open. */
struct copier {
    struct copy_place p;
    const char *root;
};

static inline void copier_open(struct copier *c, const char *to, const char *root)
{
    struct err e;
    struct remote_options o = options();
    c->root = root;
    assert_ok(copy_place_open(&c->p, to, &o, &e));
}

static inline int copier_put(struct copier *c, int step, int keep, struct err *e)
{
    char *from = step_path(c->root, step), *real = realpath(c->root, NULL);
    struct ckpt_listing *own;
    int n;
    bool made;
    if (ckpt_list(c->root, &own, &n, e)) fail_msg("%s", e->text);
    struct copy_put q = {.me = {.run = name_of(c->root), .dir = real, .own = own, .n_own = n},
                         .from = from,
                         .keep = keep};
    int rc = copy_place_put(&c->p, &q, &made, e);
    ckpt_list_free(own, n);
    free(real);
    xfree(from);
    return rc;
}

static inline int put(const char *to, const char *root, int step, int keep, struct err *e)
{
    struct copier c;
    copier_open(&c, to, root);
    int rc = copier_put(&c, step, keep, e);
    copy_place_close(&c.p);
    return rc;
}

/* The step of the newest; -1: it is known that there is none; -2: it is not known. */
static inline int64_t newest(const char *to)
{
    struct copy_place p;
    struct copy_held h;
    struct err e;
    struct remote_options o = options();
    assert_ok(copy_place_open(&p, to, &o, &e));
    copy_place_look(&p, NULL, &h);
    int64_t step = h.what == HELD_UNKNOWN ? -2 : h.what == HELD_NONE ? -1 : h.newest->step;
    copy_held_free(&h);
    copy_place_close(&p);
    return step;
}

static inline struct copies_config config_of(const char *to, const char *root, const struct remote_options *o)
{
    return (struct copies_config){.to = to, .root = root, .run_dir = root, .retry_s = 0.02, .remote = o};
}

static inline int fetch_found(const char *to, const char *root, struct copies_found *f, struct err *e)
{
    struct remote_options o = options();
    struct copies_config c = config_of(to, root, &o);
    return copies_fetch(&c, f, e);
}

static inline int fetch(const char *to, const char *root, bool *fetched, struct err *e)
{
    struct copies_found f;
    int rc = fetch_found(to, root, &f, e);
    *fetched = f.fetched;
    return rc;
}

/* A thread of copies for as long as it takes to copy what is offered. */
static inline int run_found(const char *to, const char *root, int first, int last, int keep,
                            const struct copies_found *f, struct err *e)
{
    struct remote_options o = options();
    struct copies_config c = config_of(to, root, &o);
    struct copies *x;
    c.run = name_of(root);
    c.keep = keep;
    c.found = f;
    int rc = copies_begin(&x, &c, e);
    for (int step = first; !rc && step <= last; step++) {
        save(root, step);
        copies_offer(x, step);
    }
    if (!rc) copies_end(x, false);
    return rc;
}

static inline int run(const char *to, const char *root, int first, int last, int keep, struct err *e)
{
    return run_found(to, root, first, last, keep, NULL, e);
}

/* The folder loses all that was in it; back to it with disk_back. */
static inline char *lose_disk(const char *root)
{
    struct err e;
    struct str before = {0};
    str_printf(&before, "%s.before", root);
    assert_ok(fs_rename(root, before.p, &e));
    assert_ok(fs_mkdirs(root, &e));
    return before.p;
}

static inline void disk_back(const char *root, char *before)
{
    struct err e;
    assert_ok(fs_remove_tree(root, &e));
    assert_ok(fs_rename(before, root, &e));
    xfree(before);
}

#endif
