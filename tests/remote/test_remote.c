/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a server that gives what it should, fails, stalls, truncates, lies and changes its mind: what is read is
 * right, or an error that says where, why and after how many tries; never other bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/hash.h"
#include "object_server.h"
#include "remote/remote.h"
#include "sanitized.h"
#include "scratch.h"

enum { PIECE = 64 << 10, N = 1000003 };

static unsigned char content[N];

struct bench {
    struct object_server server;
    char *dir;
    struct remote *r;
    struct object *o;
    char url[200];
    struct remote_options options;
};

static double patience_s = 3600; /* a machine may be busy: only where something is to stall is it short */

static struct remote_options quick(const char *cache)
{
    struct remote_options o = remote_defaults();
    o.connections = 3;
    o.tries = 4;
    o.pause_s = 0.005;
    o.connect_s = o.stall_s = patience_s;
    o.give_up_s = 3600;
    o.piece = PIECE;
    o.cache_dir = cache;
    o.cache_limit = cache ? 8 << 20 : 0;
    return o;
}

static void environment(int port, const char *id)
{
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_REGION", "eu-test-1", 1);
    if (id) setenv("AWS_ACCESS_KEY_ID", id, 1);
    else unsetenv("AWS_ACCESS_KEY_ID");
    if (id) setenv("AWS_SECRET_ACCESS_KEY", "very/secret", 1);
    else unsetenv("AWS_SECRET_ACCESS_KEY");
}

/* A server with /b/data, its object open. cache: whether there is a folder. */
static void begin(struct bench *b, bool cache)
{
    *b = (struct bench){.dir = scratch_new()};
    server_start(&b->server);
    environment(b->server.port, NULL);
    server_put(&b->server, "/b/data", content, N, "v1");
    b->options = quick(cache ? b->dir : NULL);
    b->r = remote_new(&b->options);
    snprintf(b->url, sizeof b->url, "http://user:word@127.0.0.1:%d/b/data?sig=hidden", b->server.port);
}

static void open_it(struct bench *b)
{
    struct err e;
    struct remote_about about;
    if (remote_look(b->r, b->url, &about, &e)) fail_msg("%s", e.text);
    if (object_open(&b->o, b->r, b->url, &about, &e)) fail_msg("%s", e.text);
}

static void close_it(struct bench *b)
{
    object_close(b->o);
    b->o = NULL;
}

static void end(struct bench *b)
{
    close_it(b);
    remote_free(b->r);
    server_stop(&b->server);
    scratch_free(b->dir);
}

static int check_read(struct bench *b, int64_t at, size_t n, struct err *e)
{
    unsigned char *p = xmalloc(n + 1);
    p[n] = 0xA5;
    int code = object_read(b->o, at, n, p, e);
    if (!code) assert_memory_equal(p, content + at, n);
    assert_int_equal(p[n], 0xA5);
    xfree(p);
    return code;
}

static void read_right(struct bench *b, int64_t at, size_t n)
{
    struct err e;
    if (check_read(b, at, n, &e)) fail_msg("[%lld, +%zu): %s", (long long)at, n, e.text);
}

/* Says all of the words ("a|b"), and nothing of what is secret. */
static void says(const struct err *e, const char *words)
{
    char copy[300];
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok(copy, "|"); w; w = strtok(NULL, "|"))
        if (!strstr(e->text, w)) fail_msg("the error does not say \"%s\": %s", w, e->text);
    if (strstr(e->text, "hidden") || strstr(e->text, "word@")) fail_msg("a secret: %s", e->text);
}

/* ---- reading ---- */

