/* SPDX-License-Identifier: Apache-2.0 */
/* Token files: round trips at every size that matters, damage at every byte, writes that fail, and reads that fail: the
 * linker puts this file between the program and pread (--wrap). */
#include "data_test.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/hash.h"
#include "data/tokenfile.h"
#include "data/tokenfile_format.h"

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
static struct {
    int64_t calls, fail_at; /* the call that fails; 0: none */
    int64_t ends;           /* bytes that the file seems to have from now on; 0: as it is */
} reads;

ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    reads.calls++;
    if (reads.calls == reads.fail_at) {
        errno = EIO;
        return -1;
    }
    if (reads.ends && at >= reads.ends) return 0;
    if (reads.ends && at + (off_t)n > reads.ends) n = (size_t)(reads.ends - at);
    return __real_pread(fd, p, n > 5000 ? 5000 : n, at); /* calls may give less than was asked for */
}

static const struct tokenfile_head narrow = {.vocab = 65536, .eos = 65535, .fingerprint = 1234, .key = 99};
static const struct tokenfile_head wide = {.vocab = 65537, .eos = 0, .fingerprint = 5678, .key = 98};

static int32_t token(const struct tokenfile_head *h, int64_t i)
{
    return (int32_t)((uint64_t)(i + 1) * 2654435761u % (uint64_t)h->vocab);
}

static int write_tokens(const char *path, const struct tokenfile_head *h, int64_t n, int64_t fail_at, struct err *e)
{
    struct tokenfile_writer *w;
    int code = tokenfile_create(&w, &(bool){false}, path, h, e);
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
            assert_ok(tokenfile_read(&f, sizes[s] / 2, 1, ids, &e), &e); /* of a chunk that was compared before */
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
            int32_t one;
            code = tokenfile_read(&f, 7, 1, &one, &e); /* whichever is read first: its chunk is all of this file */
            struct err again;
            assert_int_equal(tokenfile_verify(&f, &again), code);
            tokenfile_close(&f);
        }
        assert_err(code, &e, ERR_CORRUPT, "x.tok|tokeni");
        whole[at] ^= 0x10;
    }
    xfree(whole);
    xfree(path);
    scratch_free(dir);
}

/* A token beyond the vocabulary is not handed out, even when whoever wrote it made a checksum of it. */
static void test_token_out_of_range(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    struct tokenfile_head small = {.vocab = 10, .eos = 9};
    struct tokenfile_writer *w;
    struct err e;
    int32_t ids[101] = {0};
    ids[50] = 10;
    assert_ok(tokenfile_create(&w, &(bool){false}, path, &small, &e), &e);
    assert_ok(tokenfile_append(w, ids, 100, &e), &e);
    assert_ok(tokenfile_publish(w, &e), &e);
    struct tokenfile t;
    assert_ok(tokenfile_open(&t, path, &e), &e);
    assert_ok(tokenfile_read(&t, 0, 50, ids, &e), &e);
    assert_err(tokenfile_read(&t, 0, 100, ids, &e), &e, ERR_CORRUPT, "x.tok|id 10|vocabulary");
    tokenfile_close(&t);
    xfree(path);
    scratch_free(dir);
}

static void poke(const char *path, long at, const void *p, size_t n)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A page zeroed in place: samples of its chunk are refused whenever they come, with what to do; the others are read. */
static void test_zeroed_page(void **state)
{
    (void)state;
    static const char zeros[4096];
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    struct tokenfile f;
    struct err e;
    int32_t ids[64];
    assert_ok(write_tokens(path, &narrow, 100000, 0, &e), &e); /* chunks of 8192 tokens: thirteen */
    assert_ok(tokenfile_open(&f, path, &e), &e);
    assert_ok(tokenfile_read(&f, 40000, 64, ids, &e), &e);           /* chunk 4 was compared */
    poke(path, 4096 + 2 * 70000 / 4096 * 4096, zeros, sizeof zeros); /* chunk 8 */
    assert_ok(tokenfile_read(&f, 50000, 64, ids, &e), &e);
    for (int i = 0; i < 64; i++) assert_int_equal(ids[i], token(&narrow, 50000 + i));
    assert_ok(tokenfile_read(&f, 98304, 64, ids, &e), &e);
    for (int i = 0; i < 2; i++) /* also far from the page, and again */
        assert_err(tokenfile_read(&f, 65600, 64, ids, &e), &e, ERR_CORRUPT,
                   "x.tok|tokens 65536 to 73728, which are bytes 135168 to 151552 of the file|tokenize the text again");
    f.made_from = xstrdup("/some/text");
    assert_err(tokenfile_read(&f, 65530, 64, ids, &e), &e, ERR_CORRUPT,
               "x.tok|remove it and start again|made anew from /some/text");
    int64_t bytes;
    double seconds;
    tokenfile_cost(&f, &bytes, &seconds);
    assert_int_equal(bytes, 3 * 16384 + (100001 - 98304) * 2);
    assert_true(seconds > 0);
    tokenfile_close(&f);
    xfree(path);
    scratch_free(dir);
}

