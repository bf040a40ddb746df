/* SPDX-License-Identifier: Apache-2.0 */
/* suite: wraps kernel_enqueue kernel_family_ref kernel_family_onednn coded_dot_avx2 coded_fixed_avx2 */
/* suite: wraps kernel_vec_act_avx2 kernel_vec_norm_avx2 kernel_vec_move_avx2 kernel_vec_scan_avx2 */
/* suite: wraps kernel_quantise_avx2 attention_avx2 tile_ops_avx2 */
/* suite: wraps kernel_vec_act_avx512 kernel_vec_norm_avx512 kernel_vec_move_avx512 kernel_vec_scan_avx512 */
/* suite: wraps kernel_quantise_avx512 attention_avx512 tile_ops_avx512 */
/* suite: wraps kernel_vec_act_avx512bf16 kernel_vec_norm_avx512bf16 kernel_vec_move_avx512bf16 */
/* suite: wraps kernel_vec_scan_avx512bf16 kernel_quantise_avx512bf16 attention_avx512bf16 tile_ops_avx512bf16 */
/* suite: wraps kernel_vec_act_amx kernel_vec_norm_amx kernel_vec_move_amx kernel_vec_scan_amx kernel_quantise_amx */
/* suite: wraps attention_amx tile_ops_amx */
/* suite: wraps kernel_vec_act_neon kernel_vec_norm_neon kernel_vec_move_neon kernel_vec_scan_neon */
/* suite: wraps kernel_quantise_neon attention_neon tile_ops_neon */
/* suite: wraps kernel_vec_act_neonbf16 kernel_vec_norm_neonbf16 kernel_vec_move_neonbf16 kernel_vec_scan_neonbf16 */
/* suite: wraps kernel_quantise_neonbf16 attention_neonbf16 tile_ops_neonbf16 */
/* What `tutti explain tape` names is what runs. The linker puts counters of this file behind every build, every row of
 * panels and every family, so which of them a call reached is seen from outside, and compared with the words: for each
 * instruction of programs of all families and dtypes, and for each row of the operation table in calls of many shapes,
 * at every instruction set of this machine. */
#include "toy.h"

#include <stdatomic.h>

#include "base/isa_built.h"
#include "explain/explain.h"
#include "kernel/codes_product.h"
#include "kernel/cpu/build.h"
#include "kernel/cpu/bits/codes_product.h"
#include "kernel/cpu/tile/tile_rows.h"
#include "kernel/each_isa.h"
#include "kernel/harness.h"

/* ---- what ran ---- */
/* A bit for each that can be seen: families, and builds and panels by their level. */
enum seen {
    SEEN_REF,
    SEEN_ONEDNN,
    SEEN_VEC,
    SEEN_ATTENTION = 10,
    SEEN_FEW = 20,
    SEEN_PACKED = 30,
    SEEN_IN_PLACE = 40,
    SEEN_CODES = 50,
    SEEN_INTEGERS
};
static atomic_ullong seen;
static void see(int what) { atomic_fetch_or(&seen, 1ULL << what); }

#define FAMILY(name, bit)                                                                                              \
    extern const struct kernel_family __real_kernel_family_##name;                                                     \
    struct kernel_family __wrap_kernel_family_##name;                                                                  \
    static void run_##name(const struct kernel_call *c)                                                                \
    {                                                                                                                  \
        see(bit);                                                                                                      \
        __real_kernel_family_##name.slot[c->op][c->phase].run(c);                                                      \
    }
FAMILY(ref, SEEN_REF)
FAMILY(onednn, SEEN_ONEDNN)

#define PART(part, isa, level)                                                                                         \
    extern const struct kernel_family __real_kernel_##part##_##isa;                                                    \
    struct kernel_family __wrap_kernel_##part##_##isa;                                                                 \
    static void part##_##isa(const struct kernel_call *c)                                                              \
    {                                                                                                                  \
        see(SEEN_VEC + level);                                                                                         \
        __real_kernel_##part##_##isa.slot[c->op][c->phase].run(c);                                                     \
    }
