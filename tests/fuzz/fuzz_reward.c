/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a reward's hook puts out: what is taken are so many finite numbers. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "learn/reward.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    double reward[9];
    struct err e = {0};
    int64_t n = size ? data[0] % 8 : 0;
    reward[n] = 12345;
    int rc = reward_parse((const char *)data + (size > 0), size - (size > 0), n, reward, &e);
    CHECK(rc || !e.code, "%d without a text", rc);
    for (int64_t i = 0; !rc && i < n; i++) CHECK(isfinite(reward[i]), "reward %d is %g", (int)i, reward[i]);
    CHECK(reward[n] == 12345, "more than was asked for");
    return 0;
}
