/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* suite: wraps pread engine_step */
/* Reads that fail while a run goes on: its token file or its checkpoint gives EIO at the n-th call, shrinks, or has a
 * page of zeros. Every time: an error that names the file and the place, on all ranks, after the same step; never a
 * signal, a hang or a result. The program is the trainer as it is; the linker puts this file between it and pread, and
 * counts the steps that ranks begin (--wrap). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "hub/hf.h"
#include "engine/engine.h"
#include "decode/generate.h"
#include "config/start_weights.h"
#include "train/trainer.h"
#include "sanitized.h"
#include "no_sync.h"
#include "scratch.h"

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);

enum what { FAIL, SHRINK };
static struct {
    const char *watch; /* paths that hold this; NULL: nothing happens */
    enum what what;
    int64_t at;            /* the call that it happens to */
    _Atomic int64_t calls; /* of watched files so far */
    char path[512];        /* the file it happened to; "": none yet */
} plan;

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    char link[64], path[512];
    if (!plan.watch) return __real_pread(fd, p, n, at);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t k = readlink(link, path, sizeof path - 1);
    path[k < 0 ? 0 : k] = 0;
    if (!strstr(path, plan.watch) || atomic_fetch_add(&plan.calls, 1) + 1 != plan.at) return __real_pread(fd, p, n, at);
    snprintf(plan.path, sizeof plan.path, "%s", path);
    if (plan.what == SHRINK) {
        if (truncate(path, 100)) fail_msg("%s: %s", path, strerror(errno));
        return __real_pread(fd, p, n, at);
    }
    errno = EIO;
    return -1;
}

/* Steps that each engine began since the arming. */
enum { MAX_RANKS = 3 };
static struct {
    _Atomic(struct engine *) engine[MAX_RANKS];
    atomic_int steps[MAX_RANKS];
} begun;

bool __real_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);
bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r);

bool __wrap_engine_step(struct engine *g, const struct engine_batch *b, int64_t step, double lr,
                        struct engine_report *r)
{
    for (int i = 0; i < MAX_RANKS; i++) {
        struct engine *none = NULL;
        if (!atomic_compare_exchange_strong(&begun.engine[i], &none, g) && none != g) continue;
        atomic_fetch_add(&begun.steps[i], 1);
        break;
    }
    return __real_engine_step(g, b, step, lr, r);
}

static void arm(const char *watch, enum what what, int64_t at)
{
    plan.watch = watch;
    plan.what = what;
    plan.at = at;
    plan.path[0] = 0;
    atomic_store(&plan.calls, 0);
    for (int i = 0; i < MAX_RANKS; i++) {
        atomic_store(&begun.engine[i], NULL);
        atomic_store(&begun.steps[i], 0);
    }
}

static char *dir;
static int eval_every = 2;

/* A text of 20 KB: a token file of 40 KB, three chunks. */
static int set_up(void **state)
{
    (void)state;
    struct str s = {0};
    struct err e;
    dir = scratch_new();
    for (int i = 0; s.n < 20000; i++)
        str_printf(&s, "%d. The quick brown fox jumps over %d lazy dogs.\n", i, i * 7 % 9);
    char *path = fs_join(dir, "text.txt");
    int rc = fs_write_atomic(path, s.p, s.n, &e);
    xfree(path);
    str_free(&s);
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_free(dir);
    return 0;
}

static int train(const char *run, int ranks, const char *resume, int steps, struct trainer_result *r, struct err *e)
{
    char keys[20][256];
    char *list[20];
    static const char *const fixed[] = {"model.layers=1",        "model.hidden=16",   "model.heads=2",
                                        "model.ffn=20",          "model.seq_len=24",  "batch.global=6",
                                        "batch.micro=1",         "run.threads=1",     "comm.timeout_s=1000000",
                                        "run.tensorboard=false", "run.eval_batches=2"};
    int n = 0;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) snprintf(keys[n++], sizeof keys[0], "%s", fixed[i]);
    snprintf(keys[n++], sizeof keys[0], "data.train=%s/text.txt", dir);
    snprintf(keys[n++], sizeof keys[0], "data.valid=%s/text.txt", dir);
    snprintf(keys[n++], sizeof keys[0], "data.cache_dir=%s/cache", dir);
    snprintf(keys[n++], sizeof keys[0], "run.dir=%s/%s", dir, run);
    snprintf(keys[n++], sizeof keys[0], "checkpoint.resume=%s", resume);
    snprintf(keys[n++], sizeof keys[0], "run.steps=%d", steps);
    snprintf(keys[n++], sizeof keys[0], "run.eval_every=%d", eval_every);
    for (int i = 0; i < n; i++) list[i] = keys[i];
    memset(e, 0, sizeof *e);
    return trainer_run(NULL, list, n, ranks, r, e);
}

