/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps pread */
/* Tar shards; what is skipped where bad records are; files in parts; names in braces; every read failed in turn. */
#include "source_read.h"

#include <errno.h>

#include "json_line_check.h"
#include "sanitized.h"
#include "source/brace.h"

/* -- reads that fail ---------------------------------------------------------------------------------------- */

static int64_t n_reads, fail_at; /* the read that fails; 0: none */

ssize_t __real_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *p, size_t n, off_t at)
{
    if (++n_reads != fail_at) return __real_pread(fd, p, n, at);
    errno = EIO;
    return -1;
}

/* A disk's error is an error always, also where bad records are skipped; never a shorter source. */
static void test_failing_reads(void **state)
{
    (void)state;
    static const char *const files[] = {FIXTURE("parquet/zstd-2-PLAIN.parquet"), FIXTURE("shards/pax.tar"),
                                        FIXTURE("added.json"), FIXTURE("train.txt")};
    struct str got = {0};
    struct err e;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (int skip = 0; skip < 2; skip++) {
            int code = ERR_IO;
            for (fail_at = 1; code == ERR_IO && fail_at < 1000; fail_at++) {
                n_reads = 0;
                code = read_with(files[i], &(struct source_options){.skip_bad = skip}, &got, NULL, &e);
                if (code) assert_err(code, &e, ERR_IO, "cannot be read at offset|Input/output error");
            }
            assert_ok(code, &e);
            assert_true(fail_at > 2 && fail_at == n_reads + 2); /* each of them has failed once */
            fail_at = 0;
        }
    str_free(&got);
}

/* -- tar ----------------------------------------------------------------------------------------------------- */

#define LONG_NAME "of a long name|"

static void test_shards(void **state)
{
    (void)state;
    static const char *const kinds[] = {"ustar", "gnu", "pax"};
    struct str got = {0}, path = {0};
    struct err e;
    for (int k = 0; k < 3; k++) {
        str_clear(&path);
        str_printf(&path, FIXTURE("shards/%s.tar"), kinds[k]);
        assert_ok(read_column(path.p, NULL, &got, &e), &e);
        assert_string_equal(got.p, k ? "from txt \xC3\xA9|two|l1|l2|" LONG_NAME : "from txt \xC3\xA9|two|l1|l2|");
        /* As whole records: objects as they stand in .json and .jsonl; a sample that is none is a bad record. */
        struct source_options records = {.whole_records = true, .skip_bad = k > 0};
        int64_t n_bad;
        assert_ok(read_with(path.p, &records, &got, &n_bad, &e), &e);
        assert_string_equal(got.p,
                            "{\"text\": \"from json\", \"caption\": \"a caption\"}|{\"text\": \"two\", \"caption\": "
                            "\"another\"}|{\"text\": \"l1\", \"caption\": \"k1\"}|{\"text\": \"l2\", \"caption\": "
                            "\"k2\"}|");
        assert_int_equal(n_bad, k > 0);
        records.skip_bad = false;
        if (k)
            assert_err(read_with(path.p, &records, &got, NULL, &e), &e, ERR_CORRUPT,
                       "sample long/nnn|has no record|txt");
        int code = read_column(path.p, "caption", &got, &e);
        if (k)
            assert_err(code, &e, ERR_CORRUPT, "sample long/nnn|has no text: no member .json with a string \"caption\"");
        else assert_ok(code, &e);
        assert_string_equal(got.p, "a caption|another|k1|k2|");
        assert_err(read_column(path.p, "txt", &got, &e), &e, ERR_CORRUPT,
                   "sample a/001 at byte|has no member .txt|.json");
        assert_string_equal(got.p, "from txt \xC3\xA9|");
    }
    str_free(&got);
    str_free(&path);
}

/* A member of a tar archive as USTAR has it. */
static void add_member(struct str *tar, const char *name, char kind, const void *p, size_t n)
{
    char head[512] = {0};
    snprintf(head, 100, "%s", name);
    snprintf(head + 100, 8, "%07o", 0644u);
    snprintf(head + 108, 8, "%07o", 0u);
    snprintf(head + 116, 8, "%07o", 0u);
    snprintf(head + 124, 12, "%011zo", n);
    snprintf(head + 136, 12, "%011o", 0u);
    head[156] = kind;
    memcpy(head + 257,
           "ustar\0"
           "00",
           8);
    memset(head + 148, ' ', 8);
    unsigned sum = 0;
    for (int i = 0; i < 512; i++) sum += (unsigned char)head[i];
    snprintf(head + 148, 8, "%06o", sum);
    str_add(tar, head, sizeof head);
    str_add(tar, p, n);
    while (tar->n % 512) str_putc(tar, 0);
}

