/* SPDX-License-Identifier: Apache-2.0 */
/* tutti checkpoint diff: two checkpoints, tensor by tensor.
 *
 * Both sides are read in the same bands of rows, so memory does not depend on the model. Two tutti checkpoints are
 * compared group by group; when one side is a Hugging Face model, only the parameters are, the fp32 master where
 * there is one. Values are compared, not types: a bf16 copy of the same numbers is no difference. NaN equals NaN. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "hub/weights.h"
#include "cli/cmd_checkpoint.h"

#define BAND_ELEMENTS ((int64_t)1 << 18)

struct difference {
    const char *group, *name;
    const char *text; /* why the two cannot be compared, or NULL */
    double max_abs;   /* of a - b */
    double max_rel;   /* max_abs over the largest element of either */
    bool differs;
};

struct comparison {
    struct weights *a, *b;
    bool params_only;
    double tolerance; /* for max_rel */
    struct difference *d;
    int64_t n, n_differ;
};

/* One band: folds |x - y| and the largest magnitude into the running maxima. Infinities and NaN that are not met by
 * the same on the other side count as an infinite difference. */
static void fold(const double *x, const double *y, int64_t n, double *max_abs, double *largest)
{
    for (int64_t i = 0; i < n; i++) {
        if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i]))) {
            if (isfinite(x[i])) *largest = fmax(*largest, fabs(x[i]));
            continue;
        }
        double delta = fabs(x[i] - y[i]);
        *max_abs = isfinite(delta) ? fmax(*max_abs, delta) : INFINITY;
        *largest = fmax(*largest, fmax(fabs(x[i]), fabs(y[i])));
    }
}

static int compare_values(struct comparison *c, int64_t i, int64_t j, struct difference *d, struct err *e)
{
    struct ckpt_entry t = weights_at(c->a, i), u = weights_at(c->b, j);
    bool real = dtype_info(t.dtype)->is_float && dtype_info(u.dtype)->is_float;
    if (!real && t.dtype != u.dtype) {
        d->text = "types do not compare";
        d->differs = true;
        return OK;
    }
    struct region band = region_whole(&t.shape);
    int64_t rows = t.shape.nd ? t.shape.n[0] : 1, all = region_volume(&band);
    if (all == 0) return OK;
    int64_t row = all / rows, step = row < BAND_ELEMENTS ? BAND_ELEMENTS / row : 1;
    double *x = xcalloc(to_size(step * row), sizeof *x), *y = xcalloc(to_size(step * row), sizeof *y), largest = 0;
    int rc = OK;
    for (int64_t at = 0; at < rows && rc == OK; at += step) {
        int64_t n = rows - at < step ? rows - at : step;
        if (t.shape.nd) {
            band.lo[0] = at;
            band.hi[0] = at + n;
        }
        rc = weights_read(c->a, i, &band, real ? DT_F64 : t.dtype, x, e);
        if (rc == OK) rc = weights_read(c->b, j, &band, real ? DT_F64 : t.dtype, y, e);
        if (rc == OK && real) fold(x, y, n * row, &d->max_abs, &largest);
        else if (rc == OK && memcmp(x, y, to_size(n * row) * dtype_bytes(t.dtype)))
            d->max_abs = INFINITY; /* integers: equal or not */
    }
    d->max_rel = d->max_abs > 0 ? (largest > 0 && isfinite(d->max_abs) ? d->max_abs / largest : INFINITY) : 0;
    d->differs = d->max_rel > c->tolerance;
    xfree(x);
    xfree(y);
    return rc;
}

static struct difference *add(struct comparison *c, struct ckpt_entry t)
{
    struct difference *d = &c->d[c->n++];
    *d = (struct difference){.group = t.group, .name = t.name};
    return d;
}

static int64_t partner(const struct weights *w, bool params_only, struct ckpt_entry t)
{
    return params_only ? weights_find_param(w, t.name) : weights_find(w, t.group, t.name);
}

