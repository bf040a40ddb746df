/* SPDX-License-Identifier: Apache-2.0 */
/* Box algebra. Everything is per dim; a box has at most five, so plain loops do.
 *
 * Subtraction cuts dim by dim: what lies before and after b along dim 0 comes off as full-width slabs, then the
 * same along dim 1 inside the part that is left. Subtracting the cells of a grid one after another in row-major
 * order therefore never cuts through a cell that is still to come, which keeps routes free of crumbs.
 */
#include "layout/region.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/thread.h"

struct region region_whole(const struct shape *s)
{
    struct region r = {.nd = s->nd};
    for (int d = 0; d < s->nd; d++) r.hi[d] = s->n[d];
    return r;
}

struct shape region_shape(const struct region *r)
{
    struct shape s = {.nd = r->nd};
    for (int d = 0; d < r->nd; d++) s.n[d] = r->hi[d] - r->lo[d];
    return s;
}

int64_t region_volume(const struct region *r)
{
    int64_t n = 1;
    for (int d = 0; d < r->nd; d++) n *= r->hi[d] - r->lo[d];
    return n;
}

bool region_equal(const struct region *a, const struct region *b)
{
    return a->nd == b->nd && region_compare(a, b) == 0;
}

bool region_contains(const struct region *outer, const struct region *inner)
{
    if (region_volume(inner) == 0) return true;
    for (int d = 0; d < outer->nd; d++)
        if (inner->lo[d] < outer->lo[d] || inner->hi[d] > outer->hi[d]) return false;
    return true;
}

int region_compare(const struct region *a, const struct region *b)
{
    for (int d = 0; d < a->nd; d++)
        if (a->lo[d] != b->lo[d]) return a->lo[d] < b->lo[d] ? -1 : 1;
    for (int d = 0; d < a->nd; d++)
        if (a->hi[d] != b->hi[d]) return a->hi[d] < b->hi[d] ? -1 : 1;
    return 0;
}

bool region_intersect(const struct region *a, const struct region *b, struct region *out)
{
    CHECK(a->nd == b->nd, "boxes of %d and %d dims", a->nd, b->nd);
    struct region r = {.nd = a->nd};
    bool some = true;
    for (int d = 0; d < a->nd; d++) {
        r.lo[d] = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        r.hi[d] = a->hi[d] < b->hi[d] ? a->hi[d] : b->hi[d];
        if (r.hi[d] <= r.lo[d]) {
            r.hi[d] = r.lo[d];
            some = false;
        }
    }
    *out = r;
    return some;
}

int region_subtract(const struct region *a, const struct region *b, struct region out[2 * SHAPE_MAX_DIMS])
{
    struct region middle, rest = *a, after[SHAPE_MAX_DIMS];
    int n = 0, n_after = 0;
    if (region_volume(a) == 0) return 0;
    if (!region_intersect(a, b, &middle)) {
        out[0] = *a;
        return 1;
    }
    for (int d = 0; d < a->nd; d++) {
        struct region piece = rest;
        piece.hi[d] = middle.lo[d];
        if (piece.hi[d] > piece.lo[d]) out[n++] = piece;
        piece = rest;
        piece.lo[d] = middle.hi[d];
        if (piece.hi[d] > piece.lo[d]) after[n_after++] = piece;
        rest.lo[d] = middle.lo[d];
        rest.hi[d] = middle.hi[d];
    }
    while (n_after) out[n++] = after[--n_after];
    return n;
}

void region_split(int64_t n, int i, int k, int64_t *lo, int64_t *hi)
{
    CHECK(n >= 0 && k > 0 && i >= 0 && i < k, "piece %d of %lld items over %d", i, (long long)n, k);
    team_split(n, i, k, lo, hi);
}

void region_window(int64_t n, int i, int k, int j, int m, int64_t *lo, int64_t *hi)
{
    int64_t first, end;
    region_split(n, i, k, &first, &end);
    region_split(end - first, j, m, lo, hi);
    *lo += first;
    *hi += first;
}

