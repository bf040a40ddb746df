/* SPDX-License-Identifier: Apache-2.0 */
/* Decided by layer, not by product: products of a layer share operands, and what one of them loses reaches the others.
 * Cost: a byte per layer, and per product of fewer bits an instruction that is passed over. Rejected: to lower the
 * programs anew, whose memory would then be another one than was planned. */
#include "engine/fallback.h"

#include <string.h>

#include "engine/engine.h"

void fallback_new(struct engine *g)
{
    struct fallback *f = &g->fallback;
    if (!g->recipes.rule.falls_back) return;
    f->n = to_int(model_blocks(&g->cfg.model));
    f->fallen = xcalloc(to_size(f->n), 1);
    f->bad = xcalloc(to_size(f->n), sizeof *f->bad);
}

void fallback_free(struct engine *g)
{
    xfree(g->fallback.fallen);
    xfree(g->fallback.bad);
    str_free(&g->fallback.said);
}

/* The row that is worst for a layer, NULL: none is bad. */
static const struct telemetry_row *worst(const struct fallback_config *c, const struct telemetry_row *row, int n,
                                         int layer)
{
    const struct telemetry_row *out = NULL;
    for (int i = 0; i < n; i++)
        if (row[i].layer == layer && (row[i].worst_saturated > c->saturated || row[i].worst_error > c->error) &&
            (!out || row[i].worst_error > out->worst_error))
            out = &row[i];
    return out;
}

void fallback_decide(struct engine *g)
{
    struct fallback *f = &g->fallback;
    const struct fallback_config *c = &g->cfg.precision.fallback;
    struct telemetry_row *row;
    int n = f->n ? telemetry_rows(g, &row) : 0;
    str_clear(&f->said);
    for (int l = 0; l < f->n; l++) {
        const struct telemetry_row *w = worst(c, row, n, l);
        f->bad[l] = w && !f->fallen[l] ? f->bad[l] + 1 : 0;
        if (f->bad[l] < c->after) continue;
        f->fallen[l] = 1;
        f->bad[l] = 0;
        str_printf(&f->said,
                   "%slayer %d falls back to bf16 in what follows: in %lld looks in a row it lost too much by "
                   "rounding, "
                   "now %s of %s: %.2g %% saturate, moved by %.2g %%",
                   f->said.n ? "; " : "", l, (long long)c->after, w->operand, w->product, 100 * w->worst_saturated,
                   100 * w->worst_error);
    }
    if (f->n) xfree(row);
}

void fallback_text(const struct fallback *f, struct str *out)
{
    for (int l = 0, n = 0; l < f->n; l++)
        if (f->fallen[l]) str_printf(out, "%s%d", n++ ? ", " : "", l);
}

void fallback_put(const struct fallback *f, struct json_out *o)
{
    bool any = false;
    for (int l = 0; l < f->n; l++) any |= f->fallen[l] || f->bad[l];
    if (!any) return;
    json_begin_object(o, "fallback");
    json_begin_array(o, "fallen");
    for (int l = 0; l < f->n; l++) json_put_int(o, NULL, f->fallen[l]);
    json_end_array(o);
    json_begin_array(o, "bad_looks");
    for (int l = 0; l < f->n; l++) json_put_int(o, NULL, f->bad[l]);
    json_end_array(o);
    json_end_object(o);
}

int fallback_take(struct fallback *f, const struct json *extra)
{
    const struct json *x = extra ? json_get(extra, "fallback") : NULL, *fallen = json_get(x, "fallen"),
                      *bad = json_get(x, "bad_looks");
    memset(f->fallen, 0, to_size(f->n));
    memset(f->bad, 0, to_size(f->n) * sizeof *f->bad);
    if (!x) return 0;
    bool good = json_size(fallen) == to_size(f->n) && json_size(bad) == to_size(f->n);
    for (int l = 0; good && l < f->n; l++) {
        int64_t is = json_int(json_at(fallen, to_size(l)), -1), looks = json_int(json_at(bad, to_size(l)), -1);
        good = is >= 0 && is <= 1 && looks >= 0 && looks <= INT32_MAX;
        if (good) f->fallen[l] = (uint8_t)is;
        if (good) f->bad[l] = (int32_t)looks;
    }
    return good ? 0 : -1;
}
