/* SPDX-License-Identifier: Apache-2.0 */
/* Writing and reading safetensors files: what is written is read, and nothing broken is believed. */
#include "said.h"

#include "base/hash.h"
#include "base/str.h"
#include "checkpoint/safetensors.h"

/* clang-format off */
static const struct safetensors_spec specs[] = {
    {"half", DT_BF16, {1, {3}}},        {"scalar", DT_F32, {0, {0}}}, {"empty", DT_F32, {2, {0, 4}}},
    {"matrix", DT_F32, {2, {5, 7}}},    {"ids", DT_I64, {1, {2}}},    {"bytes", DT_U8, {1, {5}}},
    {"name \"with\" \\ and \xc3\xa9", DT_F16, {3, {2, 1, 3}}},
};
/* clang-format on */
#define N_SPECS (int64_t)(sizeof specs / sizeof *specs)

static size_t spec_size(const struct safetensors_spec *s)
{
    return (size_t)shape_numel(&s->shape) * dtype_bytes(s->dtype);
}

static unsigned char byte_of(int64_t tensor, size_t at) { return (unsigned char)(31 * tensor + 7 * (int64_t)at + 1); }

static void write_file(const char *path, size_t piece)
{
    static const char *const metadata[] = {"format", "pt"};
    struct err e;
    struct safetensors_writer *w;
    assert_ok(safetensors_writer_open(&w, path, specs, N_SPECS, metadata, 1, &e));
    int64_t i;
    while ((i = safetensors_writer_next(w)) >= 0) {
        size_t bytes = spec_size(&specs[i]);
        unsigned char data[256];
        for (size_t k = 0; k < bytes; k++) data[k] = byte_of(i, k);
        for (size_t at = 0; at < bytes; at += piece)
            assert_ok(safetensors_writer_write(w, data + at, bytes - at < piece ? bytes - at : piece, &e));
        assert_int_equal(safetensors_writer_hash(w, i), hash64(data, bytes));
    }
    int64_t bytes = safetensors_writer_bytes(w);
    assert_ok(safetensors_writer_close(w, true, &e));
    assert_int_equal(fs_size(path), bytes);
}

static void check_file(const char *path)
{
    struct err e;
    struct safetensors *s;
    assert_ok(safetensors_open(&s, path, &e));
    assert_int_equal(safetensors_count(s), N_SPECS);
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    assert_null(safetensors_metadata(s, "other"));
    size_t header;
    safetensors_header(s, 0, &header);
    assert_int_equal(header % 64, 0);
    for (int64_t i = 0; i < N_SPECS; i++) {
        const struct safetensors_entry *t = safetensors_find(s, specs[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, specs[i].dtype);
        assert_true(shape_equal(&t->shape, &specs[i].shape));
        assert_int_equal(t->bytes, spec_size(&specs[i]));
        assert_int_equal(t->at % (int64_t)dtype_bytes(specs[i].dtype), 0);
        unsigned char data[256];
        assert_ok(safetensors_read(s, t, 0, t->bytes, data, &e));
        for (size_t k = 0; k < t->bytes; k++) assert_int_equal(data[k], byte_of(i, k));
    }
    assert_null(safetensors_find(s, "absent"));
    safetensors_close(s);
}

static void round_trip(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "a.safetensors");
    for (size_t piece = 1; piece < 200; piece = piece * 3 + 1) {
        write_file(path, piece);
        check_file(path);
    }
    xfree(path);
    scratch_free(dir);
}

/* A file from a header's text and n bytes of data. */
static struct str image(const char *header, size_t data)
{
    struct str s = {0};
    size_t n = strlen(header);
    for (int i = 0; i < 8; i++) str_putc(&s, (char)(n >> (8 * i) & 255));
    str_puts(&s, header);
    for (size_t i = 0; i < data; i++) str_putc(&s, 'x');
    return s;
}

static void broken_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *part;
    } rows[] = {
        {"[]", 0, "does not begin"},
        {"{", 0, "JSON"},
        {"{\"a\":1}", 4, "no dtype"},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "does not know"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "dimension"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "dimension"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "5 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,4]}}", 4, "larger than"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "pair"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "range"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, "range"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, "cut short"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "do not agree"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "belong to none"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}", 5, "hole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         6, "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, "JSON"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "whole bytes"},
        {"{}", 3, "no tensors"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        struct safetensors *s;
        struct str file = image(rows[i].header, rows[i].data);
        assert_err(ERR_CORRUPT, rows[i].part, safetensors_open_memory(&s, file.p, file.n, "t", &e));
        assert_null(s);
        str_free(&file);
    }
}

static void lengths_are_checked_before_use(void **state)
{
    (void)state;
    struct err e;
    struct safetensors *s;
    const unsigned char huge[16] = {255, 255, 255, 255, 255, 255, 255, 255, '{'}, past[16] = {9, [8] = '{'};
    assert_err(ERR_CORRUPT, "100 MiB", safetensors_open_memory(&s, huge, sizeof huge, "t", &e));
    assert_err(ERR_CORRUPT, "longer than the file", safetensors_open_memory(&s, past, sizeof past, "t", &e));
    for (size_t n = 0; n < 8; n++) assert_err(ERR_CORRUPT, "shorter", safetensors_open_memory(&s, huge, n, "t", &e));
}

