/* SPDX-License-Identifier: Apache-2.0 */
/* Decontamination: n-grams of benchmarks are found whatever their case, marks and spaces, and told with file and
 * document; what is cut, and what stays, against a plain search; documents that go; options that contradict each other.
 */
#include "data/data_test.h"

#include <ctype.h>
#include <string.h>

#include "base/json.h"
#include "base/rng.h"
#include "curate/contamination.h"
#include "curate/filter.h"
#include "curate/removals.h"
#include "curate/rules.h"
#include "sanitized.h"

static void put_words(struct str *s, uint64_t stream, int n)
{
    static const char *const marks[] = {" ", "  ", ", ", "\n", " - ", "; "};
    for (int i = 0; i < n; i++) {
        uint32_t w = rng_u32(4, stream, (uint64_t)i);
        if (i) str_puts(s, marks[w / 1000 % 6]);
        str_printf(s, "w%u", w % 400);
    }
}

/* Words of a text, by the definition: runs of ASCII letters and digits, in lower case. */
static int words_of(const char *text, char word[][16], size_t (*place)[2])
{
    int n = 0;
    for (size_t i = 0; text[i];) {
        size_t k = 0;
        while (!isalnum((unsigned char)text[i]) && text[i]) i++;
        if (!text[i]) break;
        place[n][0] = i;
        while (isalnum((unsigned char)text[i])) word[n][k++] = (char)tolower(text[i++]);
        word[n][k] = 0;
        place[n++][1] = i;
    }
    return n;
}

/* Against plain comparison of words: small texts over few words, so that much agrees. */
static void finds_all(void **state)
{
    (void)state;
    enum { TEXTS = 12, WORDS = 60, MOST = 200 };
    static char text[TEXTS + 1][WORDS * 8], word[TEXTS + 1][MOST][16];
    static size_t place[TEXTS + 1][MOST][2];
    int64_t n_found = 0;
    for (uint64_t round = 0; round < 60 / CASE_STRIDE; round++) {
        int n = 3 + (int)(round % 4), least = 1 + (int)(round % 3), count[TEXTS + 1];
        struct contamination c;
        contamination_init(&c, n, least);
        for (int t = 0; t <= TEXTS; t++) {
            struct str s = {0};
            for (int i = 0, k = t == TEXTS ? WORDS : 1 + (int)(rng_u32(1, round, (uint64_t)t) % 20); i < k; i++)
                str_printf(&s, "%s%c%s", i ? " " : "", (int)("aAbBcC"[rng_u32(2, round, (uint64_t)(t * 100 + i)) % 6]),
                           rng_u32(3, round, (uint64_t)(t * 100 + i)) % 5 ? "" : "!?");
            snprintf(text[t], sizeof text[t], "%s", str_text(&s));
            str_free(&s);
            count[t] = words_of(text[t], word[t], place[t]);
            if (t < TEXTS) contamination_add(&c, text[t], strlen(text[t]), 0, (uint32_t)t);
        }
        struct gram_search s = {0};
        contamination_find(&c, text[TEXTS], strlen(text[TEXTS]), &s);
        size_t want = 0;
        for (int i = 0; i < count[TEXTS]; i++)
            for (int length = 1; length <= n && i + length <= count[TEXTS]; length++) {
                int whose = -1;
                for (int t = 0; t < TEXTS && whose < 0; t++) {
                    int own = count[t] < n ? count[t] : n;
                    if (own != length || own < least) continue;
                    for (int k = 0; k + length <= count[t] && whose < 0; k++) {
                        bool same = true;
                        for (int j = 0; j < length; j++) same = same && !strcmp(word[t][k + j], word[TEXTS][i + j]);
                        if (same) whose = t;
                    }
                }
                if (whose < 0) continue;
                assert_true(want < s.n);
                assert_int_equal(s.found[want].from, place[TEXTS][i][0]);
                assert_int_equal(s.found[want].to, place[TEXTS][i + length - 1][1]);
                assert_int_equal(s.found[want].gram->document, whose);
                want++;
            }
        assert_int_equal(s.n, want);
        n_found += (int64_t)want;
        gram_search_fini(&s);
        contamination_fini(&c);
    }
    assert_true(n_found > 500 / CASE_STRIDE);
}

/* One document through a filter as RULES.yaml has it. */
struct judged {
    int rule;
    struct document d;
    struct removals r;
    struct rules *rules;
};
static void judge(struct judged *j, const char *rules, const char *text)
{
    struct err e = {0};
    *j = (struct judged){0};
    assert_ok(rules_parse(&j->rules, rules, strlen(rules), "r.yaml", &e), &e);
    removals_init(&j->r, j->rules->use, j->rules->n);
    struct origin from = {.source = "in.jsonl"};
    document_set(&j->d, text, strlen(text), &from);
    struct findings *f = removals_begin(&j->r, 0, &j->d);
    j->rule = j->rules->use[0].filter->judge(&j->rules->use[0], &j->d, f);
    removals_end(&j->r, 0, &j->d, j->rule);
}