static void places(void **state)
{
    (void)state;
    for (int cache = 0; cache < 2; cache++) {
        struct bench b;
        begin(&b, cache);
        open_it(&b);
        assert_int_equal(object_bytes(b.o), N);
        assert_non_null(strstr(object_name(b.o), "/b/data"));
        assert_null(strstr(object_name(b.o), "hidden"));
        static const int64_t rows[][2] = {{0, 1},         {N - 1, 1},     {N, 0}, {PIECE - 1, 2},
                                          {PIECE, PIECE}, {5, 3 * PIECE}, {0, N}, {N - PIECE - 7, PIECE + 7},
                                          {123456, 0}};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) read_right(&b, rows[i][0], (size_t)rows[i][1]);
        for (uint64_t i = 0; i < 100; i++) {
            int64_t at = (int64_t)(hash64(&i, 8) % N), most = N - at;
            read_right(&b, at, (size_t)(i * 997 < (uint64_t)most ? i * 997 : (uint64_t)most));
        }
        struct remote_counts c = remote_counts(b.r);
        assert_int_equal(c.failed, 0);
        if (cache) assert_true(c.fetched <= N + 1); /* each piece once */
        end(&b);
    }
}

/* From front to back, in small steps: fetched ahead, by several connections at once, each byte once; also where pieces
 * are put into other memory on the way. */
static void sequential(void **state)
{
    (void)state;
    struct bench b;
    void *memory[2] = {NULL, NULL};
    begin(&b, false);
    b.server.delay_s = 0.02;
    open_it(&b);
    int64_t at = 0;
    for (int k = 0; at < N; at += 5000, k++) {
        read_right(&b, at, (size_t)(N - at < 5000 ? N - at : 5000));
        if (k != 4 && k != 9) continue;
        memory[k / 5] = xcalloc(1, remote_memory(b.r));
        remote_place(b.r, memory[k / 5]);
    }
    assert_non_null(memory[1]);
    int64_t used = 0;
    for (size_t i = 0; i < remote_memory(b.r); i += PIECE) used += ((char *)memory[1])[i] != 0;
    assert_true(used > 1);
    struct remote_counts c = remote_counts(b.r);
    assert_int_equal(c.fetched, N + 1); /* one by looking */
    assert_int_equal(c.requests, (N + PIECE - 1) / PIECE + 1);
    assert_true(server_count(&b.server, &b.server.most_busy) > 1);
    end(&b);
    xfree(memory[0]);
    xfree(memory[1]);
}

struct reader {
    struct bench *b;
    int i;
};
static void *read_some(void *arg)
{
    const struct reader *x = arg;
    for (uint64_t i = 0; i < (SANITIZED ? 40 : 200); i++) {
        uint64_t k = i * 16 + (uint64_t)x->i;
        int64_t at = (int64_t)(hash64(&k, 8) % (N - 3000));
        read_right(x->b, at, 3000);
    }
    return NULL;
}

/* More readers than there are slots, of one object. */
static void readers(void **state)
{
    (void)state;
    for (int cache = 0; cache < 2; cache++) {
        struct bench b;
        begin(&b, cache);
        open_it(&b);
        pthread_t t[12];
        struct reader x[12];
        for (int i = 0; i < 12; i++) {
            x[i] = (struct reader){&b, i};
            assert_int_equal(pthread_create(&t[i], NULL, read_some, &x[i]), 0);
        }
        for (int i = 0; i < 12; i++) pthread_join(t[i], NULL);
        end(&b);
    }
}

/* ---- the folder ---- */

static void cached(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, true);
    open_it(&b);
    read_right(&b, 0, N);
    close_it(&b);
    remote_free(b.r);
    int before = server_count(&b.server, &b.server.n_requests);
    b.r = remote_new(&b.options); /* as another process would */
    open_it(&b);
    read_right(&b, 0, N);
    read_right(&b, 77, 99999);
    assert_int_equal(server_count(&b.server, &b.server.n_requests), before + 1); /* whether it is still the same */
    assert_int_equal(remote_counts(b.r).fetched, 1);
    close_it(&b);
    /* Another version is not served from what was kept. */
    static unsigned char other[N];
    memcpy(other, content, N);
    other[N / 2] ^= 1;
    server_put(&b.server, "/b/data", other, N, "v2");
    open_it(&b);
    unsigned char *p = xmalloc(N);
    struct err e;
    assert_int_equal(object_read(b.o, 0, N, p, &e), OK);
    assert_memory_equal(p, other, N);
    xfree(p);
    end(&b);
}

/* ---- trouble that passes ---- */

