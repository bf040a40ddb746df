/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* What families of decoders add to Llama, in layouts of up to three ranks, a few of four, against one rank: windows,
 * caps and norms of queries and keys over cp and tp (also with fewer key heads than ranks), norms of all heads over tp,
 * biases that one rank adds, two tables of angles, layers of different kinds over stages. `tutti verify` takes a config
 * through all. */
#include "verify/toy_layouts.h"

#define SIZES "model.hidden=24", "model.ffn=30", "model.seq_len=13", "batch.global=3", "optimizer.eps=1e-5"
static const struct {
    unsigned axes;
    const char *keys[24];
} variants[] = {
    {VERIFY_TP | VERIFY_CP, /* one key head, so that tp has it whole on each rank */
     {SIZES, "model.family=gemma2", "model.heads=3", "model.kv_heads=1", "model.head_dim=6", "model.attn.window=5",
      "model.attn.cap=2", "model.logit_cap=3", "model.attn.scale_dim=9"}},
    {VERIFY_CP | VERIFY_PP, /* stages that begin with a layer of either kind */
     {SIZES, "model.family=gemma3", "model.heads=4", "model.kv_heads=2", "model.head_dim=6", "model.attn.window=4",
      "model.attn.local=xxo", "model.layers=4", "model.attn.local_theta=50"}},
    {VERIFY_TP | VERIFY_PP,
     {SIZES, "model.family=olmo2", "model.heads=4", "model.kv_heads=2", "model.head_dim=6",
      "model.tie_embeddings=true"}},
    {VERIFY_TP, /* what bf16 rounds grows with each norm behind a layer */
     {"model.family=olmo2", "model.layers=4", "model.hidden=32", "model.heads=4", "model.ffn=48", "model.vocab=264",
      "model.seq_len=16", "batch.global=8", "precision.recipe=bf16"}},
    {VERIFY_TP | VERIFY_DP, /* more ranks than key heads */
     {SIZES, "model.family=olmo2", "model.heads=3", "model.kv_heads=1", "model.head_dim=6"}},
    {VERIFY_TP, /* more ranks than heads, which are normalised each by itself: the third has none */
     {SIZES, "model.family=qwen3", "model.heads=2", "model.kv_heads=1", "model.head_dim=6"}},
    {VERIFY_TP, /* and their products once more: keys turn in memory that is handed on into the ranks' region */
     {SIZES, "model.heads=3", "model.kv_heads=1", "memory.recompute=[products]"}},
    {VERIFY_TP | VERIFY_PP | VERIFY_EP,
     {SIZES, "model.family=qwen3_moe", "model.heads=4", "model.kv_heads=2", "model.head_dim=6", "model.moe.experts=5",
      "model.moe.top_k=2", "model.moe.ffn=10", "model.moe.sparse=xo", "model.layers=3"}},
    {VERIFY_TP | VERIFY_CP | VERIFY_EP, /* sinks, cut in whole groups of heads, and experts' biases, columns over etp */
     {SIZES, "model.family=gpt_oss", "model.heads=6", "model.kv_heads=3", "model.head_dim=6", "model.attn.window=5",
      "model.moe.experts=5", "model.moe.top_k=2", "model.moe.ffn=10", "model.gate_limit=0.02", "model.yarn.factor=4",
      "model.rope_scaling.original_max_position=8"}},
    {VERIFY_TP | VERIFY_PP | VERIFY_DP, /* more ranks than key heads */
     {SIZES, "model.family=gpt_oss", "model.heads=3", "model.kv_heads=1", "model.head_dim=6", "model.attn.window=4",
      "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=10"}},
    {VERIFY_TP | VERIFY_CP | VERIFY_EP, /* further tokens: two modules with experts, what is ahead on other ranks */
     {SIZES, "model.family=deepseek", "model.heads=3", "model.mla.kv_rank=6", "model.mla.nope_dim=4",
      "model.mla.rope_dim=2", "model.mla.value_dim=5", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=10",
      "model.moe.first_dense=1", "model.mtp.depth=2", "model.mtp.weight=0.8", "model.document_mask=true"}},
    {VERIFY_PP | VERIFY_DP, /* the table of tokens on the first stage and on the last, with the module */
     {SIZES, "model.heads=3", "model.kv_heads=1", "model.layers=3", "model.mtp.depth=1", "model.mtp.weight=1"}},
    {VERIFY_TP | VERIFY_DP,
     {SIZES, "model.heads=3", "model.kv_heads=3", "model.attn.qkv_bias=true", "model.attn.o_bias=true",
      "model.mlp_bias=true", "model.attn.rope=xo", "model.attn.qk_norm=head", "model.document_mask=true"}},
    {VERIFY_TP | VERIFY_CP, /* prompts that see themselves both ways, of documents in pieces; angles of long texts */
     {SIZES, "model.family=phi3", "model.heads=3", "model.kv_heads=1", "model.head_dim=6", "model.attn.prefix=true",
      "model.document_mask=true", "model.rope_part=0.7", "model.rope_scaling.factor=4",
      "model.rope_scaling.kind=longrope", "model.rope_scaling.original_max_position=8",
      "model.rope_scaling.short_factors=[1, 1.5]", "model.rope_scaling.long_factors=[1.25, 3]"}},
    {VERIFY_PP | VERIFY_CP | VERIFY_DP,
     {SIZES, "model.heads=3", "model.kv_heads=3", "model.attn.prefix=true", "model.document_mask=true",
      "model.dropout=0.1", "memory.recompute=[attention, norms]", "model.attn.sinks=true"}},
    {VERIFY_CP, /* windows of documents that stand in an order of even work, beside sinks */
     {SIZES, "model.family=gpt_oss", "model.heads=2", "model.kv_heads=1", "model.head_dim=6", "model.attn.window=2",
      "model.moe.experts=3", "model.moe.top_k=2", "model.moe.ffn=10", "model.seq_len=17", "model.document_mask=true",
      "parallel.cp_balance=area"}},
    {VERIFY_CP, /* and of layers of two kinds, with a cap */
     {SIZES, "model.family=gemma2", "model.heads=2", "model.kv_heads=1", "model.head_dim=6", "model.attn.window=2",
      "model.attn.cap=2", "model.seq_len=14", "model.document_mask=true", "parallel.cp_balance=area"}},
#define LOOKS                                                                                                          \
    SIZES, "model.family=llava", "model.heads=3", "model.kv_heads=1", "model.head_dim=6", "model.vision.layers=2",     \
        "model.vision.hidden=15", "model.vision.heads=3", "model.vision.ffn=14", "model.vision.image_size=6",          \
        "model.vision.patch_size=3"
    {VERIFY_TP | VERIFY_CP, {LOOKS, "model.vision.act=quick_gelu", "data.pack=padded"}}, /* pictures in texts */
    {VERIFY_TP | VERIFY_PP | VERIFY_DP,
     {LOOKS, "model.vision.class_place=false", "model.vision.patch_bias=true", "model.vision.norm_before=false",
      "model.vision.images=2", "data.pack=padded"}},
#define SPACES                                                                                                         \
    "model.family=mamba2", "model.hidden=12", "model.seq_len=7", "batch.global=3", "optimizer.eps=1e-4",               \
        "model.ssm.head_dim=4", "model.ssm.state=5", "model.ssm.conv=4"
    {VERIFY_TP | VERIFY_CP, /* a group that all ranks of tp have; pieces shorter than what the convolution sees */
     {SPACES, "model.ssm.heads=3", "model.ssm.groups=1", "model.document_mask=true", "model.ssm.bias=true"}},
    {VERIFY_TP | VERIFY_DP | VERIFY_PP,
     {SPACES, "model.ssm.heads=6", "model.ssm.groups=3", "model.ssm.step_most=0.05"}},
    {VERIFY_DP | VERIFY_PP, /* five matrices make one product, in few bits */
     {"model.family=mamba2", "model.hidden=32", "model.seq_len=32", "batch.global=12", "model.ssm.heads=4",
      "model.ssm.groups=2", "model.ssm.head_dim=16", "model.ssm.state=16", "precision.recipe=nvfp4"}},
#define HYBRID                                                                                                         \
    "model.family=nemotron_h", "model.hidden=12", "model.ffn=20", "model.head_dim=5", "model.seq_len=7",               \
        "batch.global=3", "optimizer.eps=1e-4", "model.ssm.head_dim=4", "model.ssm.state=5", "model.ssm.conv=4"
    {VERIFY_TP | VERIFY_CP, /* states cross ranks beside the ring, documents end in both; one key head for all ranks */
     {HYBRID, "model.pattern=*M-M", "model.layers=4", "model.heads=3", "model.kv_heads=1", "model.ssm.heads=3",
      "model.ssm.groups=1", "model.document_mask=true"}},
    {VERIFY_PP | VERIFY_DP, /* stages of unlike layers */
     {HYBRID, "model.pattern=M-*", "model.layers=4", "model.heads=4", "model.kv_heads=2", "model.ssm.heads=6",
      "model.ssm.groups=3", "model.ssm.bias=true"}},
};

