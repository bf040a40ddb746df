/* SPDX-License-Identifier: Apache-2.0 */
/* train_style.c: the rows, and their cutting rules. Qwen 2 normalises to NFC besides, which a trained file leaves out:
 * it would change the text. */
#include "token/train_style.h"

#include <string.h>

static const char *const split_qwen2 =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char *const split_deepseek =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const char *const split_threes = "\\p{N}{1,3}";
static const char *const split_ideographs =
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+";

static const struct train_style styles[] = {
    {"gpt2", {&SPLIT_GPT2}},
    {"llama3", {&SPLIT_LLAMA3}},
    {"qwen2", {&split_qwen2}},
    {"deepseek", {&split_threes, &split_ideographs, &split_deepseek}},
};

int train_style_find(const struct train_style **s, const char *name, struct err *e)
{
    *s = NULL;
    for (size_t i = 0; i < sizeof styles / sizeof *styles && !*s; i++)
        if (!strcmp(styles[i].name, name)) *s = &styles[i];
    if (*s) return OK;
    return err_set(e, ERR_REQUEST, "style \"%s\" is not known; choose one of %s", name, TRAIN_STYLES);
}

int train_style_splits(const struct train_style *s, const char *out[TRAIN_SPLITS])
{
    int n = 0;
    for (; n < TRAIN_SPLITS && s->splits[n]; n++) out[n] = *s->splits[n];
    return n;
}

void train_rules_init(struct cut_rules *r, const char *const *splits, int n)
{
    struct err e;
    char eos[] = TRAIN_EOS;
    *r = (struct cut_rules){.split = split_new()};
    added_put(&r->added[0], &(struct added_token){.text = eos, .n = sizeof eos - 1, .special = true});
    for (int i = 0; i < 2; i++) added_finish(&r->added[i]);
    for (int i = 0; i < n; i++) {
        int code = split_add(r->split, splits[i], strlen(splits[i]), "style", &e);
        CHECK(!code, "a published expression: %s", e.text);
    }
}

void train_rules_fini(struct cut_rules *r)
{
    for (int i = 0; i < 2; i++) added_fini(&r->added[i]);
    split_free(r->split);
    *r = (struct cut_rules){0};
}
