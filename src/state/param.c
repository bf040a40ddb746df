/* SPDX-License-Identifier: Apache-2.0 */
/* The table of parameters and the initial value of every element, a pure function of seed, name and index. */
#include "state/param.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

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

int param_find(const struct param_table *t, const char *name)
{
    return t->n ? t->bucket[bucket_of(t, name)] - 1 : -1;
}

int param_add(struct param_table *t, const char *name, int nd, const int64_t *n, enum param_init init, double std,
              int layer, struct spmd_type type)
{
    CHECK(nd >= 1 && nd <= PARAM_MAX_DIM, "%s has %d dims", name, nd);
    CHECK(strlen(name) < PARAM_NAME, "parameter name too long: %s", name);
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->p = xrealloc(t->p, sizeof *t->p * (size_t)t->room);
        index_grow(t);
    }
    struct param *p = &t->p[t->n];
    *p = (struct param){.nd = nd, .numel = 1, .held = 1, .offset = t->held, .counted = true, .init = init, .std = std, .layer = layer};
    snprintf(p->name, sizeof p->name, "%s", name);
    for (int i = 0; i < nd; i++) {
        p->n[i] = p->ln[i] = n[i];
        p->numel *= n[i];
        p->held *= n[i];
    }
    p->decay = nd >= 2;
    p->group = nd < 2 ? PARAM_VECTORS : layer < 0 ? PARAM_EMBEDDINGS : PARAM_MATRICES;
    p->stepped = true;
    p->type = type;
    t->numel += p->numel;
    t->held += p->held;
    index_row(t, t->n);
    return t->n++;
}

void param_hold(struct param_table *t, int dim, int64_t lo, int64_t n)
{
    struct param *p = &t->p[t->n - 1];
    CHECK(dim < p->nd && lo >= 0 && n >= 0 && lo + n <= p->n[dim], "%s: %lld+%lld of %lld", p->name, (long long)lo,
          (long long)n, (long long)p->n[dim]);
    t->held -= p->held;
    p->lo[dim] = lo;
    p->ln[dim] = n;
    p->held = 1;
    for (int i = 0; i < p->nd; i++) p->held *= p->ln[i];
    t->held += p->held;
}

void param_drop(struct param_table *t, const bool *drop)
{
    t->held = 0;
    for (int i = 0; i < t->n; i++) {
        struct param *p = &t->p[i];
        p->offset = t->held;
        if (drop[i]) {
            p->held = p->ln[0] = 0;
            p->counted = false;
        }
        t->held += p->held;
    }
}

int64_t param_row_numel(const struct param *p)
{
    return p->held ? p->held / p->ln[0] : 1;
}

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
    for (int64_t i = 0; i < n; i++) out[i] = std * rng_normal(f->seed, f->stream, (uint64_t)(global + i));
}

static void fill_member(void *arg, int member, int members)
{
    const struct fill *f = arg;
    int64_t a, b, run;
    team_split(f->n, member, members, &a, &b);
    if (f->p->init != INIT_NORMAL) {
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