static void end_tar(struct str *tar)
{
    for (int i = 0; i < 1024; i++) str_putc(tar, 0);
}

static void test_members_that_are_none(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct str tar = {0}, got = {0}, told = {0};
    struct err e;
    int64_t n_bad;
    struct source_options skip = {.skip_bad = true, .tell_bad = tell_to_str, .tell_ctx = &told};
    add_member(&tar, "d/", '5', "", 0);
    add_member(&tar, "README", '0', "no sample", 9);
    add_member(&tar, "a.txt", '0', "A", 1);
    add_member(&tar, "b.jpg", '0', "\xFF\xD8\xFF", 3);
    add_member(&tar, "b.txt", '0', "B", 1);
    add_member(&tar, "c.txt", '2', "", 0); /* a link */
    add_member(&tar, "d.txt", '0', "D\xE9", 2);
    add_member(&tar, "e.cls", '0', "1", 1);
    add_member(&tar, "f.json", '0', "{\"text\": ", 9);
    add_member(&tar, "g.txt", '0', "", 0); /* nothing to train on, and nothing wrong */
    add_member(&tar, "../../h.txt", '0', "H", 1);
    end_tar(&tar);
    char *path = put_file(dir, "s.tar", tar.p, tar.n);
    assert_err(read_column(path, NULL, &got, &e), &e, ERR_REQUEST,
               "s.tar: member b.jpg at byte|is an image, and this is read as text|column: txt");
    assert_string_equal(got.p, "A|");
    assert_ok(read_with(path, &skip, &got, &n_bad, &e), &e);
    assert_string_equal(got.p, "A|H|");
    assert_int_equal(n_bad, 5);
    static const char *const words[] = {"b.jpg", "sample c at byte", "link",        "sample d at byte",
                                        "UTF-8", "sample e",         "it has .cls", "sample f",
                                        "JSON"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(told.p, words[i])) fail_msg("nothing tells of %s: %s", words[i], told.p);
    /* In a folder an archive whose first sample is no text is passed over; a shard is read from its first sample on. */
    struct str other = {0};
    add_member(&other, "x/main.c", '0', "int x;", 6);
    end_tar(&other);
    char *folder = fs_join(dir, "f");
    xfree(put_file(dir, "f/a.tar", other.p, other.n));
    other.n = 0;
    add_member(&other, "k.txt", '0', "K", 1);
    end_tar(&other);
    xfree(put_file(dir, "f/b.tar", other.p, other.n));
    xfree(put_text(dir, "f/c.txt", "C"));
    other.n = 0;
    add_member(&other, "j.json", '0', "{", 1);
    add_member(&other, "k.txt", '0', "after", 5);
    end_tar(&other);
    char *wrong = put_file(dir, "f/d.tar", other.p, other.n);
    assert_err(read_column(folder, NULL, &got, &e), &e, ERR_CORRUPT, "d.tar: sample j at byte 0");
    assert_ok(read_with(folder, &(struct source_options){.skip_bad = true}, &got, &n_bad, &e), &e);
    assert_string_equal(got.p, "K|C|after|");
    assert_int_equal(n_bad, 1);
    assert_int_equal(unlink(wrong), 0);
    xfree(wrong);
    assert_ok(read_column(folder, NULL, &got, &e), &e);
    assert_string_equal(got.p, "K|C|");
    xfree(folder);
    str_free(&other);
    struct source_options only = {.column = "txt", .skip_bad = true};
    assert_ok(read_with(path, &only, &got, &n_bad, &e), &e);
    assert_string_equal(got.p, "A|B|H|");
    xfree(path);
    str_free(&tar);
    str_free(&got);
    str_free(&told);
    scratch_free(dir);
}

