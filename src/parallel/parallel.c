/* The table of type changes. Only the change of type is recorded; which bytes move follows from (from, to, size). */
#include "parallel/parallel.h"

#include <stdio.h>

struct par par_single(void)
{
    struct par p = {{0}, {0}};
    for (int a = 0; a < AXIS_N; a++) p.size[a] = 1;
    return p;
}

static tid change(struct tape *t, const struct par *p, tid x, enum axis a, enum spmd from, enum spmd to,
                  const char *what)
{
    if (t->err.code) return TID_NONE;
    const struct tensor *v = tape_tensor(t, x);
    if (v->type.on[a] != from) {
        char type[128];
        err_set(&t->err, ERR_REQUEST, "%s over %s wants %s, got %s (%s)", what, axis_name(a), spmd_name(from), v->name,
                spmd_print(type, v->type));
        return TID_NONE;
    }
    CHECK(p->size[a] == 1, "%s over %s of size %d: refused when the config is read", what, axis_name(a), p->size[a]);
    char name[TAPE_NAME];
    snprintf(name, sizeof name, "%.40s", v->name);
    return tape_retype(t, x, a, to, name);
}

tid par_enter(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return change(t, p, x, a, SPMD_I, SPMD_R, "par_enter");
}

tid par_reduce(struct tape *t, const struct par *p, tid x, enum axis a)
{
    return change(t, p, x, a, SPMD_P, SPMD_I, "par_reduce");
}
