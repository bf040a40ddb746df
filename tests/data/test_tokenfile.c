/* Token files: round trips at every size that matters, damage at every byte, and writes that fail. */
#include "data_test.h"

#include "data/tokenfile.h"

static const struct tokenfile_head narrow = {.vocab = 65536, .eos = 65535, .fingerprint = 1234, .key = 99};
static const struct tokenfile_head wide = {.vocab = 65537, .eos = 0, .fingerprint = 5678, .key = 98};

static int32_t token(const struct tokenfile_head *h, int64_t i)
{
    return (int32_t)((uint64_t)(i + 1) * 2654435761u % (uint64_t)h->vocab);
}

static int write_tokens(const char *path, const struct tokenfile_head *h, int64_t n, int64_t fail_at, struct err *e)
{
    struct tokenfile_writer *w;
    int code = tokenfile_create(&w, path, h, e);
    if (code) return code;
    tokenfile_fail_at(w, fail_at);
    for (int64_t i = 0; i < n && !code;) { /* in parts of changing size */
        int32_t part[1000];
        int64_t k = 0, step = 1 + i * 7 % 1000;
        for (; k < step && i < n; k++, i++) part[k] = token(h, i);
        code = tokenfile_append(w, part, k, e);
    }
    if (!code) code = tokenfile_end_document(w, e);
    if (!code) return tokenfile_publish(w, e);
    tokenfile_abandon(w);
    return code;
}

static void test_round_trip(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    const int64_t sizes[] = {0,      1, 2, 3, 4, 5, 1000, (1 << 18) - 1, 1 << 18, (1 << 19) - 1, 1 << 19, (1 << 19) + 1,
                             1200000};
    for (int h = 0; h < 2; h++) {
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const struct tokenfile_head *head = h ? &wide : &narrow;
            struct tokenfile f;
            struct err e;
            assert_ok(write_tokens(path, head, sizes[s], 0, &e), &e);
            assert_ok(tokenfile_open(&f, path, &e), &e);
            assert_int_equal(f.n_tokens, sizes[s] + 1);
            assert_int_equal(f.n_documents, 1);
            assert_int_equal(f.width, h ? 4 : 2);
            assert_memory_equal(&f.head, head, sizeof *head);
            assert_ok(tokenfile_verify(&f, &e), &e);
            int32_t *ids = xmalloc((size_t)f.n_tokens * sizeof *ids);
            assert_ok(tokenfile_read(&f, 0, f.n_tokens, ids, &e), &e);
            for (int64_t i = 0; i < sizes[s]; i++) assert_int_equal(ids[i], token(head, i));
            assert_int_equal(ids[sizes[s]], head->eos);
            tokenfile_forget(&f, 0, f.n_tokens);
            assert_ok(tokenfile_read(&f, sizes[s] / 2, 1, ids, &e), &e); /* still there after forgetting */
            assert_int_equal(ids[0], sizes[s] / 2 < sizes[s] ? token(head, sizes[s] / 2) : head->eos);
            xfree(ids);
            tokenfile_close(&f);
        }
    }
    xfree(path);
    scratch_free(dir);
}

static void test_find(void **state)
{
    (void)state;
    char *dir = scratch_new(), *tok = put_text(dir, "p.tok", "x"), *prefix = fs_join(dir, "p"),
         *other = fs_join(dir, "q");
    char *found = tokenfile_find(prefix);
    assert_string_equal(found, tok);
    xfree(found);
    found = tokenfile_find(tok);
    assert_string_equal(found, tok);
    xfree(found);
    assert_null(tokenfile_find(other));
    assert_null(tokenfile_find(dir));
    xfree(put_text(dir, "p", "a text of the same name comes first"));
    assert_null(tokenfile_find(prefix));
    xfree(tok);
    xfree(prefix);
    xfree(other);
    scratch_free(dir);
}

