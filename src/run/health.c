/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of squares in fp64 says all: it is finite exactly when every element is (the largest square of an fp32 is 1e77). */
#include "run/health.h"

#include <math.h>
#include <stdbool.h>

static int check(const struct engine *g, int i, int what, struct err *e)
{
    static const char *const group[] = {"weights", "first moments", "second moments"};
    const struct piece *q = &g->store.units.piece[i];
    if (!g->params.p[i].counted || q->n == 0) return OK;
    double sum = g->kernels.flat->sum_squares(g->dev->team, store_piece_state(&g->store, i, what), q->n), rms = sqrt(sum / (double)q->n);
    const char *name = g->params.p[i].name;
    if (!isfinite(sum)) return err_set(e, ERR_NUMERIC, "%s of %s are not finite", group[what], name);
    if (what == STORE_MASTER && rms > HEALTH_RMS_LIMIT)
        return err_set(e, ERR_NUMERIC, "%s of %s have a root mean square of %.3g, above %g: they have diverged", group[what], name, rms,
                       HEALTH_RMS_LIMIT);
    return OK;
}

int health_check(const struct engine *g, struct err *e)
{
    int rc = OK;
    for (int what = 0; !rc && what < 1 + g->store.n_moments; what++)
        for (int i = 0; !rc && i < g->params.n; i++) rc = check(g, i, what, e);
    return rc;
}