/* Members that would merge, hide each other or come again are refused, and what is no sample's is nobody's text. */
static void test_members_that_say_more(void **state)
{
    (void)state;
    static const struct {
        const char *members; /* NAME=TEXT|... ; a "+" ends the archive, and more follows */
        const char *reads, *fails;
    } rows[] = {
        {"._0.txt=MAC0|0.txt=t0|._1.txt=MAC1|1.txt=t1|", "t0|t1|", NULL},
        {"0.txt=t0|._0.txt=MAC0|sub/.1.txt=no|1.txt=t1|README=r|", "t0|t1|", NULL},
        {"0.en.txt=hello|0.de.txt=hallo|", "", "sample 0 at byte 0: has two members that are .txt (.en.txt, .de.txt)"},
        {"0.txt=a|0.txt=b|", "", "has two members that are .txt"},
        {"0.json={\"text\": \"a\"}|0.json={\"text\": \"b\"}|", "", "has two members that are .json"},
        {"0.jsonl={\"text\": \"a\"}|0.x.jsonl={\"text\": \"b\"}|", "", "has two members that are .jsonl"},
        {"0.json={\"text\": null}|1.txt=b|", "b|", NULL},
        {"0.txt=a|1.txt=b|0.json={\"text\": \"c\"}|", "a|b|", "sample 0 at byte 2048: comes again"},
        {"0.txt=a|+1.txt=b|", "", "end mark, at byte 1024, is followed by more|tar -A"},
    };
    struct str tar = {0}, got = {0};
    struct err e;
    char *dir = scratch_new();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str_clear(&tar);
        for (const char *p = rows[i].members; *p;) {
            char name[32];
            if (*p == '+') end_tar(&tar), p++;
            size_t n = strcspn(p, "="), m = strcspn(p + n, "|");
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            add_member(&tar, name, '0', p + n + 1, m - 1);
            p += n + m + 1;
        }
        end_tar(&tar);
        char *path = put_file(dir, "s.tar", tar.p, tar.n);
        int code = read_column(path, NULL, &got, &e);
        if (rows[i].fails) assert_err(code, &e, ERR_CORRUPT, rows[i].fails);
        else assert_ok(code, &e);
        assert_string_equal(str_text(&got), rows[i].reads);
        if (i == 2) { /* one of them is chosen */
            assert_ok(read_column(path, "de.txt", &got, &e), &e);
            assert_string_equal(str_text(&got), "hallo|");
        }
        xfree(path);
    }
    str_free(&tar);
    str_free(&got);
    scratch_free(dir);
}

/* Any cut is an error, or hands out all; any flip is an error that names the file, or none. */
static void test_damaged_shards(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct str tar = {0}, got = {0}, want = {0};
    struct err e;
    add_member(&tar, "a.txt", '0', "first", 5);
    add_member(&tar, "b.json", '0', "{\"text\": \"second\"}", 18);
    add_member(&tar, "b.meta.json", '0', "{\"text\": \"third\"}", 17); /* the first that has it */
    size_t content = tar.n;
    end_tar(&tar);
    struct changed_file f = changed_file_new(dir, "s.tar", tar.p, tar.n);
    assert_ok(read_column(f.path, NULL, &want, &e), &e);
    assert_string_equal(want.p, "first|second|");
    for (size_t bit = 0; bit < 8 * content; bit += 3 * CASE_STRIDE) {
        changed_file_flip(&f, bit);
        int code = read_column(f.path, NULL, &got, &e);
        if (code && !strstr(e.text, "s.tar")) fail_msg("no file is named: %s", e.text);
        changed_file_flip(&f, bit);
    }
    for (size_t cut = tar.n - 1; cut > 0; cut--) {
        changed_file_cut(&f, cut);
        int code = read_column(f.path, NULL, &got, &e);
        if (!code && (strcmp(str_text(&got), want.p) != 0 || cut < content + 512))
            fail_msg("cut at %zu: %s", cut, str_text(&got));
        if (code && !strstr(e.text, "s.tar")) fail_msg("no file is named: %s", e.text);
    }
    changed_file_free(&f);
    str_free(&tar);
    str_free(&got);
    str_free(&want);
    scratch_free(dir);
}

/* -- what is skipped ----------------------------------------------------------------------------------------- */

