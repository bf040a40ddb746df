/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long addresses */
/* Every family with everything else: each is planned, which records and lowers the whole step of every rank's role, in
 * layouts of up to eight ranks, in every recipe, with what saves memory, with every objective. It is planned, or
 * refused with words that name a key; nothing else comes of it. What a plan computes is tests/verify's; but that
 * backward reads what forward left, whatever is computed again, is proved whenever a program is made (tape/values.c).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "drawn.h"
#include "families.h"
#include "plan/plan.h"

/* The number of ranks, and keys. */
static const struct {
    int ranks;
    const char *keys;
} crossings[] = {
    {1, ""},
    {1, "train.objective=dpo batch.micro=1"},
    {1, "train.objective=grpo train.grpo.reward=false train.grpo.tokens=8"},
    {1, "train.objective=grpo train.grpo.reward=false train.grpo.tokens=8 train.grpo.beta=0.1 adapter.kind=dora"},
    {1, "memory.recompute=full"},
    {1, "memory.recompute=selective"},
    {1, "memory.offload=[activations]"},
    {2, "memory.offload=[params,optimizer] parallel.zero=3"},
    {1, "memory.loss_chunk=3"},
    {1, "optimizer.name=muon"},
    {2, "optimizer.name=muon parallel.zero=3"},
    {2, "optimizer.name=adafactor parallel.tp=2"},
    {1, "optimizer.ema=0.9"},
    {1, "model.dropout=0.1"},
    {1, "model.document_mask=true"},
    {1, "data.parts=2"},
    {1, "run.replay_every=10"},
    {2, "numerics.exact_order=true parallel.zero=3"},
    {2, "comm.grad=int8 parallel.zero=3"},
    {2, "comm.param=fp8 parallel.zero=3"},
    {1, "train.only=['*norm*']"},
    {1, "adapter.kind=lora adapter.base=mxfp4 adapter.targets=['*']"},
    {1, "adapter.kind=dora adapter.targets=['*'] memory.recompute=full"},
    {2, "adapter.kind=lora adapter.targets=['*'] parallel.pp=2"},
    {4, "adapter.kind=dora adapter.targets=['*'] parallel.tp=2 parallel.zero=3"},
    {2, "parallel.zero=1"},
    {4, "parallel.dp_replicate=2 parallel.zero=3"},
    {2, "parallel.tp=2"},
    {4, "parallel.tp=4 parallel.sequence_parallel=true"},
    {2, "parallel.cp=2"},
    {4, "parallel.cp=4 parallel.cp_algorithm=all_to_all"},
    {2, "parallel.pp=2"},
    {2, "parallel.pp=2 parallel.schedule=zbh1"},
    {2, "parallel.pp=2 parallel.schedule=dualpipev"},
    {4, "parallel.tp=2 parallel.pp=2"},
    {4, "parallel.tp=2 parallel.pp=2 parallel.sequence_parallel=true parallel.schedule=zbv"},
    {8, "parallel.tp=2 parallel.pp=4"},
    {8, "parallel.tp=2 parallel.pp=2 parallel.cp=2"},
    {8, "parallel.tp=2 parallel.pp=2 parallel.zero=3 memory.recompute=full"},
    {4, "parallel.cp=2 parallel.tp=2 parallel.sequence_parallel=true"},
    {4, "parallel.cp=2 parallel.pp=2"},
    {4, "parallel.ep=2 parallel.tp=2"},
    {8, "parallel.ep=2 parallel.tp=2 parallel.pp=2"},
    {3, "parallel.servers=1"},
};
static const char *const recipes[] = {"fp16", "bf16", "fp8-delayed", "fp8-current", "fp8-block", "mxfp8", "nvfp4"};
static const struct {
    int ranks;
    const char *keys;
} under_recipes[] = {{1, ""},
                     {2, "parallel.zero=3 memory.recompute=full"},
                     {2, "parallel.pp=2"},
                     {4, "parallel.tp=2 parallel.pp=2"}};

/* Each group of operations by itself, and with those that it is read by. */
static const char *const again[] =
    {"norms", "attention", "products", "gathers, norms", "latent, products", "scans, norms", "experts, activations"};
static const struct {
    int ranks;
    const char *keys;
} under_again[] = {{1, ""},
                   {2, "parallel.pp=2 parallel.schedule=zbh1"},
                   {8, "parallel.tp=8"}, /* more ranks than heads */
                   {4, "parallel.tp=2 parallel.pp=2 model.kv_heads=1"},
                   {4, "parallel.tp=2 parallel.cp=2 parallel.sequence_parallel=true"},
                   {4, "parallel.tp=2 parallel.ep=2 moe.buffer=0.5"}};

