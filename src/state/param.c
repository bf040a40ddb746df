/* SPDX-License-Identifier: Apache-2.0 */
/* The table of parameters: what a rank holds of each, from its layout; and the initial value of every element, a pure
 * function of seed, name and index. */
#include "state/param.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "state/param_group.h"

void param_table_free(struct param_table *t)
{
    xfree(t->p);
    xfree(t->bucket);
    memset(t, 0, sizeof *t);
}

/* ---- rows by name ---- */
/* FNV-1a: names differ in a few digits, and a table has at most some 100,000 of them. */
static uint32_t hash_of(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    return h ^ h >> 15;
}

/* The bucket of this name: where its row stands, or a free one. Open addressing, at most half full. */
static int bucket_of(const struct param_table *t, const char *name)
{
    uint32_t mask = (uint32_t)t->n_buckets - 1, at = hash_of(name) & mask;
    while (t->bucket[at] && strcmp(t->p[t->bucket[at] - 1].name, name)) at = (at + 1) & mask;
    return (int)at;
}

static void index_row(struct param_table *t, int i)
{
    int at = bucket_of(t, t->p[i].name);
    CHECK(!t->bucket[at], "two parameters are called %s", t->p[i].name);
    t->bucket[at] = i + 1;
}

static void index_grow(struct param_table *t)
{
    xfree(t->bucket);
    t->n_buckets = 2 * t->room;
    t->bucket = xcalloc((size_t)t->n_buckets, sizeof *t->bucket);
    for (int i = 0; i < t->n; i++) index_row(t, i);
}

int param_find(const struct param_table *t, const char *name) { return t->n ? t->bucket[bucket_of(t, name)] - 1 : -1; }

/* ---- what follows from a layout ---- */
static const struct layout_place *place_on(const struct layout *l, enum axis a)
{
    for (int i = 0; i < l->n_places; i++)
        if (l->place[i].on.axis == a) return &l->place[i];
    return NULL;
}

static bool of_experts(const struct layout *l) { return place_on(l, AXIS_ETP) != NULL; }

/* Whole on one coordinate of the last place, where it is owned. */
static struct layout owned(struct layout l, const struct param *p)
{
    struct layout_place *last = &l.place[l.n_places - 1];
    if (p->owner) last->type = SPMD_I, last->owner = p->owner;
    return l;
}

struct layout param_stepped(const struct param *p)
{
    struct layout l = p->layout;
    if (!of_experts(&l)) return owned(layout_with_joined(l, AXIS_DP_SHARD, AXIS_CP, SPMD_S0), p);
    int i = l.n_places; /* edp's inner factor */
    while (l.place[--i].on.axis != AXIS_EDP || l.place[i].on.div > 1) CHECK(i > 0, "%s: experts without edp", p->name);
    struct layout_place inner = l.place[i];
    memmove(&l.place[i], &l.place[i + 1], (size_t)(l.n_places - i - 1) * sizeof *l.place);
    inner.type = SPMD_S0;
    l.place[l.n_places - 1] = inner;
    return owned(l, p);
}

/* Letters of the dense axes say the same of an expert's: its copies are over all data axes, and where etp is all of tp
 * it is cut as the MLP is. Over ep the experts of a layer, together, are shared out. */
static struct spmd_type type_of(const struct mesh *m, const struct layout *l)
{
    if (!of_experts(l)) return layout_spmd(l);
    enum spmd cut = layout_type(l, AXIS_ETP);
    bool apart = m->size[AXIS_ETP] < m->size[AXIS_TP];
    struct spmd_type t = spmd_with(spmd_all(SPMD_I), AXIS_EP, SPMD_S0);
    t = spmd_with(spmd_with(spmd_with(t, AXIS_DP_REPLICATE, SPMD_R), AXIS_DP_SHARD, SPMD_R), AXIS_CP, SPMD_R);
    t = spmd_with(t, AXIS_TP, apart ? SPMD_R : cut);
    return apart && m->size[AXIS_ETP] > 1 ? spmd_with(t, AXIS_ETP, cut) : t;
}

/* One of the ranks of a replica counts, and each replica counts for itself: so this rank stands for its twin in the
 * first. */
static bool is_counted(const struct param_table *t, const struct param *p)
{
    struct layout l = param_stepped(p);
    return layout_is_first(&l, t->rank - mesh_coord(&t->mesh, AXIS_DP_REPLICATE, t->rank) *
                                             t->mesh.stride[AXIS_DP_REPLICATE]);
}

static void place(struct param_table *t, struct param *p)
{
    bool here = layout_holds(&p->layout, t->rank);
    struct region box = here ? layout_box(&p->layout, t->rank) : region_whole(&p->layout.shape);
    p->offset = t->held;
    p->held = 1;
    for (int i = 0; i < p->nd; i++) {
        p->lo[i] = box.lo[i];
        p->ln[i] = here || i ? box.hi[i] - box.lo[i] : 0;
        p->held *= p->ln[i];
    }
    p->expert =
        of_experts(&p->layout) && (t->mesh.size[AXIS_EP] > 1 || t->mesh.size[AXIS_ETP] != t->mesh.size[AXIS_TP]);
    p->counted = here && is_counted(t, p);
    p->type = type_of(&t->mesh, &p->layout);
    t->held += p->held;
}

