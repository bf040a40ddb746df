/* SPDX-License-Identifier: Apache-2.0 */
/* What gzip and zstd packed, in one piece and in several, cut anywhere, flipped anywhere; bombs. */
#include "data_test.h"

#include <zlib.h>
#include <zstd.h>

#include "source/source.h"
#include "source/unpack.h"

static const char text[] = "One line.\nAnother, which is a little longer, with \xC3\xA9 and \xE2\x82\xAC.\n";

static void pack_gzip(struct str *out, const void *p, size_t n)
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)p, .avail_in = (uInt)n};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    unsigned char buf[4096];
    int rc;
    do {
        z.next_out = buf;
        z.avail_out = sizeof buf;
        rc = deflate(&z, Z_FINISH);
        str_add(out, buf, sizeof buf - z.avail_out);
    } while (rc == Z_OK);
    assert_int_equal(rc, Z_STREAM_END);
    deflateEnd(&z);
}

static void pack_zstd(struct str *out, const void *p, size_t n)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    size_t room = ZSTD_compressBound(n);
    char *buf = xmalloc(room);
    size_t got = ZSTD_compress2(c, buf, room, p, n);
    assert_false(ZSTD_isError(got));
    str_add(out, buf, got);
    xfree(buf);
    ZSTD_freeCCtx(c);
}

typedef void pack_fn(struct str *out, const void *p, size_t n);
static const struct {
    const char *name, *ending;
    pack_fn *pack;
} kinds[] = {{"gzip", ".gz", pack_gzip}, {"zstd", ".zst", pack_zstd}};

/* All bytes of the file, read `step` at a time. */
static int unpack_all(const char *path, size_t step, struct str *out, struct err *e)
{
    struct blob *blob;
    assert_ok(blob_open(&blob, path, e), e);
    struct unpack *u = unpack_new(blob);
    char *buf = xmalloc(step);
    size_t got = 1;
    int code = OK;
    while (!code && got) {
        code = unpack_read(u, buf, step, &got, e);
        if (!code) str_add(out, buf, got);
    }
    if (!code) assert_int_equal(unpack_taken(u), blob->bytes);
    xfree(buf);
    unpack_free(u);
    blob_close(blob);
    return code;
}

static void test_pieces(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct str big = {0};
    uint64_t seed = 1;
    for (int i = 0; i < 60000; i++) str_printf(&big, "%u\n", dice(&seed) % 1000);
    for (size_t k = 0; k < 2; k++) {
        struct str packed = {0}, wanted = {0};
        for (int i = 0; i < 3; i++) { /* pieces: a text, nothing, a large one; then zeros */
            const void *p = i == 0 ? text : i == 1 ? "" : str_text(&big);
            size_t n = i == 0 ? sizeof text - 1 : i == 1 ? 0 : big.n;
            kinds[k].pack(&packed, p, n);
            str_add(&wanted, p, n);
        }
        if (k) str_add(&packed, "\x52\x2A\x4D\x18\x03\0\0\0abc", 11); /* a frame to be skipped */
        str_add(&packed, "\0\0\0\0\0\0", 6);
        char *path = put_file(dir, "f", packed.p, packed.n);
        for (size_t step = 1; step < 1 << 21; step = step * 7 + 1) {
            struct str got = {0};
            struct err e;
            assert_ok(unpack_all(path, step, &got, &e), &e);
            assert_int_equal(got.n, wanted.n);
            assert_memory_equal(got.p, wanted.p, got.n);
            str_free(&got);
        }
        str_add(&packed, "junk", 4);
        xfree(path);
        path = put_file(dir, "f", packed.p, packed.n);
        struct str got = {0};
        struct err e;
        assert_err(unpack_all(path, 100, &got, &e), &e, ERR_CORRUPT, "something else follows");
        str_free(&got);
        str_free(&packed);
        str_free(&wanted);
        xfree(path);
    }
    str_free(&big);
    scratch_free(dir);
}

