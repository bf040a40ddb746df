/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_few.c: products with few rows, as generation makes them token by token.
 *
 * Each weight is used once per row, so the memory that streams them sets the pace (2 bytes for 2 operations in
 * bf16). Columns are split among the members; a member computes up to 256 columns at a time into its stack and finishes
 * them (bias, acc, cast): the more, the farther apart lie the rows that `dot` walks at once (tile_dot256.h). No
 * scratch, no barrier, no packing.
 */
#include "base/err.h"
#include "kernel/cpu/tile/gemm.h"

enum { COLS = 64, COLS_MOST = 256 };

bool gemm_is_few_rows(const struct tile_ops *o, const struct gemm *g)
{
    return g->m <= o->dot_rows && !g->blocks && g->a.depth_dense && g->b.depth_dense && g->a.dtype == g->b.dtype &&
           (g->a.dtype == DT_F32 || g->a.dtype == DT_BF16);
}

struct job {
    const struct tile_ops *o;
    const struct gemm *g;
};

static void member_run(void *arg, int member, int n_members)
{
    const struct job *w = arg;
    const struct gemm *g = w->g;
    const int nr = w->o->nr;
    int64_t lo, hi;
    team_split((g->n + nr - 1) / nr, member, n_members, &lo, &hi);
    lo *= nr;
    hi = hi * nr < g->n ? hi * nr : g->n;
    const int64_t fit = TILE_DOT_ROWS * COLS / g->m / nr * nr, cols = fit < COLS_MOST ? fit : COLS_MOST;
    for (int64_t j = lo; j < hi; j += cols) {
        float y[TILE_DOT_ROWS * COLS];
        const int64_t now = hi - j < cols ? hi - j : cols;
        w->o->dot(y, cols, g->a.p, g->a.stride, tile_at(g->b, j, 0).p, g->b.stride, g->a.dtype, (int)g->m, now, g->k);
        for (int64_t i = 0; i < now; i += nr) {
            struct tile_out to = g->out;
            to.c = (char *)to.c + (size_t)(j + i) * dtype_bytes(to.c_dtype);
            if (to.bias) to.bias = (const char *)to.bias + (size_t)(j + i) * dtype_bytes(to.bias_dtype);
            if (to.acc) to.acc = (const char *)to.acc + (size_t)(j + i) * dtype_bytes(to.acc_dtype);
            w->o->finish(y + i, cols, (int)g->m, (int)(now - i < nr ? now - i : nr), &to);
        }
    }
}

void gemm_few_rows(const struct tile_ops *o, const struct gemm *g, struct team *team)
{
    CHECK(gemm_is_few_rows(o, g), "%ld rows", (long)g->m);
    struct job w = {.o = o, .g = g};
    team_run(team, member_run, &w);
}
