/* SPDX-License-Identifier: Apache-2.0 */
/* Token files of Megatron-Core (make_sources.py): read in every type, written to the same bits; cut, flipped, and of
 * two different pairs. */
#include "source_read.h"

#include <sys/stat.h>

#include "data/dataset.h"
#include "data/tokenize.h"
#include "sanitized.h"
#include "data/megatron.h"

static struct tokenizer *byte_tokenizer(void)
{
    struct tokenizer *t;
    struct err e;
    assert_ok(tokenizer_open(&t, "byte", &e), &e);
    return t;
}

/* The tokens as text: "1,2,3;" */
static void tokens_of(const char *path, struct str *out)
{
    struct tokenfile f;
    struct err e;
    assert_ok(tokenfile_open(&f, path, &e), &e);
    int32_t *ids = xmalloc((size_t)f.n_tokens * sizeof *ids + 1);
    assert_ok(tokenfile_read(&f, 0, f.n_tokens, ids, &e), &e);
    str_clear(out);
    for (int64_t i = 0; i < f.n_tokens; i++) str_printf(out, "%d%c", ids[i], ids[i] == f.head.eos ? ';' : ',');
    xfree(ids);
    tokenfile_close(&f);
}

static char *suffixed(const char *path, const char *ending)
{
    struct str s = {0};
    str_printf(&s, "%s%s", path, ending);
    return s.p;
}

static void copy_pair(const char *from, const char *dir, const char *name, char *data[2], size_t n[2])
{
    static const char *const endings[] = {".bin", ".idx"};
    struct err e;
    for (int i = 0; i < 2; i++) {
        char *path = suffixed(from, endings[i]), *to = suffixed(name, endings[i]);
        assert_ok(fs_read_all(path, 1 << 20, &data[i], &n[i], &e), &e);
        xfree(put_file(dir, to, data[i], n[i]));
        xfree(path);
        xfree(to);
    }
}

static void test_every_type(void **state)
{
    (void)state;
    static const char *const types[] = {"uint8", "int8", "int16", "int32", "int64", "uint16"};
    struct tokenizer *t = byte_tokenizer();
    char *dir = scratch_new(), *out = fs_join(dir, "o.tok");
    struct str got = {0}, want = {0};
    struct megatron_result r;
    struct err e;
    for (int i = 0; i < 6; i++) {
        struct str prefix = {0};
        struct megatron m;
        bool small = i < 2; /* the ids above 127 are 127 there: no end of text among them */
        str_printf(&prefix, FIXTURE("megatron/%s"), types[i]);
        assert_ok(megatron_open(&m, prefix.p, &e), &e);
        assert_string_equal(megatron_type(&m), types[i]);
        assert_int_equal(m.n_sequences, 6);
        assert_int_equal(m.n_documents, 5);
        megatron_close(&m);
        assert_ok(megatron_import(t, prefix.p, out, NULL, &r, &e), &e);
        assert_int_equal(r.documents, 4);
        assert_int_equal(r.empty, 1);
        assert_int_equal(r.ended, small ? 0 : 3);
        str_clear(&want);
        str_puts(&want, small ? "1,2,3,127,256;127,256;7,8,256;" : "1,2,3,256;256;7,8,256;");
        for (int k = 0; k < 70; k++) str_puts(&want, "100,");
        str_puts(&want, small ? "127,256;" : "256;");
        tokens_of(out, &got);
        assert_string_equal(got.p, want.p);
        assert_int_equal(r.tokens, small ? 82 : 79);
        str_free(&prefix);
    }
    str_free(&got);
    str_free(&want);
    xfree(out);
    tokenizer_free(t);
    scratch_free(dir);
}

static void assert_same_file(const char *a, const char *b)
{
    char *p, *q;
    size_t n, m;
    struct err e;
    assert_ok(fs_read_all(a, 1 << 20, &p, &n, &e), &e);
    assert_ok(fs_read_all(b, 1 << 20, &q, &m, &e), &e);
    assert_int_equal(n, m);
    assert_memory_equal(p, q, n);
    xfree(p);
    xfree(q);
}

