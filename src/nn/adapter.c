/* SPDX-License-Identifier: Apache-2.0 */
/* Which matrices have adapters is asked of the table of parameters, where a matrix's A and B are found by name. */
#include "nn/adapter.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "state/param_group.h"

double model_adapter_times(const struct adapter *a)
{
    double r = (double)a->rank;
    return a->alpha / (a->stabilised ? sqrt(r) : r);
}

/* ---- which ---- */
/* NAME of NAME.weight; false: it is no matrix that a product of a layer or the head is made with. */
static bool stem_of(const struct param *p, char stem[PARAM_NAME])
{
    size_t n = strlen(p->name), end = strlen(".weight");
    if (p->nd != 2 || n <= end || strcmp(p->name + n - end, ".weight") || !strncmp(p->name, "embed.", 6) ||
        strstr(p->name, ".conv_"))
        return false;
    memcpy(stem, p->name, n - end);
    stem[n - end] = 0;
    return true;
}

/* The last word of a name: q of layers.0.attn.q. */
static const char *last_word(const char *stem)
{
    const char *dot = strrchr(stem, '.');
    return dot ? dot + 1 : stem;
}

bool adapter_targets(const struct adapter *a, const struct param *p)
{
    char stem[PARAM_NAME];
    bool any = false;
    if (!stem_of(p, stem)) return false;
    for (int i = 0; i < a->n_targets; i++)
        any |= !fnmatch(a->targets[i], stem, 0) || !strcmp(a->targets[i], last_word(stem));
    return any;
}

static int found(const struct param_table *t, const struct param *p, const char *end)
{
    char stem[PARAM_NAME], name[PARAM_NAME + 16];
    if (!stem_of(p, stem)) return -1;
    snprintf(name, sizeof name, "%s.%s", stem, end);
    return param_find(t, name);
}

/* ---- declaring ---- */
/* W's layout with dim `dim` made r long: who cuts that dim has all of it. */
static struct layout beside(const struct layout *w, int dim, int64_t r)
{
    struct layout l = *w;
    l.shape.n[dim] = r;
    for (int i = 0; i < l.n_places; i++)
        if (l.place[i].type == (dim ? SPMD_S1 : SPMD_S0)) l.place[i].type = SPMD_R, l.place[i].unit = 0;
    return l;
}

/* One number for each of W's rows: who has some of its columns has all of them, and a part of their gradient. */
static struct layout lengths(const struct layout *w)
{
    struct layout l = *w;
    l.shape.nd = 1;
    l.shape.n[1] = 0;
    for (int i = 0; i < l.n_places; i++)
        if (l.place[i].type == SPMD_S1) l.place[i].type = SPMD_R, l.place[i].unit = 0;
    return l;
}

/* which: a, b or m of lora_a, ... */
static void declare_one(struct declare_ctx *x, int i, char which)
{
    const struct param *p = &x->t->p[i];
    const struct layout l = which == 'm' ? lengths(&p->layout) : beside(&p->layout, which == 'b', x->c->adapter->rank);
    double std = which == 'a' ? 1 / sqrt(3.0 * (double)p->n[1]) : 0; /* as uniform values within 1 / sqrt(K) */
    int layer = p->layer;
    char stem[PARAM_NAME], name[PARAM_NAME + 16];
    (void)stem_of(p, stem);
    snprintf(name, sizeof name, "%s.lora_%c", stem, which);
    int at = param_add(x->t, name, l, which == 'a' ? INIT_NORMAL : INIT_ZEROS, std, layer);
    x->t->p[at].adapter = true;
    if (which != 'm') param_set_group(&x->t->p[at], PARAM_MATRICES);
}

static bool of_expert(const struct param *p) { return strstr(p->name, ".moe.experts.") != NULL; }

