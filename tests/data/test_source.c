/* SPDX-License-Identifier: Apache-2.0 */
/* Folders, texts, .jsonl, and everything a disk may hold instead. */
#include "data_test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "source/source.h"

/* All documents, joined with "|". */
static int read_all(const char *const *paths, int n_paths, struct str *out, struct err *e)
{
    struct source *s;
    int code = source_open(&s, paths, n_paths, NULL, e);
    while (!code) {
        code = source_next(s, e);
        if (code <= 0) break;
        const char *p;
        size_t n;
        if (out->n) str_putc(out, '|');
        while ((code = source_read(s, &p, &n, e)) > 0) str_add(out, p, n);
    }
    source_close(s);
    return code;
}

static void assert_reads(const char *path, const char *wanted)
{
    struct str got = {0};
    struct err e;
    assert_ok(read_all(&path, 1, &got, &e), &e);
    assert_string_equal(str_text(&got), wanted);
    str_free(&got);
}

static void assert_fails(const char *path, int wanted, const char *words)
{
    struct str got = {0};
    struct err e;
    assert_err(read_all(&path, 1, &got, &e), &e, wanted, words);
    str_free(&got);
}

static void test_folder(void **state)
{
    (void)state;
    char *dir = scratch_new(), link[300];
    xfree(put_text(dir, "t/b.txt", "B"));
    xfree(put_text(dir, "t/a.c", "A"));
    xfree(put_text(dir, "t/sub/z.md", "Z"));
    xfree(put_text(dir, "t/sub/deep/x", "X"));
    xfree(put_text(dir, "t/sub/empty.txt", ""));
    xfree(put_text(dir, "t/.hidden", "no"));
    xfree(put_text(dir, "t/.git/config", "no"));
    xfree(put_file(dir, "t/binary", "ab\0cd", 5));
    xfree(put_file(dir, "t/noise", "\xFF\xFE\xF0\x01\x02\x03\x91\x92", 8));
    xfree(put_text(dir, "t/latin1.txt", "na\xEFve and otherwise quite ordinary"));
    xfree(put_text(dir, "t/k.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"two\", \"other\": [1]}\n"));
    xfree(put_text(dir, "t/log.jsonl", "{\"step\": 1}\n{\"step\": 2}\n"));
    snprintf(link, sizeof link, "%s/t/sub/loop", dir);
    assert_int_equal(symlink("..", link), 0);
    snprintf(link, sizeof link, "%s/t/sub/nothing", dir);
    assert_int_equal(symlink("/nowhere", link), 0);
    snprintf(link, sizeof link, "%s/t/pipe", dir);
    assert_int_equal(mkfifo(link, 0600), 0);
    char *path = fs_join(dir, "t");
    assert_reads(path, "A|B|one|two|na\xEFve and otherwise quite ordinary|{\"step\": 1}\n{\"step\": 2}\n|X|Z");
    xfree(path);
    scratch_free(dir);
}

static void test_several_inputs_and_key(void **state)
{
    (void)state;
    char *dir = scratch_new();
    char *a = put_text(dir, "a", "first"), *b = put_text(dir, "b", "second");
    struct source *s;
    struct err e;
    struct str got = {0};
    const char *paths[] = {b, a};
    assert_ok(read_all(paths, 2, &got, &e), &e);
    assert_string_equal(got.p, "second|first");
    assert_ok(source_open(&s, paths, 2, NULL, &e), &e);
    uint64_t key = source_key(s);
    assert_int_equal(source_bytes(s), 11);
    source_close(s);
    assert_ok(source_open(&s, paths, 2, NULL, &e), &e);
    assert_true(source_key(s) == key);
    source_close(s);
    xfree(put_text(dir, "a", "first!"));
    assert_ok(source_open(&s, paths, 2, NULL, &e), &e);
    assert_true(source_key(s) != key);
    source_close(s);
    str_free(&got);
    xfree(a);
    xfree(b);
    scratch_free(dir);
}

static uint64_t key_of(const char *path, const char *column)
{
    struct source *s;
    struct err e;
    assert_ok(source_open(&s, &path, 1, column, &e), &e);
    uint64_t key = source_key(s);
    source_close(s);
    return key;
}

