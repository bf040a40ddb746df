/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of mesh types: every combination has an answer, the answers that matter are spelled out, and every
 * combination that is allowed is true. True means: two ranks that hold their parts of the inputs as the types say,
 * and run the reference on them, hold parts of the outputs as the rule says; and given parts of the outputs'
 * gradients of the dual types, the gradients they compute are parts of the inputs' gradients of the dual types. */
#include "harness.h"

#include "layout/spmd.h"

enum { RANKS = 2, T = 8, B = 2, D = 6, N = 8, H = 4, G = 2, A = 4, F = 6, V = 10 };

/* ---- every combination has an answer ---- */

static bool next_types(enum spmd *in, int n)
{
    for (int i = 0; i < n; i++) {
        in[i] = (enum spmd)(in[i] + 1);
        if (in[i] < SPMD_N) return true;
        in[i] = SPMD_I;
    }
    return false;
}

static void test_every_combination_has_an_answer(void **state)
{
    (void)state;
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++) {
        const struct op_row *row = op_row((enum op)op);
        const struct op_attrs at = op_attrs_zero((enum op)op);
        for (int n = row->min_in; n <= row->max_in; n++) {
            enum spmd in[KERNEL_MAX_IN] = {0};
            int legal = 0, refused = 0;
            do {
                enum spmd out[KERNEL_MAX_OUT] = {SPMD_N, SPMD_N, SPMD_N};
                const char *why = row->rule(&at, n, in, out);
                if (why) assert_true(strlen(why) > 10);
                for (int o = 0; !why && o < row->n_out; o++) assert_true(out[o] < SPMD_N);
                legal += !why;
                refused += why != NULL;
            } while (next_types(in, n));
            assert_true(legal >= 3); /* at least one whole, one per data-parallel style */
            if (op != OP_COPY) assert_true(refused > 0);
        }
    }
}

/* ---- the answers that matter ---- */

struct expectation {
    enum op op;
    const char *in;  /* "R S0": one word per input */
    const char *out; /* the output's letter, or a word of the refusal */
    int64_t capacity;
};

