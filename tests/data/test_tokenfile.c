/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps pread */
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

static bool trained(int64_t i) { return i % 97 != 5; }

/* One document of all tables. fail_at < 0: the writes beside the tokens. */
static int write_tokens(const char *path, const struct tokenfile_head *h, int64_t n, int64_t fail_at, struct err *e)
{
    struct tokenfile_writer *w;
    int code = tokenfile_create(&w, &(bool){false}, path, h, e);
    if (code) return code;
    tokenfile_fail_at(w, fail_at, false);
    if (fail_at < 0) tokenfile_fail_at(w, -fail_at, true);
    code = tokenfile_origin_next(w, "in.txt", 17, e);
    for (int64_t i = 0; i < n && !code;) { /* in parts of changing size */
        int32_t part[1000];
        unsigned char mask[1000];
        int64_t k = 0, step = 1 + i * 7 % 1000;
        for (; k < step && i < n; k++, i++) {
            part[k] = token(h, i);
            mask[k] = trained(i);
        }
        code = tokenfile_append_masked(w, part, mask, k, e);
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
            unsigned char *mask = xmalloc((size_t)f.n_tokens);
            assert_ok(tokenfile_mask(&f, 0, f.n_tokens, mask, &e), &e);
            for (int64_t i = 0; i < sizes[s]; i++) assert_int_equal(mask[i], trained(i));
            assert_int_equal(mask[sizes[s]], 1);
            assert_int_equal(tokenfile_masked(&f), sizes[s] > 5);
            xfree(mask);
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
    for (size_t cut = 0; cut < n; cut += cut < 4090 || (cut > 4100 && cut < n - 160) ? 37 : 1) {
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
            unsigned char bit;
            char *input = NULL;
            int64_t from, to;
            if (!code) code = tokenfile_mask(&f, 7, 1, &bit, &e);
            if (!code) code = tokenfile_document(&f, 0, &from, &to, &e);
            if (!code) code = tokenfile_origin(&f, 0, &input, &from, &e);
            assert_int_equal(tokenfile_verify(&f, &again), code);
            xfree(input);
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

/* The checksums of a file that was changed, put right; its sizes are believed. */
static void reseal(char *whole, size_t n)
{
    struct tail_bytes tail;
    memcpy(&tail, whole + n - sizeof tail, sizeof tail);
    size_t at = 4096, sums = at;
    for (int t = 0; t < TOKENFILE_TABLES; t++) sums += (size_t)(tail.bytes[t] + 7) / 8 * 8;
    for (int t = 0; t < TOKENFILE_TABLES; t++) {
        size_t first = sums, bytes = (size_t)tail.bytes[t];
        for (size_t from = 0; from < bytes; from += TOKENFILE_CHUNK, sums += 8) {
            uint64_t sum = hash64(whole + at + from, bytes - from < TOKENFILE_CHUNK ? bytes - from : TOKENFILE_CHUNK);
            memcpy(whole + sums, &sum, sizeof sum);
        }
        tail.sums_sum[t] = hash64(whole + first, sums - first);
        at += (bytes + 7) / 8 * 8;
    }
    tail.sum = hash64(&tail, offsetof(struct tail_bytes, sum));
    memcpy(whole + n - sizeof tail, &tail, sizeof tail);
}

/* The file as earlier programs wrote it: tokens only, under checksums of so many bytes. */
static void make_older(const char *dir, uint32_t version, size_t chunk)
{
    char *path = fs_join(dir, "x.tok"), *whole;
    struct err e;
    struct head_bytes head;
    struct tail_bytes tail;
    size_t n;
    assert_ok(fs_read_all(path, 1 << 24, &whole, &n, &e), &e);
    memcpy(&head, whole, sizeof head);
    memcpy(&tail, whole + n - sizeof tail, sizeof tail);
    head.version = version;
    head.sum = hash64(&head, offsetof(struct head_bytes, sum));
    memcpy(whole, &head, sizeof head);
    size_t bytes = (size_t)tail.bytes[TABLE_TOKENS], at = 4096 + (bytes + 7) / 8 * 8;
    uint64_t sums[1000];
    struct tail_bytes_2 old = {.n_tokens = tail.n_tokens, .n_documents = tail.n_documents, .head_sum = head.sum};
    for (size_t from = 0; from < bytes; from += chunk)
        sums[old.n_sums++] = hash64(whole + 4096 + from, bytes - from < chunk ? bytes - from : chunk);
    old.sums_sum = hash64(sums, (size_t)old.n_sums * 8);
    old.sum = hash64(&old, offsetof(struct tail_bytes_2, sum));
    memcpy(old.magic, TOKENFILE_END, 8);
    memcpy(whole + at, sums, (size_t)old.n_sums * 8);
    memcpy(whole + at + (size_t)old.n_sums * 8, &old, sizeof old);
    xfree(put_file(dir, "x.tok", whole, at + (size_t)old.n_sums * 8 + sizeof old));
    xfree(whole);
    xfree(path);
}

/* Versions 1 (a checksum per MiB) and 2, as earlier programs wrote them. */
static void test_older_versions(void **state)
{
    (void)state;
    for (uint32_t version = 1; version <= 2; version++) {
        char *dir = scratch_new(), *path = fs_join(dir, "x.tok"), *input;
        struct tokenfile f;
        struct err e;
        int32_t id;
        int64_t from, to;
        unsigned char bit;
        assert_ok(write_tokens(path, &narrow, 600000, 0, &e), &e);
        make_older(dir, version, version == 1 ? 1 << 20 : 16 << 10);
        assert_ok(tokenfile_open(&f, path, &e), &e);
        for (int64_t at = 0; at < 600000; at += 9973) {
            assert_ok(tokenfile_read(&f, at, 1, &id, &e), &e);
            assert_int_equal(id, token(&narrow, at));
        }
        assert_false(tokenfile_masked(&f) || tokenfile_has_ends(&f));
        assert_ok(tokenfile_mask(&f, 5, 1, &bit, &e), &e);
        assert_int_equal(bit, 1);
        atomic_int stop = 1;
        assert_err(tokenfile_find_ends(&f, &stop, &e), &e, ERR_SIGNAL, "x.tok");
        assert_ok(tokenfile_find_ends(&f, NULL, &e), &e);
        int64_t n = 0; /* a token that is the end of text by chance ends a document there */
        for (int64_t at = 0; at < 600000; at++) n += token(&narrow, at) == narrow.eos;
        assert_int_equal(f.n_documents, n + 1);
        for (int64_t i = 0, at = 0; i < f.n_documents; i++, at = to) {
            assert_ok(tokenfile_document(&f, i, &from, &to, &e), &e);
            assert_int_equal(from, at);
            assert_ok(tokenfile_read(&f, to - 1, 1, &id, &e), &e);
            assert_int_equal(id, narrow.eos);
        }
        assert_int_equal(to, 600001);
        assert_ok(tokenfile_origin(&f, 0, &input, &from, &e), &e);
        assert_true(!input && from == -1);
        tokenfile_close(&f);
        poke(path, 4096 + 1100000, "?", 1);
        assert_ok(tokenfile_open(&f, path, &e), &e);
        assert_ok(tokenfile_read(&f, 1000, 1, &id, &e), &e);
        assert_err(tokenfile_read(&f, version == 1 ? 599000 : 550000, 1, &id, &e), &e, ERR_CORRUPT,
                   version == 1 ? "x.tok|tokens 524288 to 600001|tokenize the text again"
                                : "x.tok|tokens 548864 to 557056|tokenize the text again");
        tokenfile_close(&f);
        xfree(path);
        scratch_free(dir);
    }
}

/* Length of document i without its end of text: some are empty, one is long. */
static int64_t length(int64_t i) { return i == 1000 ? 70000 : i % 7 == 3 ? 0 : i * 31 % 5; }

/* Where it came from: a file of every 1000, but for some of which nothing is known. */
static void origin_of(int64_t i, char name[32], int64_t *byte)
{
    snprintf(name, 32, i % 3000 < 100 ? "" : "part-%lld.jsonl", (long long)(i / 1000));
    *byte = i % 3000 < 100 ? -1 : i % 1000 == 500 ? -1 : 1000 * (i % 1000);
}

static void check_document(const struct tokenfile *f, int64_t i, int64_t begin)
{
    struct err e;
    int64_t from, to, wanted, byte, found;
    char name[32], *input;
    assert_ok(tokenfile_document(f, i, &from, &to, &e), &e);
    assert_true(from == begin && to == begin + length(i) + 1);
    assert_ok(tokenfile_document_of(f, to - 1, &found, &e), &e);
    assert_int_equal(found, i);
    assert_ok(tokenfile_document_of(f, from, &found, &e), &e);
    assert_int_equal(found, i);
    origin_of(i, name, &wanted);
    assert_ok(tokenfile_origin(f, i, &input, &byte, &e), &e);
    if (*name) assert_string_equal(input, name);
    else assert_null(input);
    assert_int_equal(byte, wanted);
    xfree(input);
}

/* Many documents, so that the tables beside the tokens are written to in pieces; the last has no end of text. */
static void test_documents(void **state)
{
    (void)state;
    enum { N = 150000 };
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    struct tokenfile_writer *w;
    struct tokenfile f;
    struct err e;
    int32_t *ids = xcalloc(70000, sizeof *ids);
    assert_ok(tokenfile_create(&w, &(bool){false}, path, &narrow, &e), &e);
    for (int64_t i = 0; i < N; i++) {
        char name[32];
        int64_t byte;
        origin_of(i, name, &byte);
        if (*name) assert_ok(tokenfile_origin_next(w, name, byte, &e), &e);
        assert_ok(tokenfile_append(w, ids, length(i), &e), &e);
        assert_ok(tokenfile_end_document(w, &e), &e);
    }
    assert_ok(tokenfile_append(w, ids, 3, &e), &e);
    assert_ok(tokenfile_publish(w, &e), &e);
    assert_ok(tokenfile_open(&f, path, &e), &e);
    assert_ok(tokenfile_verify(&f, &e), &e);
    assert_int_equal(f.n_documents, N + 1);
    assert_ok(tokenfile_find_ends(&f, NULL, &e), &e);
    int64_t *ends = xmalloc((N + 1) * sizeof *ends), at = 0;
    assert_ok(tokenfile_ends(&f, 0, N + 1, ends, &e), &e);
    for (int64_t i = 0; i < N; at = ends[i++]) {
        assert_int_equal(ends[i], at + length(i) + 1);
        if (i % 41 == 0 || i == N - 1 || i == 1000) check_document(&f, i, at);
    }
    assert_int_equal(ends[N], f.n_tokens);
    assert_int_equal(ends[N] - at, 3);
    assert_int_equal(f.table[TABLE_MASK].bytes, 0); /* all are trained on */
    tokenfile_close(&f);
    xfree(ends);
    xfree(ids);
    xfree(path);
    scratch_free(dir);
}

/* Masks that begin late, that end between bytes, and of the end of text only, read from anywhere. */
static void test_masks(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok");
    for (int late = 0; late < 1000; late = late * 3 + 1) {
        struct tokenfile_writer *w;
        struct tokenfile f;
        struct err e;
        int32_t ids[1000] = {0};
        unsigned char wanted[1100], found[1100];
        memset(wanted, 1, sizeof wanted);
        assert_ok(tokenfile_create(&w, &(bool){false}, path, &wide, &e), &e);
        assert_ok(tokenfile_append(w, ids, late, &e), &e);
        for (int i = 0; i < 50; i++) wanted[late + i] = i * i % 3 == 1;
        assert_ok(tokenfile_append_masked(w, ids, wanted + late, 50, &e), &e);
        assert_ok(tokenfile_end_document_masked(w, late % 2, &e), &e);
        wanted[late + 50] = late % 2;
        assert_ok(tokenfile_append(w, ids, 9, &e), &e);
        assert_ok(tokenfile_end_document(w, &e), &e);
        assert_ok(tokenfile_publish(w, &e), &e);
        assert_ok(tokenfile_open(&f, path, &e), &e);
        assert_true(tokenfile_masked(&f));
        assert_ok(tokenfile_mask(&f, f.n_tokens, 0, found, &e), &e);
        for (int64_t at = 0; at < f.n_tokens; at++)
            for (int64_t n = 1; n < 20 && at + n <= f.n_tokens; n += 6) {
                assert_ok(tokenfile_mask(&f, at, n, found, &e), &e);
                assert_memory_equal(found, wanted + at, n);
            }
        tokenfile_close(&f);
    }
    xfree(path);
    scratch_free(dir);
}

/* Tables that lie under right checksums: what they say is not believed. */
static void test_tables_that_lie(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok"), *whole, *input = NULL;
    struct err e;
    size_t n;
    assert_ok(write_tokens(path, &narrow, 300, 0, &e), &e);
    assert_ok(fs_read_all(path, 1 << 20, &whole, &n, &e), &e);
    size_t ends = 4096 + 608 + 40, inputs = ends + 16, names = inputs + 16;
    const struct {
        size_t at;
        int64_t value;
    } lies[] = {{ends, 0},
                {ends, -1},
                {ends, 302},
                {ends, INT64_MAX},
                {inputs, -1},
                {inputs, 2},
                {inputs, 1},
                {inputs + 8, -1},
                {inputs + 8, 7},
                {inputs + 8, 1 << 30},
                {names, 0x0101010101010101}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char *copy = xmalloc(n);
        struct tokenfile f;
        int64_t from = 0, to;
        memcpy(copy, whole, n);
        memcpy(copy + lies[i].at, &lies[i].value, lies[i].at == names ? 7 : 8);
        reseal(copy, n);
        xfree(put_file(dir, "x.tok", copy, n));
        assert_ok(tokenfile_open(&f, path, &e), &e);
        int code = tokenfile_document(&f, 0, &from, &to, &e);
        if (!code) code = tokenfile_origin(&f, 0, &input, &from, &e);
        if (lies[i].at == inputs && lies[i].value == 1) assert_true(!code && !input); /* none before document 0 */
        else assert_err(code, &e, ERR_CORRUPT, "x.tok: damaged token file|tokenize the text again");
        xfree(input);
        input = NULL;
        tokenfile_close(&f);
        xfree(copy);
    }
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
    for (int64_t at = 0; at + 5000 < f.n_tokens && !code; at += 13000)
        code = tokenfile_mask(&f, at, 5000, (unsigned char *)ids, e);
    char *input = NULL;
    int64_t from, to;
    if (!code) code = tokenfile_document_of(&f, 0, &from, e);
    if (!code) code = tokenfile_document(&f, 0, &from, &to, e);
    if (!code) code = tokenfile_origin(&f, 0, &input, &from, e);
    if (!code) code = tokenfile_verify(&f, e);
    xfree(input);
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
    assert_int_equal(f.file.bytes, 216936);
    assert_ok(tokenfile_read(&f, 0, 64, ids, &e), &e);
    assert_int_equal(truncate(path, 70000), 0);
    assert_ok(tokenfile_read(&f, 64, 64, ids, &e), &e); /* compared before, and still there */
    assert_err(tokenfile_read(&f, 33000, 64, ids, &e), &e, ERR_IO,
               "x.tok: ends at or before byte 70000: wanted 16384 bytes at offset 69632, got 368; it had 216936 bytes "
               "when it was opened");
    assert_err(tokenfile_verify(&f, &e), &e, ERR_IO, "x.tok: ends at or before byte 216648"); /* where a checksum was */
    tokenfile_close(&f);
    assert_err(tokenfile_open(&f, path, &e), &e, ERR_CORRUPT, "x.tok|cut short");
    for (reads.ends = 1; reads.ends < 216936; reads.ends += 997) { /* between the opening and any read */
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
    struct tail_bytes tail; /* as many tokens as there are numbers, with the right checksum */
    char *whole;
    size_t n;
    assert_ok(fs_read_all(path, 1 << 20, &whole, &n, &e), &e);
    memcpy(&tail, whole + n - sizeof tail, sizeof tail);
    tail.n_tokens = INT64_MAX;
    tail.sum = hash64(&tail, offsetof(struct tail_bytes, sum));
    memcpy(whole + n - sizeof tail, &tail, sizeof tail);
    xfree(put_file(dir, "x.tok", whole, n));
    xfree(whole);
    assert_err(tokenfile_open(&f, path, &e), &e, ERR_CORRUPT, "x.tok|do not fit");
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
    int n;
    for (int64_t sign = 1; sign >= -1; sign -= 2) { /* writes of the tokens, then those of the tables beside them */
        int failures = 0;
        assert_ok(write_tokens(path, &narrow, 10, 0, &e), &e);
        for (int64_t at = 1; write_tokens(path, &narrow, 1200000, sign * at, &e); at++, failures++) {
            assert_int_equal(e.code, ERR_IO);
            assert_ok(fs_list(dir, &names, &n, &e), &e);
            assert_int_equal(n, 1);
            fs_list_free(names, n);
            assert_ok(tokenfile_open(&f, path, &e), &e);
            assert_int_equal(f.n_tokens, 11);
            tokenfile_close(&f);
        }
        assert_true(failures >= (sign > 0 ? 3 : 1));
        assert_ok(tokenfile_open(&f, path, &e), &e);
        assert_int_equal(f.n_tokens, 1200001);
        tokenfile_close(&f);
    }
    xfree(path);
    scratch_free(dir);
}

static void test_one_writer_at_a_time(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "x.tok"), *left = put_text(dir, "x.tok.tmp", "of a killed process"),
         *beside = put_text(dir, "x.tok.tmp.mask", "and of its mask");
    struct tokenfile_writer *w, *second;
    struct err e;
    assert_ok(tokenfile_create(&w, &(bool){false}, path, &narrow, &e), &e);
    assert_err(tokenfile_create(&second, &(bool){false}, path, &narrow, &e), &e, ERR_REQUEST, "x.tok");
    assert_ok(tokenfile_end_document(w, &e), &e);
    assert_false(fs_exists(path));
    assert_ok(tokenfile_publish(w, &e), &e);
    assert_true(fs_exists(path));
    assert_false(fs_exists(left) || fs_exists(beside));
    assert_true(tokenfile_create(&w, &(bool){false}, "/nowhere/x.tok", &narrow, &e) < 0);
    assert_non_null(strstr(e.text, "/nowhere/x.tok"));
    xfree(left);
    xfree(beside);
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
        cmocka_unit_test(test_older_versions),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_tables_that_lie),
        cmocka_unit_test(test_reads_that_fail),
        cmocka_unit_test(test_shrinks_while_open),
        cmocka_unit_test(test_huge_claims),
        cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_one_writer_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
