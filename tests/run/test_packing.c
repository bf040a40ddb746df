/* SPDX-License-Identifier: Apache-2.0 */
/* Packed documents: a document's loss is what it is alone, in every family, by plain loops and fast kernels, over every
 * way of context parallelism; training over ranks is training on one; and a run that is stopped goes on as if it had
 * not been, on other ranks too, with packing, weights by step and several epochs. */
#include "run/runs.h"

#include "sanitized.h"

/* Documents of 1 to 60 letters: some longer than a sample of 24. */
static void documents_open(struct folder *f, const char *name, int n)
{
    struct err e = {0};
    struct str s = {0};
    char path[160];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    for (int i = 0; i < n; i++) {
        int letters = i % 17 == 4 ? 60 : 1 + (int)(rng_u32(1, 1, (uint64_t)i) % 20);
        str_puts(&s, "{\"text\":\"");
        for (int k = 0; k < letters; k++) str_putc(&s, (char)('a' + rng_u32(2, (uint64_t)i, (uint64_t)k) % 26));
        str_puts(&s, "\"}\n");
    }
    assert_int_equal(fs_write_atomic(path, str_text(&s), s.n, &e), OK);
    str_free(&s);
}

static const char *const families[][12] = {
    {"model.family=gpt2", "model.kv_heads=4", NULL},
    {"model.family=llama", NULL},
    {"model.family=mixtral", "model.moe.experts=4", "model.moe.top_k=2", NULL},
    {"model.family=deepseek", "model.kv_heads=4", "model.moe.experts=4", "model.moe.top_k=2", "model.mla.kv_rank=8",
     "model.mla.nope_dim=8", "model.mla.rope_dim=4", "model.mla.value_dim=8", NULL},
};

/* Validation of all documents by weights that were not trained. */
static double loss_of(const struct folder *f, int family, const char *pack, int ranks, const char *cp,
                      const char *kernels, int64_t *tokens)
{
    char valid[200], name[100], pack_key[40], cp_key[60], kernels_key[40];
    const char *keys[40];
    int n = 0;
    struct trainer_result r = {0};
    struct err e = {0};
    snprintf(valid, sizeof valid, "data.valid=%s/valid.jsonl", f->dir);
    snprintf(pack_key, sizeof pack_key, "data.pack=%s", pack);
    snprintf(kernels_key, sizeof kernels_key, "run.kernels=%s", kernels);
    snprintf(cp_key, sizeof cp_key, "parallel.cp_algorithm=%s", cp ? cp : "ring");
    snprintf(name, sizeof name, "%d-%s-%d-%s-%s", family, pack, ranks, cp ? cp : "one", kernels);
    for (int i = 0; families[family][i]; i++) keys[n++] = families[family][i];
    const char *const more[] = {valid,
                                pack_key,
                                kernels_key,
                                cp_key,
                                "data.window=16",
                                "optimizer.lr=0",
                                "run.steps=1",
                                "run.eval_every=1",
                                "run.eval_batches=0",
                                "checkpoint.every=0",
                                "run.compare_every=0",
                                "precision.recipe=fp32"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) keys[n++] = more[i];
    if (cp) keys[n++] = ranks == 2 ? "parallel.cp=2" : ranks == 3 ? "parallel.cp=3" : "parallel.cp=4";
    keys[n] = NULL;
    if (train_ranks(f, name, ranks, keys, &r, &e)) fail_msg("%s: %s", name, e.text);
    *tokens = r.tokens;
    return r.valid_loss;
}

static void alone_and_together(void **state)
{
    (void)state;
    static const char *const ways[] = {"ring", "all_gather", "all_to_all", "two_level"};
    struct folder f;
    folder_open(&f);
    documents_open(&f, "valid.jsonl", 30);
    snprintf(f.text, sizeof f.text, "%s/valid.jsonl", f.dir);
    for (int family = 0; family < 4; family++) {
        int64_t tokens;
        double alone = loss_of(&f, family, "padded", 1, NULL, "ref", &tokens);
        assert_true(alone > 1);
        for (int k = 0; k < 2; k++) {
            double packed = loss_of(&f, family, "best_fit", 1, NULL, k ? "auto" : "ref", &tokens);
            if (fabs(packed - alone) > 2e-6 * alone)
                fail_msg("family %d: %.9f in a sample of its own, %.9f packed", family, alone, packed);
        }
        for (int w = family % 2; w < (SANITIZED ? 2 : 4); w += 2) { /* each way with two of the families */
            double packed = loss_of(&f, family, "best_fit", w == 3 ? 4 : w == 1 ? 3 : 2, ways[w], "auto", &tokens);
            if (fabs(packed - alone) > 2e-6 * alone)
                fail_msg("family %d: %.9f in a sample of its own, %.9f packed over cp by %s", family, alone, packed,
                         ways[w]);
        }
        double joined = loss_of(&f, family, "joined", 1, NULL, "auto", &tokens);
        assert_true(fabs(joined - alone) > 1e-4 * alone); /* where documents see each other the loss is another */
    }
    folder_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(alone_and_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
