/* SPDX-License-Identifier: Apache-2.0 */
/* suite: alone */
/* suite: long threads */
/* Going on from a checkpoint while files are damaged, forbidden, unreadable, or not seen by one rank: a run that cannot
 * read what it should go on from ends with an error that names it and the way out, and leaves every file as it was. The
 * system calls that read are defined here, in front of the C library's.
 *
 *     test_resume                       in this process, ranks as threads (cmocka)
 *     test_resume RANK CONFIG KEYS...   a process of a launcher, of which rank RANK does not see step 8:
 *                                       tests/keep/mpi_resume_faults.sh
 */
#include "runs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "base/hash.h"
#include "checkpoint/ckpt.h"

static struct {
    const char *where;   /* calls whose path has this part; NULL: none */
    const char *instead; /* have this in place of it; NULL: they fail */
    int why;
    int rank;          /* of this thread only, -1: of all */
    atomic_llong at;   /* calls so far */
    long long nth;     /* of the calls below a run's checkpoints this one alone fails; 0: none */
    const char *still; /* nothing whose path has this part can be written to, made or removed; NULL: all can */
} fault = {.rank = -1};

static bool is_rank(int rank)
{
    char name[32] = "", want[32];
    if (rank < 0) return true;
    pthread_getname_np(pthread_self(), name, sizeof name);
    snprintf(want, sizeof want, "r%d", rank);
    return !strcmp(name, want);
}

/* NULL: the call fails. buffer: for another path. */
static const char *path_of(const char *path, char *buffer, size_t room)
{
    if (fault.nth && path && strstr(path, "/run/checkpoints") && atomic_fetch_add(&fault.at, 1) + 1 == fault.nth) {
        errno = fault.why;
        return NULL;
    }
    const char *found = fault.where && path ? strstr(path, fault.where) : NULL;
    if (!found || !is_rank(fault.rank)) return path;
    errno = fault.why;
    if (!fault.instead) return NULL;
    snprintf(buffer, room, "%.*s%s%s", (int)(found - path), path, fault.instead, found + strlen(fault.where));
    return buffer;
}

static bool is_still(const char *path)
{
    if (!fault.still || !path || !strstr(path, fault.still)) return false;
    errno = EROFS;
    return true;
}

int mkdir(const char *path, mode_t mode)
{
    return is_still(path) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to)
{
    return is_still(from) || is_still(to) ? -1 : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path) { return is_still(path) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0); }

int symlink(const char *to, const char *path)
{
    return is_still(path) ? -1 : (int)syscall(SYS_symlinkat, to, AT_FDCWD, path);
}

int open(const char *path, int flags, ...)
{
    char buffer[512];
    if (flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC) && is_still(path)) return -1;
    path = path_of(path, buffer, sizeof buffer);
    return path ? (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0666) : -1;
}

int stat(const char *restrict path, struct stat *restrict st)
{
    char buffer[512];
    const char *to = path_of(path, buffer, sizeof buffer);
    return to ? fstatat(AT_FDCWD, to, st, 0) : -1;
}

int access(const char *path, int mode)
{
    char buffer[512];
    path = path_of(path, buffer, sizeof buffer);
    return path ? (int)syscall(SYS_faccessat, AT_FDCWD, path, mode) : -1;
}

ssize_t readlink(const char *restrict path, char *restrict to, size_t n)
{
    char buffer[512];
    const char *from = path_of(path, buffer, sizeof buffer);
    return from ? syscall(SYS_readlinkat, AT_FDCWD, from, to, n) : -1;
}

DIR *opendir(const char *path)
{
    char buffer[512];
    path = path_of(path, buffer, sizeof buffer);
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
    return fd < 0 ? NULL : fdopendir(fd);
}

ssize_t read(int fd, void *p, size_t n)
{
    char link[40], path[512] = "", buffer[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (fault.nth && syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1) > 0 &&
        !path_of(path, buffer, sizeof buffer))
        return -1;
    return syscall(SYS_read, fd, p, n);
}

static void fault_off(void)
{
    fault.where = fault.instead = fault.still = NULL;
    fault.nth = 0;
    fault.rank = -1;
}

static void path_in(const struct folder *f, char out[256], const char *name, const char *file)
{
    snprintf(out, 256, "%s/%s/%s", f->dir, name, file);
}