/* What Megatron-Core's builder writes of the same documents, and back; without ends of text; in every type. */
static void test_written(void **state)
{
    (void)state;
    static const char *const types[] = {"int16", "int32", "int64", "uint16"};
    struct tokenizer *t = byte_tokenizer();
    char *dir = scratch_new(), *tok = fs_join(dir, "t.tok"), *out = fs_join(dir, "out"),
         *back = fs_join(dir, "back.tok");
    char *lines =
        put_text(dir, "t.jsonl",
                 "{\"text\": \"one\"}\n{\"text\": \"two\\n\"}\n{\"text\": \"\xC3\xA9\"}\n{\"text\": \"four\"}\n");
    struct tokenize_result made;
    struct megatron_result r;
    struct tokenfile f;
    struct err e;
    struct str was = {0}, is = {0};
    const char *type;
    assert_ok(tokenize(t, (const char *[]){lines}, 1, NULL, tok, 1, &made, &e), &e);
    tokens_of(tok, &was);
    assert_ok(tokenfile_open(&f, tok, &e), &e);
    assert_ok(megatron_write(&f, out, &(struct megatron_export){0}, &r, &type, &e), &e);
    assert_string_equal(type, "uint16");
    char *bin = suffixed(out, ".bin"), *idx = suffixed(out, ".idx");
    assert_same_file(bin, FIXTURE("megatron/exported.bin"));
    assert_same_file(idx, FIXTURE("megatron/exported.idx"));
    for (int i = 0; i < 8; i++) {
        struct megatron_export o = {types[i % 4], i >= 4};
        assert_ok(megatron_write(&f, out, &o, &r, &type, &e), &e);
        assert_int_equal(r.tokens, i < 4 ? 17 : 13);
        assert_ok(megatron_import(t, out, back, NULL, &r, &e), &e);
        assert_int_equal(r.ended, i < 4 ? 4 : 0);
        tokens_of(back, &is);
        assert_string_equal(is.p, was.p);
    }
    assert_err(megatron_write(&f, out, &(struct megatron_export){.type = "uint8"}, &r, &type, &e), &e, ERR_REQUEST,
               "257 ids, uint8 holds 256|wider");
    /* A place that cannot be written: an error, and nothing is left. */
    assert_int_not_equal(megatron_write(&f, "/nowhere/at/all", &(struct megatron_export){0}, &r, &type, &e), OK);
    tokenfile_close(&f);
    str_free(&was);
    str_free(&is);
    xfree(bin);
    xfree(idx);
    xfree(lines);
    xfree(tok);
    xfree(out);
    xfree(back);
    tokenizer_free(t);
    scratch_free(dir);
}

/* Every cut of either file is an error; every flip of the index is an error or does not matter. */
static void test_cut_and_flipped(void **state)
{
    (void)state;
    struct tokenizer *t = byte_tokenizer();
    char *dir = scratch_new(), *prefix = fs_join(dir, "m"), *out = fs_join(dir, "o.tok"), *data[2];
    size_t n[2];
    struct megatron_result r;
    struct err e;
    copy_pair(FIXTURE("megatron/uint16"), dir, "m", data, n);
    for (int file = 0; file < 2; file++) {
        char *name = suffixed("m", file ? ".idx" : ".bin");
        struct changed_file f = changed_file_new(dir, name, data[file], n[file]);
        for (size_t bit = 0; file && bit < 8 * n[1]; bit += CASE_STRIDE) {
            changed_file_flip(&f, bit);
            int code = megatron_import(t, prefix, out, NULL, &r, &e);
            if (code && !strstr(e.text, "/m.")) fail_msg("no file is named: %s", e.text);
            /* int16 for uint16, or a document that begins elsewhere: all that can be wrong and fit. */
            bool type = bit / 8 == 17, document = bit >= 8 * (n[1] - 48);
            if (!code && !type && !document) fail_msg("bit %zu of the index is not looked at", bit);
            changed_file_flip(&f, bit);
        }
        for (size_t cut = n[file]; cut-- > 0;) {
            changed_file_cut(&f, cut);
            int code = megatron_import(t, prefix, out, NULL, &r, &e);
            if (code != ERR_CORRUPT) fail_msg("%s cut at %zu: %d", name, cut, code);
            assert_non_null(strstr(e.text, "m.idx"));
        }
        changed_file_free(&f);
        xfree(put_file(dir, name, data[file], n[file]));
        xfree(name);
    }
    for (int i = 0; i < 2; i++) xfree(data[i]);
    xfree(prefix);
    xfree(out);
    tokenizer_free(t);
    scratch_free(dir);
}

