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
    memset(t, 0, sizeof *t);
}

int param_find(const struct param_table *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->p[i].name, name)) return i;
    return -1;
}

int param_add(struct param_table *t, const char *name, int nd, const int64_t *n, enum param_init init, double std,
              int layer, struct spmd_type type)
{
    CHECK(nd >= 1 && nd <= PARAM_MAX_DIM, "%s has %d dims", name, nd);
    CHECK(strlen(name) < PARAM_NAME, "parameter name too long: %s", name);
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->p = xrealloc(t->p, sizeof *t->p * (size_t)t->room);
    }
    struct param *p = &t->p[t->n];
    *p = (struct param){.nd = nd, .numel = 1, .offset = t->numel, .init = init, .std = std, .layer = layer};
    snprintf(p->name, sizeof p->name, "%s", name);
    for (int i = 0; i < nd; i++) {
        p->n[i] = n[i];
        p->numel *= n[i];
    }
    p->decay = nd >= 2;
    p->type = type;
    t->numel += p->numel;
    return t->n++;
}

struct fill {
    const struct param *p;
    uint64_t seed, stream;
    int64_t lo, n;
    float *out;
};

static void fill_member(void *arg, int member, int members)
{
    const struct fill *f = arg;
    int64_t a, b;
    team_split(f->n, member, members, &a, &b);
    if (f->p->init != INIT_NORMAL) {
        float v = f->p->init == INIT_ONES ? 1.0f : 0.0f;
        for (int64_t i = a; i < b; i++) f->out[i] = v;
        return;
    }
    float std = (float)f->p->std;
    for (int64_t i = a; i < b; i++) f->out[i] = std * rng_normal(f->seed, f->stream, (uint64_t)(f->lo + i));
}

void param_init_fill(const struct param *p, uint64_t seed, int64_t lo, int64_t n, float *out, struct team *team)
{
    char label[PARAM_NAME + 8];
    snprintf(label, sizeof label, "init/%s", p->name);
    struct fill f = {p, seed, rng_stream(label), lo, n, out};
    team_run(team, fill_member, &f);
}