#define BUILD(isa, level)                                                                                              \
    PART(vec_act, isa, level)                                                                                          \
    PART(vec_norm, isa, level)                                                                                         \
    PART(vec_move, isa, level)                                                                                         \
    PART(vec_scan, isa, level)                                                                                         \
    extern const struct attention_build __real_attention_##isa;                                                        \
    struct attention_build __wrap_attention_##isa;                                                                     \
    static void fwd_##isa(const struct kernel_call *c, const struct tile_ops *o)                                       \
    {                                                                                                                  \
        see(SEEN_ATTENTION + level);                                                                                   \
        __real_attention_##isa.fwd(c, o);                                                                              \
    }                                                                                                                  \
    static void bwd_##isa(const struct kernel_call *c, const struct tile_ops *o)                                       \
    {                                                                                                                  \
        see(SEEN_ATTENTION + level);                                                                                   \
        __real_attention_##isa.bwd(c, o);                                                                              \
    }                                                                                                                  \
    static void cached_##isa(const struct kernel_call *c, const struct tile_ops *o)                                    \
    {                                                                                                                  \
        see(SEEN_ATTENTION + level);                                                                                   \
        __real_attention_##isa.cached(c, o);                                                                           \
    }                                                                                                                  \
    static void few_##isa(const struct kernel_call *c)                                                                 \
    {                                                                                                                  \
        see(SEEN_FEW + level);                                                                                         \
        __real_attention_##isa.few(c);                                                                                 \
    }
#define QUANTISE(isa, level) PART(quantise, isa, level)
#define PANELS(isa, level)                                                                                             \
    extern const struct tile_ops __real_tile_ops_##isa;                                                                \
    struct tile_ops __wrap_tile_ops_##isa;                                                                             \
    static void mul_##isa(float *c, int64_t ldc, const void *a, const void *b, int64_t depth, int rows, bool add)      \
    {                                                                                                                  \
        see(SEEN_PACKED + level);                                                                                      \
        __real_tile_ops_##isa.mul(c, ldc, a, b, depth, rows, add);                                                     \
    }                                                                                                                  \
    static void dot_##isa(float *y, int64_t ldy, const void *x, int64_t ldx, const void *w, int64_t ldw, enum dtype t, \
                          int m, int64_t n, int64_t depth)                                                             \
    {                                                                                                                  \
        see(SEEN_IN_PLACE + level);                                                                                    \
        __real_tile_ops_##isa.dot(y, ldy, x, ldx, w, ldw, t, m, n, depth);                                             \
    }

#if defined(__x86_64__)
#define QUANTISES(X) X(avx2, ISA_AVX2) IF_AVX512(X(avx512, ISA_AVX512))
#define BUILDS(X) QUANTISES(X) IF_AVX512BF16(X(avx512bf16, ISA_AVX512_BF16))
#define ROWS(X) BUILDS(X) IF_AMX(X(amx, ISA_AMX))
#elif defined(__aarch64__)
#define QUANTISES(X) X(neon, ISA_NEON)
#define BUILDS(X) X(neon, ISA_NEON) IF_NEONBF16(X(neonbf16, ISA_NEON_BF16))
#define ROWS(X) BUILDS(X)
#else
#define QUANTISES(X)
#define BUILDS(X)
#define ROWS(X)
#endif
BUILDS(BUILD)
QUANTISES(QUANTISE)
ROWS(PANELS)

#if defined(__x86_64__)
coded_dot_fn __real_coded_dot_avx2, __wrap_coded_dot_avx2;
void __wrap_coded_dot_avx2(const struct packed_args *a, const struct packed_scales *s, const float *x, int64_t ldx,
                           int m, float *y, int64_t ldy)
{
    see(SEEN_CODES);
    __real_coded_dot_avx2(a, s, x, ldx, m, y, ldy);
}
coded_fixed_fn __real_coded_fixed_avx2, __wrap_coded_fixed_avx2;
void __wrap_coded_fixed_avx2(const struct packed_args *a, const struct packed_scales *s, const struct coded_fixed *x,
                             int m, float *y, int64_t ldy)
{
    see(SEEN_INTEGERS);
    __real_coded_fixed_avx2(a, s, x, m, y, ldy);
}
#endif