/* A file cut at any length, or with any byte changed, is found out by opening, verifying or reading. */
static void test_damage(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok"), *whole;
    struct err e;
    size_t n;
    assert_ok(write_tokens(path, &narrow, 300, 0, &e), &e);
    assert_ok(fs_read_all(path, 1 << 20, &whole, &n, &e), &e);
    for (size_t cut = 0; cut < n; cut += cut < 4090 || (cut > 4100 && cut < n - 80) ? 37 : 1) {
        struct tokenfile f;
        xfree(put_file(dir, "x.tok", whole, cut));
        assert_err(tokenfile_open(&f, path, &e), &e, ERR_CORRUPT, "x.tok|token file");
    }
    for (size_t at = 0, step; at < n; at += step) {
        step = at > 60 && at < 4080 ? 13 : 1;
        struct tokenfile f;
        whole[at] ^= 0x10;
        xfree(put_file(dir, "x.tok", whole, n));
        int code = tokenfile_open(&f, path, &e);
        if (!code) {
            code = tokenfile_verify(&f, &e);
            tokenfile_close(&f);
        }
        bool padding = at >= 4096 + 301 * 2 && at < 4096 + 608;
        if (!padding) assert_err(code, &e, ERR_CORRUPT, "x.tok|tokeni");
        whole[at] ^= 0x10;
    }
    xfree(whole);
    xfree(path);
    scratch_free(dir);
}

/* A token beyond the vocabulary is not handed out, even when nobody verified. */
static void test_token_out_of_range(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    struct tokenfile_head small = {.vocab = 10, .eos = 9};
    struct err e;
    assert_ok(write_tokens(path, &small, 100, 0, &e), &e);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 4096 + 2 * 50, SEEK_SET), 0);
    assert_int_equal(fputc(10, f), 10);
    assert_int_equal(fclose(f), 0);
    struct tokenfile t;
    int32_t ids[101];
    assert_ok(tokenfile_open(&t, path, &e), &e);
    assert_ok(tokenfile_read(&t, 0, 50, ids, &e), &e);
    assert_err(tokenfile_read(&t, 0, 101, ids, &e), &e, ERR_CORRUPT, "x.tok|id 10|vocabulary");
    assert_err(tokenfile_verify(&t, &e), &e, ERR_CORRUPT, "checksum");
    tokenfile_close(&t);
    xfree(path);
    scratch_free(dir);
}

/* Heads and tails that claim a terabyte, in files that are small, or that are a hole of that size. */
static void test_huge_claims(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    struct tokenfile f;
    struct err e;
    assert_ok(write_tokens(path, &narrow, 300, 0, &e), &e);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_err(tokenfile_open(&f, path, &e), &e, ERR_CORRUPT, "x.tok|end is missing");
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    assert_err(tokenfile_open(&f, path, &e), &e, ERR_CORRUPT, "x.tok|not a token file");
    xfree(path);
    scratch_free(dir);
}

/* Whichever write fails: an error, no half file, the file of before still there, and a later attempt succeeds. */
static void test_disk_full(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok"), **names;
    struct tokenfile f;
    struct err e;
    int n, failures = 0;
    assert_ok(write_tokens(path, &narrow, 10, 0, &e), &e);
    for (int64_t at = 1; write_tokens(path, &narrow, 1200000, at, &e); at++, failures++) {
        assert_int_equal(e.code, ERR_IO);
        assert_ok(fs_list(dir, &names, &n, &e), &e);
        assert_int_equal(n, 1);
        fs_list_free(names, n);
        assert_ok(tokenfile_open(&f, path, &e), &e);
        assert_int_equal(f.n_tokens, 11);
        tokenfile_close(&f);
    }
    assert_true(failures >= 3);
    assert_ok(tokenfile_open(&f, path, &e), &e);
    assert_int_equal(f.n_tokens, 1200001);
    tokenfile_close(&f);
    xfree(path);
    scratch_free(dir);
}

static void test_one_writer_at_a_time(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok"), *left = put_text(dir, "x.tok.tmp", "of a killed process");
    struct tokenfile_writer *w, *second;
    struct err e;
    assert_ok(tokenfile_create(&w, path, &narrow, &e), &e);
    assert_err(tokenfile_create(&second, path, &narrow, &e), &e, ERR_REQUEST, "x.tok");
    assert_ok(tokenfile_end_document(w, &e), &e);
    assert_false(fs_exists(path));
    assert_ok(tokenfile_publish(w, &e), &e);
    assert_true(fs_exists(path));
    assert_false(fs_exists(left));
    assert_true(tokenfile_create(&w, "/nowhere/x.tok", &narrow, &e) < 0);
    assert_non_null(strstr(e.text, "/nowhere/x.tok"));
    xfree(left);
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_token_out_of_range),
        cmocka_unit_test(test_huge_claims),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_one_writer_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
