/* SPDX-License-Identifier: Apache-2.0 */
/* What a program never holds, by its places and on the ledger: logits of all tokens of a microbatch, because the loss
 * is computed in chunks; a weight's gradient beside the sum, because products add to it where it is. Each is found
 * where it is planned on purpose: logits of one large chunk, gradients that are summed up in bf16. The ledger is that
 * of a step, at its peak. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "site/site.h"

struct counted {
    struct arena *arena;
    struct config c;
    struct site site;
};

enum { MAX_KEYS = 16 };

/* Rank 0 of n, on the device that only counts, after a step. */
static void count(struct counted *x, int n, const char *const *sizes, const char *const *keys, const char *last)
{
    char *all[2 * MAX_KEYS + 1];
    int k = 0;
    struct conf *f;
    struct err e = {0};
    x->arena = arena_new();
    for (int i = 0; sizes[i]; i++) all[k++] = arena_strdup(x->arena, sizes[i]);
    for (int i = 0; i < MAX_KEYS && keys[i]; i++) all[k++] = arena_strdup(x->arena, keys[i]);
    all[k++] = arena_strdup(x->arena, last);
    if (config_load(&x->c, &f, x->arena, NULL, all, k, &e) || config_resolve(&x->c, f, 0, n, &e))
        fail_msg("%s", e.text);
    struct comm_config link = config_comm(&x->c);
    x->site = (struct site){0};
    if (site_open(&x->site, &(struct site_config){.config = &x->c, .kind = SITE_COUNTS, .n = n, .link = &link}, &e))
        fail_msg("%s", e.text);
    engine_init(x->site.engine);
    engine_step(x->site.engine, &(struct engine_batch){.n = 0}, 0, 0, &(struct engine_report){0});
}

static void done(struct counted *x)
{
    site_close(&x->site);
    arena_free(x->arena);
}

static size_t ledger(const struct counted *x, enum mem_cat cat) { return x->site.dev->ledger.at_peak[cat]; }

/* The largest place of the stages' programs, of tensors or of kernels' scratch; what it holds. */
static size_t largest(const struct counted *x, bool tensors, const char **what)
{
    size_t most = 0;
    *what = "nothing";
    for (int s = 0; s < x->site.engine->n_stages; s++) {
        const struct program *p = x->site.engine->stage[s].train;
        for (int i = 0; i < p->n_places; i++) {
            const struct place *at = &p->places[i];
            if (at->slot >= 0 || (at->of >= 0) != tensors || at->bytes <= most) continue;
            most = at->bytes;
            *what = at->of >= 0 ? tape_tensor(p->tape, at->of)->name : "a kernel's scratch";
        }
    }
    return most;
}

static const struct {
    int ranks;
    const char *keys[MAX_KEYS];
    bool summed; /* gradients are summed up here, and handed on once a step */
} layouts[] = {
    /* clang-format off */
    {1, {"model.family=llama", "model.tie_embeddings=false"}, true},
    {1, {"model.family=llama", "model.tie_embeddings=true"}, true},
    {1, {"model.family=gpt2", "model.tie_embeddings=true", "precision.recipe=fp32"}, true},
    {2, {"model.family=llama", "model.tie_embeddings=false", "parallel.tp=2"}, true},
    {2, {"model.family=llama", "model.tie_embeddings=true", "parallel.tp=2", "parallel.sequence_parallel=true"}, true},
    {2, {"model.family=llama", "model.tie_embeddings=false", "parallel.cp=2", "memory.recompute=full"}, false},
    {2, {"model.family=llama", "model.tie_embeddings=false", "parallel.dp_shard=2", "parallel.zero=3", "batch.global=8"}, false},
    /* clang-format on */
};
#define EACH_LAYOUT(i) for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)

/* Tokens of a microbatch here x the vocabulary's part here, in the type of the logits. */
static size_t logits_bytes(const struct counted *x)
{
    const struct engine_config *g = &x->site.engine->cfg;
    size_t tokens = to_size(g->micro * g->seq) / (size_t)x->c.parallel.cp;
    return tokens * (size_t)(g->model.vocab / x->c.parallel.tp) * dtype_bytes(g->dtype);
}

