/* SPDX-License-Identifier: Apache-2.0 */
/* The lower half of the picture: every parameter of one layer, as the matrix it is, with the part that each rank has. A
 * rank is shown with the first layer that it holds, so that all stages of a pipeline look the same where they are.
 *
 * Experts that lie alike on all ranks drawn share a row, which says which they are: every expert is named, none is left
 * out. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "explain/layout_canvas.h"

enum { TALL = 30, GAP = 6 };

/* One parameter of a layer (or outside of them), by the name behind the layer's number. */
struct kind {
    const char *name;      /* borrowed */
    int expert;            /* -1: of none */
    char base[PARAM_NAME]; /* experts: the name without the number */
    int first;             /* parameter that shows its shape */
    int *here;             /* [drawn]: the first parameter of the kind that the rank holds; -1: none */
    bool done;             /* in the picture */
};

struct kinds {
    struct kind *at;
    int n, room, experts;
};

/* The name behind the layer's number: the same in layers of one kind. */
static const char *kind_of(const char *name)
{
    if (strncmp(name, "layers.", 7)) return name;
    name += 7;
    while (isdigit((unsigned char)*name)) name++;
    return name + (*name == '.');
}

/* "moe.experts.3.gate.weight": 3, and "moe.experts.gate.weight". -1: no expert. */
static int expert_of(const char *name, char base[PARAM_NAME])
{
    static const char mark[] = "experts.";
    const char *at = strstr(name, mark);
    int expert = -1, used = 0;
    if (!at || sscanf(at + strlen(mark), "%d%n", &expert, &used) != 1) return -1;
    at += strlen(mark);
    snprintf(base, PARAM_NAME, "%.*s%s", (int)(at - name), name, at + used + (at[used] == '.'));
    return expert;
}

/* Layers repeat each other, so the kind after the last one found is nearly always the one. */
static int kind_find(const struct kinds *k, const char *name, int after)
{
    if (after + 1 < k->n && !strcmp(k->at[after + 1].name, name)) return after + 1;
    for (int i = 0; i < k->n; i++)
        if (!strcmp(k->at[i].name, name)) return i;
    return -1;
}

static int kind_add(struct kinds *k, const char *name, int param, int drawn)
{
    GROW(k->at, k->n, k->room, 1);
    struct kind *a = &k->at[k->n];
    *a = (struct kind){.name = name, .first = param};
    a->expert = expert_of(name, a->base);
    if (a->expert >= k->experts) k->experts = a->expert + 1;
    a->here = xmalloc(sizeof *a->here * (size_t)drawn);
    for (int r = 0; r < drawn; r++) a->here[r] = -1;
    return k->n++;
}

static void find_kinds(struct kinds *k, const struct canvas *v)
{
    const struct param *p = v->rank[0]->p;
    for (int i = 0, last = -1; i < v->books.n_params; i++) {
        const char *name = kind_of(p[i].name);
        int at = kind_find(k, name, last);
        last = at < 0 ? kind_add(k, name, i, v->fold.drawn) : at;
        for (int r = 0; r < v->fold.drawn; r++)
            if (k->at[last].here[r] < 0 && v->rank[r]->p[i].held) k->at[last].here[r] = i;
    }
}

/* Whether a rank has the same rows and columns of two parameters. */
static bool looks_alike(const struct book *b, int i, int j)
{
    if (i < 0 || j < 0) return i == j;
    int64_t lo_i, lo_j, n_i = book_kept(b, i, &lo_i), n_j = book_kept(b, j, &lo_j);
    const struct param *p = &b->p[i], *q = &b->p[j];
    return p->nd == q->nd && n_i == n_j && (!n_i || lo_i == lo_j) && !memcmp(p->n, q->n, sizeof p->n) &&
           !memcmp(p->lo, q->lo, sizeof p->lo) && !memcmp(p->ln, q->ln, sizeof p->ln);
}

static bool kinds_alike(const struct canvas *v, const struct kind *a, const struct kind *b)
{
    for (int r = 0; r < v->fold.drawn; r++)
        if (!looks_alike(v->rank[r], a->here[r], b->here[r])) return false;
    return true;
}

/* A part [from, from + size) of the rows, as fractions, of a box of w x h at (x, y). */
static void draw_rows(struct canvas *v, double x, double y, double w, double h, double from, double size,
                      const char *fill)
{
    double tall = canvas_seen(h * size), top = y + h * from;
    if (top + tall > y + h) top = y + h - tall;
    canvas_box(v, x, top, w, tall, fill);
}

