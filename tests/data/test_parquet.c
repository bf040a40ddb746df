/* SPDX-License-Identifier: Apache-2.0 */
/* Tables as pyarrow wrote them (make_sources.py), in every combination of codec, page version and encoding; cut
 * anywhere, flipped anywhere; damaged row groups; row groups as parts. */
#include "source_read.h"

#include "sanitized.h"
#include "source/brotli_piece.h"
#include "source/blob.h"
#include "source/lz4_piece.h"
#include "source/parquet_meta.h"
#include "source/parquet_values.h"
#include "source/thrift.h"

enum { ROWS = 24, GROUP = 10 };
static const char *const codecs[] = {"none", "snappy", "gzip", "zstd", "brotli", "lz4"};
enum { CODECS = sizeof codecs / sizeof *codecs };
static const char *const encodings[] = {"DICTIONARY", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"};

static char *table_path(int codec, int version, int encoding)
{
    struct str s = {0};
    str_printf(&s, FIXTURE("parquet/%s-%d-%s.parquet"), codecs[codec], version, encodings[encoding]);
    return s.p;
}

/* Row i, as make_sources.py makes it; nothing for a null, an empty text, and lists without items. */
static void row_text(int i, struct str *out)
{
    if (i % 7 == 3 || i % 7 == 5) return;
    str_printf(out, "prefix-%03d \xC3\xA9\n%.*s|", i, i % 4, "xxx");
}
static void row_tags(int i, struct str *out)
{
    size_t before = out->n;
    int items = 0;
    for (int j = 0; j < i % 4 && i % 6 != 2; j++)
        if ((i + j) % 5) {
            str_puts(out, items++ ? "\n" : "");
            if ((i + j) % 7 != 1) str_printf(out, "t%d.%d", i, j);
        }
    if (out->n > before) str_putc(out, '|');
}
static void row_content(int i, struct str *out)
{
    if (i % 8 != 1 && i % 3) str_printf(out, "c%d|", i);
}
typedef void row_fn(int i, struct str *out);
static const struct {
    const char *column;
    row_fn *row;
} columns[] = {{"text", row_text},
               {"tags", row_tags},
               {"tags.list.element", row_tags},
               {"message.content", row_content}};

static void wanted(row_fn *row, int from, int to, struct str *out)
{
    for (int i = from; i < to; i++) row(i, out);
}

static void test_every_combination(void **state)
{
    (void)state;
    struct str got = {0}, want = {0};
    struct err e;
    for (int codec = 0; codec < CODECS; codec++)
        for (int version = 1; version <= 2; version++)
            for (int encoding = 0; encoding < 4; encoding++)
                for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
                    char *path = table_path(codec, version, encoding);
                    str_clear(&want);
                    wanted(columns[c].row, 0, ROWS, &want);
                    assert_ok(read_column(path, columns[c].column, &got, &e), &e);
                    assert_string_equal(str_text(&got), str_text(&want));
                    xfree(path);
                }
    str_free(&got);
    str_free(&want);
}

/* A table whose chunks of column text say that they are packed otherwise (parquet.thrift's CompressionCodec). */
static char *packed_as(const char *dir, int codec, int version, int was, int is)
{
    char *path = table_path(codec, version, 1), *bytes;
    const char find[] = {'t', 'e', 'x', 't', 0x15, (char)(2 * was)};
    size_t n, changed = 0;
    struct err e;
    assert_ok(fs_read_all(path, 1 << 20, &bytes, &n, &e), &e);
    for (size_t i = 0; i + sizeof find <= n; i++)
        if (!memcmp(bytes + i, find, sizeof find)) bytes[i + 5] = (char)(2 * is), changed++;
    assert_true(changed == (ROWS + GROUP - 1) / GROUP);
    char *out = put_file(dir, "other.parquet", bytes, n);
    xfree(bytes);
    xfree(path);
    return out;
}

