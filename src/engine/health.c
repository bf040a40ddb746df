/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of squares in fp64 says all: it is finite exactly when every element is (the largest square of an fp32 is
 * 1e77). Arrays of 16 bits are looked through. */
#include "engine/health.h"

#include <math.h>
#include <stdbool.h>

#include "base/mem.h"
#include "engine/tally.h"

enum { CHUNK = 1 << 16 };

/* What the engine's device does not have: it waits elsewhere, or is another device's. */
static bool elsewhere(const struct engine *g, const struct array *a)
{
    return a->row.away || (a->own && a->own->dev != g->dev);
}

/* Of that the same sum, but for the order. */
static double away_squares(const struct array *a, const struct array_span *x)
{
    float *v = xmalloc(CHUNK * sizeof *v);
    double sum = 0;
    for (int64_t at = 0, m; at < x->n; at += m) {
        m = x->n - at < CHUNK ? x->n - at : CHUNK;
        stream_to_host(a->own, v, array_at(a, x->at + at), to_size(m) * sizeof *v);
        stream_sync(a->own);
        for (int64_t i = 0; i < m; i++) sum += (double)v[i] * (double)v[i];
    }
    xfree(v);
    return sum;
}

/* Exponents of all ones. */
static int64_t away_nonfinite(const struct array *a, const struct array_span *x)
{
    const bool wide = a->row.dtype == DT_F32;
    const uint32_t ones = wide ? 0x7f800000u : a->row.dtype == DT_BF16 ? 0x7f80 : 0x7c00;
    size_t width = dtype_bytes(a->row.dtype);
    void *v = xmalloc(CHUNK * width);
    int64_t found = -1;
    for (int64_t at = 0, m; at < x->n && found < 0; at += m) {
        m = x->n - at < CHUNK ? x->n - at : CHUNK;
        stream_to_host(a->own, v, array_at(a, x->at + at), to_size(m) * width);
        stream_sync(a->own);
        for (int64_t i = m; i-- > 0;)
            if (((wide ? ((uint32_t *)v)[i] : ((uint16_t *)v)[i]) & ones) == ones) found = at + i;
    }
    xfree(v);
    return found;
}

int64_t health_nonfinite(const struct engine *g, const struct array *a, const struct array_span *x, struct stream *st)
{
    if (elsewhere(g, a)) return away_nonfinite(a, x);
    return tally_first_nonfinite(g, st, array_at(a, x->at), a->row.dtype, x->n);
}

static int check(const struct engine *g, int i, int what, struct err *e)
{
    const struct array *a = store_array_of(&g->store, what, i);
    struct array_span x = store_writes(&g->store, i, what);
    if (x.n == 0) return OK;
    if (a->row.dtype != DT_F32) {
        bool narrow = a->row.dtype == DT_BF16 || a->row.dtype == DT_F16;
        struct stream *st = store_stream_of(&g->store, what, i, g->stream);
        if (narrow && health_nonfinite(g, a, &x, st) >= 0)
            return err_set(e, ERR_NUMERIC, "%s of %s are not finite", g->store.array[what].row.title,
                           g->params.p[i].name);
        return OK;
    }
    double sum = elsewhere(g, a)
                     ? away_squares(a, &x)
                     : tally_squares_of(g, store_stream_of(&g->store, what, i, g->stream), array_at(a, x.at), x.n),
           rms = sqrt(sum / (double)x.n);
    const char *name = g->params.p[i].name, *title = g->store.array[what].row.title;
    if (!isfinite(sum)) return err_set(e, ERR_NUMERIC, "%s of %s are not finite", title, name);
    if (what == STORE_MASTER && rms > HEALTH_RMS_LIMIT)
        return err_set(e, ERR_NUMERIC, "%s of %s have a root mean square of %.3g, above %g: they have diverged", title,
                       name, rms, HEALTH_RMS_LIMIT);
    return OK;
}

int health_check(const struct engine *g, struct err *e)
{
    int rc = OK;
    for (int what = 0; !rc && what < g->store.n_arrays; what++)
        for (int i = 0; !rc && g->store.array[what].row.saved && store_has(&g->store, what) && i < g->params.n; i++)
            rc = check(g, i, what, e);
    return rc;
}
