/* SPDX-License-Identifier: Apache-2.0 */
/* A run whose tokens lie behind an address: the losses of the same file here, for ranks and workers; when the object
 * goes away in the middle, all ranks end after the same step with an error that names the step and the place, and the
 * run goes on from its checkpoint when the object is back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>

#include <sys/stat.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/str.h"
#include "data/tokenize.h"
#include "object_server.h"
#include "train/trainer.h"
#include "scratch.h"

static struct object_server server;
static char *dir, *bytes;
static size_t n_bytes;

static const char *secret = ""; /* of the address: a user and a password */

static int set_up(void **state)
{
    (void)state;
    struct str text = {0};
    struct err e;
    struct tokenizer *t;
    struct tokenize_result r;
    unsetenv("http_proxy");
    unsetenv("HTTP_PROXY");
    unsetenv("all_proxy");
    unsetenv("ALL_PROXY");
    dir = scratch_new();
    for (int i = 0; text.n < 5 << 20; i++) str_printf(&text, "%d. A fox jumps over %d dogs.\n", i, i * 7 % 9);
    char *path = fs_join(dir, "t.txt"), *tok = fs_join(dir, "t.tok");
    int rc = fs_write_atomic(path, text.p, text.n, &e);
    if (!rc) rc = tokenizer_open(&t, "byte", &e);
    if (!rc) rc = tokenize(t, (const char *const *)&path, 1, NULL, tok, 2, &r, &e);
    if (!rc) rc = fs_read_all(tok, (size_t)1 << 30, &bytes, &n_bytes, &e);
    tokenizer_free(t);
    str_free(&text);
    xfree(path);
    xfree(tok);
    server_start(&server);
    server_put(&server, "/t.tok", bytes, n_bytes, "one");
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    server_stop(&server);
    xfree(bytes);
    scratch_free(dir);
    return 0;
}

static int train(const char *name, bool remote, int ranks, int workers, int steps, struct trainer_result *r,
                 struct err *e)
{
    struct str key[24] = {{0}};
    char *keys[24];
    int n = 0;
#define KEY(...) str_printf(&key[n++], __VA_ARGS__)
    KEY("model.layers=1");
    KEY("model.hidden=16");
    KEY("model.heads=2");
    KEY("model.ffn=32");
    KEY("model.seq_len=16");
    KEY("batch.global=4");
    KEY("batch.micro=2");
    if (remote) KEY("data.train=http://%s127.0.0.1:%d/t.tok", secret, server.port);
    else KEY("data.train=%s/t.tok", dir);
    KEY("data.workers=%d", workers);
    KEY("data.prefetch=4");
    KEY("data.remote.cache_limit=0");
    KEY("data.remote.connections=2");
    KEY("data.remote.tries=2");
    KEY("run.dir=%s/%s", dir, name);
    KEY("run.steps=%d", steps);
    KEY("run.threads=1");
    KEY("run.tensorboard=false");
    KEY("checkpoint.every=5");
    for (int i = 0; i < n; i++) keys[i] = key[i].p;
    int rc = trainer_run(NULL, keys, n, ranks, r, e);
    for (int i = 0; i < n; i++) str_free(&key[i]);
    return rc;
}

static void same_losses(void **state)
{
    (void)state;
    struct trainer_result here, there;
    struct err e;
    if (train("here", false, 1, 1, 12, &here, &e)) fail_msg("%s", e.text);
    if (train("there", true, 1, 3, 12, &there, &e)) fail_msg("%s", e.text);
    assert_true(here.loss == there.loss);
    if (train("here2", false, 2, 2, 12, &here, &e)) fail_msg("%s", e.text);
    if (train("there2", true, 2, 4, 12, &there, &e)) fail_msg("%s", e.text);
    assert_true(here.loss == there.loss);
}

static void check_mode(const char *file, mode_t mode)
{
    struct stat st;
    char *path = fs_join(dir, file);
    if (stat(path, &st) || (st.st_mode & 0777) != mode) fail_msg("%s: mode %o", path, st.st_mode & 0777);
    xfree(path);
}

/* A config that holds a password can be read by its owner only, the run's and its checkpoints'; another as files are.
 */
static void kept_from_others(void **state)
{
    (void)state;
    struct trainer_result r;
    struct err e;
    mode_t before = umask(022);
    if (train("plain", true, 1, 1, 5, &r, &e)) fail_msg("%s", e.text);
    secret = "me:hidden@";
    if (train("secret", true, 1, 1, 5, &r, &e)) fail_msg("%s", e.text);
    secret = "";
    umask(before);
    check_mode("plain/config.yaml", 0644);
    check_mode("plain/checkpoints/step-00000005/config.yaml", 0644);
    check_mode("secret/config.yaml", 0600);
    check_mode("secret/checkpoints/step-00000005/config.yaml", 0600);
}