static void test_equal_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i<sizeof variants / sizeof *variants; i += CASE_STRIDE> 1 ? 2 : 1) {
        if (!drawn_half(i, CASE_STRIDE > 1 ? 2 : 1)) continue; /* every day half of them */
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        char what[32];
        int n = 0;
        while (variants[i].keys[n]) n++;
        resolve(&c, a, variants[i].keys, n);
        snprintf(what, sizeof what, "variant %zu", i);
        verified(&v, &c, 3, variants[i].axes, 2, what, i / 2,
                 (size_t)drawn_number(sizeof variants / sizeof *variants, 2));
        verify_free(&v);
        arena_free(a);
    }
}

/* Norms behind what they are of: a stage's first layer enters tp with nothing between, on what the stage before sent.
 */
static void test_stages_of_several_ranks(void **state)
{
    (void)state;
    static const char *const keys[][8] = {
        {"model.family=olmo2"},
        {"model.family=bert"},
        {"model.family=bert", "model.classes=3"},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i += CASE_STRIDE) {
        const char *all[12] = {"model.hidden=24", "model.heads=4",  "model.ffn=28",
                               "model.seq_len=9", "batch.global=4", "optimizer.eps=1e-5"};
        struct arena *a = arena_new();
        struct config c;
        struct verify v;
        int n = 6, both = 0;
        for (int k = 0; keys[i][k]; k++) all[n++] = keys[i][k];
        resolve(&c, a, all, n);
        verified(&v, &c, 4, VERIFY_TP | VERIFY_PP, 2, all[6], 0, 1);
        for (int k = 0; k < v.n; k++) both += strstr(v.layout[k].layout, "tp2 pp2") != NULL;
        assert_true(both > 0);
        verify_free(&v);
        arena_free(a);
    }
}

