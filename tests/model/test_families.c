/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of families.def against each other and against the table of numbers: no word, type or letter is two
 * families', a default is a number that the family has and that is not everybody's, what files fix is what a config
 * begins with, and texts that list families list those. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "model/family_defaults.h"
#include "model/family_letters.h"

/* clang-format off */
static const struct type {
    enum model_family family;
    unsigned letters;
    const char *name, *writes, *scores;
} types[HF_N] = {
#define MODEL_TYPE(id, letters, family, type, writes, scores, ...) [HF_##id] = {MODEL_##family, letters, type, writes, scores},
#include "model/families.def"
};
static const struct row_default {
    enum model_family family;
    const char *path, *value;
} defaults[] = {
#define DEFAULT(family, number, value) {MODEL_##family, "model." #number, value},
#include "model/families.def"
};
/* clang-format on */
enum { DEFAULTS = sizeof defaults / sizeof *defaults };

static bool is_word(const char *text)
{
    bool word = *text != 0;
    for (; *text; text++)
        word = word && (islower((unsigned char)*text) || isdigit((unsigned char)*text) || *text == '_');
    return word;
}

static void words_are_told_apart(void **state)
{
    (void)state;
    struct str all = {0};
    for (int f = 0; f < MODEL_N; f++) {
        const char *word = model_family_name((enum model_family)f);
        if (!is_word(word)) fail_msg("family %d: '%s' is no word", f, word);
        for (int g = 0; g < f; g++)
            if (!strcmp(word, model_families[g].word)) fail_msg("%s is two families", word);
        str_printf(&all, "%s%s", f ? "|" : "", word);
    }
    assert_string_equal(str_text(&all), MODEL_FAMILIES);
    str_free(&all);
}

/* A type is called as its family is, or that and more behind a bar: deepseek_v3. */
static bool is_named_after(const char *type, const char *word)
{
    size_t n = strlen(word);
    return !strncmp(type, word, n) && (!type[n] || type[n] == '_');
}

/* The name of a reward model begins as that of one that writes does. */
static bool are_of_one_model(const char *scores, const char *writes)
{
    const char *lm = strstr(writes, "LMHead"), *stem = lm ? lm : strstr(writes, "For");
    return stem && !strncmp(scores, writes, (size_t)(stem - writes)) && str_ends(scores, "ForSequenceClassification");
}

static void types_are_told_apart(void **state)
{
    (void)state;
    unsigned all = 0;
    for (int t = 0; t < HF_N; t++) {
        const struct type *x = &types[t];
        const char *word = model_family_name(x->family);
        if (!is_word(x->name) || !is_named_after(x->name, word)) fail_msg("%s as a type of %s", x->name, word);
        if (!isupper((unsigned char)*x->writes)) fail_msg("%s: '%s' is no architecture", x->name, x->writes);
        if (x->scores && !are_of_one_model(x->scores, x->writes)) fail_msg("%s: %s, %s", x->name, x->writes, x->scores);
        for (int u = 0; u < t; u++)
            if (!strcmp(x->name, types[u].name) || !strcmp(x->writes, types[u].writes))
                fail_msg("%s and %s are one", x->name, types[u].name);
        assert_int_equal(x->letters, 1u << t);
        all |= x->letters;
    }
    assert_int_equal(all, (unsigned)ALL);
    for (int f = 0; f < MODEL_N; f++) assert_int_equal(types[model_families[f].type].family, f);
}

/* Types whose models have a score, and families that may have one. */
static void scores_are_of_those_that_may(void **state)
{
    (void)state;
    for (int t = 0; t < HF_N; t++) {
        const struct model_config c = {.family = types[t].family};
        assert_int_equal(types[t].scores != NULL, model_may_score(&c));
    }
}

/* ---- defaults ---- */
static double value_at(const struct number *n, const struct model_config *c)
{
    const void *at = (const char *)c + n->row.offset;
    switch (n->row.type) {
    case CONF_INT: return (double)*(const int64_t *)at;
    case CONF_REAL: return *(const double *)at;
    case CONF_BOOL: return *(const bool *)at;
    case CONF_CHOICE: return *(const int *)at;
    default: return 0;
    }
}

/* The place of a word among a number's, or -1. */
static int place_of(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (int i = 0;; i++, words = strchr(words, '|') + 1) {
        if (!strncmp(words, word, n) && (!words[n] || words[n] == '|')) return i;
        if (!strchr(words, '|')) return -1;
    }
}