static void *take_away(void *arg)
{
    (void)arg;
    while (server_count(&server, &server.n_requests) < 40) clock_sleep_s(0.002);
    server_remove(&server, "/t.tok");
    return NULL;
}

static void goes_away(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct trainer_result r;
        struct err e = {0};
        pthread_t t;
        char name[16];
        snprintf(name, sizeof name, "away%d", ranks);
        pthread_mutex_lock(&server.lock);
        server.n_requests = 0;
        pthread_mutex_unlock(&server.lock);
        assert_int_equal(pthread_create(&t, NULL, take_away, NULL), 0);
        int rc = train(name, true, ranks, 2, 100000, &r, &e);
        pthread_join(t, NULL);
        assert_int_equal(rc, ERR_IO);
        char step[80];
        const char *at = strstr(e.text, "the batch of step ");
        if (!at || !strstr(e.text, "/t.tok") || !strstr(e.text, "HTTP 404") || !strstr(e.text, "it was there"))
            fail_msg("%s", e.text);
        int64_t named = strtoll(at + strlen("the batch of step "), NULL, 10);
        assert_int_equal(named, r.steps + 1); /* all before it are done, and nothing was skipped */
        snprintf(step, sizeof step, "%lld", (long long)named);
        server_put(&server, "/t.tok", bytes, n_bytes, "one");
        if (train(name, true, ranks, 1, (int)named + 3, &r, &e)) fail_msg("%s: %s", step, e.text);
        assert_int_equal(r.steps, named + 3);
        assert_int_equal(r.first_step % 5, 0);
    }
}

/* What a run says to the screen and in an error, xfree it. keys: data.train and what else. */
static char *heard(const char *const *more, int n_more, int *rc)
{
    char *keys[24], base[8][128], *path = fs_join(dir, "heard"), *text;
    struct str dirs = {0};
    struct trainer_result r;
    struct err e = {0};
    size_t n;
    int k = 0;
    static const char *const small[] = {"model.layers=1", "model.hidden=16",      "model.heads=2",
                                        "model.ffn=32",   "model.seq_len=16",     "batch.global=4",
                                        "run.threads=1",  "run.tensorboard=false"};
    for (int i = 0; i < 8; i++) snprintf(keys[k++] = base[i], sizeof base[i], "%s", small[i]);
    for (int i = 0; i < n_more; i++) keys[k++] = (char *)(uintptr_t)more[i];
    str_printf(&dirs, "run.dir=%s/told", dir);
    keys[k++] = dirs.p;
    fflush(stderr);
    int before = dup(2), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 2);
    *rc = trainer_run(NULL, keys, k, 1, &r, &e);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    close(fd);
    struct err trouble;
    if (fs_read_all(path, 1 << 20, &text, &n, &trouble)) fail_msg("%s", trouble.text);
    struct str all = {0};
    str_printf(&all, "%s\n%s", text, *rc ? e.text : "");
    xfree(text);
    xfree(path);
    str_free(&dirs);
    return all.p;
}

/* Passwords and signatures of addresses are in no message: not while text is fetched and tokenized, not where another
 * address than the checkpoint's is told, not in errors. */
static void secrets(void **state)
{
    (void)state;
    static const char text[] = "A fox jumps over nine dogs, and each of them sleeps on until the morning comes.\n";
    struct str much = {0};
    for (int i = 0; i < 100; i++) str_puts(&much, text);
    server_put(&server, "/t.txt", much.p, much.n, "text");
    static const struct {
        const char *format, *more, *says;
    } rows[] = {
        {"data.train=http://me:HIDDEN1@127.0.0.1:%d/t.txt?sig=HIDDEN2", "run.steps=2", "/t.txt"},
        {"data.train=http://me:HIDDEN1@127.0.0.1:%d/t.txt?sig=HIDDEN3", "run.steps=4",
         "data.train.path: \"http://127.0.0.1"},
        {"data.train=[{path: \"http://127.0.0.1:%d/t.txt?sig=HIDDEN2\", weight: 0}]", "run.steps=4",
         "/t.txt would never be used"},
        {"data.train=http://127.0.0.1:%d/{t,u}.txt?sig=HIDDEN2", "run.steps=4", "/u.txt"},
        {"data.train=http://127.0.0.1:%d/{t,{u}.txt?sig=HIDDEN2", "run.steps=4", "/{t,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char address[200];
        int rc;
        snprintf(address, sizeof address, rows[i].format, server.port);
        const char *more[] = {address, rows[i].more, "checkpoint.every=2", "data.remote.tries=1"};
        char *said = heard(more, 4, &rc);
        if (strstr(said, "HIDDEN") || !strstr(said, rows[i].says)) fail_msg("row %zu: code %d: %s", i, rc, said);
        xfree(said);
    }
    str_free(&much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_losses), cmocka_unit_test(kept_from_others),
                                       cmocka_unit_test(goes_away), cmocka_unit_test(secrets)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