static void test_bad_lines(void **state)
{
    (void)state;
    static const struct {
        const char *name, *bytes, *good, *says; /* of the first bad record */
        int bad;
    } rows[] = {
        {"a.jsonl", "{\"text\": \"1\"}\n{\"text\": \n{\"no\": 1}\n[]\n{\"text\": \"\xE9\"}\n{\"text\": \"2\"}\n",
         "1|2|", "a.jsonl:2", 4},
        {"b.csv", "id,text\n1,x\n2\n3,\xFF\n4,y\n5,\"open\n6,z\n", "x|y|", "b.csv:3: this row has 1 columns", 3},
        {"c.txt", "fine\nnot \xE9 fine\n", "", "c.txt: byte 9 is no valid UTF-8", 1},
        {"d.jsonl", "{\"message\": {\"text\": \"no\"}}\n{\"text\": \"yes\"}", "yes|", "d.jsonl:1: wanted", 1},
    };
    char *dir = scratch_new();
    struct str got = {0}, told = {0};
    struct err e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = put_text(dir, rows[i].name, rows[i].bytes);
        int64_t n_bad;
        str_clear(&told);
        assert_ok(read_with(path,
                            &(struct source_options){.skip_bad = true, .tell_bad = tell_to_str, .tell_ctx = &told},
                            &got, &n_bad, &e),
                  &e);
        assert_string_equal(str_text(&got), rows[i].good);
        assert_int_equal(n_bad, rows[i].bad);
        assert_non_null(strstr(told.p, rows[i].says));
        if (i != 2)
            assert_err(read_column(path, NULL, &got, &e), &e, ERR_CORRUPT, rows[i].says); /* a text is as it is */
        xfree(path);
    }
    /* The key tells them apart: what was tokenized with bad records left out is another result. */
    struct source *s;
    uint64_t keys[2];
    for (int skip = 0; skip < 2; skip++) {
        const char *p = dir;
        assert_ok(source_open_with(&s, &p, 1, &(struct source_options){.skip_bad = skip}, &e), &e);
        keys[skip] = source_key(s);
        source_close(s);
    }
    assert_true(keys[0] != keys[1]);
    char *nested = put_text(dir, "n.jsonl", "{\"m\": {\"c\": \"in\"}}\n{\"m.c\": \"whole\"}\n");
    assert_ok(read_column(nested, "m.c", &got, &e), &e);
    assert_string_equal(got.p, "in|whole|");
    xfree(nested);
    str_free(&got);
    str_free(&told);
    scratch_free(dir);
}

/* A line of more than 256 MiB, most of it a hole in the file. */
static void test_gigantic_line(void **state)
{
    (void)state;
    if (SANITIZED) skip();
    char *dir = scratch_new();
    struct str text = {0}, got = {0};
    struct err e;
    int64_t n_bad;
    while (text.n < 70000) str_puts(&text, "{\"text\": \"some words\"}\n");
    size_t lines = text.n / 23;
    char *path = put_file(dir, "t.jsonl", text.p, text.n);
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fseek(f, (long)text.n + (257 << 20), SEEK_SET), 0);
    fputs("\n{\"text\": \"last\"}\n", f);
    fclose(f);
    assert_err(read_column(path, NULL, &got, &e), &e, ERR_REQUEST, "a line of more than 256 MiB");
    assert_ok(read_with(path, &(struct source_options){.skip_bad = true}, &got, &n_bad, &e), &e);
    assert_int_equal(n_bad, 1);
    assert_int_equal(got.n, lines * 11 + 5);
    assert_true(str_ends(got.p, "|last|"));
    xfree(path);
    str_free(&text);
    str_free(&got);
    scratch_free(dir);
}

/* -- parts ---------------------------------------------------------------------------------------------------- */

/* Of any size: units one after the other, and in another order by other readers, are the whole. */
static void assert_units(const char *path, int64_t bytes, int64_t at_least)
{
    struct source *s, *again;
    struct err e;
    struct str whole = {0}, parts = {0}, one = {0};
    int64_t n;
    struct source_options o = {.unit_bytes = bytes};
    assert_ok(read_with(path, &o, &whole, NULL, &e), &e);
    assert_ok(source_open_with(&s, &path, 1, &o, &e), &e);
    assert_ok(source_units(s, &n, &e), &e);
    assert_true(n >= at_least);
    again = source_again(s, NULL, NULL);
    for (int64_t i = 0; i < n; i++) {
        source_unit(s, n - 1 - i); /* another reader reads another part meanwhile */
        str_clear(&one);
        assert_ok(read_rest(s, &one, &e), &e);
        source_unit(again, i);
        assert_ok(read_rest(again, &parts, &e), &e);
    }
    assert_string_equal(str_text(&parts), str_text(&whole));
    source_close(again);
    source_close(s);
    str_free(&whole);
    str_free(&parts);
    str_free(&one);
}

