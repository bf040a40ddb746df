/* SPDX-License-Identifier: Apache-2.0 */
/* Passages: two texts that share just as many bytes as spans.h promises share a passage there; and few are chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "curate/spans.h"
#include "sanitized.h"

enum { BYTES = 600 };
struct chosen {
    char at[BYTES]; /* a passage begins here */
    int n;
};

static int choose(void *ctx, struct hash128 h, size_t from, size_t to, struct err *e)
{
    struct chosen *c = ctx;
    (void)h, (void)to, (void)e;
    assert_false(c->at[from]);
    c->at[from] = 1;
    c->n++;
    return OK;
}

static void promised(void **state)
{
    (void)state;
    struct err e;
    for (uint64_t round = 0; round < 3000 / CASE_STRIDE; round++) {
        char text[2][BYTES];
        struct chosen chosen[2] = {0};
        size_t least = 16 + round % 60, apart = passage_apart(least), common = least + apart - 1, at[2];
        for (int t = 0; t < 2; t++) { /* few letters, so that hashes repeat, too */
            for (uint64_t i = 0; i < BYTES; i++) text[t][i] = (char)('a' + rng_u32(t + 1u, round, i) % (2 + round % 5));
            at[t] = rng_u32(3, round, (uint64_t)t) % (BYTES - common);
        }
        memcpy(text[1] + at[1], text[0] + at[0], common);
        for (int t = 0; t < 2; t++) {
            struct span_cutter c = {.kind = SPAN_PASSAGES, .least = least};
            assert_int_equal(spans_cut(&c, text[t], BYTES, choose, &chosen[t], &e), OK);
            assert_true(chosen[t].n <= (int)(BYTES / (apart / 4 + 1)));
            spans_fini(&c);
        }
        bool shared = false;
        for (size_t i = 0; i < apart; i++) shared = shared || (chosen[0].at[at[0] + i] && chosen[1].at[at[1] + i]);
        assert_true(shared);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(promised)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