static int compare(struct comparison *c, struct err *e)
{
    int64_t n = c->params_only ? weights_count_all(c->a) : weights_count(c->a),
            m = c->params_only ? weights_count_all(c->b) : weights_count(c->b);
    int rc = OK;
    c->d = xcalloc(to_size(n + m) + 1, sizeof *c->d);
    for (int64_t i = 0; i < n && rc == OK; i++) {
        struct ckpt_entry t = weights_at(c->a, i);
        if (c->params_only && weights_find_param(c->a, t.name) != i) continue; /* a moment, or the narrow copy */
        int64_t j = partner(c->b, c->params_only, t);
        struct difference *d = add(c, t);
        d->differs = true;
        if (j < 0) {
            d->text = "only in the first";
            continue;
        }
        struct ckpt_entry u = weights_at(c->b, j);
        if (!shape_equal(&t.shape, &u.shape)) {
            d->text = "shapes differ";
            continue;
        }
        d->differs = false;
        rc = compare_values(c, i, j, d, e);
    }
    for (int64_t j = 0; j < m && rc == OK; j++) {
        struct ckpt_entry u = weights_at(c->b, j);
        if (c->params_only && weights_find_param(c->b, u.name) != j) continue;
        if (partner(c->a, c->params_only, u) >= 0) continue;
        struct difference *d = add(c, u);
        d->text = "only in the second";
        d->differs = true;
    }
    for (int64_t i = 0; i < c->n; i++) c->n_differ += c->d[i].differs;
    return rc;
}

static void print_text(const struct comparison *c, bool all)
{
    for (int64_t i = 0; i < c->n; i++) {
        const struct difference *d = &c->d[i];
        if (!d->differs && !all) continue;
        if (d->text) printf("%s/%s: %s\n", d->group, d->name, d->text);
        else printf("%s/%s: max abs %.6g, max rel %.6g\n", d->group, d->name, d->max_abs, d->max_rel);
    }
    if (c->n_differ) printf("%" PRId64 " of %" PRId64 " tensors differ\n", c->n_differ, c->n);
    else printf("%" PRId64 " tensors, no difference\n", c->n);
}

static void print_json(const struct comparison *c)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_document(&o, "checkpoint-diff", 1);
    json_put_bool(&o, "equal", c->n_differ == 0);
    json_put_int(&o, "differ", c->n_differ);
    json_begin_array(&o, "tensors");
    for (int64_t i = 0; i < c->n; i++) {
        const struct difference *d = &c->d[i];
        json_begin_object(&o, NULL);
        json_put_string(&o, "group", d->group);
        json_put_string(&o, "name", d->name);
        json_put_bool(&o, "differs", d->differs);
        if (d->text) {
            json_put_string(&o, "problem", d->text);
        } else {
            json_put_real(&o, "max_abs", d->max_abs);
            json_put_real(&o, "max_rel", d->max_rel);
        }
        json_end_object(&o);
    }
    json_end_array(&o);
    json_end_object(&o);
    printf("%s\n", s.p);
    str_free(&s);
}

struct request {
    const char *a, *b;
    double tolerance;
    bool all, json;
};
static const struct cli_option options[] = {
    {"--tolerance", "X", CLI_REAL, offsetof(struct request, tolerance), .most = 1e9,
     .help = "values that differ by no more are equal (default 0)"},
    {"--all", NULL, CLI_FLAG, offsetof(struct request, all), .help = "tensors without a difference too"},
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "A", .at = offsetof(struct request, a)},
                                        {.name = "B", .at = offsetof(struct request, b)}};
static const struct cli_table table = {.command = "checkpoint diff",
                                       .usage = "A B [--tolerance X] [--all] [--json]",
                                       .about = "Compares tensor by tensor; exit status 1 when any differs.\n",
                                       CLI_OPTIONS(options),
                                       CLI_WORDS(words)};

int checkpoint_diff(int argc, char **argv)
{
    struct request q = {0};
    struct err e;
    int status;
    if (!cli_read(&table, argc, argv, &q, &status)) return status;
    struct comparison c = {.tolerance = q.tolerance};
    int rc = weights_open(&c.a, q.a, &e);
    if (rc == OK) rc = weights_open(&c.b, q.b, &e);
    if (rc == OK) {
        c.params_only = !weights_ckpt(c.a) || !weights_ckpt(c.b);
        rc = compare(&c, &e);
    }
    if (rc < 0) {
        status = cli_fail(&e);
    } else {
        if (q.json) print_json(&c);
        else print_text(&c, q.all);
        status = c.n_differ > 0;
    }
    xfree(c.d);
    weights_close(c.a);
    weights_close(c.b);
    return status;
}