static const struct expectation expected[] = {
    {OP_LINEAR, "I I", "I", 0},
    {OP_LINEAR, "R R R", "R", 0},
    {OP_LINEAR, "V R", "V", 0},
    {OP_LINEAR, "S0 R", "S0", 0},
    {OP_LINEAR, "R S0 S0", "S1", 0},
    {OP_LINEAR, "S1 S1", "P", 0},
    {OP_LINEAR, "S1 S1 I", "P", 0},
    {OP_LINEAR, "S1 S1 R", "must be invariant", 0},
    {OP_LINEAR, "R S0 R", "bias must be split", 0},
    {OP_LINEAR, "I S0", "par_enter", 0},
    {OP_LINEAR, "P R", "P", 0},
    {OP_LINEAR, "P I", "partial", 0},
    {OP_LINEAR, "P R R", "partial", 0},
    {OP_LINEAR, "V I", "must be replicated", 0},
    {OP_LINEAR, "R S1", "split x by columns", 0},
    {OP_LINEAR, "R R I", "bias must have w's type", 0},
    {OP_RMSNORM, "I I", "I", 0},
    {OP_RMSNORM, "S0 R", "S0", 0},
    {OP_RMSNORM, "S1 R", "whole rows", 0},
    {OP_RMSNORM, "P I", "partial", 0},
    {OP_LAYERNORM, "V R R", "V", 0},
    {OP_HEADNORM, "S1 R", "S1", 0},
    {OP_SQUARES, "S1", "P", 0},
    {OP_NORM_BY, "S1 R S0", "S1", 0},
    {OP_NORM_BY, "S1 P S0", "reduce them", 0},
    {OP_HEADNORM, "S1 I", "must be replicated", 0},
    {OP_LAYERNORM, "R R I", "one type", 0},
    {OP_ROTARY, "S1 I R", "S1", 0},
    {OP_ROTARY, "S0 I I", "split alike", 0},
    {OP_ATTENTION, "S1 S1 S1", "S1", 0},
    {OP_ATTENTION, "V V V V", "V", 0},
    {OP_ATTENTION, "S1 R R", "S1", 0},
    {OP_ATTENTION, "S1 I I", "one type", 0},
    {OP_ATTENTION, "S0 S0 S0", "context", 0},
    {OP_ATTENTION, "S1 S1 S1 I S0", "S1", 0},
    {OP_ATTENTION, "S1 S1 S1 I R", "sinks must be too", 0},
    {OP_ATTENTION, "V V V V I", "must be R", 0},
    {OP_PICK, "V", "V", 0},
    {OP_PICK, "S0", "must be whole", 0},
    {OP_DISTANCES, "S1", "S0", 0},
    {OP_DISTANCES, "S0", "split by heads", 0},
    {OP_ATTENTION_BIASED, "S1 S1 S1 S0", "S1", 0},
    {OP_ATTENTION_BIASED, "V V V R", "V", 0},
    {OP_ATTENTION_BIASED, "V V V V", "the bias must be split", 0},
    {OP_ATTENTION_BIASED, "R I I", "one type", 0},
    {OP_ATTENTION_BIASED, "S0 S0 S0", "q must be whole", 0},
    {OP_ATTENTION_BIASED, "S1 S1 S1 S0 R", "S1", 0},
    {OP_ATTENTION_BIASED, "V V V R V", "V", 0},
    {OP_ATTENTION_BIASED, "S1 S1 S1 S0 V", "places must be whole", 0},
    {OP_ATTENTION_CACHED_BIASED, "S1 S1 S1 R S1 S1 S1", "S1", 0},
    {OP_ATTENTION_CACHED_BIASED, "V V V V V V R", "V", 0},
    {OP_ATTENTION_CACHED_BIASED, "S1 S1 S1 R R R S1", "one type", 0},
    {OP_ATTENTION_CACHED_BIASED, "S1 S1 S1 V S1 S1 S1", "runs must be whole", 0},
    {OP_ATTENTION_CACHED_BIASED, "S1 S1 S1 R S1 S1 R", "the table must be split", 0},
    {OP_ATTENTION_CACHED_BIASED, "S0 S0 S0 R S0 S0", "q must be whole", 0},
    {OP_ADAPTED_SQUARES, "S0 R S0 S0", "S0", 0},
    {OP_ADAPTED_SQUARES, "S1 S1 R", "P", 0},
    {OP_ADAPTED_SQUARES, "S0 R S0 R", "must be whole", 0},
    {OP_ADAPTED_SQUARES, "S1 R R", "must be whole", 0},
    {OP_MAGNITUDES, "S1 S0 S0 S0", "S1", 0},
    {OP_MAGNITUDES, "P I R I", "P", 0},
    {OP_MAGNITUDES, "P P R", "reduce them", 0},
    {OP_MAGNITUDES, "P I I", "of a partial x", 0},
    {OP_MAGNITUDES, "V R R", "V", 0},
    {OP_MAGNITUDES, "V R I", "where tokens differ", 0},
    {OP_EXPERT_BIAS, "P I I", "P", 0},
    {OP_EXPERT_BIAS, "P R I", "must be invariant", 0},
    {OP_EXPERT_BIAS, "S1 S0 I", "S1", 0},
    {OP_EXPERT_BIAS, "S1 I I", "must be too", 0},
    {OP_ACT, "S1", "S1", 0},
    {OP_ACT, "P", "partial", 0},
    {OP_ADD, "P P", "P", 0},
    {OP_ADD, "P R", "reduce a first", 0},
    {OP_ADD, "R I", "same type", 0},
    {OP_EMBED, "R S0", "P", 0},
    {OP_EMBED, "V R", "V", 0},
    {OP_EMBED, "V I", "must be replicated", 0},
    {OP_XENT, "V V", "P", 0},
    {OP_XENT, "I R", "I", 0},
    {OP_XENT, "S1 R", "collected first", 0},
    {OP_XENT, "S1 R S0", "collected first", 0},
    {OP_XENT, "S1 R I", "I", 0},
    {OP_XENT_PART, "S1 R", "S0", 0},
    {OP_XENT, "R R", "whole gradient", 0},
    {OP_COPY, "P", "P", 0},
    {OP_PERMUTE, "S0 S0", "V", 0},
    {OP_PERMUTE, "S0 I", "split alike", 0},
    {OP_PERMUTE, "S0 I", "V", 1},
    {OP_PERMUTE, "S0 S0", "picks of whole sequences", 1},
    {OP_PERMUTE, "I S0", "picks of whole sequences", 1},
    {OP_PERMUTE, "V V", "V", 1},
    {OP_PERMUTE, "R I", "R", 1},
    {OP_PERMUTE, "V I", "same sequences", 1},
};