static const struct passing {
    const char *name;
    enum trouble t;
    int n, status;
    const char *extra;
} passing[] = {
    {"500", STATUS, 2, 500, ""},
    {"503", STATUS, 3, 503, ""},
    {"503 with a time", STATUS, 1, 503, "Retry-After: 1\r\n"},
    {"429", STATUS, 2, 429, ""},
    {"408", STATUS, 1, 408, ""},
    {"reset", RESET, 3, 0, ""},
    {"no answer", HANG_UP, 3, 0, ""},
    {"cut short", TRUNCATE, 3, 0, ""},
    {"cut short without a length", SHORT_CHUNK, 3, 0, ""},
    {"stall", STALL, 1, 0, ""},
    {"slow", SLOW, 2, 0, ""},
};

static void passes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        const struct passing *t = &passing[i];
        struct bench b;
        patience_s = t->t == STALL ? 2 : 3600;
        begin(&b, i % 2);
        patience_s = 3600;
        open_it(&b);
        server_trouble(&b.server, t->t, t->n, t->status, t->extra);
        double from = clock_now_s();
        read_right(&b, 100, PIECE / 2);
        double took = clock_now_s() - from;
        if (!strcmp(t->name, "503 with a time") && took < 0.95) fail_msg("%s: waited %.3f s", t->name, took);
        struct remote_counts c = remote_counts(b.r);
        if (t->t != SLOW && c.failed < 1) fail_msg("%s: nothing was tried again", t->name);
        if (t->t == TRUNCATE && c.fetched > PIECE + 1 + 3 * PIECE) fail_msg("what was got was fetched again");
        read_right(&b, 0, N);
        end(&b);
    }
}

/* What was got before an answer broke is kept: three halves of what is left come, then the rest. */
static void goes_on(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, false);
    open_it(&b);
    server_trouble(&b.server, TRUNCATE, 3, 0, "");
    read_right(&b, 100, 100);
    struct remote_counts c = remote_counts(b.r);
    assert_int_equal(c.fetched, PIECE + 1);
    assert_int_equal(c.failed, 3);
    end(&b);
}

/* ---- trouble that stays ---- */

static const struct staying {
    const char *name;
    enum trouble t;
    int status;
    const char *extra, *words;
    int code, most_requests;
} staying[] = {
    {"500", STATUS, 500, "", "/b/data|bytes 0 to 65536|HTTP 500 (Trouble: as it was told & asked)|tried 4 times in",
     ERR_IO, 4},
    {"503 for an hour", STATUS, 503, "Retry-After: 3600\r\n", "HTTP 503|tried 1 time|data.remote.give_up_s", ERR_IO, 1},
    {"403", STATUS, 403, "", "HTTP 403", ERR_IO, 1},
    {"404", STATUS, 404, "", "HTTP 404|it was there when its reading began", ERR_IO, 1},
    {"412", STATUS, 412, "", "it has changed since its reading began|HTTP 412|start again", ERR_IO, 1},
    {"another version", NEW_TAG, 0, "", "it has changed since its reading began", ERR_IO, 1},
    {"other bytes", WRONG_RANGE, 0, "", "its server answers with bytes from 1 on", ERR_IO, 1},
    {"reset", RESET, 0, "", "tried 4 times in", ERR_IO, 4},
    {"no answer", HANG_UP, 0, "", "tried 4 times in", ERR_IO, 4},
    {"redirects in a circle", REDIRECT, 0, "/b/data", "redirect", ERR_IO, 9},
    {"redirect to a file", REDIRECT, 0, "file:///etc/passwd", "rotocol", ERR_IO, 1},
};

static void stays(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof staying / sizeof *staying; i++) {
        const struct staying *t = &staying[i];
        struct bench b;
        struct err e = {0};
        begin(&b, i % 2);
        open_it(&b);
        int before = server_count(&b.server, &b.server.n_requests);
        server_trouble(&b.server, t->t, 1000000, t->status, t->extra);
        int code = check_read(&b, 100, 10, &e);
        if (code != t->code) fail_msg("%s: %d: %s", t->name, code, code ? e.text : "(no error)");
        says(&e, t->words);
        int n = server_count(&b.server, &b.server.n_requests) - before;
        if (n != t->most_requests) fail_msg("%s: %d requests, wanted %d", t->name, n, t->most_requests);
        server_trouble(&b.server, FINE, 0, 0, "");
        read_right(&b, 100, 10); /* the next call tries anew */
        end(&b);
    }
}