/* Every prefix of a good file is a bad file. */
static void truncation_is_noticed(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "a.safetensors"), *text;
    size_t n;
    struct err e;
    struct safetensors *s;
    write_file(path, 64);
    assert_ok(fs_read_all(path, 1 << 20, &text, &n, &e));
    for (size_t k = 0; k < n; k++)
        if (safetensors_open_memory(&s, text, k, "t", &e) != ERR_CORRUPT)
            fail_msg("%zu of %zu bytes were accepted", k, n);
    assert_ok(safetensors_open_memory(&s, text, n, "t", &e));
    safetensors_close(s);
    xfree(text);
    xfree(path);
    scratch_free(dir);
}

static int set_source(void *ctx, int64_t i, int64_t row, int64_t n_rows, void *dst, struct err *e)
{
    (void)ctx;
    (void)e;
    const struct safetensors_spec *t = &specs[i];
    size_t row_bytes = t->shape.nd ? spec_size(t) / (size_t)t->shape.n[0] : spec_size(t);
    for (size_t k = 0; k < (size_t)n_rows * row_bytes; k++)
        ((unsigned char *)dst)[k] = byte_of(i, (size_t)row * row_bytes + k);
    return OK;
}

static void sets(void **state)
{
    (void)state;
    struct err e;
    struct safetensors *s;
    static const int64_t limits[] = {1, 20, 150, 1 << 20};
    for (size_t k = 0; k < 4; k++) {
        char *dir = scratch_new();
        assert_ok(safetensors_write_set(dir, "model", specs, N_SPECS, limits[k], set_source, NULL, &e));
        assert_ok(safetensors_open(&s, dir, &e));
        assert_int_equal(safetensors_count(s), N_SPECS);
        if (k == 0) assert_true(safetensors_n_files(s) >= 6); /* the empty one may share */
        if (k == 3) assert_int_equal(safetensors_n_files(s), 1);
        for (int64_t i = 0; i < N_SPECS; i++) {
            const struct safetensors_entry *t = safetensors_find(s, specs[i].name);
            assert_non_null(t);
            assert_int_equal(t->bytes, spec_size(&specs[i]));
            unsigned char data[256];
            assert_ok(safetensors_read(s, t, 0, t->bytes, data, &e));
            for (size_t b = 0; b < t->bytes; b++) assert_int_equal(data[b], byte_of(i, b));
        }
        safetensors_close(s);
        scratch_free(dir);
    }
}

static void put(const char *dir, const char *name, const char *text)
{
    struct err e;
    char *path = fs_join(dir, name);
    assert_ok(fs_write_atomic(path, text, strlen(text), &e));
    xfree(path);
}

static void broken_sets_are_refused(void **state)
{
    (void)state;
    struct err e;
    struct safetensors *s;
    char *dir = scratch_new(), *file = fs_join(dir, "a.safetensors");
    assert_err(ERR_REQUEST, "neither", safetensors_open(&s, dir, &e));
    write_file(file, 64);
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"half\":\"../a.safetensors\"}}");
    assert_err(ERR_CORRUPT, "half", safetensors_open(&s, dir, &e));
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"other\":\"a.safetensors\"}}");
    assert_int_equal(safetensors_open(&s, dir, &e), OK); /* whoever wants it misses it, and knows where it should be */
    assert_string_equal(safetensors_promised(s, "other"), "a.safetensors");
    assert_null(safetensors_promised(s, "half"));
    assert_null(safetensors_promised(s, "another"));
    safetensors_close(s);
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"half\":\"b.safetensors\"}}");
    assert_err(ERR_REQUEST, "b.safetensors", safetensors_open(&s, dir, &e));
    put(dir, "model.safetensors.index.json", "{\"weight_map\":[]}");
    assert_err(ERR_CORRUPT, "weight_map", safetensors_open(&s, dir, &e));
    char *twin = fs_join(dir, "b.safetensors");
    write_file(twin, 64);
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"half\":\"a.safetensors\",\"ids\":\"b.safetensors\"}}");
    assert_err(ERR_CORRUPT, "is also in", safetensors_open(&s, dir, &e));
    assert_int_equal(fs_remove_tree(twin, &e), OK);
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"half\":\"a.safetensors\"}}");
    char *single = fs_join(dir, "model.safetensors");
    write_file(single, 64); /* of two sets their library reads the one, and an index says the other */
    assert_err(ERR_REQUEST, "holds two sets of weights", safetensors_open(&s, dir, &e));
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"half\":\"model.safetensors\"}}");
    assert_int_equal(safetensors_open(&s, dir, &e), OK);
    safetensors_close(s);
    xfree(single);
    xfree(twin);
    xfree(file);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(broken_headers_are_refused),
        cmocka_unit_test(lengths_are_checked_before_use),
        cmocka_unit_test(truncation_is_noticed),
        cmocka_unit_test(sets),
        cmocka_unit_test(broken_sets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