static void see_slots(struct kernel_family *f, const struct kernel_family *real, kernel_fn *run)
{
    *f = *real;
    for (int op = 0; op < OP_N; op++)
        for (int phase = 0; phase < KERNEL_N_PHASES; phase++)
            if (f->slot[op][phase].run) f->slot[op][phase].run = run;
}

static void see_all(void)
{
    see_slots(&__wrap_kernel_family_ref, &__real_kernel_family_ref, run_ref);
    see_slots(&__wrap_kernel_family_onednn, &__real_kernel_family_onednn, run_onednn);
#define SEE_PART(part, isa) see_slots(&__wrap_kernel_##part##_##isa, &__real_kernel_##part##_##isa, part##_##isa);
#define SEE_BUILD(isa, level)                                                                                          \
    SEE_PART(vec_act, isa)                                                                                             \
    SEE_PART(vec_norm, isa)                                                                                            \
    SEE_PART(vec_move, isa)                                                                                            \
    SEE_PART(vec_scan, isa)                                                                                            \
    __wrap_attention_##isa = __real_attention_##isa;                                                                   \
    __wrap_attention_##isa.fwd = fwd_##isa;                                                                            \
    __wrap_attention_##isa.bwd = bwd_##isa;                                                                            \
    __wrap_attention_##isa.cached = cached_##isa;                                                                      \
    __wrap_attention_##isa.few = few_##isa;
#define SEE_PANELS(isa, level)                                                                                         \
    __wrap_tile_ops_##isa = __real_tile_ops_##isa;                                                                     \
    __wrap_tile_ops_##isa.mul = mul_##isa;                                                                             \
    __wrap_tile_ops_##isa.dot = dot_##isa;
#define SEE_QUANTISE(isa, level) SEE_PART(quantise, isa)
    BUILDS(SEE_BUILD)
    QUANTISES(SEE_QUANTISE)
    ROWS(SEE_PANELS)
}

/* ---- what the words say ---- */
static int level_of(const char *word, size_t n)
{
    for (int i = 0; i < ISA_N; i++)
        if (strlen(isa_name((enum isa)i)) == n && !strncmp(isa_name((enum isa)i), word, n)) return i;
    fail_msg("no instruction set in '%s'", word);
    return 0;
}
static const char *behind(const char *words, const char *part)
{
    const char *at = strstr(words, part);
    return at ? at + strlen(part) : NULL;
}

/* What must be seen, and what may be seen too. */
struct claim {
    unsigned long long must, may;
};
static struct claim claim_of(enum op op, const char *family, const char *words)
{
    if (!strcmp(family, "ref")) return (struct claim){1ULL << SEEN_REF, 0};
    if (!strcmp(family, "onednn")) return (struct claim){1ULL << SEEN_ONEDNN, 0};
    assert_string_equal(family, "cpu");
    int level = level_of(words, strcspn(words, ":,"));
    if (op == OP_CODED && behind(words, "codes in registers as integers"))
        return (struct claim){1ULL << SEEN_INTEGERS, 0};
    if (op == OP_CODED && behind(words, ": few rows, codes in registers")) return (struct claim){1ULL << SEEN_CODES, 0};
    if (op == OP_CODED) { /* a panel's product is the ordinary one, packed or of few rows */
        unsigned long long panels = 1ULL << (SEEN_PACKED + level) | 1ULL << (SEEN_IN_PLACE + level);
        return (struct claim){0, behind(words, "codes in registers")
                                     ? 1ULL << SEEN_CODES | 1ULL << SEEN_INTEGERS | panels
                                     : panels};
    }
    const char *type = behind(words, "packed "); /* of the row's panels */
    if (!type) type = behind(words, "widened ");
    if (type) {
        bool narrow = !strncmp(type, "bf16", 4);
        const struct tile_ops *o = tile_ops_get(narrow ? DT_BF16 : DT_F32);
        assert_int_equal(o->panel, narrow ? DT_BF16 : DT_F32);
        assert_int_equal(o->needs, level);
        if (op != OP_GROUPED) return (struct claim){1ULL << (SEEN_PACKED + level), 0};
        bool few = behind(words, "or weights in place");
        return (struct claim){0, 1ULL << (SEEN_PACKED + level) | (few ? 1ULL << (SEEN_IN_PLACE + level) : 0)};
    }
    if (behind(words, ", f32 panels")) /* of a scan's products */
        return (struct claim){1ULL << (SEEN_VEC + level), 1ULL << (SEEN_PACKED + tile_ops_get(DT_F32)->needs)};
    if (behind(words, "few rows")) return (struct claim){1ULL << (SEEN_IN_PLACE + level), 0};
    if (behind(words, "few tokens")) return (struct claim){1ULL << (SEEN_FEW + level), 0};
    if (op != OP_ATTENTION && op != OP_ATTENTION_PART && op != OP_ATTENTION_CACHED && op != OP_ATTENTION_BIASED)
        return (struct claim){1ULL << (SEEN_VEC + level), 0};
    const char *panels = behind(words, ", ");
    int of = panels ? level_of(panels, strcspn(panels, " ")) : level;
    return (struct claim){1ULL << (SEEN_ATTENTION + level), 1ULL << (SEEN_PACKED + of)};
}

