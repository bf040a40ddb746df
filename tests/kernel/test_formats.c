/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* test_formats.c: every build's conversions of number formats against the reference, to the bit: every code; every
 * bf16; of fp32 every upper half with each lower half at and beside a boundary (TUTTI_TEST_LOWER=0-65535: with every
 * one, hours), rounded to nearest and by chance, for odd lengths, odd first indices and teams of 1 to 3. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/cpu/build.h"
#include "sanitized.h"

enum { LOW = 48, LOT = 1 << 16, GUARD = 0xa5 };

static const struct format_ops *build(int i)
{
    const struct cpu_build *b = cpu_build_at(i - 1);
    if (i == 0) return &format_ops_cpu;
    return b && b->needs <= cpu_isa() ? b->formats : NULL;
}

struct room {
    float x[LOT];
    uint8_t want[4 * LOT + 4], got[4 * LOT + 4];
};

/* One array through all that encodes it. */
static void encode_both(struct room *r, enum format f, const void *x, enum dtype from, int64_t n,
                        const struct format_random *random, struct team *team)
{
    struct format_info info = format_info(f);
    size_t bytes = (size_t)(n * info.bytes);
    for (int saturate = 0; saturate < 2; saturate++) {
        format_ops_ref.encode(team, r->want, f, x, from, n, saturate, random);
        for (int i = 0; build(i); i++) {
            memset(r->got, GUARD, bytes + 4);
            build(i)->encode(team, r->got, f, x, from, n, saturate, random);
            for (size_t k = 0; k < bytes; k++)
                if (r->got[k] != r->want[k]) {
                    uint32_t u = 0;
                    memcpy(&u, (const char *)x + k / (size_t)info.bytes * dtype_bytes(from), dtype_bytes(from));
                    fail_msg("%s to %s%s, %s of %x: byte %02x, wanted %02x", build(i)->name, info.name,
                             saturate ? ", saturated" : "", dtype_name(from), u, r->got[k], r->want[k]);
                }
            assert_int_equal(r->got[bytes], GUARD);
        }
    }
}

static int setup(void **state)
{
    *state = xcalloc(1, sizeof(struct room));
    return 0;
}
static int teardown(void **state)
{
    xfree(*state);
    return 0;
}

static void every_code_decodes_alike(void **state)
{
    struct room *r = *state;
    struct team *team = team_new(2);
    for (int f = 0; f < FORMAT_N; f++) {
        struct format_info info = format_info((enum format)f);
        for (int64_t first = 0; first < (int64_t)1 << info.bits; first += LOT) {
            int64_t n = (int64_t)1 << info.bits < LOT ? (int64_t)1 << info.bits : LOT;
            for (int64_t i = 0; i < n; i++) format_store(r->x, &info, i, (uint32_t)(first + i));
            for (int k = 0; k < 2; k++)
                for (int i = 0; build(i); i++) {
                    size_t bytes = (size_t)n * dtype_bytes(k ? DT_BF16 : DT_F32);
                    format_ops_ref.decode(team, r->want, k ? DT_BF16 : DT_F32, r->x, (enum format)f, n);
                    build(i)->decode(team, r->got, k ? DT_BF16 : DT_F32, r->x, (enum format)f, n);
                    if (memcmp(r->got, r->want, bytes)) fail_msg("%s from %s", build(i)->name, info.name);
                }
        }
    }
    team_free(team);
}

static void every_bf16_encodes_alike(void **state)
{
    struct room *r = *state;
    struct team *team = team_new(2);
    bf16 *x = (bf16 *)(void *)r->x;
    for (int i = 0; i < LOT; i++) x[i] = (bf16)i;
    for (int f = 0; f < FORMAT_N; f++) encode_both(r, (enum format)f, x, DT_BF16, LOT, NULL, team);
    team_free(team);
}

/* Boundaries between formats of up to 10 bits of fraction lie where the last 12 bits of a float are 0. */
static void floats_encode_alike(void **state)
{
    struct room *r = *state;
    struct team *team = team_new(2);
    const char *env = getenv("TUTTI_TEST_LOWER");
    unsigned first = 0, last = LOW - 1;
    bool given = env && sscanf(env, "%u-%u", &first, &last) == 2;
    for (unsigned k = first; k <= last; k += given ? 1 : CASE_STRIDE) {
        uint32_t half = (given ? k : k / 3 * 0x1000 + k % 3 - 1) & 0xffff;
        for (uint32_t i = 0; i < LOT; i++) {
            uint32_t u = i << 16 | half;
            memcpy(&r->x[i], &u, 4);
        }
        for (int f = 0; f < FORMAT_N; f++) encode_both(r, (enum format)f, r->x, DT_F32, LOT, NULL, team);
    }
    team_free(team);
}

static void chance_is_alike(void **state)
{
    struct room *r = *state;
    struct team *team = team_new(3);
    for (int round = 0; round < 4; round += SANITIZED ? 2 : 1) {
        for (uint32_t i = 0; i < LOT; i++) {
            uint32_t u = i << 16 | (rng_u32(1, (uint64_t)round, i) & (round ? 0xffff : 0));
            memcpy(&r->x[i], &u, 4);
        }
        struct format_random by = {5, rng_stream_at(9, (uint64_t)round), ((uint64_t)1 << 33) + (uint64_t)round};
        for (int f = 0; f < FORMAT_N; f++) encode_both(r, (enum format)f, r->x, DT_F32, LOT, &by, team);
    }
    team_free(team);
}

/* A part of an array, at its place in the whole, gives that part of the whole's codes: what makes layouts equal. */
static void parts_are_parts_of_the_whole(void **state)
{
    struct room *r = *state;
    enum { N = 3001 };
    for (uint32_t i = 0; i < N; i++) r->x[i] = rng_normal(1, 2, i);
    for (int threads = 1; threads <= 3; threads++) {
        struct team *team = team_new(threads);
        for (int i = 0; build(i); i++)
            for (int chance = 0; chance < 2; chance++) {
                struct format_random by = {7, 8, 13};
                build(i)->encode(team, r->want, FORMAT_E4M3, r->x, DT_F32, N, true, chance ? &by : NULL);
                for (int64_t at = 0, n; at < N; at += n) {
                    n = at % 61 + 1 < N - at ? at % 61 + 1 : N - at;
                    struct format_random here = {7, 8, 13 + (uint64_t)at};
                    memset(r->got, GUARD, (size_t)n + 1);
                    build(i)->encode(team, r->got, FORMAT_E4M3, r->x + at, DT_F32, n, true, chance ? &here : NULL);
                    assert_memory_equal(r->got, r->want + at, (size_t)n);
                    assert_int_equal(r->got[n], GUARD);
                    float back[64];
                    build(i)->decode(team, back, DT_F32, r->got, FORMAT_E4M3, n);
                    for (int64_t j = 0; j < n; j++) assert_true(back[j] == format_decode(FORMAT_E4M3, r->got[j]));
                }
            }
        team_free(team);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_code_decodes_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(every_bf16_encodes_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(floats_encode_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(chance_is_alike, setup, teardown),
        cmocka_unit_test_setup_teardown(parts_are_parts_of_the_whole, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