static void change(const struct folder *f, const char *name, const char *file, int64_t at, int64_t cut)
{
    char path[256], *text;
    size_t n;
    struct err e = {0};
    path_in(f, path, name, file);
    if (fs_read_all(path, 1 << 26, &text, &n, &e)) fail_msg("%s", e.text);
    if (at >= 0) text[at] ^= 1;
    if (fs_write_atomic(path, text, n - (size_t)cut, &e)) fail_msg("%s", e.text);
    xfree(text);
}

/* The manifest of step 8 says something else at the first place that has `is`, and its seal agrees: a later tutti, or
 * somebody who means harm. */
static void forge(const struct folder *f, const char *name, const char *is, const char *becomes)
{
    char path[256], *text, hash[17];
    size_t n;
    struct err e = {0};
    struct str s = {0};
    path_in(f, path, name, "checkpoints/step-00000008/manifest.json");
    if (fs_read_all(path, 1 << 26, &text, &n, &e)) fail_msg("%s", e.text);
    char *at = strstr(text, is);
    assert_non_null(at);
    str_add(&s, text, (size_t)(at - text));
    str_puts(&s, becomes);
    str_puts(&s, at + strlen(is));
    size_t sealed = s.n - strlen(",\n\"xxh64\":\"0123456789abcdef\"}\n");
    memcpy(s.p + s.n - strlen("0123456789abcdef\"}\n"), hash64_print(hash, hash64(s.p, sealed)), 16);
    if (fs_write_atomic(path, s.p, s.n, &e)) fail_msg("%s", e.text);
    str_free(&s);
    xfree(text);
}

static void write_in(const struct folder *f, const char *name, const char *file, const char *text)
{
    char path[256];
    struct err e = {0};
    path_in(f, path, name, file);
    if (fs_write_atomic(path, text, strlen(text), &e)) fail_msg("%s", e.text);
}

/* A file of step 8 lies elsewhere, with the same bytes, and a link leads there. */
static void lead_out(const struct folder *f, const char *name, const char *file)
{
    char path[256], to[256], inner[128];
    snprintf(inner, sizeof inner, "checkpoints/step-00000008/%s", file);
    path_in(f, path, name, inner);
    path_in(f, to, name, "elsewhere");
    assert_int_equal(rename(path, to), 0);
    assert_int_equal(symlink(to, path), 0);
}

#define EVERY2 "checkpoint.every=2", "checkpoint.keep=0", "optimizer.schedule.name=constant"
#define STEP8 "checkpoints/step-00000008"