static void compare(enum op op, int phase, const char *family, const char *words, unsigned long long ran)
{
    struct claim c = claim_of(op, family, words);
    if ((ran & c.must) != c.must || ran & ~(c.must | c.may) || !ran)
        fail_msg("%s phase %d is said to run by %s %s, seen were %llx of %llx (%llx)", op_row(op)->name, phase, family,
                 words, ran, c.must, c.may);
}

/* ---- programs ---- */
static struct {
    int n;
    struct ran {
        enum op op;
        enum kernel_phase phase;
        unsigned long long seen;
    } list[4096];
} log_;

void __real_kernel_enqueue(struct stream *s, struct kernel_call *c);
void __wrap_kernel_enqueue(struct stream *s, struct kernel_call *c);
void __wrap_kernel_enqueue(struct stream *s, struct kernel_call *c)
{
    atomic_store(&seen, 0);
    __real_kernel_enqueue(s, c);
    if (c->op >= OP_FIRST_ARRAY) return; /* on no tape */
    assert_true(log_.n < 4096);
    log_.list[log_.n++] = (struct ran){c->op, c->phase, atomic_load(&seen)};
}

/* The tape as a rank on the null device tells it. */
static struct json *told(const struct engine_config *c)
{
    struct device *dev;
    struct engine *g;
    struct err e = {0};
    struct str text = {0};
    struct json_out o = {.s = &text};
    struct json *root;
    if (device_null_new(&dev, &e) || engine_new(&g, c, dev, &e)) fail_msg("%s", e.text);
    json_begin_document(&o, "test", 1);
    if (explain_tape_json(&(struct explain){.g = g}, &o, &e)) fail_msg("%s", e.text);
    json_end_object(&o);
    if (json_parse(&root, str_text(&text), text.n, "test", &e)) fail_msg("%s", e.text);
    str_free(&text);
    engine_free(g);
    device_free(dev);
    return root;
}

/* How many instructions were compared. */
static int program(const struct engine_config *c)
{
    struct toy t;
    struct engine_report r;
    struct json *root = told(c);
    const struct json *phases = json_get(json_at(json_get(root, "stages"), 0), "phases");
    int n = 0;
    toy_open(&t, c);
    log_.n = 0;
    assert_true(engine_step(t.g, &t.batch, 0, 1e-3, &r));
    for (size_t p = 0; p < json_size(phases); p++) {
        const struct json *code = json_get(json_at(phases, p), "instructions");
        for (size_t i = 0; i < json_size(code); i++) {
            const struct json *told_of = json_at(code, i);
            const char *family = json_string(json_get(told_of, "family"), NULL, NULL);
            if (!family) continue;
            assert_true(n < log_.n);
            const struct ran *ran = &log_.list[n++];
            assert_string_equal(op_row(ran->op)->name, json_string(json_get(told_of, "op"), NULL, ""));
            compare(ran->op, (int)ran->phase, family, json_string(json_get(told_of, "path"), NULL, ""), ran->seen);
        }
    }
    assert_int_equal(n, log_.n);
    json_free(root);
    toy_close(&t);
    return n;
}

