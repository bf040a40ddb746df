/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that are left out are as if they were not there: a run that leaves a batch out (run.skip), or meets one without
 * a trained token, has the bits of a run that never saw it, for every optimizer, over ranks, servers and a stop in
 * between; and what is said of them: no loss, not one of 0, and why. */
#include "runs.h"

#define SAME "{\"text\": \"All documents are the same\"}\n"
#define TALK(weight)                                                                                                   \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"say\"}, {\"role\": \"assistant\", \"content\": \"yes\", "     \
    "\"weight\": " weight "}]}\n"

static void write_lines(const struct folder *f, const char *file, const char *text)
{
    char path[256];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", f->dir, file);
    assert_int_equal(fs_write_atomic(path, text, strlen(text), &e), OK);
}

#define USUAL                                                                                                          \
    "model.layers=1", "checkpoint.incremental=false", "data.pack=padded", "model.seq_len=48", "data.order=sequential", \
        "optimizer.schedule.name=constant", "optimizer.schedule.warmup_steps=0", "run.tensorboard=false"
#define MOST_MORE 12

/* more: pairs of keys between spaces */
static void run(const struct folder *f, const char *name, int ranks, const char *data, const char *more,
                const char *steps)
{
    static const char *const usual[] = {USUAL};
    enum { N = sizeof usual / sizeof *usual };
    const char *key[N + MOST_MORE + 3];
    char from[320], *text = xstrdup(more);
    struct trainer_result r;
    struct err e;
    int n = N;
    memcpy(key, usual, sizeof usual);
    snprintf(from, sizeof from, "data.train=[{\"path\":\"%s/%s\"%s}]", f->dir, data,
             strstr(data, "talk") ? ",\"chat\":\"plain\"" : "");
    key[n++] = from;
    key[n++] = steps;
    for (char *rest = text, *word; (word = strsep(&rest, " "));)
        if (*word) key[n++] = word;
    key[n] = NULL;
    if (train_ranks(f, name, ranks, key, &r, &e)) fail_msg("%s: %s %s: %s", name, more, steps, e.text);
    xfree(text);
}

/* The state of `name` after so many steps has the bits of the other's after `without` steps. */
static void same_state(const struct folder *f, const char *name, int steps, const char *other, int without, int writers,
                       const char *what)
{
    for (int w = 0; w < writers; w++) {
        char file[2][96];
        size_t n[2];
        snprintf(file[0], sizeof file[0], "checkpoints/step-%08d/boxes-%05d.safetensors", steps, w);
        snprintf(file[1], sizeof file[1], "checkpoints/step-%08d/boxes-%05d.safetensors", without, w);
        char *a = read_file(f, name, file[0], &n[0]), *b = read_file(f, other, file[1], &n[1]);
        if (n[0] != n[1] || memcmp(a, b, n[0])) fail_msg("%s: %s is not %s", what, name, other);
        xfree(a);
        xfree(b);
    }
}

static void forget(const struct folder *f, const char *name)
{
    struct err e;
    char *path = fs_join(f->dir, name);
    if (fs_exists(path)) assert_int_equal(fs_remove_tree(path, &e), OK);
    xfree(path);
}

struct row {
    const char *keys;
    int ranks, writers;
};
static const struct row rows[] = {
    {"optimizer.name=adamw", 1, 1}, {"optimizer.name=adafactor optimizer.weight_decay=0.1", 1, 1},
    {"optimizer.name=muon", 1, 1},  {"parallel.dp_shard=2 parallel.zero=2", 2, 2},
    {"parallel.pp=2", 2, 2},
};

static void batches_that_are_left_out(void **state)
{
    struct folder *f = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        char skips[256];
        snprintf(skips, sizeof skips, "%s run.skip=[2]", row->keys);
        run(f, "without", row->ranks, "same.jsonl", row->keys, "run.steps=3");
        run(f, "skips", row->ranks, "same.jsonl", skips, "run.steps=4");
        same_state(f, "skips", 4, "without", 3, row->writers, row->keys);
        run(f, "stops", row->ranks, "same.jsonl", skips, "run.steps=3"); /* what goes on from it knows of it */
        run(f, "stops", row->ranks, "same.jsonl", skips, "run.steps=4");
        same_state(f, "stops", 4, "without", 3, row->writers, row->keys);
        forget(f, "without");
        forget(f, "skips");
        forget(f, "stops");
    }
}

static const struct row talks[] = {
    {"batch.global=1 batch.micro=1", 1, 1},
    {"batch.global=1 batch.micro=1 optimizer.name=adafactor optimizer.weight_decay=0.1", 1, 1},
    {"batch.global=1 batch.micro=1 parallel.tp=2", 2, 2},
    {"batch.global=1 batch.micro=1 parallel.servers=1", 2, 1},
    {"batch.global=1 batch.micro=1 parallel.servers=1 parallel.server_mode=async", 2, 1},
};

static void said(const struct folder *f, const char *name, const char *what)
{
    struct json *v[16];
    int n = read_metrics(f, name, v, 16);
    int64_t before = 0;
    assert_int_equal(n, 4);
    for (int i = 0; i < n; i++) {
        const struct json *loss = json_get(v[i], "loss");
        int64_t tokens = json_int(json_get(v[i], "tokens"), -1);
        bool left_out = i == 1, null = loss && isnan(json_real(loss, NAN));
        if (null != left_out) fail_msg("%s: step %d: loss %g", what, i + 1, json_real(loss, NAN));
        assert_true(!left_out || isnan(json_real(json_get(v[i], "grad_norm"), NAN)));
        assert_int_equal(json_int(json_get(v[i], "skipped"), -1), left_out);
        assert_string_equal(json_string(json_get(v[i], "skip_cause"), NULL, ""), left_out ? "untrained" : "");
        assert_true(left_out ? tokens == before : tokens > before);
        before = tokens;
        json_free(v[i]);
    }
}

static void batches_without_a_trained_token(void **state)
{
    struct folder *f = *state;
    for (size_t i = 0; i < sizeof talks / sizeof *talks; i++) {
        const struct row *row = &talks[i];
        run(f, "fewer", row->ranks, "talks.jsonl", row->keys, "run.steps=3");
        run(f, "meets", row->ranks, "untrained_talks.jsonl", row->keys, "run.steps=4");
        said(f, "meets", row->keys);
        same_state(f, "meets", 4, "fewer", 3, row->writers, row->keys);
        forget(f, "fewer");
        forget(f, "meets");
    }
}

static int open_folder(void **state)
{
    struct folder *f = xmalloc(sizeof *f);
    folder_open(f);
    write_lines(f, "same.jsonl", SAME SAME SAME SAME SAME SAME SAME SAME);
    write_lines(f, "talks.jsonl", TALK("1") TALK("1") TALK("1"));
    write_lines(f, "untrained_talks.jsonl", TALK("1") TALK("0") TALK("1") TALK("1"));
    *state = f;
    return 0;
}

static int close_folder(void **state)
{
    folder_close(*state);
    xfree(*state);
    return 0;
}

int main(void)
{
    setenv("TUTTI_PEAK", "1e9", 1); /* no figure of this machine is asked for */
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_that_are_left_out),
                                       cmocka_unit_test(batches_without_a_trained_token)};
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