/* What makes other documents of the same bytes, or an error of them, makes another key. */
static void test_key_of_what_is_read(void **state)
{
    (void)state;
    char *dir = scratch_new(), *folder = fs_join(dir, "folder"), *link = fs_join(dir, "link.txt");
    struct str got = {0};
    struct err e;
    assert_ok(fs_mkdirs(folder, &e), &e);
    char *log = put_text(folder, "log.jsonl", "{\"id\": 1}\n"), *text = put_text(dir, "a.jsonl", "{\"text\": \"A\"}\n");
    const char *named = log, *found = folder, *through = link, *itself = text;
    assert_ok(read_all(&found, 1, &got, &e), &e); /* a text where it was found, an error where it is named */
    assert_int_equal(read_all(&named, 1, &got, &e), ERR_CORRUPT);
    assert_true(key_of(folder, NULL) != key_of(log, NULL));
    assert_int_equal(symlink(text, link), 0); /* a text by this name, records by the other */
    str_clear(&got);
    assert_ok(read_all(&itself, 1, &got, &e), &e);
    assert_string_equal(str_text(&got), "A");
    str_clear(&got);
    assert_ok(read_all(&through, 1, &got, &e), &e);
    assert_string_equal(str_text(&got), "{\"text\": \"A\"}\n");
    assert_true(key_of(text, NULL) != key_of(link, NULL));
    assert_true(key_of(link, NULL) != key_of(link, "text")); /* which it has not */
    str_free(&got);
    xfree(log);
    xfree(text);
    xfree(folder);
    xfree(link);
    scratch_free(dir);
}

static void test_big_file_and_long_lines(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct str text = {0}, lines = {0};
    while (text.n < 300000) str_printf(&text, "%zu ", text.n);
    char *path = put_file(dir, "big.txt", text.p, text.n);
    assert_reads(path, text.p);
    xfree(path);
    str_printf(&lines, "{\"text\": \"%s\"}\n{\"text\": \"\"}\n{\"text\": \"last, without a newline\"}", text.p);
    path = put_file(dir, "big.jsonl", lines.p, lines.n);
    str_puts(&text, "|last, without a newline");
    assert_reads(path, text.p);
    xfree(path);
    str_free(&text);
    str_free(&lines);
    scratch_free(dir);
}

static void test_bad_input(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path;
    assert_fails("/nowhere/at/all", ERR_REQUEST, "/nowhere/at/all|No such file");
    path = put_text(dir, "empty.txt", "");
    assert_fails(path, ERR_REQUEST, "empty.txt|is empty");
    xfree(path);
    path = put_file(dir, "program",
                    "\x7F"
                    "ELF\0\0\0",
                    7);
    assert_fails(path, ERR_REQUEST, "program|is a program, which is not read");
    xfree(path);
    path = put_file(dir, "odd", "a\0b", 3);
    assert_fails(path, ERR_REQUEST, "odd|NUL");
    xfree(path);
    path = put_text(dir, "bad.jsonl", "{\"text\": \"fine\"}\n\n{\"text\": \"fi\n");
    assert_fails(path, ERR_CORRUPT, "bad.jsonl:3|JSON");
    xfree(path);
    path = put_text(dir, "none.jsonl", "{\"text\": \"fine\"}\n{\"content\": \"x\"}\n");
    assert_fails(path, ERR_CORRUPT, "none.jsonl:2|\"text\"; this one has content");
    xfree(path);
    path = put_text(dir, "number.jsonl", "{\"text\": 7}\n");
    assert_fails(path, ERR_CORRUPT, "number.jsonl:1|string");
    xfree(path);
    path = put_text(dir, "list.jsonl", "[\"text\"]\n");
    assert_fails(path, ERR_CORRUPT, "list.jsonl:1|object");
    xfree(path);
    path = fs_join(dir, "folder");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_fails(path, ERR_REQUEST, "folder|no file");
    xfree(path);
    assert_fails("/dev/zero", ERR_REQUEST, "/dev/zero|neither");
    path = put_text(dir, "secret.txt", "text");
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0) assert_fails(path, ERR_REQUEST, "secret.txt|cannot be read");
    xfree(path);
    scratch_free(dir);
}

/* What a file is, and what to do: by its first bytes where it was named; in a folder it is passed over, and the first
 * is told. */