/* Every cut is an error, and every flipped bit, but for the few that mean nothing and leave the bytes as they were. */
static void test_damage(void **state)
{
    (void)state;
    char *dir = scratch_new();
    for (size_t k = 0; k < 2; k++) {
        struct str packed = {0};
        kinds[k].pack(&packed, text, sizeof text - 1);
        for (size_t n = 4; n < packed.n; n++) {
            char *path = put_file(dir, "f", packed.p, n);
            struct str got = {0};
            struct err e;
            assert_err(unpack_all(path, 100, &got, &e), &e, ERR_CORRUPT, kinds[k].name);
            if (!strstr(e.text, "cut short")) fail_msg("%s", e.text);
            str_free(&got);
            xfree(path);
        }
        int missed = 0;
        for (size_t bit = 8 * 4; bit < 8 * packed.n; bit++) {
            char *copy = xmalloc(packed.n);
            memcpy(copy, packed.p, packed.n);
            copy[bit / 8] ^= (char)(1 << bit % 8);
            char *path = put_file(dir, "f", copy, packed.n);
            struct str got = {0};
            struct err e;
            int code = unpack_all(path, 100, &got, &e);
            if (!code && (got.n != sizeof text - 1 || memcmp(got.p, text, got.n)))
                fail_msg("%s: bit %zu: other bytes, and no error", kinds[k].name, bit);
            missed += !code;
            str_free(&got);
            xfree(path);
            xfree(copy);
        }
        if (missed >
            (k ? 8 : 8 * 6 + 7)) /* zstd: unused bits; gzip: time, flags, system, and what fills its last byte */
            fail_msg("%s: %d bits of %zu are missed", kinds[k].name, missed, 8 * packed.n);
        str_free(&packed);
    }
    scratch_free(dir);
}

static void test_bombs(void **state)
{
    (void)state;
    char *dir = scratch_new();
    size_t n = (size_t)UNPACK_FREE + (16 << 20);
    char *zeros = xcalloc(n, 1);
    for (size_t k = 0; k < 2; k++) {
        struct str packed = {0}, got = {0};
        struct err e;
        kinds[k].pack(&packed, zeros, n);
        char *path = put_file(dir, "bomb", packed.p, packed.n);
        assert_err(unpack_all(path, 1 << 20, &got, &e), &e, ERR_REQUEST, "bomb|500 times");
        assert_true((int64_t)got.n <= UNPACK_FREE + (1 << 20));
        str_free(&got);
        str_free(&packed);
        xfree(path);
    }
    xfree(zeros);
    scratch_free(dir);
    /* A window of 1 GiB is asked for in the first bytes. */
    dir = scratch_new();
    struct str got = {0};
    struct err e;
    char *path = put_file(dir, "window", "\x28\xB5\x2F\xFD\0\xA0\x01\0\0", 9);
    assert_err(unpack_all(path, 100, &got, &e), &e, ERR_REQUEST, "window|128 MiB|--long=31");
    xfree(path);
    scratch_free(dir);
}

/* Sources: packed files are what they hold, in folders too. */
static void test_sources(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct str all = {0};
    for (size_t k = 0; k < 2; k++) {
        struct str packed = {0};
        char name[40];
        const char *lines = "{\"text\": \"one\"}\n{\"text\": \"two\"}\n";
        kinds[k].pack(&packed, lines, strlen(lines));
        snprintf(name, sizeof name, "%zu.jsonl%s", k, kinds[k].ending);
        xfree(put_file(dir, name, packed.p, packed.n));
        str_clear(&packed);
        kinds[k].pack(&packed, text, sizeof text - 1);
        snprintf(name, sizeof name, "%zu.txt%s", k, kinds[k].ending);
        xfree(put_file(dir, name, packed.p, packed.n));
        str_clear(&packed);
        kinds[k].pack(&packed, "\0\1\2\3", 4);
        snprintf(name, sizeof name, "%zu.binary%s", k, kinds[k].ending);
        xfree(put_file(dir, name, packed.p, packed.n));
        str_free(&packed);
    }
    struct source *s;
    struct err e;
    const char *p = dir;
    assert_ok(source_open(&s, &p, 1, NULL, &e), &e);
    int got;
    while ((got = source_next(s, &e)) > 0) {
        size_t n;
        while ((got = source_read(s, &p, &n, &e)) > 0) str_add(&all, p, n);
        assert_int_equal(got, 0);
        str_putc(&all, '|');
    }
    assert_int_equal(got, 0);
    struct str wanted = {0};
    str_printf(&wanted, "one|two|%s|one|two|%s|", text, text);
    assert_string_equal(str_text(&all), str_text(&wanted));
    assert_int_equal(source_n_skipped(s), 2);
    assert_int_equal(source_bytes_done(s), source_bytes(s));
    source_close(s);
    str_free(&wanted);
    str_free(&all);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_bombs),
        cmocka_unit_test(test_sources),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