static void must_train(const char *run, int ranks, const char *resume, int steps)
{
    struct trainer_result r;
    struct err e;
    if (train(run, ranks, resume, steps, &r, &e)) fail_msg("%s", e.text);
    assert_int_equal(r.steps, steps);
}

/* A run of 3 steps to go on from, whose checkpoint is in a folder of its own name. */
static char *checkpoint_of_step_3(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/first/checkpoints/step-00000003", dir);
    if (!fs_exists(path)) must_train("first", 1, "never", 3);
    return xstrdup(path);
}

static void check_says(const struct err *e, const char *where)
{
    if (!strstr(e->text, plan.path)) fail_msg("no file %s in '%s'", plan.path, e->text);
    if (!strstr(e->text, where)) fail_msg("no '%s' in '%s'", where, e->text);
}

static void remove_run(const char *run)
{
    char *path = fs_join(dir, run);
    if (fs_remove_tree(path, NULL)) fail_msg("%s", path);
    xfree(path);
}

/* Each read of the checkpoint and of the tokens in turn, one rank and two. What is read ahead for a step that never
 * comes may fail unseen. */
static void every_read(void **state)
{
    (void)state;
    struct trainer_result r;
    struct err e;
    char *from = checkpoint_of_step_3();
    static const char *const watched[] = {"/first/checkpoints/", "/cache/"};
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int w = 0; w < 2; w++) {
            int failures = 0;
            for (int64_t at = 1;; at += 1 + at / (SANITIZED ? 4 : 8)) { /* a sanitizer: every other late one */
                remove_run("again");
                arm(watched[w], FAIL, at);
                int rc = train("again", ranks, from, 6, &r, &e);
                plan.watch = NULL;
                if (!plan.path[0]) { /* there are not as many */
                    if (rc) fail_msg("%s", e.text);
                    break;
                }
                if (rc == OK && w == 1 && r.steps == 6) continue;
                if (rc != ERR_IO)
                    fail_msg("read %lld of %s failed: code %d %s", (long long)at, plan.path, rc, rc ? e.text : "");
                check_says(&e, ": cannot be read at offset ");
                check_says(&e, ": Input/output error");
                failures++;
            }
            if (failures < 10) fail_msg("%d failures of %s", failures, watched[w]);
        }
    xfree(from);
}

/* In the middle of a run the token file gets shorter, for all ranks, or one read of one rank fails: the ranks end
 * together, without waiting for comm.timeout_s (days), the file is named, and the next start makes the short one again.
 */
static void in_the_middle(void **state)
{
    (void)state;
    struct trainer_result r;
    struct err e;
    must_train("first", 1, "never", 3); /* the cache is there */
    for (int k = 0; k < 6; k++) {
        int ranks = 1 + k / 2;
        bool shrinks = k % 2;
        remove_run("again");
        arm("/cache/", shrinks ? SHRINK : FAIL, 600 * ranks);
        eval_every = 0; /* so that it is the data of a step */
        int rc = train("again", ranks, "never", 1000000, &r, &e);
        eval_every = 2;
        plan.watch = NULL;
        if (rc != ERR_IO) fail_msg("code %d: %s", rc, rc ? e.text : "");
        check_says(&e, shrinks ? ": ends at or before byte " : ": cannot be read at offset ");
        check_says(&e, "wanted ");
        if (ranks > 1 && strncmp(e.text, "rank ", 5)) fail_msg("which rank? %s", e.text);
        assert_true(r.steps > 0);       /* it had begun */
        for (int i = 1; i < ranks; i++) /* nobody was left in the middle of a step that another did not begin */
            assert_int_equal(atomic_load(&begun.steps[i]), atomic_load(&begun.steps[0]));
        must_train("again", ranks, "never", 2);
    }
}

