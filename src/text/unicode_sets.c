/* SPDX-License-Identifier: Apache-2.0 */
/* unicode_sets.c: the tables of unicode_legacy.h, asked by binary search. */
#include "text/unicode_legacy.h"

bool unicode_in(enum unicode_legacy set, uint32_t code)
{
    const struct ranges s = {.r = (struct range *)unicode_legacy[set].r, .n = unicode_legacy[set].n};
    return ranges_has(&s, code);
}

uint32_t unicode_lower_of(uint32_t code)
{
    if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
    int lo = 0, hi = unicode_n_lower;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (unicode_lower[mid].last < code) lo = mid + 1;
        else hi = mid;
    }
    /* Runs of step 2 interleave: the next one may hold the code point too. */
    for (int i = lo; i < unicode_n_lower && i < lo + 2 && unicode_lower[i].first <= code; i++) {
        const struct lower_run *r = &unicode_lower[i];
        if ((code - r->first) % (uint32_t)r->step == 0) return (uint32_t)((int64_t)code + r->difference);
    }
    return code;
}