/* Many tokens and a large vocabulary, hardly a model. */
static void test_no_logits_of_all_tokens(void **state)
{
    (void)state;
    static const char *const sizes[] = {"model.layers=1",
                                        "model.hidden=16",
                                        "model.heads=2",
                                        "model.kv_heads=2",
                                        "model.ffn=32",
                                        "model.vocab=8000",
                                        "model.seq_len=256",
                                        "batch.global=4",
                                        "batch.micro=4",
                                        "run.threads=1",
                                        NULL};
    EACH_LAYOUT(i)
    {
        struct counted x;
        const char *what, *other;
        count(&x, layouts[i].ranks, sizes, layouts[i].keys, "memory.loss_chunk=64");
        size_t whole = logits_bytes(&x), most = largest(&x, true, &what);
        if (most < largest(&x, false, &other)) most = largest(&x, false, &what);
        if (most >= whole) fail_msg("layout %zu: %s takes %zu bytes, all logits %zu", i, what, most, whole);
        size_t kept = ledger(&x, MEM_ACTIVATION) + ledger(&x, MEM_WGRAD) + ledger(&x, MEM_SCRATCH);
        if (kept >= whole) fail_msg("layout %zu: %zu bytes on the ledger, all logits %zu", i, kept, whole);
        done(&x);
        count(&x, layouts[i].ranks, sizes, layouts[i].keys, "memory.loss_chunk=1048576");
        if (largest(&x, true, &what) < whole || ledger(&x, MEM_SCRATCH) < whole)
            fail_msg("layout %zu: logits of one chunk are not found", i);
        done(&x);
    }
}

/* Hardly a token, and every matrix is large. What a product is given to add to is where the gradient is kept. */
static void test_no_gradient_beside_the_sum(void **state)
{
    (void)state;
    static const char *const sizes[] = {"model.layers=2",
                                        "model.hidden=256",
                                        "model.heads=4",
                                        "model.kv_heads=4",
                                        "model.ffn=768",
                                        "model.vocab=2000",
                                        "model.seq_len=8",
                                        "batch.global=4",
                                        "batch.micro=1",
                                        "run.threads=1",
                                        NULL};
    EACH_LAYOUT(i)
    {
        struct counted x;
        const char *what, *other;
        count(&x, layouts[i].ranks, sizes, layouts[i].keys, "memory.loss_chunk=4");
        const struct engine *g = x.site.engine;
        size_t least = SIZE_MAX;
        for (int k = 0; k < g->params.n; k++) {
            const struct param *p = &g->params.p[k];
            if (p->nd == 2 && p->ln[0] * p->ln[1] >= 256 * 128 && to_size(p->ln[0] * p->ln[1]) * 4 < least)
                least = to_size(p->ln[0] * p->ln[1]) * 4;
        }
        /* what a product packs for gradients of rows is the weights' */
        size_t most = largest(&x, true, &what), packed = largest(&x, false, &other), scratch = ledger(&x, MEM_SCRATCH);
        if (most >= least) fail_msg("layout %zu: %s takes %zu bytes, the smallest gradient %zu", i, what, most, least);
        if (scratch >= packed + least) fail_msg("layout %zu: %zu bytes of scratch, of kernels %zu", i, scratch, packed);
        int products = 0;
        const struct program *p = g->stage[0].train;
        for (int k = 0; k < p->begin[PHASE_N]; k++) {
            const struct instr *in = &p->code[k];
            if (in->op != OP_LINEAR || in->kphase != KERNEL_BWD_W) continue;
            const struct view *sum = &in->din[1].view;
            assert_int_equal(in->din[1].place, OPERAND_SLOT);
            assert_int_equal(sum->dtype, DT_F32);
            if (in->scratch >= 0 && p->places[in->scratch].bytes >= to_size(sum->n[0] * sum->n[1]) * 4)
                fail_msg("layout %zu: the gradient of %s has scratch of its size", i, in->what);
            products++;
        }
        assert_true(products >= 2 * 4);
        size_t beside = ledger(&x, MEM_COMM);
        bool each = store_reduces_each(&g->store); /* units stand beside the sum anyway, and are handed on */
        done(&x);
        assert_int_equal(each, !layouts[i].summed);
        if (each) continue;
        count(&x, layouts[i].ranks, sizes, layouts[i].keys, "precision.grad=bf16");
        if (ledger(&x, MEM_COMM) < beside + least)
            fail_msg("layout %zu: gradients beside sums of bf16 are not found: %zu bytes, %zu without them", i,
                     ledger(&x, MEM_COMM), beside);
        done(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_logits_of_all_tokens),
        cmocka_unit_test(test_no_gradient_beside_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