void param_place(struct param_table *t, int rank)
{
    if (!t->mesh.n_ranks) t->mesh = mesh_single();
    CHECK(rank >= 0 && rank < t->mesh.n_ranks, "rank %d of %d", rank, t->mesh.n_ranks);
    t->rank = rank;
    t->held = 0;
    for (int i = 0; i < t->n; i++) place(t, &t->p[i]);
}

struct layout param_alone(int nd, const int64_t *n)
{
    struct mesh one = mesh_single();
    return layout_on(&one, MESH_DENSE, shape_of(nd, n), SPMD_I);
}

void param_set_group(struct param *p, enum param_group g)
{
    CHECK(!param_group_is_matrices(g) || p->nd == 2, "%s has %d dims and no rows and columns", p->name, p->nd);
    p->group = g;
}

int param_add(struct param_table *t, const char *name, struct layout l, enum param_init init, double std, int layer)
{
    CHECK(l.shape.nd >= 1 && l.shape.nd <= PARAM_MAX_DIM, "%s has %d dims", name, l.shape.nd);
    CHECK(strlen(name) < PARAM_NAME, "parameter name too long: %s", name);
    if (!t->mesh.n_ranks) t->mesh = mesh_single();
    CHECK(l.n_ranks == t->mesh.n_ranks, "%s: a layout on %d ranks in a table of %d", name, l.n_ranks, t->mesh.n_ranks);
    if (t->n == t->room) {
        GROW(t->p, t->n, t->room, 1);
        index_grow(t);
    }
    struct param *p = &t->p[t->n];
    *p = (struct param){.nd = l.shape.nd,
                        .numel = shape_numel(&l.shape),
                        .layout = l,
                        .init = init,
                        .std = std,
                        .decay = l.shape.nd >= 2,
                        .layer = layer};
    snprintf(p->name, sizeof p->name, "%s", name);
    param_set_group(p, p->nd != 2 ? PARAM_VECTORS : layer < 0 ? PARAM_EMBEDDINGS : PARAM_MATRICES);
    p->stepped = true;
    for (int i = 0; i < p->nd; i++) p->n[i] = l.shape.n[i];
    place(t, p);
    t->numel += p->numel;
    index_row(t, t->n);
    return t->n++;
}

int64_t param_row_numel(const struct param *p) { return p->held ? p->held / p->ln[0] : 1; }

struct region param_rows(const struct param *p, int64_t first, int64_t n)
{
    struct region r = {.nd = p->nd};
    for (int i = 0; i < p->nd; i++) {
        r.lo[i] = p->lo[i];
        r.hi[i] = p->lo[i] + p->ln[i];
    }
    r.lo[0] = p->lo[0] + first;
    r.hi[0] = r.lo[0] + n;
    return r;
}

/* Where held element i lies in the global parameter. *run: so many held elements from there on are neighbours in both:
 * to the end of the innermost dim that is cut. */
static int64_t global_of(const struct param *p, int64_t i, int64_t *run)
{
    int64_t at = 0, stride = 1, inner = 1, rest = i;
    *run = p->held - i;
    for (int d = p->nd - 1; d >= 0; d--) {
        if (p->ln[d] != p->n[d] && *run == p->held - i) *run = p->ln[d] * inner - i % (p->ln[d] * inner);
        at += (p->lo[d] + rest % p->ln[d]) * stride;
        rest /= p->ln[d];
        stride *= p->n[d];
        inner *= p->ln[d];
    }
    return at;
}

struct fill {
    const struct param *p;
    uint64_t seed, stream;
    int64_t lo, n;
    float *out;
};

static void fill_run(const struct fill *f, int64_t global, int64_t n, float *out)
{
    float std = (float)f->p->std;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(global + i);
        double share = (double)(rng_u64(f->seed, f->stream, at) >> 11) * 0x1p-53;
        if (f->p->init == INIT_DECAY) out[i] = (float)log(1 + 15 * share);
        else if (f->p->init == INIT_STEP) out[i] = (float)log(expm1(0.001 * pow(100, share)));
        else out[i] = std * rng_normal(f->seed, f->stream, at);
    }
}

static void fill_member(void *arg, int member, int members)
{
    const struct fill *f = arg;
    int64_t a, b, run;
    team_split(f->n, member, members, &a, &b);
    if (f->p->init == INIT_ZEROS || f->p->init == INIT_ONES) {
        float v = f->p->init == INIT_ONES ? 1.0f : 0.0f;
        for (int64_t i = a; i < b; i++) f->out[i] = v;
        return;
    }
    for (int64_t i = a; i < b; i += run) {
        int64_t global = global_of(f->p, f->lo + i, &run);
        if (run > b - i) run = b - i;
        fill_run(f, global, run, f->out + i);
    }
}

void param_init_fill(const struct param *p, uint64_t seed, int64_t lo, int64_t n, float *out, struct team *team)
{
    char label[PARAM_NAME + 8];
    CHECK(lo >= 0 && n >= 0 && lo + n <= p->held, "%s: %lld+%lld of %lld held", p->name, (long long)lo, (long long)n,
          (long long)p->held);
    snprintf(label, sizeof label, "init/%s", p->name);
    struct fill f = {p, seed, rng_stream(label), lo, n, out};
    team_run(team, fill_member, &f);
}