static void test_no_text(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } rows[] = {
#define BYTES(text) text, sizeof text - 1
        {BYTES("\xFD"
               "7zXZ\0\0\x04"),
         "compressed by xz|xzcat"},
        {BYTES("BZh91AY&SY\0\0"), "compressed by bzip2|bzcat"},
        {BYTES("ARROW1\0\0"), "an Arrow table|.jsonl"},
        {BYTES("PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0"
               "a.txt"),
         "a zip archive|unzip"},
        {BYTES("PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x13\0\0\0"
               "[Content_Types].xml"),
         "an Office document|.txt"},
        {BYTES("PK\x03\x04"), "a zip archive"}, /* nothing behind the mark, and still no reading beyond it */
        {BYTES("%PDF-1.7\nall of it letters"), "a PDF document|pdftotext"},
        {BYTES("{\\rtf1 letters too}"), "an RTF document"},
        {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
         "a git-lfs pointer, whose content was not downloaded|git lfs pull"},
        {BYTES("\xFF\xFEh\0i\0"), "text in UTF-16|iconv"},
        {BYTES("\x89PNG\r\n\x1A\n\0"), "a PNG picture"},
        {BYTES("\x80\x02}q\0"), "a Python pickle"},
    };
    char *dir = scratch_new(), name[40], *a = put_text(dir, "z.txt", "text"),
         *b = put_text(dir, "y.txt", "BZh and GIF8 are letters");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(name, sizeof name, "%c.bin", (int)('a' + i));
        char *path = put_file(dir, name, rows[i].bytes, rows[i].n);
        assert_fails(path, ERR_REQUEST, name);
        assert_fails(path, ERR_REQUEST, rows[i].says);
        xfree(path);
    }
    assert_reads(dir, "BZh and GIF8 are letters|text");
    struct source *s;
    struct err e;
    const char *paths[] = {dir};
    assert_ok(source_open(&s, paths, 1, NULL, &e), &e);
    assert_string_equal(source_skipped(s), "");
    while (source_next(s, &e) > 0) continue;
    assert_int_equal(source_n_skipped(s), sizeof rows / sizeof *rows);
    assert_non_null(strstr(source_skipped(s), "/a.bin is compressed by xz"));
    source_close(s);
    xfree(a);
    xfree(b);
    scratch_free(dir);
}

/* Lines as Python writes them: a mark in front, hashes of 64 bits, NaN. */
static void test_records_of_others(void **state)
{
    (void)state;
    char *dir = scratch_new();
    char *path = put_text(dir, "p.jsonl",
                          "\xEF\xBB\xBF{\"text\": \"one\", \"hash\": 18446744073709551615}\r\n{\"score\": NaN, "
                          "\"text\": \"two\"}\n");
    assert_reads(path, "one|two");
    assert_reads(dir, "one|two");
    xfree(path);
    scratch_free(dir);
}

