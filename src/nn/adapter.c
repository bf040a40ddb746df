/* SPDX-License-Identifier: Apache-2.0 */
/* Which matrices have adapters is asked of the table of parameters, where a matrix's A and B are found by name. */
#include "nn/adapter.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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
    if (p->nd != 2 || n <= end || strcmp(p->name + n - end, ".weight") || !strncmp(p->name, "embed.", 6)) return false;
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

static void declare_one(struct declare_ctx *x, int i, bool b)
{
    const struct param *p = &x->t->p[i];
    const struct layout l = beside(&p->layout, b, x->c->adapter->rank);
    double std = b ? 0 : 1 / sqrt(3.0 * (double)p->n[1]); /* as uniform values within 1 / sqrt(K) */
    int layer = p->layer;
    char stem[PARAM_NAME], name[PARAM_NAME + 16];
    (void)stem_of(p, stem);
    snprintf(name, sizeof name, "%s.lora_%c", stem, b ? 'b' : 'a');
    int at = param_add(x->t, name, l, b ? INIT_ZEROS : INIT_NORMAL, std, layer);
    x->t->p[at].adapter = true;
    x->t->p[at].group = PARAM_MATRICES;
}

static bool of_expert(const struct param *p) { return strstr(p->name, ".moe.experts.") != NULL; }

/* All A of a kind, then all B; experts' B matrix by matrix, since those of one are a product's. */
static void declare_layer(struct declare_ctx *x, int first, int end, bool experts)
{
    static const char *const part[] = {"gate", "up", "down"};
    char stem[PARAM_NAME];
    for (int i = first; i < end; i++)
        if (of_expert(&x->t->p[i]) == experts && adapter_targets(x->c->adapter, &x->t->p[i])) declare_one(x, i, false);
    for (size_t k = 0; k < (experts ? sizeof part / sizeof *part : 1); k++)
        for (int i = first; i < end; i++) {
            const struct param *p = &x->t->p[i];
            if (of_expert(p) != experts || !adapter_targets(x->c->adapter, p)) continue;
            if (experts && (!stem_of(p, stem) || strcmp(last_word(stem), part[k]))) continue;
            declare_one(x, i, true);
        }
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
/* A parameter, and as many behind it, as one matrix. */
static tid matrix(struct layer_ctx *x, int i, int span) { return layer_param(x, span, "%s", x->params->p[i].name); }

void adapter_record(struct layer_ctx *x, tid h, tid w, tid y, tid rows_E, int64_t expected)
{
    if (!x->c->adapter || x->t->err.code) return;
    struct matrices p = matrices_of(x, w, rows_E);
    int have = 0, a = -1;
    for (int k = 0; k < p.n; k++) {
        int i = found(x->params, &x->params->p[p.first + k], "lora_a");
        if (i >= 0 && a < 0) a = i;
        have += i >= 0;
    }
    if (!have) return;
    int64_t r = x->c->adapter->rank, col = 0, at = 0;
    float times = (float)model_adapter_times(x->c->adapter);
    tid w_a = matrix(x, a, have * p.times);
    for (int k = 0; k < have * p.times; k++) x->param_tid[a + k] = w_a;
    tid z =
        rows_E < 0 ? op_linear(x->t, h, w_a, TID_NONE, "lora_a") : op_grouped(x->t, h, w_a, rows_E, expected, "lora_a");
    for (int k = 0; k < p.n; k++) {
        const struct param *q = &x->params->p[p.first + k];
        int b = found(x->params, q, "lora_b");
        if (b >= 0) {
            tid w_b = matrix(x, b, p.times), z_k = have > 1 ? tape_cols(x->t, z, at, r) : z;
            for (int e = 0; e < p.times; e++) x->param_tid[b + e] = w_b;
            tid d = rows_E < 0 ? op_linear(x->t, z_k, w_b, TID_NONE, "lora_b")
                               : op_grouped(x->t, z_k, w_b, rows_E, expected, "lora_b");
            op_add_onto(x->t, p.n > 1 ? tape_cols(x->t, y, col, q->ln[0]) : y, d, times, "lora");
            at += r;
        }
        col += q->ln[0];
    }
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
            if (fits && apart && of_expert(&t->p[i]))
                return err_set(e, ERR_REQUEST,
                               "adapter.targets: %s: its columns are cut over %d of %d ranks of tp, over which what an "
                               "adapter adds is not summed; choose parallel.etp: 1, or %d",
                               t->p[i].name, m->size[AXIS_ETP], m->size[AXIS_TP], m->size[AXIS_TP]);
        }
        if (!n)
            return err_set(e, ERR_REQUEST,
                           "adapter.targets: %s fits no matrix; wanted a last word such as q, o or down, or names such "
                           "as "
                           "layers.*.attn.*, without .weight (tutti explain CONFIG layout lists them)",
                           a->targets[k]);
    }
    return OK;
}