/* The box that begins at `lo`, is whole in its inner dims and goes on for at most n elements: the largest there is. */
static struct region stretch_from(const struct region *r, int64_t lo, int64_t n)
{
    struct region out = *r;
    int64_t stride = 1, at[SHAPE_MAX_DIMS] = {0}, step[SHAPE_MAX_DIMS] = {0};
    int d = r->nd - 1;
    for (int k = d; k >= 0; k--) {
        int64_t size = r->hi[k] - r->lo[k];
        step[k] = stride;
        at[k] = lo / stride % size;
        stride *= size;
    }
    for (int k = d; k >= 0 && lo % step[k] == 0 && step[k] <= n; k--) d = k;
    for (int k = 0; k <= d; k++) {
        out.lo[k] = r->lo[k] + at[k];
        out.hi[k] = out.lo[k] + 1;
    }
    if (d < 0) return out; /* a scalar */
    int64_t rows = n / step[d], left = r->hi[d] - out.lo[d];
    out.hi[d] = out.lo[d] + (rows < left ? rows : left);
    return out;
}

int region_stretch(const struct region *r, int64_t lo, int64_t n, struct region out[REGION_STRETCH])
{
    int k = 0;
    CHECK(lo >= 0 && n >= 0 && lo + n <= region_volume(r), "elements [%lld, +%lld) of %lld", (long long)lo,
          (long long)n, (long long)region_volume(r));
    for (int64_t done = 0; done < n; done += region_volume(&out[k++])) out[k] = stretch_from(r, lo + done, n - done);
    return k;
}

char *region_print(char out[256], const struct region *r)
{
    int n = snprintf(out, 256, "[");
    for (int d = 0; d < r->nd; d++)
        n += snprintf(out + n, (size_t)(256 - n), "%s%lld:%lld", d ? ", " : "", (long long)r->lo[d],
                      (long long)r->hi[d]);
    snprintf(out + n, (size_t)(256 - n), "]");
    return out;
}

/* Offset of the box's first element in the holder; strides of the holder. */
static int64_t place_in(const struct region *holder, const struct region *box, int64_t stride[SHAPE_MAX_DIMS])
{
    int64_t step = 1, offset = 0;
    for (int d = box->nd - 1; d >= 0; d--) {
        stride[d] = step;
        offset += (box->lo[d] - holder->lo[d]) * step;
        step *= holder->hi[d] - holder->lo[d];
    }
    return offset;
}

bool region_run_first(struct region_run *run, const struct region *box, const struct region *a, const struct region *b)
{
    char x[256], y[256];
    CHECK(region_contains(a, box) && region_contains(b, box), "box %s is not inside its holder %s",
          region_print(x, box), region_print(y, region_contains(a, box) ? b : a));
    memset(run, 0, sizeof *run);
    if (region_volume(box) == 0) return false;
    int64_t sa[SHAPE_MAX_DIMS], sb[SHAPE_MAX_DIMS];
    run->a = place_in(a, box, sa);
    run->b = place_in(b, box, sb);
    run->n = 1;
    int d = box->nd;
    /* A dim joins the run as long as the elements inside it are consecutive in both holders. */
    while (d > 0 && sa[d - 1] == run->n && sb[d - 1] == run->n) {
        d--;
        run->n *= box->hi[d] - box->lo[d];
    }
    run->nd = d;
    for (int i = 0; i < d; i++) {
        run->size[i] = box->hi[i] - box->lo[i];
        run->stride_a[i] = sa[i];
        run->stride_b[i] = sb[i];
    }
    return true;
}

bool region_run_next(struct region_run *run)
{
    for (int d = run->nd - 1; d >= 0; d--) {
        run->a += run->stride_a[d];
        run->b += run->stride_b[d];
        if (++run->at[d] < run->size[d]) return true;
        run->a -= run->size[d] * run->stride_a[d];
        run->b -= run->size[d] * run->stride_b[d];
        run->at[d] = 0;
    }
    return false;
}
