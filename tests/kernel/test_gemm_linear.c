/* SPDX-License-Identifier: Apache-2.0 */
/* test_gemm_linear.c: LINEAR of the fast families (tutti's own and, where built in, the library's) against the
 * reference: three directions, f32, bf16 and f16, with and without bias, strided rows, the ways to accumulate,
 * one token to many, none (no tokens, no features: a rank without heads), and the same bits from one to three
 * threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernel/kernel.h"

static uint64_t drawn;
static int64_t draw(int64_t n) { return (int64_t)(rng_u64(13, 2, drawn++) % (uint64_t)n); }

static void put(void *p, enum dtype t, int64_t i, float v)
{
    if (t == DT_F32) ((float *)p)[i] = v;
    else ((uint16_t *)p)[i] = t == DT_BF16 ? bf16_from_f32(v) : f16_from_f32(v);
}
static double get(const void *p, enum dtype t, int64_t i)
{
    if (t == DT_F32) return ((const float *)p)[i];
    uint16_t u = ((const uint16_t *)p)[i];
    return t == DT_BF16 ? bf16_to_f32(u) : f16_to_f32(u);
}
static size_t view_bytes(const struct view *v) { return (size_t)(view_rows(v) * v->stride) * dtype_bytes(v->dtype); }

static struct view matrix_new(enum dtype t, int64_t rows, int64_t cols)
{
    struct view v = {.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols + draw(4)};
    v.p = xmalloc(view_bytes(&v) + 8);
    for (int64_t i = 0; i < rows * v.stride; i++) put(v.p, t, i, (float)(rng_uniform(13, 3, drawn++) * 2 - 1));
    return v;
}
static struct view vector_new(enum dtype t, int64_t n)
{
    struct view v = matrix_new(t, 1, n);
    v.nd = 1;
    v.n[0] = n;
    v.stride = n;
    return v;
}
static struct view copy_new(const struct view *v)
{
    struct view c = *v;
    c.p = xmalloc(view_bytes(v) + 8);
    memcpy(c.p, v->p, view_bytes(v));
    return c;
}

/* Runs c on one slot with a team; scratch is exactly what the slot asks for. */
static void run(const struct kernel_slot *s, struct kernel_call c, struct team *team)
{
    c.scratch_bytes = s->scratch ? s->scratch(&c, team_size(team)) : 0;
    c.scratch = mem_pages_new(c.scratch_bytes + 1);
    struct stream here = kernel_here(team);
    c.stream = &here;
    s->run(&c);
    mem_pages_free(c.scratch, c.scratch_bytes + 1);
}

static void compare(const struct view *is, const struct view *want, int64_t depth, const char *what)
{
    for (int64_t r = 0; r < view_rows(is); r++)
        for (int64_t j = 0; j < is->stride; j++) {
            double a = get(is->p, is->dtype, r * is->stride + j), b = get(want->p, want->dtype, r * is->stride + j);
            double room = 4e-6 * (1 + sqrt((double)depth));
            if (is->dtype != DT_F32) room += fabs(b) / (is->dtype == DT_BF16 ? 120 : 1000);
            if (j >= view_cols(is)) room = 0; /* between rows: untouched */
            if (!(fabs(a - b) <= room)) fail_msg("%s at %ld,%ld: %.9g, want %.9g", what, (long)r, (long)j, a, b);
        }
}

/* The tensors that one phase writes, as a fresh copy each, so that runs can be compared. */
struct written {
    struct view v[2];
    int n;
};
static struct written aim(struct kernel_call *c, const struct kernel_call *like, int acc_mode)
{
    struct written w = {.n = like->phase == KERNEL_BWD_W && like->n_in > 2 ? 2 : 1};
    *c = *like;
    if (c->phase == KERNEL_FWD) {
        w.v[0] = c->out[0] = copy_new(&like->out[0]);
        return w;
    }
    if (w.n == 1) c->din[2].p = NULL; /* no bias: no gradient of one */
    for (int i = 0; i < w.n; i++) {
        int in = c->phase == KERNEL_BWD_IN ? 0 : 1 + i;
        w.v[i] = c->din[in] = copy_new(&like->din[in]);
        if (acc_mode == 0) c->acc[in].p = NULL;
        if (acc_mode == 1) c->acc[in] = c->din[in];
    }
    return w;
}

