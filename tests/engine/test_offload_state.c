/* SPDX-License-Identifier: Apache-2.0 */
/* suite: devices late */
/* State on disk: what is planned is what is allocated, and a checkpoint is not made of bytes that somebody changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/mem.h"
#include "config/config.h"
#include "keep/run_checkpoint.h"
#include "site/site.h"

struct here {
    struct arena *arena;
    struct config c;
    struct site works;
};

static void open_here(struct here *h, const char *more)
{
    char *keys[] = {"model.layers=2",       "model.hidden=64",     "model.heads=4",
                    "model.ffn=100",        "model.seq_len=16",    "batch.global=2",
                    "run.threads=1",        "memory.offload_to=.", "memory.offload=[optimizer,master,activations]",
                    (char *)(uintptr_t)more};
    struct conf *f;
    struct err e;
    h->arena = arena_new();
    if (config_load(&h->c, &f, h->arena, NULL, keys, sizeof keys / sizeof *keys, &e)) fail_msg("%s", e.text);
    h->c.model.vocab = 300;
    if (config_resolve(&h->c, f, 300, 1, &e)) fail_msg("%s", e.text);
    if (site_open(&h->works, &(struct site_config){.config = &h->c}, &e)) fail_msg("%s", e.text);
}

static void close_here(struct here *h)
{
    site_close(&h->works);
    arena_free(h->arena);
}

static void test_plan(void **state)
{
    (void)state;
    static const char *const more[] = {"optimizer.name=adamw", "optimizer.name=lion", "precision.grad=bf16",
                                       "memory.recompute=full"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        struct here h;
        struct site paper;
        struct err e;
        open_here(&h, more[i]);
        if (site_open(&paper, &(struct site_config){.config = &h.c, .kind = SITE_COUNTS, .n = 1}, &e))
            fail_msg("%s", e.text);
        const struct ledger *a = &h.works.dev->ledger, *b = &paper.dev->ledger;
        for (int c = 0; c < MEM_N; c++)
            if (a->now[c] != b->now[c] || a->at_peak[c] != b->at_peak[c])
                fail_msg("%s: %s: planned %zu, allocated %zu", more[i], mem_cat_name((enum mem_cat)c), b->now[c],
                         a->now[c]);
        assert_true(a->peak_total == b->peak_total && a->now[MEM_HOST] == 0);
        assert_true(a->now[MEM_OPTIMIZER] == 0 && a->now[MEM_MASTER] == 0);
        size_t each = i == 1 ? 8 : 12; /* of a master and its moments */
        assert_true(a->now[MEM_DISK] > (size_t)h.works.engine->params.numel * each);
        site_close(&paper);
        close_here(&h);
    }
}

/* Of each rank among others, with weights on disk, in layouts that hold them whole and shared out. */
struct among {
    const struct config *c;
    const char *keys;
};

static int compare_rank(struct comm *world, void *arg, struct err *e)
{
    const struct among *x = arg;
    const struct comm_config link = config_comm(x->c);
    struct site works, paper;
    int rc = site_open(&works, &(struct site_config){.config = x->c, .world = world}, e);
    if (rc) return rc;
    rc = site_open(&paper,
                   &(struct site_config){.config = x->c,
                                         .kind = SITE_COUNTS,
                                         .rank = comm_rank(world),
                                         .n = comm_size(world),
                                         .link = &link},
                   e);
    const struct ledger *a = &works.dev->ledger, *b = &paper.dev->ledger;
    for (int c = 0; c < MEM_N && !rc; c++)
        if (a->now[c] != b->now[c] || a->at_peak[c] != b->at_peak[c])
            rc = err_set(e, ERR_REQUEST, "%s: rank %d, %s: planned %zu, allocated %zu", x->keys, comm_rank(world),
                         mem_cat_name((enum mem_cat)c), b->now[c], a->now[c]);
    size_t bytes = a->now[MEM_DISK], weights = to_size(works.engine->params.numel) * sizeof(uint16_t);
    if (!rc && (!bytes || a->now[MEM_PARAM] >= weights))
        rc = err_set(e, ERR_REQUEST, "%s: %zu bytes on disk, %zu of weights in memory", x->keys, bytes,
                     a->now[MEM_PARAM]);
    if (paper.dev) site_close(&paper);
    rc = comm_agree(world, rc, e);
    site_close(&works);
    return rc;
}

