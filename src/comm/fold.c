/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c: which fold to run. The loops are in fold_body.h, compiled once per instruction set; the processor is asked
 * through the compiler's own check, which costs a load and a test
 * (every processor with AVX2 has F16C, which not all compilers can ask for). */
#include "comm/fold.h"

#include "base/isa_built.h"

#define HAS(feature) __builtin_cpu_supports(feature)

/* clang-format off */
static const struct fold_table *const tables[] = {
    &fold_portable,
#if defined(__x86_64__)
    &fold_avx2,
    IF_AVX512(&fold_avx512,)
#elif defined(__aarch64__)
    &fold_neon,
#endif
};
/* clang-format on */
enum { N_TABLES = (int)(sizeof tables / sizeof *tables) };

/* How many of the tables this processor runs, were all there. */
static int runs(void)
{
#if defined(__x86_64__)
    if (!HAS("avx2") || !HAS("fma")) return 1;
    return HAS("avx512f") && HAS("avx512bw") && HAS("avx512vl") && HAS("avx512dq") ? 3 : 2;
#elif defined(__aarch64__)
    return 2;
#else
    return 1;
#endif
}

static int usable(void) { return runs() < N_TABLES ? runs() : N_TABLES; }

const struct fold_table *fold_at(int i) { return i >= 0 && i < usable() ? tables[i] : NULL; }

const struct fold_table *fold_best(void) { return fold_at(usable() - 1); }

bool fold_can(enum dtype dt) { return fold_portable.fn[dt][COMM_SUM] != NULL; }

void fold_run(const struct fold_table *t, enum dtype dt, enum comm_red r, const struct fold *f)
{
    int row = r == COMM_MAX ? 1 : r == COMM_MIN ? 2 : 0;
    CHECK(fold_can(dt), "%s can be moved, not reduced", dtype_name(dt));
    CHECK(f->n_src >= 1 && f->divisor >= 1, "a fold of %d sources over %lld", f->n_src, (long long)f->divisor);
    if (f->n > 0) t->fn[dt][row](f);
}
