/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions against the reference's own results (make_splits.py): where hard expressions cut hard texts, and
 * which code points every class has; both by pattern.h, where it knows the expression, and by Oniguruma. And the two
 * against each other, on random text, and on text in parts. */
#include "data_test.h"

#include "base/json.h"
#include "text/utf8.h"
#include "token/oniguruma.h"
#include "token/pattern.h"
#include "token/split.h"

struct ends {
    const unsigned char *text;
    size_t at[4096];
    int n;
};

static void take(void *arg, const unsigned char *p, size_t n)
{
    struct ends *e = arg;
    assert_true(e->n < 4096);
    size_t from = e->n ? e->at[e->n - 1] : 0;
    e->at[e->n++] = from + n;
    if (e->text) assert_memory_equal(p, e->text + from, n); /* the pieces, joined, are the text */
}

static void cut(const struct split *s, const char *text, size_t n, struct ends *out)
{
    struct split_work *w = split_work_new(s);
    struct err e;
    size_t used;
    *out = (struct ends){.text = (const unsigned char *)text};
    assert_ok(split_run(s, w, (const unsigned char *)text, n, true, take, out, &used, &e), &e);
    assert_int_equal(used, n);
    split_work_free(w);
}

static struct split *one(const char *pattern, size_t n, bool general)
{
    struct split *s = split_new();
    struct err e;
    if (general) assert_ok(split_add_general(s, pattern, n, "test", &e), &e);
    else assert_ok(split_add(s, pattern, n, "test", &e), &e);
    return s;
}

static struct json *open_cases(void)
{
    struct json *root;
    struct err e;
    assert_ok(json_parse_file(&root, FIXTURE("splits.json"), 1 << 22, &e), &e);
    return root;
}

static void test_pieces_are_the_references(void **state)
{
    (void)state;
    struct json *root = open_cases();
    const struct json *texts = json_get(root, "texts"), *patterns = json_get(root, "patterns");
    assert_true(json_size(patterns) > 40 && json_size(texts) > 100);
    for (size_t i = 0; i < 2 * json_size(patterns); i++) {
        size_t n;
        const char *pattern = json_string(json_get(json_at(patterns, i / 2), "pattern"), &n, NULL);
        struct split *s = one(pattern, n, i % 2);
        for (size_t k = 0; k < json_size(texts); k++) {
            size_t length;
            const char *text = json_string(json_at(texts, k), &length, NULL);
            const struct json *wanted = json_at(json_get(json_at(patterns, i / 2), "ends"), k);
            struct ends got;
            cut(s, text, length, &got);
            bool same = (size_t)got.n == json_size(wanted);
            for (int j = 0; same && j < got.n; j++)
                same = (int64_t)got.at[j] == json_int(json_at(wanted, (size_t)j), -1);
            if (!same)
                fail_msg("%s by %s cuts \"%s\" (text %zu) into %d pieces, wanted %zu", pattern,
                         i % 2 ? "Oniguruma" : "itself", text, k, got.n, json_size(wanted));
        }
        split_free(s);
    }
    json_free(root);
}

/* Every code point in order; the matches of a pattern of one character are the class. */
static void count(const char *pattern, size_t n, bool general, const struct str *all, int64_t *hits, int64_t *sum)
{
    struct pattern *fast = NULL;
    struct onig *slow = NULL;
    struct onig_work *w = onig_work_new();
    struct err e;
    const unsigned char *p = (const unsigned char *)all->p;
    if (!general) assert_ok(pattern_new(&fast, pattern, n, &e), &e);
    if (!fast) assert_ok(onig_new_pattern(&slow, pattern, n, &e), &e);
    *hits = *sum = 0;
    for (size_t at = 0, from, end = 0;; at = end) {
        bool found;
        int64_t left = INT64_MAX;
        if (fast) found = pattern_find(fast, p, all->n, at, true, &left, &from, &end) == PATTERN_MATCH;
        else assert_ok(onig_find(slow, w, p, all->n, at, &left, &found, &from, &end, &e), &e);
        if (!found) break;
        int len;
        *sum += utf8_code(p + from, &len);
        ++*hits;
        assert_int_equal(end - from, len);
    }
    onig_work_free(w);
    onig_free_pattern(slow);
    pattern_free(fast);
}