/* Rows that say more than is read: a quote that joins rows or is lost, fields beyond the header, a name twice. */
static void test_strange_tables(const char *dir)
{
    static const struct {
        const char *name, *text, *says;
    } rows[] = {
        {"x1.tsv", "id\ttext\n1\t\"unclosed start\n2\tsecond\n3\tthird\" end\n4\tfourth\n",
         "x1.tsv:2: a quoted field|on line 4"},
        {"x2.csv", "id,text\n1,an \"inner\" quote\n2,\"a\" and more\n", "x2.csv:3: a quoted field|on line 3"},
        {"x3.csv", "id,text\n1,a\n2,one, two\n", "x3.csv:3: this row has 3 columns, and the header 2"},
        {"x4.csv", "text,id,text\na,1,b\n", "x4.csv: its columns 1 and 3 are both called \"text\""},
        {"x5.csv", "\"te\"xt,id\na,1\n", "x5.csv:1: a quoted field"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *path = put_text(dir, rows[i].name, rows[i].text);
        assert_fails(path, i == 3 ? ERR_REQUEST : ERR_CORRUPT, rows[i].says);
        unlink(path);
        xfree(path);
    }
    /* Skipped, they are counted; other columns of one name matter where rows are objects. */
    char *path = put_text(dir, "y.tsv", "a\ta\ttext\n1\t2\tone\n1\t2\t\"b\"c\n1\t2\tx\ty\n1\t2\t\"two\"\n");
    const char *paths[] = {path};
    struct source *s;
    struct err e;
    for (int lines = 0; lines < 2; lines++) {
        struct source_options o = {.skip_bad = true, .lines = lines};
        assert_ok(source_open_with(&s, paths, 1, &o, &e), &e);
        int n = 0, got;
        while ((got = source_next(s, &e)) > 0) n++;
        if (lines) assert_err(got, &e, ERR_REQUEST, "y.tsv: its columns 1 and 2 are both called \"a\"");
        else assert_ok(got, &e);
        assert_int_equal(n, lines ? 0 : 2);
        assert_int_equal(source_n_bad(s), lines ? 0 : 2);
        source_close(s);
    }
    unlink(path);
    xfree(path);
}

/* Records of JSON under names that do not say it, in one list, or over several lines; what is none of these stays text.
 */
static void test_json_by_any_name(void **state)
{
    (void)state;
    static const char lines[] = "{\"text\": \"one\", \"n\": 1}\n{\"text\": null}\n{\"text\": \"two\"}\n",
                      list[] = "\xEF\xBB\xBF[\n {\"text\": \"o}n]e\", \"t\": [1, {}]},\n {\"text\": null},{\"text\":\n "
                               "\"two \\\"q\\\"\"}\n]\n";
    static const struct {
        const char *name, *text, *reads, *fails; /* fails: named; NULL: it reads the same */
    } rows[] = {
        {"a.json", lines, "one|two", NULL},
        {"b", lines, "one|two", NULL},
        {"c.0001", list, "o}n]e|two \"q\"", NULL},
        {"d.json", list, "o}n]e|two \"q\"", NULL},
        {"e.json", "{\n \"text\": \"pretty\"\n}\n{\n \"text\": \"too\"}", "pretty|too", NULL},
        {"f.json", "[]", "[]", NULL},
        {"g.txt", lines, lines, NULL},
        {"h.json", "{\n \"name\": \"package\"\n}\n", "{\n \"name\": \"package\"\n}\n", NULL},
        {"i.json", "{\"a\": \"x\"}\n{\"a\": \"y\"}\n", "{\"a\": \"x\"}\n{\"a\": \"y\"}\n",
         "i.json:1: wanted an object|has a"},
        {"j.json", "[{\"a\": \"x\"}]", "[{\"a\": \"x\"}]", "j.json:1: wanted an object|has a"},
        {"k", "{brace} and no JSON\n", "{brace} and no JSON\n", NULL},
        {"l.jsonl", "no json\n{\"text\": \"x\"}\n", NULL, "l.jsonl:1"},
        {"m.jsonl", "\n{\"text\": \"x\"}\n", "x", NULL},
        {"n.json", "[{\"text\": \"x\"}, {\"text\": \"y\"", NULL, "n.json:1: a value that begins here does not end"},
        {"o.json", "[{\"text\": \"x\"}] more", NULL, "o.json:1: something follows"},
        {"p.json", "[{\"text\": \"x\"}\n{\"text\": \"y\"}]", NULL, "p.json:2: wanted a comma"},
        {"q.json", "[{\"text\": \"x\"},\n,{\"text\": \"y\"}]", NULL, "q.json:2: a value was wanted"},
        {"r.json", "[{\"text\": \"x\"},\n 7]", NULL, "r.json:2: wanted an object"},
        {"s.jsonl", "{\"text\": \"x\", \"text\": \"y\"}\n", NULL, "s.jsonl:1: has the member \"text\" twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = scratch_new(), *path = put_text(dir, rows[i].name, rows[i].text);
        if (rows[i].reads) assert_reads(dir, rows[i].reads);
        else assert_fails(dir, ERR_CORRUPT, rows[i].fails);
        if (rows[i].fails) assert_fails(path, ERR_CORRUPT, rows[i].fails);
        else assert_reads(path, rows[i].reads);
        xfree(path);
        scratch_free(dir);
    }
    /* A value that is longer than the buffer, and one that begins anywhere in it; rows as lines have no line ends. */
    char *dir = scratch_new();
    struct str text = {0}, want = {0};
    str_puts(&text, "[\n");
    for (int i = 0; i < 40; i++) {
        str_printf(&text, "%s{\n\"text\": \"%d ", i ? ",\n" : "", i);
        str_printf(&want, "%s%d ", i ? "|" : "", i);
        for (int k = 0; k < (i % 7 == 3 ? 90000 : 997 * i); k++) str_putc(&text, 'x'), str_putc(&want, 'x');
        str_puts(&text, "\"\n}");
    }
    str_puts(&text, "]");
    char *path = put_file(dir, "long.json", text.p, text.n);
    assert_reads(path, str_text(&want));
    struct source *s;
    struct err e;
    const char *paths[] = {path};
    size_t n;
    assert_ok(source_open_with(&s, paths, 1, &(struct source_options){.lines = true}, &e), &e);
    while (source_next(s, &e) > 0) assert_true(source_line(s, &n) && n && !memchr(source_line(s, &n), '\n', n));
    source_close(s);
    str_free(&text);
    str_free(&want);
    xfree(path);
    scratch_free(dir);
}

/* Tables: quotes over marks and lines, other columns, folders, rows that lack the column. */
static void test_tables(void **state)
{
    (void)state;
    char *dir = scratch_new();
    const char *table = "\xEF\xBB\xBFid,\"text\",more\r\n1,one,x\r\n\r\n2,\"two, \"\"quoted\"\"\nand "
                        "on\",y\n3,,z\n4,fi\"ve,\"\"\n5,\"six\",\n6,last";
    char *csv = put_text(dir, "a.csv", table), *tsv = put_text(dir, "b.tsv", "text\tother\na, b\tc\n\"x\ty\"\tz\n");
    xfree(put_text(dir, "c.csv", "no,such\n1,2\n"));
    assert_reads(csv, "one|two, \"quoted\"\nand on|fi\"ve|six|last");
    assert_reads(tsv, "a, b|x\ty");
    assert_reads(dir, "one|two, \"quoted\"\nand on|fi\"ve|six|last|a, b|x\ty|no,such\n1,2\n");
    char *prose =
        put_text(dir, "c.csv", "\xEF\xBB\xBF\"A quotation, and no table.\n"); /* an error only where it was named */
    assert_fails(prose, ERR_CORRUPT, "c.csv:1: a quoted field");
    assert_reads(dir,
                 "one|two, \"quoted\"\nand on|fi\"ve|six|last|a, b|x\ty|\xEF\xBB\xBF\"A quotation, and no table.\n");
    char *none = put_text(dir, "d.csv", "no,such\n1,2\n");
    assert_fails(none, ERR_REQUEST, "d.csv: its first row has no column \"text\", but no, such|--column NAME");
    char *open_quote = put_text(dir, "e.csv", "text\nfine\n\"never ends\nand on\n");
    assert_fails(open_quote, ERR_CORRUPT, "e.csv:3: a quoted field");
    char *few = put_text(dir, "f.csv", "id,text\n1,\"a\nb\"\n2\n");
    assert_fails(few, ERR_CORRUPT, "f.csv:4: this row has 1 columns of the header's 2");
    test_strange_tables(dir);
    /* A column of numbers is refused; one text among them, or fewer than ten, and it is read. */
    struct str numbers = {0};
    static const char *const kinds[][3] = {{"", "no.csv",
                                            "\"id\" holds whole numbers (7 in its first row), no "
                                            "text; its columns: id, t; say which"},
                                           {".5e3", "real.csv", "\"id\" holds real numbers (7.5e3"},
                                           {"-", "words.csv", NULL}};
    for (int k = 0; k < 3; k++) {
        str_clear(&numbers);
        str_puts(&numbers, "id,t\n");
        for (int i = 0; i < 10; i++) {
            str_puts(&numbers, i == 1 ? "\n,\n" : ""); /* rows without one */
            char row[40];
            snprintf(row, sizeof row, "%d%s,a%d\n", 7 + i, kinds[k][0], i);
            str_puts(&numbers, row);
        }
        char *path = put_text(dir, kinds[k][1], str_text(&numbers));
        struct source *read;
        struct err why;
        const char *one[] = {path};
        assert_ok(source_open(&read, one, 1, "id", &why), &why);
        int got_one = source_next(read, &why);
        if (kinds[k][2]) assert_err(got_one, &why, ERR_REQUEST, kinds[k][2]);
        else assert_int_equal(got_one, 1);
        source_close(read);
        unlink(path);
        xfree(path);
    }
    str_free(&numbers);
    char *counted = put_text(dir, "n.jsonl", "{\"text\": 3, \"a\": \"x\"}\n");
    assert_fails(counted, ERR_CORRUPT,
                 "n.jsonl:1: wanted an object with a string member \"text\", which is a number|text, a");
    unlink(counted);
    xfree(counted);
    /* Another column, of tables and of records; a plain text has none. */
    char *json = put_text(dir, "g.jsonl", "{\"id\": \"J\"}\n"), *plain = put_text(dir, "h.txt", "words");
    const char *paths[] = {csv, json, plain}, *p;
    struct source *s;
    struct err e;
    struct str got = {0};
    size_t n;
    assert_ok(source_open(&s, paths, 2, "id", &e), &e);
    while (source_next(s, &e) > 0)
        while (source_read(s, &p, &n, &e) > 0) str_add(&got, p, n);
    assert_string_equal(str_text(&got), "123456J");
    uint64_t key = source_key(s);
    source_close(s);
    assert_ok(source_open(&s, paths, 2, NULL, &e), &e);
    assert_true(source_key(s) != key);
    source_close(s);
    assert_ok(source_open(&s, paths + 2, 1, "id", &e), &e);
    assert_err(source_next(s, &e), &e, ERR_REQUEST, "h.txt: has no column \"id\": it is plain text");
    source_close(s);
    str_free(&got);
    char *made[] = {csv, tsv, prose, none, open_quote, few, json, plain};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) xfree(made[i]);
    scratch_free(dir);
}

/* Rows of random fields, some longer than a buffer, as a careful writer quotes them. */
static void test_large_tables(void **state)
{
    (void)state;
    static const char letters[] = "ab,\t\"\n\r ";
    char *dir = scratch_new();
    uint64_t seed = 7;
    struct str table = {0}, wanted = {0};
    str_puts(&table, "x,text,y\n");
    for (int row = 0; row < 300; row++) {
        for (int column = 0; column < 3; column++) {
            uint32_t n = row % 50 == 49 ? 200000 : dice(&seed) % 20 + 1;
            str_puts(&table, column ? ",\"" : "\"");
            if (column == 1 && row) str_putc(&wanted, '|');
            for (uint32_t i = 0; i < n; i++) {
                char c = letters[dice(&seed) % (sizeof letters - 1)];
                if (c == '"') str_putc(&table, '"');
                str_putc(&table, c);
                if (column == 1) str_putc(&wanted, c);
            }
            str_putc(&table, '"');
        }
        str_puts(&table, row % 2 ? "\n" : "\r\n");
    }
    char *path = put_file(dir, "t.csv", table.p, table.n);
    assert_reads(path, str_text(&wanted));
    xfree(path);
    str_free(&table);
    str_free(&wanted);
    scratch_free(dir);
}

/* A text that gets shorter while it is read is not tokenized as far as it goes. */
static void test_shrinking_text(void **state)
{
    (void)state;
    char *dir = scratch_new(), *text = xmalloc(300001);
    memset(text, 'a', 300000);
    text[300000] = 0;
    for (int jsonl = 0; jsonl < 2; jsonl++) {
        char *path = put_text(dir, jsonl ? "t.jsonl" : "t.txt", text);
        const char *paths[] = {path}, *p;
        struct source *s;
        struct err e;
        size_t n;
        if (jsonl) {
            struct str lines = {0};
            for (int i = 0; i < 10000; i++) str_puts(&lines, "{\"text\": \"some words\"}\n");
            xfree(put_file(dir, "t.jsonl", lines.p, lines.n));
            str_free(&lines);
        }
        assert_ok(source_open(&s, paths, 1, NULL, &e), &e);
        int code = source_next(s, &e);
        assert_int_equal(code, 1);
        assert_int_equal(truncate(path, 100000), 0);
        while (code > 0) {
            while ((code = source_read(s, &p, &n, &e)) > 0) continue;
            if (!code) code = source_next(s, &e);
        }
        assert_err(code, &e, ERR_IO,
                   jsonl ? "t.jsonl: ends at byte 100000; it had 230000 bytes"
                         : "t.txt: ends at byte 100000; it had 300000 bytes");
        source_close(s);
        xfree(path);
    }
    xfree(text);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_shrinking_text),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_json_by_any_name),
        cmocka_unit_test(test_large_tables),
        cmocka_unit_test(test_no_text),
        cmocka_unit_test(test_records_of_others),
        cmocka_unit_test(test_key_of_what_is_read),
        cmocka_unit_test(test_several_inputs_and_key),
        cmocka_unit_test(test_big_file_and_long_lines),
        cmocka_unit_test(test_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