static void one(const struct kernel_family *f, struct team *const teams[3], enum dtype t, int64_t n_t, int64_t n,
                int64_t k)
{
    struct kernel_call like = {.op = OP_LINEAR, .at = ATTRS(linear, 0), .n_in = draw(2) ? 3 : 2, .n_out = 1};
    like.in[0] = matrix_new(t, n_t, k);
    like.in[1] = matrix_new(t, n, k);
    like.in[2] = vector_new(t, n);
    like.out[0] = matrix_new(t, n_t, n);
    like.dout[0] = matrix_new(t, n_t, n);
    like.din[0] = matrix_new(t, n_t, k);
    like.din[1] = matrix_new(DT_F32, n, k);
    like.din[2] = vector_new(DT_F32, n);
    for (int i = 0; i < 3; i++) like.acc[i] = copy_new(&like.din[i]);

    for (enum kernel_phase phase = KERNEL_FWD; phase < KERNEL_N_PHASES; phase++) {
        like.phase = phase;
        const struct kernel_slot *slot = kernel_way(f, &like);
        if (!slot) continue;
        const int acc_mode = (int)draw(3);
        struct kernel_call c;
        struct written want = aim(&c, &like, acc_mode);
        run(&kernel_family_ref.slot[OP_LINEAR][phase], c, NULL);
        struct written first = {.n = 0};
        for (int i = 0; i < 3; i++) {
            struct written is = aim(&c, &like, acc_mode);
            run(slot, c, teams[i]);
            for (int j = 0; j < is.n; j++) {
                char what[100];
                snprintf(what, sizeof what, "%s %s phase %d acc %d T=%ld N=%ld K=%ld", f->name, dtype_name(t),
                         (int)phase, acc_mode, (long)n_t, (long)n, (long)k);
                compare(&is.v[j], &want.v[j], phase == KERNEL_FWD ? k : phase == KERNEL_BWD_IN ? n : n_t, what);
                if (first.n && memcmp(first.v[j].p, is.v[j].p, view_bytes(&is.v[j])))
                    fail_msg("%s: other bits from %d threads", what, i + 1);
                if (first.n) xfree(is.v[j].p);
            }
            if (!first.n) first = is;
        }
        for (int j = 0; j < want.n; j++) {
            xfree(want.v[j].p);
            xfree(first.v[j].p);
        }
    }
    for (int i = 0; i < 3; i++) {
        xfree(like.in[i].p);
        xfree(like.din[i].p);
        xfree(like.acc[i].p);
    }
    xfree(like.out[0].p);
    xfree(like.dout[0].p);
}

static void test_family(const struct kernel_family *f, int rounds)
{
    struct team *teams[3] = {NULL, team_new(2), team_new(3)};
    const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    for (int i = 0; i < rounds; i++)
        one(f, teams, types[i % 3], 1 + draw(i % 4 ? 70 : 8), 1 + draw(90), 1 + draw(i % 5 ? 80 : 1000));
    for (int i = 0; i < 42; i++) { /* every choice of sizes that are 0, with and without a bias */
        int zero = 1 + i % 7;
        one(f, teams, types[i % 3], zero & 1 ? 0 : 1 + draw(20), zero & 2 ? 0 : 1 + draw(40),
            zero & 4 ? 0 : 1 + draw(40));
    }
    team_free(teams[1]);
    team_free(teams[2]);
}
static void test_own(void **state)
{
    (void)state;
    test_family(&kernel_family_cpu, 90);
}
static void test_library(void **state)
{
    (void)state;
    if (!kernel_family_onednn.slot[OP_LINEAR][KERNEL_FWD].run) skip();
    test_family(&kernel_family_onednn, 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