static void damage(const struct folder *f, const char *name, int kind)
{
    char path[256];
    switch (kind) {
    case 0: change(f, name, STEP8 "/manifest.json", 200, 0); break;
    case 1: change(f, name, STEP8 "/config.yaml", -1, 1); break;
    case 2: forge(f, name, "\"version\":2", "\"version\":9"); break;
    case 3:
        path_in(f, path, name, STEP8 "/manifest.json");
        assert_int_equal(unlink(path), 0);
        break;
    case 4:
        fault.where = "step-00000008/manifest.json";
        fault.why = EIO;
        break;
    case 5:
        fault.where = "step-00000008/manifest.json";
        fault.why = EACCES;
        break;
    case 6:
        fault.where = "step-00000008/boxes";
        fault.why = EACCES;
        break;
    case 7:
        fault.where = "step-00000002/manifest.json";
        fault.why = EIO;
        break;                                                                 /* may be of any publication */
    case 8: change(f, name, STEP8 "/boxes-00000.safetensors", 9000, 0); break; /* found by loading */
    case 9: write_in(f, name, STEP8 "/manifest.json", "{\"version\": 1, \"arrays\": [\"another program's\"]}\n"); break;
    case 10: forge(f, name, "\"name\":\"boxes", "\"name\":\"../step-00000006/boxes"); break;
    case 11: forge(f, name, "\"name\":\"boxes", "\"name\":\"/tmp/boxes"); break;
    case 12: forge(f, name, "\"bytes\":", "\"bytes\":-"); break;
    case 13: forge(f, name, "\"bytes\":", "\"bytes\":9000000000000000000,\"was\":"); break;
    case 14: forge(f, name, "\"publication\":", "\"publication\":9000000000000000000,\"was\":"); break;
    case 15: forge(f, name, "\"shape\":[", "\"shape\":[4000000000,4000000000,"); break;
    case 16: lead_out(f, name, "boxes-00000.safetensors"); break;
    case 17: lead_out(f, name, "manifest.json"); break;
    case 18:
        path_in(f, path, name, STEP8 "/boxes-00000.safetensors");
        assert_int_equal(unlink(path), 0);
        break;
    default: fail_msg("no damage %d", kind);
    }
}
static const struct damaged {
    const char *says;
    int code;
} damages[] = {
    /* clang-format off */
    {"manifest.json: its bytes have checksum", ERR_CORRUPT}, {"config.yaml: has ", ERR_CORRUPT},
    {"written in version 9 of the format", ERR_REQUEST},     {"manifest.json: missing", ERR_CORRUPT},
    {"Input/output error", ERR_IO},                          {"Permission denied", ERR_IO},
    {"Permission denied", ERR_IO},                           {"step-00000002/manifest.json: cannot be read: Input/output error", ERR_IO},
    {"boxes-00000.safetensors: tensor master/layers.0.attn.q.weight: bytes ", ERR_CORRUPT},
    {"does not begin as a manifest of tutti", ERR_CORRUPT},  {"../step-00000006/boxes-00000.safetensors is not a plain file name", ERR_CORRUPT},
    {"/tmp/boxes-00000.safetensors is not a plain", ERR_CORRUPT}, {"manifest.json: bytes: ", ERR_CORRUPT},
    {"manifest.json: bytes: ", ERR_CORRUPT},                 {"manifest.json: publication: ", ERR_CORRUPT},
    {"impossible shape", ERR_CORRUPT},                       {"boxes-00000.safetensors: is a link that leads out of the checkpoint, to ", ERR_CORRUPT},
    {"manifest.json: is a link that leads out", ERR_CORRUPT}, {"boxes-00000.safetensors: missing", ERR_CORRUPT},
    /* clang-format on */
};
enum {
    DAMAGES = sizeof damages / sizeof *damages,
    TOLD_ONLY = 9
}; /* from there on what follows is what it was before */

static void copy_run(const struct folder *f, const char *from, const char *to)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf %s/%s && cp -a %s/%s %s/%s", f->dir, to, f->dir, from, f->dir, to);
    assert_int_equal(system(command), 0);
}

/* The newest cannot be used: nothing happens, and the text has what one must know. Then a person chooses. */
static void test_newest_unusable(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    char path[256];
    folder_open(&f);
    train_ok(&f, "want", KEYS(EVERY2, "run.steps=10"));
    train_ok(&f, "good", KEYS(EVERY2));
    for (int kind = 0; kind < DAMAGES; kind++) {
        copy_run(&f, "good", "run");
        damage(&f, "run", kind);
        const char *where = fault.where;
        fault.where = NULL;
        uint64_t before = tree(&f, "run");
        fault.where = where;
        int rc = train(&f, "run", KEYS(EVERY2, "run.steps=10"), &r, &e);
        fault_off();
        if (rc != damages[kind].code) fail_msg("damage %d: code %d: %s", kind, rc, e.text);
        assert_contains(e.text, damages[kind].says);
        assert_contains(e.text, kind == 7 ? "step-00000002" : "step-00000008");
        assert_contains(e.text, kind == 7 ? "checkpoint.resume=step-00000008" : "checkpoint.resume=step-00000006");
        assert_contains(e.text, "checkpoint.resume=never");
        if (tree(&f, "run") != before) fail_msg("damage %d: a run that was refused changed its folder", kind);
        if (kind >= TOLD_ONLY && kind != 16) continue;

        /* what failed for a moment works again */
        if (kind >= 4 && kind <= 7) {
            assert_int_equal(train_ok(&f, "run", KEYS(EVERY2, "run.steps=10")).first_step, 8);
            continue;
        }
        assert_int_equal(train_ok(&f, "run", KEYS(EVERY2, "run.steps=7", "checkpoint.resume=step-00000006")).first_step,
                         6);
        path_in(&f, path, "run", STEP8 ".aside-1/boxes-00000.safetensors");
        if (kind != 8 && !fs_exists(path)) fail_msg("damage %d: step 8 was not moved aside", kind);
        assert_int_equal(train_ok(&f, "run", KEYS(EVERY2, "run.steps=10")).first_step, 7);
        same_file(&f, "want", "run", "checkpoints/step-00000010/boxes-00000.safetensors");
    }
    folder_close(&f);
}