/* All A of a kind, then all B, then all lengths; experts' B matrix by matrix, since those of one are a product's. */
static void declare_layer(struct declare_ctx *x, int first, int end, bool experts)
{
    static const char *const part[] = {"gate", "up", "down"};
    char stem[PARAM_NAME];
    for (int i = first; i < end; i++)
        if (of_expert(&x->t->p[i]) == experts && adapter_targets(x->c->adapter, &x->t->p[i])) declare_one(x, i, 'a');
    for (size_t k = 0; k < (experts ? sizeof part / sizeof *part : 1); k++)
        for (int i = first; i < end; i++) {
            const struct param *p = &x->t->p[i];
            if (of_expert(p) != experts || !adapter_targets(x->c->adapter, p)) continue;
            if (experts && (!stem_of(p, stem) || strcmp(last_word(stem), part[k]))) continue;
            declare_one(x, i, 'b');
        }
    for (int i = first; i < end && x->c->adapter->lengths && !experts; i++)
        if (!of_expert(&x->t->p[i]) && adapter_targets(x->c->adapter, &x->t->p[i])) declare_one(x, i, 'm');
}

void adapter_declare(struct declare_ctx *x)
{
    int n = x->t->n;
    for (int first = 0, end; first < n; first = end) {
        for (end = first; end < n && x->t->p[end].layer == x->t->p[first].layer;) end++;
        declare_layer(x, first, end, false);
        declare_layer(x, first, end, true);
    }
}

/* ---- recording ---- */
/* A parameter, and as many behind it, as one matrix; layer_param writes what names in a tower begin with. */
static tid matrix(struct layer_ctx *x, int i, int span)
{
    return layer_param(x, span, "%s", x->params->p[i].name + strlen(x->prefix));
}

/* Which of a product's matrices have adapters. */
struct adapted {
    struct matrices of;
    int a, n;                                   /* the first one's A, which the others' follow; so many */
    int b[CODED_PARTS];                         /* their B, */
    int64_t rows[CODED_PARTS], at[CODED_PARTS]; /* rows of each here, and which of w's is the first */
};

static struct adapted adapted_of(const struct layer_ctx *x, tid w, tid rows_E)
{
    struct adapted d = {.of = matrices_of(x, w, rows_E)};
    int64_t row = 0;
    for (int k = 0; k < d.of.n; k++) {
        const struct param *q = &x->params->p[d.of.first + k];
        int a = found(x->params, q, "lora_a");
        if (a >= 0) {
            CHECK(d.n < CODED_PARTS, "%s: a product of more than %d matrices", q->name, CODED_PARTS);
            if (!d.n) d.a = a;
            d.b[d.n] = found(x->params, q, "lora_b");
            d.rows[d.n] = q->ln[0];
            d.at[d.n++] = row;
        }
        row += q->ln[0];
    }
    return d;
}

/* Whether a product's columns are brought to their lengths: its bias is added behind that. */
static bool lengthens(const struct layer_ctx *x, tid w)
{
    return x->c->adapter && x->c->adapter->lengths && !x->t->err.code && adapted_of(x, w, TID_NONE).n;
}

tid adapter_bias(const struct layer_ctx *x, tid w, tid bias) { return lengthens(x, w) ? TID_NONE : bias; }

/* y, the sum, with columns of those lengths. */
static tid lengthen(struct layer_ctx *x, const struct adapted *d, tid w, tid w_a, const tid *w_b, tid y, tid bias,
                    bool bias_off)
{
    struct adapted_attrs at = {.times = (float)model_adapter_times(x->c->adapter), .n_parts = d->n};
    char name[PARAM_NAME];
    CHECK(d->n <= ADAPTED_PARTS, "a product of more than %d matrices with lengths", ADAPTED_PARTS);
    for (int k = 0; k < d->n; k++) at.part[k] = (struct adapted_part){d->at[k], d->rows[k]};
    tid s = op_adapted_squares(x->t, w, w_a, w_b, at, "lora_squares");
    if (!x->t->err.code && tape_tensor(x->t, s)->type.on[AXIS_TP] == SPMD_P) s = par_reduce(x->t, x->par, s, AXIS_TP);
    snprintf(name, sizeof name, "%s", x->params->p[d->a].name);
    name[strlen(name) - 1] = 'm';
    int m = param_find(x->params, name);
    tid w_m = matrix(x, m, d->n);
    for (int k = 0; k < d->n; k++) x->param_tid[m + k] = w_m;
    at.bias_off = bias >= 0 && bias_off;
    return op_magnitudes(x->t, y, s, w_m, bias, at, "lora_m");
}