/* LZ4 as Hadoop frames it; blocks of literals alone need no packer. */
static void test_lz4_of_hadoop(void **state)
{
    (void)state;
    char out[16] = "", *dir = scratch_new(), *path = packed_as(dir, 5, 1, 7, 5);
    static const char two[] = "\0\0\0\3\0\0\0\4\x30"
                              "abc"
                              "\0\0\0\2\0\0\0\3\x20"
                              "de",
                      bare[] = "\x50"
                               "abcde";
    struct str got = {0}, want = {0};
    struct err e;
    assert_null(lz4_hadoop_piece(two, sizeof two - 1, out, 5));
    assert_string_equal(out, "abcde");
    memset(out, 0, sizeof out);
    assert_null(lz4_hadoop_piece(bare, sizeof bare - 1, out, 5)); /* without its sizes */
    assert_string_equal(out, "abcde");
    for (size_t n = 0; n < sizeof two - 1; n++) assert_non_null(lz4_hadoop_piece(two, n, out, 5));
    for (size_t n = 0; n < sizeof out; n++)
        if (n != 5) assert_non_null(lz4_hadoop_piece(two, sizeof two - 1, out, n));
    for (size_t i = 0; i < 8; i++) { /* sizes that are none */
        char bad[sizeof two];
        memcpy(bad, two, sizeof two);
        bad[i] = (char)0xFF;
        assert_non_null(lz4_hadoop_piece(bad, sizeof two - 1, out, 5));
    }
    wanted(row_text, 0, ROWS, &want);
    assert_ok(read_column(path, "text", &got, &e), &e); /* as some wrote it under Hadoop's name */
    assert_string_equal(str_text(&got), str_text(&want));
    xfree(path);
    str_free(&got);
    str_free(&want);
    scratch_free(dir);
}

/* ---- rows as records ---- */
static const struct source_options whole = {.whole_records = true};

/* Lists in structs in lists with nulls at every depth, in row groups and pages of a few values, as JSON; a row group by
 * itself; what cannot be a record is refused by name. */
static void test_records(void **state)
{
    (void)state;
    static const char *const files[] = {"1-snappy", "2-zstd", "2-none"};
    struct str got = {0}, want = {0};
    struct err e;
    char *lines, *dir = scratch_new();
    size_t n;
    assert_ok(fs_read_all(FIXTURE("parquet/records.jsonl"), 1 << 20, &lines, &n, &e), &e);
    for (size_t i = 0; i < n; i++) str_putc(&want, lines[i] == '\n' ? '|' : lines[i]);
    for (int i = 0; i < 3; i++) {
        struct str path = {0};
        str_printf(&path, FIXTURE("parquet/records-%s.parquet"), files[i]);
        assert_ok(read_with(path.p, &whole, &got, NULL, &e), &e);
        assert_string_equal(got.p, want.p);
        struct source_options parts = whole;
        const char *paths[] = {path.p};
        struct source *s;
        int64_t n_units;
        parts.unit_bytes = 100;
        assert_ok(source_open_with(&s, paths, 1, &parts, &e), &e);
        assert_ok(source_units(s, &n_units, &e), &e);
        assert_int_equal(n_units, 3);
        str_clear(&got);
        for (int64_t u = 0; u < n_units; u++) {
            struct source *r = source_again(s, NULL, NULL);
            source_unit(r, u);
            assert_ok(read_rest(r, &got, &e), &e);
            source_close(r);
        }
        assert_string_equal(got.p, want.p);
        source_close(s);
        str_free(&path);
    }
    assert_err(read_with(FIXTURE("parquet/refused-weight.parquet"), &whole, &got, NULL, &e), &e, ERR_REQUEST,
               "refused-weight.parquet|\"messages\"|no text: weight");
    assert_err(read_with(FIXTURE("parquet/refused-map.parquet"), &whole, &got, NULL, &e), &e, ERR_REQUEST,
               "refused-map.parquet|\"messages\"|a map");
    assert_err(read_with(FIXTURE("parquet/numbers.parquet"), &whole, &got, NULL, &e), &e, ERR_REQUEST,
               "numbers.parquet|without a column of text");
    /* In a folder a table of numbers is passed over; one that would be read but for a number in a list is an error. */
    char *bytes;
    assert_ok(fs_read_all(FIXTURE("parquet/numbers.parquet"), 1 << 20, &bytes, &n, &e), &e);
    xfree(put_file(dir, "t/n.parquet", bytes, n));
    xfree(bytes);
    xfree(put_text(dir, "t/a.jsonl", "{\"a\":1}\n"));
    char *folder = fs_join(dir, "t");
    assert_ok(read_with(folder, &whole, &got, NULL, &e), &e);
    assert_string_equal(got.p, "{\"a\":1}|");
    assert_ok(fs_read_all(FIXTURE("parquet/refused-weight.parquet"), 1 << 20, &bytes, &n, &e), &e);
    xfree(put_file(dir, "t/w.parquet", bytes, n));
    xfree(bytes);
    assert_err(read_with(folder, &whole, &got, NULL, &e), &e, ERR_REQUEST, "w.parquet|weight");
    xfree(folder);
    xfree(lines);
    str_free(&got);
    str_free(&want);
    scratch_free(dir);
}