/* The only checkpoint is damaged: no start at step 0. `never` starts there, and everything that was is still there. */
static void test_only_one_damaged(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    size_t n, m;
    folder_open(&f);
    train_ok(&f, "run", KEYS("checkpoint.every=0"));
    change(&f, "run", STEP8 "/config.yaml", -1, 1);
    uint64_t before = tree(&f, "run");
    char *boxes = read_file(&f, "run", STEP8 "/boxes-00000.safetensors", &n);
    for (int i = 0; i < 3; i++) assert_int_equal(train(&f, "run", KEYS("run.steps=9"), &r, &e), ERR_CORRUPT);
    assert_contains(e.text, "there is no other");
    assert_contains(e.text, "checkpoint.resume=never");
    assert_true(tree(&f, "run") == before);

    assert_int_equal(train_ok(&f, "run", KEYS("run.steps=2", "checkpoint.resume=never")).first_step, 0);
    char *moved = read_file(&f, "run", "checkpoints.aside-1/step-00000008/boxes-00000.safetensors", &m);
    assert_true(n == m && !memcmp(boxes, moved, n));
    xfree(boxes);
    xfree(moved);
    moved = read_file(&f, "run", "metrics.jsonl.aside-1", &m);
    int lines = 0;
    for (const char *p = moved; (p = strstr(p, "\"loss\"")); p++) lines++;
    assert_int_equal(lines, 8);
    xfree(moved);
    assert_int_equal(train_ok(&f, "run", KEYS("run.steps=3")).first_step, 2);
    folder_close(&f);
}

/* What is no checkpoint of tutti, or one of another model, is named as what it is, with the way out and what this run
 * has. */
