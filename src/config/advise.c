/* SPDX-License-Identifier: Apache-2.0 */
#include "config/advise.h"

#include <inttypes.h>
#include <stdio.h>

#include "config/key.h"

const char *advise_multiple(const struct config *c, const char *key, int64_t of, char out[ADVICE_BYTES])
{
    int64_t value = *(const int64_t *)((const char *)c + key_row(key)->offset), below = value / of * of;
    if (below) snprintf(out, ADVICE_BYTES, "; choose %" PRId64 " or %" PRId64, below, below + of);
    else snprintf(out, ADVICE_BYTES, "; choose %" PRId64, of);
    return out;
}