/* A page of the token file is zeroed in place. Nothing of its chunk is trained on; what is said to do works. */
static void a_page_of_zeros(void **state)
{
    (void)state;
    struct trainer_result r;
    struct err e;
    char **names, *cache = fs_join(dir, "cache"), *file = NULL;
    int n;
    must_train("first", 1, "never", 3);
    assert_int_equal(fs_list(cache, &names, &n, &e), OK);
    for (int i = 0; i < n; i++)
        if (str_ends(names[i], ".tok")) file = fs_join(cache, names[i]);
    fs_list_free(names, n);
    assert_non_null(file);
    FILE *f = fopen(file, "r+b");
    static const char zeros[4096];
    assert_true(f && !fseek(f, 4096 + 20480, SEEK_SET) && fwrite(zeros, 1, sizeof zeros, f) == sizeof zeros &&
                !fclose(f));
    for (int ranks = 1; ranks <= 2; ranks++) {
        remove_run("again");
        assert_int_equal(train("again", ranks, "never", 100, &r, &e), ERR_CORRUPT);
        snprintf(plan.path, sizeof plan.path, "%s", file);
        check_says(&e, "damaged token file: tokens 8192 to 16384, which are bytes 20480 to 36864 of the file, have "
                       "checksum ");
        check_says(&e, "; remove it and start again: it is a cache, and is made anew from ");
    }
    assert_int_equal(unlink(file), 0);
    remove_run("again");
    must_train("again", 1, "never", 3);
    xfree(file);
    xfree(cache);
}

/* What generating reads, and what exporting reads. */
static int get_param(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    return weights_read(ctx, weights_find_param(ctx, name), box, as, dst, e);
}
static int get_file(void *ctx, const char *name, char **text, size_t *n, struct err *e)
{
    return weights_file(ctx, name, text, n, e);
}

static int use(const char *from, bool exports, struct err *e)
{
    struct weights *w = NULL;
    struct device *d = NULL;
    struct tokenizer *t = NULL;
    struct generator *g = NULL;
    struct hf_model m;
    char *out = fs_join(dir, "out");
    int rc = weights_open(&w, from, e);
    if (!rc) rc = weights_model(w, &m, e);
    if (!rc && exports) {
        fs_remove_tree(out, NULL);
        rc = hf_export(out,
                       &(struct hf_export){.model = &m, .dtype = DT_F32, .get = get_param, .file = get_file, .ctx = w},
                       e);
        if (rc) assert_false(fs_exists(out));
    } else if (!rc) {
        rc = source_tokenizer(w, &t, e);
        if (!rc) rc = device_cpu_new(&d, 1, e);
        if (!rc) rc = generator_new(&g, w, d, 1, 8, DT_F32, e);
    }
    generator_free(g);
    if (d) device_free(d);
    tokenizer_free(t);
    weights_close(w);
    xfree(out);
    return rc;
}

static void generate_and_export(void **state)
{
    (void)state;
    struct err e;
    char *from = checkpoint_of_step_3();
    for (int exports = 0; exports < 2; exports++)
        for (int64_t at = 1;; at += CASE_STRIDE) {
            arm("/first/checkpoints/", FAIL, at);
            int rc = use(from, exports, &e);
            plan.watch = NULL;
            if (!plan.path[0]) {
                if (rc) fail_msg("%s", e.text);
                assert_true(at > 12);
                break;
            }
            if (rc != ERR_IO) fail_msg("read %lld of %s failed: code %d", (long long)at, plan.path, rc);
            check_says(&e, ": cannot be read at offset ");
        }
    xfree(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_read),
        cmocka_unit_test(in_the_middle),
        cmocka_unit_test(a_page_of_zeros),
        cmocka_unit_test(generate_and_export),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