/* Any flip of a bit gives other records, or an error that names the file; none reads beyond. */
static void test_damaged_records(void **state)
{
    (void)state;
    char *dir = scratch_new(), *bytes;
    struct str got = {0};
    struct err e;
    size_t n;
    int bad = 0;
    assert_ok(fs_read_all(FIXTURE("parquet/records-2-none.parquet"), 1 << 20, &bytes, &n, &e), &e);
    struct changed_file f = changed_file_new(dir, "r.parquet", bytes, n);
    for (size_t bit = 32; bit < n * 8; bit += 37 * CASE_STRIDE) {
        changed_file_flip(&f, bit);
        int code = read_with(f.path, &whole, &got, NULL, &e);
        if (code && !strstr(e.text, "r.parquet")) fail_msg("bit %zu: %s", bit, e.text);
        bad += code != OK;
        changed_file_flip(&f, bit);
    }
    assert_true(bad > 20);
    assert_ok(read_with(f.path, &whole, &got, NULL, &e), &e);
    changed_file_free(&f);
    xfree(bytes);
    str_free(&got);
    scratch_free(dir);
}

/* A shard may be empty, in each of the ways in which one is written: that is no damage. A column that is there twice is
 * no column. */
static void test_no_rows(void **state)
{
    (void)state;
    static const char *const kinds[] = {"group", "none", "between"};
    struct str got = {0}, path = {0};
    struct err e;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int how = 0; how < 4; how++) {
            struct source_options o = {.column = how == 1 ? "tags" : NULL,
                                       .whole_records = how == 2,
                                       .lines = how == 3};
            str_clear(&path);
            str_printf(&path, FIXTURE("parquet/empty-%s.parquet"), kinds[i]);
            assert_ok(read_with(path.p, &o, &got, NULL, &e), &e);
            const char *rows =
                how == 2 ? "{\"text\":\"a\",\"tags\":[\"a\"]}|{\"text\":\"b\",\"tags\":[\"b\"]}|" : "a|b|";
            assert_string_equal(str_text(&got), i == 2 ? rows : "");
        }
    assert_err(read_column(FIXTURE("parquet/twice.parquet"), NULL, &got, &e), &e, ERR_REQUEST,
               "twice.parquet: has 2 columns \"text\"");
    str_free(&got);
    str_free(&path);
}

static void test_refused_by_name(void **state)
{
    (void)state;
    char *table = table_path(0, 1, 1), *dir = scratch_new();
    struct str got = {0}, bytes = {0};
    struct err e;
    char a[2] = ""; /* a page of Brotli is as long as its header says */
    assert_null(brotli_piece("\x0b\x00\x80\x61\x03", 5, a, 1));
    assert_int_equal(a[0], 'a');
    assert_non_null(brotli_piece("\x0b\x00\x80\x61\x03", 5, a, 2));
    char *lzo = packed_as(dir, 0, 1, 0, 3);
    assert_err(read_column(lzo, NULL, &got, &e), &e, ERR_REQUEST,
               "other.parquet|row group 0|LZO|snappy, gzip, brotli, lz4, zstd");
    xfree(lzo);
    assert_err(read_column(table, "nothing", &got, &e), &e, ERR_REQUEST,
               "no column \"nothing\"|text, tags, message.role, message.content|--column NAME");
    assert_err(read_column(table, "id", &got, &e), &e, ERR_REQUEST, "\"id\" is of INT64, no text|--column NAME");
    /* In a folder a table without the column is passed over; any beginning of another kind is no table. */
    char *path = fs_join(dir, "t"), *p;
    size_t n;
    assert_ok(fs_read_all(table, 1 << 20, &p, &n, &e), &e);
    xfree(put_file(dir, "t/a.parquet", p, n));
    xfree(put_text(dir, "t/b.txt", "PAR1 is how tables begin"));
    assert_ok(read_column(path, "message.role", &got, &e), &e);
    assert_int_equal(strncmp(got.p, "user|user|", 10), 0);
    assert_ok(read_column(path, "nothing", &got, &e), &e);
    assert_string_equal(str_text(&got), "PAR1 is how tables begin|");
    memcpy(p + n - 4, "PARE", 4);
    char *encrypted = put_file(dir, "e.parquet", p, n);
    assert_err(read_column(encrypted, NULL, &got, &e), &e, ERR_REQUEST, "e.parquet|encrypted");
    xfree(encrypted);
    xfree(p);
    xfree(path);
    xfree(table);
    str_free(&got);
    str_free(&bytes);
    scratch_free(dir);
}

