/* SPDX-License-Identifier: Apache-2.0 */
/* suite: long threads */
/* Products with a side of one, whose vectors lie spread: the output of one feature is a column between other columns,
 * one token's gradient is read along a column. Libraries take such vectors for dense ones (kernel/onednn/matmul.c says
 * which), and then write into the gaps or read from them. Every family that takes such a call gives the reference's
 * numbers and leaves the gaps alone, at every instruction set of this machine; oneDNN is not handed any. */
#include "each_isa.h"
#include "harness.h"

static const struct kernel_family *const families[] = {&kernel_family_ref, &kernel_family_cpu, &kernel_family_onednn};
enum { N_FAMILIES = sizeof families / sizeof *families };
static const int64_t sides[] = {1, 2, 5, 17, 33, 140};
enum { N_SIDES = sizeof sides / sizeof *sides };

/* A tensor whose rows are `gap` elements wider than its columns. */
static struct view spread(struct kcase *k, enum dtype t, int64_t rows, int64_t cols, int64_t gap)
{
    struct view v = {.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols + gap};
    kcase_memory(k, &v);
    view_fill(&v, k->seed, k->drawn++, 0.5);
    return v;
}

static void build(struct kcase *k, enum dtype t, int64_t tokens, int64_t features, int64_t outs, int64_t gap)
{
    memset(k, 0, sizeof *k);
    k->op = OP_LINEAR;
    k->at = op_attrs_zero(k->op);
    k->dtype = t;
    k->seed = 3;
    k->n_in = 2;
    k->n_out = 1;
    k->in[0] = spread(k, t, tokens, features, gap);
    k->in[1] = spread(k, t, outs, features, gap);
    k->out[0] = spread(k, t, tokens, outs, gap);
    k->dout[0] = spread(k, t, tokens, outs, gap);
    k->din[0] = spread(k, t, tokens, features, gap);
    k->din[1] = spread(k, DT_F32, outs, features, gap);
}

/* Which phases have a vector that lies spread: y = x w', dx = dy w, dw = dy' x. */
static bool one_wide(enum kernel_phase phase, int64_t tokens, int64_t features, int64_t outs)
{
    bool one_out = outs == 1 && tokens > 1, one_feature = features == 1 && tokens > 1;
    if (phase == KERNEL_FWD) return one_out;                                       /* y */
    if (phase == KERNEL_BWD_IN) return one_feature || (features == 1 && outs > 1); /* dx; w */
    return one_out || one_feature || (features == 1 && outs > 1);                  /* dy'; x; dw */
}

static const struct view *result(const struct kcase *k, enum kernel_phase phase)
{
    return phase == KERNEL_FWD ? &k->out[0] : phase == KERNEL_BWD_IN ? &k->din[0] : &k->din[1];
}

static int compare(const struct kernel_family *f, struct kcase *k, enum kernel_phase phase)
{
    const struct view *y = result(k, phase);
    struct kernel_call c = kcase_call(k, phase);
    assert_true(kcase_run(&c, &kernel_family_ref, 1));
    struct view want = kcase_clone(k, y);
    view_fill(y, 1, 1, 9);
    c = kcase_call(k, phase);
    if (!kcase_run(&c, f, 2)) return 0;
    kcase_check_gaps(k);
    double d = view_distance(y, &want), limit = y->dtype == DT_F32 && k->dtype == DT_F32 ? 5e-5 : 2e-2;
    if (!(d <= limit))
        fail_msg("%s phase %d, %s, %lld tokens, %lld to %lld features: differs by %.3g of the largest", f->name,
                 (int)phase, dtype_name(k->dtype), (long long)k->in[0].n[0], (long long)k->in[0].n[1],
                 (long long)k->in[1].n[0], d);
    return 1;
}

static void test_values_and_gaps(void **state)
{
    (void)state;
    for (int fam = 1; fam < N_FAMILIES; fam++) {
        int ran = 0;
        for (int i = 0; i < N_SIDES * N_SIDES * N_SIDES; i++) {
            int64_t t = sides[i % N_SIDES], d = sides[i / N_SIDES % N_SIDES], n = sides[i / N_SIDES / N_SIDES];
            if (t != 1 && d != 1 && n != 1) continue;
            for (int type = 0; type < 3; type++)
                for (int phase = KERNEL_FWD; phase <= KERNEL_BWD_W; phase++)
                    for (int64_t gap = 0; gap < 6; gap += 5) {
                        struct kcase k;
                        build(&k, kcase_dtypes[type], t, d, n, gap);
                        ran += compare(families[fam], &k, (enum kernel_phase)phase);
                        kcase_free(&k);
                    }
        }
        print_message("  %-8s %5d calls at %s\n", families[fam]->name, ran, isa_name(cpu_isa()));
    }
}

/* Whatever the version of the library that this build found. */
static void test_onednn_is_not_handed_any(void **state)
{
    (void)state;
    for (int i = 0; i < N_SIDES * N_SIDES * N_SIDES; i++) {
        int64_t t = sides[i % N_SIDES], d = sides[i / N_SIDES % N_SIDES], n = sides[i / N_SIDES / N_SIDES];
        for (int phase = KERNEL_FWD; phase <= KERNEL_BWD_W; phase++) {
            struct kcase k;
            build(&k, DT_F32, t, d, n, 3);
            struct kernel_call c = kcase_call(&k, (enum kernel_phase)phase);
            const bool has = kernel_family_onednn.slot[OP_LINEAR][phase].run,
                       takes = kernel_way(&kernel_family_onednn, &c);
            if (takes && one_wide((enum kernel_phase)phase, t, d, n))
                fail_msg("phase %d of %lld tokens, %lld to %lld features was taken", phase, (long long)t, (long long)d,
                         (long long)n);
            if (has && t > 1 && d > 1 && n > 1) assert_true(takes);
            kcase_free(&k);
        }
    }
}

static int run_group(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_gaps),
        cmocka_unit_test(test_onednn_is_not_handed_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_for_each_isa(run_group); }