/* A row's text as a number; -1: it is none. */
static double meant(const struct number *n, const char *text)
{
    char *end;
    double x = strtod(text, &end);
    switch (n->row.type) {
    case CONF_INT:
    case CONF_REAL: return *end || x < n->row.lo || x > n->row.hi ? -1 : x;
    case CONF_BOOL: return !strcmp(text, "true") ? 1 : !strcmp(text, "false") ? 0 : -1;
    case CONF_CHOICE: return place_of(n->row.choices, text);
    default: return layer_pattern_wanted(text) ? -1 : 0;
    }
}

static bool nobody(const void *ctx, const char *path) { return ctx && !path; }

/* What a config of the family begins with, but sizes; with experts where it wants them, and scaled positions, which any
 * may say. */
static struct model_config begun(enum model_family f)
{
    struct model_config c = {.family = f};
    for (const struct number *n = model_numbers; n->row.path; n++) {
        void *at = (char *)&c + n->row.offset;
        double x = strcmp(n->row.otherwise, "null") ? meant(n, n->row.otherwise) : 0;
        if (n->row.type == CONF_INT) *(int64_t *)at = (int64_t)x;
        if (n->row.type == CONF_REAL) *(double *)at = x;
        if (n->row.type == CONF_BOOL) *(bool *)at = x > 0;
        if (n->row.type == CONF_CHOICE) *(int *)at = (int)x;
    }
    if (model_wants_experts(&c)) c.moe.experts = 4;
    c.yarn.factor = 2;
    family_defaults(&c, nobody, NULL);
    return c;
}

static void defaults_are_the_familys_own(void **state)
{
    (void)state;
    for (int i = 0; i < DEFAULTS; i++) {
        const struct row_default *d = &defaults[i];
        const struct number *n = number_find(d->path);
        struct model_config c = begun(d->family);
        const char *word = model_family_name(d->family);
        assert_non_null(n);
        if (meant(n, d->value) < 0) fail_msg("%s: %s is no %s", word, d->value, d->path);
        if (!strcmp(d->value, n->row.otherwise)) fail_msg("%s: %s: %s is everybody's", word, d->path, d->value);
        if (!number_needed(n, &c)) fail_msg("%s: %s has no effect", word, d->path);
        if (n->row.type == CONF_WORD) assert_string_equal((const char *)&c + n->row.offset, d->value);
        else assert_true(value_at(n, &c) == meant(n, d->value));
        for (int k = 0; k < i; k++)
            if (defaults[k].family == d->family && !strcmp(defaults[k].path, d->path))
                fail_msg("%s: %s has two", word, d->path);
    }
}

/* What no key of a type's config.json says, since it is always the same there, is so in a new config too. */
static void what_files_fix_is_a_default(void **state)
{
    (void)state;
    int seen = 0;
    for (int t = 0; t < HF_N; t++) {
        struct model_config c = begun(types[t].family);
        for (const struct number *n = model_numbers; n->row.path; n++)
            for (const struct spelling *s = n->theirs; s < n->theirs + NUMBER_SPELLINGS && s->in; s++) {
                if (s->key || !(s->in >> t & 1)) continue;
                seen++;
                if (value_at(n, &c) != s->otherwise)
                    fail_msg("%s: %s is %g in files and %g in a config", types[t].name, n->row.path, s->otherwise,
                             value_at(n, &c));
            }
    }
    assert_true(seen > 15);
}

/* ---- texts ---- */
static bool names(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p++) {
        bool begins = p == text || !(isalnum((unsigned char)p[-1]) || p[-1] == '_');
        if (begins && !isalnum((unsigned char)p[n]) && p[n] != '_' && p[n] != '.') return true;
    }
    return false;
}

/* Why a number has no effect is said in words that name families: those that have it ("only vit sees"), or those that
 * have it not. */
static void texts_name_the_families_that_they_are_about(void **state)
{
    (void)state;
    int said = 0;
    for (const struct number *n = model_numbers; n->row.path; n++) {
        const char *text = number_idle(n);
        bool any = false, only = str_starts(text, "only ");
        for (int f = 0; f < MODEL_N; f++) any = any || names(text, model_families[f].word);
        for (int f = 0; any && f < MODEL_N; f++) {
            const struct model_config c = {.family = (enum model_family)f};
            if (names(text, model_families[f].word) != (number_needed(n, &c) == only))
                fail_msg("%s, and %s: '%s'", n->row.path, model_families[f].word, text);
        }
        said += any;
    }
    assert_true(said > 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_told_apart),         cmocka_unit_test(types_are_told_apart),
        cmocka_unit_test(scores_are_of_those_that_may), cmocka_unit_test(defaults_are_the_familys_own),
        cmocka_unit_test(what_files_fix_is_a_default),  cmocka_unit_test(texts_name_the_families_that_they_are_about),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