static void test_foreign(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    static const struct {
        const char *file, *name, *says[2];
    } rows[] = {
        {"hf/config.json", "hf", {"a model in Hugging Face's form", "model.from="}},
        {"peft/adapter_config.json", "peft", {"an adapter in peft's form", "adapter.from="}},
        {"megatron/latest_checkpointed_iteration.txt", "megatron", {"Megatron-LM", "model.from"}},
        {"zero/mp_rank_00_model_states.pt", "zero", {"DeepSpeed", "another program's optimizer"}},
        {"dcp/__0_0.distcp", "dcp", {"PyTorch's distributed checkpoints", "model.from"}},
        {"other/model.safetensors", "other/model.safetensors", {"safetensors", "a checkpoint is a directory"}},
        {"other/model.safetensors", "other", {"without the config.json", "model.from"}},
        {"pickles/weights.pt", "pickles", {"pickles", "model.from"}},
        {"none/notes.txt", "none", {"holds no complete checkpoint (no step-*/manifest.json)", "checkpoint.resume"}},
        {"none/notes.txt", "nowhere", {"nowhere: no such checkpoint", "checkpoint.resume"}},
    };
    folder_open(&f);
    train_ok(&f, "run", KEYS(EVERY2));
    uint64_t before = tree(&f, "run");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[256], key[300];
        path_in(&f, path, "elsewhere", rows[i].file);
        *strrchr(path, '/') = 0;
        assert_int_equal(fs_mkdirs(path, &e), OK);
        write_in(&f, "elsewhere", rows[i].file, "{}");
        snprintf(key, sizeof key, "checkpoint.resume=%s/elsewhere/%s", f.dir, rows[i].name);
        assert_int_equal(train(&f, "run", KEYS(EVERY2, key), &r, &e), ERR_REQUEST);
        for (int k = 0; k < 2; k++) assert_contains(e.text, rows[i].says[k]);
        assert_contains(e.text, "choose it with checkpoint.resume=step-00000008");
    }
    assert_int_equal(train(&f, "run", KEYS(EVERY2, "checkpoint.resume=step-00000007"), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "choose it with checkpoint.resume=step-00000008");

    /* another model: of its own run there is none; where one was named by mistake, this run's is */
    assert_int_equal(train(&f, "run", KEYS(EVERY2, "model.layers=1"), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "a checkpoint of another model");
    assert_contains(e.text, "checkpoint.resume=never");
    train_ok(&f, "small", KEYS(EVERY2, "model.layers=1"));
    char key[300];
    snprintf(key, sizeof key, "checkpoint.resume=%s/small", f.dir);
    assert_int_equal(train(&f, "run", KEYS(EVERY2, key), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "a checkpoint of another model");
    assert_contains(e.text, "of this model is");
    assert_contains(e.text, "checkpoint.resume=step-00000008");

    /* another run's, damaged: its own nearest is named, by its path */
    change(&f, "small", STEP8 "/config.yaml", -1, 1);
    snprintf(key, sizeof key, "checkpoint.resume=%s/small/" STEP8, f.dir);
    assert_int_equal(train(&f, "run", KEYS(EVERY2, "model.layers=1", key), &r, &e), ERR_CORRUPT);
    snprintf(key, sizeof key, "choose it with checkpoint.resume=%s/small/checkpoints/step-00000006", f.dir);
    assert_contains(e.text, key);
    assert_true(tree(&f, "run") == before);
    folder_close(&f);
}

/* A disk that can be read and not written to, and a directory that another run has: the first ends a run that would
 * write there, by the name of the file, and hinders none that only reads; the second ends the later run. */
static void test_still_disk_and_two_runs(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    char from[200], path[256];
    folder_open(&f);
    train_ok(&f, "still", KEYS(EVERY2));
    uint64_t before = tree(&f, "still");
    fault.still = "/still";
    int rc = train(&f, "still", KEYS(EVERY2, "run.steps=10"), &r, &e);
    if (rc == OK || !strstr(e.text, "run.dir") || !strstr(e.text, "/still/lock") ||
        !strstr(e.text, "Read-only file system") || strstr(e.text, "another process"))
        fail_msg("%d: %s", rc, e.text);
    assert_int_equal(train(&f, "still/below", KEYS(EVERY2), &r, &e), ERR_IO);
    assert_contains(e.text, "run.dir");
    assert_contains(e.text, "Read-only file system");
    snprintf(from, sizeof from, "checkpoint.resume=%s/still", f.dir);
    r = train_ok(&f, "reads", KEYS(EVERY2, "run.steps=10", from));
    assert_int_equal(r.first_step, 8);
    fault_off();
    assert_true(tree(&f, "still") == before);

    struct fs_lock lock = {.fd = -1};
    path_in(&f, path, "still", "lock");
    assert_int_equal(fs_lock_take(&lock, path, &e), OK);
    assert_int_equal(train(&f, "still", KEYS(EVERY2, "run.steps=10"), &r, &e), ERR_REQUEST);
    assert_contains(e.text, "another process trains in");
    assert_contains(e.text, "choose another run.dir");
    assert_true(tree(&f, "still") == before);
    fs_lock_release(&lock);
    assert_int_equal(train_ok(&f, "still", KEYS(EVERY2, "run.steps=10")).first_step, 8);
    same_file(&f, "still", "reads", "checkpoints/step-00000010/boxes-00000.safetensors");
    folder_close(&f);
}

/* From another run's checkpoint into a folder that has some of its own: those are moved, not mixed with the new
 * ones. */
static void test_from_elsewhere(void **state)
{
    (void)state;
    struct folder f;
    char from[200];
    size_t n;
    folder_open(&f);
    train_ok(&f, "a", KEYS(EVERY2));
    train_ok(&f, "b", KEYS(EVERY2, "run.seed=2"));
    snprintf(from, sizeof from, "checkpoint.resume=%s/a/checkpoints/step-00000004", f.dir);
    assert_int_equal(train_ok(&f, "b", KEYS(EVERY2, from)).first_step, 4);
    same_file(&f, "a", "b", "checkpoints/step-00000008/boxes-00000.safetensors");
    xfree(read_file(&f, "b", "checkpoints.aside-1/step-00000008/manifest.json", &n));
    /* one of its own by its path is one of its own */
    snprintf(from, sizeof from, "checkpoint.resume=%s/a/checkpoints/step-00000004", f.dir);
    assert_int_equal(train_ok(&f, "a", KEYS(EVERY2, from)).first_step, 4);
    char path[256];
    path_in(&f, path, "a", "checkpoints.aside-1");
    assert_false(fs_exists(path));
    folder_close(&f);
}

/* Every call that reads below the checkpoints fails in turn while a finished run starts again: it never begins anew,
 * and nothing is lost. */
#define EVERY4 "checkpoint.every=4", "checkpoint.keep=0", "optimizer.schedule.name=constant", "run.tensorboard=false"
static void every_call(const struct folder *f, int why) /* EACCES and others: tests/checkpoint/test_newest.c */
{
    struct trainer_result r;
    struct err e;
    int64_t n_failed = 0;
    uint64_t before = tree(f, "run");
    for (long long n = 1;; n++) {
        atomic_store(&fault.at, 0);
        fault.why = why;
        fault.nth = n;
        int rc = train(f, "run", KEYS(EVERY4), &r, &e);
        long long calls = atomic_load(&fault.at);
        fault_off();
        if (rc == OK && (r.first_step != 8 || r.steps != 8))
            fail_msg("call %lld of %lld: began at step %lld", n, calls, (long long)r.first_step);
        if (tree(f, "run") != before)
            fail_msg("call %lld of %lld (%s): the folder changed: %s", n, calls, strerror(why), rc ? e.text : "");
        n_failed += rc != OK;
        if (calls < n) break;
    }
    assert_true(n_failed > 20);
}

static void test_every_failing_call(void **state)
{
    (void)state;
    struct folder f;
    folder_open(&f);
    train_ok(&f, "run", KEYS(EVERY4));
    train_ok(&f, "run", KEYS(EVERY4));
    every_call(&f, EIO);
    folder_close(&f);
}

/* ---- ranks ---- */
/* One of three ranks (as threads) fails or sees something else: all end, it is named, and nothing happens. */
static void test_ranks_disagree(void **state)
{
    (void)state;
    struct folder f;
    struct trainer_result r;
    struct err e;
    static const struct row {
        const char *where, *instead;
        int why, rank;
        const char *says[3];
    } rows[] = {
        {"step-00000008/manifest.json",
         NULL,
         ENOENT,
         1,
         {"rank 1: cannot resume", "no complete checkpoint", "rank 0 goes on from step 8"}},
        {"run/checkpoints/step-00000008",
         NULL,
         ENOENT,
         2,
         {"rank 2: cannot resume", "no such checkpoint", "rank 0 goes on from step 8"}},
        {"step-00000008/manifest.json",
         NULL,
         EIO,
         2,
         {"rank 2: cannot resume", "Input/output error", "rank 0 goes on from step 8"}},
        {"run/checkpoints/step-00000008",
         "run/checkpoints/step-00000006",
         0,
         1,
         {"rank 1: ", "here it is step 6", "rank 0 goes on from step 8"}},
        {"run/checkpoints", "other/checkpoints", 0, 2, {"rank 2: ", "here it is step 8", "rank 0 goes on from step 8"}},
        {"step-00000008", NULL, ENOENT, 0, {"rank 0: ", "step-00000008", "checkpoint.resume=step-00000006"}},
        {"step-00000008/boxes-00001", NULL, EIO, 1, {"rank 1: ", "boxes-00001.safetensors", "Input/output error"}},
    };
    folder_open(&f);
    const char *const *keys = KEYS(EVERY2, "batch.global=6", "parallel.zero=1");
    const char *const *more = KEYS(EVERY2, "batch.global=6", "parallel.zero=1", "run.steps=10");
    if (train_ranks(&f, "run", 3, keys, &r, &e) ||
        train_ranks(&f, "other", 3, KEYS(EVERY2, "batch.global=6", "run.seed=2"), &r, &e))
        fail_msg("%s", e.text);
    uint64_t before = tree(&f, "run");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fault.where = rows[i].where;
        fault.instead = rows[i].instead;
        fault.why = rows[i].why;
        fault.rank = rows[i].rank;
        int rc = train_ranks(&f, "run", 3, more, &r, &e);
        fault_off();
        if (rc == OK) fail_msg("row %zu: trained from step %lld", i, (long long)r.first_step);
        for (int k = 0; k < 3; k++) assert_contains(e.text, rows[i].says[k]);
        if (tree(&f, "run") != before) fail_msg("row %zu: the folder changed", i);
    }
    if (train_ranks(&f, "run", 3, more, &r, &e)) fail_msg("%s", e.text);
    assert_int_equal(r.first_step, 8);
    folder_close(&f);
}

/* ---- metrics ---- */
/* Five GiB of older lines (a hole in the file) are neither read nor copied. */
static void test_large_metrics(void **state)
{
    (void)state;
    struct folder f;
    char path[256], *text;
    size_t n;
    struct stat st;
    const off_t hole = (off_t)5 << 30;
    folder_open(&f);
    train_ok(&f, "run", KEYS(EVERY2));
    text = read_file(&f, "run", "metrics.jsonl", &n);
    path_in(&f, path, "run", "metrics.jsonl");
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "\n", 1, hole - 1), 1);
    assert_int_equal(pwrite(fd, text, n, hole), n);
    assert_int_equal(pwrite(fd, "{\"step\":9,\"lo", 13, hole + (off_t)n), 13); /* killed in the middle of a line */
    assert_int_equal(train_ok(&f, "run", KEYS(EVERY2, "checkpoint.resume=step-00000006")).first_step, 6);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_size > hole + 100 && st.st_blocks < 1000);
    char *after = xcalloc((size_t)(st.st_size - hole) + 1, 1);
    assert_int_equal(pread(fd, after, (size_t)(st.st_size - hole), hole), st.st_size - hole);
    int64_t step = 0;
    for (char *p = after, *end; (end = strchr(p, '\n')); p = end + 1) {
        if (str_starts(strchr(p, ',') + 1, "\"loss\"")) /* and none of a checkpoint */
            assert_int_equal(strtoll(strstr(p, "\"step\":") + 7, NULL, 10), ++step);
        assert_true(p - after + hole + (end - p) < st.st_size);
    }
    assert_int_equal(step, 8);
    close(fd);
    xfree(after);
    xfree(text);
    folder_close(&f);
}

