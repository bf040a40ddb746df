/* SPDX-License-Identifier: Apache-2.0 */
/* suite: alone */
/* suite: long threads */
/* `tutti data synthesise` that goes on: every call that looks at its folder, and at its prompts, fails in turn, says
 * that there is nothing, gives less or is interrupted; and every byte of what says how far it is is another one. The
 * folder becomes what it is without that, or an error says why and no part in it is another than it shall be: no sample
 * is made twice, none is left out. */
#include "runs.h"

#include "decode/synthesise.h"
#include "unread_calls.h"
#include "drawn.h"

#define PROGRESS ".synthesis.json"
enum { PROMPTS = 6, PARTS = 3 };

struct room {
    struct folder f;
    char *run, *prompts, *out, *whole, *half;
    struct rules *rules;
};

static int make(struct room *r, const char *out, struct synthesis_result *result, struct err *e)
{
    struct synthesis_options o = {.model = r->run,
                                  .prompts = r->prompts,
                                  .rules = r->rules,
                                  .out = out,
                                  .n_samples = 1,
                                  .max_tokens = 3,
                                  .max_length = 4096,
                                  .spec = {.temperature = 0.8, .top_p = 1, .seed = 1},
                                  .dtype = DT_F32,
                                  .threads = 1,
                                  .batch = 2,
                                  .part_samples = PROMPTS / PARTS,
                                  .plain = true};
    memset(e, 0, sizeof *e);
    int code = synthesise(&o, result, e);
    if (!code) synthesis_result_fini(result);
    return code;
}

