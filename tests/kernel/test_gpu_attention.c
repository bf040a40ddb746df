/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long sanitizers */
/* A GPU's attention, simulated, against the reference where the random cases of test_rows.c do not come: heads of all
 * widths that its kernels have, rows on 16 bytes and not, several tiles of queries and keys, tiles
 * that are left out; the same bits in every order of threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>

#include "kernel/vec_call.h"
#include "sanitized.h"

static const struct step_info step = {.seed = 5, .step = 2, .first_token = 0, .training = true};

struct variant {
    const char *name;
    int batch, seq, heads, kv_heads, head_dim, gap; /* gap: columns between rows */
    bool causal;
    int window, docs, prefix; /* docs: about how many tokens in one */
    float dropout, cap;
};
static const struct variant variants[] = {
    {"a narrow head", 1, 150, 2, 1, 24, 8, true, 0, 0, 0, 0, 0},
    {"64 columns", 1, 129, 1, 1, 64, 8, true, 0, 0, 0, 0, 0},
    {"both ways", 1, 129, 1, 1, 64, 8, false, 0, 0, 0, 0, 0},
    {"80 columns", 1, 70, 3, 1, 80, 0, true, 0, 0, 0, 0, 0},
    {"128 columns", 1, 140, 2, 2, 128, 8, true, 0, 0, 0, 0, 0},
    {"rows anywhere", 1, 70, 1, 1, 100, 3, true, 0, 0, 0, 0, 0},
    {"192 columns", 1, 70, 1, 1, 192, 8, true, 0, 0, 0, 0, 0},
    {"256 columns", 1, 80, 2, 1, 256, 8, true, 0, 0, 0, 0.2f, 0},
    {"window", 1, 300, 1, 1, 16, 8, true, 37, 0, 0, 0, 0},
    {"documents", 1, 260, 1, 1, 16, 8, true, 0, 90, 0, 0, 0},
    {"documents both ways", 1, 200, 1, 1, 16, 8, false, 0, 70, 0, 0, 0},
    {"prefixes", 1, 260, 1, 1, 16, 8, true, 0, 150, 90, 0, 0},
    {"all of it", 2, 140, 4, 2, 40, 8, true, 90, 60, 0, 0.1f, 0.8f},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static struct kernel_call call_of(const struct variant *v, enum dtype t)
{
    struct kernel_call c = {.op = OP_ATTENTION, .phase = KERNEL_FWD, .step = &step, .n_out = 2};
    c.n_in = v->docs ? 4 : 3;
    c.at = ATTRS(attention, .heads = v->heads, .kv_heads = v->kv_heads, .head_dim = v->head_dim, .batch = v->batch,
                 .seq = v->seq, .scale = 1.0f / sqrtf((float)v->head_dim), .causal = v->causal, .window = v->window,
                 .prefix = v->prefix > 0, .cap = v->cap, .dropout = {v->dropout, 77});
    int64_t rows = (int64_t)v->batch * v->seq;
    for (int i = 0; i < 3; i++) {
        c.in[i] = (struct view){.dtype = t, .nd = 2, .n = {rows, (int64_t)(i ? v->kv_heads : v->heads) * v->head_dim}};
        view_alloc(&c.in[i], v->gap);
        view_random(&c.in[i], 100 + (uint64_t)i, 1);
    }
    if (v->docs) {
        c.in[3] = (struct view){.dtype = DT_I32, .nd = 1, .n = {rows}};
        view_alloc(&c.in[3], 0);
        for (int64_t r = 0; r < rows; r++) {
            int32_t id = (int32_t)(r / v->docs);
            ((int32_t *)c.in[3].p)[r] = v->prefix ? 2 * id + (r % v->docs < v->prefix) : id;
        }
    }
    const char *why = op_row(OP_ATTENTION)->infer(&c.at, c.n_in, c.in, c.out);
    if (why) fail_msg("%s", why);
    view_alloc(&c.out[0], v->gap);
    view_alloc(&c.out[1], 1);
    return c;
}

static const struct kernel_slot *slot_of(const struct kernel_call *c)
{
    const struct kernel_slot *s = &kernel_family_cuda.slot[c->op][c->phase];
    return s->run ? s : NULL; /* there is no simulator in every build */
}

static const char *const orders[] = {"forward", "backward", "random:3", "greedy:5"};
enum { N_ORDERS = sizeof orders / sizeof *orders };

/* The first one's results against the reference; the others' against the first one's, to the bit. */
static void compare(const struct kernel_call *c, const struct variant *v)
{
    const struct kernel_slot *slot = slot_of(c);
    if (!slot) return;
    assert_true(slot->accepts(c));
    enum dtype t = c->in[0].dtype;
    struct kernel_call want = call_reference(c), first = {0};
    double tol = t == DT_F32   ? 2e-5
                 : t == DT_F16 ? 4e-3
                               : 2e-2,
           part = t == DT_F32   ? 2e-5
                  : t == DT_F16 ? 0x1p-10
                                : 0x1p-7;
    if (c->phase != KERNEL_FWD) tol *= 3;
    for (int o = 0; o < N_ORDERS; o++) {
        if (v->head_dim > 64 && o % 3) continue; /* wide heads take long: in the first order and the last */
        struct kernel_call got = call_fresh(c);
        setenv("TUTTI_SIM_ORDER", orders[o], 1);
        slot_run(slot, &got, NULL);
        for (int i = 0; i < KERNEL_MAX_IN + KERNEL_MAX_OUT; i++) {
            bool out = i >= KERNEL_MAX_IN;
            int k = out ? i - KERNEL_MAX_IN : i;
            struct view *g = out ? &got.out[k] : &got.din[k], *w = out ? &want.out[k] : &want.din[k];
            if (out != (c->phase == KERNEL_FWD) || !g->p) continue;
            double e = o ? 0 : view_error(g, w, tol, part);
            if (!(e <= 1))
                fail_msg("%s, %s, phase %d, %d: error %.3g of the tolerance", v->name, dtype_name(t), (int)c->phase, k,
                         e);
            if (!view_guarded(g))
                fail_msg("%s, %s, phase %d, %d: wrote between rows", v->name, dtype_name(t), (int)c->phase, k);
            if (o && !view_same_bits(g, out ? &first.out[k] : &first.din[k]))
                fail_msg("%s, %s, phase %d, %d: other bits in order %s", v->name, dtype_name(t), (int)c->phase, k,
                         orders[o]);
        }
        if (o) call_free(&got);
        else first = got;
    }
    unsetenv("TUTTI_SIM_ORDER");
    call_free(&first);
    call_free(&want);
}

static void forward_and_backward_match_reference(void **state)
{
    (void)state;
    for (int i = 0; i < N_VARIANTS; i += SANITIZED ? 3 : 1)
        for (int t = DT_F32; t <= DT_F16; t++) {
            if (t != DT_F32 && t != DT_BF16 && t != DT_F16) continue;
            struct kernel_call c = call_of(&variants[i], (enum dtype)t);
            compare(&c, &variants[i]);
            slot_run(&kernel_family_ref.slot[OP_ATTENTION][KERNEL_FWD], &c, NULL);
            call_backward(&c, KERNEL_BWD_IN, (enum acc_mode)(i % ACC_N), variants[i].gap);
            compare(&c, &variants[i]);
            call_free(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(forward_and_backward_match_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