/* Marks the bytes behind the heads of the column's pages: those that a page's checksum is of. */
static void mark_pages(const unsigned char *p, const struct parquet_chunk *c, char *marks)
{
    for (int64_t at = c->begin; at < c->end;) {
        struct thrift t = {.p = p + at, .n = (size_t)(c->end - at)};
        struct thrift_field f = {0};
        int64_t packed = 0;
        while (thrift_next(&t, &f)) {
            if (f.id == 3) packed = thrift_int(&t, &f);
            else thrift_skip(&t, &f);
        }
        assert_false(t.bad);
        at += (int64_t)t.at;
        memset(marks + at, 1, (size_t)packed);
        at += packed;
    }
}

/* Every length but the whole one is an error that names the file; so is every flipped bit of a page whose checksum is
 * written, and every other flip is an error that names it, or none. */
static void test_cut_and_flipped(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct str got = {0}, want = {0};
    struct err e;
    wanted(row_text, 0, ROWS, &want);
    for (int k = 0; k < 4; k++) {
        char *path = table_path(k, 1 + k % 2, 3 - k), *p;
        size_t n;
        struct blob *b;
        struct parquet_meta m;
        assert_ok(fs_read_all(path, 1 << 20, &p, &n, &e), &e);
        assert_ok(blob_open(&b, path, &e), &e);
        assert_ok(parquet_meta_read(&m, b, "text", &e), &e);
        char *summed = xcalloc(n, 1);
        if (strlen(encodings[3 - k]) % 2 == 0) /* make_sources.py */
            for (int64_t i = 0; i < m.n_chunks; i++) mark_pages((unsigned char *)p, &m.chunks[i], summed);
        parquet_meta_fini(&m);
        blob_close(b);
        struct changed_file f = changed_file_new(dir, "t.parquet", p, n);
        for (size_t at = 0; at < n; at += CASE_STRIDE) {
            size_t bit = 8 * at + at % 8;
            changed_file_flip(&f, bit);
            int code = read_column(f.path, NULL, &got, &e);
            if (code && !strstr(e.text, "t.parquet")) fail_msg("no file is named: %s", e.text);
            if (!code && summed[at]) fail_msg("%s: a flipped bit at byte %zu is not seen", path, at);
            changed_file_flip(&f, bit);
        }
        assert_ok(read_column(f.path, NULL, &got, &e), &e);
        assert_string_equal(got.p, want.p);
        for (size_t cut = n - 1; cut > 0; cut -= cut < CASE_STRIDE ? cut : CASE_STRIDE) {
            changed_file_cut(&f, cut);
            int code = read_column(f.path, NULL, &got, &e);
            if (code != ERR_CORRUPT) fail_msg("%s cut at %zu: %d", path, cut, code);
            assert_non_null(strstr(e.text, "t.parquet"));
        }
        changed_file_free(&f);
        xfree(summed);
        xfree(p);
        xfree(path);
    }
    str_free(&got);
    str_free(&want);
    scratch_free(dir);
}

/* With bad records skipped the other row groups are all there, and the damaged one is told once with its place. */
static void test_damaged_row_group(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = table_path(3, 1, 0), *p; /* DICTIONARY has checksums */
    struct str got = {0}, want = {0}, told = {0};
    struct err e;
    struct blob *b;
    struct parquet_meta m;
    size_t n;
    int64_t n_bad;
    assert_ok(fs_read_all(path, 1 << 20, &p, &n, &e), &e);
    assert_ok(blob_open(&b, path, &e), &e);
    assert_ok(parquet_meta_read(&m, b, "text", &e), &e);
    assert_int_equal(m.n_chunks, 3);
    p[m.chunks[1].end - 1] ^= 1;
    char *bad = put_file(dir, "t.parquet", p, n);
    assert_err(read_column(bad, NULL, &got, &e), &e, ERR_CORRUPT,
               "t.parquet: damaged Parquet file: row group 1|checksum");
    assert_ok(read_with(bad, &(struct source_options){.skip_bad = true, .tell_bad = tell_to_str, .tell_ctx = &told},
                        &got, &n_bad, &e),
              &e);
    assert_int_equal(n_bad, 1);
    assert_non_null(strstr(told.p, "row group 1, the page at byte"));
    wanted(row_text, 0, GROUP, &want);
    size_t first = want.n;
    assert_int_equal(strncmp(got.p, want.p, first), 0);
    str_clear(&want);
    wanted(row_text, 2 * GROUP, ROWS, &want);
    assert_true(got.n >= first + want.n && str_ends(got.p, want.p));
    parquet_meta_fini(&m);
    blob_close(b);
    xfree(bad);
    xfree(p);
    xfree(path);
    str_free(&got);
    str_free(&want);
    str_free(&told);
    scratch_free(dir);
}

