/* The table of type changes. Only the change of type is recorded; which bytes move follows from the row of the table and
 * the size of the axis. Rejected: a collective written out per layer (what the layer means and what moves would be said
 * twice, and could differ). */
#include "parallel/parallel.h"

#include <stdio.h>

#include "layout/region.h"

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

void par_share(const struct par *p, enum axis a, int64_t n, int64_t *lo, int64_t *hi)
{
    region_split(n, p->rank[a], p->size[a], lo, hi);
}

static tid apply(struct tape *t, const struct par *p, const struct change *c, tid x, enum axis a, int64_t rows)
{
    if (t->err.code) return TID_NONE;
    const struct tensor *v = tape_tensor(t, x);
    if (v->type.on[a] != c->from) {
        char type[128];
        err_set(&t->err, ERR_REQUEST, "%s over %s wants %s, got %s (%s)", c->call, axis_name(a), spmd_name(c->from), v->name,
                spmd_print(type, v->type));
        return TID_NONE;
    }
    if (++t->n_changes == p->forget) return x;
    char name[TAPE_NAME];
    snprintf(name, sizeof name, "%.40s", v->name);
    if (p->size[a] == 1) return tape_retype(t, x, a, c->to, name);
    struct op_attrs at = {.axis = a, .n_parts = p->size[a], .part = p->rank[a], .whole = rows};
    return tape_collective(t, c->op, &at, x, c->to, name);
}

static int64_t rows_of(const struct tape *t, tid x)
{
    return t->err.code ? 0 : tensor_rows(tape_tensor(t, x));
}

tid par_enter(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return apply(t, p, &enter, x, a, rows_of(t, x));
}

tid par_reduce(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return apply(t, p, &reduce, x, a, rows_of(t, x));
}

tid par_gather(struct tape *t, const struct par *p, tid x, enum axis a, int64_t rows)
{
    return apply(t, p, &gather, x, a, rows);
}

tid par_scatter(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return apply(t, p, &scatter, x, a, rows_of(t, x));
}

tid par_spread(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return apply(t, p, &spread, x, a, rows_of(t, x));
}

tid par_collect(struct tape *t, const struct par *p, tid x, enum axis a, int64_t rows)
{
    return apply(t, p, &collect, x, a, rows);
}

tid par_rows(struct tape *t, const struct par *p, tid x, enum axis a)
{
    if (t->err.code || x < 0) return TID_NONE;
    int64_t lo, hi;
    par_share(p, a, tape_tensor(t, x)->n[0], &lo, &hi);
    tid rows = tape_rows(t, x, lo, hi - lo);
    CHECK(!dtype_info(tape_tensor(t, x)->dtype)->is_float, "%s wants a gradient: spread it", tape_tensor(t, x)->name);
    t->tensors[rows].type = spmd_with(t->tensors[rows].type, a, SPMD_S0);
    return rows;
}