/* Files of two pairs; ids the tokenizer has not; floats; a mode; another version. */
static void test_refused(void **state)
{
    (void)state;
    struct tokenizer *t = byte_tokenizer();
    char *dir = scratch_new(), *prefix = fs_join(dir, "m"), *out = fs_join(dir, "o.tok"), *data[2], *other[2];
    size_t n[2], n_other[2];
    struct megatron_result r;
    struct err e;
    copy_pair(FIXTURE("megatron/int32"), dir, "x", other, n_other);
    copy_pair(FIXTURE("megatron/uint16"), dir, "m", data, n);
    xfree(put_file(dir, "m.bin", other[0], n_other[0]));
    assert_err(megatron_import(t, prefix, out, NULL, &r, &e), &e, ERR_CORRUPT,
               "m.bin: has 312 bytes, the sequences of|m.idx end at byte 156");
    xfree(put_file(dir, "m.bin", data[0], n[0]));
    struct {
        size_t at;
        char byte;
        int code;
        const char *says;
    } rows[] = {{17, 7, ERR_REQUEST, "m.idx: byte 17: holds float32, no token ids"},
                {17, 9, ERR_CORRUPT, "m.idx: byte 17: a type of tokens with code 9"},
                {9, 2, ERR_REQUEST, "m.idx: byte 9: an index of version 2"},
                {34, 5, ERR_CORRUPT, "m.idx: byte 66: sequence 1 begins at byte 8, those before it end at 10"},
                {58, 2, ERR_CORRUPT, "m.idx: byte 58: sequence 0 begins at byte 2"},
                {106, 1, ERR_CORRUPT, "m.idx: byte 106: document 0 begins at sequence 1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char was = data[1][rows[i].at];
        data[1][rows[i].at] = rows[i].byte;
        xfree(put_file(dir, "m.idx", data[1], n[1]));
        assert_err(megatron_import(t, prefix, out, NULL, &r, &e), &e, rows[i].code, rows[i].says);
        data[1][rows[i].at] = was;
    }
    struct str with_modes = {0};
    str_add(&with_modes, data[1], n[1]);
    str_add(&with_modes, "\0\0\0\0\0\1", 6);
    xfree(put_file(dir, "m.idx", with_modes.p, with_modes.n));
    assert_err(megatron_import(t, prefix, out, NULL, &r, &e), &e, ERR_REQUEST,
               "m.idx: byte 159: sequence 5 is of mode 1, no text");
    with_modes.p[with_modes.n - 1] = 0;
    xfree(put_file(dir, "m.idx", with_modes.p, with_modes.n));
    assert_ok(megatron_import(t, prefix, out, NULL, &r, &e), &e);
    str_free(&with_modes);
    xfree(put_file(dir, "m.idx", data[1], n[1]));
    data[0][4] = 2; /* the third token: 2 + 256 * 2 */
    data[0][5] = 2;
    xfree(put_file(dir, "m.bin", data[0], n[0]));
    assert_err(megatron_import(t, prefix, out, NULL, &r, &e), &e, ERR_REQUEST,
               "m.bin: byte 4: id 514, the tokenizer has 257");
    assert_false(fs_exists("o.tok.tmp"));
    for (int i = 0; i < 2; i++) {
        xfree(data[i]);
        xfree(other[i]);
    }
    xfree(prefix);
    xfree(out);
    tokenizer_free(t);
    scratch_free(dir);
}

/* data.train takes the prefix, or either file; a changed file is read again. */
static void test_as_data(void **state)
{
    (void)state;
    struct tokenizer *t = byte_tokenizer();
    char *dir = scratch_new(), *prefix = fs_join(dir, "m"), *idx = fs_join(dir, "m.idx"),
         *cache = fs_join(dir, "cache"), *data[2], *path, *again;
    size_t n[2];
    struct err e;
    copy_pair(FIXTURE("megatron/int32"), dir, "m", data, n);
    const char *names[] = {prefix, idx};
    for (int i = 0; i < 2; i++) {
        struct dataset_source source = {.path = names[i], .weight = 1};
        struct dataset_options o =
            {.sources = &source, .n_sources = 1, .tokenizer = t, .seq_len = 8, .shuffled = true, .cache_dir = cache};
        struct dataset *d;
        assert_ok(dataset_open(&d, &o, &e), &e);
        assert_int_equal(dataset_n_tokens(d), 79);
        dataset_close(d);
        source.column = "text";
        assert_err(dataset_open(&d, &o, &e), &e, ERR_REQUEST, "no column \"text\"");
    }
    assert_ok(megatron_cached(t, prefix, cache, NULL, &path, &e), &e);
    assert_ok(megatron_cached(t, prefix, cache, NULL, &again, &e), &e);
    assert_string_equal(path, again);
    xfree(again);
    data[0][0] = 9;
    xfree(put_file(dir, "m.bin", data[0], n[0]));
    struct timespec later[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char *bin = fs_join(dir, "m.bin");
    assert_int_equal(utimensat(0, bin, later, 0), 0);
    assert_ok(megatron_cached(t, prefix, cache, NULL, &again, &e), &e);
    assert_string_not_equal(path, again);
    struct str got = {0};
    tokens_of(again, &got);
    assert_int_equal(strncmp(got.p, "9,2,3,256;", 10), 0);
    str_free(&got);
    xfree(bin);
    xfree(path);
    xfree(again);
    for (int i = 0; i < 2; i++) xfree(data[i]);
    xfree(prefix);
    xfree(idx);
    xfree(cache);
    tokenizer_free(t);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type), cmocka_unit_test(test_written), cmocka_unit_test(test_cut_and_flipped),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_as_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