static enum spmd letter(const char *word, size_t n)
{
    for (int s = 0; s < SPMD_N; s++)
        if (strlen(spmd_name((enum spmd)s)) == n && !strncmp(spmd_name((enum spmd)s), word, n)) return (enum spmd)s;
    fail_msg("no mesh type %.*s", (int)n, word);
    return SPMD_N;
}

static void test_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct expectation *x = &expected[i];
        struct op_attrs at = op_attrs_zero(x->op);
        if (x->op == OP_PERMUTE) edit_permute(&at)->capacity = x->capacity;
        enum spmd in[KERNEL_MAX_IN], out[KERNEL_MAX_OUT];
        int n = 0;
        for (const char *p = x->in; *p; p += strspn(p, " ")) {
            in[n++] = letter(p, strcspn(p, " "));
            p += strcspn(p, " ");
        }
        const char *why = op_row(x->op)->rule(&at, n, in, out);
        const char *got = why ? why : spmd_name(out[0]);
        if (why ? !strstr(why, x->out) : strcmp(got, x->out) != 0)
            fail_msg("%s %s: wanted %s, got %s", op_row(x->op)->name, x->in, x->out, got);
    }
}

/* ---- every allowed combination is true ---- */

static struct op_attrs attrs_of(enum op op)
{
    struct attention_attrs heads =
        {.heads = H, .kv_heads = G, .head_dim = A, .batch = B, .seq = T / B, .scale = 0.5f, .causal = true};
    switch (op_row(op)->attrs) {
    case ATTRS_NORM: return ATTRS(norm, .eps = 1e-5f, .heads = H, .whole = D);
    case ATTRS_ACT: return ATTRS(act, .kind = ACT_SWIGLU);
    case ATTRS_ADAPTED: return ATTRS(adapted, .times = 0.5f, .n_parts = 1, .part = {{0, N}});
    case ATTRS_ROTARY: return ATTRS(rotary, .heads = H, .head_dim = A);
    case ATTRS_ATTENTION: return attrs_attention(heads);
    case ATTRS_ATTENTION_PART: return ATTRS(attention_part, .attention = heads, .parts = 1, .q_count = 1, .k_count = 1);
    default: return op_attrs_zero(op);
    }
}

/* A rank's share of the heads, or of the sequences. */
static void share_out(enum op op, struct op_attrs *at, enum spmd over)
{
    int heads = over == SPMD_S1 ? RANKS : 1;
    if (at->kind == ATTRS_ROTARY) edit_rotary(at)->heads /= heads;
    if (at->kind == ATTRS_NORM) edit_norm(at)->heads /= heads;
    if (at->kind == ATTRS_ADAPTED && over == (op == OP_MAGNITUDES ? SPMD_S1 : SPMD_S0))
        edit_adapted(at)->part[0].n /= RANKS;
    if (at->kind != ATTRS_ATTENTION && at->kind != ATTRS_ATTENTION_PART) return;
    struct attention_attrs *a = (struct attention_attrs *)at_heads(at);
    a->heads /= heads;
    a->kv_heads /= heads;
    if (over == SPMD_V || over == SPMD_S0) a->batch /= RANKS;
}