static void test_programs(void **state)
{
    (void)state;
    static const enum model_family family[] = {MODEL_GPT2, MODEL_LLAMA, MODEL_MIXTRAL, MODEL_DEEPSEEK};
    static const enum dtype type[] = {DT_F32, DT_BF16, DT_F16};
    int n = 0;
    for (size_t f = 0; f < sizeof family / sizeof *family; f++)
        for (size_t d = 0; d < sizeof type / sizeof *type; d++)
            for (int few = 0; few < 2; few++) {
                struct engine_config c = toy_config(family[f], type[d]);
                c.n_microbatches = 1;
                c.micro = few ? 1 : 2;
                c.seq = few ? 4 : 24;
                if (few && d == 0) c.kernels = "ref";
                n += program(&c);
            }
    print_message("  %d instructions at %s\n", n, isa_name(cpu_isa()));
    assert_true(n > 1000);
}

/* ---- rows ---- */
static bool wanted(const struct kernel_call *c)
{
    if (c->phase != KERNEL_FWD && !op_row(c->op)->has_backward) return false; /* the collective around it has one */
    bool product = c->op == OP_LINEAR || c->op == OP_LINEAR_SCALED || c->op == OP_GROUPED;
    int64_t rows = 0;
    const struct view *experts = c->op == OP_CODED ? coded_experts(c) : NULL;
    for (int64_t e = 0; experts && e < experts->n[0]; e++) rows += ((const int32_t *)experts->p)[e];
    if (experts && rows == 0) return false;
    for (int64_t e = 0; c->op == OP_GROUPED && e < c->in[2].n[0]; e++) rows += ((const int32_t *)c->in[2].p)[e];
    if (c->op == OP_GROUPED && rows == 0) return false;
    if (!product || c->phase == KERNEL_FWD) return true;
    return c->phase == KERNEL_BWD_IN ? c->din[0].p != NULL : c->din[1].p && c->in[0].n[1] > 0;
}

static int row(enum op op, enum dtype t, uint64_t seed, enum kernel_phase phase, const struct kernel_table *table)
{
    struct kcase k;
    const char *family = NULL;
    kcase_random(&k, op, t, seed);
    if (phase != KERNEL_FWD) kcase_forward(&k, &kernel_family_ref, 1);
    struct kernel_call c = kcase_call(&k, phase);
    const struct kernel_slot *s = kernel_find(table, &c, &family);
    bool runs = s && wanted(&c);
    if (runs) {
        size_t bytes = kernel_scratch(table, &c);
        c.scratch = mem_pages_new(bytes + 1);
        c.scratch_bytes = bytes;
        if (op == OP_ROTARY && phase == KERNEL_FWD) c.in[0] = c.out[0];
        atomic_store(&seen, 0);
        kernel_run(table, &c);
        unsigned long long ran = atomic_load(&seen);
        mem_pages_free(c.scratch, bytes + 1);
        compare(op, (int)phase, family, s->way ? s->way : "", ran);
    }
    kcase_free(&k);
    return runs;
}

static void test_rows(void **state)
{
    (void)state;
    struct kernel_table table;
    struct err e = {0};
    int n = 0;
    if (kernel_table_init(&table, "auto", 1, false, &e)) fail_msg("%s", e.text);
    for (int op = 0; op < OP_FIRST_COLLECTIVE; op++)
        for (int t = 0; t < 3; t++)
            for (uint64_t seed = 0; seed < 6; seed++)
                for (int phase = 0; phase < KERNEL_N_PHASES; phase++)
                    n += row((enum op)op, kcase_dtypes[t], seed, (enum kernel_phase)phase, &table);
    print_message("  %d calls at %s\n", n, isa_name(cpu_isa()));
    assert_true(n > 600);
}

static int run_group(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs), cmocka_unit_test(test_rows)};
    see_all();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) { return run_for_each_isa(run_group); }
