/* SPDX-License-Identifier: Apache-2.0 */
/* The table of batch fields: sizes, beginnings and cuts of fields of any type, per token and per sequence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "data/batch.h"
#include "model/batch_fields.h"

static const struct batch_row weight = {"weight", DT_F64, 2, false, false, 0},
                              image = {"image", DT_BF16, 5, true, false, 0};

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(batch_bytes(&weight, 3, 7), 3 * 7 * 2 * 8);
    assert_int_equal(batch_bytes(&image, 3, 7), 3 * 5 * 2); /* however many tokens */
    assert_int_equal(batch_begin(&weight, 12), 16);
    assert_int_equal(batch_begin(&image, 12), 12);
    for (int f = 0; f < BATCH_FIELDS; f++) {
        struct batch_row text = batch_field_row(f, 0), picture = batch_field_row(f, 27);
        assert_true(text.name && picture.values > 0);
        assert_int_equal(text.values > 0, f != BATCH_PIXELS && f != BATCH_LABEL);
    }
    struct batch_row pixels = batch_field_row(BATCH_PIXELS, 27), label = batch_field_row(BATCH_LABEL, 27);
    assert_int_equal(batch_bytes(&pixels, 3, 7), 3 * 27 * sizeof(float));
    assert_int_equal(batch_bytes(&label, 3, 7), 3 * sizeof(int32_t));
    assert_int_equal(label.blank, 0xff);
}

/* Tokens 4 and 1 of each of three sequences of five; what is of a sequence is there whole. */
static void cuts(void **state)
{
    (void)state;
    const int64_t place[] = {4, 1};
    double from[3][5][2], to[3][2][2];
    uint16_t whole[3][5], there[3][5] = {{0}};
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 5; i++) {
            whole[b][i] = (uint16_t)(10 * b + i);
            for (int v = 0; v < 2; v++) from[b][i][v] = 100 * b + 10 * i + v;
        }
    batch_cut(&weight, to, from, 3, 5, place, 2);
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 2; i++)
            for (int v = 0; v < 2; v++) assert_true(to[b][i][v] == from[b][place[i]][v]);
    batch_cut(&image, there, whole, 3, 5, place, 2);
    assert_memory_equal(there, whole, sizeof whole);
}

/* Names and table are the same memory; fields do not overlap, with pictures or without. */
static void memory(void **state)
{
    (void)state;
    for (int64_t n = 0; n <= 75; n += 75) {
        struct batch b;
        batch_init_pictures(&b, 3, 7, n);
        assert_ptr_equal(b.tokens, b.field[BATCH_TOKENS]);
        assert_ptr_equal(b.targets, b.field[BATCH_TARGETS]);
        assert_ptr_equal(b.positions, b.field[BATCH_POSITIONS]);
        assert_ptr_equal(b.documents, b.field[BATCH_DOCUMENTS]);
        assert_ptr_equal(b.pixels, b.field[BATCH_PIXELS]);
        assert_ptr_equal(b.label, b.field[BATCH_LABEL]);
        assert_ptr_equal(b.segments, b.field[BATCH_SEGMENTS]);
        assert_ptr_equal(b.patches, b.field[BATCH_PATCHES]);
        struct batch_row r[BATCH_FIELDS];
        for (int f = 0; f < BATCH_FIELDS; f++) r[f] = batch_field_row(f, n);
        for (int f = 0; f < BATCH_FIELDS; f++) memset(b.field[f], f + 1, batch_bytes(&r[f], 3, 7));
        for (int f = 0; f < BATCH_FIELDS; f++)
            for (size_t i = 0; i < batch_bytes(&r[f], 3, 7); i++)
                assert_int_equal(((const char *)b.field[f])[i], f + 1);
        batch_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes), cmocka_unit_test(cuts), cmocka_unit_test(memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
