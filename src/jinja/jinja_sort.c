/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_sort.c: sorting by keys: merging, bottom up, so that what is compared is counted and a comparison that answers
 * whatever (too many steps) or has no answer does no harm. Cost: n log2 n comparisons, and room for n. */
#include "jinja/jinja_run.h"

/* The order of two keys, an error where there is none. */
static int order(struct jrun *r, const struct jnode *at, const struct jv *a, const struct jv *b)
{
    bool fails = false;
    int way = jv_compare(&r->work, a, b, &fails, 0);
    if (fails) jfail(r, at, "%s and %s have no order", jv_type(a), jv_type(b));
    return way;
}

/* [lo, mid) and [mid, hi) of `from`, each in order, into [lo, hi) of `to`. */
static void merge(struct jrun *r, const struct jnode *at, const struct jsorted *from, struct jsorted *to, int64_t lo,
                  int64_t mid, int64_t hi, bool descending)
{
    int64_t a = lo, b = mid;
    for (int64_t k = lo; k < hi; k++) {
        bool left = b >= hi;
        if (a < mid && b < hi) {
            int way = r->code ? 0 : order(r, at, &from[a].key, &from[b].key);
            left = descending ? way >= 0 : way <= 0;
        }
        to[k] = left ? from[a++] : from[b++];
    }
}

bool jsort(struct jrun *r, const struct jnode *at, struct jsorted *all, int64_t n, bool descending)
{
    if (!jspend(r, at, n) || !jtake(r, at, to_size(n) * sizeof *all)) return false;
    struct jsorted *other = jalloc(r, to_size(n) * sizeof *other), *from = all, *to = other;
    for (int64_t width = 1; width < n && jbounded(r, at); width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = lo + width < n ? lo + width : n, hi = mid + width < n ? mid + width : n;
            merge(r, at, from, to, lo, mid, hi, descending);
        }
        struct jsorted *swap = from;
        from = to;
        to = swap;
    }
    for (int64_t i = 0; from != all && i < n; i++) all[i] = from[i];
    return jbounded(r, at);
}
