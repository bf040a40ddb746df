/* SPDX-License-Identifier: Apache-2.0 */
/* test_update.c: the elementwise updates but AdamW and SGD (test_flat.c): every build against ref to the bit, for odd
 * lengths, types and teams, and nothing written but what the row says. What they mean is tested where they are steps of
 * an optimizer (optim/test_optim.c). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/cpu/build.h"
#include "kernel/cpuid.h"
#include "kernel/factored.h"
#include "kernel/update.h"

static const int64_t lengths[] = {0, 1, 15, 16, 17, 63, 64, 65, 1000, 4099};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, MOST = 4099 + 64 };

/* The family that chooses, then each build; NULL: there are no more that this CPU runs. */
static const struct flat_ops *build(int i)
{
    const struct cpu_build *b = cpu_build_at(i - 1);
    if (i == 0) return &flat_ops_cpu;
    return b && b->needs <= cpu_isa() ? b->flat : NULL;
}

/* Types of a kind's operands; its compute copy has each type in turn. */
static enum dtype type_of(const struct update_row *row, enum update_kind kind, int k, enum dtype copy, bool fp8)
{
    if (row->at[k].count == UPDATE_ONE || row->at[k].count == UPDATE_TWO) return DT_F64;
    if ((kind == UPDATE_FACTOR_SUMS && k != FACTOR_SUMS_GRAD) ||
        (kind == UPDATE_FACTOR_KEEP && k == FACTOR_KEEP_SUMS) || (kind == UPDATE_FACTOR_SIZE && k == FACTOR_SIZE_EACH))
        return DT_F64;
    if (kind == UPDATE_ADAMW8 && k == ADAMW8_M) return DT_U8;
    if (kind == UPDATE_ADAMW8 && k == ADAMW8_V) return fp8 ? DT_F16 : DT_U8;
    if (k == row->param) return copy;
    if (kind == UPDATE_AVERAGE && k == AVERAGE_OF) return copy == DT_BF16 ? DT_BF16 : DT_F32;
    bool narrow = kind == UPDATE_BLEND || (kind == UPDATE_ROUND && k == ROUND_TO) ||
                  (kind == UPDATE_UNIT && k == UNIT_TO) || (kind == UPDATE_APPLY && k == APPLY_O) ||
                  (kind == UPDATE_ADAMW16 && (k == ADAMW16_M || k == ADAMW16_V));
    return narrow ? DT_BF16 : DT_F32;
}

static struct update_args fill(enum update_kind kind, int64_t n, enum dtype copy, bool flag, char *room)
{
    const struct update_row *row = &update_rows[kind];
    struct update_args a = {.kind = kind,
                            .n = n,
                            .flag = flag,
                            .blocks = {n % 5 ? n : n / 5 + !n, n > 1000 ? 256 : 24, n + 3},
                            .chance = {3, 1ull << 40 | 9, 5, 37, 1000, flag ? 37 : 50}};
    for (int k = 0; k < row->n; k++) {
        a.at[k].p = room + (size_t)k * MOST * 8;
        a.at[k].t = type_of(row, kind, k, copy, flag);
        for (int i = 0; i < MOST; i++) {
            float x = i % 11 ? (float)((i * 7919 + k * 104729) % 4001 - 2000) * 0x1p-11f : 0;
            if (a.at[k].t == DT_F64) ((double *)a.at[k].p)[i] = 7.25;
            else if (a.at[k].t == DT_F32) ((float *)a.at[k].p)[i] = x;
            else if (a.at[k].t == DT_U8) ((uint8_t *)a.at[k].p)[i] = (uint8_t)(i % 127 + 128 * (i % 2)); /* no NaN */
            else if (a.at[k].t == DT_F16) ((uint16_t *)a.at[k].p)[i] = (uint16_t)(i * 37 % 0x7c00);
            else ((bf16 *)a.at[k].p)[i] = bf16_from_f32(x);
            if (is_factored(kind) && a.at[k].t == DT_F32 && row->at[k].count != UPDATE_EACH)
                ((float *)a.at[k].p)[i] = (float)(1 + i % 5); /* second moments */
            if (row->at[k].count == UPDATE_BLOCK) ((float *)a.at[k].p)[i] = (float)(i % 5) * 0x1p-9f;
        }
    }
    for (int k = 0; k < UPDATE_FACTORS; k++) a.f[k] = 0.9f - 0.13f * (float)k;
    return a;
}

static void every_build_gives_the_bits_of_ref(void **state)
{
    (void)state;
    static const enum dtype copies[] = {DT_F32, DT_BF16, DT_F16};
    size_t bytes = (size_t)UPDATE_OPERANDS * MOST * 8;
    char *want = xmalloc(bytes), *got = xmalloc(bytes), *before = xmalloc(bytes);
    for (int kind = UPDATE_LION; kind < UPDATE_KINDS; kind++)
        for (int l = 0; l < N_LENGTHS; l++)
            for (int c = 0; c < 6; c++)
                for (int b = 0; build(b); b++) {
                    memset(want, 7, bytes);
                    memset(got, 7, bytes);
                    struct team *team = team_new(1 + (l + c) % 3);
                    struct update_args x = fill((enum update_kind)kind, lengths[l], copies[c % 3], c > 2, want);
                    struct update_args y = fill((enum update_kind)kind, lengths[l], copies[c % 3], c > 2, got);
                    memcpy(before, want, bytes);
                    update_ref(team, &x);
                    build(b)->update(team, &y);
                    if (memcmp(want, got, bytes))
                        fail_msg("%s, %s, n %lld", update_rows[kind].name, build(b)->name, (long long)lengths[l]);
                    for (int k = 0; k < update_rows[kind].n; k++) {
                        size_t at = (size_t)k * MOST * 8, n = (size_t)update_elements(&x, k) * dtype_bytes(x.at[k].t);
                        bool same = !memcmp(before + at, want + at, n);
                        if (update_rows[kind].at[k].use == UPDATE_READS) assert_true(same);
                        else if (lengths[l] > 60) assert_false(same);
                        assert_memory_equal(before + at + n, want + at + n, (size_t)MOST * 8 - n);
                    }
                    team_free(team);
                }
    xfree(want);
    xfree(got);
    xfree(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_build_gives_the_bits_of_ref)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