static void test_units(void **state)
{
    (void)state;
    char *dir = scratch_new(), *tables = xstrdup(FIXTURE("parquet/snappy-1-PLAIN.parquet"));
    struct str lines = {0};
    uint64_t seed = 5;
    for (int i = 0; i < 60; i++) {
        str_printf(&lines, "{\"text\": \"%d %.*s\"}\n", i, (int)(dice(&seed) % 30), "abcdefghijklmnopqrstuvwxyzabcd");
        if (i % 7 == 0) str_puts(&lines, "\n");
    }
    lines.n--; /* no newline at the end */
    char *path = put_file(dir, "t.jsonl", lines.p, lines.n);
    for (int64_t bytes = 1; bytes < 90; bytes += CASE_STRIDE) assert_units(path, bytes, (int64_t)lines.n / bytes);
    assert_units(path, (int64_t)lines.n, 1);
    assert_units(tables, 1, 3);
    assert_units(tables, 400, 1);
    xfree(put_text(dir, "a.txt", "a text that is larger than a unit"));
    xfree(put_text(dir, "u.csv", "text\none\ntwo\n"));
    assert_units(dir, 10, 10);
    /* A bad line says its number in the file, wherever the part begins. */
    struct source *s;
    struct err e;
    struct str got = {0};
    int64_t n;
    int code = OK;
    str_puts(&lines, "\n{}\n");
    xfree(put_file(dir, "t.jsonl", lines.p, lines.n));
    const char *p = path;
    assert_ok(source_open_with(&s, &p, 1, &(struct source_options){.unit_bytes = 300}, &e), &e);
    assert_ok(source_units(s, &n, &e), &e);
    for (int64_t i = n - 1; i >= 0 && !code; i--) {
        source_unit(s, i);
        code = read_rest(s, &got, &e);
    }
    assert_err(code, &e, ERR_CORRUPT, "t.jsonl:70: wanted an object");
    source_close(s);
    str_free(&got);
    xfree(path);
    xfree(tables);
    str_free(&lines);
    scratch_free(dir);
}

/* -- braces --------------------------------------------------------------------------------------------------- */

static void assert_expands(const char *pattern, const char *wanted)
{
    char **names;
    int64_t n;
    struct err e;
    struct str all = {0};
    assert_ok(brace_expand(pattern, &names, &n, &e), &e);
    for (int64_t i = 0; i < n; i++) str_printf(&all, "%s ", names[i]);
    assert_string_equal(str_text(&all), wanted);
    brace_free(names, n);
    str_free(&all);
}

static void test_braces(void **state)
{
    (void)state;
    char **names, *dir = scratch_new();
    int64_t n;
    struct err e;
    struct str got = {0};
    assert_expands("s-{08..11}.tar", "s-08.tar s-09.tar s-10.tar s-11.tar ");
    assert_expands("{b,a}-{1..2}", "b-1 b-2 a-1 a-2 ");
    assert_expands("{3..1}", "3 2 1 ");
    assert_expands("{,x}y", "y xy ");
    assert_err(brace_expand("s-{0..x}", &names, &n, &e), &e, ERR_REQUEST, "s-{0..x}: {A..B} wants two whole numbers");
    assert_err(brace_expand("s-{0..9", &names, &n, &e), &e, ERR_REQUEST, "is not closed");
    assert_err(brace_expand("{0..9999999}", &names, &n, &e), &e, ERR_REQUEST, "more than a million");
    assert_err(brace_expand("{0..9999}{0..9999}", &names, &n, &e), &e, ERR_REQUEST, "more than a million");
    xfree(put_text(dir, "t-1.txt", "one"));
    xfree(put_text(dir, "t-2.txt", "two"));
    char *both = fs_join(dir, "t-{1..2}.txt"), *three = fs_join(dir, "t-{1..3}.txt");
    assert_ok(read_column(both, NULL, &got, &e), &e);
    assert_string_equal(got.p, "one|two|");
    assert_err(read_column(three, NULL, &got, &e), &e, ERR_REQUEST, "t-3.txt: No such file");
    xfree(put_text(dir, "t-{1..3}.txt", "a name with braces in it"));
    assert_ok(read_column(three, NULL, &got, &e), &e);
    assert_string_equal(got.p, "a name with braces in it|");
    xfree(both);
    xfree(three);
    str_free(&got);
    scratch_free(dir);
}

