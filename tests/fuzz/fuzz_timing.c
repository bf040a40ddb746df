/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of whatever bytes: what is taken adds up. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "report/timing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct timing t;
    struct err e = {0};
    if (timing_parse(&t, (const char *)data, size, "fuzz", &e)) return 0;
    for (int r = 0; r < t.n_ranks; r++) {
        double sum = 0;
        for (int k = 0; k < TIME_N; k++) sum += t.rank[r].s[k];
        CHECK(fabs(sum - t.rank[r].step_s) <= 1e-6 * fabs(t.rank[r].step_s) + 1e-9, "%g of %g seconds", sum,
              t.rank[r].step_s);
    }
    timing_free(&t);
    return 0;
}