static void test_plan_of_ranks(void **state)
{
    (void)state;
    static const char *const layout[] = {"parallel.zero=0", "parallel.zero=1", "parallel.zero=2",
                                         "parallel.zero=3", "parallel.pp=2",   "parallel.tp=2"};
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        char *keys[] = {"model.layers=6",
                        "model.hidden=64",
                        "model.heads=4",
                        "model.ffn=100",
                        "model.seq_len=16",
                        "batch.global=4",
                        "batch.micro=1",
                        "run.threads=1",
                        "memory.offload_to=.",
                        i % 2 ? "memory.offload=[params]" : "memory.offload=[optimizer,master,activations,params]",
                        (char *)(uintptr_t)layout[i]};
        struct config c;
        struct conf *f;
        struct err e;
        struct arena *arena = arena_new();
        if (config_load(&c, &f, arena, NULL, keys, sizeof keys / sizeof *keys, &e)) fail_msg("%s", e.text);
        c.model.vocab = 300;
        if (config_resolve(&c, f, 300, 2, &e)) fail_msg("%s", e.text);
        if (comm_run_local(2, NULL, compare_rank, &(struct among){&c, layout[i]}, &e)) fail_msg("%s", e.text);
        arena_free(arena);
    }
}

static void flip(const struct buffer *b, size_t at)
{
    char *block = mem_pages_new(TIER_BLOCK);
    off_t lo = (off_t)(((uintptr_t)b->p & ~DEVICE_IN_FILE) + at) / TIER_BLOCK * TIER_BLOCK;
    int fd = tier_file(b->dev->tier);
    assert_int_equal(pread(fd, block, TIER_BLOCK, lo), TIER_BLOCK);
    block[at % TIER_BLOCK] = (char)(block[at % TIER_BLOCK] ^ 4);
    assert_int_equal(pwrite(fd, block, TIER_BLOCK, lo), TIER_BLOCK);
    mem_pages_free(block, TIER_BLOCK);
}

static void test_flipped(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        struct here h;
        struct err e;
        char *dir = scratch_new();
        open_here(&h, "optimizer.name=adamw");
        engine_init(h.works.engine);
        const struct array *master = store_array(&h.works.engine->store, STORE_MASTER);
        if (bad) flip(&master->buf, master->buf.bytes / 3);
        struct save_info s = {.root = dir, .step = 1, .config_text = "", .cfg = &h.c};
        int rc = save_checkpoint(h.works.engine, &h.works.ranks, &s, &e);
        assert_int_equal(rc, bad ? ERR_IO : OK);
        if (bad) assert_contains(e.text, "are not those that were written");
        char *path = fs_join(dir, "step-00000001");
        assert_int_equal(fs_exists(path), !bad);
        assert_int_equal(device_status(h.works.dev, NULL), bad ? ERR_IO : OK);
        xfree(path);
        close_here(&h);
        scratch_free(dir);
    }
}

/* A checkpoint right behind a step, while what was stepped is on its way back: the same bytes as where all is here. */
static void test_saved(void **state)
{
    (void)state;
    enum { SEQ = 16, N = 2 * SEQ };
    int32_t tokens[N], targets[N], positions[N], docs[N] = {0};
    char *text[2];
    size_t n[2];
    for (int i = 0; i < N; i++) tokens[i] = i * 7 % 300, targets[i] = i * 11 % 300, positions[i] = i % SEQ;
    for (int away = 0; away < 2; away++) {
        struct here h;
        struct err e;
        struct engine_report r;
        char *dir = scratch_new();
        open_here(&h, away ? "memory.offload=[optimizer,master,activations,params]" : "memory.offload=[]");
        engine_init(h.works.engine);
        struct engine_batch b =
            {.tokens = tokens, .targets = targets, .positions = positions, .docs = docs, .n = 2, .n_trained = N};
        for (int i = 0; i < 2; i++) engine_step(h.works.engine, &b, i, 1e-2, &r);
        struct save_info s = {.root = dir, .step = 2, .config_text = "", .cfg = &h.c};
        if (save_checkpoint(h.works.engine, &h.works.ranks, &s, &e)) fail_msg("%s", e.text);
        char *path = fs_join(dir, "step-00000002/boxes-00000.safetensors");
        if (fs_read_all(path, 1 << 26, &text[away], &n[away], &e)) fail_msg("%s", e.text);
        xfree(path);
        close_here(&h);
        scratch_free(dir);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(text[0], text[1], n[0]);
    xfree(text[0]);
    xfree(text[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan), cmocka_unit_test(test_plan_of_ranks),
                                       cmocka_unit_test(test_flipped), cmocka_unit_test(test_saved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
