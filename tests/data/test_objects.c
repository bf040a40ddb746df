/* SPDX-License-Identifier: Apache-2.0 */
/* Every kind of input behind an address is what it is as a file: the same documents, the same tokens, the same batches.
 * A server that fails in passing changes nothing; one that goes away is an error with the step it belongs to. */
#include "data_test.h"

#include <zlib.h>

#include "data/dataset.h"
#include "data/prefetch.h"
#include "data/tokenfile.h"
#include "data/tokenize.h"
#include "object_server.h"
#include "remote/remote.h"
#include "source/source.h"

static struct object_server server;
static struct remote_options options;
static char *dir;

static int set_up(void **state)
{
    (void)state;
    static const char *const variables[] =
        {"http_proxy",        "HTTP_PROXY",           "all_proxy", "ALL_PROXY", "AWS_ENDPOINT_URL_S3",
         "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    dir = scratch_new();
    server_start(&server);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    options = remote_defaults();
    options.connections = 3;
    options.tries = 3;
    options.pause_s = 0.005;
    options.piece = 64 << 10;
    options.cache_limit = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    server_stop(&server);
    scratch_free(dir);
    return 0;
}

/* A file of the folder, given under /b/NAME too. */
static char *put_both(const char *folder, const char *name, const void *p, size_t n)
{
    char key[100], tag[40];
    snprintf(key, sizeof key, "/b/%s", name);
    snprintf(tag, sizeof tag, "%zu-%s", n, name);
    for (char *c = tag; *c; c++)
        if (*c == '/') *c = '-';
    server_put(&server, key, p, n, tag);
    return put_file(folder, name, p, n);
}

static char *http_of(const char *name)
{
    struct str s = {0};
    str_printf(&s, "http://127.0.0.1:%d/b/%s", server.port, name);
    return s.p;
}

/* All documents, with their ends. */
static void read_all(const char *path, struct str *out)
{
    struct source *s;
    struct err e;
    const char *p;
    size_t n;
    int got;
    str_clear(out);
    assert_ok(source_open_with(&s, &path, 1, &(struct source_options){.remote = &options}, &e), &e);
    while ((got = source_next(s, &e)) > 0) {
        while ((got = source_read(s, &p, &n, &e)) > 0) str_add(out, p, n);
        assert_ok(got, &e);
        str_puts(out, "\n--\n");
    }
    assert_ok(got, &e);
    assert_int_equal(source_bytes_done(s), source_bytes(s));
    source_close(s);
}

static void pack(struct str *out, const struct str *text)
{
    z_stream z = {.next_in = (unsigned char *)text->p, .avail_in = (unsigned)text->n};
    static unsigned char packed[1 << 20];
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = packed;
    z.avail_out = sizeof packed;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    str_add(out, packed, z.total_out);
    deflateEnd(&z);
}

static void formats(void **state)
{
    (void)state;
    struct str text = {0}, jsonl = {0}, csv = {0}, gz = {0}, here = {0}, there = {0};
    str_puts(&csv, "id,text\n");
    for (int i = 0; i < 9000; i++) {
        str_printf(&text, "Line %d of a text of more than one piece.\n", i);
        str_printf(&jsonl, "{\"text\": \"Record %d \\u00e9\", \"n\": %d}\n", i, i * 7);
        str_printf(&csv, "%d,\"row, %d\"\n", i, i);
    }
    pack(&gz, &jsonl);
    struct {
        const char *name;
        const struct str *s;
    } files[] = {{"f/t.txt", &text}, {"f/r.jsonl", &jsonl}, {"f/c.csv", &csv}, {"f/sub/z.jsonl.gz", &gz}};
    for (size_t i = 0; i < 4; i++) {
        char *path = put_both(dir, files[i].name, files[i].s->p, files[i].s->n), *url = http_of(files[i].name), s3[100];
        snprintf(s3, sizeof s3, "s3://b/%s", files[i].name);
        read_all(path, &here);
        assert_true(here.n > 100000);
        for (int way = 0; way < 4; way++) {
            static const enum trouble t[] = {FINE, STATUS, TRUNCATE, RESET};
            server_trouble(&server, t[way], way ? 2 : 0, 503, "");
            read_all(way % 2 ? s3 : url, &there);
            assert_int_equal(here.n, there.n);
            assert_memory_equal(here.p, there.p, here.n);
        }
        xfree(path);
        xfree(url);
    }
    /* A folder and the prefix of a bucket that holds the same names. */
    char *folder = fs_join(dir, "f");
    read_all(folder, &here);
    read_all("s3://b/f", &there);
    assert_int_equal(here.n, there.n);
    assert_memory_equal(here.p, there.p, here.n);
    read_all("s3://b/f/", &there);
    assert_memory_equal(here.p, there.p, here.n);
    xfree(folder);
    struct str *all[] = {&text, &jsonl, &csv, &gz, &here, &there};
    for (size_t i = 0; i < 6; i++) str_free(all[i]);
    while (server.n_objects) server_remove(&server, server.object[0].path);
}

static void refused(void **state)
{
    (void)state;
    struct source *s;
    struct err e;
    char *nothing = http_of("nothing.txt"), *empty = http_of("empty.txt");
    server_put(&server, "/b/empty.txt", "", 0, "x");
    const char *rows[][2] = {{nothing, "HTTP 404"},
                             {empty, "is empty"},
                             {"s3://b/none", "HTTP 404"},
                             {"s3://b/none/", "holds no object"},
                             {"gs://b/x", "gs://b/x|is an address of a kind that is not read"},
                             {"s3://", "names no bucket"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_err(source_open_with(&s, &rows[i][0], 1, &(struct source_options){.remote = &options}, &e), &e,
                   ERR_REQUEST, rows[i][1]);
    server_remove(&server, "/b/empty.txt");
    xfree(nothing);
    xfree(empty);
}

/* The key of the cached tokens is of the object's version. */
static void versions(void **state)
{
    (void)state;
    struct source *s;
    struct err e;
    uint64_t key[3];
    char *url = http_of("v.txt");
    const char *path = url;
    for (int i = 0; i < 3; i++) {
        server_put(&server, "/b/v.txt", "abc", 3, i == 2 ? "two" : "one");
        assert_ok(source_open_with(&s, &path, 1, &(struct source_options){.remote = &options}, &e), &e);
        key[i] = source_key(s);
        source_close(s);
    }
    assert_true(key[0] == key[1] && key[1] != key[2]);
    server_remove(&server, "/b/v.txt");
    xfree(url);
}

/* ---- batches ---- */

static char *make_tokens(struct tokenizer **t)
{
    struct str text = {0};
    struct err e;
    for (int i = 0; i < 60000; i++) str_printf(&text, "word %d ", i * 7919 % 10007);
    char *path = put_text(dir, "w.txt", text.p), *out = fs_join(dir, "w.tok");
    struct tokenize_result r;
    assert_ok(tokenizer_open(t, "byte", &e), &e);
    assert_ok(tokenize(*t, (const char *const *)&path, 1, NULL, out, 2, &r, &e), &e);
    str_free(&text);
    xfree(path);
    return out;
}

static struct dataset *open_data(const char *path, const struct tokenizer *t)
{
    struct dataset *d;
    struct err e;
    char *cache = fs_join(dir, "cache");
    struct dataset_source source = {.path = path, .weight = 1};
    assert_ok(dataset_open(&d,
                           &(struct dataset_options){.sources = &source,
                                                     .n_sources = 1,
                                                     .tokenizer = t,
                                                     .seq_len = 64,
                                                     .seed = 7,
                                                     .shuffled = true,
                                                     .cache_dir = cache,
                                                     .remote = &options},
                           &e),
              &e);
    xfree(cache);
    return d;
}

static void token_files(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e;
    char *path = make_tokens(&t), *url = http_of("w.tok"), *bytes;
    size_t n;
    assert_ok(fs_read_all(path, 1 << 26, &bytes, &n, &e), &e);
    server_put(&server, "/b/w.tok", bytes, n, "tok");
    struct dataset *here = open_data(path, t), *there = open_data(url, t), *store = open_data("s3://b/w.tok", t);
    assert_true(dataset_fingerprint(here) == dataset_fingerprint(there));
    size_t objects = dataset_object_bytes(there);
    assert_int_equal(dataset_object_bytes(here), 0);
    assert_int_equal(objects, remote_bytes(&options));
    void *memory = xmalloc(objects);
    struct batch a, b;
    batch_init(&a, 8, 64);
    batch_init(&b, 8, 64);
    for (int64_t step = 0; step < 20; step++) {
        if (step == 3) dataset_objects_in(there, memory);
        if (step == 5) server_trouble(&server, STATUS, 2, 500, "");
        assert_ok(dataset_batch(here, step, 8, 0, &a, &e), &e);
        assert_ok(dataset_batch(step % 2 ? there : store, step, 8, 0, &b, &e), &e);
        for (int f = 0; f <= BATCH_DOCUMENTS; f++)
            assert_memory_equal(a.field[f], b.field[f], batch_bytes(&batch_rows[f], 8, 64));
    }
    dataset_close(here);
    dataset_close(there);
    dataset_close(store);
    xfree(memory);

    /* It goes away while batches are prepared: every batch that could be made comes, then the error, which stays. */
    struct prefetch *p;
    const struct batch *got;
    there = open_data(url, t);
    assert_ok(prefetch_new(&p, there, &(struct prefetch_config){0, 8, 0, 8, 4, 3, NULL}, &e), &e);
    assert_ok(prefetch_next(p, &got, &e), &e);
    server_remove(&server, "/b/w.tok");
    int code = OK, steps = 1;
    while (!(code = prefetch_next(p, &got, &e)) && steps < 1000) steps++;
    assert_true(steps < 1000);
    assert_err(code, &e, ERR_IO, "the batch of step|/b/w.tok|HTTP 404|it was there when its reading began");
    assert_err(prefetch_next(p, &got, &e), &e, ERR_IO, "HTTP 404");
    prefetch_free(p);
    dataset_close(there);
    batch_fini(&a);
    batch_fini(&b);
    tokenizer_free(t);
    xfree(bytes);
    xfree(path);
    xfree(url);
}

/* A byte that a server gives otherwise than it was written is seen by the token file's checksum. */
static void wrong_bytes(void **state)
{
    (void)state;
    struct tokenizer *t;
    struct err e;
    char *path = make_tokens(&t), *url = http_of("w.tok"), *bytes;
    size_t n;
    assert_ok(fs_read_all(path, 1 << 26, &bytes, &n, &e), &e);
    bytes[4096 + 30000] ^= 4;
    server_put(&server, "/b/w.tok", bytes, n, "tok");
    struct dataset *d = open_data(url, t);
    struct batch b;
    int code = OK;
    batch_init(&b, 8, 64);
    for (int64_t step = 0; step < 1000 && !code; step++) code = dataset_batch(d, step, 8, 0, &b, &e);
    assert_err(code, &e, ERR_CORRUPT, "/b/w.tok|checksum");
    batch_fini(&b);
    dataset_close(d);
    server_remove(&server, "/b/w.tok");
    tokenizer_free(t);
    xfree(bytes);
    xfree(path);
    xfree(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(formats), cmocka_unit_test(refused), cmocka_unit_test(versions),
                                       cmocka_unit_test(token_files), cmocka_unit_test(wrong_bytes)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