/* Lines are read in one pass as the library reads them: whole, cut anywhere, and with any byte changed. */
static void test_lines_in_one_pass(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool taken;
    } lines[] = {
        {"{}", true},
        {" \t{ \"text\" : \"a\" } \r", true},
        {"{\"text\":\"twelve and more bytes \xC3\xA9\xF0\x9F\x98\x80\\n\\t\\\"\\\\\\/\\b\\f\\r\"}", true},
        {"{\"text\":\"\\u0041\\u00e9\\u20AC\\ud83d\\ude00 and on\",\"n\":[-0.5e+3,0,10,{\"a\":[]},[{}]]}", true},
        {"{\"a\":{\"text\":\"not this\"},\"text\":\"this\",\"b\":[true,false,null,\"\\u12ab\"]}", true},
        {"{\"text\":\"first\",\"text\":\"last\"}", true},
        {"{\"text\":\"first\",\"text\":7}", true},
        {"{\"n\":123456789012345678901234567890,\"m\":1e999,\"text\":\"\"}", true},
        {"{\"t\\u0065xt\":\"a key with an escape\"}", false},
        {"{\"text\":\"\\u0000\"}", false},
        {"{\"text\":\"\\ud83d\"}", false},
        {"{\"text\":\"\\ude00\\ud83d\"}", false},
        {"{\"text\":\"a\tb\"}", false},
        {"{\"text\":\"\xC3\"}", false},
        {"{\"text\":\"\xED\xA0\x80\"}", false},
        {"\xEF\xBB\xBF{\"text\":\"a\"}", false},
        {"{\"text\":\"a\",}", false},
        {"{\"text\":\"a\"}}", false},
        {"{\"n\":[1 2]}", false},
        {"{\"n\":[1,]}", false},
        {"{\"n\":[,1]}", false},
        {"{\"n\":[1}", false},
        {"{\"n\":01}", false},
        {"{\"n\":1.}", false},
        {"{\"n\":.5}", false},
        {"{\"n\":-}", false},
        {"{\"n\":1e}", false},
        {"{\"n\":NaN}", false},
        {"{\"n\" 1}", false},
        {"{1:1}", false},
        {"[\"text\"]", false},
        {"\"text\"", false},
        {"", false},
    };
    struct json_line l = {0};
    int64_t taken = 0, tried = 0;
    char line[256], deep[300];
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        size_t n = strlen(lines[i].line);
        if (json_line_check(&l, lines[i].line, n, "text") != lines[i].taken) fail_msg("%s", lines[i].line);
        for (size_t k = 0; k <= n; k++) json_line_check(&l, lines[i].line, k, "text");
        for (size_t k = 0; k < n * 256; k += CASE_STRIDE) {
            memcpy(line, lines[i].line, n);
            line[k / 256] = (char)k;
            taken += json_line_check(&l, line, n, "text");
            tried++;
        }
    }
    assert_true(taken > tried / 20 && taken < tried); /* of what is changed some is JSON all the same */
    for (int depth = 60; depth < 70; depth++) {
        int at = snprintf(deep, sizeof deep, "{\"text\":\"deep\",\"n\":");
        for (int k = 0; k < 2 * depth; k++) deep[at++] = k < depth ? '[' : ']';
        deep[at++] = '}';
        assert_int_equal(json_line_check(&l, deep, (size_t)at, "text"), depth < 64);
    }
    str_free(&l.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failing_reads),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_members_that_are_none),
        cmocka_unit_test(test_members_that_say_more),
        cmocka_unit_test(test_damaged_shards),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_lines_in_one_pass),
        cmocka_unit_test(test_gigantic_line),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_braces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
