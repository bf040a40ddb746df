/* SPDX-License-Identifier: Apache-2.0 */
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
        train_row(&layout_rows[i], words[i / CASE_STRIDE % WORDS], i % 4 == 3, &s);
        judge(&t, layout_rows[i].name, &s);
    }
    if (t.differ) fail_msg("%d of %d layouts differ when something is computed again", t.differ, t.compared);
}

/* Of each word something is not kept, in the family that has it, and fewer layers keep less than none and more than
 * all. */
static int64_t bytes_kept(const struct row *r, const char *more, double *flops)
{
    struct arena *a = arena_new();
    struct config c;
    struct site s;
    struct err e = {0};
    resolve(&c, a, r, more);
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
    } all[] = {
        {"norms", {"llama", 1, {"model.layers=4"}}, true},
        {"activations", {"gpt2", 1, {GPT2}}, true},
        {"attention", {"llama", 1, {NULL}}, true},
        {"attention", {"llama cp2", 2, {"parallel.cp=2"}}, true},
        {"gathers", {"llama tp2", 2, {"parallel.tp=2", "parallel.sequence_parallel=true"}}, false},
        {"latent", {"deepseek", 1, {DEEPSEEK}}, false},
        {"products", {"llama", 1, {NULL}}, true},
        {"experts", {"mixtral", 1, {MIXTRAL}}, true},
        {"experts", {"mixtral ep2", 2, {MIXTRAL, "parallel.ep=2"}}, true},
        {"selective", {"llama", 1, {NULL}}, true},
        {"full", {"llama", 1, {NULL}}, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char key[64];
        struct row less = all[i].row;
        double f0, f1, f2;
        snprintf(key, sizeof key, "memory.recompute=%s", all[i].word);
        int64_t none = bytes_kept(&all[i].row, NULL, &f0), some = bytes_kept(&all[i].row, key, &f1);
        for (int k = 0; k < ROW_KEYS; k++)
            if (!less.key[k]) {
                less.key[k] = "memory.recompute_layers=1";
                break;
            }
        int64_t one = bytes_kept(&less, key, &f2);
        if (!(some < one && one < none))
            fail_msg("%s: %ld, one layer %ld, all kept %ld", all[i].word, (long)some, (long)one, (long)none);
        if (all[i].computes) assert_true(f0 < f2 && f2 < f1);
    }
}

int main(void)
{
    char *table = read_table(TEST_DIR "/golden/losses.txt");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_rows, table),
        cmocka_unit_test(test_bytes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    xfree(table);
    return failed;
}