/* A folder's files, without the lock. */
static void copy_folder(const char *from, const char *to)
{
    struct err e;
    char **names, *p;
    size_t size;
    int n;
    if (fs_remove_tree(to, &e) || fs_mkdirs(to, &e) || fs_list(from, &names, &n, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n; i++) {
        char *a = fs_join(from, names[i]), *b = fs_join(to, names[i]);
        if (strcmp(names[i], ".lock") && (fs_read_all(a, 1 << 20, &p, &size, &e) || fs_write_atomic(b, p, size, &e)))
            fail_msg("%s", e.text);
        if (strcmp(names[i], ".lock")) xfree(p);
        xfree(a);
        xfree(b);
    }
    fs_list_free(names, n);
}

static bool same(const char *a, const char *b)
{
    struct err e;
    char *x, *y = NULL;
    size_t n, m = 0;
    if (fs_read_all(a, 1 << 20, &x, &n, &e)) fail_msg("%s", e.text);
    bool is = !fs_read_all(b, 1 << 20, &y, &m, &e) && n == m && !memcmp(x, y, n);
    xfree(x);
    xfree(y);
    return is;
}

/* Every file of the folder is one of the whole; *n: parts. */
static bool nothing_else(const struct room *r, int *n_parts)
{
    struct err e;
    char **names;
    int n;
    bool good = true;
    *n_parts = 0;
    if (fs_list(r->out, &names, &n, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < n && good; i++) {
        char *a = fs_join(r->out, names[i]), *b = fs_join(r->whole, names[i]);
        if (*names[i] != '.') {
            good = same(a, b);
            ++*n_parts;
        }
        xfree(a);
        xfree(b);
    }
    fs_list_free(names, n);
    return good;
}

static bool all_there(const struct room *r)
{
    int n;
    char *a = fs_join(r->out, PROGRESS), *b = fs_join(r->whole, PROGRESS);
    bool good = nothing_else(r, &n) && n == PARTS && same(a, b);
    xfree(a);
    xfree(b);
    return good;
}

/* Goes on where a start was killed after its first part. */
static int goes_on(void *ctx, struct err *e)
{
    struct room *r = ctx;
    struct synthesis_result result;
    struct err none;
    const char *watch = fault.watch;
    int parts;
    fault.watch = NULL;
    copy_folder(r->half, r->out);
    fault.watch = watch;
    int code = make(r, r->out, &result, e);
    fault.watch = NULL;
    if (!nothing_else(r, &parts) || parts < 1) return -1;
    if (!code) return all_there(r) ? 1 : -1;
    if (make(r, r->out, &result, &none)) fail_msg("after '%s': %s", e->text, none.text);
    return all_there(r) ? 0 : -1;
}

/* ---- the room ---- */

static int room_new(void **state)
{
    struct room *r = xcalloc(1, sizeof *r);
    struct synthesis_result result;
    struct err e;
    static const char rules[] = "rules:\n  - length: {max_chars: 100000}\n";
    folder_open(&r->f);
    r->run = fs_join(r->f.dir, "run");
    r->prompts = fs_join(r->f.dir, "prompts.jsonl");
    r->out = fs_join(r->f.dir, "out");
    r->whole = fs_join(r->f.dir, "whole");
    r->half = fs_join(r->f.dir, "half");
    (void)train_ok(&r->f, "run", KEYS("model.layers=1", "run.steps=1", "run.tensorboard=false"));
    struct str text = {0};
    for (int i = 0; i < PROMPTS; i++) str_printf(&text, "{\"prompt\": \"The quick %d\"}\n", i);
    if (fs_write_atomic(r->prompts, text.p, text.n, &e)) fail_msg("%s", e.text);
    str_free(&text);
    if (rules_parse(&r->rules, rules, strlen(rules), "rules", &e)) fail_msg("%s", e.text);
    if (make(r, r->whole, &result, &e)) fail_msg("%s", e.text);
    fault.full = ".part-00001";
    if (!make(r, r->half, &result, &e)) fail_msg("the second part was made");
    fault.full = NULL;
    *state = r;
    return 0;
}

static int room_free(void **state)
{
    struct room *r = *state;
    rules_free(r->rules);
    xfree(r->run);
    xfree(r->prompts);
    xfree(r->out);
    xfree(r->whole);
    xfree(r->half);
    folder_close(&r->f);
    xfree(r);
    return 0;
}

static void every_call(void **state)
{
    struct room *r = *state;
    struct err e;
    if (goes_on(r, &e) != 1) fail_msg("it does not go on: %s", e.text);
    walk("its folder", r->out, true, goes_on, r, 12);
    walk("its prompts", r->prompts, true, goes_on, r, 4);
    walk("its weights", r->run, true, goes_on, r, 10);
}

/* Of what says how far it is, every byte in turn is another one, is not there, or is the last. */
static void every_byte(void **state)
{
    struct room *r = *state;
    struct synthesis_result result;
    struct err e;
    const char *const from[] = {r->half, r->whole};
    char *path = fs_join(r->out, PROGRESS), *text;
    for (int k = 0; k < 2; k++) {
        size_t n, stride = TOY_SANITIZED ? 13 : 1;
        copy_folder(from[k], r->out);
        if (fs_read_all(path, 1 << 20, &text, &n, &e)) fail_msg("%s", e.text);
        for (size_t i = 0; i < n; i += stride)
            for (int how = 0; how < 3 && drawn_here((int64_t)(i / stride), 4); how++) { /* every day a quarter */
                char *was = xstrndup(text, n);
                size_t m = how == 2 ? i : n;
                int parts;
                if (how < 2) was[i] = (char)(was[i] ^ (how ? 0x10 : 0x01));
                if (fs_write_atomic(path, was, m, &e)) fail_msg("%s", e.text);
                if (!make(r, r->out, &result, &e))
                    fail_msg("byte %zu of %zu, way %d: nobody noticed: %s", i, n, how, was);
                if (!strstr(e.text, PROGRESS)) fail_msg("byte %zu, way %d: no name: %s", i, how, e.text);
                if (!nothing_else(r, &parts) || parts != (k ? PARTS : 1)) fail_msg("byte %zu: it went on", i);
                xfree(was);
            }
        xfree(text);
    }
    xfree(path);
}

int main(void)
{
    setenv("LOG", "error", 1); /* warnings are what these tests provoke */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_call, room_new, room_free),
        cmocka_unit_test_setup_teardown(every_byte, room_new, room_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