/* One rank's part, in a frame of w x h. */
static void draw_part(struct canvas *v, int column, int i, double w, double h)
{
    const struct book *b = v->rank[column];
    double x = v->x[column], y = v->y;
    canvas_box(v, x, y, w, h, CANVAS_NOTHING);
    if (i >= 0) {
        const struct param *p = &b->p[i];
        double rows = (double)p->n[0], inner = p->nd > 1 ? (double)p->n[1] : 1; /* columns lie along dim 1 */
        double left = p->nd > 1 ? (double)p->lo[1] / inner : 0, wide = p->nd > 1 ? (double)p->ln[1] / inner : 1;
        double per_row = (double)p->held / (double)p->ln[0];
        int64_t lo, n = book_kept(b, i, &lo);
        x += w * left;
        if (b->computes)
            draw_rows(v, x, y, canvas_seen(w * wide), h, (double)p->lo[0] / rows, (double)p->ln[0] / rows,
                      canvas_fill(b));
        draw_rows(v, x, y, canvas_seen(w * wide), h, ((double)p->lo[0] + (double)lo / per_row) / rows,
                  (double)n / per_row / rows, CANVAS_KEPT);
    }
    canvas_frame(v, v->x[column], y, w, h);
}

static void draw_row(struct canvas *v, const struct kind *k, const char *name, const char *each)
{
    const struct param *p = &v->rank[0]->p[k->first];
    double rows = (double)p->n[0], cols = (double)p->numel / rows, w = CANVAS_BOX, h = TALL;
    char more[96];
    int at = snprintf(more, sizeof more, "%s", each);
    if (rows < cols) h *= rows / cols;
    else w *= cols / rows;
    if (h < 8) h = 8;
    if (w < 10) w = 10;
    for (int d = 0; d < p->nd; d++)
        at += snprintf(more + at, sizeof more - (size_t)at, "%s%lld", d ? "×" : "", (long long)p->n[d]);
    bool anywhere = false;
    for (int r = 0; r < v->fold.drawn; r++) anywhere |= k->here[r] >= 0;
    if (!anywhere) snprintf(more + at, sizeof more - (size_t)at, ", on ranks not drawn");
    canvas_label(v, v->y + 10, name, more);
    for (int r = 0; r < v->fold.drawn; r++) draw_part(v, r, k->here[r], w, h);
    v->y += (int)(h > 12 ? h : 12) + GAP;
}

/* "attn.q.weight" is called attn.q. */
static void short_name(char *name)
{
    char *weight = strstr(name, ".weight");
    if (weight) *weight = 0;
}

/* A matrix of the experts: a row for each run of experts that lie alike. */
static void draw_experts(struct canvas *v, struct kinds *k, int first)
{
    const char *base = k->at[first].base;
    struct kind *begin = NULL, *end = NULL;
    char matrix[PARAM_NAME], name[2 * PARAM_NAME];
    snprintf(matrix, sizeof matrix, "%s", strstr(base, "experts.") + strlen("experts."));
    short_name(matrix);
    for (int i = first; i <= k->n; i++) {
        struct kind *a = i < k->n ? &k->at[i] : NULL;
        if (a && (a->expert < 0 || strcmp(a->base, base))) continue;
        if (a) a->done = true;
        if (begin && (!a || a->expert != end->expert + 1 || !kinds_alike(v, begin, a))) {
            if (end == begin) snprintf(name, sizeof name, "expert %d of %d: %s", begin->expert, k->experts, matrix);
            else
                snprintf(name, sizeof name, "experts %d to %d of %d: %s", begin->expert, end->expert, k->experts,
                         matrix);
            draw_row(v, begin, name, end == begin ? "" : "each ");
            begin = NULL;
        }
        if (!begin) begin = a;
        end = a;
    }
}

void canvas_params(struct canvas *v)
{
    struct kinds k = {0};
    find_kinds(&k, v);
    canvas_heading(v, "parameters of one layer of each kind", "of the first layer that a rank has");
    for (int i = 0; i < k.n; i++) {
        char name[PARAM_NAME];
        if (k.at[i].done) continue;
        if (k.at[i].expert >= 0) {
            draw_experts(v, &k, i);
            continue;
        }
        snprintf(name, sizeof name, "%s", k.at[i].name);
        short_name(name);
        draw_row(v, &k.at[i], name, "");
    }
    for (int i = 0; i < k.n; i++) xfree(k.at[i].here);
    xfree(k.at);
}
