/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* suite: wraps tile_rate_registers exp expf log logf pow tanh sin cos sincos */
/* What is computed again changes no bit: every row of layouts.h, with words of memory.recompute that go around, leaves
 * the numbers of losses.txt, which were recorded without. */
#include "golden/rows.h"

static void test_rows(void **state)
{
    static const char *const words[] = {
        "memory.recompute=selective",
        "memory.recompute=[norms, experts, latent]",
        "memory.recompute=[products, gathers]",
        "memory.recompute=[attention, activations, norms, products, gathers, experts, latent]",
        "memory.recompute=full",
    };
    enum { WORDS = sizeof words / sizeof *words };
    struct tables t = {.want = *state, .whole = true};
    for (int i = 0; i < N_ROWS; i += CASE_STRIDE) {
        struct str s = {0};
        if (!drawn_here(i / CASE_STRIDE, 2)) continue; /* every day half of them */
        train_row(&layout_rows[i], words[i / CASE_STRIDE % WORDS], i % 4 == 3, &s);
        judge(&t, layout_rows[i].name, &s);
    }
    if (t.differ) fail_msg("%d of %d layouts differ when something is computed again", t.differ, t.compared);
}

/* Of each word something is not kept, in the family that has it, and fewer layers keep less than none and more than
 * all. */
static int64_t bytes_kept(const struct row *r, const char *more, uint64_t rest, double *flops)
{
    struct arena *a = arena_new();
    struct config c;
    struct site s;
    struct err e = {0};
    resolve(&c, a, r, more);
    c.memory.chosen.rest = rest;
    if (site_open(&s, &(struct site_config){.config = &c, .kind = SITE_COUNTS, .rank = 0, .n = r->ranks}, &e))
        fail_msg("%s: %s", r->name, e.text);
    int64_t bytes = 0;
    for (int i = 0; i < s.engine->n_act; i++) bytes += (int64_t)s.engine->act[i].bytes;
    *flops = engine_flops_step(s.engine);
    site_close(&s);
    arena_free(a);
    return bytes;
}

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        struct row row;
        bool computes; /* FLOPs that the table counts */
        int64_t saves; /* exactly, places are multiples of 64 bytes; 0: less than all */
    } all[] = {
        {"norms", {"llama", 1, {"model.layers=4"}}, true, 4 * 2 * (20 * 16 * 4 + 128)}, /* rows and their 20 rstd */
        {"activations", {"gpt2", 1, {GPT2}}, true, 2 * 20 * 20 * 4},
        {"attention", {"llama", 1, {NULL}}, true, 0},
        {"attention", {"llama cp2", 2, {"parallel.cp=2"}}, true, 0},
        {"gathers", {"llama tp2", 2, {"parallel.tp=2", "parallel.sequence_parallel=true"}}, false, 0},
        {"latent", {"deepseek", 1, {DEEPSEEK}}, false, 0},
        {"products", {"llama", 1, {NULL}}, true, 0},
        {"experts", {"mixtral", 1, {MIXTRAL}}, true, 0},
        {"experts", {"mixtral ep2", 2, {MIXTRAL, "parallel.ep=2"}}, true, 0},
        {"selective", {"llama", 1, {NULL}}, true, 0},
        {"full", {"llama", 1, {NULL}}, true, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char key[64];
        struct row less = all[i].row;
        double f0, f1, f2;
        snprintf(key, sizeof key, "memory.recompute=%s", all[i].word);
        int64_t none = bytes_kept(&all[i].row, NULL, 0, &f0), some = bytes_kept(&all[i].row, key, 0, &f1);
        for (int k = 0; k < ROW_KEYS; k++)
            if (!less.key[k]) {
                less.key[k] = "memory.recompute_layers=1";
                break;
            }
        int64_t one = bytes_kept(&less, key, 0, &f2);
        if (!(some < one && one < none))
            fail_msg("%s: %ld, one layer %ld, all kept %ld", all[i].word, (long)some, (long)one, (long)none);
        if (all[i].computes) assert_true(f0 < f2 && f2 < f1);
        if (all[i].saves && none - some != all[i].saves)
            fail_msg("%s: saves %ld bytes, not %ld", all[i].word, (long)(none - some), (long)all[i].saves);
    }
}

/* Of four layers one computes everything again, the others what `rest` says. */
static void test_rest(void **state)
{
    (void)state;
    const struct row r = {"llama", 1, {"model.layers=4", "memory.recompute_layers=1"}};
    uint64_t norms;
    double f;
    assert_int_equal(recompute_named("norms", &norms), 0);
    int64_t alone = bytes_kept(&r, "memory.recompute=full", 0, &f);
    assert_int_equal(alone - bytes_kept(&r, "memory.recompute=full", norms, &f), 3 * 2 * (20 * 16 * 4 + 128));
}

int main(void)
{
    char *table = read_table(TEST_DIR "/golden/losses.txt");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_rows, table),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_rest),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    xfree(table);
    return failed;
}
