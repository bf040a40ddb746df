/* SPDX-License-Identifier: Apache-2.0 */
/* The table of type changes. Only the change of type is recorded; which bytes move follows from the row of the table
 * and the size of the axis. Rejected: a collective written out per layer (what the layer means and what moves would be
 * said twice, and could differ). */
#include "parallel/parallel.h"

#include <stdio.h>

#include "layout/region.h"
#include "layout/sequence.h"

struct change {
    const char *call;
    enum op op;
    enum spmd from, to;
};
static const struct change enter = {"par_enter", OP_ENTER, SPMD_I, SPMD_R};
static const struct change reduce = {"par_reduce", OP_REDUCE, SPMD_P, SPMD_I};
static const struct change gather = {"par_gather", OP_GATHER, SPMD_S0, SPMD_R};
static const struct change scatter = {"par_scatter", OP_SCATTER, SPMD_P, SPMD_S0};
static const struct change spread = {"par_spread", OP_SPREAD, SPMD_I, SPMD_S0};
static const struct change collect = {"par_collect", OP_COLLECT, SPMD_S0, SPMD_I};

struct par par_single(void)
{
    struct par p = {.forget = 0};
    for (int a = 0; a < AXIS_N; a++) p.size[a] = 1;
    return p;
}

struct par par_at(const struct mesh *m, int rank)
{
    struct par p = {.forget = 0};
    for (int a = 0; a < AXIS_N; a++) {
        p.size[a] = m->size[a];
        p.rank[a] = mesh_coord(m, (enum axis)a, rank);
    }
    return p;
}

struct mesh par_mesh(const struct par *p, int *rank)
{
    static const enum axis dense[] = {AXIS_PP, AXIS_DP_REPLICATE, AXIS_DP_SHARD, AXIS_CP, AXIS_TP};
    struct mesh m;
    struct err e = {0};
    int n = 1;
    for (int i = 0; i < 5; i++) n *= p->size[dense[i]];
    CHECK(!mesh_init(&m, n, p->size, &e), "%s", e.text);
    *rank = mesh_rank(&m, MESH_DENSE, p->rank);
    CHECK(*rank == mesh_rank(&m, MESH_EXPERT, p->rank), "coordinates of rank %d and of rank %d", *rank,
          mesh_rank(&m, MESH_EXPERT, p->rank));
    return m;
}

void par_share(const struct par *p, enum axis a, int64_t n, int64_t *lo, int64_t *hi)
{
    region_split(n, p->rank[a], p->size[a], lo, hi);
}

struct axis_ranks par_ranks(const struct par *p, enum axis a)
{
    return (struct axis_ranks){.axis = a, .n_parts = p->size[a], .part = p->rank[a]};
}

static tid refuse(struct tape *t, const char *call, enum axis a, const char *want, tid x)
{
    char type[128];
    const struct tensor *v = tape_tensor(t, x);
    err_set(&t->err, ERR_REQUEST, "%s over %s wants %s, got %s (%s)", call, axis_name(a), want, v->name,
            spmd_print(type, v->type));
    return TID_NONE;
}

/* rows: how they are cut; whose they are is filled in. */
static tid apply(struct tape *t, const struct par *p, const struct change *c, tid x, enum axis a,
                 struct rows_attrs rows)
{
    if (t->err.code) return TID_NONE;
    const struct tensor *v = tape_tensor(t, x);
    if (v->type.on[a] != c->from) return refuse(t, c->call, a, spmd_name(c->from), x);
    if (++t->n_changes == p->forget) return x;
    char name[TAPE_NAME];
    snprintf(name, sizeof name, "%.40s", v->name);
    if (p->size[a] == 1) return tape_retype(t, x, a, c->to, name);
    rows.over = par_ranks(p, a);
    struct op_attrs at = op_row(c->op)->attrs == ATTRS_SUM ? ATTRS(sum, .over = rows.over) : attrs_rows(rows);
    return tape_collective(t, c->op, &at, x, c->to, name);
}

static struct rows_attrs whole(int64_t n) { return (struct rows_attrs){.whole = n}; }

static struct rows_attrs rows_of(const struct tape *t, tid x)
{
    return whole(t->err.code ? 0 : tensor_rows(tape_tensor(t, x)));
}

tid par_enter(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return apply(t, p, &enter, x, a, rows_of(t, x));
}

tid par_reduce(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return apply(t, p, &reduce, x, a, rows_of(t, x));
}

tid par_gather(struct tape *t, const struct par *p, tid x, enum axis a, int64_t n)
{
    return apply(t, p, &gather, x, a, whole(n));
}

tid par_scatter(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return apply(t, p, &scatter, x, a, rows_of(t, x));
}

tid par_spread(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return apply(t, p, &spread, x, a, rows_of(t, x));
}

tid par_collect(struct tape *t, const struct par *p, tid x, enum axis a, int64_t n)
{
    return apply(t, p, &collect, x, a, whole(n));
}

tid par_collect_tokens(struct tape *t, const struct par *p, tid x, int64_t batch, int64_t seq)
{
    for (int i = 0; i < AXIS_N && !t->err.code; i++)
        if (i != AXIS_CP && tape_tensor(t, x)->type.on[i] == SPMD_S0)
            return refuse(t, "par_collect_tokens", (enum axis)i, "whole sequences of this rank of cp", x);
    return apply(t, p, &collect, x, AXIS_CP, (struct rows_attrs){.whole = batch * seq, .batch = batch, .seq = seq});
}

tid par_rows(struct tape *t, const struct par *p, tid x, enum axis a)
{
    if (t->err.code || x < 0) return TID_NONE;
    int64_t lo, hi;
    par_share(p, a, tape_tensor(t, x)->n[0], &lo, &hi);
    tid own = tape_rows(t, x, lo, hi - lo);
    CHECK(!dtype_info(tape_tensor(t, x)->dtype)->is_float, "%s wants a gradient: spread it", tape_tensor(t, x)->name);
    t->tensors[own].type = spmd_with(t->tensors[own].type, a, SPMD_S0);
    return own;
}

struct picture_rows par_picture_rows(const struct par *p, int64_t batch, int64_t seq)
{
    int64_t all = batch * context_rows(seq, p->size[AXIS_CP], p->rank[AXIS_CP], 1), lo = 0, hi = all;
    if (p->sequence) par_share(p, AXIS_TP, all, &lo, &hi);
    return (struct picture_rows){batch, seq, p->size[AXIS_CP], p->rank[AXIS_CP], lo, hi - lo};
}

void par_patches(struct tape *t, const struct par *p, tid pixels, struct patches_attrs a, enum dtype to, bool over_cp,
                 const char *name, tid out[3])
{
    tid made = op_patches(t, pixels, a, to, name);
    for (int i = 0; i < 3; i++) {
        char was[TAPE_NAME];
        out[i] = TID_NONE;
        if (t->err.code) continue;
        snprintf(was, sizeof was, "%s", tape_tensor(t, made + i)->name);
        out[i] = over_cp ? tape_retype(t, made + i, AXIS_CP, SPMD_S0, was) : made + i;
        if (p->sequence) out[i] = tape_retype(t, out[i], AXIS_TP, SPMD_S0, was);
    }
}