/* One microbatch a rank: a unit whose gradients leave in two phases of it is reduced twice, and there is no landing. */
static void test_one_microbatch(void **state)
{
    (void)state;
    static const char *const keys[] = {"model.family=llama", "model.layers=3", "model.hidden=24",
                                       "model.heads=4",      "model.ffn=28",   "model.seq_len=9",
                                       "batch.global=4",     "batch.micro=2",  "optimizer.eps=1e-5"};
    struct arena *a = arena_new();
    struct config c;
    struct verify v;
    int both = 0;
    resolve(&c, a, keys, sizeof keys / sizeof *keys);
    verified(&v, &c, 4, VERIFY_DP | VERIFY_PP, 2, "one microbatch", 0, 1);
    for (int k = 0; k < v.n; k++) both += strstr(v.layout[k].layout, "zero2 pp2:zbh") != NULL;
    assert_true(both > 0);
    verify_free(&v);
    arena_free(a);
}

/* The same on one stage, which a zero bubble's order may have: a weight of both ends leaves from each of them. */
static void test_both_ends_on_one_stage(void **state)
{
    (void)state;
    static const char *const models[] = {"model.tie_embeddings=true", "model.mtp.depth=1", "model.dropout=0"};
    for (int i = 0; i < 3; i++)
        for (int zero = 2; zero <= 3; zero++) {
            struct arena *a = arena_new();
            struct config one, own;
            struct verify v;
            struct err e = {0};
            struct str out = {0};
            struct conf *f;
            const char *const layout[] = {models[i],
                                          "batch.global=8",
                                          "batch.micro=2",
                                          "parallel.dp_replicate=2",
                                          "parallel.dp_shard=2",
                                          "parallel.schedule=zbh1",
                                          arena_printf(a, "parallel.zero=%d", zero)};
            char *all[64];
            int n = toy_words(all, a, layout, sizeof layout / sizeof *layout);
            resolve(&one, a, layout, 3);
            if (config_load(&own, &f, a, NULL, all, n, &e) || config_resolve(&own, f, 0, 4, &e)) fail_msg("%s", e.text);
            const struct verify_asked q = {.config = &one, .own = &own, .axes = VERIFY_ALL, .steps = 2};
            if (verify_all(&v, &q, &e)) fail_msg("%s: %s", models[i], e.text);
            verify_print(&v, &out);
            if (!v.ok) fail_msg("%s:\n%s", models[i], str_text(&out));
            str_free(&out);
            verify_free(&v);
            arena_free(a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_one_rank),
        cmocka_unit_test(test_stages_of_several_ranks),
        cmocka_unit_test(test_one_microbatch),
        cmocka_unit_test(test_both_ends_on_one_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
