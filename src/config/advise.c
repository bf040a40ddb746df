/* SPDX-License-Identifier: Apache-2.0 */
#include "config/advise.h"

#include <inttypes.h>
#include <stdio.h>

#include "config/key.h"

enum { ADVICE_BYTES = 64 };

/* "choose 6 or 8". */
static const char *choose_multiple(const struct config *c, const char *key, int64_t of, char out[ADVICE_BYTES])
{
    int64_t value = *(const int64_t *)((const char *)c + key_row(key)->offset), below = value / of * of;
    if (below) snprintf(out, ADVICE_BYTES, "choose %" PRId64 " or %" PRId64, below, below + of);
    else snprintf(out, ADVICE_BYTES, "choose %" PRId64, of);
    return out;
}

int advise_multiples(const struct config *c, const struct conf *f, const struct multiple *rows, size_t n,
                     const char *objective, struct err *e)
{
    char out[ADVICE_BYTES];
    for (size_t i = 0; i < n; i++)
        if (rows[i].is(c))
            return conf_error(f, e, rows[i].key, "beside train.objective: %s: %s; %s", objective, rows[i].why,
                              choose_multiple(c, rows[i].key, rows[i].of(c), out));
    return OK;
}