tid adapter_record(struct layer_ctx *x, tid h, tid w, tid y, const struct adapter_how *how)
{
    if (!x->c->adapter || x->t->err.code) return y;
    struct adapted d = adapted_of(x, w, how->rows_E);
    if (!d.n) return y;
    int64_t r = x->c->adapter->rank;
    float times = (float)model_adapter_times(x->c->adapter);
    tid w_a = matrix(x, d.a, d.n * d.of.times), w_b[CODED_PARTS];
    for (int k = 0; k < d.n * d.of.times; k++) x->param_tid[d.a + k] = w_a;
    tid z = how->rows_E < 0 ? op_linear(x->t, h, w_a, TID_NONE, "lora_a")
                            : op_grouped(x->t, h, w_a, how->rows_E, how->expected, "lora_a");
    for (int k = 0; k < d.n; k++) {
        tid z_k = d.n > 1 ? tape_cols(x->t, z, k * r, r) : z;
        w_b[k] = matrix(x, d.b[k], d.of.times);
        for (int e = 0; e < d.of.times; e++) x->param_tid[d.b[k] + e] = w_b[k];
        tid add = how->rows_E < 0 ? op_linear(x->t, z_k, w_b[k], TID_NONE, "lora_b")
                                  : op_grouped(x->t, z_k, w_b[k], how->rows_E, how->expected, "lora_b");
        op_add_onto(x->t, d.of.n > 1 ? tape_cols(x->t, y, d.at[k], d.rows[k]) : y, add, times, "lora");
    }
    if (how->rows_E >= 0 || !x->c->adapter->lengths || x->t->err.code) return y;
    return lengthen(x, &d, w, w_a, w_b, y, how->bias, how->bias_off);
}

/* "q, k, v": the last words of what can have adapters. */
static void say_words(const struct adapter *a, const struct param_table *t, struct str *out)
{
    for (int i = 0; i < t->n; i++) {
        char stem[PARAM_NAME], other[PARAM_NAME];
        const struct param *p = &t->p[i];
        bool again = p->adapter || p->layer < 0 || !stem_of(p, stem) || (a->lengths && of_expert(p));
        for (int k = 0; k < i && !again; k++)
            again = !t->p[k].adapter && t->p[k].layer >= 0 && stem_of(&t->p[k], other) &&
                    !(a->lengths && of_expert(&t->p[k])) && !strcmp(last_word(stem), last_word(other));
        if (!again) str_printf(out, "%s%s", out->n ? ", " : "", last_word(stem));
    }
}

static int refuse_target(const struct adapter *a, const struct param_table *t, const char *target, struct err *e)
{
    struct str words = {0};
    say_words(a, t, &words);
    int rc = err_set(e, ERR_REQUEST,
                     "adapter.targets: %s fits no matrix, by its last word or by a name such as layers.*.attn.*, "
                     "without .weight (tutti explain CONFIG layout lists them); choose some of [%s]",
                     target, str_text(&words));
    str_free(&words);
    return rc;
}

int adapter_check(const struct adapter *a, const struct param_table *t, struct err *e)
{
    const struct mesh *m = &t->mesh;
    bool apart = m->size[AXIS_ETP] > 1 && m->size[AXIS_ETP] < m->size[AXIS_TP];
    for (int k = 0; k < a->n_targets; k++) {
        const struct adapter one = {.targets = &a->targets[k], .n_targets = 1};
        int n = 0;
        for (int i = 0; i < t->n; i++) {
            bool fits = !t->p[i].adapter && adapter_targets(&one, &t->p[i]);
            n += fits;
            if (fits && a->lengths && of_expert(&t->p[i]))
                return err_set(e, ERR_REQUEST,
                               "adapter.kind: dora: %s: matrices of experts have no lengths, and adapter.targets names "
                               "some; choose lora",
                               t->p[i].name);
            if (fits && apart && of_expert(&t->p[i]))
                return err_set(e, ERR_REQUEST,
                               "adapter.targets: %s: its columns are cut over %d of %d ranks of tp, over which what an "
                               "adapter adds is not summed; choose parallel.etp: 1, or parallel.etp: %d",
                               t->p[i].name, m->size[AXIS_ETP], m->size[AXIS_TP], m->size[AXIS_TP]);
        }
        if (!n) return refuse_target(a, t, a->targets[k], e);
    }
    return OK;
}