/* Numbers packed in every width, runs of every kind: what a plain encoder of the test writes is read again. */
static void test_delta_of_every_width(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int width = 0; width <= 64; width++) {
        unsigned char buf[2048] = {0};
        uint64_t numbers[200], least = (uint64_t)-5;
        size_t at = 0;
        int n = 1 + (int)(dice(&seed) % 200);
        numbers[0] = 7;
        /* block of 128 in 4 miniblocks; n values; the first is 7 */
        buf[at++] = 0x80, buf[at++] = 1, buf[at++] = 4;
        for (unsigned v = (unsigned)n; v; v >>= 7) buf[at++] = (unsigned char)((v & 0x7F) | (v >> 7 ? 0x80 : 0));
        buf[at++] = 14;
        for (int i = 1; i < n;) {
            buf[at++] = 9; /* least difference -5, zigzag */
            size_t widths = at;
            at += 4;
            for (int mini = 0; mini < 4 && i < n; mini++) {
                buf[widths + (size_t)mini] = (unsigned char)width;
                for (int k = 0; k < 32; k++) {
                    uint64_t d = (uint64_t)dice(&seed) << 33 ^ (uint64_t)dice(&seed) << 11 ^ dice(&seed);
                    d = width ? d >> (64 - width) : 0;
                    for (int bit = 0; bit < width; bit++) {
                        size_t where = (size_t)(k * width + bit);
                        buf[at + where / 8] |= (unsigned char)((d >> bit & 1) << where % 8);
                    }
                    if (i < n) numbers[i] = numbers[i - 1] + least + d;
                    i++;
                }
                at += (size_t)width * 4;
            }
        }
        struct delta d;
        int64_t v;
        assert_true(delta_init(&d, buf, at));
        for (int i = 0; i < n; i++) {
            assert_true(delta_next(&d, &v));
            assert_true((uint64_t)v == numbers[i]);
        }
        assert_false(delta_next(&d, &v));
        assert_true(d.p == buf + at);
        if (n > 1 && width) { /* one byte less */
            bool all = true;
            assert_true(delta_init(&d, buf, at - 1));
            for (int i = 0; i < n; i++) all = all && delta_next(&d, &v);
            assert_false(all);
        }
    }
}

/* Runs and packed numbers one behind the other, and levels of width 0. */
static void test_runs(void **state)
{
    (void)state;
    static const unsigned char bytes[] = {
        10, 5,                /* a run of 5 fives */
        3,  0x88, 0xC6, 0xFA, /* eight packed: 0 to 7, the specification's example */
        4,  1,                /* two ones */
    };
    static const uint32_t want[] = {5, 5, 5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7, 1, 1};
    struct rle r;
    uint32_t v;
    rle_init(&r, bytes, sizeof bytes, 3);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(rle_next(&r, &v));
        assert_int_equal(v, want[i]);
    }
    assert_false(rle_next(&r, &v));
    rle_init(&r, bytes, 4, 3); /* the packed ones cut short */
    for (int i = 0; i < 5 + 2; i++) assert_true(rle_next(&r, &v));
    assert_false(rle_next(&r, &v));
    rle_init(&r, "\x06", 1, 0);
    for (int i = 0; i < 3; i++) assert_true(rle_next(&r, &v) && v == 0);
    assert_false(rle_next(&r, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_combination),
        cmocka_unit_test(test_lz4_of_hadoop),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_damaged_records),
        cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_refused_by_name),
        cmocka_unit_test(test_cut_and_flipped),
        cmocka_unit_test(test_damaged_row_group),
        cmocka_unit_test(test_delta_of_every_width),
        cmocka_unit_test(test_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