static void test_classes_are_the_references(void **state)
{
    (void)state;
    struct json *root = open_cases();
    const struct json *classes = json_get(root, "classes");
    struct str all = {0};
    for (uint32_t c = 0; c < 0x110000; c++) {
        unsigned char utf8[4];
        if (c < 0xD800 || c >= 0xE000) str_add(&all, utf8, (size_t)utf8_put(utf8, c));
    }
    assert_true(json_size(classes) > 50);
    for (size_t i = 0; i < json_size(classes); i++) {
        const struct json *row = json_at(classes, i);
        size_t n;
        const char *pattern = json_string(json_get(row, "pattern"), &n, NULL);
        int64_t wanted = json_int(json_get(row, "count"), -1), hits, sum;
        for (int general = 0; general < 2; general++) {
            if (general && wanted > 200000) continue; /* the same table, and slow */
            count(pattern, n, general, &all, &hits, &sum);
            if (hits != wanted || sum != json_int(json_get(row, "sum"), -1))
                fail_msg("%s%s matches %lld code points, wanted %lld", pattern, general ? " by Oniguruma" : "",
                         (long long)hits, (long long)wanted);
        }
    }
    str_free(&all);
    json_free(root);
}

static void random_text(struct str *s, uint64_t *seed)
{
    static const uint32_t spans[][2] = {{0, 127},          {32, 126},        {9, 13},        {32, 32},
                                        {48, 57},          {0x80, 0x24F},    {0x300, 0x5FF}, {0x2000, 0x206F},
                                        {0x3000, 0x30FF},  {0x4E00, 0x4EFF}, {0, 0xD7FF},    {0x10000, 0x10FFFF},
                                        {0x10D40, 0x10D8F}};
    str_clear(s);
    for (uint32_t n = 1 + dice(seed) % 60; n; n--) {
        const uint32_t *span = spans[dice(seed) % (sizeof spans / sizeof *spans)];
        uint32_t c = span[0] + dice(seed) % (span[1] - span[0] + 1);
        unsigned char utf8[4];
        for (uint32_t again = dice(seed) % 8 ? 1 : 5; again; again--) str_add(s, utf8, (size_t)utf8_put(utf8, c));
    }
}

/* In parts: what is not decided comes again with more behind it. */
static void cut_parts(const struct split *s, const struct str *text, uint64_t *seed, struct ends *out)
{
    struct split_work *w = split_work_new(s);
    struct err e;
    size_t done = 0, end = 0;
    *out = (struct ends){0};
    while (done < text->n) {
        size_t used, more = 1 + dice(seed) % 9;
        end = end + more < text->n ? end + more : text->n;
        size_t whole = end == text->n ? end : utf8_cut((const unsigned char *)text->p, end);
        if (whole < done) continue;
        /* A copy of exactly that length: nothing behind it may matter. */
        unsigned char *copy = xmalloc(whole - done + 1);
        memcpy(copy, text->p + done, whole - done);
        assert_ok(split_run(s, w, copy, whole - done, end == text->n, take, out, &used, &e), &e);
        xfree(copy);
        done += used;
    }
    split_work_free(w);
}

static void test_both_matchers_agree(void **state)
{
    (void)state;
    struct json *root = open_cases();
    const struct json *patterns = json_get(root, "patterns");
    struct str text = {0};
    uint64_t seed = 3;
    for (size_t i = 0; i < json_size(patterns); i++) {
        size_t n;
        const char *pattern = json_string(json_get(json_at(patterns, i), "pattern"), &n, NULL);
        struct split *fast = one(pattern, n, false), *slow = one(pattern, n, true);
        assert_true(i >= 6 || !split_needs_whole_text(fast)); /* the published ones stream */
        for (int round = 0; round < 150; round++) {
            struct ends a, b, c;
            random_text(&text, &seed);
            cut(fast, text.p, text.n, &a);
            cut(slow, text.p, text.n, &b);
            cut_parts(fast, &text, &seed, &c);
            if (a.n != b.n || memcmp(a.at, b.at, (size_t)a.n * sizeof *a.at))
                fail_msg("%s: %d pieces, Oniguruma %d: %s", pattern, a.n, b.n, text.p);
            if (a.n != c.n || memcmp(a.at, c.at, (size_t)a.n * sizeof *a.at))
                fail_msg("%s: %d pieces, in parts %d: %s", pattern, a.n, c.n, text.p);
        }
        split_free(fast);
        split_free(slow);
    }
    str_free(&text);
    json_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_are_the_references),
        cmocka_unit_test(test_classes_are_the_references),
        cmocka_unit_test(test_both_matchers_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