/* A file of version 1, as earlier programs wrote it: the same with a checksum per MiB. */
static void test_version_1(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok"), *whole;
    struct tokenfile f;
    struct err e;
    struct head_bytes head;
    struct tail_bytes tail;
    size_t n, body = 1200008; /* of 600001 tokens, 6 zeros after them: chunks of 1 MiB and the rest */
    assert_ok(write_tokens(path, &narrow, 600000, 0, &e), &e);
    assert_ok(fs_read_all(path, 1 << 24, &whole, &n, &e), &e);
    memcpy(&head, whole, sizeof head);
    memcpy(&tail, whole + n - sizeof tail, sizeof tail);
    head.version = 1;
    head.sum = hash64(&head, offsetof(struct head_bytes, sum));
    memcpy(whole, &head, sizeof head);
    uint64_t sums[2] = {hash64(whole + 4096, 1 << 20), hash64(whole + 4096 + (1 << 20), 1200002 - (1 << 20))};
    memcpy(whole + 4096 + body, sums, sizeof sums);
    tail.n_sums = 2;
    tail.sums_sum = hash64(sums, sizeof sums);
    tail.head_sum = head.sum;
    tail.sum = hash64(&tail, offsetof(struct tail_bytes, sum));
    memcpy(whole + 4096 + body + sizeof sums, &tail, sizeof tail);
    n = 4096 + body + sizeof sums + sizeof tail;
    xfree(put_file(dir, "x.tok", whole, n));
    assert_ok(tokenfile_open(&f, path, &e), &e);
    int32_t id;
    for (int64_t at = 0; at < 600000; at += 9973) {
        assert_ok(tokenfile_read(&f, at, 1, &id, &e), &e);
        assert_int_equal(id, token(&narrow, at));
    }
    tokenfile_close(&f);
    poke(path, 4096 + 1100000, "?", 1);
    assert_ok(tokenfile_open(&f, path, &e), &e);
    assert_ok(tokenfile_read(&f, 1000, 1, &id, &e), &e);
    assert_err(tokenfile_read(&f, 599000, 1, &id, &e), &e, ERR_CORRUPT,
               "x.tok|tokens 524288 to 600001|tokenize the text again");
    tokenfile_close(&f);
    xfree(whole);
    xfree(path);
    scratch_free(dir);
}

/* Opens, reads some samples, all of it, and verifies. */
static int use(const char *path, struct err *e)
{
    struct tokenfile f;
    int32_t ids[5000];
    int code = tokenfile_open(&f, path, e);
    if (code) return code;
    for (int64_t at = 0; at + 5000 < f.n_tokens && !code; at += 13000) code = tokenfile_read(&f, at, 5000, ids, e);
    if (!code) code = tokenfile_verify(&f, e);
    tokenfile_close(&f);
    return code;
}

/* Whichever read fails: an error that names file and offset, and nothing else happens. */
static void test_reads_that_fail(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    struct err e;
    assert_ok(write_tokens(path, &narrow, 100000, 0, &e), &e);
    for (reads.fail_at = 1;; reads.fail_at++) {
        reads.calls = 0;
        int code = use(path, &e);
        if (reads.calls < reads.fail_at) {
            assert_int_equal(code, OK);
            break;
        }
        assert_err(code, &e, ERR_IO, "x.tok: cannot be read at offset |wanted |Input/output error");
    }
    assert_true(reads.fail_at > 50);
    reads.fail_at = 0;
    scratch_free(dir);
    xfree(path);
}

/* A file that gets shorter while it is open: an error at the first byte that is gone. The map of it would have been a
 * SIGBUS. */
static void test_shrinks_while_open(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    struct tokenfile f;
    struct err e;
    int32_t ids[64];
    assert_ok(write_tokens(path, &narrow, 100000, 0, &e), &e);
    assert_ok(tokenfile_open(&f, path, &e), &e);
    assert_int_equal(f.file.bytes, 204272);
    assert_ok(tokenfile_read(&f, 0, 64, ids, &e), &e);
    assert_int_equal(truncate(path, 70000), 0);
    assert_ok(tokenfile_read(&f, 64, 64, ids, &e), &e); /* compared before, and still there */
    assert_err(tokenfile_read(&f, 33000, 64, ids, &e), &e, ERR_IO,
               "x.tok: ends at or before byte 70000: wanted 16384 bytes at offset 69632, got 368; it had 204272 bytes "
               "when it was opened");
    assert_err(tokenfile_verify(&f, &e), &e, ERR_IO, "x.tok: ends at or before byte 204104"); /* where a checksum was */
    tokenfile_close(&f);
    assert_err(tokenfile_open(&f, path, &e), &e, ERR_CORRUPT, "x.tok|cut short");
    for (reads.ends = 1; reads.ends < 204272; reads.ends += 997) { /* between the opening and any read */
        int code = use(path, &e);
        assert_true(code == ERR_CORRUPT || code == ERR_IO);
    }
    reads.ends = 0;
    scratch_free(dir);
    xfree(path);
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
    assert_ok(tokenfile_create(&w, &(bool){false}, path, &narrow, &e), &e);
    assert_err(tokenfile_create(&second, &(bool){false}, path, &narrow, &e), &e, ERR_REQUEST, "x.tok");
    assert_ok(tokenfile_end_document(w, &e), &e);
    assert_false(fs_exists(path));
    assert_ok(tokenfile_publish(w, &e), &e);
    assert_true(fs_exists(path));
    assert_false(fs_exists(left));
    assert_true(tokenfile_create(&w, &(bool){false}, "/nowhere/x.tok", &narrow, &e) < 0);
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
        cmocka_unit_test(test_zeroed_page),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_reads_that_fail),
        cmocka_unit_test(test_shrinks_while_open),
        cmocka_unit_test(test_huge_claims),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_one_writer_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