static void forget(struct judged *j)
{
    removals_fini(&j->r);
    document_free(&j->d);
    rules_free(j->rules);
}

static void cuts(void **state)
{
    (void)state;
    char *dir = scratch_new();
    struct str text = {0}, rules = {0}, before = {0}, after = {0};
    const char *bench = "{\"q\": \"unrelated words that nobody says in any text of this test here\"}\n"
                        "{\"q\": \"Which of the seven seas is so salty that no fish of any kind can live in it?\"}\n"
                        "{\"q\": \"Too short to look for\"}\n";
    char *path = put_file(dir, "bench.jsonl", bench, strlen(bench));
    put_words(&before, 1, 200);
    put_words(&after, 2, 200);
    str_printf(&text, "%s WHICH of the seven seas, is so   salty that no\nfish of any kind %s", before.p, after.p);
    str_printf(&rules, "rules:\n  - contamination: {files: [{path: %s, column: q}], window: 50, min_piece: 100}\n",
               path);
    struct judged j;
    judge(&j, rules.p, text.p);
    assert_int_equal(j.rule, FILTER_KEEPS);
    /* Two n-grams of 13 words overlap; 50 characters on either side go with them. */
    size_t at = before.n + 1 - 50, end = (size_t)(strstr(text.p, " kind w") - text.p) + 5 + 50;
    struct str want = {0};
    str_add(&want, text.p, at);
    str_puts(&want, "\n\n");
    str_puts(&want, text.p + end);
    assert_string_equal(j.d.text.p, want.p);
    assert_non_null(strstr(str_text(&j.d.notes), "\"contaminated\": {\"file\": \""));
    assert_non_null(strstr(str_text(&j.d.notes),
                           "\"document\": 1, \"ngram\": \"WHICH of the seven seas, is so   salty that no\\nfish"));
    assert_non_null(strstr(str_text(&j.d.notes), "\"ngrams\": 2}"));
    assert_int_equal(j.r.use[0].changed, 1);
    forget(&j);
    /* Nothing of it: nothing happens. Not even of 12 words. */
    judge(&j, rules.p, "Which of the seven seas is so salty that no fish of them");
    assert_int_equal(j.rule, FILTER_KEEPS);
    assert_false(j.d.changed);
    assert_int_equal(j.d.notes.n, 0);
    forget(&j);
    /* Pieces that are too short go, and then all of it. */
    judge(&j, rules.p,
          "He asked: which of the seven seas is so salty that no fish of any kind can live in it? Nobody knew.");
    assert_string_equal(j.rules->use[0].filter->rule[j.rule].name, "nothing_left");
    assert_non_null(strstr(j.r.use[0].gone.s[0].text, "bench.jsonl, document 1: which of the seven"));
    forget(&j);
    str_clear(&rules);
    str_printf(&rules, "rules:\n  - contamination: {files: {path: %s, column: q}, action: drop}\n", path);
    judge(&j, rules.p, text.p);
    assert_string_equal(j.rules->use[0].filter->rule[j.rule].name, "ngrams");
    forget(&j);
    /* Too many pieces. */
    str_clear(&rules);
    str_printf(&rules, "rules:\n  - contamination: {files: {path: %s, column: q}, window: 0, max_pieces: 3}\n", path);
    str_clear(&text);
    for (int i = 0; i < 4; i++) {
        put_words(&text, (uint64_t)i, 80);
        str_puts(&text, " which of the seven seas is so salty that no fish of any kind ");
    }
    judge(&j, rules.p, text.p);
    assert_string_equal(j.rules->use[0].filter->rule[j.rule].name, "pieces");
    forget(&j);
    xfree(path);
    str_free(&text), str_free(&rules), str_free(&before), str_free(&after), str_free(&want);
    scratch_free(dir);
}

static void refused(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = put_file(dir, "b.txt", "only four words here", 20);
    struct str rules = {0};
    static const char *const wrong[][2] = {
        {"{files: [%s], ngram: 5, short_ngram: 8}", "short_ngram 8 is more than ngram 5"},
        {"{files: [%s]}", "none of the 1 texts"},
        {"{files: [], ngram: %.0s13}", "no file is named"},
        {"{files: [%s.gone]}", "r.yaml:2"},
        {"{files: [{path: %s, column: q}]}", "plain text"},
        {"{ngram: %.0s13}", "files"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct rules *r = NULL;
        struct err e = {0};
        char options[300];
        snprintf(options, sizeof options, wrong[i][0], path);
        str_clear(&rules);
        str_printf(&rules, "rules:\n  - contamination: %s\n", options);
        int code = rules_parse(&r, rules.p, rules.n, "r.yaml", &e);
        assert_int_equal(code, ERR_REQUEST);
        if (!strstr(e.text, wrong[i][1])) fail_msg("'%s' gave '%s'", options, e.text);
    }
    str_free(&rules);
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(finds_all), cmocka_unit_test(cuts), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