static void build_whole(struct kcase *k, enum op op, int n_in)
{
    *k = (struct kcase){.op = op, .dtype = DT_F32, .seed = 40 + (uint64_t)op, .n_in = n_in};
    k->step = (struct step_info){.training = true, .loss_scale = 0.5f};
    k->at = attrs_of(op);
    struct {
        int64_t n0, n1;
        int64_t below; /* > 0: integers in [0, below) */
    } shape[OP_N][KERNEL_MAX_IN] = {
        [OP_EMBED] = {{T, 0, V}, {V, D, 0}},
        [OP_LINEAR] = {{T, D, 0}, {N, D, 0}, {N, 0, 0}},
        [OP_RMSNORM] = {{T, D, 0}, {D, 0, 0}},
        [OP_LAYERNORM] = {{T, D, 0}, {D, 0, 0}, {D, 0, 0}},
        [OP_SQUARES] = {{T, D, 0}},
        [OP_NORM_BY] = {{T, D, 0}, {T, 1, 0}, {D, 0, 0}},
        [OP_HEADNORM] = {{T, H * A, 0}, {A, 0, 0}},
        [OP_ROTARY] = {{T, H * A, 0}, {T, 0, 5}, {5, A, 0}},
        [OP_ATTENTION] = {{T, H * A, 0}, {T, G * A, 0}, {T, G * A, 0}, {T, 0, 1}, {H, 0, 0}},
        [OP_ACT] = {{T, 2 * F, 0}},
        [OP_ADD] = {{T, D, 0}, {T, D, 0}},
        [OP_DROPOUT] = {{T, D, 0}},
        [OP_XENT] = {{T, V, 0}, {T, 0, V}},
        [OP_ATTENTION_PART] = {{T, H * A, 0}, {T, G * A, 0}, {T, G * A, 0}, {T, 0, 1}, {H, 0, 0}, {T, 0, T}},
        [OP_XENT_PART] = {{T, V, 0}, {T, 0, V}},
        [OP_ATTENTION_CACHED] = {{T, H * A, 0},
                                 {T, G * A, 0},
                                 {T, G * A, 0},
                                 {1, RUN_PAGES + 1, 1},
                                 {CACHE_PAGE, G * A, 0},
                                 {CACHE_PAGE, G * A, 0},
                                 {H, 0, 0}},
        [OP_COPY] = {{T, D, 0}},
        [OP_ADAPTED_SQUARES] = {{N, D, 0}, {3, D, 0}, {N, 3, 0}},
        [OP_MAGNITUDES] = {{T, N, 0}, {N, 2, 0}, {N, 0, 0}, {N, 0, 0}},
    };
    for (int i = 0; i < n_in; i++)
        k->in[i] = shape[op][i].below ? kcase_ints(k, shape[op][i].n0, 0, shape[op][i].below - 1)
                                      : kcase_floats(k, shape[op][i].n0, shape[op][i].n1, 1);
    if (op == OP_ATTENTION_CACHED) {
        k->in[3] = kcase_tensor(k, DT_I32, 1, RUN_PAGES + 1);
        for (int i = 0; i < RUN_PAGES + 1; i++) view_set(&k->in[3], 0, i, i == RUN_ROWS ? T : i == RUN_PAST ? 3 : 0);
    }
    for (int64_t i = 0; op == OP_MAGNITUDES && i < 2 * N; i++) view_set(&k->in[1], i / 2, i % 2, 1 + 0.5 * (double)i);
    for (int64_t t = 0; op == OP_NORM_BY && t < T; t++) view_set(&k->in[1], t, 0, 0.5 + 0.25 * (double)t); /* squares */
    kcase_outputs(k);
    kcase_gradients(k);
}

