/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint's manifest says of the run beside its numbers, each with values that it cannot have, under a
 * checksum that is right: the run does not go on as if it were not said, it is refused by the member's name. */
#include "runs.h"

#include "base/seal.h"

#define MANIFEST "checkpoints/step-00000003/manifest.json"

/* Where the value behind `at` ends. */
static const char *value_end(const char *at)
{
    int depth = 0;
    for (bool text = false;; at++) {
        if (*at == '"') text = !text;
        if (text) continue;
        if (!depth && (*at == ',' || *at == '}' || *at == ']')) return at;
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
    }
}

/* The manifest with another value of a member, "": without it, and no sum of the whole; its checksum is right. */
static void rewrite(const struct folder *f, const char *text, const char *member, const char *value)
{
    char key[64], path[256];
    struct str out = {0};
    struct err e;
    snprintf(key, sizeof key, "\"%s\":", member);
    snprintf(path, sizeof path, "%s/run/%s", f->dir, MANIFEST);
    const char *at = strstr(text, key), *seal = strstr(text, ",\n\"xxh64\":");
    if (!at || !seal) fail_msg("%s: not in the manifest: %s", member, text);
    for (const char *more; (more = strstr(seal + 1, ",\n\"xxh64\":"));) seal = more;
    const char *from = at + strlen(key), *to = value_end(from);
    bool gone = !*value;
    str_add(&out, text, (size_t)((gone ? at : from) - text));
    str_puts(&out, value);
    if (gone && *to == ',') to++;
    else if (gone && out.p[out.n - 1] == ',') out.n--;
    str_add(&out, to, (size_t)(seal - to));
    char *sum = strstr(str_text(&out), ",\"state\":\""), *extra = strstr(str_text(&out), ",\"extra\":");
    for (char *more; (more = strstr(sum + 1, ",\"state\":\"")) && more < extra;) sum = more;
    if (!extra || extra - sum != 27) fail_msg("no sum of the whole state: %s", text);
    memmove(sum, extra, strlen(extra) + 1); /* as older writers left it out: it would tell of some of these */
    out.n -= 27;
    seal_add(&out);
    if (fs_write_atomic(path, out.p, out.n, &e)) fail_msg("%s", e.text);
    str_free(&out);
}

static int goes_on(const struct folder *f, const char *steps, struct err *e)
{
    struct trainer_result r;
    return train(f, "run",
                 KEYS("model.layers=1", "precision.recipe=fp16", "run.skip=[2]", "run.on_spike=rewind",
                      "checkpoint.incremental=false", "checkpoint.every=3", "run.tensorboard=false", steps),
                 &r, e);
}

static const struct {
    const char *member, *value; /* "=": what it was, "": it is not there; both go on */
} rows[] = {
    {"left_out", "="},
    {"left_out", ""},
    {"left_out", "-1"},
    {"left_out", "4"}, /* of three steps */
    {"left_out", "9223372036854775807"},
    {"left_out", "1.5"},
    {"left_out", "\"1\""},
    {"left_out", "[1]"},
    {"left_out", "null"},
    {"left_out", "true"},
    {"loss_scale", ""},
    {"loss_scale", "{}"},
    {"loss_scale", "65536"},
    {"loss_scale", "{\"now\":3,\"good\":0,\"skipped\":0}"},
    {"loss_scale", "{\"now\":65536,\"good\":-1,\"skipped\":0}"},
    {"loss_scale", "{\"now\":65536,\"good\":0,\"skipped\":\"0\"}"},
    {"skipped_steps", ""},
    {"skipped_steps", "2"},
    {"skipped_steps", "\"2\""},
    {"skipped_steps", "{\"2\":2}"},
    {"skipped_steps", "[0]"},
    {"skipped_steps", "[\"2\"]"},
    {"data", "{\"train\":7}"}, /* which are other data than the run has now */
    {"data", "{\"train\":\"0123\"}"},
    {"loss_average", ""},
    {"loss_average", "1"},
    {"loss_average", "{\"seen\":0,\"mean\":1,\"variance\":1}"},
    {"loss_average", "{\"seen\":3,\"mean\":1,\"variance\":-1}"},
};

static void what_cannot_be(void **state)
{
    struct folder *f = *state;
    struct err e;
    size_t n;
    if (goes_on(f, "run.steps=3", &e)) fail_msg("%s", e.text);
    char *read = read_file(f, "run", MANIFEST, &n), *text = xstrndup(read, n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool fine = !*rows[i].value || *rows[i].value == '=';
        if (*rows[i].value != '=') rewrite(f, text, rows[i].member, rows[i].value);
        uint64_t before = tree(f, "run/checkpoints");
        int code = goes_on(f, fine ? "run.steps=3" : "run.steps=4", &e);
        if (fine && code) fail_msg("%s=%s: %s", rows[i].member, rows[i].value, e.text);
        if (!fine && !code) fail_msg("%s=%s: it goes on", rows[i].member, rows[i].value);
        int wanted = strcmp(rows[i].member, "data") ? ERR_CORRUPT : ERR_REQUEST;
        if (!fine && (code != wanted || !strstr(e.text, rows[i].member) || !strstr(e.text, "step-00000003")))
            fail_msg("%s=%s: %s", rows[i].member, rows[i].value, e.text);
        if (tree(f, "run/checkpoints") != before) fail_msg("%s: its checkpoints were changed", rows[i].member);
    }
    xfree(text);
    xfree(read);
}

static int open_folder(void **state)
{
    struct folder *f = xmalloc(sizeof *f);
    folder_open(f);
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
    setenv("LOG", "error", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(what_cannot_be, open_folder, close_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
