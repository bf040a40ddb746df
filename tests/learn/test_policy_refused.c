/* SPDX-License-Identifier: Apache-2.0 */
/* What GRPO cannot be beside is refused by its key, on one rank and where ranks share out sequences or heads. */
#include "runs.h"

#include "config/config.h"

static const struct {
    const char *keys, *says; /* keys: between spaces; says: "" goes */
} rows[] = {
    {"", ""},
    {"data.pack=joined", ""},
    {"data.pack=best_fit", "data.pack: beside train.objective: grpo: a sequence is one answer"},
    {"data.pack=padded data.group=4", "data.group: beside train.objective: grpo: a sequence is one answer"},
    {"model.document_mask=true", "model.document_mask: beside train.objective: grpo: a sequence is one answer"},
    {"model.dropout=0.1", "model.dropout: beside train.objective: grpo"},
    {"precision.recipe=fp8-current", "precision.recipe: beside train.objective: grpo"},
    {"precision.recipe=fp16", "precision.recipe: beside train.objective: grpo"},
    {"data.skip_bad=true", "data.skip_bad: beside train.objective: grpo"},
    {"data.fim.rate=0.5", "data.fim.rate: beside train.objective: grpo"},
    {"train.grpo.reward=null", "train.grpo.reward: beside train.objective: grpo"},
};
static const char *const layouts[] = {"", "parallel.cp=2", "parallel.tp=2", "parallel.dp_shard=2"};

static void by_their_keys(void **state)
{
    (void)state;
    static const char usual[] = "data.train=prompts.jsonl data.tokenizer=byte model.seq_len=64 batch.global=8 "
                                "batch.micro=2 train.objective=grpo train.grpo.reward=x train.grpo.tokens=16 "
                                "train.grpo.group=4 model.layers=1 model.hidden=32 model.heads=4 model.kv_heads=4 "
                                "run.steps=8";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
            struct config c;
            struct conf *conf = NULL;
            struct err e = {0};
            struct arena *a = arena_new();
            char *keys[32], all[1024];
            int n = 0;
            snprintf(all, sizeof all, "%s %s %s", usual, rows[i].keys, layouts[k]);
            for (char *rest = all, *word; (word = strsep(&rest, " "));)
                if (*word) keys[n++] = word;
            int rc = config_load(&c, &conf, a, NULL, keys, n, &e);
            if (!rc) rc = config_resolve(&c, conf, 257, *layouts[k] ? 2 : 1, &e);
            if (*rows[i].says ? !rc || !strstr(e.text, rows[i].says) : rc)
                fail_msg("%s %s: %d %s", rows[i].keys, layouts[k], rc, e.text);
            arena_free(a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_their_keys)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