/* Rank r's part of a whole tensor. blocks: S1 takes its part of each of so many equal groups of columns. */
static struct view part_of(struct kcase *owner, const struct view *whole, enum spmd type, int r, int blocks)
{
    struct view v = *whole;
    bool split_rows = type == SPMD_S0 || type == SPMD_V, split_cols = type == SPMD_S1;
    if (split_rows) v.n[0] /= RANKS;
    if (split_cols) v.n[1] /= RANKS;
    v.stride = view_cols(&v);
    kcase_memory(owner, &v);
    int64_t vector_shift = split_rows && v.nd == 1 ? r * v.n[0] : 0,
            row_shift = split_rows && v.nd == 2 ? r * v.n[0] : 0;
    int64_t each = view_cols(&v) / blocks;
    for (int64_t row = 0; row < view_rows(&v); row++)
        for (int64_t c = 0; c < view_cols(&v); c++) {
            int64_t from = split_cols ? c / each * each * RANKS + r * each + c % each : c + vector_shift;
            double x = view_get(whole, row + row_shift, from);
            if (type == SPMD_P) { /* uneven parts that sum to x */
                double first = 0.25 * x + 0.5 * (double)rng_normal(1, 2, (uint64_t)(row * 1000 + c));
                x = r ? x - (double)(float)first : first;
            }
            view_set(&v, row, c, x);
        }
    return v;
}

static void check_parts(const struct kcase *rank, const struct view *local[RANKS], const struct view *whole,
                        enum spmd type, int blocks, const char *what, const char *types)
{
    struct kcase own = {.seed = 1};
    struct view sum = part_of(&own, whole, SPMD_I, 0, 1);
    view_fill_zero(&sum);
    for (int r = 0; r < RANKS; r++) {
        struct view want = type == SPMD_P ? *local[r] : part_of(&own, whole, type, r, blocks);
        double d = view_distance(local[r], &want);
        if (!(d < 1e-5))
            fail_msg("%s (%s): rank %d's %s is not %s of the whole", op_row(rank->op)->name, types, r, what,
                     spmd_name(type));
        if (type != SPMD_P) continue;
        for (int64_t row = 0; row < view_rows(&sum); row++)
            for (int64_t c = 0; c < view_cols(&sum); c++)
                view_set(&sum, row, c, view_get(&sum, row, c) + view_get(local[r], row, c));
    }
    if (type == SPMD_P && !(view_distance(&sum, whole) < 1e-5))
        fail_msg("%s (%s): the ranks' %s do not sum to the whole", op_row(rank->op)->name, types, what);
    kcase_free(&own);
}