/* It changes between two pieces: both by the server's own check and, where it has none, by ours. */
static void changes(void **state)
{
    (void)state;
    static unsigned char other[N];
    for (int i = 0; i < 3; i++) {
        struct bench b;
        struct err e = {0};
        begin(&b, false);
        open_it(&b);
        read_right(&b, 0, 10);
        if (i == 0) server_put(&b.server, "/b/data", other, N, "v2");
        if (i == 1) server_put(&b.server, "/b/data", content, N - 1, "v1");
        if (i == 2) server_remove(&b.server, "/b/data");
        assert_int_equal(check_read(&b, N - 10, 10, &e), ERR_IO);
        says(&e, i == 2 ? "HTTP 404|it was there" : "it has changed since its reading began");
        end(&b);
    }
}

/* ---- looking ---- */

static void look_fails(struct bench *b, const char *url, int code, const char *words)
{
    struct remote_about about;
    struct err e = {0};
    int got = remote_look(b->r, url, &about, &e);
    if (got != code) fail_msg("%s: %d: %s", url, got, got ? e.text : "(no error)");
    says(&e, words);
}

static void looking(void **state)
{
    (void)state;
    struct bench b;
    char url[200];
    struct err e;
    struct remote_about about;
    begin(&b, true);
    server_put(&b.server, "/b/empty", content, 0, "e");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/b/empty", b.server.port);
    assert_int_equal(remote_look(b.r, url, &about, &e), OK);
    assert_int_equal(about.bytes, 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/b/nothing", b.server.port);
    look_fails(&b, url, ERR_REQUEST, "/b/nothing|HTTP 404 (NoSuchKey: no such key)");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/b/", b.server.port);
    look_fails(&b, url, ERR_REQUEST, "gives no list of its files");
    look_fails(&b, "http://127.0.0.1:1/x", ERR_IO, "127.0.0.1:1/x|tried 4 times");
    snprintf(url, sizeof url, "https://127.0.0.1:%d/b/data", b.server.port); /* which speaks no TLS */
    look_fails(&b, url, ERR_IO, "no TLS connection");
    server_trouble(&b.server, STATUS, 2, 503, "");
    assert_int_equal(remote_look(b.r, b.url, &about, &e), OK);
    assert_string_equal(about.etag, "v1");
    server_trouble(&b.server, NO_LENGTH, 1, 0, "");
    look_fails(&b, b.url, ERR_REQUEST, "neither how large it is");
    server_trouble(&b.server, STATUS, 1, 401, "");
    look_fails(&b, b.url, ERR_REQUEST, "HTTP 401");
    /* A redirect is followed. */
    snprintf(url, sizeof url, "http://127.0.0.1:%d/b/data", b.server.port);
    server_trouble(&b.server, REDIRECT, 1, 0, url);
    assert_int_equal(remote_look(b.r, b.url, &about, &e), OK);
    assert_int_equal(about.bytes, N);
    uint64_t version = remote_version(b.url, &about);
    about.bytes++;
    assert_true(version != remote_version(b.url, &about));
    end(&b);
}

/* What is shown of a text that holds addresses. */
static void hiding(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"", ""},
        {"a: b", "a: b"},
        {"path: \"https://u:p@h/x?sig=1\", weight: 1", "path: \"https://h/x\", weight: 1"},
        {"https://h/a?s=1 and http://u@h/b#c\nhttps://h/d?e", "https://h/a and http://h/b\nhttps://h/d"},
        {"\"https://h/x?s=\\\"1\" here", "\"https://h/x\" here"},
        {"s3://b/what?is=a&key", "s3://b/what?is=a&key"},
        {"file:///etc?x ://", "file:///etc?x ://"},
        {"https://", "https://"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *shown = remote_hidden(rows[i][0]);
        assert_string_equal(shown, rows[i][1]);
        xfree(shown);
    }
}

