/* SPDX-License-Identifier: Apache-2.0 */
/* Rows come layer after layer; what is kept has a list over layers for each product and operand, which is a third of
 * the bytes and what a picture wants. */
#include "watch/rounding_report.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static bool same_class(const struct telemetry_row *a, const struct telemetry_row *b)
{
    return !strcmp(a->product, b->product) && !strcmp(a->operand, b->operand);
}

static bool seen_before(const struct rounding_report *l, int i)
{
    for (int k = 0; k < i; k++)
        if (same_class(&l->row[k], &l->row[i])) return true;
    return false;
}

static const struct {
    const char *key;
    size_t at;
} figures[] = {{"amax", offsetof(struct telemetry_row, amax)},
               {"saturated", offsetof(struct telemetry_row, saturated)},
               {"flushed", offsetof(struct telemetry_row, flushed)},
               {"error", offsetof(struct telemetry_row, error)}};

static void put_class(const struct rounding_report *l, int first, struct json_out *o)
{
    json_begin_object(o, NULL);
    json_put_string(o, "product", l->row[first].product);
    json_put_string(o, "operand", l->row[first].operand);
    json_begin_array(o, "layer");
    for (int i = first; i < l->n; i++)
        if (same_class(&l->row[i], &l->row[first])) json_put_int(o, NULL, l->row[i].layer);
    json_end_array(o);
    for (size_t f = 0; f < sizeof figures / sizeof *figures; f++) {
        json_begin_array(o, figures[f].key);
        for (int i = first; i < l->n; i++)
            if (same_class(&l->row[i], &l->row[first])) {
                double v;
                memcpy(&v, (const char *)&l->row[i] + figures[f].at, sizeof v);
                json_put_real_digits(o, NULL, v, 5);
            }
        json_end_array(o);
    }
    json_end_object(o);
}

void rounding_report_put(const struct rounding_report *l, struct json_out *o)
{
    if (!l->n) return;
    json_begin_array(o, "rounded");
    for (int i = 0; i < l->n; i++)
        if (!seen_before(l, i)) put_class(l, i, o);
    json_end_array(o);
}

void rounding_report_progress(const struct rounding_report *l, char *out, size_t n)
{
    int off = 0, worst = 0;
    out[0] = 0;
    for (int i = 0; i < l->n; i++) {
        if (l->row[i].error > l->row[worst].error) worst = i;
        if (l->row[i].saturated > l->row[off].saturated) off = i;
    }
    if (!l->n) return;
    const struct telemetry_row *w = &l->row[worst], *s = &l->row[off];
    int used = snprintf(out, n, "  rounding moves up to %.2g %% (layer %d %s %s)", 100 * w->error, w->layer, w->product,
                        w->operand);
    if (s->saturated > 0 && used > 0 && (size_t)used < n)
        snprintf(out + used, n - (size_t)used, ", cuts off up to %.2g %% (layer %d %s %s)", 100 * s->saturated,
                 s->layer, s->product, s->operand);
}

void rounding_report_put_fallen(const struct fallback *f, struct json_out *o)
{
    bool any = false;
    for (int l = 0; l < f->n; l++) any |= f->fallen[l];
    if (!any) return;
    json_begin_array(o, "fallen_back");
    for (int l = 0; l < f->n; l++)
        if (f->fallen[l]) json_put_int(o, NULL, l);
    json_end_array(o);
}

void rounding_report_free(struct rounding_report *l)
{
    xfree(l->row);
    *l = (struct rounding_report){0};
}
