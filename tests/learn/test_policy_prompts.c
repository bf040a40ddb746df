/* SPDX-License-Identifier: Apache-2.0 */
/* The prompts of GRPO as tokens, known by construction: a text stands behind what the tokenizer puts before one, as it
 * does where the model is asked. */
#include "runs.h"

#include "learn/policy_prompts.h"

#define TOKENIZER(processor)                                                                                           \
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true},{\"id\":5,\"content\":\"</s>\",\"special\":"   \
    "true}],\"post_processor\":" processor ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,"         \
    "\"\\n\":3},\"merges\":[\"a b\"]}}"
#define TEXT "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define START                                                                                                          \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}," TEXT             \
    ",{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[4],"    \
    "\"tokens\":[\"<s>\"]},\"</s>\":{\"id\":\"</s>\",\"ids\":[5],\"tokens\":[\"</s>\"]}}}"

static const struct {
    const char *tokenizer, *records;
    int n; /* prompts; 0: refused */
    int32_t ids[2][4];
    int lengths[2];
    int64_t most;
} rows[] = {
    {TOKENIZER("null"), "{\"prompt\":\"aba\"}\n{\"prompt\":\"b\",\"answer\":1}\n", 2, {{2, 0}, {1}}, {2, 1}, 8},
    {TOKENIZER(START), "{\"prompt\":\"aba\"}\n{\"prompt\":\"b\",\"answer\":1}\n", 2, {{4, 2, 0}, {4, 1}}, {3, 2}, 8},
    {TOKENIZER(START), "{\"prompt\":\"<s>a\"}\n", 1, {{4, 4, 0}}, {3}, 8}, /* who writes it has it twice */
    {TOKENIZER(START), "{\"prompt\":\"aba\"}\n", 1, {{4, 2, 0}}, {3}, 3},
    {TOKENIZER(START), "{\"prompt\":\"aba\"}\n", 0, {{0}}, {0}, 2}, /* it counts, too */
    {TOKENIZER(START), "{\"prompt\":\"\"}\n", 0, {{0}}, {0}, 8},
};

static void texts(void **state)
{
    (void)state;
    char *dir = scratch_new(), *path = fs_join(dir, "prompts.jsonl");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e;
        struct tokenizer *t;
        struct policy_prompts *p;
        struct config_source source = {.path = path};
        struct config c = {.data.train = {.items = &source, .n = 1}, .data.order = ORDER_SEQUENTIAL, .model.vocab = 6};
        if (tokenizer_parse(&t, rows[i].tokenizer, strlen(rows[i].tokenizer), "tokenizer.json", &e))
            fail_msg("%s", e.text);
        if (fs_write_atomic(path, rows[i].records, strlen(rows[i].records), &e)) fail_msg("%s", e.text);
        int rc = policy_prompts_open(&p, &c, t, rows[i].most, NULL, &e);
        if (!rows[i].n && (!rc || !strstr(e.text, "prompts.jsonl:1"))) fail_msg("row %zu: %d %s", i, rc, e.text);
        if (rows[i].n && rc) fail_msg("row %zu: %s", i, e.text);
        if (!rc) assert_int_equal(policy_prompts_n(p), rows[i].n);
        for (int k = 0; k < rows[i].n; k++) {
            struct policy_prompt q = policy_prompts_at(p, k);
            assert_int_equal(q.n, rows[i].lengths[k]);
            assert_memory_equal(q.ids, rows[i].ids[k], (size_t)q.n * sizeof *q.ids);
        }
        if (!rc) policy_prompts_close(p);
        tokenizer_free(t);
    }
    xfree(path);
    scratch_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