/* A server that gives no parts. */
static void whole(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, true);
    server_trouble(&b.server, IGNORE_RANGE, 1000000, 0, "");
    open_it(&b);
    int before = server_count(&b.server, &b.server.n_requests);
    read_right(&b, N - 5, 5);
    read_right(&b, 0, N);
    read_right(&b, 777, 100000);
    assert_int_equal(server_count(&b.server, &b.server.n_requests), before + 1);
    close_it(&b);
    remote_free(b.r);
    b.options = quick(NULL);
    b.r = remote_new(&b.options);
    look_fails(&b, b.url, ERR_REQUEST, "gives no parts|data.remote.cache_limit is 0|download it");
    /* One that is small needs no folder. */
    server_put(&b.server, "/b/data", content, 1000, "v1");
    open_it(&b);
    read_right(&b, 10, 990);
    close_it(&b);
    server_put(&b.server, "/b/data", content, N, "v1");
    /* It gave parts when it was looked at. */
    server_trouble(&b.server, FINE, 0, 0, "");
    open_it(&b);
    server_trouble(&b.server, IGNORE_RANGE, 1000000, 0, "");
    read_right(&b, 0, 10);
    struct err e = {0};
    assert_int_equal(check_read(&b, PIECE, 10, &e), ERR_IO);
    says(&e, "now gives only the whole");
    end(&b);
}

/* Without ETag and time what is kept is of this struct remote alone. */
static void no_version(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, true);
    server_trouble(&b.server, NO_TAG, 1000000, 0, "");
    open_it(&b);
    read_right(&b, 0, N);
    read_right(&b, 0, N);
    close_it(&b);
    remote_free(b.r);
    b.r = remote_new(&b.options);
    open_it(&b);
    read_right(&b, 0, N);
    assert_int_equal(remote_counts(b.r).fetched, N + 1);
    end(&b);
}

/* ---- S3 ---- */

static void store(void **state)
{
    (void)state;
    struct bench b;
    struct err e = {0};
    begin(&b, false);
    b.server.id = "ID";
    b.server.secret = "very/secret";
    b.server.region = "eu-test-1";
    static const char *const keys[] = {"d/b.txt",  "d/a b+c%.txt", "d/sub/x.txt", "d/sub-1.txt", "d/.hidden",
                                       "d/.git/x", "d/mark/",      "d/zero",      "dd/other",    "d/\xC3\xA9.txt"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char path[100];
        snprintf(path, sizeof path, "/b/%s", keys[i]);
        server_put(&b.server, path, content + i, i == 7 ? 0 : 100 + i, "tag");
    }
    struct remote_list l;
    assert_int_equal(remote_list(b.r, "s3://b/d", &l, &e), ERR_REQUEST);
    says(&e, "HTTP 403 (SignatureDoesNotMatch: no)|AWS_ACCESS_KEY_ID");
    remote_free(b.r);
    environment(b.server.port, "ID");
    b.r = remote_new(&b.options);
    for (int page = 1; page < 12; page += 5) {
        b.server.page = page;
        if (remote_list(b.r, page == 1 ? "s3://b/d/" : "s3://b/d", &l, &e))
            fail_msg("%s; %s", e.text, b.server.refused);
        static const char *const wanted[] = {"s3://b/d/a b+c%.txt", "s3://b/d/b.txt", "s3://b/d/sub/x.txt",
                                             "s3://b/d/sub-1.txt", "s3://b/d/\xC3\xA9.txt"};
        assert_int_equal(l.n, 5);
        for (int i = 0; i < 5; i++) assert_string_equal(l.entry[i].url, wanted[i]);
        for (int64_t i = 0; i < l.n; i++) { /* opened by what the list said, read with a signature */
            struct object *o;
            unsigned char p[200];
            assert_int_equal(object_open(&o, b.r, l.entry[i].url, &l.entry[i].about, &e), OK);
            if (object_read(o, 0, (size_t)object_bytes(o), p, &e)) fail_msg("%s; %s", e.text, b.server.refused);
            size_t which = i == 0 ? 1 : i == 1 ? 0 : i == 2 ? 2 : i == 3 ? 3 : 9;
            assert_memory_equal(p, content + which, 100 + which);
            object_close(o);
        }
        remote_list_free(&l);
    }
    /* Pages that fail pass, too; a store that turns a signature away says why. */
    b.server.page = 2;
    server_trouble(&b.server, STATUS, 3, 503, "");
    assert_int_equal(remote_list(b.r, "s3://b/d", &l, &e), OK);
    assert_int_equal(l.n, 5);
    remote_list_free(&l);
    assert_int_equal(remote_list(b.r, "s3://b/nothing", &l, &e), OK);
    assert_int_equal(l.n, 0);
    server_trouble(&b.server, STATUS, 1, 301, "x-amz-bucket-region: us-far-9\r\n");
    struct remote_about about;
    assert_int_equal(remote_look(b.r, "s3://b/data", &about, &e), ERR_REQUEST);
    says(&e, "us-far-9|AWS_REGION is eu-test-1");
    b.server.region = "other";
    assert_int_equal(remote_look(b.r, "s3://b/data", &about, &e), ERR_REQUEST);
    says(&e, "s3://b/data|SignatureDoesNotMatch|keys of the environment");
    assert_null(strstr(e.text, "very/secret"));
    end(&b);
}