enum { MOST_WORDS = 64 };

/* Whether it was planned; else it was refused as users are. */
static bool planned(const char *family, int ranks, const char *keys, const char *recipe)
{
    struct arena *a = arena_new();
    struct config c;
    struct plan p;
    struct conf *f;
    struct err e = {0};
    char *all[MOST_WORDS];
    int n = add_words(all, 0, MOST_WORDS, a,
                      "model.layers=4 model.hidden=32 model.heads=4 model.ffn=48 model.vocab=264 model.seq_len=16 "
                      "run.threads=1 batch.global=16 batch.micro=2 parallel.dp_shard=-1 data.train=x.txt");
    n = add_family(all, n, MOST_WORDS, a, family);
    n = add_words(all, n, MOST_WORDS, a, arena_printf(a, "precision.recipe=%s", recipe));
    n = add_words(all, n, MOST_WORDS, a, keys);
    int rc = config_load(&c, &f, a, NULL, all, n, &e);
    if (!rc) rc = config_resolve(&c, f, 0, ranks, &e);
    if (!rc) rc = plan_make(&p, &c, &e);
    if (!rc) plan_free(&p);
    if (rc && (rc != ERR_REQUEST || !strchr(e.text, '.') || strstr(e.text, "unknown key") || strstr(e.text, "wanted")))
        fail_msg("%s, %d ranks, %s, %s: %d, %s", family, ranks, keys, recipe, rc, e.text);
    arena_free(a);
    return !rc;
}

static void test_every_family_is_there(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_N; m++) {
        const char *name = model_family_name((enum model_family)m);
        int f = 0;
        while (f < N_FAMILIES &&
               (strcspn(families[f], " ") != strlen(name) || strncmp(families[f], name, strlen(name))))
            f++;
        if (f == N_FAMILIES) fail_msg("%s has no row in tests/families.h", name);
    }
}

/* Every day half of the families, beside each of the others' keys other ones. */
static int apart(void) { return drawn_whole() ? 1 : 2; }
static int first(size_t i) { return drawn_whole() || drawn_here((int64_t)i, 2) ? 0 : 1; }

static void test_every_family_with_everything(void **state)
{
    (void)state;
    int all = 0, tried = 0;
    for (size_t k = 0; k < sizeof crossings / sizeof *crossings; k++) {
        int some = 0;
        for (int f = first(k); f < N_FAMILIES; f += apart(), tried++)
            some += planned(families[f], crossings[k].ranks, crossings[k].keys, "fp32");
        if (!some) fail_msg("no family is planned with %s", crossings[k].keys);
        all += some;
    }
    print_message("%d of %d are planned\n", all, tried);
    assert_true(all > 3 * tried / 4);
}

static void test_every_family_computes_again(void **state)
{
    (void)state;
    int all = 0, tried = 0;
    for (size_t r = 0; r < sizeof again / sizeof *again; r++)
        for (size_t k = 0; k < sizeof under_again / sizeof *under_again; k++)
            for (int f = first(r + k); f < N_FAMILIES; f += apart(), tried++) {
                char keys[160], *blank;
                snprintf(keys, sizeof keys, "%s memory.recompute=[%s]", under_again[k].keys, again[r]);
                while ((blank = strstr(keys, ", "))) memmove(blank + 1, blank + 2, strlen(blank + 1)); /* one word */
                all += planned(families[f], under_again[k].ranks, keys, "fp32");
            }
    print_message("%d of %d are planned\n", all, tried);
    assert_true(all > tried / 2);
}

static void test_every_family_in_every_recipe(void **state)
{
    (void)state;
    int all = 0, tried = 0;
    for (size_t r = 0; r < sizeof recipes / sizeof *recipes; r++)
        for (size_t k = 0; k < sizeof under_recipes / sizeof *under_recipes; k++)
            for (int f = first(r + k); f < N_FAMILIES; f += apart(), tried++)
                all += planned(families[f], under_recipes[k].ranks, under_recipes[k].keys, recipes[r]);
    print_message("%d of %d are planned\n", all, tried);
    assert_true(all > tried / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_is_there),
        cmocka_unit_test(test_every_family_with_everything),
        cmocka_unit_test(test_every_family_computes_again),
        cmocka_unit_test(test_every_family_in_every_recipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
