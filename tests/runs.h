/* SPDX-License-Identifier: Apache-2.0 */
/* runs.h: runs of the trainer in this process, in a folder of their own, and their files. */
#ifndef TUTTI_TESTS_RUNS_H
#define TUTTI_TESTS_RUNS_H

#include "toy.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "no_sync.h"
#include "train/trainer.h"
#include "scratch.h"

enum { MAX_KEYS = 64 };
struct folder {
    char *dir, text[96], trace[96];
};

static inline void folder_open(struct folder *f)
{
    struct err e = {0};
    struct str s = {0};
    f->dir = scratch_new();
    snprintf(f->text, sizeof f->text, "%s/text.txt", f->dir);
    snprintf(f->trace, sizeof f->trace, "%s/trace.json", f->dir);
    for (int i = 0; i < 400; i++)
        str_printf(&s, "%d. The quick brown fox jumps over %u lazy dogs; they sleep.\n", i,
                   rng_u32(1, 1, (uint64_t)i) % 9);
    assert_int_equal(fs_write_atomic(f->text, str_text(&s), s.n, &e), OK);
    str_free(&s);
}

static inline void folder_close(struct folder *f) { scratch_free(f->dir); }

/* Trains in f->dir/name with the given keys (NULL-terminated) over those of a toy. */
static inline int train_ranks(const struct folder *f, const char *name, int ranks, const char *const *more,
                              struct trainer_result *r, struct err *e)
{
    static const char *const usual[] = {"model.layers=2",     "model.hidden=32",
                                        "model.heads=4",      "model.kv_heads=2",
                                        "model.ffn=44",       "model.seq_len=24",
                                        "batch.global=4",     "batch.micro=2",
                                        "optimizer.lr=0.01",  "optimizer.schedule.warmup_steps=3",
                                        "run.steps=8",        "run.threads=1",
                                        "checkpoint.every=5", NULL};
    char data[160], dir[160];
    char *keys[MAX_KEYS];
    int n = 0;
    snprintf(data, sizeof data, "data.train=%s", f->text);
    snprintf(dir, sizeof dir, "run.dir=%s/%s", f->dir, name);
    keys[n++] = data;
    keys[n++] = dir;
    for (int i = 0; usual[i]; i++) keys[n++] = (char *)(uintptr_t)usual[i];
    for (int i = 0; more && more[i]; i++) keys[n++] = (char *)(uintptr_t)more[i];
    assert_true(n <= MAX_KEYS);
    memset(e, 0, sizeof *e);
    return trainer_run(NULL, keys, n, ranks, r, e);
}

static inline int train(const struct folder *f, const char *name, const char *const *more, struct trainer_result *r,
                        struct err *e)
{
    return train_ranks(f, name, 1, more, r, e);
}

static inline struct trainer_result train_ok(const struct folder *f, const char *name, const char *const *more)
{
    struct trainer_result r;
    struct err e;
    if (train(f, name, more, &r, &e)) fail_msg("%s: %s", name, e.text);
    return r;
}
#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline char *read_file(const struct folder *f, const char *name, const char *file, size_t *n)
{
    char path[256], *text;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s/%s", f->dir, name, file);
    if (fs_read_all(path, 1 << 26, &text, n, &e)) fail_msg("%s", e.text);
    return text;
}

static inline void same_file(const struct folder *f, const char *a, const char *b, const char *file)
{
    size_t n, m;
    char *x = read_file(f, a, file, &n), *y = read_file(f, b, file, &m);
    if (n != m || memcmp(x, y, n)) fail_msg("%s of %s and %s differ", file, a, b);
    xfree(x);
    xfree(y);
}

/* The boxes of n ranks at that step. */
static inline void same_boxes_of(const struct folder *f, const char *a, const char *b, int step, int n)
{
    for (int r = 0; r < n; r++) {
        char file[80];
        snprintf(file, sizeof file, "checkpoints/step-%08d/boxes-%05d.safetensors", step, r);
        same_file(f, a, b, file);
    }
}

static inline void forget_run(const struct folder *f, const char *name)
{
    struct err e;
    char *path = fs_join(f->dir, name);
    if (fs_remove_tree(path, &e)) fail_msg("%s", e.text);
    xfree(path);
}

/* Lines of metrics.jsonl as JSON, up to `most`, without those of checkpoints, which come when they are written. */
static inline int read_metrics(const struct folder *f, const char *name, struct json **line, int most)
{
    size_t n;
    struct err e = {0};
    char *text = read_file(f, name, "metrics.jsonl", &n);
    int count = 0;
    for (char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
        struct json *x;
        if (json_parse(&x, p, (size_t)(end - p), "metrics.jsonl", &e)) fail_msg("%s", e.text);
        if (json_get(x, "saved") || json_get(x, "loaded") || json_get(x, "kept")) {
            json_free(x);
            continue;
        }
        assert_true(count < most);
        line[count++] = x;
    }
    assert_int_equal(text[n - 1], '\n');
    xfree(text);
    return count;
}

/* ---- a folder as a number ---- */
/* Names, sizes and bytes of everything below path, but for what every start writes: the lock, and lines in starts.jsonl
 * and ends.jsonl. */
static inline void add_tree(struct hash64 *h, const char *path)
{
    struct stat st;
    struct err e = {0};
    char **names, target[256], *text;
    int n_names;
    size_t n;
    if (lstat(path, &st)) fail_msg("%s: %s", path, strerror(errno));
    hash64_add(h, path, strlen(path));
    if (S_ISLNK(st.st_mode)) hash64_add(h, target, (size_t)readlink(path, target, sizeof target));
    if (S_ISREG(st.st_mode)) {
        if (fs_read_all(path, 1 << 26, &text, &n, &e)) fail_msg("%s", e.text);
        hash64_add(h, text, n);
        xfree(text);
    }
    if (!S_ISDIR(st.st_mode)) return;
    if (fs_list(path, &names, &n_names, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n_names; i++) {
        char *child = fs_join(path, names[i]);
        if (strcmp(names[i], "lock") && strcmp(names[i], "starts.jsonl") && strcmp(names[i], "ends.jsonl") &&
            !strstr(names[i], "flight"))
            add_tree(h, child);
        xfree(child);
    }
    fs_list_free(names, n_names);
}

static inline uint64_t tree(const struct folder *f, const char *name)
{
    struct hash64 h;
    char path[128];
    hash64_init(&h);
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    add_tree(&h, path);
    return hash64_value(&h);
}

/* Trains, and returns what was said meanwhile; xfree it. */
static inline char *train_heard(const struct folder *f, const char *name, int ranks, const char *const *keys, int *rc,
                                struct err *e)
{
    struct trainer_result r;
    char path[128], *text;
    size_t n;
    struct err trouble = {0};
    snprintf(path, sizeof path, "%s/heard", f->dir);
    fflush(stderr);
    int before = dup(2), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 2);
    *rc = train_ranks(f, name, ranks, keys, &r, e);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    close(fd);
    if (fs_read_all(path, 1 << 20, &text, &n, &trouble)) fail_msg("%s", trouble.text);
    return text;
}

#endif