/* ---- bytes beside their ETag ---- */

/* An object of n bytes of the content, one of them wrong or none, under the MD5 of the right ones; opened. */
static void put_tagged(struct bench *b, const char *path, unsigned char *kept, size_t n, bool wrong)
{
    char sum[MD5_TEXT];
    assert_true(md5_text(sum, content, n));
    memcpy(kept, content, n);
    kept[n / 3] ^= wrong ? 1 : 0;
    server_put(&b->server, path, kept, n, sum);
    close_it(b);
    snprintf(b->url, sizeof b->url, "http://127.0.0.1:%d%s", b->server.port, path);
    open_it(b);
}

/* From front to back, in bites that are no pieces. *right: as the content. */
static int read_through(struct bench *b, bool *right, struct err *e)
{
    enum { BITE = 50000 };
    static unsigned char p[BITE];
    *right = true;
    for (int64_t at = 0, n, all = object_bytes(b->o); at < all; at += n) {
        n = all - at < BITE ? all - at : BITE;
        int code = object_read(b->o, at, (size_t)n, p, e);
        if (code) return code;
        *right &= !memcmp(p, content + at, (size_t)n);
    }
    return OK;
}

/* One of the pieces comes wrong, once: nobody goes on with it, and it does not come again from the folder. */
static void tags_of_passing(void **state)
{
    (void)state;
    static unsigned char kept[N];
    struct bench b;
    struct err e = {0};
    bool right;
    for (int size = 0; size < 2; size++)
        for (int cache = 0; cache < 2; cache++) {
            size_t n = size ? N : PIECE - 5;
            begin(&b, cache);
            put_tagged(&b, "/b/tagged", kept, n, false);
            server_trouble(&b.server, WRONG_BYTE, 1, 0, "");
            b.server.pass = size ? 3 : 0;
            int code = read_through(&b, &right, &e);
            if (size) assert_int_equal(code, ERR_IO);
            if (size) says(&e, "/b/tagged|MD5|start again");
            else assert_true(!code && right);
            close_it(&b);
            open_it(&b);
            if (read_through(&b, &right, &e)) fail_msg("%s", e.text);
            assert_true(right);
            end(&b);
        }
}

/* A folder that has a wrong piece from before, of a tutti that did not compare. */
static void tags_of_kept(void **state)
{
    (void)state;
    static unsigned char kept[N];
    struct bench b;
    struct err e = {0};
    bool right;
    begin(&b, true);
    put_tagged(&b, "/b/tagged", kept, PIECE / 2, false);
    b.options.own_sums = true;
    remote_free((close_it(&b), b.r));
    b.r = remote_new(&b.options);
    open_it(&b);
    server_trouble(&b.server, WRONG_BYTE, 1, 0, "");
    assert_true(!read_through(&b, &right, &e) && !right); /* who reads compares by himself */
    b.options.own_sums = false;
    remote_free((close_it(&b), b.r));
    b.r = remote_new(&b.options);
    open_it(&b);
    assert_int_equal(read_through(&b, &right, &e), ERR_IO);
    says(&e, "/b/tagged|MD5");
    close_it(&b);
    open_it(&b);
    assert_true(!read_through(&b, &right, &e) && right);
    end(&b);
}