/* Loads of experts: the same file whether a run was stopped or not, whatever a later part of it held. */
static void test_expert_load(void **state)
{
    (void)state;
    struct folder f;
    size_t n;
    folder_open(&f);
#define EXPERTS EVERY2, "model.family=mixtral", "model.moe.experts=4", "model.moe.ffn=20"
    train_ok(&f, "straight", KEYS(EXPERTS));
    train_ok(&f, "twice", KEYS(EXPERTS, "run.steps=6"));
    assert_int_equal(train_ok(&f, "twice", KEYS(EXPERTS, "checkpoint.resume=step-00000004")).first_step, 4);
    same_file(&f, "straight", "twice", "expert_load.bin");
    unsigned char *p = (unsigned char *)read_file(&f, "straight", "expert_load.bin", &n);
    enum { HEAD = 128, RECORD = 8 + 2 * 4 * 2 };
    assert_int_equal(n, HEAD + 8 * RECORD);
    assert_int_equal(p[HEAD - 1], '\n');
    assert_contains((char *)p, "{\"schema\":\"tutti.expert_load/"
                               "1\",\"layers\":[0,1],\"experts\":4,\"dtype\":\"bf16\",\"record_bytes\":24}");
    for (int s = 0; s < 8; s++) {
        const unsigned char *at = p + HEAD + s * RECORD;
        int64_t step;
        memcpy(&step, at, 8);
        assert_int_equal(step, s + 1);
        for (int l = 0; l < 2; l++) {
            double sum = 0;
            for (int k = 0; k < 4; k++) {
                uint16_t half;
                memcpy(&half, at + 8 + (l * 4 + k) * 2, 2);
                uint32_t bits = (uint32_t)half << 16;
                float v;
                memcpy(&v, &bits, 4);
                sum += v;
            }
            assert_int_equal((int)sum, 4 * 24 * 2); /* tokens x top_k; counts below 256 are exact */
        }
    }
    xfree(p);
    folder_close(&f);
}

static int be_a_rank(int argc, char **argv)
{
    struct trainer_result r;
    struct err e = {0};
    const char *me = getenv("OMPI_COMM_WORLD_RANK");
    if (!me) me = getenv("PMI_RANK");
    if (me && !strcmp(me, argv[1])) {
        fault.where = "step-00000008";
        fault.why = ENOENT;
    }
    if (trainer_run(argv[2], argv + 3, argc - 3, 0, &r, &e) == OK) return 0;
    fprintf(stderr, "error: %s\n", e.text);
    return err_exit_status(e.code);
}

int main(int argc, char **argv)
{
    if (argc > 2) return be_a_rank(argc, argv);
    setenv("LOG", "error", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_newest_unusable), cmocka_unit_test(test_only_one_damaged),
        cmocka_unit_test(test_foreign),         cmocka_unit_test(test_still_disk_and_two_runs),
        cmocka_unit_test(test_from_elsewhere),  cmocka_unit_test(test_every_failing_call),
        cmocka_unit_test(test_ranks_disagree),  cmocka_unit_test(test_large_metrics),
        cmocka_unit_test(test_expert_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
