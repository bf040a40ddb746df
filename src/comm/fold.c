/* SPDX-License-Identifier: Apache-2.0 */
/* fold.c: which fold to run. The loops are in fold_body.h, compiled once per instruction set; the processor is asked
 * through the compiler's own check, which costs a load and a test
 * (every processor with AVX2 has F16C, which not all compilers can ask for). */
#include "comm/fold.h"

#if defined(__x86_64__)
#define HAS(feature) __builtin_cpu_supports(feature)
#else
#define HAS(feature) 0
#endif

const struct fold_table *fold_best(void)
{
    if (HAS("avx512f") && HAS("avx512bw") && HAS("avx512vl") && HAS("avx512dq")) return &fold_avx512;
    if (HAS("avx2") && HAS("fma")) return &fold_avx2;
    return &fold_portable;
}

bool fold_can(enum dtype dt)
{
    return fold_portable.fn[dt][COMM_SUM] != NULL;
}

void fold_run(const struct fold_table *t, enum dtype dt, enum comm_red r, const struct fold *f)
{
    int row = r == COMM_MAX ? 1 : r == COMM_MIN ? 2 : 0;
    CHECK(fold_can(dt), "%s can be moved, not reduced", dtype_name(dt));
    CHECK(f->n_src >= 1 && f->divisor >= 1, "a fold of %d sources over %lld", f->n_src, (long long)f->divisor);
    if (f->n > 0) t->fn[dt][row](f);
}