/* What the store itself has is another: told, an error where its ETags were seen to be MD5s, other numbers where it is
 * always so. Not kept, unless they are. */
static void tags_of_store(void **state)
{
    (void)state;
    static unsigned char kept[4][N];
    struct bench b;
    struct err e = {0};
    bool right;
    for (int size = 0; size < 2; size++) {
        size_t n = size ? N : PIECE - 5;
        begin(&b, true);
        for (int i = 0; i < 3; i++) {
            char path[32];
            snprintf(path, sizeof path, "/b/odd-%d", i);
            put_tagged(&b, path, kept[i], n, true);
            for (int again = 0; again < 2; again++) {
                assert_true(!read_through(&b, &right, &e) && !right);
                int64_t fetched = remote_counts(b.r).fetched;
                close_it(&b);
                open_it(&b);
                if (!again) continue;
                assert_true(!read_through(&b, &right, &e) && !right);
                assert_true((remote_counts(b.r).fetched - fetched < (int64_t)n / 2) == (i > 0));
            }
        }
        end(&b);

        begin(&b, true);
        put_tagged(&b, "/b/right", kept[0], n, false);
        assert_true(!read_through(&b, &right, &e) && right);
        put_tagged(&b, "/b/odd", kept[1], n, true);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(read_through(&b, &right, &e), ERR_IO);
            says(&e, "/b/odd|the store keeps other bytes|MD5");
            close_it(&b);
            open_it(&b);
        }
        b.server.sealed = true;
        put_tagged(&b, "/b/sealed", kept[2], n, true);
        assert_true(!read_through(&b, &right, &e) && !right); /* its ETag is of something else */
        end(&b);
    }
}

/* ---- ends ---- */

static void *give_up_soon(void *arg)
{
    clock_sleep_s(0.1);
    atomic_store((atomic_int *)arg, 15);
    return NULL;
}

static void stopped(void **state)
{
    (void)state;
    struct bench b;
    struct err e = {0};
    atomic_int give_up = 0;
    pthread_t t;
    begin(&b, false);
    remote_free(b.r);
    b.options.give_up = &give_up;
    b.r = remote_new(&b.options);
    open_it(&b);
    server_trouble(&b.server, STALL, 1000, 0, "");
    assert_int_equal(pthread_create(&t, NULL, give_up_soon, &give_up), 0);
    assert_int_equal(check_read(&b, 0, 10, &e), ERR_SIGNAL);
    pthread_join(t, NULL);
    end(&b);
}

/* An object is closed while what is ahead of its reader is under way. */
static void closed_early(void **state)
{
    (void)state;
    struct bench b;
    begin(&b, false);
    for (int i = 0; i < 6; i++) {
        open_it(&b);
        read_right(&b, 0, 100);
        server_trouble(&b.server, i % 2 ? STALL : SLOW, 3, 0, "");
        read_right(&b, 100, 100);
        close_it(&b); /* and does not wait for what stalls, which would be for longer than a test may take */
        server_trouble(&b.server, FINE, 0, 0, "");
    }
    end(&b);
}

int main(void)
{
    static const char *const variables[] = {"http_proxy",          "HTTP_PROXY",        "https_proxy",
                                            "HTTPS_PROXY",         "all_proxy",         "ALL_PROXY",
                                            "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    for (uint64_t i = 0; i < N; i++) content[i] = (unsigned char)(hash64(&i, 2) ^ i >> 8);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),          cmocka_unit_test(sequential),   cmocka_unit_test(readers),
        cmocka_unit_test(cached),          cmocka_unit_test(passes),       cmocka_unit_test(goes_on),
        cmocka_unit_test(stays),           cmocka_unit_test(changes),      cmocka_unit_test(looking),
        cmocka_unit_test(whole),           cmocka_unit_test(no_version),   cmocka_unit_test(store),
        cmocka_unit_test(stopped),         cmocka_unit_test(closed_early), cmocka_unit_test(hiding),
        cmocka_unit_test(tags_of_passing), cmocka_unit_test(tags_of_kept), cmocka_unit_test(tags_of_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