static void check_true(enum op op, int n_in, const enum spmd *in, const enum spmd *out)
{
    struct kcase whole, rank[RANKS];
    char types[80] = "";
    int x_blocks = op == OP_ACT ? 2 : 1; /* gate and up are split each */
    for (int i = 0; i < n_in; i++) strcat(strcat(types, i ? " " : ""), spmd_name(in[i]));
    build_whole(&whole, op, n_in);
    const struct view *local[RANKS];
    for (int r = 0; r < RANKS; r++) {
        struct kcase *k = &rank[r];
        *k = (struct kcase){.op = op,
                            .dtype = DT_F32,
                            .seed = 90 + (uint64_t)r,
                            .n_in = n_in,
                            .at = whole.at,
                            .step = whole.step};
        share_out(op, &k->at, in[0]);
        for (int i = 0; i < n_in; i++) k->in[i] = part_of(k, &whole.in[i], in[i], r, i ? 1 : x_blocks);
        kcase_outputs(k);
        kcase_gradients(k);
        if (op == OP_LINEAR && in[0] == SPMD_S1 && r > 0) k->n_in = 2; /* bias_off: one rank adds the bias */
        if (op == OP_MAGNITUDES && in[0] == SPMD_P && r > 0) k->n_in = 3;
        assert_true(kcase_forward(k, &kernel_family_ref, 1));
        k->n_in = n_in;
    }
    assert_true(kcase_forward(&whole, &kernel_family_ref, 1));
    for (int o = 0; o < whole.n_out; o++) {
        for (int r = 0; r < RANKS; r++) local[r] = &rank[r].out[o];
        check_parts(&whole, local, &whole.out[o], out[o], 1, "output", types);
    }
    if (op_row(op)->has_backward) {
        assert_true(kcase_backward(&whole, &kernel_family_ref, 1));
        for (int r = 0; r < RANKS; r++) {
            struct kcase *k = &rank[r];
            if (op != OP_XENT) k->dout[0] = part_of(k, &whole.dout[0], spmd_dual(out[0]), r, 1);
            assert_true(kcase_backward(k, &kernel_family_ref, 1));
        }
        for (int i = 0; i < n_in; i++) {
            if (!whole.din[i].p) continue;
            for (int r = 0; r < RANKS; r++) local[r] = &rank[r].din[i];
            check_parts(&whole, local, &whole.din[i], spmd_dual(in[i]), i ? 1 : x_blocks, "gradient", types);
        }
    }
    for (int r = 0; r < RANKS; r++) kcase_free(&rank[r]);
    kcase_free(&whole);
}

/* What two ranks of one microbatch cannot act out: a table split by vocabulary needs the ranks' id offsets, heads
 * and rows their places in the model (test_parts.c acts those out); tokens
 * that vary at equal positions, and a cache that varies, are other sequences; S2 and S3 need more dims than any row's
 * tensors have here. */
static bool can_act_out(enum op op, int n_in, const enum spmd *in)
{
    if (op == OP_ADAPTED_SQUARES && n_in > 3) return false; /* one part */
    if (op >= OP_ROUTER && op != OP_ADAPTED_SQUARES && op != OP_MAGNITUDES)
        return false; /* experts: tests/engine/test_experts.c and the layouts of tests/engine */
    if (op == OP_EMBED && (in[1] == SPMD_S0 || in[1] == SPMD_V)) return false; /* ids are of the table's own rows */
    if ((op == OP_XENT || op == OP_XENT_PART) && in[0] == SPMD_S1) return false;
    if ((op == OP_XENT && n_in > 2) || (op == OP_ADD && n_in > 2) || (op == OP_DROPOUT && n_in > 1)) return false;
    bool attends = op == OP_ATTENTION || op == OP_ATTENTION_PART || op == OP_ATTENTION_CACHED;
    if (attends && in[0] == SPMD_S1 && in[1] == SPMD_R) return false;
    if (op == OP_ROTARY && in[0] == SPMD_V && in[1] != SPMD_V) return false;
    if (op == OP_ATTENTION_CACHED && in[0] == SPMD_V) return false;
    for (int i = 0; i < n_in; i++)
        if (in[i] == SPMD_S2 || in[i] == SPMD_S3) return false;
    return true;
}

static void test_allowed_is_true(void **state)
{
    (void)state;
    int acted = 0;
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++) {
        const struct op_row *row = op_row((enum op)op);
        const struct op_attrs at = op_attrs_zero((enum op)op);
        for (int n = row->min_in; n <= row->max_in; n++) {
            enum spmd in[KERNEL_MAX_IN] = {0}, out[KERNEL_MAX_OUT];
            do {
                if (row->rule(&at, n, in, out) || !can_act_out((enum op)op, n, in)) continue;
                check_true((enum op)op, n, in, out);
                acted++;
            } while (next_types(in, n));
        }
    }
    assert_true(acted > 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_combination_has_an_answer),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_allowed_is_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
